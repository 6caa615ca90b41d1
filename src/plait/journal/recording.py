"""The recording of a run that is resumed, replayed or branched off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from plait.errors import PlaitError, ReplayDiverged
from plait.event import Event
from plait.event.kinds import ForkedFrom, RunResumed
from plait.ids import Digest, LogId, short
from plait.journal.cursor import Cursor, Differs, describe_step, ends_stopped, noted_in, steps_of
from plait.journal.fence import RunFence
from plait.journal.stops import Parked
from plait.session.ports import Draft, Position
from plait.session.session import session_at
from plait.store import Store


def divergence(
    position: Position,
    error: Differs,
    store: Store | None = None,
    blobs: Mapping[Digest, bytes] | None = None,
    *,
    is_own: bool = False,
) -> ReplayDiverged:
    """Return the error that tells both sides of a difference.

    `is_own`: the step stands in this log and is the run's own, so that a change can be accepted.
    """
    at = error.recorded.seq if error.recorded is not None else position.seq + 1
    sides = describe_step(error.recorded), describe_step(error.wanted)
    return ReplayDiverged(
        short(position.id),
        at,
        *(_with_setups(*sides, store, blobs or {}) if store is not None else sides),
        log=position.id if is_own and error.recorded is not None else "",
    )


def _with_setups(
    recorded: dict[str, object],
    wanted: dict[str, object],
    store: Store,
    blobs: Mapping[Digest, bytes],
) -> tuple[dict[str, object], dict[str, object]]:
    """Return both sides with the words of their setups instead of digests, where two agents differ
    in these.
    """
    old, new = recorded.get("setup"), wanted.get("setup")
    if not isinstance(old, str) or not isinstance(new, str) or old == new:
        return recorded, wanted
    with suppress(PlaitError, msgspec.MsgspecError):
        before = msgspec.json.decode(store.get_blob(Digest(old)))
        after = msgspec.json.decode(
            blobs[Digest(new)] if new in blobs else store.get_blob(Digest(new))
        )
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        plain = (
            {key: value for key, value in side.items() if key != "setup"}
            for side in (recorded, wanted)
        )
        return tuple(
            {**side, **{name: given.get(name) for name in changed}}
            for side, given in zip(plain, (before, after), strict=True)
        )  # pyright: ignore[reportReturnType]
    return recorded, wanted


class Recording:
    """The recorded steps of a run: one cursor for each of its logs.

    A run that was begun in this process has an empty recording: all of it is live. The steps of a
    branch are read when the program comes to it.
    """

    def __init__(
        self,
        run: str,
        root: LogId,
        *,
        is_live: bool = False,
        strict: bool = False,
        open: bool = True,
        finished: bool = False,
        merged: Mapping[LogId, int] | None = None,
        before: tuple[str, ...] = (),
        restated: int = 0,
        reopened: frozenset[Digest] = frozenset(),
        cuts: Mapping[LogId, int] | None = None,
    ) -> None:
        self.run, self.root = run, root
        # the last seq of each log that is read, if not all of it is: a change is tried out
        self.cuts = cuts or {}
        self.is_trial = cuts is not None  # each thread of the program goes as far as it can
        self.is_live = is_live  # the run was begun in this process
        self.strict = strict  # a replay: nothing may be done beyond the recording
        self.open = open  # the recording does not tell of the run's end
        self.finished = finished  # the run came to its end
        # branches that were merged before this run was branched off, with their last seq
        self.merged = merged or {}
        self.branched = merged is not None
        self.cursors: dict[LogId, Cursor] = {}
        self.frontier: dict[LogId, int] = {}  # the seq at which each log ended
        self.before = before  # the runs it was branched off, the first one first
        self.restated = restated  # the seq up to which a branch repeats the past with other words
        self.reopened = reopened  # failures that ended the run: tried again
        self._walls: dict[LogId, float] = {}

    def held_s(self, log: LogId) -> float:
        """Return for how many seconds processes held a branch before."""
        return self._walls.get(log, 0.0)

    def keep(self, cursor: Cursor, *logs: tuple[LogId, int]) -> None:
        """Add the cursor of a log, and the seqs at which logs ended: its own, if none is given."""
        self.cursors[cursor.log] = cursor
        self.frontier.update(dict(logs) or {cursor.log: cursor.tip.seq})

    def cursor_at(self, position: Position) -> Cursor | None:
        """Return the cursor of a log while it has steps left.

        None for the session that a tool was handed: its scope has no recorded steps.
        """
        if not self.cursors or (position.run is not None and position.run != self.run):
            return None
        cursor = self.cursors.get(position.id)
        if cursor is not None and (self.strict or cursor.closed or not cursor.is_over):
            return cursor
        return None

    def ends_here(self, log: LogId) -> bool:
        """True in a replay where nothing is left in this log but the end of the run."""
        cursor = self.cursors.get(log)
        return cursor is not None and self.strict and cursor.has_only_end

    def untaken_step(self) -> tuple[Cursor, Event] | None:
        """Return a step in a branch that the program never came to."""
        for log, cursor in self.cursors.items():
            step = cursor.first_untaken() if log != self.root else None
            if step is not None:
                return cursor, step
        return None

    # ── branches ─────────────────────────────────────────────────────────────────────────────

    def find_branch(
        self,
        fence: RunFence,
        store: Store,
        log: LogId,
        drafts: Sequence[Draft],
        scope: str,
        in_source: LogId | None,
    ) -> tuple[Position, list[Event]] | None:
        """Return the position after these drafts, and their events, in a log that is on record.

        None if it is not. `in_source` is its id in the run that this one was branched off.
        """
        if self.is_live or scope != self.run:
            return None
        if in_source is not None and in_source in self.merged:  # merged by then: answered whole
            return self._read_branch(
                store, in_source, len(drafts), self.merged[in_source], loose=True
            )
        there = store.heads([log]).get(log)
        if there is not None:
            last = min(there.tip, self.cuts.get(log, there.tip))
            return self._read_branch(store, log, len(drafts), last)
        self._check_may_fork(fence, store, drafts[0])
        if self.strict:
            at = _fork_position(store, log, drafts[0])
            if self.is_trial:
                raise Parked(session_at(at), "the record ends here")
            raise fence.halt(None if self.open else divergence(at, Differs(None, drafts[0])))
        return None

    def _check_may_fork(self, fence: RunFence, store: Store, first: Draft) -> None:
        """Raise if a branch that is not on record is forked where the recording of its parent goes
        on: it would be on record, if the program made the same steps.
        """
        body = first.body
        cursor = self.cursors.get(body.parent) if isinstance(body, ForkedFrom) else None
        step = cursor.first_untaken() if cursor is not None else None
        if cursor is None or step is None or cursor.is_of_other_run:
            return
        is_own = not self.finished
        at = _fork_position(store, cursor.log, first)
        raise fence.halt(divergence(at, Differs(step, first), store, is_own=is_own))

    def _read_branch(
        self, store: Store, log: LogId, size: int, last: int, *, loose: bool = False
    ) -> tuple[Position, list[Event]]:
        events = list(store.read(log, store.log(log).place + 1, last))
        first, rest = events[:size], events[size:]
        run = first[0].header.run or ""
        at = Position(store.address, log, first[-1].seq, first[-1].id, self.run)
        steps = steps_of(run, rest)
        self._walls[log] = held_seconds(first[0], rest)
        self.keep(
            Cursor(
                log,
                steps,
                at,
                Position(store.address, log, last, events[-1].id, self.run),
                loose=len(steps) if loose else 0,
                closed=loose,
                stopped=ends_stopped(run, rest),
                noted=noted_in(run, rest),
            )
        )
        return at, first


def held_seconds(started: Event, events: Iterable[Event]) -> float:
    """Add up for how long a run was held: from each start to the last event before the next."""
    held, start, last = 0, started.header.time, started.header.time
    for event in events:
        if event.header.run != started.header.run:
            continue
        if event.kind == RunResumed.__name__:
            held, start = held + max(0, last - start), event.header.time
        last = event.header.time
    return (held + max(0, last - start)) / 1e6


def _fork_position(store: Store, log: LogId, first: Draft) -> Position:
    """Return the position at which a branch was to begin that is not on record."""
    body = first.body
    if isinstance(body, ForkedFrom):
        return Position(store.address, body.parent, body.place, Digest(""))
    return Position(store.address, log, 0, Digest(""))


def unwritten_drafts(drafts: Sequence[Draft], found: Sequence[Event]) -> list[Draft]:
    """Return the drafts after those that were found on record, with causes that count anew."""

    def new_cause(cause: Digest | int) -> Digest | int:
        if not isinstance(cause, int):
            return cause
        return found[cause].id if cause < len(found) else cause - len(found)

    return [
        draft._replace(act=draft.act._replace(causes=tuple(map(new_cause, draft.act.causes))))
        for draft in drafts[len(found) :]
    ]
