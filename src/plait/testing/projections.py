"""Projections for tests of stores."""

from __future__ import annotations

from typing import cast

from plait.event import Event
from plait.event.kinds import (
    ScratchSet,
)
from plait.store import Row, Rows, Table


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


class Notes:
    """A projection for tests of search: scratch keys with a text of words.

    A value is the words, or columns to change; None takes the note away. A number makes so many
    short notes: all of them have the word `all`, and one in four the word `fourth`.
    """

    name = "notes"
    version = 1
    kinds = frozenset({"ScratchSet"})
    tables = (
        Table(
            "note",
            key=("key",),
            columns={
                "order": "integer",
                "key": "text",
                "owner": "text",
                "source": "text",
                "from": "text",
            },
            order="order",
            indexes=(("source", "owner", "order"), ("owner", "order")),
            words="from",
            group="owner",
        ),
        Table("plain", key=("key",), columns={"key": "text"}),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        assert isinstance(body, ScratchSet)
        # room for many notes of one event; numbers that are so large are far apart by themselves
        first, value = number << 20 if number < 2**40 else number, body.value
        if isinstance(value, int):
            for i in range(value):
                words = f"all n{i}" + " fourth" * (i % 4 == 0)
                rows.put("note", _note(f"{body.key}{i}", first + i) | {"from": words})
        elif value is None:
            rows.delete("note", body.key)
        else:
            changes = {"from": value} if isinstance(value, str) else value
            assert isinstance(changes, dict)
            old = rows.get("note", body.key) or _note(body.key, first)
            rows.put("note", old | cast("Row", changes))


def _note(key: str, order: int) -> Row:
    return {"order": order, "key": key, "owner": None, "source": None, "from": None}
