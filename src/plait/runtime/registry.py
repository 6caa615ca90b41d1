"""The runs of this process, found by the id that a session carries."""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from plait.errors import RunLost
from plait.ids import LogId, digest, short
from plait.runtime import bypass
from plait.runtime.process import THIS_PROCESS
from plait.runtime.run import Run, left_run_here
from plait.runtime.run_writer import RunWriter
from plait.session import Session
from plait.session.ports import Act, bind_left_writers, bind_writer, unbind_writer
from plait.session.value import advance, position_of
from plait.store import Fence

_LET_GO_MAX = 10_000


class ReleasedRun(NamedTuple):
    """An open run that this process no longer has: it is parked, or was interrupted.

    Another process may take it, so values of it that a thread still has write under its fences.
    """

    root: LogId
    id: str
    home: str
    fences: tuple[Fence, ...]


class _RunTable:
    """The runs that are going on, by their ids and by the scopes of their tool calls."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.scopes: dict[str, set[str]] = {}
        self.released: dict[str, ReleasedRun] = {}


_registry = _RunTable()


def run_of(session: Session) -> Run | None:
    """Return the run that a value belongs to, if it is going on in this process.

    For code of a run that was left, it is that one: not None, and not the run as it was resumed.
    """
    id = position_of(session).run
    if id is None:
        return None
    run = _registry.runs.get(id)
    return run if run is not None and not run.holder else left_run_here(id) or run


def _left_writer(id: str) -> RunWriter | None:
    """Return the writer of the run whose code this is, if that run was left."""
    run = left_run_here(id)
    return RunWriter(run) if run is not None else None


def open_runs() -> list[str]:
    """Return the ids and scopes of the runs of this process."""
    return list(_registry.runs)


def run_by_id(id: str | None) -> Run | None:
    return _registry.runs.get(id or "")


def released_run(id: str | None) -> ReleasedRun | None:
    return _registry.released.get(id) if id is not None and _registry.released else None


def is_going_on(id: str) -> bool:
    """True if a run goes on, or is replayed, in this process."""
    run = _registry.runs.get(id)
    return run is not None and not run.closed


def is_tried_again(session: Session) -> bool:
    """True if an answer that ended its run is asked for again, since the run was resumed."""
    run = run_of(session)
    return run is not None and run.journal.is_tried_again(session)


def open_run(run: Run) -> None:
    _registry.runs[run.id] = run
    _registry.released.pop(run.id, None)
    bind_writer(RunWriter(run), run.id)


def watch_run(run: Run, address: str, policy: str | None) -> None:
    """Notice from now on what the run's own code does around the session."""
    folder = run.journal.writer.store(address).folder
    if folder is not None:
        bypass.spare_folder(str(folder))
    bypass.watch(run, bypass.policy_of(policy, os.environ))


def close_run(run: Run) -> None:
    fence = run.journal.fence
    fence.is_closed = True
    bypass.unwatch(run)
    if fence.is_lost:
        return  # a thread of the program may still have values of it: they write nothing, ever
    for scope in (run.id, *_registry.scopes.pop(run.id, ())):
        _registry.runs.pop(scope, None)
        unbind_writer(scope)
        if fence.fences and not run.journal.has_ended:
            kept = ReleasedRun(run.root, run.id, fence.home, fence.fences)
            _registry.released[scope] = kept
    while len(_registry.released) > _LET_GO_MAX:
        _registry.released.pop(next(iter(_registry.released)))


def scoped_session(session: Session, call: str, attempt: int, act: Act) -> Session:
    """Return the session as a tool is handed it: its writes are the tool call's own."""
    run = run_of(session)
    if run is None:
        return session
    scope = f"{session.run}/{call}/{attempt}" if attempt > 1 else f"{session.run}/{call}"
    if len(scope) > 180:  # a tool in a tool in a tool
        scope = f"{run.id}/{digest(b'plait/scope/1', scope.encode())[:24]}"
    _registry.scopes.setdefault(run.id, set()).add(scope)
    _registry.runs[scope] = run
    run.stack.set_act(scope, act)
    bind_writer(RunWriter(run), scope)
    return advance(session, msgspec.structs.replace(position_of(session), run=scope))


def _leave_to_parent() -> None:
    """Halt all runs in a forked child: they are the parent's."""
    parent = "the process that this one was forked from"
    for run in set(_registry.runs.values()):
        run.journal.fence.halt(RunLost(short(run.root), run.id, parent))


THIS_PROCESS.call_in_child(_leave_to_parent)
bind_left_writers(_left_writer)
