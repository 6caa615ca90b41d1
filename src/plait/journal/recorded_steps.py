"""The recorded steps of a run, as the rooms above may ask for them.

Whether a run is live, resumed or replayed is known here and in `journal.py` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from plait.errors import StaleHead
from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest, LogId, inbox_of
from plait.journal.abandoned import AbandonedCalls, children_of
from plait.journal.branches import Branches
from plait.journal.cursor import Cursor, Differs
from plait.journal.deferred import DeferredDrafts
from plait.journal.fence import RunFence
from plait.journal.recording import Recording, divergence
from plait.journal.standing import Standing
from plait.journal.stops import Parked, Stop
from plait.journal.tips import Deliveries, Tips
from plait.journal.writer import DirectWriter
from plait.session import Session
from plait.session.ports import Draft, Position
from plait.session.session import session_at
from plait.session.value import advance, next_value, position_of

Blobs = Mapping[Digest, bytes]
_GATE = k.GateRequired.__name__
_UNRECORDED = "(an effect that is not on record)"


class RecordedSteps:
    """The part of a journal that reads: it consumes recorded steps, and says how the run stands."""

    def __init__(self, run: str, root: LogId, writer: DirectWriter, *, home: str) -> None:
        self.run, self.root = run, root
        self.writer = writer
        self.fence = RunFence(run, root, home, writer.store)
        self._recording = Recording(run, root, is_live=True)
        self._has_recording = False  # False: the run was begun in this process
        self.branches = Branches()
        self.deferred = DeferredDrafts()
        self.tips = Tips()
        self.deliveries = Deliveries()
        self.requires_verdicts = False  # a gate was ever required in the run
        # called with each recorded step as the program comes to it: a debugger stops there
        self.on_step: Callable[[Event], object] | None = None
        # a debugger enters branches of calls that have an outcome: their records may end anywhere
        self.enters_branches = False
        self.abandoned = AbandonedCalls()  # by accepted changes of the program

    def follow(self, recording: Recording, start: Position) -> None:
        """Answer from this recording, as a resume, a replay or a what-if does, from its start."""
        self._recording, self._has_recording = recording, True
        self.tips.move(start)

    # ── how the run stands ──────────────────────────────────────────────────────────────────────

    @property
    def is_replay(self) -> bool:
        """True if nothing is done and nothing written: all there is, is the recording."""
        return self._recording.strict

    @property
    def is_trial(self) -> bool:
        """True if a replay looks for differences: each branch is followed as far as it goes."""
        return self._recording.is_trial

    def standing(self, session: Session) -> Standing:
        """Return where the step after this value stands: a deferred draft, or what follows it."""
        if not self._has_recording:
            return Standing.LIVE
        at = position_of(session)
        cursor = self._recording.cursor_at(at)
        if cursor is None:
            return Standing.LIVE
        ahead = self.deferred.count(at.id, at.run or self.run)
        if self._recording.branched and cursor.is_before_branch(ahead):
            return Standing.INHERITED
        return Standing.OVER if cursor.is_over else Standing.RECORDED

    def is_live(self, session: Session) -> bool:
        """True if what the program does next is done now, and not read from the recording.

        Deferred drafts come first, and may be all that is left of the recording.
        """
        if not self._has_recording:
            return True
        at = position_of(session)
        cursor = self._recording.cursor_at(at)
        if cursor is None:
            return True
        ahead = self.deferred.count(at.id, at.run or self.run)
        return not (self._recording.strict or cursor.closed or cursor.has_steps_after(ahead))

    def standing_of(self, event: Event) -> Standing:
        """Return where an event of the run comes from."""
        if not self._has_recording:
            return Standing.LIVE
        recording = self._recording
        if event.seq > recording.frontier.get(event.log, 0):
            return Standing.LIVE
        if event.header.run != self.run:
            return Standing.INHERITED
        is_restated = event.log == self.root and event.seq <= recording.restated
        return Standing.INHERITED if is_restated else Standing.RECORDED

    def is_reopened(self, log: LogId, failure: Event, *, was_stopped: bool = False) -> bool:
        """True if a failure ended the run, which was resumed to try again.

        A recorded call that was stopped is tried again as well, unless the run went on without its
        branch.
        """
        if was_stopped and self.standing_of(failure) is not Standing.LIVE:
            return not self._went_on_without(log)
        # the outcome of a call that a changed program asks for again names the one before
        return not self._recording.reopened.isdisjoint((failure.id, *failure.header.causes))

    def is_tried_again(self, session: Session) -> bool:
        """True if an answer that ended the run is asked for again: now, or on record.

        On record it ended a call, or was followed by another ask.
        """
        if not self._has_recording:
            return False
        step = self.next_step(session)
        if step is not None:
            return step.kind != k.CallFinished.__name__
        return session.head in self._recording.reopened

    def read_logs(self) -> dict[LogId, bool]:
        """Return the logs that the program came to; True if it made their last recorded step."""
        return {log: cursor.is_over for log, cursor in self._recording.cursors.items()}

    def is_at_end(self, log: LogId) -> bool:
        """True in a replay where nothing is left in this log but the end of the run."""
        return self._recording.ends_here(log)

    def has_more(self, log: LogId) -> bool:
        """True if the recording goes on in this log after the deferred drafts."""
        cursor = self._recording.cursors.get(log)
        return cursor is not None and cursor.has_steps_after(self.deferred.count(log, self.run))

    def _went_on_without(self, log: LogId) -> bool:
        """True if the recording shows the parent of a stopped branch going on."""
        return self._recording.strict or self.has_more(self.branches.parent_of(log) or self.root)

    def was_left_behind(self, log: LogId, *, is_unbegun: bool = False) -> bool:
        """True if the recording of a branch ends where it was stopped, and its parent went on.

        `is_unbegun`: no step of it was made so far, and none is recorded if it was stopped before.
        """
        cursor = self._recording.cursors.get(log)
        if cursor is None:
            return False
        if is_unbegun:
            return cursor.is_over and self.has_more(self.branches.parent_of(log) or self.root)
        return cursor.stopped and self._went_on_without(log)

    def held_s(self, log: LogId) -> float:
        """Return for how many seconds earlier processes held a branch."""
        return self._recording.held_s(log)

    def source_runs(self, session: Session) -> tuple[str, ...]:
        """Return the runs that this one was branched off, the first one first."""
        return self._recording.before if session.run == self.run else ()

    def source_of(self, session: Session) -> tuple[str, LogId]:
        """Return the run and the log that calls are named after.

        While the recording of another run is followed, calls have the names they had there.
        """
        at = position_of(session)
        cursor = self._recording.cursor_at(at) if self._recording.branched else None
        step = cursor.peek() if cursor is not None else None
        if step is not None:
            return step.header.run or self.run, step.log
        return at.run or self.run, at.id

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    def next_step(self, session: Session) -> Event | None:
        """Return the recorded step after the deferred drafts."""
        return self.step_after(position_of(session))

    def step_after(self, at: Position, ahead: int = 0) -> Event | None:
        """Return the recorded step after a position, the deferred drafts aside."""
        cursor = self._recording.cursor_at(at)
        deferred = self.deferred.count(at.id, at.run or self.run)
        return cursor.peek(deferred + ahead) if cursor is not None else None

    def has_step_after(self, session: Session) -> bool:
        """True if an ordinary recorded step comes right after this value: nothing was delivered."""
        if not self._has_recording:
            return False
        at = position_of(session)
        cursor = self._recording.cursors.get(at.id)
        if cursor is None or cursor.at.seq != at.seq or self.deferred.count(at.id, self.run):
            return False
        return cursor.has_ordinary_step(at.seq)

    def peek_call(self, session: Session, calls: Container[str | None]) -> Event | None:
        """Return the next recorded step, if it belongs to one of these calls."""
        cursor = self._recording.cursor_at(position_of(session))
        return cursor.peek_call(calls) if cursor is not None else None

    def call_event(
        self, session: Session, calls: Container[str | None]
    ) -> tuple[Session, Event] | None:
        """Consume the next recorded step, if it belongs to one of these calls."""
        if not self._has_recording:
            return None
        cursor = self._recording.cursor_at(position_of(session))
        event = cursor.take(calls) if cursor is not None else None
        if cursor is None or event is None:
            return None
        self.tips.move(cursor.at, [event])
        tell_steps(self.on_step, [event])
        return _value_after(session, cursor.at, [event]), event

    def _tell_deferred(self, log: LogId, scope: str, draft: Draft) -> None:
        """Tell of the step that a draft will be compared with, while the call that defers it is at
        work.
        """
        cursor = self._recording.cursors.get(log) if self.on_step is not None else None
        if cursor is None or scope != self.run:
            return
        step = cursor.peek(self.deferred.count(log, scope))
        if step is not None and step.kind == type(draft.body).__name__:
            tell_steps(self.on_step, [step])

    def _take_recorded(
        self, cursor: Cursor, at: Position, drafts: Sequence[Draft], blobs: Blobs | None = None
    ) -> list[Event]:
        """Consume as many of these drafts as are recorded."""
        if at.seq < cursor.at.seq:
            raise StaleHead(at.id, at.head, cursor.at.head, cursor.at.seq)
        recording, found = self._recording, list[Event]()
        for draft in drafts:
            try:
                event = cursor.match(draft)
            except Differs as error:
                if recording.strict and not recording.finished and cursor.has_only_end:
                    # nothing more was done, and then a person ended the run
                    raise self.fence.halt(None) from None
                store = self.writer.store(at.store)
                is_own = not (cursor.is_of_other_run or recording.finished)
                raise self.fence.halt(divergence(at, error, store, blobs, is_own=is_own)) from None
            if event is None:
                ends_early = self.enters_branches or not recording.finished
                is_branch = at.id != self.root and ends_early
                if recording.strict and (is_branch or recording.is_trial):
                    raise Parked(session_at(at), "the record of this branch ends here")
                if recording.strict or cursor.closed:
                    error = None if recording.open else divergence(at, Differs(None, draft))
                    raise self.fence.halt(error)
                break
            found.append(event)
            tell_steps(self.on_step, [event])
        self.tips.move(cursor.at, found)
        return found

    def has_mark(self, log: LogId, name: str) -> bool | None:
        """True if a patch is marked here in the recording, False if the recording goes on without.

        None: nothing more is recorded in this log.
        """
        cursor = self._recording.cursors.get(log) if self._has_recording else None
        if cursor is None:
            return None
        ahead = self.deferred.count(log, self.run)
        if cursor.has_mark(name, ahead):
            return True
        at = cursor.at
        # a branch that the run forked here, and that the program has not come to yet
        is_going_on = cursor.has_steps_after(ahead) or any(
            log.place == at.seq and self.branches.parent_of(log.id) is None
            for log in children_of(self.writer.store(at.store), at.id, self.run)
        )
        return False if is_going_on else None

    # ── deliveries ──────────────────────────────────────────────────────────────────────────────

    def recorded_delivery(self, session: Session) -> tuple[Session, list[Event]] | None:
        """Consume the delivery that is recorded here; None if nothing is recorded any more."""
        if not self._has_recording:
            return None
        cursor = self._recording.cursor_at(position_of(session))
        if cursor is None:
            return None
        deferred = self.deferred.drafts(session.id, self.run)
        if deferred and cursor.delivers_after(deferred):  # written with the delivery
            self._take_recorded(cursor, position_of(session), deferred)
            self.deferred.drop(session.id, self.run, len(deferred))
        events = cursor.take_delivery()
        self.requires_verdicts |= any(event.kind == _GATE for event in events)
        self.tips.move(cursor.at, events)
        tell_steps(self.on_step, events)
        for event in events[:1]:
            body = event.body
            assert isinstance(body, k.Delivered)
            if body.inbox == inbox_of(session.id):  # a run that was branched off had another inbox
                self.deliveries.advance(session.id, body.upto)
        return _value_after(session, cursor.at, events) if events else session, events[1:]

    # ── the end of the recording ────────────────────────────────────────────────────────────────

    def check_may_act(self, session: Session) -> None:
        """Raise in a replay: what is not recorded is not done."""
        if self._recording.strict:
            raise self.end_of_recording(session)

    def end_of_recording(self, session: Session) -> Stop:
        """Return the stop to raise where a replay comes to what is not recorded."""
        is_branch = session.id != self.root and not self._recording.finished
        cursor = self._recording.cursors.get(session.id) if self._recording.is_trial else None
        step = cursor.first_untaken() if cursor is not None else None
        if cursor is not None and step is not None:
            differs, is_own = Differs(step, _UNRECORDED), not cursor.is_of_other_run
            return self.fence.halt(divergence(position_of(session), differs, is_own=is_own))
        if is_branch or self._recording.is_trial:
            return Parked(session, "the record of this branch ends here")  # others went on
        if self._recording.open or self._recording.ends_here(session.id):
            return self.fence.halt(None)
        wanted = Differs(None, _UNRECORDED)
        return self.fence.halt(divergence(position_of(session), wanted))

    def check_recording_used(self) -> None:
        """Raise if a branch has a recorded step that the program never came to."""
        untaken = self._recording.untaken_step()
        if untaken is not None:
            cursor, step = untaken
            error, is_own = Differs(step, "(the end of the program)"), not cursor.is_of_other_run
            raise self.fence.halt(divergence(cursor.at, error, is_own=is_own))


def tell_steps(on_step: Callable[[Event], object] | None, events: Sequence[Event]) -> None:
    """Tell of recorded steps that the program comes to, if there is a listener."""
    if on_step is not None:
        for event in events:
            on_step(event)


def _value_after(session: Session, at: Position, events: Sequence[Event]) -> Session:
    """Return the value after these events.

    Events of others that stand before them may have changed its life.
    """
    if events[0].seq != session.seq + 1:
        return next_value(session, at)
    return advance(session, at, *[event.kind for event in events])
