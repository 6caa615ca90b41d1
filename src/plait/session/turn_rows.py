"""Rows about turns: messages that wait in inboxes for a run of their own, and the runs they got."""

from __future__ import annotations

from collections.abc import Sequence

from plait.errors import NotSettled, UnknownRows
from plait.errors.base import brief
from plait.event import Event
from plait.event.kinds import (
    Rewound,
    RunBranched,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    TurnPosted,
)
from plait.ids import Digest, LogId, derive_id, inbox_of, short
from plait.session.content import text_of, unpack
from plait.session.life import is_word_to_branch
from plait.session.ports import Condition
from plait.session.views import QueuedTurn
from plait.store import Row, Rows, Store, Table

_ALL = 2**31
_STARTS = frozenset(kind.__name__ for kind in (RunStarted, RunBranched))
_ENDS = frozenset(kind.__name__ for kind in (RunFinished, RunFailed, RunCancelled))


class TurnRows:
    """A `Projection`: one row per turn, under the id of its run.

    `queued` is the inbox while the turn waits for a run, `start` is the seq of the event that
    started the run, and `end` that of the event that ended it. A turn whose run was let go of waits
    again, until another run begins in its session, or the session is rewound to before the turn.
    There is one such turn in a session at most: the table `left` has it.
    """

    name = "turn"
    version = 4
    kinds = frozenset(
        (TurnPosted.__name__, RunResumed.__name__, Rewound.__name__, *_STARTS, *_ENDS)
    )
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
                "start": "integer",
                "end": "integer",
            },
            order="number",
            indexes=(("queued", "number"),),
        ),
        Table(
            "key", key=("inbox", "key"), columns={"inbox": "text", "key": "text", "turn": "text"}
        ),
        Table("left", key=("log",), columns={"log": "text", "run": "text"}),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        if event.kind == TurnPosted.__name__:
            self._add_turn(rows, number, event)
            return
        if event.kind in _STARTS:
            self._drop_left(rows, event, 0)
        elif event.kind == Rewound.__name__:
            body = event.body
            assert isinstance(body, Rewound)
            self._drop_left(rows, event, body.to)
            return
        row = rows.get("turn", event.header.run) if event.header.run is not None else None
        if row is None or is_word_to_branch(event):  # a run that answers no turn, or its branch
            return
        row = {**row, "queued": None, "end": event.seq if event.kind in _ENDS else None}
        if event.kind in _STARTS:
            row["start"] = event.seq
        elif event.kind == RunResumed.__name__:
            rows.delete("left", event.log)
        elif event.kind == RunCancelled.__name__:
            body = event.body
            assert isinstance(body, RunCancelled)
            if not body.by:  # its process let go of it
                row["queued"] = row["inbox"]
                rows.put("left", {"log": event.log, "run": row["run"]})
        rows.put("turn", row)

    def _drop_left(self, rows: Rows, event: Event, last: int) -> None:
        """Take the turn that was let go of out of the queue, unless it began up to this seq."""
        left = rows.get("left", event.log)
        row = rows.get("turn", left["run"]) if left is not None else None
        if row is not None and int(str(row["start"])) > last:
            rows.put("turn", {**row, "queued": None})
            rows.delete("left", event.log)

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
            "start": None,
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


def queue_condition(store: Store, log: LogId, verb: str) -> Condition:
    """Return the condition that no message in the queue of a session waits for its answer."""
    posts = frozenset({TurnPosted.__name__})
    return Condition(lambda: check_queue_is_empty(store, log, verb), posts)


def turns_in_queue(store: Store, log: LogId) -> list[QueuedTurn]:
    """Return the turns of a session that wait for a run, with their messages, in their order."""
    try:
        rows = queued_turns(store, log, _ALL)
    except UnknownRows:
        return []
    found: list[QueuedTurn] = []
    for row in rows:
        event = store.event(Digest(str(row["id"])))
        body = event.body
        assert isinstance(body, TurnPosted)
        parts = unpack(body.parts, store.get_blob)
        found.append(QueuedTurn(event, parts, body.key, store.is_locked(body.client)))
    return found


def check_queue_is_empty(store: Store, log: LogId, verb: str) -> None:
    """Raise NotSettled if a message in the queue of a session was not answered."""
    try:
        queue = queued_turns(store, log, 1)
    except UnknownRows:
        return
    for row in queue:
        body = store.event(Digest(str(row["id"]))).body
        assert isinstance(body, TurnPosted)
        what = f"a message without an answer in its queue, {brief(text_of(body.parts))}"
        step = f"have it answered: resume(session), or `plait resume {short(log)}`"
        raise NotSettled(short(log), what, verb, step)


def all_queued_turns(store: Store) -> Sequence[Row]:
    """Return the turns of all sessions that wait for a run, those of each in their order."""
    found = store.rows(TurnRows.name, "turn", order="queued", before="", limit=_ALL)
    return sorted(found, key=lambda row: int(str(row["number"])))
