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
from plait.ids import Digest, LogId, derive_id, inbox_of
from plait.store import Row, Rows, Store, Table

_ALL = 2**31
_ENDS = (RunFinished, RunFailed, RunCancelled)
_END_KINDS = frozenset(kind.__name__ for kind in _ENDS)


class TurnRows:
    """A `Projection`: one row per turn, under the id of its run.

    `queued` is the inbox while the turn waits for a run, `taken` is 1 once its run was started, and
    `end` is the seq of the event that ended the run. A turn whose run was let go of waits again.
    """

    name = "turn"
    version = 2
    kinds = frozenset(kind.__name__ for kind in (TurnPosted, RunStarted, RunResumed, *_ENDS))
    tables = (
        Table(
            "turn",
            key=("run",),
            columns={
                "run": "text",
                "number": "integer",
                "id": "text",
                "inbox": "text",
                "log": "text",
                "client": "text",
                "queued": "text",
                "taken": "integer",
                "end": "integer",
            },
            order="number",
            indexes=(("queued", "number"),),
        ),
        Table(
            "key", key=("inbox", "key"), columns={"inbox": "text", "key": "text", "turn": "text"}
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        if event.kind == TurnPosted.__name__:
            self._add_turn(rows, number, event)
            return
        row = rows.get("turn", event.header.run) if event.header.run is not None else None
        if row is None:  # a run that answers no turn
            return
        queued: str | None = None
        end: int | None = None
        if event.kind == RunCancelled.__name__:
            body = event.body
            assert isinstance(body, RunCancelled)
            if not body.by:  # its process let go of it
                queued = str(row["inbox"])
        if event.kind in _END_KINDS and queued is None:
            end = event.seq
        rows.put("turn", {**row, "queued": queued, "taken": 1, "end": end})

    def _add_turn(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        assert isinstance(body, TurnPosted)
        row: Row = {
            "run": run_of_turn(event.id),
            "number": number,
            "id": event.id,
            "inbox": event.log,
            "log": body.log,
            "client": body.client,
            "queued": event.log,
            "taken": 0,
            "end": None,
        }
        rows.put("turn", row)
        if body.key:
            rows.put("key", {"inbox": event.log, "key": body.key, "turn": event.id})


def run_of_turn(turn: Digest) -> str:
    """Return the id of the run that answers a turn. There is one, so it follows from the turn."""
    return str(derive_id("plait/run/1", turn))


def turn_row(store: Store, turn: Digest) -> Row:
    """Return the row of a turn."""
    return store.rows(TurnRows.name, "turn", {"run": run_of_turn(turn)}, limit=1)[0]


def turn_with_key(store: Store, log: LogId, key: str) -> Digest | None:
    """Return the turn of a session that was posted under this key. None: there is none."""
    wanted = {"inbox": inbox_of(log), "key": key}
    rows = store.rows(TurnRows.name, "key", wanted, limit=1)
    return Digest(str(rows[0]["turn"])) if rows else None


def queued_turns(store: Store, log: LogId, limit: int) -> Sequence[Row]:
    """Return the turns of a session that wait for a run, in their order."""
    return store.rows(TurnRows.name, "turn", {"queued": inbox_of(log)}, order="number", limit=limit)


def all_queued_turns(store: Store) -> Sequence[Row]:
    """Return the turns of all sessions that wait for a run, those of each in their order."""
    found = store.rows(TurnRows.name, "turn", order="queued", before="", limit=_ALL)
    return sorted(found, key=lambda row: int(str(row["number"])))
