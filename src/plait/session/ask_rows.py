"""Rows about asks that wait, found by the log that waits, by its inbox and by its run; and rows
about runs.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plait.event import Event
from plait.event.kinds import (
    CancelRequested,
    ChangeAccepted,
    RunBranched,
    RunCancelled,
    RunFailed,
    RunResumed,
    RunStarted,
    SessionArrived,
    SessionMoved,
    Signalled,
    ValidationRecorded,
    VerdictHeard,
)
from plait.ids import Digest, Micros, inbox_of
from plait.session.ask_words import WORD_TABLE, ids_in, keep_word, with_id, without_id, words_after
from plait.session.asks import (
    ASKS,
    ENDS,
    LIFE_OF_ASKS,
    RUN_ENDS,
    SETTLES,
    ask_of,
    ends_wait,
    is_abandoned,
    is_about,
    is_answer,
)
from plait.session.life import (
    RUN_STATUS,
    is_word_to_branch,
)
from plait.session.run_rows import INBOX, RUN_TABLE, new_run_row
from plait.session.views import Waiting
from plait.session.work_rows import WORK_KINDS, WORK_TABLES, NotedRows, fold_work
from plait.store import Row, Rows, Store, Table

_MOVES = frozenset(kind.__name__ for kind in (SessionMoved, SessionArrived))
_STARTS = frozenset(kind.__name__ for kind in (RunStarted, RunBranched, RunResumed))
_encode = msgspec.json.Encoder(order="deterministic").encode
_SHOWN_MAX = 8192  # bytes kept in a row; a longer text is read from its event
_RUN_ENDED, _AWAY = 1, 2  # why an ask is over: its run has ended, or its session has moved


class InboxRows:
    """A `Projection`: one row per open ask, found by the log that waits, by its inbox and by its
    run; one row per run; and the rows of submitted runs (`work_rows.py`).

    `answered` is set once a valid answer stands in the inbox, `woken` once the session could go on
    for that or another reason; `until` is when it could go on by itself. Rows go away as their asks
    do: settled, or over with their run. Those of branches of a run that failed are `over` until the
    run is taken up again: the branch still waits for the same. Those of a session that moved to
    another store are `over` until it is back. A `lane` has the asks of a session, and those of
    others about it.

    The events of an inbox, of a session and of the branches of a run may be folded in any order
    between them. Their commit numbers say which was first: `word` keeps what may wake an ask that
    is folded later, and the row of a run when it ended.
    """

    name = INBOX
    version = 5
    kinds = (
        LIFE_OF_ASKS
        | _STARTS
        | WORK_KINDS
        | _MOVES
        | {Signalled.__name__, CancelRequested.__name__, ValidationRecorded.__name__}
    )
    tables = (
        Table(
            "ask",
            key=("id",),
            columns={
                "id": "text",
                "number": "integer",
                "log": "text",
                "seq": "integer",
                "kind": "text",
                "binding": "text",
                "request": "text",
                "call": "text",
                "run": "text",
                "actor": "text",
                "behalf": "text",
                "shown": "text",
                "expires": "integer",
                "until": "integer",
                "since": "integer",
                "answered": "integer",
                "woken": "integer",
                "over": "integer",
            },
            order="number",
            indexes=(("log", "number"), ("answered", "number"), ("woken", "number"), ("until",)),
        ),
        Table("lane", key=("inbox",), columns={"inbox": "text", "log": "text", "asks": "text"}),
        RUN_TABLE,
        Table("signal", key=("log", "name"), columns={"log": "text", "name": "text", "id": "text"}),
        WORD_TABLE,
        *WORK_TABLES,
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        noted = NotedRows(rows)
        if event.kind not in WORK_KINDS or event.kind in _MOVES:
            self._fold_asks(noted, number, event)
        fold_work(rows, noted, number, event)

    def _fold_asks(self, rows: Rows, number: int, event: Event) -> None:
        kind = event.kind
        if kind in _STARTS:
            self._start_run(rows, number, event)
        elif kind in ENDS:
            self._end_asks(rows, number, event)
        elif kind in ASKS:
            self._add_ask(rows, number, event)
        elif kind in _MOVES:
            self._move_asks(rows, event)
        elif kind == ChangeAccepted.__name__:
            self._drop_abandoned(rows, event)
        elif kind == ValidationRecorded.__name__:
            keep_word(rows, number, event)
            lane = rows.get("lane", event.log) or rows.get("lane", inbox_of(event.log))
            self._wake_asks(rows, lane, number, event)
        elif kind == VerdictHeard.__name__:
            body = event.body
            assert isinstance(body, VerdictHeard)
            if (row := rows.get("ask", body.awaited)) is not None:
                self._drop_ask(rows, row)
        else:
            self._hear(rows, number, event)

    def _hear(self, rows: Rows, number: int, event: Event) -> None:
        """Take in a word of an inbox, or one of a session's own log that settles an ask."""
        kind = event.kind
        keep_word(rows, number, event)
        if (lane := rows.get("lane", event.log)) is not None:
            self._wake_asks(rows, lane, number, event)
        elif kind in SETTLES:
            for row in self._open_asks(rows, rows.get("lane", inbox_of(event.log))):
                if is_about(_ask_from_row(row), event):
                    self._drop_ask(rows, row)
        if kind == Signalled.__name__:
            self._keep_signal(rows, event)

    def _start_run(self, rows: Rows, number: int, event: Event) -> None:
        if is_word_to_branch(event):
            return
        run = event.header.run or event.id
        before = rows.get("run", run)
        if before is None:
            rows.put("run", new_run_row(run, number, event))
        elif before["status"] != "open":  # it failed, and is taken up again
            rows.put("run", {**before, "status": "open", "ended": 0})
            for row in self._open_asks(rows, before):
                rows.put("ask", {**row, "over": _over(row) & ~_RUN_ENDED})

    def _end_asks(self, rows: Rows, number: int, event: Event) -> None:
        run = (
            rows.get("run", event.header.run)
            if event.kind in RUN_ENDS and event.header.run is not None
            else None
        )
        body = event.body
        may_go_on = isinstance(body, RunFailed) or (isinstance(body, RunCancelled) and not body.by)
        if run is not None:
            closed = run["closed"] if may_go_on else number
            ended: Row = {"status": RUN_STATUS[event.kind], "ended": number, "closed": closed}
            rows.put("run", {**run, **ended})
        there = self._open_asks(rows, rows.get("lane", inbox_of(event.log)))
        for row in {str(row["id"]): row for row in (*there, *self._open_asks(rows, run))}.values():
            if row["log"] == event.log:
                self._drop_ask(rows, row)
            elif row["run"] == event.header.run and _number(row) < number and run is not None:
                # a run that ended so can be taken up again
                over = _over(row) | _RUN_ENDED
                rows.put("ask", {**row, "over": over}) if may_go_on else self._drop_ask(rows, row)

    def _move_asks(self, rows: Rows, event: Event) -> None:
        """Let the asks of a session that goes to another store be over, until it arrives."""
        is_away = event.kind == SessionMoved.__name__
        for row in self._open_asks(rows, rows.get("lane", inbox_of(event.log))):
            if row["log"] == event.log:
                rest = _over(row) & ~_AWAY
                rows.put("ask", {**row, "over": rest | _AWAY if is_away else rest})

    def _drop_abandoned(self, rows: Rows, event: Event) -> None:
        body = event.body
        assert isinstance(body, ChangeAccepted)
        for row in self._open_asks(rows, rows.get("run", body.run)):
            if row["log"] == event.log and is_abandoned(_ask_from_row(row), body):
                self._drop_ask(rows, row)

    def _add_ask(self, rows: Rows, number: int, event: Event) -> None:
        ask = ask_of(event)
        assert ask is not None
        about = ask.of or ask.log
        inbox = inbox_of(about)
        run = rows.get("run", ask.run) if ask.run is not None else None
        if run is not None and int(str(run["closed"])) > number:
            return  # its run has ended elsewhere, after it
        called = (
            ask.kind == "timer" and ask.name and rows.get("signal", inbox, ask.name) is not None
        )
        row = _ask_row(ask, number, woken=bool(called))
        if run is not None and int(str(run["ended"])) > number:
            row["over"] = _RUN_ENDED
        rows.put("ask", {**row, **words_after(rows, ask, number)})
        for log in {about, ask.log}:
            inbox = inbox_of(log)
            lane = rows.get("lane", inbox) or {"inbox": inbox, "log": log, "asks": "[]"}
            rows.put("lane", {**lane, "asks": with_id(lane["asks"], ask.event)})
        if run is not None:
            rows.put("run", {**run, "asks": with_id(run["asks"], ask.event)})

    def _wake_asks(self, rows: Rows, lane: Row | None, number: int, event: Event) -> None:
        """Mark the open asks of a session that an event of its inbox answers or wakes.

        An event that was committed before the ask does neither, signals aside: they are kept.
        """
        cancels, is_signal = (event.kind == kind.__name__ for kind in (CancelRequested, Signalled))
        for row in self._open_asks(rows, lane):
            ask = _ask_from_row(row)
            if lane is None or lane["log"] != (ask.of or ask.log):
                continue
            if (is_signal or _number(row) < number) and (cancels or ends_wait(ask, event)):
                answered = 1 if is_answer(ask, event) else row["answered"]
                rows.put("ask", {**row, "answered": answered, "woken": 1})

    def _keep_signal(self, rows: Rows, event: Event) -> None:
        """Keep a signal until it is delivered: the timer that waits for it may be set only then."""
        body, inbox = event.body, inbox_of(event.log)
        assert isinstance(body, Signalled)
        before = rows.get("signal", inbox, body.name)
        if before is not None and before["id"] in event.header.causes:
            rows.delete("signal", inbox, body.name)
        elif not event.header.causes:  # a copy names its source
            rows.put("signal", {"log": event.log, "name": body.name, "id": event.id})

    def _open_asks(self, rows: Rows, holder: Row | None) -> list[Row]:
        found = (
            [rows.get("ask", id) for id in ids_in(str(holder["asks"]))]
            if holder is not None
            else []
        )
        return [row for row in found if row is not None]

    def _drop_ask(self, rows: Rows, row: Row) -> None:
        rows.delete("ask", row["id"])
        ask = _ask_from_row(row)
        for log in {ask.of or ask.log, ask.log}:
            if (lane := rows.get("lane", inbox_of(log))) is not None:
                left = without_id(lane["asks"], row["id"])
                rows.put("lane", {**lane, "asks": left}) if left != "[]" else rows.delete(
                    "lane", lane["inbox"]
                )
        run = rows.get("run", row["run"]) if row["run"] is not None else None
        if run is not None:
            rows.put("run", {**run, "asks": without_id(run["asks"], row["id"])})


def _over(row: Row) -> int:
    return int(str(row["over"]))


def _number(row: Row) -> int:
    return int(str(row["number"]))


def _ask_row(ask: Waiting, number: int, *, woken: bool) -> Row:
    shown = {
        "approval": ask.shown,
        "question": {"question": ask.question, "choices": ask.choices},
        "unknown": {"why": ask.why, "returns": ask.returns},
        "timer": {"name": ask.name},
        "verdict": {
            "name": ask.name,
            "by": ask.by,
            "why": ask.why,
            "of": ask.of,
            "heard": ask.heard,
        },
    }
    text = _encode(shown[ask.kind]).decode()
    return {
        "id": ask.event,
        "number": number,
        "log": ask.log,
        "seq": ask.seq,
        "kind": ask.kind,
        "binding": ask.binding,
        "request": ask.request,
        "call": ask.call,
        "run": ask.run,
        "actor": ask.actor,
        "behalf": ask.behalf,
        "shown": text if len(text) <= _SHOWN_MAX or ask.kind in ("timer", "verdict") else None,
        "expires": _row_time(ask.expires),
        # it also goes on by itself when no answer comes in time
        "until": _row_time(ask.until if ask.until is not None else ask.expires),
        "since": ask.since,
        "answered": 0,
        "woken": int(woken),
        "over": 0,
    }


def _row_time(time: Micros | None) -> Micros | None:
    """Return a time as a row can hold it: a later one is as good as never."""
    return None if time is None else max(-(2**63), min(time, 2**63 - 1))


def _ask_from_row(row: Row) -> Waiting:
    """Return the ask of a row, without its shown text if that is long: the rules do not need it."""
    fields: dict[str, Any] = {
        name: row[name]
        for name in ("log", "seq", "since", "actor", "behalf", "run", "call", "binding", "request")
    }
    kind, more = (
        str(row["kind"]),
        msgspec.json.decode(str(row["shown"]) if row["shown"] is not None else "{}"),
    )
    if kind == "approval":
        fields |= {"shown": more, "expires": row["expires"]}
    else:
        fields |= more
    if kind == "timer":
        fields["until"] = row["until"]
    return msgspec.convert({"kind": kind, "event": row["id"], **fields}, Waiting)


def waiting_of(store: Store, row: Row) -> Waiting:
    """Return the whole ask of a row."""
    ask = (
        _ask_from_row(row)
        if row["shown"] is not None
        else ask_of(store.event(Digest(str(row["id"]))))
    )
    assert ask is not None
    return ask
