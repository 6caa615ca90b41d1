"""Resume, replay and what-if in an event loop, and as streams of deltas and events.

A stream yields deltas, with `events=True` also events, each where it was recorded, and last the
session. If its reader stops, the run is stopped before its next effect: it can be resumed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from plait.event import Event
from plait.model.base import Delta
from plait.runs.replay import replay
from plait.runs.resume import aresume_session, resume
from plait.runs.take_up import acall_program
from plait.runs.whatif import branch_off, whatif
from plait.runtime.attendants import Watch
from plait.runtime.drivers.on_loop import run_in_thread
from plait.runtime.listeners import OnEvent
from plait.runtime.policy import Approver
from plait.runtime.registry import run_by_id
from plait.runtime.run import Run
from plait.runtime.settings import Answerer
from plait.session import Session
from plait.session.ports import store_at
from plait.store import Store
from plait.streaming import Put, astream_work, hear_also, stream_work
from plait.workflow import Workflow

Items = Iterator[Delta | Event | Session]
AsyncItems = AsyncIterator[Delta | Event | Session]


# ── resume ───────────────────────────────────────────────────────────────────────────────────


async def aresume(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    store: str | Path | Store | None = None,
    on_event: OnEvent | None = None,
    approver: Approver | None = None,
    answerer: Answerer | None = None,
    accept: str | None = None,
    **kwargs: Any,
) -> Session:
    """Resume as `resume` does, on the caller's event loop."""
    if not isinstance(session, Session):
        session = await run_in_thread(lambda: Session.open(str(session), store=store))
    watch = Watch(on_event, approver, answerer)
    return await aresume_session(session, workflow, args, kwargs, watch, accept)


def stream_resume(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    events: bool = False,
    **how: Any,
) -> Items:
    """Resume as `resume` does; yield deltas and events as they come, and last the session."""
    return _stream(lambda heard: resume(session, workflow, *args, **how, **heard), how, events)


def astream_resume(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    events: bool = False,
    **how: Any,
) -> AsyncItems:
    """Do the same on the caller's event loop."""
    return _astream(
        lambda heard: aresume(session, workflow, *args, on_event=heard, **how), how, events
    )


# ── replay ───────────────────────────────────────────────────────────────────────────────────


async def areplay(
    session: Session | str, workflow: Workflow | None = None, /, *args: Any, **how: Any
) -> Session:
    """Replay as `replay` does, in a thread: nothing is executed, so nothing needs the loop."""
    return await run_in_thread(lambda: replay(session, workflow, *args, **how))


def stream_replay(
    session: Session | str, workflow: Workflow | None = None, /, *args: Any, **how: Any
) -> Iterator[Event | Session]:
    """Replay as `replay` does; yield the events of the run that the program made again, in their
    order, and last the session.
    """
    yield from _with_events(replay(session, workflow, *args, **how))


async def astream_replay(
    session: Session | str, workflow: Workflow | None = None, /, *args: Any, **how: Any
) -> AsyncIterator[Event | Session]:
    """Do the same on the caller's event loop."""
    after = await areplay(session, workflow, *args, **how)
    for item in await run_in_thread(lambda: list(_with_events(after))):
        yield item


def _with_events(after: Session) -> Iterator[Event | Session]:
    run = after.runs[-1] if after.runs else None
    if run is not None:
        yield from store_at(after.store).read(after.id, run.first, after.seq)
    yield after


# ── what-if ──────────────────────────────────────────────────────────────────────────────────


async def awhatif(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    on_event: OnEvent | None = None,
    approver: Approver | None = None,
    answerer: Answerer | None = None,
    **how: Any,
) -> Session:
    """Run a what-if as `whatif` does, on the caller's event loop."""
    watch = Watch(on_event, approver, answerer)
    taken = await run_in_thread(lambda: branch_off(session, workflow, args, watch, **how))
    return await acall_program(*taken, watch)


def stream_whatif(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    events: bool = False,
    **how: Any,
) -> Items:
    """Run a what-if as `whatif` does; yield deltas and events, and last the branch."""
    return _stream(lambda heard: whatif(session, workflow, *args, **how, **heard), how, events)


def astream_whatif(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    events: bool = False,
    **how: Any,
) -> AsyncItems:
    """Do the same on the caller's event loop."""
    return _astream(
        lambda heard: awhatif(session, workflow, *args, on_event=heard, **how), how, events
    )


def _astream(act: Callable[[OnEvent | None], Any], how: dict[str, Any], events: bool) -> AsyncItems:
    """Act on the caller's event loop with a listener."""
    first = how.pop("on_event", None)
    return astream_work(lambda put: act(hear_also(Watch(first), put).on_event), events)


def _stream(act: Callable[[dict[str, Any]], Session], how: dict[str, Any], events: bool) -> Items:
    """Act in a thread with a listener; the runs that it hears of are stopped with the stream."""
    first, runs = how.pop("on_event", None), dict[str, Run]()

    def work(put: Put) -> Session:
        def put_and_note(item: Event | Delta) -> None:
            if isinstance(item, Event) and (run := run_by_id(item.header.run)) is not None:
                runs.setdefault(run.id, run)
            put(item)

        return act({"on_event": hear_also(Watch(first), put_and_note).on_event})

    return stream_work(work, lambda: [(run, run.root) for run in runs.values()], events)
