"""Rows about sessions: for listings and their filters, and for asks that wait. Each is folded from
few events.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plait.event import Event
from plait.event.kinds import (
    CancelRequested,
    ChangeAccepted,
    ForkedFrom,
    RunBranched,
    RunCancelled,
    RunFailed,
    RunResumed,
    RunStarted,
    SessionArrived,
    SessionMoved,
    SessionOpened,
    SessionPaused,
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
    LIFE_KINDS,
    PAUSE_KINDS,
    RUN_STATUS,
    Life,
    is_word_to_branch,
    life_after_event,
)
from plait.session.run_rows import INBOX, RUN_TABLE, new_run_row, run_around
from plait.session.views import Waiting
from plait.store import Row, Rows, Scalar, Store, Table

_MOVES = frozenset(kind.__name__ for kind in (SessionMoved, SessionArrived))
_STARTS = frozenset(kind.__name__ for kind in (RunStarted, RunBranched, RunResumed))
_life = msgspec.json.Decoder(Life).decode
_tags = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class SessionRows:
    """A `Projection`: one row per session, one per tag, one per successor, and one per inbox for
    the last pause, or end of one, that was not delivered.

    `number` is the commit that opened it: the order of a listing. `status` is the one by events
    alone. `run` is the last run that began on the log; on a branch without one, the run that it was
    forked in.
    """

    name = "session"
    version = 6
    kinds = LIFE_KINDS
    tables = (
        Table(
            "session",
            key=("log",),
            columns={
                "log": "text",
                "number": "integer",
                "title": "text",
                "status": "text",
                "user": "text",
                "project": "text",
                "tags": "text",
                "label": "text",
                "parent": "text",
                "place": "integer",
                "opened": "integer",
                "run": "text",
                "life": "text",
            },
            order="number",
            indexes=(
                ("status", "number"),
                ("user", "number"),
                ("project", "number"),
                ("parent", "number"),
                ("label", "number"),
            ),
        ),
        Table(
            "tag",
            key=("log", "tag"),
            columns={"log": "text", "tag": "text", "value": "text", "number": "integer"},
            indexes=(("tag", "value", "number"),),
        ),
        # Apart, since few sessions follow another one, and a listing reads every column.
        Table(
            "successor",
            key=("log",),
            columns={"log": "text", "continues": "text", "number": "integer"},
            indexes=(("continues", "number"),),
        ),
        Table(
            "word",
            key=("inbox",),
            columns={"inbox": "text", "seq": "integer", "id": "text", "paused": "integer"},
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        row = rows.get("session", event.log)
        if row is None:
            body = event.body
            if isinstance(body, SessionOpened):
                fields = {
                    "title": body.title,
                    "user": body.user,
                    "project": body.project,
                    "tags": _encode(body.tags).decode(),
                }
                self._add_session(rows, _row(number, event, **fields))
                if body.continues is not None:
                    rows.put(
                        "successor",
                        {"log": event.log, "continues": body.continues.log, "number": number},
                    )
            elif isinstance(body, ForkedFrom):
                # A branch is listed under its parent's title, user and project; tags stay the
                # root's: a fork costs the same for all.
                above = rows.get("session", body.parent) or {}
                fields = {name: above.get(name) for name in ("title", "user", "project")}
                self._add_session(
                    rows,
                    _row(
                        number,
                        event,
                        **{
                            **fields,
                            "label": body.label,
                            "parent": body.parent,
                            "place": body.place,
                            "run": run_around(event),
                        },
                    ),
                )
            elif event.kind in PAUSE_KINDS:  # of an inbox
                self._keep_word(rows, event)
            return
        if event.kind in PAUSE_KINDS:
            self._drop_word(rows, event)
        life = life_after_event(_life(str(row["life"])), event)
        after: Row = {**row, "status": life.status, "life": _encode(life).decode()}
        if event.kind in _STARTS and not is_word_to_branch(event):
            after["run"] = event.header.run or event.id
        if after != row:
            rows.put("session", after)

    def _keep_word(self, rows: Rows, event: Event) -> None:
        is_pause = event.kind == SessionPaused.__name__
        word: Row = {"inbox": event.log, "seq": event.seq, "id": event.id, "paused": int(is_pause)}
        rows.put("word", word)

    def _drop_word(self, rows: Rows, event: Event) -> None:
        """Drop the word that was delivered: its copy names it as the cause."""
        word = rows.get("word", inbox_of(event.log))
        if word is not None and word["id"] in event.header.causes:
            rows.delete("word", word["inbox"])

    def _add_session(self, rows: Rows, row: Row) -> None:
        rows.put("session", row)
        for tag, value in _tags(str(row["tags"])).items():
            rows.put(
                "tag", {"log": row["log"], "tag": tag, "value": value, "number": row["number"]}
            )


def _row(number: int, event: Event, **known: Scalar) -> Row:
    life = Life()
    blank: Row = {
        "log": event.log,
        "number": number,
        "status": life.status,
        "life": _encode(life).decode(),
        "label": None,
        "parent": None,
        "place": 0,
        "opened": event.header.time,
        "run": None,
    }
    row: Row = {**blank, **known}
    return {**row, "title": row["title"] or "", "tags": row.get("tags") or "{}"}


# ── asks that wait ───────────────────────────────────────────────────────────────────────────

_SHOWN_MAX = 8192  # bytes kept in a row; a longer text is read from its event
_RUN_ENDED, _AWAY = 1, 2  # why an ask is over: its run has ended, or its session has moved


class InboxRows:
    """A `Projection`: one row per open ask, found by the log that waits, by its inbox and by its
    run; and one row per run.

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
    version = 4
    kinds = (
        LIFE_OF_ASKS
        | _STARTS
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
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
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
