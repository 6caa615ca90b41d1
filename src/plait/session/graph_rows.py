"""The index for walking forward: events by their causes, and merges by the logs they took in."""

from __future__ import annotations

from plait.event import KINDS, Event
from plait.event.kinds import Merged
from plait.store import Rows, Table

CAUSE_DIGITS = 32  # hex digits of an id that are kept in the index


class GraphRows:
    """A `Projection`: events by their causes, and merges by the logs they took in."""

    name = "graph"
    version = 1
    kinds = frozenset(kind.__name__ for kind in KINDS)
    tables = (
        Table(
            "cause",
            key=("cause", "log", "seq"),
            columns={"cause": "text", "log": "text", "seq": "integer"},
        ),
        Table(
            "merge",
            key=("log", "into", "seq"),
            columns={"log": "text", "into": "text", "seq": "integer", "place": "integer"},
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        header = event.header
        for cause in header.causes:
            rows.put("cause", {"cause": cause[:CAUSE_DIGITS], "log": header.log, "seq": header.seq})
        if header.kind == Merged.__name__:
            body = event.body
            assert isinstance(body, Merged)
            for log, place in {
                **{each.log: each.seq for each in body.branches},
                **body.covers,
            }.items():
                rows.put(
                    "merge", {"log": log, "into": header.log, "seq": header.seq, "place": place}
                )
