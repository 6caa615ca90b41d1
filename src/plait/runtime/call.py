"""Calls: starting or joining a run, and leaving it again, whatever happened in between.

The outermost call on a value without a run starts one; every call inside, in whatever thread, finds it by the id its value carries.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from importlib import metadata
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from plait.errors import EffectError, InvalidInput, NotASession, PlaitError, RunOpen, WrongStatus
from plait.event import Json
from plait.event import kinds as k
from plait.event.codec import VOCABULARY
from plait.event.kinds import Body, Purpose
from plait.ids import Digest
from plait.runtime.answer import SERVICE
from plait.runtime.drive import Blocking, Waiter
from plait.runtime.failures import failure_of
from plait.runtime.run import (
    Cancelled,
    Frame,
    OnEvent,
    Run,
    call_id,
    check_running,
    close_run,
    direct_writer,
    open_run,
    principal_of,
    record,
    record_at_tip,
    run_of,
)
from plait.session import Session
from plait.session.ports import Act, Draft, store_at
from plait.session.typed import to_json


class Calling(NamedTuple):
    """Who is called, and how it describes itself."""

    node: object
    forward: object
    name: str
    workflow: str  # import path
    revision: Callable[[], str] = str
    purpose: Purpose | None = None
    agent: str | None = None
    setup: bytes | None = None
    arguments: Json = None


class Entry(NamedTuple):
    """A call that was entered and has to be left."""

    run: Run
    session: Session
    frame: Frame
    callers: tuple[Frame, ...]
    outermost: bool


def enter(session: object, calling: Calling, *, on_event: OnEvent | None = None, waiter: Waiter | None = None) -> Entry:
    """Begin a call, and a run if there is none."""
    if not isinstance(session, Session):
        raise NotASession(f"{calling.name} was called with", session)
    # What no event can hold is refused now, and not by the first append of a forward that is not to blame.
    VOCABULARY.encode(k.CallStarted(calling.workflow, calling.name, calling.purpose, calling.agent))
    check_running(session)
    if session.status in ("paused", "closed", "archived"):
        step = "unpause() it first" if session.status == "paused" else "go on in a fork of it"
        raise WrongStatus(session.short, session.status, "run a workflow", step)
    run = run_of(session)
    outermost = run is None
    if run is None:
        run, session = _start(session, calling, on_event, waiter)
    callers = run.frames(session.id) if not outermost else ()
    path = f"{callers[-1].path}/{calling.name}" if callers else calling.name
    call = call_id(run.id, session.id, session.place, "call", run.ordinal(session.id))
    actor = f"{'agent' if calling.agent is not None else 'service'}:{principal_of(path)}"
    purpose = calling.purpose or (callers[-1].purpose if callers else "act")
    frame = Frame(path, call, calling.node, calling.forward, session.id, actor, purpose)
    run.set_frames(session.id, (*callers, frame))
    if calling.agent is not None:
        before = run.hand_over(session.id, path)
        if before is not None:
            run.ride(session.id, Draft(k.HandedOff(path), Act(f"agent:{principal_of(before)}", "program", call=frame.call)))
    setup = Digest(sha256(calling.setup).hexdigest()) if calling.setup is not None else None
    body = k.CallStarted(calling.workflow, path, purpose, calling.agent, setup)
    run.ride(session.id, Draft(body, _act(frame)), {setup: calling.setup} if setup and calling.setup else None)
    return Entry(run, session, frame, callers, outermost)


def leave(entry: Entry, result: object) -> Session:
    """End a call that came to its end."""
    if not isinstance(result, Session):
        error = NotASession(f"{entry.frame.path} returned", result)
        fail(entry, error)
        raise error
    run = entry.run
    run.ride(entry.frame.log, Draft(k.CallFinished(), _act(entry.frame)))
    run.drop_frame(entry.frame.log, entry.frame)
    if result.run == run.id and result.id != entry.frame.log:
        run.set_frames(result.id, entry.callers)
    if not entry.outermost:
        return _settle(entry, result)
    try:
        ended = _end(entry, lambda at, ahead: k.RunFinished(at.digest(ahead)))
    finally:
        close_run(run)
    if result.id == run.root:
        return ended
    return _outside(result.reload()) if result.run == run.id else result


def _settle(entry: Entry, result: Session) -> Session:
    """The end of the outermost call on a branch does not wait: a branch that is merged is to be whole."""
    run, log = entry.run, entry.frame.log
    if log == run.root or run.base(log) != entry.callers or not run.waiting(log):
        return result
    tip = run.tip(log)
    settled, _ = record(result if result.spot == tip else Session.of(tip), [])
    return settled if result.spot == tip else result


def fail(entry: Entry, error: BaseException) -> None:
    """End a call that raised. What interrupts the process leaves the run open: it can be taken up again."""
    run = entry.run
    failure = failure_of(error)
    if isinstance(error, (Exception, Cancelled)) or _is_cancel(error):
        run.ride(entry.frame.log, Draft(k.CallFinished(failure), _act(entry.frame)))
    run.drop_frame(entry.frame.log, entry.frame)
    if not entry.outermost:
        return
    try:
        if isinstance(error, Exception):
            ended = _end(entry, lambda at, ahead: k.RunFailed(failure))
        elif isinstance(error, Cancelled) or _is_cancel(error):
            ended = _end(entry, lambda at, ahead: k.RunCancelled(failure.message))
        else:
            ended = Session.of(run.tip(run.root))
    except PlaitError as unrecorded:  # what went wrong first is what the caller has to see
        error.add_note(f"The end of the run could not be recorded: {unrecorded}")
        return
    finally:
        close_run(run)
    if isinstance(error, EffectError):
        error.session = ended
    elif isinstance(error, Exception):
        error.add_note(f"The run is on record in session {ended.short}, failed at {ended.place}.")


def _is_cancel(error: BaseException) -> bool:
    return type(error).__name__ == "CancelledError"  # asyncio's; the loop is none of our business here


def _start(session: Session, calling: Calling, on_event: OnEvent | None, waiter: Waiter | None) -> tuple[Run, Session]:
    if session.open_run is not None:
        raise RunOpen(session.short, session.open_run)
    direct = direct_writer()
    spot = session.spot
    id = str(direct.source(spot.store).fresh("run", spot.id, spot.place))
    behalf = f"human:{principal_of(session.user)}" if session.user else direct.principal()
    run = Run(id, spot.id, direct, waiter or Blocking(), behalf=behalf, on_event=on_event)
    inside = session.later(msgspec.structs.replace(spot, run=id))
    body = k.RunStarted(calling.workflow, calling.arguments, calling.revision(), dict(_environment()))
    after, _ = run.write(inside.spot, [Draft(body, Act(behalf, "program"))])
    open_run(run)
    if (last := _last_agent(session)) is not None:
        run.hand_over(spot.id, last)
    return run, inside.later(after, k.RunStarted.__name__)


def _last_agent(session: Session) -> str | None:
    """The path of the agent who spoke last, in whichever run. None: nobody yet."""
    store = store_at(session.store)
    reply = next(store.read(session.id, 1, session.place, kinds={k.ModelReplied.__name__}, reverse=True), None)
    return unquote(reply.actor.partition(":")[2]) if reply is not None else None


def _end(entry: Entry, body: Callable[[Session, int], Body]) -> Session:
    """Write what still waits, in every log of the run, and the end of it in its own."""
    run = entry.run
    for log in run.left():
        if log != run.root:
            record_at_tip(Session.of(run.tip(log)), ())
    session = entry.session.later(run.tip(run.root))
    session, _ = record_at_tip(session, lambda at: [Draft(body(at, run.waiting(run.root)), Act(SERVICE))])
    return _outside(session)


def _outside(session: Session) -> Session:
    return session.later(msgspec.structs.replace(session.spot, run=None))


def _act(frame: Frame) -> Act:
    return Act(frame.actor, "program", call=frame.call)


@cache
def _environment() -> tuple[tuple[str, str], ...]:
    try:
        version = metadata.version("plait")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return (("plait", version), ("python", platform.python_version()), ("system", platform.system()))


def arguments_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
    """What `forward` was called with besides the session, as far as JSON can carry it."""
    if not args and not kwargs:
        return None
    try:
        plain = to_json({"args": list(args), "kwargs": dict(kwargs)})
        VOCABULARY.encode(k.ScratchSet("arguments", plain))
    except (TypeError, ValueError, RecursionError, InvalidInput):
        return {"repr": repr((args, dict(kwargs)))[:1000].encode("utf-8", "backslashreplace").decode()}
    return plain
