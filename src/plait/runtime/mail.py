"""Safe points: before every effect a run looks at what others have to say.

While a run is open everybody else writes to the session's inbox, never to its log, so the running writer is not disturbed. At a safe point
what has arrived is delivered: one event says how far the inbox was read, and each thing that stood there is repeated in the log, with
the inbox event as its cause. Taken up again, a run takes the same deliveries at the same points from its record.
"""

from __future__ import annotations

from collections.abc import Sequence

from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId, inbox_of
from plait.runtime.run import Run, record_at_tip, run_of
from plait.runtime.stops import Cancelled, Parked
from plait.session import Session
from plait.session.asks import ANSWERS, answers
from plait.session.inbox import arrived, asks_in
from plait.session.ports import Act, Draft, store_at
from plait.session.views import Waiting
from plait.store import Store

_LATE = (k.ModelReplied, k.ModelFailed)  # asked again long since: it stays in the inbox
_STOPS = frozenset({k.CancelRequested.__name__, k.SessionPaused.__name__})


def safe_point(session: Session) -> Session:
    """The value to go on from, with what has arrived; raises if somebody wants the run to stop or pause."""
    return arrivals(session)[0]


def arrivals(session: Session) -> tuple[Session, list[Event]]:
    """The value to go on from, and what was delivered to it now."""
    run = run_of(session)
    if run is None or session.run != run.id:  # what a tool does with its session is its own affair
        return session, []
    if run.goes_on(session):
        return session, []
    session = run.joined(session)
    recorded = run.take_delivery(session)
    if recorded is not None:
        before, (session, events) = session, recorded
        while session != before and not events:  # all it brought was rewound, and the next one came at the same point
            before, (session, events) = session, run.take_delivery(session) or (session, events)
        session = run.joined(session)
        if run.ends_here(session):
            _heed(session, events)
        if events or run.follows(session):
            return session, events
    session, events = _deliver(run, session)
    _heed(session, events)
    if run.gated:
        _check_gates(run, session)
    return session, events


def _check_gates(run: Run, session: Session) -> None:
    """A verdict that is required holds the next effect until it was given once; whoever is to give it may act."""
    frames = run.frames(session.id)
    if any(frame.purpose == "validate" for frame in frames):
        return
    names = {name for frame in frames for name in (frame.path.rpartition("/")[2], type(frame.node).__qualname__)}
    for name, gate in session.gates.items():
        verdict = session.verdict(name)
        if gate.by not in names and (verdict is None or not verdict[0] or (verdict[1] < gate.at.seq and gate.at.log == session.id)):
            who = f" by {gate.by}" if gate.by else ""
            raise Parked(session, f"the verdict {name!r}{who} is required first: plait validate {session.short} {name} passed")


def has_mail(session: Session) -> bool:
    """Whether there is anything to heed before the next effect."""
    run = run_of(session)
    if run is None or session.run != run.id:
        return False
    log, inbox, above = session.id, inbox_of(session.id), inbox_of(run.root)
    heads = store_at(session.store).heads([log, inbox] if log == run.root else [log, inbox, above])
    if heads[log].head != session.head or (inbox in heads and heads[inbox].tip > run.delivered(session)):
        return True
    return log != run.root and above in heads and heads[above].tip > run.delivered(Session.of(run.tip(run.root)))


def deliver_all(run: Run) -> None:
    """What has arrived at a run that ends: the wish that it be cancelled, say."""
    session = Session.of(run.tip(run.root))
    if not run.follows(session):
        _deliver(run, run.joined(session))


def undelivered(session: Session) -> list[Draft]:
    """What stands in the inbox and has not reached the session, as it is delivered to a run that ends: it goes by no answer any more."""
    news = arrived(store_at(session.store), session.id, session.delivered)
    told = [event for event in news if event.kind in (k.CancelRequested.__name__, k.MessageSaid.__name__)]
    return _delivery(session, inbox_of(session.id), told, news[-1].seq) if news else []


def _deliver(run: Run, session: Session) -> tuple[Session, list[Event]]:
    store, log = store_at(session.store), session.id
    inbox, above = inbox_of(log), inbox_of(run.root)
    heads = store.heads(list(dict.fromkeys([log, inbox, above, *[fence.log for fence in run.fences]])))
    here = heads[log]
    run.check_mine(heads)
    if here.head != session.head and run.is_tip(session):  # somebody wrote to the log itself: that is taken along
        session = session.reload()
        run.start(session.spot)
    if log != run.root and above in heads:
        _heed_above(run, store, heads[above].tip)
    if inbox not in heads or heads[inbox].tip <= run.delivered(session):
        return session, []
    news = arrived(store, log, run.delivered(session))
    session, events = record_at_tip(session, _delivery(session, inbox, [each for each in news if not _is_over(run, each)], news[-1].seq))
    run.set_delivered(log, news[-1].seq)
    return session, events[1:]


def _is_over(run: Run, event: Event) -> bool:
    """Whether somebody wanted it to pause, and it was resumed since; or wanted the run before it to end."""
    if event.log != inbox_of(run.root) or event.kind not in _STOPS:
        return False
    return event.seq <= (run.resumed_at if event.kind == k.SessionPaused.__name__ else run.started_at)


def _delivery(session: Session, inbox: LogId, news: Sequence[Event], upto: int) -> list[Draft]:
    copies = [event for event in news if event.kind not in {kind.__name__ for kind in _LATE}]
    asks = _asks(session) if any(event.kind in ANSWERS for event in copies) else []
    delivered = Draft(k.Delivered(inbox, upto, len(copies)), Act("service:plait"))
    return [delivered, *(_copy(event, asks) for event in copies)]


def _copy(event: Event, asks: Sequence[Waiting]) -> Draft:
    """An event of the inbox as it is repeated. Only an answer that counts is put into the bracket of what it answers."""
    header = event.header
    call = next((ask.call for ask in asks if answers(ask, event)), None) if event.kind in ANSWERS else header.call
    return Draft(event.body, Act(header.actor, header.origin, header.behalf, call, (event.id,)))


def _asks(session: Session) -> list[Waiting]:
    """What is open in this log."""
    log = store_at(session.store).log(session.id)
    return asks_in(store_at(session.store), session.id, log.place + 1, session.place)


def _heed(session: Session, events: Sequence[Event]) -> None:
    for event in events:
        body = event.body
        if isinstance(body, k.CancelRequested):
            raise Cancelled(body.reason or f"{event.actor} cancelled it", event.actor)
        if isinstance(body, k.SessionPaused):
            raise Parked(session, f"paused by {event.actor}{': ' + body.reason if body.reason else ''}")


def _heed_above(run: Run, store: Store, tip: int) -> None:
    """In a branch: whether somebody wants the whole run to stop. It is delivered where it is addressed to."""
    root = Session.of(run.tip(run.root))
    if tip > run.delivered(root):
        news = arrived(store, run.root, run.delivered(root))
        _heed(root, [event for event in news if event.kind in _STOPS and not _is_over(run, event)])
