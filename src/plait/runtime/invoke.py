"""The one way into a run: a call is entered, its code acts, and the call is left.

The outermost call on a value without a run starts one; every call inside, in any thread, finds the
run by the id that its value carries. Workflows, agents, selectors, streams and simulations, and
`resume`, `replay` and `whatif`, all describe a call as an `Invocation`. `invoke` makes the call in
the caller's thread, `ainvoke` on the caller's event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from plait import inside
from plait.errors import EffectError, NotASession, PlaitError
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Purpose
from plait.event.vocabulary import VOCABULARY
from plait.ids import Digest, LogId
from plait.journal.stops import Cancelled, Halted, Parked
from plait.model.base import Delta
from plait.runtime import loop
from plait.runtime.appends import append_events
from plait.runtime.attendants import NOBODY, Watch, check_attendants, note_heard_events
from plait.runtime.bypass import policy_of
from plait.runtime.drivers.blocking import Waiter
from plait.runtime.drivers.on_loop import await_to_end, finish_in_thread, run_in_thread
from plait.runtime.end import end_run, failure_causes, let_go, outside, unpassed_inputs
from plait.runtime.executing import check_running, note_raised
from plait.runtime.failures import failure_of
from plait.runtime.interrupts import InterruptHandler, handle_interrupts
from plait.runtime.listeners import OnEvent
from plait.runtime.names import call_id, principal_of
from plait.runtime.policy import Policy
from plait.runtime.reads import Calls, doing
from plait.runtime.registry import run_of, watch_run
from plait.runtime.rule_names import warn_of_unmatched_rules
from plait.runtime.run import Run, acting, running
from plait.runtime.safe_points import deliver_all
from plait.runtime.stack import Frame, How
from plait.runtime.start import environment_facts, forward_arguments, source_revision, start_run
from plait.session import Session
from plait.session.moves import check_may
from plait.session.pauses import check_not_paused
from plait.session.ports import Act, Draft
from plait.session.session import session_at
from plait.session.value import core_of, position_of, state_digest_of
from plait.store import Log, shared_names


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a workflow or a selector on a session."""

    session: Session
    node: object  # the workflow or the selector
    forward: Callable[..., Any]  # called as forward(node, session, *args, **kwargs)
    # the same on the caller's event loop, as forward_on_loop(session, *args, **kwargs); None:
    # `forward` is awaited, or runs in a thread
    forward_on_loop: Callable[..., Awaitable[Any]] | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    name: str  # the last part of the call's path
    workflow: str  # the import path of the class, as it is recorded
    source: type | None = None  # the class whose source is digested in RunStarted; None: no class
    environment: Mapping[str, str] = {}  # more that a resume needs to find the program
    purpose: Purpose | None = None  # None: the caller's
    agent: str | None = None  # the name of an agent; None: it is not an agent
    is_desk: bool = False  # an agent that may call another one, which has the session, instead
    # returns the setup of an agent by its name; raises if its model is missing
    setup: Callable[[str], bytes | None] | None = None
    policy: Policy | None = None
    bypass: str | None = None  # None: PLAIT_BYPASS
    watch: Watch = NOBODY
    waiter: Waiter | None = None  # of a run that is started; None: it blocks
    resumed: Run | None = None  # the run whose outermost call this is, from its first value on
    on_start: Callable[[EnteredCall], object] | None = None  # called before `forward`
    turn: Event | None = None  # the TurnPosted that a run which is started answers
    # the ends of the session's log, its inbox and the house log, if the caller has just read them
    heads: Mapping[LogId, Log] | None = None
    # reads of its code count for the caller, which is handed more than a session
    is_read_by_caller: bool = False
    how: How = ""
    is_judged: bool = False  # guards decide if people see its answers
    is_silent: bool = False  # listeners do not hear the texts of the calls inside it


class EnteredCall(NamedTuple):
    """A call that was entered and has to be left."""

    run: Run
    session: Session
    frame: Frame
    callers: tuple[Frame, ...]
    is_outermost: bool
    calls: Calls  # the calls whose code acts now, the outermost first


def invoke(call: Invocation) -> Session:
    """Make a call in this thread, and return the session that came last."""
    if call.watch.on_event is not None:
        watch = note_heard_events(call.watch, call.session)
        call = msgspec.structs.replace(call, watch=watch)
    entered = enter(call)
    handler: InterruptHandler | None = None
    try:
        if entered.is_outermost:
            handler = handle_interrupts(entered.run.stops.interrupt)
        run_here, call_here, calls_here = (
            running.set(entered.run),
            acting.set(entered.frame),
            doing.set(entered.calls),
        )
        outer = inside.enter_code()
        heard = call.watch.on_event if not entered.is_outermost else None
        raised: BaseException | None = None
        try:
            with nullcontext() if heard is None else _listening(heard, entered):
                if call.on_start is not None:
                    call.on_start(entered)
                entered.run.stack.begin_code(entered.frame)
                result = call.forward(call.node, entered.session, *call.args, **call.kwargs)
                if inspect.isawaitable(result):
                    result = _wait_for(result)
        except BaseException as error:
            raised = error
            instead = fail(entered, error)
            if instead is not None:
                raise instead from None
            raise
        finally:
            inside.leave_code(outer)
            running.reset(run_here)
            doing.reset(calls_here)
            acting.reset(call_here)
            if raised is not None:
                note_raised(entered.run, entered.frame, entered.callers, raised)
        return leave(entered, result)
    finally:
        if handler is not None:
            handler.remove()
        if entered.is_outermost and not entered.run.closed:  # interrupted before it was left
            let_go(entered.run)


async def ainvoke(call: Invocation) -> Session:
    """Make a call on this event loop, with its writes to disk in threads."""
    if call.watch.on_event is not None:
        watch = note_heard_events(call.watch, call.session)
        call = msgspec.structs.replace(call, watch=watch)
    entered, cancel = await finish_in_thread(lambda: enter(call))
    run_here, call_here, calls_here = (
        running.set(entered.run),
        acting.set(entered.frame),
        doing.set(entered.calls),
    )
    heard = call.watch.on_event if not entered.is_outermost else None
    raised: BaseException | None = None
    handler = handle_interrupts(entered.run.stops.interrupt) if entered.is_outermost else None
    try:
        if cancel is not None:
            raise cancel
        with nullcontext() if heard is None else _listening(heard, entered):
            if call.on_start is not None:
                call.on_start(entered)
            entered.run.stack.begin_code(entered.frame)
            result = await _act_on_loop(call, entered.session)
    except BaseException as error:
        raised = failed = error
        instead, _ = await finish_in_thread(lambda: fail(entered, failed))
        if instead is not None:
            raise instead from None
        raise
    finally:
        if handler is not None:
            handler.remove()
        running.reset(run_here)
        doing.reset(calls_here)
        acting.reset(call_here)
        if raised is not None:
            note_raised(entered.run, entered.frame, entered.callers, raised)
    return await run_in_thread(lambda: leave(entered, result))


async def _act_on_loop(call: Invocation, session: Session) -> Any:
    """Run the code of a call: on this loop if it can, else in a thread."""
    if call.forward_on_loop is not None:
        return await call.forward_on_loop(session, *call.args, **call.kwargs)
    if inspect.iscoroutinefunction(call.forward):
        return await call.forward(call.node, session, *call.args, **call.kwargs)

    def act() -> Any:
        result = call.forward(call.node, session, *call.args, **call.kwargs)
        return _wait_for(result) if inspect.isawaitable(result) else result

    work = asyncio.wrap_future(loop.spawn(act))
    try:
        return await asyncio.shield(work)
    # it is stopped before its next effect, and waited for: nothing goes on behind our back
    except asyncio.CancelledError:
        run = run_of(session)
        stop = run.stops.stop(session.id) if run is not None else 0
        with suppress(BaseException):
            await await_to_end(work)
        if run is not None:
            run.stops.undo(stop)
        raise


def _wait_for(awaitable: Awaitable[Any]) -> Any:
    """Await the result of an async forward on a loop of its own."""

    async def result() -> Any:
        return await awaitable

    return loop.wait(loop.spawn(lambda: asyncio.run(result())))


@contextmanager
def _listening(on_event: OnEvent, entered: EnteredCall) -> Generator[None]:
    """Let a listener hear the events of a call inside a run; an outermost call needs no more than
    the listener of its run.
    """

    def tell_of_call(item: Event | Delta) -> object:
        path = entered.frame.path
        is_of_call = (
            item.log == entered.frame.log
            if isinstance(item, Event)
            else item.agent == path or item.agent.startswith(f"{path}/")
        )
        return on_event(item) if is_of_call else None

    entered.run.listeners.add(tell_of_call)
    try:
        yield
    finally:
        entered.run.listeners.remove(tell_of_call)


# ── entering ─────────────────────────────────────────────────────────────────────────────────


def check_call(call: Invocation) -> bytes | None:
    """Raise, before anything is written, if a call cannot be made; return the setup of an agent."""
    setup = call.setup(call.name) if call.setup is not None else None
    session = call.session
    if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise NotASession(f"{call.name} was called with", session)
    # A name that no event can hold is refused now, and not by the first append of a forward that is
    # not to blame.
    if call.purpose is None:
        _check_names(call.workflow, call.name, call.agent)
    else:
        VOCABULARY.encode(k.CallStarted(call.workflow, call.name, call.purpose, call.agent))
    policy_of(call.bypass, os.environ)
    check_running(session)
    if call.resumed is None:
        check_attendants(session, call.watch)
    check_may(core_of(session), "run a workflow")
    if core_of(session).life.status == "paused":  # a word in the inbox is heeded by `start_run`
        check_not_paused(core_of(session), "run a workflow")
    return setup


def enter(call: Invocation) -> EnteredCall:
    """Begin a call, and a run if there is none."""
    setup, session = check_call(call), call.session
    run = run_of(session)
    is_outermost = run is None or run is call.resumed
    if run is None:
        run, session = start_run(
            session, run_start(call), call.watch, call.waiter, call.turn, call.heads
        )
    try:
        return _begin_call(call, run, session, setup, is_outermost=is_outermost)
    except BaseException:
        if is_outermost:
            let_go(run)
        raise


def run_start(call: Invocation) -> k.RunStarted:
    """Return the first event of the run that a call begins."""
    return k.RunStarted(
        call.workflow,
        forward_arguments(call.node, call.forward, call.args, call.kwargs),
        source_revision(call.source) if call.source is not None else "",
        {**dict(environment_facts(call.workflow)), **call.environment},
        call.turn.id if call.turn is not None else None,
        getattr(call.node, "version", ""),
    )


def _begin_call(
    call: Invocation, run: Run, session: Session, setup: bytes | None, *, is_outermost: bool
) -> EnteredCall:
    if is_outermost:
        inside.open_store(shared_names(session.store))
        if not run.journal.is_replay:
            watch_run(run, session.store, call.bypass)
    callers = run.stack.frames(session.id) if not is_outermost else ()
    frame = _push_frame(run, session, call, callers)
    if call.policy is not None and not run.journal.is_replay:
        warn_of_unmatched_rules(run, frame.path, call.node, call.policy)
    blob = Digest(sha256(setup).hexdigest()) if setup is not None else None
    version = getattr(call.node, "version", "")
    body = k.CallStarted(call.workflow, frame.path, frame.purpose, call.agent, blob, version)
    causes = run.act_of(session.store, position_of(session)).causes
    run.journal.defer(
        session.id,
        frame.scope,
        Draft(body, Act(frame.actor, "program", call=frame.call, causes=causes)),
        {blob: setup} if blob and setup else None,
    )
    calls = doing.get()
    if not call.is_read_by_caller:
        # a thread that the program started does not know the callers from its context
        calls = (*(calls or [caller.call for caller in callers]), frame.call)
    return EnteredCall(run, session, frame, callers, is_outermost, calls)


def _push_frame(run: Run, session: Session, call: Invocation, callers: tuple[Frame, ...]) -> Frame:
    """Put a call on the stack of its run. An agent takes the session over from the one before; a
    desk does so if it asks its own model.
    """
    scope = session.run or run.id
    caller = callers[-1] if callers else None
    path = f"{caller.path}/{call.name}" if caller is not None else call.name
    ordinal = run.stack.next_ordinal(session.id, scope)
    policies = caller.policies if caller is not None else ()
    frame = Frame(
        path,
        call_id(*run.journal.source_of(session), session.seq, "call", ordinal),
        call.node,
        call.forward,
        session.id,
        f"{'agent' if call.agent is not None else 'service'}:{principal_of(path)}",
        call.purpose or (caller.purpose if caller is not None else "act"),
        scope,
        policies if call.policy is None else (*policies, call.policy),
        call.how,
        call.is_judged,
        call.is_silent,
    )
    run.stack.set_frames(session.id, (*callers, frame))
    if call.agent is not None and not call.is_desk:
        take_over(run, session, frame)
    return frame


def take_over(run: Run, session: Session, frame: Frame) -> None:
    """Note that the agent of a call has the session now, and put on record if another had it."""
    before = run.stack.hand_over(session.id, frame.scope, frame.path)
    if before is not None:
        act = Act(f"agent:{principal_of(before)}", "program", call=frame.call)
        run.journal.defer(session.id, frame.scope, Draft(k.HandedOff(frame.path), act))


@lru_cache(1024)  # the same few names, at every call
def _check_names(workflow: str, name: str, agent: str | None) -> None:
    VOCABULARY.encode(k.CallStarted(workflow, name, agent=agent))


# ── leaving ──────────────────────────────────────────────────────────────────────────────────


def leave(entered: EnteredCall, result: object) -> Session:
    """End a call that returned, and the run if the call is its outermost.

    A call that returned although it was told to stop has not ended: the stop is raised again.
    """
    if (stop := _caught_stop(entered)) is not None:
        instead = fail(entered, stop)
        raise instead or stop
    if not isinstance(result, Session):
        error = NotASession(f"{entered.frame.path} returned", result)
        fail(entered, error)
        raise error
    run, frame = entered.run, entered.frame
    act = Act(frame.actor, "program", call=frame.call)
    run.journal.defer(frame.log, frame.scope, Draft(k.CallFinished(), act))
    run.stack.drop(frame.log, frame)
    if run_of(result) is run and result.id != frame.log:
        run.stack.set_frames(result.id, entered.callers)
    if not entered.is_outermost:
        return _write_end_of_branch(entered, result)
    try:
        ended = end_run(
            run,
            entered.session,
            lambda at, ahead: k.RunFinished(state_digest_of(at, ahead)),
            is_complete=True,
        )
    except Halted as halted:
        if halted.error is not None:
            raise halted.error from None
        raise
    finally:
        let_go(run)
    if result.id == run.root:
        return ended
    return outside(result.reload()) if result.run == run.id else result


def _caught_stop(entered: EnteredCall) -> BaseException | None:
    """Return a stop that the code of a call has caught: in its own log, or in a branch that it
    forked and that nobody stopped. None: there is none.
    """
    run, frame = entered.run, entered.frame
    for log in run.stops.raised_logs():
        is_own = log == frame.log or run.stack.frames_at_fork(log)[-1:] == (frame,)
        if is_own and frame.scope == run.id and not run.stops.is_stopped(log):
            return run.stops.raised_in(log)
    return None


def _write_end_of_branch(entered: EnteredCall, result: Session) -> Session:
    """Write the end of the outermost call on a branch, or in a tool, at once.

    A branch that is merged must have all its events, and so must the session of a tool.
    """
    run, log, scope = entered.run, entered.frame.log, entered.frame.scope
    is_of_tool = bool(entered.callers) and entered.callers[-1].scope != scope
    if not run.journal.deferred.count(log, scope) or (
        not is_of_tool and (log == run.root or run.stack.frames_at_fork(log) != entered.callers)
    ):
        return result
    tip = run.journal.tip(log, scope)
    if position_of(result) == tip:
        return append_events(result, [])[0]
    append_events(session_at(tip), [])
    return result


def fail(entered: EnteredCall, error: BaseException) -> BaseException | None:
    """End a call that raised; return the error to raise instead, if there is one.

    An error that interrupts the process, parks the run or takes it away leaves the run open: it can
    be resumed. One that the program raised instead of a stop does not count.
    """
    run, frame = entered.run, entered.frame
    if frame.scope == run.id:
        caught = run.stops.raised_in(frame.log) if isinstance(error, Exception) else None
        if caught is not None:  # the program made an error of the stop
            return fail(entered, caught) or caught
        run.stops.note(frame.log, error)
    # asyncio's error is known by name: the calls that raise it may be on no loop
    is_cancel = isinstance(error, Cancelled) or type(error).__name__ == "CancelledError"
    failure = failure_of(error) if is_cancel or isinstance(error, Exception) else None
    if failure is not None:
        act = Act(frame.actor, "program", call=frame.call)
        run.journal.defer(frame.log, frame.scope, Draft(k.CallFinished(failure), act))
    run.stack.drop(frame.log, frame)
    if not entered.is_outermost:
        return None
    if isinstance(error, (Exception, SystemExit)) and run.journal.fence.halted is None:
        run.program_error = error
    try:
        if failure is None:
            ended = outside(session_at(run.journal.tip(run.root)))
            if not run.journal.is_replay:  # a resume has written to the root since its last step
                ended = ended.reload()
        elif isinstance(error, Exception):
            causes = (*unpassed_inputs(error, run.root), *failure_causes(error))
            ended = end_run(
                run, entered.session, lambda at, ahead: k.RunFailed(failure), causes=causes
            )
        else:
            deliver_all(run)
            by = getattr(error, "by", "")
            ended = end_run(
                run, entered.session, lambda at, ahead: k.RunCancelled(failure.message, by)
            )
    except PlaitError as unrecorded:  # the caller has to see the first error
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
