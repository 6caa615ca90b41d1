"""Rows about turns: messages that wait in inboxes for a run of their own, and the runs they got."""

from __future__ import annotations

from collections.abc import Sequence

from plait.event import Event
from plait.event.kinds import (
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    TurnPosted,
)
from plait.ids import Digest, LogId, inbox_of
from plait.store import Row, Rows, Store, Table

_ENDS = (RunFinished, RunFailed, RunCancelled)


class TurnRows:
    """A `Projection`: one row per turn.

    `queued` is the inbox while the turn waits for a run, `run` the run that it got, and `end` the
    seq of the event that ended that run. A turn whose run was let go of waits again.
    """

    name = "turn"
    version = 1
    kinds = frozenset(kind.__name__ for kind in (TurnPosted, RunStarted, RunResumed, *_ENDS))
    tables = (
        Table(
            "turn",
            key=("id",),
            columns={
                "id": "text",
                "number": "integer",
                "inbox": "text",
                "seq": "integer",
                "client": "text",
                "queued": "text",
                "run": "text",
                "end": "integer",
            },
            order="number",
            indexes=(("queued", "number"),),
        ),
        Table(
            "key", key=("inbox", "key"), columns={"inbox": "text", "key": "text", "turn": "text"}
        ),
        Table("run", key=("run",), columns={"run": "text", "turn": "text"}),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        kind = event.kind
        if kind == TurnPosted.__name__:
            self._add_turn(rows, number, event)
            return
        if kind == RunStarted.__name__:
            body = event.body
            assert isinstance(body, RunStarted)
            row = rows.get("turn", body.turn) if body.turn is not None else None
            if row is not None:
                run = event.header.run
                rows.put("run", {"run": run, "turn": row["id"]})
                rows.put("turn", {**row, "queued": None, "run": run})
            return
        found = rows.get("run", event.header.run) if event.header.run is not None else None
        row = rows.get("turn", found["turn"]) if found is not None else None
        if row is None:
            return
        body = event.body
        if isinstance(body, RunResumed):
            after: Row = {**row, "queued": None, "end": None}
        elif isinstance(body, RunCancelled) and not body.by:  # its process let go of it
            after = {**row, "queued": row["inbox"], "end": None}
        else:
            after = {**row, "queued": None, "end": event.seq}
        rows.put("turn", after)

    def _add_turn(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        assert isinstance(body, TurnPosted)
        row: Row = {
            "id": event.id,
            "number": number,
            "inbox": event.log,
            "seq": event.seq,
            "client": body.client,
            "queued": event.log,
            "run": None,
            "end": None,
        }
        rows.put("turn", row)
        if body.key:
            rows.put("key", {"inbox": event.log, "key": body.key, "turn": event.id})


def turn_row(store: Store, turn: Digest) -> Row:
    """Return the row of a turn."""
    return store.rows(TurnRows.name, "turn", {"id": turn}, limit=1)[0]


def turn_with_key(store: Store, log: LogId, key: str) -> Digest | None:
    """Return the turn of a session that was posted under this key. None: there is none."""
    wanted = {"inbox": inbox_of(log), "key": key}
    rows = store.rows(TurnRows.name, "key", wanted, limit=1)
    return Digest(str(rows[0]["turn"])) if rows else None


def queued_turns(store: Store, log: LogId, limit: int) -> Sequence[Row]:
    """Return the turns of a session that wait for a run, in their order."""
    return store.rows(TurnRows.name, "turn", {"queued": inbox_of(log)}, order="number", limit=limit)
