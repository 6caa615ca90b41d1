"""The recording of a run that is resumed, replayed or branched off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from plait.errors import PlaitError, ReplayDiverged
from plait.event import Event
from plait.event.kinds import ForkedFrom, RunResumed
from plait.ids import Digest, LogId, short
from plait.journal.cursor import Cursor, Differs, ends_stopped, noted_in, steps_of, told
from plait.journal.fence import RunFence
from plait.journal.standing import Standing
from plait.session.ports import Draft, Position
from plait.store import Store


def divergence(
    spot: Position,
    error: Differs,
    store: Store | None = None,
    blobs: Mapping[Digest, bytes] | None = None,
) -> ReplayDiverged:
    at = error.recorded.seq if error.recorded is not None else spot.seq + 1
    sides = told(error.recorded), told(error.wanted)
    return ReplayDiverged(
        short(spot.id),
        at,
        *(_with_setups(*sides, store, blobs or {}) if store is not None else sides),
    )


def _with_setups(
    recorded: dict[str, object],
    wanted: dict[str, object],
    store: Store,
    blobs: Mapping[Digest, bytes],
) -> tuple[dict[str, object], dict[str, object]]:
    """What two agents are asked with, where that is the difference: in words, not as digests of
    them.
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

    A run that was begun in this process has an empty recording: all of it is live. Branches are
    read when the program comes to them.
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
    ) -> None:
        self.run, self.root = run, root
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
        self.cursors[cursor.log] = cursor
        self.frontier.update(dict(logs) or {cursor.log: cursor.tip.seq})

    def cursor_at(self, position: Position) -> Cursor | None:
        """Return the cursor of a log while it has steps left; only the run's own doing has one."""
        cursor = self.own_cursor(position)
        if cursor is not None and (self.strict or cursor.closed or not cursor.over):
            return cursor
        return None

    def own_cursor(self, position: Position) -> Cursor | None:
        """Return the cursor of a log, also if it is over."""
        if not self.cursors or (position.run is not None and position.run != self.run):
            return None
        return self.cursors.get(position.id)

    def standing_of(self, event: Event) -> Standing:
        """Return where an event of the run comes from."""
        if event.seq > self.frontier.get(event.log, 0):
            return Standing.LIVE
        if event.header.run != self.run:
            return Standing.INHERITED
        is_restated = event.log == self.root and event.seq <= self.restated
        return Standing.INHERITED if is_restated else Standing.RECORDED

    def ends_here(self, log: LogId) -> bool:
        """True in a replay where nothing is left in this log but the end of the run."""
        cursor = self.cursors.get(log)
        return cursor is not None and self.strict and cursor.ends

    def untaken_step(self) -> tuple[Cursor, Event] | None:
        """Return a step in a branch that the program never came to."""
        for log, cursor in self.cursors.items():
            step = cursor.left() if log != self.root else None
            if step is not None:
                return cursor, step
        return None

    # ── branches ─────────────────────────────────────────────────────────────────────────────

    def begun(
        self,
        fence: RunFence,
        store: Store,
        log: LogId,
        drafts: Sequence[Draft],
        scope: str,
        in_source: LogId | None,
    ) -> tuple[Position, list[Event]] | None:
        """Return the position and the events of a log that is on record; None if it is not.

        `in_source` is its id in the run that this one was branched off.
        """
        if self.is_live or scope != self.run:
            return None
        if in_source is not None and in_source in self.merged:  # merged by then: answered whole
            return self._read(store, in_source, len(drafts), self.merged[in_source], loose=True)
        there = store.heads([log]).get(log)
        if there is not None:
            return self._read(store, log, len(drafts), there.tip)
        if self.strict:
            at = _above(store, log, drafts[0])
            raise fence.halt(None if self.open else divergence(at, Differs(None, drafts[0])))
        return None

    def _read(
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
    held, begun, last = 0, started.header.time, started.header.time
    for event in events:
        if event.header.run != started.header.run:
            continue
        if event.kind == RunResumed.__name__:
            held, begun = held + max(0, last - begun), event.header.time
        last = event.header.time
    return (held + max(0, last - begun)) / 1e6


def _above(store: Store, log: LogId, first: Draft) -> Position:
    """Where a branch was to begin that is not on record."""
    body = first.body
    if isinstance(body, ForkedFrom):
        return Position(store.address, body.parent, body.place, Digest(""))
    return Position(store.address, log, 0, Digest(""))


def unwritten_drafts(drafts: Sequence[Draft], found: Sequence[Event]) -> list[Draft]:
    """The drafts that are yet to be written, after those that were found on record."""

    def cause(of: Digest | int) -> Digest | int:
        return (
            of if not isinstance(of, int) else found[of].id if of < len(found) else of - len(found)
        )

    return [
        draft._replace(act=draft.act._replace(causes=tuple(map(cause, draft.act.causes))))
        for draft in drafts[len(found) :]
    ]
