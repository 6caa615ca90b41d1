"""An outcome that is not written yet: it goes with the ask that follows, or is written by itself.

A step of model and tool is two transactions because of this: the reply with its requests, and the
last outcome with the next ask. Interrupted at any moment, the outcome is written once.
"""

from __future__ import annotations

from collections.abc import Sequence

from plait.event import Event
from plait.runtime.appends import append_at_tip
from plait.runtime.registry import run_of
from plait.runtime.safe_points import has_news
from plait.session import Session
from plait.session.ports import Draft, Position, store_at
from plait.session.value import position_of


class Unwritten:
    """The last outcome of a reply's calls, as drafts, and later as the events that an ask takes
    along.
    """

    def __init__(self, session: Session, drafts: Sequence[Draft]) -> None:
        self.session, self.drafts = session, drafts  # session: before it
        self.events: list[Event] = []  # as they go with an ask; empty: they do not
        self.is_done = False  # written, with an ask or by itself

    def seal(self, session: Session) -> Position | None:
        """Seal the outcome for the ask that follows; return the position after it.

        None if it has to be written by itself: something else comes first, or the ask may not be
        made.
        """
        run = run_of(session)
        if run is None or (sealed := run.journal.seal(position_of(session), self.drafts)) is None:
            return None
        stops = run.stops
        if stops.is_let_go or stops.is_stopped(session.id) or run.budgets.of(session.id):
            return None
        if has_news(session):
            return None
        after, self.events = sealed
        return after

    def write(self) -> Session:
        """Write the outcome by itself."""
        session, _ = append_at_tip(self.session, self.drafts)
        self.is_done = True
        return session

    def write_if_missing(self) -> Session | None:
        """Write the outcome by itself, unless it is written; None if it is.

        An append may have been interrupted right after its commit, so the log is asked.
        """
        return None if self.is_done or self._is_stored() else self.write()

    def _is_stored(self) -> bool:
        session, (body, act) = self.session, self.drafts[-1]
        log = store_at(session.store).read(session.id, session.seq + 1, kinds={type(body).__name__})
        return any(event.header.call == act.call for event in log)
