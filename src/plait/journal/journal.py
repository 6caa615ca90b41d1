"""The journal of a run: every append, and every question about what is recorded.

A draft that a run appends is first looked for in the recording, and written only beyond it. The
rooms above see the events either way: they do not know if a run is live, resumed or replayed.

A tool that is handed the session writes in a scope of its own, the run's id and the call's. The
recording passes over such events, since a tool that is run again makes them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import msgspec

from plait.errors import StaleEpoch
from plait.event import Event
from plait.event import kinds as k
from plait.event.codec import VOCABULARY
from plait.event.hidden import without_secrets
from plait.event.kinds import Place
from plait.ids import Digest, LogId, Micros, inbox_of
from plait.journal.brought_heads import AskedHeads, BroughtHeads
from plait.journal.cursor import Cursor
from plait.journal.deferred import append_drafts
from plait.journal.recorded_steps import RecordedSteps, tell_steps
from plait.journal.recording import unwritten_drafts
from plait.journal.standing import Standing
from plait.journal.writer import DirectWriter
from plait.session import Session
from plait.session.inbox import inbox_events
from plait.session.ports import Act, Draft, Position
from plait.session.session import session_at
from plait.session.value import next_value, position_of
from plait.store import Log
from plait.store.epochs import epochs_raised

Blobs = Mapping[Digest, bytes]
OnAppend = Callable[[Sequence[Event]], object]


class Journal(RecordedSteps):
    """The one writer of a run's logs, and the reader of what the run recorded before."""

    def __init__(
        self, run: str, root: LogId, writer: DirectWriter, *, behalf: str, home: str
    ) -> None:
        super().__init__(run, root, writer, home=home)
        self.behalf = behalf
        self.has_ended = False  # the end of the run was written in this process
        # called before and after each write: a simulation may end the process there
        self.on_write: Callable[[str, Sequence[Draft]], None] | None = None
        self.on_append: OnAppend | None = None
        self._lock = Lock()
        self._posted: Counter[tuple[LogId, str, bytes]] = Counter()
        self._brought = BroughtHeads(lambda: writer.last_post)

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
        waiting = self.deferred.peek(at.id, scope)
        if not waiting:
            return self._append(at, drafts, merges, 0, blobs, held)
        try:  # an interrupt at any moment gives them back
            waiting = self.deferred.pop(at.id, scope)
            ahead = len(waiting)
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
        if self._has_recording:
            cursor = self._recording.cursor_at(at)
            if cursor is not None:
                found = self._take_recorded(cursor, at, drafts, blobs)
                if len(found) == len(drafts):
                    return cursor.at, found
                drafts, at = unwritten_drafts(drafts, found), cursor.at
                merging -= len(found)
            cursor = self._recording.cursors.get(at.id) if at.run == self.run else None
            if cursor is not None and at.seq == cursor.at.seq:  # after the events of others
                at = cursor.tip
                self._end_recording(at)
        if self.on_write is not None:
            self.on_write("before", drafts)
        fences = self.fence.fences_in(at.store)
        asked = self.ask_heads(drafts, at.id)
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
                question=asked.question,
            )
        except StaleEpoch as error:
            post_late(self.writer, at, [*map(_draft_of, held), *drafts])
            raise self.fence.halt_lost(error) from None
        epoch = self.fence.epoch
        if at.id == self.root and epoch is not None and (raised := epochs_raised(events)):
            self.fence.hold(epoch + raised)
            self.has_ended = True  # a resume is written by another writer
        written = [*held, *events] if held else events
        self.tips.move(after, written)
        self.keep_heads(after, asked)
        if self.on_write is not None:
            self.on_write("after", drafts)
        if self.on_append is not None:
            self.on_append(written)
        return after, [*found, *events] if found else events

    def heads(self, session: Session, *, brought: bool) -> Mapping[LogId, Log]:
        """Return how the log of a value stands, and the logs that its next effect depends on.

        `brought`: as the append before the value found them, if that was just now.
        """
        at, logs = position_of(session), self._watched_logs(session.id)
        found = self._brought.take(at, logs) if brought else None
        return self.writer.store(at.store).heads(logs) if found is None else found

    def ask_heads(self, drafts: Sequence[Draft], log: LogId) -> AskedHeads:
        """Return the question that goes with an append of these drafts to a log of the run."""
        return self._brought.ask(drafts, self._watched_logs(log))

    def keep_heads(self, after: Position, asked: AskedHeads) -> None:
        """Keep its answer for the safe point right after the append."""
        self._brought.keep(after, asked)

    def _watched_logs(self, log: LogId) -> list[LogId]:
        logs = [log, inbox_of(log), inbox_of(self.root), *[each.log for each in self.fence.fences]]
        return list(dict.fromkeys(logs))

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
        if self._recording.branched:
            in_source = self.branches.id_in_source(store, self.run, first, fork)
        found = self._recording.find_branch(self.fence, store, log, drafts, scope, in_source)
        if found is None:
            if self.on_write is not None:
                self.on_write("before", drafts)
            fences = self.fence.fences_in(address)
            try:
                found = self.writer.start(
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
                self.on_append(found[1])
        else:
            tell_steps(self.on_step, found[1])
        self.tips.move(found[0])
        if fork is not None:
            self.branches.add(found[0].id, fork.log)
        return found

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
        if self._has_recording and run is not None:
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
        if self._recording.strict:
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
        self._tell_deferred(log, scope, draft)
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
        """Return the end of a log, as this process knows it."""
        return msgspec.structs.replace(self.tips[log], run=scope or self.run)

    def latest(self, at: Position) -> Position:
        """Return the end of a log: for a resumed run, as it was then."""
        cursor = self._recording.cursor_at(at)
        return self.writer.latest(at) if cursor is None else _next_gap(cursor, at)

    def is_current(self, at: Position) -> bool:
        """True if the run can go on from here: the last step taken, or the end of the log."""
        cursor = self._recording.cursors.get(at.id) if at.run == self.run else None
        return at.seq >= cursor.at.seq if cursor is not None else self.writer.is_current(at)

    def catch_up(self, session: Session) -> Session:
        """Return the value to go on from: events that others wrote since the last step included."""
        cursor = self._recording.cursors.get(session.id) if session.run == self.run else None
        if cursor is None or session.seq != cursor.at.seq:
            return session
        at = _next_gap(cursor, position_of(session))
        if cursor.is_over and not self._recording.strict and not cursor.closed:
            self._end_recording(at)
        return next_value(session, at) if at.seq != session.seq else session

    def _end_recording(self, at: Position) -> None:
        """Write this log from here on."""
        self._recording.cursors.pop(at.id, None)
        self.tips.move(at)


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
    if cursor.is_over or step is None:
        return msgspec.structs.replace(cursor.tip, run=at.run)
    if seq <= at.seq:
        return at
    return msgspec.structs.replace(at, seq=seq, head=step.header.parents[0])
