"""Rows about sessions, for listings and their filters. Each is folded from few events."""

from __future__ import annotations

import msgspec

from plait.event import Event
from plait.event.kinds import (
    ForkedFrom,
    RunBranched,
    RunResumed,
    RunStarted,
    SessionOpened,
    SessionPaused,
)
from plait.ids import inbox_of
from plait.session.life import (
    LIFE_KINDS,
    PAUSE_KINDS,
    Life,
    is_word_to_branch,
    life_after_event,
)
from plait.session.run_rows import run_around
from plait.store import Row, Rows, Scalar, Table

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
