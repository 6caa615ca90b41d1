"""The history of a family for a file: steps in full, tracks, links between events, and events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from plait.errors import PlaitError
from plait.event import Event
from plait.ids import Digest
from plait.outline.details import step_details
from plait.outline.outlines import Outlines
from plait.outline.shapes import FamilyShape, StepDetail, TrackShape
from plait.outline.track import track_shape
from plait.server.reading import event_shape
from plait.session.event_text import event_text
from plait.session.provenance import back_links
from plait.session.trace import TraceWalk, event_details
from plait.store import Store
from plait.view.chunks import Chunks

STEPS = 500  # in a piece
EVENTS = 2000
TRACK = 2000  # events of a piece of a track: each repeats a state
FOREIGN_MAX = 5000  # events of other logs
SAYS_MAX = 160  # characters of an event's line
NANO = 10**9
OWN_LOG = -1  # in a link: the log of the event that it belongs to


class FamilyHistory:
    """Writes the history of a family into pieces. A log is named by its index in the family."""

    def __init__(self, outlines: Outlines, family: FamilyShape, chunks: Chunks) -> None:
        self._outlines, self._family, self._chunks = outlines, family, chunks
        self._store: Store = outlines.store
        self._logs = {branch.log: at for at, branch in enumerate(family.branches)}
        self._places: dict[Digest, tuple[int, int]] = {}
        # events of other logs that causes lead to: of inboxes, and of sessions that remembered
        self._foreign: dict[tuple[int, int], Event] = {}

    def add_steps(self) -> Iterator[StepDetail]:
        """Add the steps of all logs, and yield each."""
        for at, branch in enumerate(self._family.branches):
            for first in range(0, branch.step_count, STEPS):
                indexes = range(first, min(first + STEPS, branch.step_count))
                details = step_details(self._outlines, branch.log, indexes)
                rows = [_step_row(detail) for detail in details]
                self._chunks.add(f"steps/{at}/{first // STEPS}", rows)
                yield from details

    def add_tracks(self) -> None:
        for at, branch in enumerate(self._family.branches):
            first = max(branch.place, 1)
            for number, seq in enumerate(range(first, max(branch.tip, first + 1), TRACK)):
                shape = track_shape(self._store, branch.log, min(seq + 1, branch.tip), size=TRACK)
                self._chunks.add(f"track/{at}/{number}", _track_row(shape))

    def add_events(self) -> None:
        """Add the line of each event with its links back, and its record."""
        walk = TraceWalk(self._store, "", 1)
        for at, branch in enumerate(self._family.branches):
            for number, first in enumerate(range(branch.place + 1, branch.tip + 1, EVENTS)):
                last = min(first + EVENTS - 1, branch.tip)
                events = list(self._store.read(branch.log, first, last))
                self._places.update({event.id: (at, event.seq) for event in events})
                lines = [self._short_line(event, at, walk) for event in events]
                self._chunks.add(f"links/{at}/{number}", {"first": first, "lines": lines})
                records = [self._record(event, before) for before, event in _pairs(events)]
                self._chunks.add(f"events/{at}/{number}", {"first": first, "events": records})
        self._add_foreign(walk)

    def _line(self, event: Event, walk: TraceWalk) -> list[Any]:
        """Return an event for traces: kind, actor, time, words, details, and its links back, each
        as the way, the log, the seq, and how a walk goes on from there.
        """
        header = event.header
        links = [
            [link.how, self._log_index(link.event), link.event.seq, int(link.is_followed)]
            for link in self._links(event, walk)
        ]
        return [
            header.kind,
            header.actor,
            header.time,
            event_text(event)[:SAYS_MAX],
            [*event_details(event)],
            links,
        ]

    def _short_line(self, event: Event, at: int, walk: TraceWalk) -> list[Any]:
        """Return the line of an event whose record is in the file, without what stands there. Links
        within its log tell how many events they go back.
        """
        *_, says, details, links = self._line(event, walk)
        seq = event.seq
        near = [
            [how, OWN_LOG, seq - to, follow] if log == at else [how, log, to, follow]
            for how, log, to, follow in links
        ]
        return [says, details, near]

    def _log_index(self, event: Event) -> int:
        """Return the index of an event's log. An event of another log is noted, for a line."""
        at = self._logs.setdefault(event.log, len(self._logs))
        if at >= len(self._family.branches):
            self._foreign[at, event.seq] = event
        return at

    def _add_foreign(self, walk: TraceWalk) -> None:
        """Add the lines of events of other logs, and of those that they lead to in turn."""
        lines, waiting = dict[str, Any](), True
        while waiting and len(lines) < FOREIGN_MAX:
            waiting = {key: each for key, each in self._foreign.items() if _name(key) not in lines}
            lines |= {_name(key): self._line(each, walk) for key, each in waiting.items()}
        branches = len(self._family.branches)
        names = [[log, walk.branch(log)] for log, at in self._logs.items() if at >= branches]
        self._chunks.add("foreign/0", {"logs": names, "lines": lines})

    def _record(self, event: Event, before: Event | None) -> dict[str, Any]:
        """Return an event as `--json` has it, without what the page knows from its place: its log
        and seq, and a parent that is the event before it. Causes are named by their places, and
        times count from the event before.
        """
        document = msgspec.to_builtins(event_shape(event))
        document["causes"] = [self._cause(cause) for cause in event.header.causes]
        known = {"session": event.log, "seq": event.seq, "state": "whole", "why": ""}
        if before is not None and event.header.parents == (before.id,):
            del document["parents"]
        if before is not None:
            document["time"] = event.time - before.time
        return {
            name: value
            for name, value in without_blanks(document).items()
            if known.get(name) != value
        }

    def _cause(self, cause: Digest) -> Any:
        """Return the place of an event that is in the file, else its id."""
        found = self._places.get(cause)
        if found is None:
            try:
                event = self._store.event(cause)
            except PlaitError:
                return cause
            found = (self._logs.get(event.log, -1), event.seq)
            self._places[cause] = found
        return list(found) if 0 <= found[0] < len(self._family.branches) else cause

    def _links(self, event: Event, walk: TraceWalk) -> list[Any]:
        try:
            return list(back_links(self._store, event, walk.placement_before))
        except PlaitError:  # an event or a body behind it is erased or damaged
            return []


def _name(place: tuple[int, int]) -> str:
    return f"{place[0]}@{place[1]}"


def without_blanks(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without values that say nothing, which the page fills in again."""
    return {
        name: value
        for name, value in document.items()
        if value is not None and value != "" and value is not False and value not in ((), [], {})
    }


def _track_row(shape: TrackShape) -> dict[str, Any]:
    """Return a track whose changes tell by how much more was spent, not how much in all."""
    document: dict[str, Any] = msgspec.to_builtins(shape)
    before = document["start"]["spent"]
    for change in document["changes"]:
        after = change.get("spent")
        if after is not None:
            change["spent"] = _more_spent(before, after)
            before = after
    return document


def _more_spent(before: dict[str, Any], after: dict[str, Any]) -> Any:
    """Return the differences of amounts in the order of their fields, without zeros at the end.
    Dollars are counted in billionths. Where a price is not known, the amounts stand in full.
    """
    if before["cost_usd"] is None or after["cost_usd"] is None:
        return after
    scales = {"cost_usd": NANO}
    more = [
        round(value * scales.get(name, 1)) - round(before[name] * scales.get(name, 1))
        for name, value in after.items()
    ]
    while more and not more[-1]:
        more.pop()
    return more


def _step_row(detail: StepDetail) -> dict[str, Any]:
    document = msgspec.to_builtins(detail)
    parts = ("parts", "asked_parts", "kept")
    cut = {name: [*map(without_blanks, document[name])] for name in parts}
    step = without_blanks(document["step"])
    del step["log"], step["index"]  # the page knows them from the place of the row
    if step["events"] == [*range(step["first"], step["seq"] + 1)]:
        del step["events"]
    return without_blanks({**document, **cut, "step": step})


def _pairs(events: list[Event]) -> Iterator[tuple[Event | None, Event]]:
    """Yield each event, with the one before it."""
    return zip([None, *events], events, strict=False)
