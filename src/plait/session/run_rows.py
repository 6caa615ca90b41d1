"""Rows of runs: where each began, and how it stands. They are part of the rows of asks."""

from __future__ import annotations

from plait.errors import UnknownRows
from plait.event import Event
from plait.store import Log, Row, Store, Table

INBOX = "inbox"  # the projection that keeps them
RUN_TABLE = Table(
    "run",
    key=("run",),
    columns={
        "run": "text",
        "number": "integer",
        "log": "text",
        "seq": "integer",
        "workflow": "text",
        "revision": "text",
        "began": "integer",
        "status": "text",
        "asks": "text",
        "ended": "integer",  # the commit that ended it, 0 while it is open
        "closed": "integer",  # the last commit after which nothing of the run waits; 0: none
        "submitted": "integer",  # 1: it is left to the workers of a cluster
    },
    order="number",
    indexes=(("log", "number"), ("status", "number")),
)


def new_run_row(run: str, number: int, event: Event) -> Row:
    """Return the row of a run that begins with this event."""
    body = event.body
    return {
        "run": run,
        "number": number,
        "log": event.log,
        "seq": event.seq,
        "workflow": getattr(body, "workflow", ""),
        "revision": getattr(body, "revision", ""),
        "began": event.header.time,
        "status": "open",
        "asks": "[]",
        "ended": 0,
        "closed": 0,
        "submitted": int(getattr(body, "wishes", None) is not None),
    }


def run_around(event: Event) -> str | None:
    """Return the run in which an event was written. A tool writes in the name of its call."""
    run = event.header.run
    return run.partition("/")[0] if run is not None else None


def run_of_branch(store: Store, log: Log) -> str | None:
    """Return the open run that a log was forked in.

    None: it was not forked in a run, or that run is over.
    """
    first = (
        next(store.read(log.id, log.place + 1, log.place + 1), None)
        if log.parent is not None
        else None
    )
    if first is None:
        return None
    run = run_around(first)
    row = find_run_row(store, run) if run is not None else None
    return run if row is not None and row["status"] == "open" else None


def is_run_over(store: Store, run: str) -> bool:
    """Return True if a run has ended, perhaps on another log than the one that asks."""
    row = find_run_row(store, run)
    return row is not None and row["status"] != "open"


def find_run_row(store: Store, run: str) -> Row | None:
    """Return the row of a run. None: there is none, or the store keeps no such rows."""
    try:
        return next(iter(store.rows(INBOX, "run", {"run": run}, limit=1)), None)
    except UnknownRows:
        return None
