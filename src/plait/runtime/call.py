"""Calls: starting or joining a run, and leaving it again, whatever happened in between.

The outermost call on a value without a run starts one; every call inside, in whatever thread, finds
it by the id its value carries.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from importlib import metadata
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from plait.calls.tool_call import SERVICE
from plait.errors import (
    BudgetExceeded,
    ChoiceInvalid,
    EffectError,
    InvalidInput,
    MayNotApprove,
    ModelFailed,
    NotASession,
    PlaitError,
    ResultInvalid,
    RunHeld,
    RunOpen,
    ToolFailed,
    WrongStatus,
)
from plait.event import Json
from plait.event import kinds as k
from plait.event.kinds import Body, Purpose
from plait.event.vocabulary import VOCABULARY
from plait.ids import Digest
from plait.inside import is_inside, open_store
from plait.journal.standing import Standing
from plait.journal.stops import Cancelled, Halted, Parked
from plait.journal.writer import direct_writer
from plait.runtime.appends import append_around_run, append_at_tip, append_events
from plait.runtime.bypass import policy_of
from plait.runtime.drivers.blocking import Blocking, Waiter
from plait.runtime.executing import check_running, executing
from plait.runtime.failures import failure_of
from plait.runtime.listeners import OnEvent
from plait.runtime.mail import deliver_all, undelivered
from plait.runtime.names import call_id, principal_of
from plait.runtime.policy import Approver, Policy
from plait.runtime.registry import close_run, is_going_on, open_run, released_run, run_of, watch_run
from plait.runtime.run import Run, running
from plait.runtime.spend import run_budget
from plait.runtime.stack import Frame
from plait.session import Session
from plait.session.inbox import inbox_events
from plait.session.ports import Act, Draft, store_at
from plait.session.rows import run_of_branch
from plait.session.session import session_at
from plait.session.typed import to_json
from plait.session.value import advance, open_run_of, position_of, state_digest_of
from plait.store import shared_names


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
    environment: Mapping[str, str] = {}  # more that whoever takes it up again needs to know
    policy: Policy | None = None
    # what is done about acts that go around the session; None: PLAIT_BYPASS
    bypass: str | None = None


Answerer = Callable[[str, tuple[str, ...]], Json]  # a question and what can be chosen: the answer


class Watch(NamedTuple):
    """Who attends a call: hears what happens, and is asked at once."""

    on_event: OnEvent | None = None
    approver: Approver | None = None
    answerer: Answerer | None = None


NOBODY = Watch()


def check_attendants(session: Session, watch: Watch) -> None:
    """Raises if code of a run brings along who is to be asked: only the caller of the outermost run
    hands that in.
    """
    if watch.approver is None and watch.answerer is None:
        return
    outer = running.get()
    if (
        outer is not None
        and _is_none_or(watch.approver, outer.settings.approver)
        and _is_none_or(watch.answerer, outer.settings.answerer)
    ):
        return
    if why := is_inside(session.store, shared_names):
        step = "pass approver= and answerer= where the outermost workflow is called"
        raise MayNotApprove(
            session.short, direct_writer().principal(), f"{why}, nor hands in who does; {step}"
        )


def _is_none_or(given: object, known: object) -> bool:
    return given is None or given is known


class Entry(NamedTuple):
    """A call that was entered and has to be left."""

    run: Run
    session: Session
    frame: Frame
    callers: tuple[Frame, ...]
    outermost: bool


def enter(
    session: object,
    calling: Calling,
    *,
    watch: Watch = NOBODY,
    waiter: Waiter | None = None,
    again: Run | None = None,
) -> Entry:
    """Begin a call, and a run if there is none.

    `again` is a run that is taken up again: this is its outermost call.
    """
    if not isinstance(session, Session):
        raise NotASession(f"{calling.name} was called with", session)
    # What no event can hold is refused now, and not by the first append of a forward that is not to
    # blame.
    body = k.CallStarted(calling.workflow, calling.name, calling.purpose, calling.agent)
    if calling.purpose is None:
        _check_names(body.workflow, body.path, body.agent)
    else:
        VOCABULARY.encode(body)
    policy_of(calling.bypass, os.environ)
    check_running(session)
    check_attendants(session, watch if again is None else NOBODY)
    if session.status in ("paused", "closed", "archived"):
        step = "unpause() it first" if session.status == "paused" else "go on in a fork of it"
        raise WrongStatus(session.short, session.status, "run a workflow", step)
    run = run_of(session)
    outermost = run is None or run is again
    if run is None:
        run, session = _start(session, calling, watch, waiter)
    if outermost:
        open_store(shared_names(session.store))
    if outermost and (not run.journal.recording.strict):
        watch_run(run, session.store, calling.bypass)
    scope = session.run or run.id
    callers = run.stack.frames(session.id) if not outermost else ()
    path = f"{callers[-1].path}/{calling.name}" if callers else calling.name
    call = call_id(
        *run.journal.source_of(session),
        session.seq,
        "call",
        run.stack.next_ordinal(session.id, scope),
    )
    actor = f"{'agent' if calling.agent is not None else 'service'}:{principal_of(path)}"
    purpose = calling.purpose or (callers[-1].purpose if callers else "act")
    policies = (
        *(callers[-1].policies if callers else ()),
        *((calling.policy,) if calling.policy is not None else ()),
    )
    frame = Frame(
        path, call, calling.node, calling.forward, session.id, actor, purpose, scope, policies
    )
    run.stack.set_frames(session.id, (*callers, frame))
    if calling.agent is not None:
        before = run.stack.hand_over(session.id, scope, path)
        if before is not None:
            run.journal.defer(
                session.id,
                scope,
                Draft(
                    k.HandedOff(path),
                    Act(f"agent:{principal_of(before)}", "program", call=frame.call),
                ),
            )
    setup = Digest(sha256(calling.setup).hexdigest()) if calling.setup is not None else None
    body = k.CallStarted(calling.workflow, path, purpose, calling.agent, setup)
    act = _act(frame)._replace(causes=run.act_of(session.store, position_of(session)).causes)
    run.journal.defer(
        session.id,
        scope,
        Draft(body, act),
        {setup: calling.setup} if setup and calling.setup else None,
    )
    return Entry(run, session, frame, callers, outermost)


@lru_cache(1024)  # the same few names, at every call
def _check_names(workflow: str, name: str, agent: str | None) -> None:
    VOCABULARY.encode(k.CallStarted(workflow, name, agent=agent))


def leave(entry: Entry, result: object) -> Session:
    """End a call that came to its end."""
    if not isinstance(result, Session):
        error = NotASession(f"{entry.frame.path} returned", result)
        fail(entry, error)
        raise error
    run, log, scope = entry.run, entry.frame.log, entry.frame.scope
    run.journal.defer(log, scope, Draft(k.CallFinished(), _act(entry.frame)))
    run.stack.drop(log, entry.frame)
    if run_of(result) is run and result.id != log:
        run.stack.set_frames(result.id, entry.callers)
    if not entry.outermost:
        return _settle(entry, result)
    try:
        ended = _end(entry, lambda at, ahead: k.RunFinished(state_digest_of(at, ahead)), whole=True)
    except Halted as halted:
        if halted.error is not None:
            raise halted.error from None
        raise
    finally:
        let_go(run)
    if result.id == run.root:
        return ended
    return outside(result.reload()) if result.run == run.id else result


def _settle(entry: Entry, result: Session) -> Session:
    """The end of the outermost call on a branch does not wait: a branch that is merged is to be
    whole. Nor that of a tool's doing.
    """
    run, log, scope = entry.run, entry.frame.log, entry.frame.scope
    of_tool = bool(entry.callers) and entry.callers[-1].scope != scope
    if not run.journal.deferred.count(log, scope) or (
        not of_tool and (log == run.root or run.stack.frames_at_fork(log) != entry.callers)
    ):
        return result
    tip = run.journal.tip(log, scope)
    settled, _ = append_events(result if position_of(result) == tip else session_at(tip), [])
    return settled if position_of(result) == tip else result


def fail(entry: Entry, error: BaseException) -> BaseException | None:
    """End a call that raised; returns what is to be raised instead, if anything.

    What interrupts the process, parks the run or takes it away leaves it open: it can be taken up
    again.
    """
    run = entry.run
    ends = isinstance(error, (Exception, Cancelled)) or _is_cancel(error)
    failure = failure_of(error) if ends else None
    if failure is not None:
        run.journal.defer(
            entry.frame.log, entry.frame.scope, Draft(k.CallFinished(failure), _act(entry.frame))
        )
    run.stack.drop(entry.frame.log, entry.frame)
    if not entry.outermost:
        return None
    try:
        if failure is not None and isinstance(error, Exception):
            ended = _end(entry, lambda at, ahead: k.RunFailed(failure), causes=_causes(error))
        elif failure is not None:
            deliver_all(run)
            ended = _end(
                entry, lambda at, ahead: k.RunCancelled(failure.message, getattr(error, "by", ""))
            )
        else:
            ended = outside(session_at(run.journal.tip(run.root)))
    except PlaitError as unrecorded:  # what went wrong first is what the caller has to see
        error.add_note(f"The end of the run could not be recorded: {unrecorded}")
        return None
    except Halted as halted:
        return halted.error or halted
    finally:
        let_go(run)
    if isinstance(error, Halted):
        return error.error
    if isinstance(error, (EffectError, Parked)):
        error.session = ended
    elif isinstance(error, Exception):
        error.add_note(
            f"The run is on record in session {ended.short}, failed at {ended.seq}; resume it:"
            f" plait resume {ended.short}"
        )
    return None


def _causes(error: BaseException) -> tuple[Digest, ...]:
    """The failure on record that an error comes from, if any: what is tried again when the run is
    taken up again.
    """
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, (ModelFailed, ToolFailed, BudgetExceeded)) and isinstance(
            at.session, Session
        ):
            return (at.session.head,)
        if isinstance(at, (ResultInvalid, ChoiceInvalid)) and isinstance(at.session, Session):
            last = store_at(at.session.store).event(at.session.head)
            # a rule that chose wrongly asked nobody
            return (last.id,) if last.kind == k.ModelReplied.__name__ else ()
        at = at.__cause__
    return ()


def _is_cancel(error: BaseException) -> bool:
    # asyncio's; the loop is none of our business here
    return type(error).__name__ == "CancelledError"


def _start(
    session: Session, calling: Calling, watch: Watch, waiter: Waiter | None
) -> tuple[Run, Session]:
    if (
        open_now := open_run_of(session) or run_of_branch(store_at(session.store), session.id)
    ) is not None:
        raise RunOpen(session.short, open_now)
    direct = direct_writer()
    spot = position_of(session)
    id = str(direct.source(spot.store).fresh("run", spot.id, spot.seq))
    lock = store_at(spot.store).lock(id, session.short)
    run = None
    try:
        run = new_run(id, session, watch, waiter)
        run.lock = lock
        if (pool := run_budget(session, run)) is not None:
            run.budgets.set_root(pool)
        run.started_at = run.resumed_at = max(
            (event.seq for event in inbox_events(store_at(spot.store), spot.id)), default=0
        )
        draw_under(run)
        inside = advance(session, msgspec.structs.replace(spot, run=id))
        body = k.RunStarted(
            calling.workflow,
            calling.arguments,
            calling.revision(),
            {**dict(_environment()), **calling.environment},
        )
        # Whatever raises the epoch moves the head, too: if the append finds the head, the epoch was
        # this one until then.
        epoch = store_at(spot.store).log(spot.id).epoch
        after, _ = run.journal.append(
            position_of(inside), [Draft(body, Act(run.settings.behalf, "program"))]
        )
        run.journal.fence.hold(epoch + 1)
    except BaseException:
        if run is not None:
            run.journal.fence.is_closed = True
        lock.release()
        raise
    open_run(run)
    return run, advance(inside, after, k.RunStarted.__name__)


def draw_under(run: Run) -> None:
    """Bind a run that code of another run starts, on whatever session: it may no more than that
    code, and draws on its budget as well.
    """
    here = executing()
    if here is None or here[0] is run:
        return
    outer, frame = here
    run.reads = outer.reads
    run.settings.policies = (
        *run.settings.policies,
        *outer.settings.policies,
        *(frame.policies if frame is not None else ()),
    )
    above = outer.budgets.of(frame.log if frame is not None else outer.root)
    if above is not None:
        run.budgets.draw_on(above)


def new_run(
    id: str, session: Session, watch: Watch, waiter: Waiter | None, behalf: str | None = None
) -> Run:
    """A run on a session that stands where it starts."""
    check_attendants(session, watch)
    direct = direct_writer()
    behalf = behalf or (
        f"human:{principal_of(session.user)}" if session.user else direct.principal()
    )
    run = Run(id, session, direct, waiter or Blocking(), behalf=behalf, on_event=watch.on_event)
    run.settings.approver, run.settings.answerer = watch.approver, watch.answerer
    outer = running.get()
    past = released_run(session.run) if session.run != id else None
    is_here = past is not None and past.home == session.store
    run.journal.fence.rest_on(
        outer.journal.fence if outer is not None else None,
        past.fences if past is not None and is_here else (),
    )
    run.journal.requires_verdicts = bool(session.checks.gates)
    if (last := _last_agent(session)) is not None:
        run.stack.hand_over(session.id, id, last)
    return run


def let_go(run: Run) -> None:
    close_run(run)
    if run.lock is not None:
        run.lock.release()


_REPLIES = frozenset({k.ModelReplied.__name__})


def _last_agent(session: Session) -> str | None:
    """The path of the agent who spoke last, in whichever run. None: nobody yet."""
    store = store_at(session.store)
    reply = next(store.read(session.id, 1, session.seq, kinds=_REPLIES, reverse=True), None)
    return unquote(reply.actor.partition(":")[2]) if reply is not None else None


def _end(
    entry: Entry,
    body: Callable[[Session, int], Body],
    *,
    whole: bool = False,
    causes: tuple[Digest, ...] = (),
) -> Session:
    """Write what still waits, in every log of the run, and the end of it in its own.

    `whole`: the program came to its end.
    """
    run = entry.run
    for log, scope in run.journal.waiting_logs():
        if (log, scope) != (run.root, run.id):
            append_at_tip(session_at(run.journal.tip(log, scope)), ())
    tip = session_at(run.journal.tip(run.root))
    # what is on record already is not written with the end
    if (
        run.journal.deferred.count(run.root, run.id)
        and run.journal.standing(tip) is not Standing.LIVE
    ):
        append_at_tip(tip, ())
    if whole:
        run.journal.check_recording_used()
    session = run.journal.catch_up(advance(entry.session, run.journal.tip(run.root)))
    session, _ = append_at_tip(
        session,
        lambda at: [
            Draft(
                body(at, run.journal.deferred.count(run.root, run.id)), Act(SERVICE, causes=causes)
            )
        ],
    )
    return outside(session)


def end_unheld(session: Session, reason: str) -> None:
    """End a run that nobody holds, as somebody wishes; one that is held hears the wish before its
    next effect.
    """
    at = outside(session).reload()
    run = open_run_of(at)
    if run is None or is_going_on(run):
        return
    try:
        lock = store_at(at.store).lock(run, at.short)
    except RunHeld:
        return
    try:
        inside = advance(at, msgspec.structs.replace(position_of(at), run=run))
        news = undelivered(inside)
        wish = next(
            (draft.act.actor for draft in news if isinstance(draft.body, k.CancelRequested)),
            SERVICE,
        )
        append_around_run(
            position_of(inside), [*news, Draft(k.RunCancelled(reason, wish), Act(SERVICE))]
        )
    finally:
        lock.release()


def outside(session: Session) -> Session:
    """The value as whoever is not in the run has it."""
    return advance(session, msgspec.structs.replace(position_of(session), run=None))


def _act(frame: Frame) -> Act:
    return Act(frame.actor, "program", call=frame.call)


@cache
def _environment() -> tuple[tuple[str, str], ...]:
    try:
        version = metadata.version("plait")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return (
        ("plait", version),
        ("python", platform.python_version()),
        ("system", platform.system()),
    )


def arguments_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
    """What `forward` was called with besides the session, as far as JSON can carry it."""
    if not args and not kwargs:
        return None
    try:
        plain = to_json({"args": list(args), "kwargs": dict(kwargs)})
        VOCABULARY.encode(k.ScratchSet("arguments", plain))
    except (TypeError, ValueError, RecursionError, InvalidInput):
        return {
            "repr": repr((args, dict(kwargs)))[:1000].encode("utf-8", "backslashreplace").decode()
        }
    return plain
