"""The journal of a run: every append, and every question about what is recorded.

Whatever a run appends is first looked for in the recording, and written only beyond it. The rooms
above see the events either way: they do not know whether a run is live, resumed or replayed.

A tool that is handed the session writes in a scope of its own, the run's id and the call's. The
recording passes over such events, since a tool that is run again makes them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from threading import Lock

import msgspec

from plait.errors import StaleEpoch, StaleHead
from plait.event import Event
from plait.event import kinds as k
from plait.event.codec import VOCABULARY
from plait.event.hidden import without_secrets
from plait.event.kinds import Place
from plait.ids import Digest, LogId, Micros, inbox_of
from plait.journal.branches import Branches
from plait.journal.cursor import Cursor, Differs
from plait.journal.deferred import DeferredDrafts, append_drafts
from plait.journal.fence import RunFence
from plait.journal.recording import Recording, divergence, unwritten_drafts
from plait.journal.standing import Standing
from plait.journal.stops import Parked, Stop
from plait.journal.tips import Tips
from plait.journal.writer import DirectWriter
from plait.session import Session
from plait.session.inbox import inbox_events
from plait.session.ports import Act, Draft, Position
from plait.session.session import session_at
from plait.session.value import advance, delivered_seq, next_value, position_of
from plait.store.epochs import turns_in

Blobs = Mapping[Digest, bytes]
OnAppend = Callable[[Sequence[Event]], object]


class Journal:
    """The one writer of a run's logs."""

    def __init__(
        self, run: str, root: LogId, writer: DirectWriter, *, behalf: str, home: str
    ) -> None:
        self.run, self.root, self.behalf = run, root, behalf
        self.writer = writer
        self.fence = RunFence(run, root, home, writer.store)
        self.recording = Recording(run, root, is_live=True)
        self.branches = Branches()
        self.deferred = DeferredDrafts()
        self.tips = Tips()
        self.has_ended = False  # the end of the run was written in this process
        self.requires_verdicts = False  # a gate was ever required in the run
        # called before and after each write: a simulation may end the process there
        self.on_write: Callable[[str, Sequence[Draft]], None] | None = None
        self.on_append: OnAppend | None = None
        self._lock = Lock()
        self._delivered: dict[LogId, int] = {}
        self._posted: Counter[tuple[LogId, str, bytes]] = Counter()

    # ── appending ────────────────────────────────────────────────────────────────────────────

    def append(
        self,
        at: Position,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        blobs: Blobs | None = None,
        held: Sequence[Event] = (),
    ) -> tuple[Position, list[Event]]:
        """Append, with the deferred drafts before; return the events of these drafts.

        `held` were sealed before, up to this position, and are written only now.
        """
        self.fence.check_going()
        scope = at.run or self.run
        waiting = self.deferred.pop(at.id, scope)
        if not waiting:
            return self._append(at, drafts, merges, 0, blobs, held)
        ahead = len(waiting)
        try:
            every, more = append_drafts(waiting, drafts, blobs)
            after, events = self._append(at, every, merges, ahead, more, held)
        except BaseException:
            self.deferred.put_back(at.id, scope, waiting)
            raise
        return after, events[ahead:]

    def _append(
        self,
        at: Position,
        drafts: Sequence[Draft],
        merges: tuple[Digest, ...],
        merging: int,
        blobs: Blobs | None,
        held: Sequence[Event],
    ) -> tuple[Position, list[Event]]:
        if not self.requires_verdicts and k.GateRequired in [type(draft.body) for draft in drafts]:
            self.requires_verdicts = True
        found: list[Event] = []
        cursor = self.recording.cursor_at(at)
        if cursor is not None:
            found = self._recorded_events(cursor, at, drafts, blobs)
            if len(found) == len(drafts):
                return cursor.at, found
            drafts, at = unwritten_drafts(drafts, found), cursor.at
            merging -= len(found)
        cursor = self.recording.cursors.get(at.id) if at.run == self.run else None
        if cursor is not None and at.seq == cursor.at.seq:  # after the events of others
            at = cursor.tip
            self._end_recording(at)
        if self.on_write is not None:
            self.on_write("before", drafts)
        fences = self.fence.fences_in(at.store)
        try:
            after, events = self.writer.write(
                at,
                drafts,
                merges=merges,
                merging=merging,
                blobs=blobs,
                behalf=self.behalf,
                held=held,
                fences=fences,
            )
        except StaleEpoch as error:
            post_late(self.writer, at, [*map(_draft_of, held), *drafts])
            raise self.fence.halt_lost(error) from None
        epoch = self.fence.epoch
        if at.id == self.root and epoch is not None and (turns := turns_in(events)):
            self.fence.hold(epoch + turns)
            self.has_ended = True  # a resume is written by another writer
        written = [*held, *events] if held else events
        self.tips.move(after, written)
        if self.on_write is not None:
            self.on_write("after", drafts)
        if self.on_append is not None:
            self.on_append(written)
        return after, [*found, *events] if found else events

    def begin(
        self,
        address: str,
        drafts: Sequence[Draft],
        *,
        fork: Place | None = None,
        blobs: Blobs | None = None,
        scope: str,
    ) -> tuple[Position, list[Event]]:
        """Begin a log of this run, or find it in the recording."""
        self.fence.check_going()
        store, first = self.writer.store(address), drafts[0].body
        log = self.branches.new_id(first, fork, scope)
        in_source = None
        if self.recording.branched:
            in_source = self.branches.id_in_source(store, self.run, first, fork)
        begun = self.recording.begun(self.fence, store, log, drafts, scope, in_source)
        if begun is None:
            if self.on_write is not None:
                self.on_write("before", drafts)
            fences = self.fence.fences_in(address)
            try:
                begun = self.writer.start(
                    store,
                    log,
                    drafts,
                    fork=fork,
                    blobs=blobs,
                    run=scope,
                    behalf=self.behalf,
                    fences=fences,
                )
            except StaleEpoch as error:
                raise self.fence.halt_lost(error) from None
            if self.on_write is not None:
                self.on_write("after", drafts)
            if self.on_append is not None:
                self.on_append(begun[1])
        self.tips.move(begun[0])
        if fork is not None:
            self.branches.add(begun[0].id, fork.log)
        return begun

    def post(
        self,
        address: str,
        log: LogId,
        drafts: Sequence[Draft],
        *,
        blobs: Blobs | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        run: str | None = None,
    ) -> list[Event]:
        """Append to the inbox of a log."""
        self.fence.check_going()
        if not self.recording.is_live and run is not None:
            drafts = [draft for draft in drafts if not self._was_posted(address, log, draft, run)]
            if not drafts:
                return []
        fences = self.fence.fences_in(address)
        try:
            return self.writer.post(
                address, log, drafts, blobs=blobs, check=check, run=run, fences=fences
            )
        except StaleEpoch as error:
            raise self.fence.halt_lost(error) from None

    def _was_posted(self, address: str, log: LogId, draft: Draft, run: str) -> bool:
        """True if code of the run posted this before the run was resumed: it is in the inbox."""
        if self.recording.strict:
            return True
        body = without_secrets(draft.body)
        key = log, type(body).__name__, VOCABULARY.encode(body)
        with self._lock:
            self._posted[key] += 1
            times = self._posted[key]
        news = inbox_events(self.writer.store(address), log)
        return sum(event.header.run == run and event.body == body for event in news) >= times

    def defer(self, log: LogId, scope: str, draft: Draft, blobs: Blobs | None = None) -> None:
        """Write this with the next append to the log."""
        self.deferred.add(log, scope, draft, blobs)

    def defer_live(self, draft: Draft) -> None:
        """Write this with the next append to the run's root, unless the recording has it."""
        if self.standing(session_at(self.tip(self.root))) is Standing.LIVE:
            self.deferred.add(self.root, self.run, draft)

    def seal(self, at: Position, drafts: Sequence[Draft]) -> tuple[Position, list[Event]] | None:
        """Return the events as they would be written here; None if others have to come first."""
        is_tip = self.tips.get(at.id) == at and not self.fence.is_closed
        if not is_tip or self.deferred.count(at.id, at.run or self.run):
            return None
        return self.writer.seal(at, drafts, behalf=self.behalf)

    def now(self, session: Session) -> Micros:
        return self.writer.source(session.store).now(session.id, session.seq + 1)

    def waiting_logs(self) -> list[tuple[LogId, str]]:
        """Return the logs that deferred drafts wait for, with their scopes."""
        return [(log, scope) for log, scope in self.deferred.logs() if log in self.tips]

    # ── positions ────────────────────────────────────────────────────────────────────────────

    def tip(self, log: LogId, scope: str | None = None) -> Position:
        return msgspec.structs.replace(self.tips[log], run=scope or self.run)

    def latest(self, at: Position) -> Position:
        """Return the end of a log: for a resumed run, as it was then."""
        cursor = self.recording.cursor_at(at)
        return self.writer.latest(at) if cursor is None else _next_gap(cursor, at)

    def is_current(self, at: Position) -> bool:
        """True if the run can go on from here: the last step taken, or the end of the log."""
        cursor = self.recording.cursors.get(at.id) if at.run == self.run else None
        return at.seq >= cursor.at.seq if cursor is not None else self.writer.is_current(at)

    def catch_up(self, session: Session) -> Session:
        """Return the value to go on from: events that others wrote since the last step included."""
        cursor = self.recording.cursors.get(session.id) if session.run == self.run else None
        if cursor is None or session.seq != cursor.at.seq:
            return session
        at = _next_gap(cursor, position_of(session))
        if cursor.over and not self.recording.strict and not cursor.closed:
            self._end_recording(at)
        return next_value(session, at) if at.seq != session.seq else session

    def _end_recording(self, at: Position) -> None:
        """Write this log from here on."""
        self.recording.cursors.pop(at.id, None)
        self.tips.move(at)

    # ── the recording ────────────────────────────────────────────────────────────────────────

    def standing(self, session: Session) -> Standing:
        """Return where the step after this value stands: a deferred draft, or what follows it."""
        cursor = self.recording.cursor_at(position_of(session))
        if cursor is None:
            return Standing.LIVE
        ahead = self.deferred.count(session.id, session.run or self.run)
        if self.recording.branched and cursor.before_branch(ahead):
            return Standing.INHERITED
        return Standing.OVER if cursor.over else Standing.RECORDED

    def is_live(self, session: Session) -> bool:
        """True if what the program does next is done now, and not read from the recording.

        Deferred drafts come first, and may be all that is left of the recording.
        """
        cursor = self.recording.cursor_at(position_of(session))
        if cursor is None:
            return True
        ahead = self.deferred.count(session.id, session.run or self.run)
        return not (self.recording.strict or cursor.closed or cursor.goes_on(ahead))

    def source_runs(self, session: Session) -> tuple[str, ...]:
        """Return the runs that this one was branched off, the first one first."""
        return self.recording.before if session.run == self.run else ()

    @property
    def is_replay(self) -> bool:
        """True if nothing is done and nothing written: all there is, is the recording."""
        return self.recording.strict

    def standing_of(self, event: Event) -> Standing:
        """Return where an event of the run comes from."""
        return self.recording.standing_of(event)

    def is_reopened(self, failure: Event) -> bool:
        """True if a failure ended the run, which was resumed to try again."""
        return failure.id in self.recording.reopened

    def is_at_end(self, log: LogId) -> bool:
        """True in a replay where nothing is left in this log but the end of the run."""
        return self.recording.ends_here(log)

    def has_step_after(self, session: Session) -> bool:
        """True if an ordinary recorded step comes right after this value: nothing was delivered."""
        cursor = self.recording.cursors.get(session.id)
        if cursor is None or cursor.at.seq != session.seq:
            return False
        return not self.deferred.count(session.id, self.run) and cursor.follows(session.seq)

    def next_step(self, session: Session) -> Event | None:
        """Return the recorded step after the deferred drafts."""
        cursor = self.recording.cursor_at(position_of(session))
        ahead = self.deferred.count(session.id, session.run or self.run)
        return cursor.peek(ahead) if cursor is not None else None

    def call_event(
        self, session: Session, calls: Container[str | None]
    ) -> tuple[Session, Event] | None:
        """Consume the next recorded step, if it belongs to one of these calls."""
        cursor = self.recording.cursor_at(position_of(session))
        event = cursor.take(calls) if cursor is not None else None
        if cursor is None or event is None:
            return None
        self.tips.move(cursor.at, [event])
        return _value_after(session, cursor.at, [event]), event

    def peek_call(self, session: Session, calls: Container[str | None]) -> Event | None:
        """Return the next recorded step, if it belongs to one of these calls."""
        cursor = self.recording.cursor_at(position_of(session))
        return cursor.next_of(calls) if cursor is not None else None

    def recorded_delivery(self, session: Session) -> tuple[Session, list[Event]] | None:
        """Consume the delivery that is recorded here; None if nothing is recorded any more."""
        cursor = self.recording.cursor_at(position_of(session))
        if cursor is None:
            return None
        deferred = self.deferred.drafts(session.id, self.run)
        if deferred and cursor.delivers_after(deferred):  # written with the delivery
            self._recorded_events(cursor, position_of(session), deferred)
            self.deferred.drop(session.id, self.run, len(deferred))
        events = cursor.take_delivery()
        self.tips.move(cursor.at, events)
        for event in events[:1]:
            body = event.body
            assert isinstance(body, k.Delivered)
            if body.inbox == inbox_of(session.id):  # a run that was branched off had another inbox
                self.set_delivered(session.id, max(body.upto, self._delivered.get(session.id, 0)))
        return _value_after(session, cursor.at, events) if events else session, events[1:]

    def delivered(self, session: Session) -> int:
        """Return up to which seq the inbox of a log was delivered."""
        if session.id not in self._delivered:
            self._delivered[session.id] = delivered_seq(session)
        return self._delivered[session.id]

    def set_delivered(self, log: LogId, seq: int) -> None:
        self._delivered[log] = seq

    def source_of(self, session: Session) -> tuple[str, LogId]:
        """Return the run and the log that calls are named after.

        While the recording of another run is followed, calls have the names they had there.
        """
        cursor = None
        if self.recording.branched:
            cursor = self.recording.cursor_at(position_of(session))
        step = cursor.peek() if cursor is not None else None
        if step is not None:
            return step.header.run or self.run, step.log
        return session.run or self.run, session.id

    def has_more(self, log: LogId) -> bool:
        """True if the recording goes on in this log after the deferred drafts."""
        cursor = self.recording.cursors.get(log)
        return cursor is not None and cursor.goes_on(self.deferred.count(log, self.run))

    def went_on_without(self, log: LogId) -> bool:
        """True if the recording shows the parent of a stopped branch going on."""
        return self.recording.strict or self.has_more(self.branches.parent_of(log) or self.root)

    def was_left_behind(self, log: LogId) -> bool:
        """True if the recording of a branch ends where it was stopped, and its parent went on."""
        cursor = self.recording.cursors.get(log)
        return cursor is not None and cursor.stopped and self.went_on_without(log)

    def check_may_act(self, session: Session) -> None:
        """Raise in a replay: what is not recorded is not done."""
        if self.recording.strict:
            raise self.end_of_recording(session)

    def is_tried_again(self, session: Session) -> bool:
        """True if an answer that ended the run is asked for again: now, or on record.

        On record it ended a call, or was followed by another ask.
        """
        if self.recording.is_live:
            return False
        step = self.next_step(session)
        if step is not None:
            return step.kind != k.CallFinished.__name__
        return session.head in self.recording.reopened

    def end_of_recording(self, session: Session) -> Stop:
        """Return the stop to raise where a replay comes to what is not recorded."""
        if session.id != self.root and not self.recording.finished:
            return Parked(session, "the record of this branch ends here")  # others went on
        if self.recording.open or self.recording.ends_here(session.id):
            return self.fence.halt(None)
        wanted = Differs(None, "(an effect that is not on record)")
        return self.fence.halt(divergence(position_of(session), wanted))

    def check_recording_used(self) -> None:
        """Raise if a branch has a recorded step that the program never came to."""
        left = self.recording.untaken_step()
        if left is not None:
            cursor, step = left
            error = Differs(step, "(the end of the program)")
            raise self.fence.halt(divergence(cursor.at, error))

    def _recorded_events(
        self, cursor: Cursor, at: Position, drafts: Sequence[Draft], blobs: Blobs | None = None
    ) -> list[Event]:
        """Consume as many of these drafts as are recorded."""
        if at.seq < cursor.at.seq:
            raise StaleHead(at.id, at.head, cursor.at.head, cursor.at.seq)
        recording, found = self.recording, list[Event]()
        for draft in drafts:
            try:
                event = cursor.match(draft)
            except Differs as error:
                if recording.strict and not recording.finished and cursor.ends:
                    # nothing more was done, and then a person ended the run
                    raise self.fence.halt(None) from None
                store = self.writer.store(at.store)
                raise self.fence.halt(divergence(at, error, store, blobs)) from None
            if event is None:
                if recording.strict and at.id != self.root and not recording.finished:
                    raise Parked(session_at(at), "the record of this branch ends here")
                if recording.strict or cursor.closed:
                    error = None if recording.open else divergence(at, Differs(None, draft))
                    raise self.fence.halt(error)
                break
            found.append(event)
        self.tips.move(cursor.at, found)
        return found


_OUTCOMES = (k.ToolReturned, k.ToolFailed)


def post_late(writer: DirectWriter, at: Position, drafts: Sequence[Draft]) -> None:
    """Post outcomes that came too late for their log to its inbox: no effect is ever lost."""
    late = [
        draft._replace(act=draft.act._replace(causes=()))
        for draft in drafts
        if isinstance(draft.body, _OUTCOMES)
    ]
    if late:
        writer.post(at.store, at.id, late, fences=())


def _draft_of(event: Event) -> Draft:
    return Draft(event.body, Act(event.actor, event.header.origin, call=event.header.call))


def _next_gap(cursor: Cursor, at: Position) -> Position:
    """Return the position right before the next step: others may have written since the last."""
    step, seq = cursor.peek(), cursor.gap()
    if cursor.over or step is None:
        return msgspec.structs.replace(cursor.tip, run=at.run)
    if seq <= at.seq:
        return at
    return msgspec.structs.replace(at, seq=seq, head=step.header.parents[0])


def _value_after(session: Session, at: Position, events: Sequence[Event]) -> Session:
    """Return the value after these events.

    Events of others that stand before them may have changed its life.
    """
    if events[0].seq != session.seq + 1:
        return next_value(session, at)
    return advance(session, at, *[event.kind for event in events])
