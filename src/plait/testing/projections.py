"""Projections for tests of stores."""

from __future__ import annotations

from plait.event import Event
from plait.event.kinds import (
    ScratchSet,
)
from plait.store import Rows, Table


class Tally:
    """A projection for tests: how often each scratch key was set in a log, and the last commit that
    did it.
    """

    name = "tally"
    version = 1
    kinds = frozenset({"ScratchSet"})
    tables = (
        Table(
            "count",
            key=("log", "key"),
            columns={"log": "text", "key": "text", "times": "integer", "number": "integer"},
            indexes=(("key", "number"), ("number",)),
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        assert isinstance(body, ScratchSet)
        if body.key == "poison":
            rows.put("count", {"log": event.log, "key": "half", "times": 0, "number": number})
            raise RuntimeError("this projection cannot take poison")
        if body.value is None:
            rows.delete("count", event.log, body.key)
            return
        row = rows.get("count", event.log, body.key) or {"times": 0}
        times = row["times"]
        assert isinstance(times, int)
        rows.put("count", {"log": event.log, "key": body.key, "times": times + 1, "number": number})


class Words:
    """A projection for tests with columns named by keywords of SQL."""

    name = "words"
    version = 1
    kinds = frozenset({"ScratchSet"})
    tables = (
        Table(
            "table",
            key=("into", "group"),
            columns={"into": "text", "group": "text", "order": "integer"},
            indexes=(("group", "order"),),
        ),
        Table("index", key=("from",), columns={"from": "text", "order": "integer"}, order="order"),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        assert isinstance(body, ScratchSet)
        assert rows.get("table", event.log, body.key) is None
        rows.put("table", {"into": event.log, "group": body.key, "order": number})
        rows.put("index", {"from": body.key, "order": number})
        rows.delete("index", "gone")
