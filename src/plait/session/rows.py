"""The session's row: what a listing shows and searches by, folded from the few events that change it."""

from __future__ import annotations

import msgspec

from plait.event import Event
from plait.event.kinds import ForkedFrom, SessionOpened
from plait.session.life import LIFE_KINDS, Life, live_on
from plait.store import Row, Rows, Scalar, Table

_life = msgspec.json.Decoder(Life).decode
_tags = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class SessionRows:
    """The first `Projection`: one row per session, one per tag. `number` is the commit that opened it: the order of a listing."""

    name = "session"
    version = 2
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
                "life": "text",
            },
            order="number",
            indexes=(("status", "number"), ("user", "number"), ("project", "number"), ("parent", "number"), ("label", "number")),
        ),
        Table(
            "tag",
            key=("log", "tag"),
            columns={"log": "text", "tag": "text", "value": "text", "number": "integer"},
            indexes=(("tag", "value", "number"),),
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        row = rows.get("session", event.log)
        if row is None:
            body = event.body
            if isinstance(body, SessionOpened):
                fields = {"title": body.title, "user": body.user, "project": body.project, "tags": _encode(body.tags).decode()}
                self._open(rows, _row(number, event, **fields))
            elif isinstance(body, ForkedFrom):
                # A branch is listed under its parent's title, user and project; tags stay the root's: a fork costs the same for all.
                above = rows.get("session", body.parent) or {}
                fields = {name: above.get(name) for name in ("title", "user", "project")}
                self._open(rows, _row(number, event, **{**fields, "label": body.label, "parent": body.parent, "place": body.place}))
            return
        life = live_on(_life(str(row["life"])), event.kind)
        after: Row = {**row, "status": life.status, "life": _encode(life).decode()}
        if after != row:
            rows.put("session", after)

    def _open(self, rows: Rows, row: Row) -> None:
        rows.put("session", row)
        for tag, value in _tags(str(row["tags"])).items():
            rows.put("tag", {"log": row["log"], "tag": tag, "value": value, "number": row["number"]})


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
    }
    row: Row = {**blank, **known}
    return {**row, "title": row["title"] or "", "tags": row.get("tags") or "{}"}
