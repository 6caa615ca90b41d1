"""What the logs of a run have on record, and what is done otherwise in a run that
was branched off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from plait.errors import PlaitError, ReplayDiverged
from plait.event import Event
from plait.event.kinds import ForkedFrom
from plait.ids import Digest, LogId, short
from plait.runtime.budgets import wall_in
from plait.runtime.path import Cursor, Differs, ends_stopped, noted_in, steps_of, told
from plait.runtime.stops import Halted
from plait.session.ports import Draft, Position
from plait.store import Store


def diverged(
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


class Overrides(NamedTuple):
    """What agents do otherwise: all of them, or by path or name. None: nothing."""

    model: Any = None
    instruction: Any = None
    tools: Any = None

    def of(self, path: str) -> Overrides:
        return Overrides(*(_for(path, given) for given in self))


def _for(path: str, given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    by_name = cast("Mapping[str, Any]", given)
    return by_name.get(path, by_name.get(path.rpartition("/")[2]))


class Halting(Protocol):
    """Who can end the execution of a run."""

    def halt(self, error: PlaitError | None) -> Halted: ...


class Recording:
    """What the logs of a run have on record, each read once, when the program comes to it."""

    def __init__(
        self,
        run: str,
        *,
        strict: bool = False,
        open: bool = True,
        merged: Mapping[LogId, int] | None = None,
    ) -> None:
        self.run, self.strict = run, strict  # strict: there is nothing beyond the record
        self.open = open  # whether the run has not ended, on record
        self.finished = False  # whether it came to its end
        # branches of the run this one was branched off that were merged by then, with their last
        # place
        self.merged = merged or {}
        self.branched = merged is not None
        self.paths: dict[LogId, Cursor] = {}
        self.frontier: dict[LogId, int] = {}  # where each log ended
        self.before: tuple[str, ...] = ()  # the runs it was branched off
        self.restated = 0  # up to where a branch repeats the past, with other words in it
        self.reopened: frozenset[Digest] = frozenset()  # failures that ended the run: tried again
        self._walls: dict[LogId, float] = {}

    def wall_s(self, log: LogId) -> float:
        """Return how long a branch was held before."""
        return self._walls.get(log, 0.0)

    def keep(self, path: Cursor, *logs: tuple[LogId, int]) -> None:
        self.paths[path.log] = path
        self.frontier.update(dict(logs) or {path.log: path.tip.seq})

    def began(
        self,
        run: Halting,
        store: Store,
        log: LogId,
        drafts: Sequence[Draft],
        scope: str,
        was: LogId | None,
    ) -> tuple[Position, list[Event]] | None:
        """A log that was begun before; None: it was not.

        `was` is what it was called in the run this one was branched off.
        """
        if scope != self.run:
            return None
        if was is not None and was in self.merged:  # merged by then: answered whole
            return self._began(store, was, len(drafts), self.merged[was], loose=True)
        there = store.heads([log]).get(log)
        if there is None:
            if self.strict:
                raise run.halt(
                    None
                    if self.open
                    else diverged(_above(store, log, drafts[0]), Differs(None, drafts[0]))
                )
            return None
        return self._began(store, log, len(drafts), there.tip)

    def _began(
        self, store: Store, log: LogId, size: int, last: int, *, loose: bool = False
    ) -> tuple[Position, list[Event]]:
        events = list(store.read(log, store.log(log).place + 1, last))
        first, rest = events[:size], events[size:]
        at = Position(store.address, log, first[-1].seq, first[-1].id, self.run)
        tip = Position(store.address, log, last, events[-1].id, self.run)
        steps = steps_of(first[0].header.run or "", rest)
        self._walls[log] = wall_in(first[0], rest)
        stopped = ends_stopped(first[0].header.run or "", rest)
        noted = noted_in(first[0].header.run or "", rest)
        self.keep(
            Cursor(
                log,
                steps,
                at,
                tip,
                loose=len(steps) if loose else 0,
                closed=loose,
                stopped=stopped,
                noted=noted,
            )
        )
        return at, first


def _above(store: Store, log: LogId, first: Draft) -> Position:
    """Where a branch was to begin that is not on record."""
    body = first.body
    if isinstance(body, ForkedFrom):
        return Position(store.address, body.parent, body.place, Digest(""))
    return Position(store.address, log, 0, Digest(""))


def after_found(drafts: Sequence[Draft], found: Sequence[Event]) -> list[Draft]:
    """The drafts that are yet to be written, after those that were found on record."""

    def cause(of: Digest | int) -> Digest | int:
        return (
            of if not isinstance(of, int) else found[of].id if of < len(found) else of - len(found)
        )

    return [
        draft._replace(act=draft.act._replace(causes=tuple(map(cause, draft.act.causes))))
        for draft in drafts[len(found) :]
    ]
