"""Plait: a runtime for agent systems in which the session is the value and the only record.

This is the composition root: the one place where live time, chance and the default projections are
bound.
"""

from __future__ import annotations

import os as _os
import sys as _sys
import threading as _threading
from collections.abc import Sequence as _Sequence
from importlib import import_module as _import
from pathlib import Path as _Path
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any
from typing import Literal as _Literal
from typing import cast as _cast

from plait.errors import MergeConflict, PlaitError, StaleHead
from plait.event import Event
from plait.event.kinds import Budget
from plait.journal.writer import DirectWriter as _DirectWriter
from plait.journal.writer import bind_direct_writer as _bind_direct_writer
from plait.memory.rows import MemoryRows as _MemoryRows
from plait.runtime.live import Live as _Live
from plait.secrets import Secret
from plait.session import CopyRows as _CopyRows
from plait.session import EffectRows as _EffectRows
from plait.session import GraphRows as _GraphRows
from plait.session import InboxRows as _InboxRows
from plait.session import JobRows as _JobRows
from plait.session import Message, Session, file, image
from plait.session import SessionRows as _SessionRows
from plait.session import TurnRows as _TurnRows
from plait.session.ports import Drawing as _Drawing
from plait.session.ports import Host as _HostPort
from plait.session.ports import MemoryRules as _MemoryRules
from plait.session.ports import TurnTaker as _TurnTaker
from plait.session.ports import bind_ablation as _bind_ablation
from plait.session.ports import bind_drawing as _bind_drawing
from plait.session.ports import bind_host as _bind_host
from plait.session.ports import bind_memory_rules as _bind_memory_rules
from plait.session.ports import bind_turns as _bind_turns
from plait.session.views import Effect
from plait.store import Projection as _Projection
from plait.store import Store
from plait.store import find_open as _opened
from plait.store import locate as _locate
from plait.store import migrate_at as _migrate_at
from plait.store import open_at as _open_at
from plait.tool import tool

if _TYPE_CHECKING:
    from plait.agent import Agent
    from plait.calls.model_call import Retry
    from plait.cluster import Cluster
    from plait.combinators import Parallel, Sequential
    from plait.compactor import Compactor
    from plait.journal.stops import Cancelled, Parked
    from plait.memory.memory import Memory
    from plait.model.base import Model, ToolCall
    from plait.model.scripted import ScriptedModel
    from plait.runs.bisect import bisect
    from plait.runs.debug import debug
    from plait.runs.forms import (
        areplay,
        aresume,
        astream_replay,
        astream_resume,
        astream_whatif,
        awhatif,
        stream_replay,
        stream_resume,
        stream_whatif,
    )
    from plait.runs.replay import replay
    from plait.runs.resume import resume
    from plait.runs.whatif import whatif
    from plait.runtime.guards import Correct, Reject
    from plait.runtime.heartbeats import heartbeat
    from plait.runtime.patches import patched
    from plait.runtime.prompt import View
    from plait.sandbox import Limits, Sandbox
    from plait.selector import Choice, Selector
    from plait.store.postgres.migrate import Migrated as _Migrated
    from plait.tool import Happened, Result, ask_human
    from plait.workflow import Workflow

__all__ = [
    "astream_whatif",
    "stream_whatif",
    "awhatif",
    "astream_replay",
    "stream_replay",
    "areplay",
    "astream_resume",
    "stream_resume",
    "aresume",
    "Agent",
    "Budget",
    "Cancelled",
    "Choice",
    "Cluster",
    "Compactor",
    "Correct",
    "Effect",
    "Event",
    "Happened",
    "Limits",
    "Memory",
    "MergeConflict",
    "Message",
    "Model",
    "Parallel",
    "Parked",
    "PlaitError",
    "Reject",
    "Result",
    "Retry",
    "Sandbox",
    "ScriptedModel",
    "Secret",
    "Selector",
    "Sequential",
    "Session",
    "StaleHead",
    "Store",
    "ToolCall",
    "View",
    "Workflow",
    "ask_human",
    "bisect",
    "debug",
    "file",
    "heartbeat",
    "image",
    "migrate_store",
    "open_store",
    "patched",
    "replay",
    "resume",
    "tool",
    "whatif",
]


def open_store(
    address: str | _Path | None = None,
    *,
    projections: _Sequence[_Projection] = (),
    durability: _Literal["full", "async"] | None = None,
) -> Store:
    """Open a store: a folder, `sqlite:FOLDER`, `memory:` or `memory:NAME`, made if need be, or
    `postgresql://USER@HOST/DATABASE`, whose tables `plait migrate` makes.

    Without an address: PLAIT_STORE if set, else `.plait` in the nearest folder upward that has one,
    up to the home folder or the root of the repository, else here. One that another user could have
    put there raises UntrustedStore.

    A process has one store per address: asking again gives the same one, and `close()` closes it
    for everybody.

    `durability="async"` is for sessions opened from now on that do not say otherwise: their commits
    are synced at boundaries (docs/durability.md), not one by one.
    """
    place = (
        _default_address()
        if address is None
        else str(address)
        if isinstance(address, _Path)
        else address
    )
    return _open_at(
        place, source=_Live(), projections=(*_PROJECTIONS, *projections), durability=durability
    )


def migrate_store(
    address: str,
    *,
    projections: _Sequence[_Projection] = (),
    grant: _Sequence[str] = (),
    grant_read: _Sequence[str] = (),
    dry_run: bool = False,
) -> _Migrated | None:
    """Make or upgrade the tables of a store that a server keeps; None if the store needs none.

    `plait migrate` calls it: docs/stores.md says what it does.
    """
    return _migrate_at(
        address,
        source=_Live(),
        projections=(*_PROJECTIONS, *projections),
        grant=grant,
        grant_read=grant_read,
        dry_run=dry_run,
    )


def _default_address() -> str:
    return _locate(_Path.cwd(), _os.environ)


_PROJECTIONS = (
    _SessionRows(),
    _GraphRows(),
    _InboxRows(),
    _TurnRows(),
    _EffectRows(),
    _MemoryRows(),
    _CopyRows(),
    _JobRows(),
)
_bind_direct_writer(
    _DirectWriter(
        _Live(), lambda address: _opened(address) or open_store(address), _default_address
    )
)


# What acts is loaded when it is first asked for: whoever only looks at sessions, as most commands
# do, need not wait for it.
_ACTING = {
    "astream_whatif": "plait.runs.forms",
    "stream_whatif": "plait.runs.forms",
    "awhatif": "plait.runs.forms",
    "astream_replay": "plait.runs.forms",
    "stream_replay": "plait.runs.forms",
    "areplay": "plait.runs.forms",
    "astream_resume": "plait.runs.forms",
    "stream_resume": "plait.runs.forms",
    "aresume": "plait.runs.forms",
    "Agent": "plait.agent",
    "Cancelled": "plait.journal.stops",
    "Choice": "plait.selector",
    "Cluster": "plait.cluster",
    "Compactor": "plait.compactor",
    "Correct": "plait.runtime.guards",
    "Happened": "plait.tool",
    "Limits": "plait.sandbox",
    "Memory": "plait.memory.memory",
    "Model": "plait.model.base",
    "Parallel": "plait.combinators",
    "Parked": "plait.journal.stops",
    "Reject": "plait.runtime.guards",
    "Result": "plait.tool",
    "Retry": "plait.calls.model_call",
    "Sandbox": "plait.sandbox",
    "ScriptedModel": "plait.model.scripted",
    "Selector": "plait.selector",
    "Sequential": "plait.combinators",
    "ToolCall": "plait.model.base",
    "View": "plait.runtime.prompt",
    "Workflow": "plait.workflow",
    "ask_human": "plait.tool",
    "bisect": "plait.runs.bisect",
    "debug": "plait.runs.debug",
    "heartbeat": "plait.runtime.heartbeats",
    "patched": "plait.runtime.patches",
    "replay": "plait.runs.replay",
    "resume": "plait.runs.resume",
    "whatif": "plait.runs.whatif",
}


class _LazyHost:
    """Stands in for the host until somebody needs it."""

    def __getattr__(self, name: str) -> _Any:
        from plait.runtime.host import LocalHost

        host = LocalHost()
        _bind_host(host)
        return getattr(host, name)


_bind_host(_cast("_HostPort", _LazyHost()))


class _LazyRules:
    """Stands in for the rules of memories until a merge asks them."""

    def __getattr__(self, name: str) -> _Any:
        from plait.memory.arrival import ArrivalRules

        rules = ArrivalRules()
        _bind_memory_rules(rules)
        return getattr(rules, name)


_bind_memory_rules(_cast("_MemoryRules", _LazyRules()))


def _draw(value: object) -> str:
    value_html: _Drawing = _import("plait.dossier.notebook").value_html
    _bind_drawing(value_html)
    return value_html(value)


_bind_drawing(_draw)


class _LazyTurns:
    """Stands in for turns until a program takes one."""

    def __getattr__(self, name: str) -> _Any:
        from plait.runs.turn_drivers import LocalTurns

        turns = LocalTurns()
        _bind_turns(turns)
        return getattr(turns, name)


_bind_turns(_cast("_TurnTaker", _LazyTurns()))


def _ablate(*about: _Any, **how: _Any) -> _Any:
    """Stand in for ablation until a program asks for it."""
    from plait.runs.ablate import ablate

    _bind_ablation(ablate)
    return ablate(*about, **how)


_bind_ablation(_ablate)


def _print_error(
    whole: _Any, given: tuple[_Any, ...], error: BaseException | None, trace: _Any
) -> None:
    """Print an uncaught error short, if its way led through Plait; else as before."""
    from plait.runtime.tracebacks import print_short

    if error is None or not print_short(error, trace):
        whole(*given)


def _shorten_tracebacks() -> None:
    whole, threaded = _sys.excepthook, _threading.excepthook

    def print_error(kind: type[BaseException], error: BaseException, trace: _Any) -> None:
        _print_error(whole, (kind, error, trace), error, trace)

    def print_thread_error(args: _Any) -> None:
        _print_error(threaded, (args,), args.exc_value, args.exc_traceback)

    _sys.excepthook, _threading.excepthook = print_error, print_thread_error


_shorten_tracebacks()


def __getattr__(name: str) -> _Any:
    if name in _ACTING:
        globals()[name] = found = getattr(_import(_ACTING[name]), name)
        return found
    if name == "__version__":
        from importlib import metadata  # reads the installation: not at every import

        return metadata.version("plait")
    text = f"module 'plait' has no attribute {name!r}"
    if name not in _OTHER_NAMES:
        raise AttributeError(text)
    text = f"{text}: {_OTHER_NAMES[name]}"
    # in `from plait import Runner`, Python replaces the text of an AttributeError
    from inspect import currentframe

    here = currentframe()
    caller = here.f_back if here is not None else None
    if caller is not None and caller.f_globals.get("__name__") == "importlib._bootstrap":
        raise ImportError(text, name="plait")
    raise AttributeError(text)


# Names of other libraries, each with the step to take instead.
_OTHER_NAMES = {
    "Runner": 'call the agent: session = agent(Session("Hi")); session.text is the answer',
    "StateGraph": "write a Workflow: class Flow(Workflow), with forward(self, session)",
    "Graph": "write a Workflow: class Flow(Workflow), with forward(self, session)",
    "Crew": "write a Workflow, or pass agents as tools: Agent(…, tools=[other])",
    "create_agent": "write Agent(instruction, model=, tools=)",
    "create_react_agent": "write Agent(instruction, model=, tools=)",
    "function_tool": "write @tool",
    "FunctionTool": "write @tool",
    "ModelSettings": "write Agent(parameters={'temperature': …})",
    "SQLiteSession": "write Session(…, store=FOLDER)",
    "Conversation": "write Session",
    "MemorySaver": 'write Session(…, store="memory:")',
    "InMemorySaver": 'write Session(…, store="memory:")',
    "interrupt": "write session.ask(…), or Ask(…) in a policy",
    "Command": "write session.inbox.answer(…), then resume(session)",
    "handoff": "write Agent(…, handoffs=[other])",
    "input_guardrail": "write Agent(…, before=[check])",
    "output_guardrail": "write Agent(…, after=[check])",
    "trace": "read session.events, or `plait log`: all is on record",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
