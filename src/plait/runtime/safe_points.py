"""Safe points: before every effect a run looks into its inbox for approvals, answers and wishes.

While a run is open all others write to the session's inbox, never to its log, so the running writer
is not disturbed. At a safe point the news is delivered: one event says how far the inbox was read,
and each event that stood there is repeated in the log, with the inbox event as its cause. Resumed,
a run takes the same deliveries at the same points from its recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from plait.calls.tool_call import SERVICE
from plait.errors import GateUnmet
from plait.event import Event, Json
from plait.event import kinds as k
from plait.ids import LogId, inbox_of, short
from plait.journal.stops import Cancelled, Parked
from plait.runtime.appends import append_at_tip
from plait.runtime.failures import bounded_text
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.session import Session
from plait.session.asks import ANSWERS, is_answer
from plait.session.gates import is_judge
from plait.session.inbox import asks_in, inbox_events
from plait.session.life import PAUSE_KINDS
from plait.session.ports import Act, Draft, store_at
from plait.session.session import session_at
from plait.session.state import Gate
from plait.session.value import core_of, delivered_seq, position_of
from plait.session.verdicts import last_verdict
from plait.session.views import Waiting
from plait.store import Store

# Not copied: a reply that was asked for again long since, and a message that waits for its own run.
_KEPT = frozenset(kind.__name__ for kind in (k.ModelReplied, k.ModelFailed, k.TurnPosted))
_RESUMED = k.SessionResumed.__name__
_WISHES = PAUSE_KINDS | {k.CancelRequested.__name__}
# Said to the run and not to the session: without meaning once the run is over.
_FOR_A_RUN = ANSWERS | {kind.__name__ for kind in (k.Signalled, k.ToolReturned, k.ToolFailed)}


def safe_point(session: Session) -> Session:
    """Return the value to go on from, with the news delivered; raise if the run is to stop or
    pause.

    For effects that no answer can be meant for: who waits for one calls `take_deliveries`.
    """
    return take_deliveries(session, brought=True)[0]


def take_deliveries(session: Session, *, brought: bool = False) -> tuple[Session, list[Event]]:
    """Return the value to go on from, and the events that were delivered to it now.

    `brought`: the append right before may have said that there is no news.
    """
    run = run_of(session)
    if run is None or session.run != run.id:  # a tool's session has no deliveries
        return session, []
    if run.journal.has_step_after(session):
        return session, []
    session = run.journal.catch_up(session)
    news: list[Event] = []
    recorded = run.journal.recorded_delivery(session)
    while recorded is not None and recorded[0] != session:  # delivered over several processes
        session, events = run.journal.catch_up(recorded[0]), recorded[1]
        news += events
        if run.journal.is_at_end(session.id):
            _heed(session, events)
        recorded = run.journal.recorded_delivery(session)
    if not run.journal.is_live(session):
        return session, news
    session, events = _deliver(run, session, brought=brought)
    _heed(session, events)
    news += events
    if run.journal.requires_verdicts:
        session, events = _past_own_gates(run, session)
        news += events
    return session, news


# ── gates ────────────────────────────────────────────────────────────────────────────────────


def _past_own_gates(run: Run, session: Session) -> tuple[Session, list[Event]]:
    """Hold the next effect until each required verdict was given once.

    The workflow that is to give it may act. Returns the value to go on from, and the events that
    were delivered while the verdicts were looked for.
    """
    if any(frame.purpose == "validate" for frame in run.stack.frames(session.id)):
        return session, []
    names = run.stack.judges(session.id, run.principal(session.id))
    held = {
        name: gate
        for name, gate in session.checks.gates.items()
        if not (gate.by and is_judge(gate.by, "", names))
    }
    held = {name: gate for name, gate in held.items() if not _has_passed(session, gate)}
    heard = run.journal.deliveries.seq(session)
    session = _await_verdicts(
        run, session, {(session.id, name): (gate.by, "", heard) for name, gate in held.items()}
    )
    if held and _came_meanwhile(session):
        return take_deliveries(session)
    for name, gate in held.items():
        who = f" by {gate.by}" if gate.by else ""
        raise Parked(
            session,
            f"the verdict {name!r}{who} is required first{_failed_text(session, name)}:"
            f" {_verdict_step(session, gate)}",
        )
    return session, []


def _failed_text(session: Session, name: str) -> str:
    """Say that the last verdict was a failure, with its actor and detail; "" if it was not."""
    passed, seq = last_verdict(session, name) or (True, 0)
    if passed:
        return ""
    event = next(store_at(session.store).read(session.id, seq, seq))
    detail: Json = getattr(event.body, "detail", None)
    text = detail if isinstance(detail, str) else ""
    if detail is not None and not isinstance(detail, str):
        text = msgspec.json.encode(detail).decode()
    return (
        f"; the verdict at {seq} is that it failed, by"
        f" {event.actor}{': ' + bounded_text(text, 200) if text else ''}"
    )


def _verdict_step(session: Session, gate: Gate) -> str:
    """Say how the verdict that a gate waits for can be given: by a person in the shell, or by the
    workflow that the gate names.
    """
    if gate.by and ":" not in gate.by:
        return (
            f"only the workflow {gate.by} can give it, with"
            f" session.checks.record({gate.name!r}, True) in its own forward"
        )
    return f"plait validate {session.short} {gate.name} passed" + (
        f" --as {gate.by}" if gate.by else ""
    )


def _has_passed(session: Session, gate: Gate) -> bool:
    """True if the gate has passed once since it was required."""
    verdict = last_verdict(session, gate.name)
    return (
        verdict is not None
        and verdict[0]
        and (verdict[1] > gate.at.seq or gate.at.log != session.id)
    )


def past_gates(into: Session, gated: Sequence[Session], verb: str) -> list[Session]:
    """Return these sessions with the verdicts that have arrived, so that a run may merge or publish
    them; park if one is missing.
    """
    run = run_of(into)
    assert run is not None
    is_recorded = not run.journal.is_live(into)
    past = [_take_news(run, session, live=not is_recorded) for session in gated]
    if is_recorded:
        return past
    unmet: dict[tuple[LogId, str], tuple[str, str, int]] = {}
    for each in past:
        heard = run.journal.deliveries.seq(each) if each.run == run.id else 0
        unmet |= {
            (each.id, name): (each.checks.gates[name].by, why, heard)
            for name, why in each.reload().checks.unmet.items()
        }
    at = next((each for each in past if each.id == into.id), into)
    if unmet and into.run != run.id:  # a tool cannot be taken up again half-way
        (log, name), (_, why, _) = next(iter(unmet.items()))
        raise GateUnmet(short(log), name, why, verb)
    waited = _await_verdicts(run, at, unmet)
    past = [waited if each.id == into.id else each for each in past]
    if unmet and _came_meanwhile(waited):
        return past_gates(waited, past, verb)
    for (log, name), (_, why, _) in unmet.items():
        raise Parked(waited, str(GateUnmet(short(log), name, why, verb)))
    return past


def _take_news(run: Run, session: Session, *, live: bool) -> Session:
    """Return the session after the delivery at this point; itself, if there was none."""
    if session.run != run.id:
        return session
    recorded = run.journal.recorded_delivery(session)
    if recorded is not None and recorded[1]:
        return recorded[0]
    if not live:
        return session
    after, events = _deliver(run, run.journal.catch_up(session))
    _heed(after, events)
    return after if events else session


def _await_verdicts(
    run: Run, session: Session, wanted: Mapping[tuple[LogId, str], tuple[str, str, int]]
) -> Session:
    """Record for which verdicts the run waits in this session, and for which it waits no more.

    `wanted` has, by session and name of the gate: its judge, why it is not met, and the seq up to
    which that session's inbox was delivered.
    """
    if not wanted and core_of(session).life.status != "waiting":
        return session
    store = store_at(session.store)
    asks = [ask for ask in _asks(session) if ask.kind == "verdict"]
    over = [ask for ask in asks if (ask.of, ask.name) not in wanted or _is_answered(store, ask)]
    known = {(ask.of, ask.name) for ask in asks if ask not in over}
    drafts = [Draft(k.VerdictHeard(ask.event), Act(SERVICE)) for ask in over]
    for (log, name), (by, why, heard) in wanted.items():
        if (log, name) not in known:
            other = log if log != session.id else None
            drafts.append(
                Draft(k.VerdictAwaited(name, by, why, other, heard), Act(run.principal(session.id)))
            )
    return append_at_tip(session, drafts)[0] if drafts else session


def _came_meanwhile(session: Session) -> bool:
    """True if a verdict arrived after the last look into the inbox, and before it was recorded that
    the run waits for it: no row is woken by it.
    """
    store = store_at(session.store)
    return any(_is_answered(store, ask) for ask in _asks(session) if ask.kind == "verdict")


def _is_answered(store: Store, ask: Waiting) -> bool:
    return any(is_answer(ask, event) for event in inbox_events(store, ask.of or ask.log, ask.heard))


def has_news(session: Session) -> bool:
    """True if something has to be delivered, or heeded, before the next effect."""
    run = run_of(session)
    if run is None or session.run != run.id:
        return False
    log, inbox, above = session.id, inbox_of(session.id), inbox_of(run.root)
    heads = store_at(session.store).heads([log, inbox] if log == run.root else [log, inbox, above])
    if heads[log].head != session.head or (
        inbox in heads and heads[inbox].tip > run.journal.deliveries.seq(session)
    ):
        return True
    return (
        log != run.root
        and above in heads
        and heads[above].tip > run.journal.deliveries.seq(session_at(run.journal.tip(run.root)))
    )


def deliver_all(run: Run) -> None:
    """Deliver the news to a run that ends: the wish that it be cancelled, say."""
    session = session_at(run.journal.tip(run.root))
    if run.journal.is_live(session):
        _deliver(run, run.journal.catch_up(session))


def undelivered(session: Session) -> list[Draft]:
    """Return the drafts that deliver the rest of the inbox to a run that ends.

    Events that meant only the run are left out: it takes no answer any more.
    """
    news = inbox_events(store_at(session.store), session.id, delivered_seq(session))
    return _delivery_outside(session, news, news[-1].seq) if news else []


def turn_delivery(session: Session, turn: Event) -> list[Draft]:
    """Return the drafts that deliver the inbox up to a turn, and last the message of the turn, to
    a session without a run.
    """
    body, header = turn.body, turn.header
    assert isinstance(body, k.TurnPosted)
    after, before = delivered_seq(session), list[Event]()
    if turn.seq > after + 1:
        news = inbox_events(store_at(session.store), session.id, after)
        before = [event for event in news if event.seq < turn.seq]
    delivered, *copies = _delivery_outside(session, before, turn.seq)
    assert isinstance(delivered.body, k.Delivered)
    all_of_it = k.Delivered(delivered.body.inbox, turn.seq, len(copies) + 1)
    act = Act(header.actor, header.origin, header.behalf, causes=(turn.id,))
    said = Draft(k.MessageSaid("user", body.parts), act)
    return [Draft(all_of_it, delivered.act), *copies, said]


def _delivery_outside(session: Session, news: Sequence[Event], upto: int) -> list[Draft]:
    for_session = [event for event in news if event.kind not in _FOR_A_RUN]
    return _delivery(session, inbox_of(session.id), for_session, upto)


def _deliver(run: Run, session: Session, *, brought: bool = False) -> tuple[Session, list[Event]]:
    store, log = store_at(session.store), session.id
    inbox, above = inbox_of(log), inbox_of(run.root)
    heads = run.journal.heads(session, brought=brought)
    here = heads[log]
    run.journal.fence.check(heads)
    # another writer appended to the log itself: its events are taken along
    if here.head != session.head and run.journal.tips.is_tip(position_of(session)):
        session = session.reload()
        run.journal.tips.move(position_of(session))
    if log != run.root and above in heads:
        _heed_above(run, store, heads[above].tip)
    if inbox not in heads or heads[inbox].tip <= run.journal.deliveries.seq(session):
        return session, []
    news = inbox_events(store, log, run.journal.deliveries.seq(session))
    if all(event.kind == k.TurnPosted.__name__ for event in news):
        run.journal.deliveries.advance(log, news[-1].seq)
        return session, []
    session, events = append_at_tip(
        session,
        _delivery(session, inbox, [each for each in news if not _is_over(run, each)], news[-1].seq),
    )
    run.journal.deliveries.advance(log, news[-1].seq)
    if any([event.kind == k.ValidationRecorded.__name__ for event in events]):
        run.has_proposals = True  # a verdict may be about a memory
    return session, events[1:]


def _is_over(run: Run, event: Event) -> bool:
    """True for a wish to end the run before this one."""
    is_cancel = event.kind == k.CancelRequested.__name__
    return is_cancel and event.log == inbox_of(run.root) and event.seq <= run.started_at


def _delivery(session: Session, inbox: LogId, news: Sequence[Event], upto: int) -> list[Draft]:
    copies = [event for event in news if event.kind not in _KEPT]
    asks = _asks(session) if any(event.kind in ANSWERS for event in copies) else []
    delivered = Draft(k.Delivered(inbox, upto, len(copies)), Act(SERVICE))
    return [delivered, *(_copy(event, asks) for event in copies)]


def _copy(event: Event, asks: Sequence[Waiting]) -> Draft:
    """Return the copy of an inbox event.

    Only an answer that counts is made an event of the call that it answers.
    """
    header = event.header
    call = (
        next((ask.call for ask in asks if is_answer(ask, event)), None)
        if event.kind in ANSWERS
        else header.call
    )
    return Draft(event.body, Act(header.actor, header.origin, header.behalf, call, (event.id,)))


def _asks(session: Session) -> list[Waiting]:
    """Return the asks that are open in this log."""
    log = store_at(session.store).log(session.id)
    return asks_in(store_at(session.store), session.id, log.place + 1, session.seq)


def _heed(session: Session, events: Sequence[Event]) -> None:
    """Raise if one of these events asks the run to stop, or to pause with no word that lifts it."""
    lifted = max([event.seq for event in events if event.kind == _RESUMED], default=0)
    for event in events:
        body = event.body
        if isinstance(body, k.CancelRequested):
            raise Cancelled(body.reason or f"{event.actor} cancelled it", event.actor)
        if isinstance(body, k.SessionPaused) and event.seq > lifted:
            raise Parked(
                session, f"paused by {event.actor}{': ' + body.reason if body.reason else ''}"
            )


def _heed_above(run: Run, store: Store, tip: int) -> None:
    """In a branch, raise if the whole run is asked to stop or to pause.

    The wish itself is delivered to the root, to which it is addressed.
    """
    root = session_at(run.journal.tip(run.root))
    if tip > run.journal.deliveries.seq(root):
        news = inbox_events(store, run.root, run.journal.deliveries.seq(root))
        _heed(root, [event for event in news if event.kind in _WISHES and not _is_over(run, event)])
