"""The session's row: what a listing shows and searches by, folded from the few events that change it."""

from __future__ import annotations

from plait.event import Event
from plait.event.kinds import ForkedFrom, SessionArchived, SessionClosed, SessionOpened, SessionPaused, SessionResumed
from plait.store import Row, Rows, Table

_STATUS = {
    SessionPaused.__name__: "paused",
    SessionResumed.__name__: "open",
    SessionClosed.__name__: "closed",
    SessionArchived.__name__: "archived",
}


class SessionRows:
    """The first `Projection`: one row per session, one per tag. `number` is the commit that opened it: the order of a listing."""

    name = "session"
    version = 1
    kinds = frozenset({SessionOpened.__name__, ForkedFrom.__name__, *_STATUS})
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
                "label": "text",
                "parent": "text",
                "opened": "integer",
            },
            order="number",
            indexes=(("status", "number"), ("user", "number"), ("project", "number"), ("parent", "number")),
        ),
        Table(
            "tag",
            key=("log", "tag"),
            columns={"log": "text", "tag": "text", "value": "text", "number": "integer"},
            indexes=(("tag", "value", "number"),),
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        if isinstance(body, SessionOpened) and rows.get("session", event.log) is None:
            row = _row(number, event, title=body.title, user=body.user, project=body.project)
            self._open(rows, row, body.tags)
        elif isinstance(body, ForkedFrom):
            # A branch is listed under its parent's title, user and project until it says otherwise.
            above = rows.get("session", body.parent) or {}
            row = _row(number, event, title=above.get("title") or "", user=above.get("user"), project=above.get("project"))
            self._open(rows, {**row, "label": body.label, "parent": body.parent}, {})
        elif event.kind in _STATUS and (row := rows.get("session", event.log)) is not None:
            rows.put("session", {**row, "status": _STATUS[event.kind]})

    def _open(self, rows: Rows, row: Row, tags: dict[str, str]) -> None:
        rows.put("session", row)
        for tag, value in tags.items():
            rows.put("tag", {"log": row["log"], "tag": tag, "value": value, "number": row["number"]})


def _row(number: int, event: Event, **known: object) -> Row:
    blank: Row = {"log": event.log, "number": number, "status": "open", "label": None, "parent": None, "opened": event.header.time}
    return {**blank, **known}  # type: ignore[dict-item]
