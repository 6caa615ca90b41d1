"""A session's events as a sequence: read when asked for, the whole log as seen from its place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import overload

from plait.errors import InvalidValue
from plait.event import KINDS, Body, Event
from plait.session.ports import Position, store_at
from plait.session.state import Span
from plait.session.times import When, parse_when
from plait.store import Store

Kind = str | type[Body]

_NAMES = {kind.__name__ for kind in KINDS}


class Events(Sequence[Event]):
    """`events[i].seq == i + 1`, rewound parts included.

    Slices go by position, or by time: `events["2h":"30m"]`.
    """

    def __init__(self, spot: Position) -> None:
        self._position = spot

    def __len__(self) -> int:
        return self._position.seq

    def __iter__(self) -> Iterator[Event]:
        return self._store.read(self._position.id, 1, self._position.seq)

    def __reversed__(self) -> Iterator[Event]:
        return self._store.read(self._position.id, 1, self._position.seq, reverse=True)

    def __contains__(self, event: object) -> bool:
        if not isinstance(event, Event) or not 1 <= event.seq <= len(self):
            return False
        return self[event.seq - 1].id == event.id

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        if isinstance(index, slice):
            return self._slice(index)
        place = index + 1 if index >= 0 else len(self) + index + 1
        if not 1 <= place <= len(self):
            raise IndexError(f"there are {len(self)} events, so no event at {index}")
        return next(self._store.read(self._position.id, place, place))

    def where(
        self,
        kind: Kind | Collection[Kind] | None = None,
        *,
        actor: str | None = None,
        origin: str | None = None,
        run: str | None = None,
        call: str | None = None,
        since: When | None = None,
        until: When | None = None,
    ) -> list[Event]:
        """Return the events of these kinds, by this actor, within this time.

        A span such as "10m" counts back from the last event.
        """
        first, last = self._moments(since, until)
        named = {"actor": actor, "origin": origin, "run": run, "call": call}
        wanted = [(name, value) for name, value in named.items() if value is not None]
        return [
            event
            for event in self._store.read(
                self._position.id, 1, self._position.seq, kinds=kind_names(kind)
            )
            if first <= event.header.time <= last
            and all(getattr(event.header, name) == value for name, value in wanted)
        ]

    def _slice(self, index: slice) -> list[Event]:
        if any(not isinstance(end, (int, type(None))) for end in (index.start, index.stop)):
            if index.step is not None:
                raise InvalidValue("slice", "a slice by time has no step", "leave it out")
            return self.where(since=index.start, until=index.stop)
        start, stop, step = index.indices(len(self))
        places = range(start, stop, step)
        if not places:
            return []
        first, last = min(places[0], places[-1]) + 1, max(places[0], places[-1]) + 1
        found = list(self._store.read(self._position.id, first, last))
        return found[::step] if step > 0 else found[::-1][::-step]

    def _moments(self, since: When | None, until: When | None) -> tuple[int, int]:
        last = self[-1].header.time if since is not None or until is not None else 0
        first = parse_when(since, last, "since") if since is not None else 0
        return first, parse_when(until, last, "until") if until is not None else 2**63

    @property
    def _store(self) -> Store:
        return store_at(self._position.store)

    def __repr__(self) -> str:
        return f"<{len(self)} events of {self._position.id[-12:-4]}@{self._position.seq}>"


def kind_names(kind: Kind | Collection[Kind] | None) -> set[str] | None:
    """Return the names of kinds. An unknown name raises: it is a typo."""
    if kind is None:
        return None
    names = {
        each.__name__ if isinstance(each, type) else each
        for each in ([kind] if isinstance(kind, (str, type)) else kind)
    }
    for name in names:
        if name not in _NAMES:
            near = get_close_matches(str(name), sorted(_NAMES), 3, 0.4)
            raise InvalidValue(
                "kind",
                f"there is no kind of event {name!r}",
                f"perhaps {' or '.join(near)} is meant" if near else "see plait.event.kinds",
            )
    return names


def path_events(
    store: Store,
    path: Sequence[Span],
    kinds: Collection[str] | None = None,
    *,
    reverse: bool = False,
) -> Iterator[tuple[Span, Event]]:
    """Yield the events of a path in its order, each with its span."""
    stretches = path_stretches(store, path)
    for stretch in reversed(stretches) if reverse else stretches:
        first, end = stretch[0].first, stretch[-1]
        events = store.read(end.log, first, end.last, kinds=kinds, reverse=reverse)
        if len(stretch) == 1:  # the log of an event is known: its header need not be decoded
            yield from ((end, event) for event in events)
            continue
        spans = {span.log: span for span in stretch}
        yield from ((spans.get(event.log, end), event) for event in events)


def path_stretches(store: Store, path: Sequence[Span]) -> list[list[Span]]:
    """Return the spans of a path by stretches, each of which can be read at once: the events of a
    fork after those of the logs that it was forked from.
    """
    stretches: list[list[Span]] = []
    for span in reversed(path):
        stretch = stretches[-1] if stretches else []
        if stretch and span.last + 1 == stretch[0].first and _is_above(store, span, stretch):
            stretch.insert(0, span)
        else:
            stretches.append([span])
    return stretches[::-1]


def _is_above(store: Store, span: Span, stretch: Sequence[Span]) -> bool:
    """True if a log that is read up to the end of a stretch has this very span before it."""
    if span.log in {each.log for each in stretch}:
        return False
    above = {each.log: each for each in store.lineage(stretch[-1].log)}.get(span.log)
    return above is not None and above.first <= span.first and span.last <= above.last
