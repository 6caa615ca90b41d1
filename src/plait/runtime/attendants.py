"""The attendants of a call: functions that hear its events, give consent, and answer questions."""

from __future__ import annotations

from typing import NamedTuple

from plait.errors import MayNotApprove
from plait.event import Event
from plait.inside import is_inside
from plait.journal.writer import direct_writer
from plait.model.base import Delta
from plait.runtime.listeners import OnEvent
from plait.runtime.policy import Approver
from plait.runtime.registry import run_of
from plait.runtime.run import running
from plait.runtime.settings import Answerer
from plait.session import Session
from plait.session.ports import Position
from plait.store import shared_names


class Watch(NamedTuple):
    """The attendants that a caller hands in. None: there is no such attendant."""

    on_event: OnEvent | None = None
    approver: Approver | None = None
    answerer: Answerer | None = None


NOBODY = Watch()


def check_attendants(session: Session, watch: Watch) -> None:
    """Raise MayNotApprove if code of a run hands in an approver or an answerer that is not the
    run's: only the caller of the outermost workflow does that.
    """
    approver, answerer = watch.approver, watch.answerer
    if approver is None and answerer is None:
        return
    outer = running.get()
    if (
        outer is not None
        and (approver is None or approver is outer.settings.approver)
        and (answerer is None or answerer is outer.settings.answerer)
    ):
        return
    if why := is_inside(session.store, shared_names):
        step = "pass approver= and answerer= where the outermost workflow is called"
        raise MayNotApprove(
            session.short, direct_writer().principal(), f"{why}, nor hands in who does; {step}"
        )


def note_heard_events(watch: Watch, session: Session) -> Watch:
    """Return the attendants with a listener whose events count as read by the code of the run that
    hands it in. Outside of runs: the same attendants.
    """
    on_event = watch.on_event
    if on_event is None or not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        return watch
    run = running.get() or run_of(session)
    if run is None or run.closed:
        return watch
    calls, store = run.calls(session.id), session.store

    def note_and_tell(item: Event | Delta) -> object:
        if isinstance(item, Event):  # a delta is of a reply whose ask was heard before
            run.reads.note(calls, Position(store, item.log, item.seq, item.id))
        return on_event(item)

    return watch._replace(on_event=note_and_tell)
