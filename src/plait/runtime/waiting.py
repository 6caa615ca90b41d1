"""Waiting in a workflow: for an answer, for a time, for something to happen.

Each is a call: its beginning is on record, and so is its end. A run that has to wait long is
parked: the wait is a row with a wake time, and no process. `resume` finds the end of it on record,
in the inbox, or on the clock; a time that is over fires once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, cast

from plait.calls.tool_call import SERVICE
from plait.errors import InvalidValue, NoRun
from plait.event import Event, Json
from plait.event import kinds as k
from plait.journal.standing import Standing
from plait.journal.stops import Parked
from plait.runtime.appends import append_events
from plait.runtime.carrying import earlier_answer
from plait.runtime.consent import decision_of, valid_answer
from plait.runtime.executing import check_running
from plait.runtime.names import call_id
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.runtime.safe_points import safe_point, take_deliveries
from plait.runtime.waits import Pause, Wait
from plait.session import Session
from plait.session.ports import Act, Draft, store_at
from plait.session.value import position_of

_TIMER = k.TimerSet.__name__
IN_PLACE_S = 5.0  # a shorter sleep is slept, a longer one is a row


def ask_human(
    session: Session, question: str, choices: Sequence[str], actor: str
) -> Generator[Wait, Any, Session]:
    """Ask a person, and go on with the answer: `session.result`."""
    run, session, call = _begin(session, "ask a person", "question")
    act = Act(
        actor, "program", call=call, causes=run.act_of(session.store, position_of(session)).causes
    )
    session, (asked,) = append_events(
        session, [Draft(k.QuestionAsked(question, tuple(choices)), act)]
    )
    call = asked.header.call or call
    session, answered = _find_end(run, session, call, asked)
    if answered is None and not run.journal.is_replay:
        earlier = earlier_answer(run, session, question, tuple(choices))
        if earlier is not None:
            body = earlier.body
            assert isinstance(body, k.QuestionAnswered)
            header, causes = earlier.header, (asked.id, body.question, earlier.id)
            act = Act(header.actor, header.origin, header.behalf, call, causes)
            draft = Draft(k.QuestionAnswered(asked.id, body.answer), act)
            session, (answered,) = append_events(session, [draft])
    if answered is None and run.settings.answerer is not None:
        said, failure = decision_of(run.settings.answerer, question, tuple(choices))
        # the question stays open, and is asked again when the run is resumed
        if failure is not None:
            raise InvalidValue(
                "answerer", failure.message, "let it return an answer, and resume the run"
            )
        answer = valid_answer(cast("Json", said), tuple(choices))
        act = Act(run.settings.behalf, "human", call=call, causes=(asked.id,))
        session, (answered,) = append_events(
            session, [Draft(k.QuestionAnswered(asked.id, answer), act)]
        )
    if answered is None:
        run.journal.check_may_act(session)
        raise Parked(session, f"a question waits for an answer: plait answer {asked.id[:12]} …")
    return session
    yield  # nothing is waited for here: a run that has to wait is parked


def sleep(session: Session, seconds: float, actor: str) -> Generator[Wait, Any, Session]:
    """Go on after so many seconds; a long sleep holds no process."""
    run, session, call = _begin(session, "sleep", "sleep")
    until = run.journal.now(session) + int(seconds * 1e6)
    session, (timer,) = append_events(
        session, [Draft(k.TimerSet(until), Act(actor, "program", call=call))]
    )
    return (yield from _until(run, session, timer))


def wait_for(
    session: Session, name: str, timeout_s: float | None, actor: str
) -> Generator[Wait, Any, Session]:
    """Go on when this is signalled, or after so long.

    `session.result` is the value of the signal; None: there was none in time.
    """
    run, session, call = _begin(session, "wait", "wait")
    until = run.journal.now(session) + int(timeout_s * 1e6) if timeout_s is not None else None
    session, (timer,) = append_events(
        session, [Draft(k.TimerSet(until, name), Act(actor, "program", call=call))]
    )
    return (yield from _until(run, session, timer))


def wait_recorded(
    run: Run, session: Session
) -> Generator[Wait, Any, tuple[Session, k.TimerSet | None]]:
    """Go through the recorded waits for the limits of a model that come next. Return also the last
    one, if its time is over only now. None: there is none, or its end is on record.
    """
    last: k.TimerSet | None = None
    while (step := run.journal.next_step(session)) is not None:
        body = step.body if step.kind == _TIMER else None
        if not isinstance(body, k.TimerSet) or not body.limit:
            break
        act = Act(SERVICE, "program", call=step.header.call)
        session, (timer,) = append_events(session, [Draft(body, act)])
        is_open = run.journal.standing(session) is Standing.LIVE
        session = yield from _until(run, session, timer)
        last = body if is_open else None
    return session, last


def wait_for_limit(
    run: Run, session: Session, model: str, seconds: float
) -> Generator[Wait, Any, Session]:
    """Park the run until the limits of a model allow an ask."""
    call = call_id(*run.journal.source_of(session), session.seq + 1, "limit")
    body = k.TimerSet(run.journal.now(session) + int(seconds * 1e6), limit=model)
    session, (timer,) = append_events(session, [Draft(body, Act(SERVICE, "program", call=call))])
    return (yield from _until(run, session, timer))


def _until(run: Run, session: Session, timer: Event) -> Generator[Wait, Any, Session]:
    call, body = timer.header.call or "", timer.body
    assert isinstance(body, k.TimerSet)
    session, fired = _find_end(run, session, call, timer)
    if fired is not None:
        return session
    signal = _signal(session, body.event) if body.event else None
    if signal is not None:
        return _fire(session, call, "event", signal)
    left_s = (body.until - run.journal.now(session)) / 1e6 if body.until is not None else None
    if left_s is not None and 0 < left_s <= IN_PLACE_S and not body.event:
        yield Pause(left_s, session)
        left_s = 0.0
    if left_s is not None and left_s <= 0:
        return _fire(session, call, "time", timer)
    what = (
        f"something to be signalled: plait signal {session.short} {body.event}"
        if body.event
        else f"the limits of {body.limit}, {left_s:,.0f} s from now"
        if body.limit
        else f"a time, {left_s:,.0f} s from now"
    )
    run.journal.check_may_act(session)
    raise Parked(session, f"it waits for {what}")


def _fire(session: Session, call: str, by: Any, cause: Event) -> Session:
    return append_events(
        session, [Draft(k.TimerFired(by), Act(SERVICE, "program", call=call, causes=(cause.id,)))]
    )[0]


def _signal(session: Session, name: str) -> Event | None:
    """Return a signal of this name that has ended no wait yet."""
    store = store_at(session.store)
    kinds = {k.Signalled.__name__, k.TimerFired.__name__}
    events = list(store.read(session.id, store.log(session.id).place + 1, session.seq, kinds=kinds))
    used = {
        cause
        for event in events
        if event.kind == k.TimerFired.__name__
        for cause in event.header.causes
    }
    return next(
        (
            each
            for each in events
            if isinstance(body := each.body, k.Signalled)
            and body.name == name
            and each.id not in used
        ),
        None,
    )


def _begin(session: Session, verb: str, what: str) -> tuple[Run, Session, str]:
    check_running(session)
    session = safe_point(session)
    run = run_of(session)
    if run is None:
        step = f"{verb} in the forward of a workflow, and call that: workflow(session)"
        raise NoRun(session.short, verb, step)
    if session.run != run.id:
        raise InvalidValue(
            verb,
            "nobody can be waited for inside a tool",
            "do it in a workflow, and hand the tool what came of it",
        )
    return run, session, call_id(*run.journal.source_of(session), session.seq + 1, what)


def _find_end(run: Run, session: Session, call: str, ask: Event) -> tuple[Session, Event | None]:
    """Return the event that ended a wait, on record or just arrived; None if it goes on."""
    while run.journal.standing(session) is not Standing.LIVE:
        step = run.journal.call_event(session, (call,))
        if step is not None:
            return step
        delivery = run.journal.recorded_delivery(session)
        if delivery is None or delivery[0] == session:
            break
        session = delivery[0]
        if (answer := _of(delivery[1], call)) is not None:
            return session, answer
    if run.journal.standing_of(ask) is not Standing.LIVE:
        session, events = take_deliveries(session)
        return session, _of(events, call)
    return session, None


def _of(events: Sequence[Event], call: str) -> Event | None:
    return next((event for event in events if event.header.call == call), None)
