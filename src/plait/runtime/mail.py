"""Safe points: before every effect a run looks at what others have to say.

While a run is open everybody else writes to the session's inbox, never to its log, so the running writer is not disturbed. At a safe point
what has arrived is delivered: one event says how far the inbox was read, and each thing that stood there is repeated in the log, with
the inbox event as its cause. Taken up again, a run takes the same deliveries at the same points from its record.
"""

from __future__ import annotations

from collections.abc import Sequence

from plait.event import Body, Event
from plait.event import kinds as k
from plait.ids import Digest, inbox_of
from plait.runtime.run import Cancelled, Parked, Run, record_at_tip, run_of
from plait.session import Session
from plait.session.inbox import arrived
from plait.session.ports import Act, Draft, store_at
from plait.store import Store

_LATE = (k.ModelReplied, k.ModelFailed)  # asked again long since: it stays in the inbox
_STOPS = frozenset({k.CancelRequested.__name__, k.SessionPaused.__name__})
_BRACKETS = frozenset(kind.__name__ for kind in (k.ApprovalRequested, k.QuestionAsked, k.ToolRequested, k.TimerSet))


def safe_point(session: Session) -> Session:
    """The value to go on from, with what has arrived; raises if somebody wants the run to stop or pause."""
    return arrivals(session)[0]


def arrivals(session: Session) -> tuple[Session, list[Event]]:
    """The value to go on from, and what was delivered to it now."""
    run = run_of(session)
    if run is None or session.run != run.id:  # what a tool does with its session is its own affair
        return session, []
    session = run.joined(session)
    recorded = run.take_delivery(session)
    if recorded is not None:
        session, events = recorded
        session = run.joined(session)
        if run.ends_here(session):
            _heed(session, events)
        if events or run.on_record(session):
            return session, events
    session, events = _deliver(run, session)
    _heed(session, events)
    return session, events


def deliver_all(run: Run, session: Session) -> Session:
    """What has arrived at a run that ends: its wish to be cancelled, say."""
    return _deliver(run, session)[0]


def _deliver(run: Run, session: Session) -> tuple[Session, list[Event]]:
    store, log = store_at(session.store), session.id
    inbox, above = inbox_of(log), inbox_of(run.root)
    heads = store.heads([log, inbox, above] if log != run.root else [log, inbox])
    here = heads[log]
    if here.head != session.head and run.is_tip(session):  # somebody wrote to the log itself: that is taken along
        run.check_mine(session.spot)
        session = session.reload()
        run.start(session.spot)
    _heed_above(run, store, heads[above].tip if above in heads else 0)
    if inbox not in heads or heads[inbox].tip <= run.delivered(session):
        return session, []
    news = arrived(store, log, run.delivered(session))
    upto = news[-1].seq
    copies = [event for event in news if event.kind not in {kind.__name__ for kind in _LATE}]
    calls = _calls(session) if any(_about(event.body) for event in copies) else {}
    drafts = [Draft(k.Delivered(inbox, upto, len(copies)), Act("service:plait")), *(_copy(event, calls) for event in copies)]
    session, events = record_at_tip(session, drafts)
    run.set_delivered(log, upto)
    return session, events[1:]


def _copy(event: Event, calls: dict[Digest, str]) -> Draft:
    header, about = event.header, _about(event.body)
    call = header.call or (calls.get(about) if about is not None else None)
    return Draft(event.body, Act(header.actor, header.origin, header.behalf, call, (event.id,)))


def _about(body: Body) -> Digest | None:
    """What an answer answers."""
    if isinstance(body, (k.ApprovalGranted, k.ApprovalDenied)):
        return body.binding
    if isinstance(body, k.QuestionAnswered):
        return body.question
    return body.request if isinstance(body, k.ToolResolved) else None


def _calls(session: Session) -> dict[Digest, str]:
    """The brackets of what was asked in this log: by binding, or by event."""
    found: dict[Digest, str] = {}
    for event in store_at(session.store).read(session.id, 1, session.place, kinds=_BRACKETS):
        body, call = event.body, event.header.call
        if call is not None:
            found[body.binding if isinstance(body, k.ApprovalRequested) else event.id] = call
    return found


def _heed(session: Session, events: Sequence[Event]) -> None:
    for event in events:
        body = event.body
        if isinstance(body, k.CancelRequested):
            raise Cancelled(body.reason or f"{event.actor} cancelled it")
        if isinstance(body, k.SessionPaused):
            raise Parked(session, f"paused by {event.actor}{': ' + body.reason if body.reason else ''}")


def _heed_above(run: Run, store: Store, tip: int) -> None:
    """In a branch: whether somebody wants the whole run to stop. It is delivered where it is addressed to."""
    root = Session.of(run.tip(run.root))
    if tip > run.delivered(root):
        _heed(root, [event for event in arrived(store, run.root, run.delivered(root)) if event.kind in _STOPS])
