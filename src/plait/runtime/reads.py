"""What the program has read, by the call that read it.

A program is free to read one session and to write what it read to another: as a message, as an
argument, as the result of a tool. No path leads from there to here, so the runtime remembers the
places that a call has read. What the call writes elsewhere names as causes those places that bring
origins which the session does not have yet. Origins follow causes (`session.lineage.origins`), so
that a policy that asks about them asks.

A read counts for the call that made it and for those below it, which it may have handed arguments.
What a workflow read does not count for its caller: the caller gets a session back, and has to read
it to know more. What the code of a tool read counts for the result of the tool. An error says what
it likes: what a call that raised had read and written counts for its caller (`run.note_raised`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

from plait.event.kinds import Rewound
from plait.ids import Digest, LogId
from plait.session.origins import ORDINARY
from plait.session.ports import Act, Position, store_at
from plait.session.session import session_at

Calls = tuple[str, ...]  # calls that go on, the outermost first: of workflows, and of tools

doing: ContextVar[Calls] = ContextVar("plait_doing", default=())  # which call's code this is
# Outside of a run: which session the tool was handed whose code this is, and how it acts on it.
tool_act: ContextVar[tuple[LogId, Act] | None] = ContextVar("plait_tool_act", default=None)


class Sources(NamedTuple):
    """Where something that is about to be written may come from."""

    causes: tuple[Digest, ...] = ()
    origin: str = ""  # of what stands in another store, where no cause can point to; "": of nothing


NOTHING_READ = Sources()


_REWINDS = frozenset({Rewound.__name__})


class Rewind(NamedTuple):
    to: int
    at: int  # its own place
    left: Position  # the last value of the path that it left


class Reads:
    """The places that the calls of a run have read."""

    def __init__(self) -> None:
        self.places: dict[Calls, dict[LogId, list[Position]]] = {}
        # up to which place they are known
        self._rewinds: dict[LogId, tuple[int, tuple[Rewind, ...]]] = {}
        self._clean: set[Digest] = set()  # heads of values that bring no origin but ordinary ones

    def note(self, calls: Calls, spot: Position, *, whole: bool = False) -> None:
        """A call was handed content of this value; `whole`: also of what was rewound."""
        places = self.places.setdefault(calls, {}).setdefault(spot.id, [])
        left = [rewind.left for rewind in self._cuts(spot)] if whole else []
        for each in (*left, spot):
            self._keep(places, each)

    def hand_up(self, calls: Calls, caller: Calls) -> None:
        """Count what a call and those below it read for its caller too: their error, which the
        caller gets, may say any of it.
        """
        for reader, logs in list(self.places.items()):
            if reader != caller and reader[: len(calls)] == calls:
                for spot in [spot for places in list(logs.values()) for spot in places]:
                    self.note(caller, spot)

    def _keep(self, places: list[Position], spot: Position) -> None:
        """Keep the last place that was read of each path of a log: an earlier one
        has nothing else.
        """
        gone = self._gone(spot) if places and spot not in places else ()
        for at, other in enumerate(places):
            if other == spot or self._gone(other) == gone:
                places[at] = max(other, spot, key=lambda each: each.seq)
                return
        places.append(spot)

    def sources(
        self, calls: Calls, store: str, spot: Position | None, *, below: bool = False
    ) -> Sources:
        """What to name as causes of what a call writes at a spot; None: in a new session.

        `below`: only of what the call and those below it read, for the result of a tool.
        """
        if not self.places:
            return NOTHING_READ
        tainted = list(self._tainted(calls, spot, below))
        if not tainted:
            return NOTHING_READ
        known = set(session_at(spot).lineage.origins) if spot is not None else set[str]()
        causes, origin = list[Digest](), ""
        for place, origins in tainted:
            news = origins - known
            if news and place.store == store:
                causes.append(place.head)
            elif news:
                origin = origin or min(news)
            known |= origins
        return Sources(tuple(causes), origin)

    def _tainted(
        self, calls: Calls, spot: Position | None, below: bool
    ) -> Iterator[tuple[Position, frozenset[str]]]:
        for reader, logs in list(self.places.items()):
            size = len(calls) if below else len(reader)
            if reader[:size] != calls[:size]:
                continue
            for place in [place for places in list(logs.values()) for place in places]:
                if place.head in self._clean or (spot is not None and self._is_before(place, spot)):
                    continue
                origins = session_at(place).lineage.origins - ORDINARY
                if origins:
                    yield place, origins
                else:
                    self._clean.add(place.head)

    def _cuts(self, spot: Position) -> tuple[Rewind, ...]:
        """The rewinds of its log, as far as the log was read."""
        upto, rewinds = self._rewinds.get(spot.id, (0, ()))
        if upto < spot.seq:
            news: list[Rewind] = []
            for event in store_at(spot.store).read(spot.id, upto + 1, spot.seq, kinds=_REWINDS):
                body = event.body
                assert isinstance(body, Rewound)
                left = Position(
                    spot.store, spot.id, event.seq - 1, event.header.parents[0], spot.run
                )
                news.append(Rewind(body.to, event.seq, left))
            rewinds = (*rewinds, *news)
            self._rewinds[spot.id] = spot.seq, rewinds
        return rewinds

    def _gone(self, spot: Position) -> tuple[int, ...]:
        """Which rewinds took a place off the path: the same ones for all places of one path."""
        return tuple([each.at for each in self._cuts(spot) if each.to < spot.seq < each.at])

    def _is_before(self, place: Position, spot: Position) -> bool:
        """Whether a place is on the path of a spot in the same log."""
        if place.id != spot.id or place.seq > spot.seq:
            return False
        self._cuts(spot)
        return not any(at <= spot.seq for at in self._gone(place))
