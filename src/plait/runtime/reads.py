"""The places that a program has read, by the call that read them.

A program is free to read one session and to write that content to another: as a message, as an
argument, as the result of a tool. No path leads from there to here, so the runtime remembers the
places that a call has read. An event that the call writes elsewhere names as causes those places
that bring origins which the session does not have yet. Origins follow causes
(`session.lineage.origins`), so that a policy that asks about them asks.

A read counts for the call that made it and for those below it, which it may have handed arguments.
Reads of a workflow do not count for its caller: the caller gets a session back, and has to read it
to know more. Reads of a tool's code count for the result of the tool. The text of an error may hold
anything: all that a call which raised had read and written counts for its caller
(`run.note_raised`).
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

doing: ContextVar[Calls] = ContextVar("plait_doing", default=())  # the calls whose code this is
# Outside of a run, in the code of a tool: the session that the tool was handed, and its act there.
tool_act: ContextVar[tuple[LogId, Act] | None] = ContextVar("plait_tool_act", default=None)


class ReadSources(NamedTuple):
    """The reads that something about to be written may come from."""

    causes: tuple[Digest, ...] = ()
    origin: str = ""  # of content in another store, where no cause can point to; "": there is none


NOTHING_READ = ReadSources()


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

    def note(self, calls: Calls, position: Position, *, whole: bool = False) -> None:
        """Note that a call was handed content of this value; `whole`: also of rewound events."""
        places = self.places.setdefault(calls, {}).setdefault(position.id, [])
        left = [rewind.left for rewind in self._rewinds_of(position)] if whole else []
        for each in (*left, position):
            self._keep(places, each)

    def hand_up(self, calls: Calls, caller: Calls) -> None:
        """Count the reads of a call and those below it for its caller, too: their error, which the
        caller gets, may hold any of that content.
        """
        for reader, logs in list(self.places.items()):
            if reader != caller and reader[: len(calls)] == calls:
                for position in [position for places in list(logs.values()) for position in places]:
                    self.note(caller, position)

    def _keep(self, places: list[Position], position: Position) -> None:
        """Keep the last place that was read of each path of a log: an earlier one
        has nothing else.
        """
        gone = self._rewound_by(position) if places and position not in places else ()
        for at, other in enumerate(places):
            if other == position or self._rewound_by(other) == gone:
                places[at] = max(other, position, key=lambda each: each.seq)
                return
        places.append(position)

    def sources(
        self, calls: Calls, store: str, position: Position | None, *, below: bool = False
    ) -> ReadSources:
        """Return the causes to name in an event that a call writes at a position; None: in a new
        session.

        `below`: only the reads of the call and those below it, for the result of a tool.
        """
        if not self.places:
            return NOTHING_READ
        foreign = list(self._foreign_origins(calls, position, below))
        if not foreign:
            return NOTHING_READ
        known = set(session_at(position).lineage.origins) if position is not None else set[str]()
        causes, origin = list[Digest](), ""
        for place, origins in foreign:
            news = origins - known
            if news and place.store == store:
                causes.append(place.head)
            elif news:
                origin = origin or min(news)
            known |= origins
        return ReadSources(tuple(causes), origin)

    def _foreign_origins(
        self, calls: Calls, position: Position | None, below: bool
    ) -> Iterator[tuple[Position, frozenset[str]]]:
        """Yield the places read that are not on the path of `position`, with their origins."""
        for reader, logs in list(self.places.items()):
            size = len(calls) if below else len(reader)
            if reader[:size] != calls[:size]:
                continue
            for place in [place for places in list(logs.values()) for place in places]:
                if place.head in self._clean or (
                    position is not None and self._is_before(place, position)
                ):
                    continue
                origins = session_at(place).lineage.origins - ORDINARY
                if origins:
                    yield place, origins
                else:
                    self._clean.add(place.head)

    def _rewinds_of(self, position: Position) -> tuple[Rewind, ...]:
        """Return the rewinds of its log, as far as the log was read."""
        upto, rewinds = self._rewinds.get(position.id, (0, ()))
        if upto < position.seq:
            news: list[Rewind] = []
            for event in store_at(position.store).read(
                position.id, upto + 1, position.seq, kinds=_REWINDS
            ):
                body = event.body
                assert isinstance(body, Rewound)
                left = Position(
                    position.store,
                    position.id,
                    event.seq - 1,
                    event.header.parents[0],
                    position.run,
                )
                news.append(Rewind(body.to, event.seq, left))
            rewinds = (*rewinds, *news)
            self._rewinds[position.id] = position.seq, rewinds
        return rewinds

    def _rewound_by(self, position: Position) -> tuple[int, ...]:
        """Return the rewinds that took a place off the path: the same for all places of a path."""
        return tuple(
            [each.at for each in self._rewinds_of(position) if each.to < position.seq < each.at]
        )

    def _is_before(self, place: Position, position: Position) -> bool:
        """Return True if a place is on the path of a position in the same log."""
        if place.id != position.id or place.seq > position.seq:
            return False
        self._rewinds_of(position)
        return not any(at <= position.seq for at in self._rewound_by(place))
