"""The rows of submitted runs as a reader of the whole history would write them down."""

from __future__ import annotations

from collections import Counter
from typing import Any

from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId, inbox_of
from plait.session.ask_rows import InboxRows
from plait.session.backoff import backoff_s
from plait.session.work_rows import (
    BUDGET_FAILURE,
    GIVEN_UP,
    NEVER,
    RETRY_S,
    RETRY_S_MAX,
    program_name,
    queue_name,
)
from plait.store import Store

_ALL = 2**31
_COUNTS = ("queued", "timed", "taken", "dated")


def check_work(store: Store) -> int:
    """Compare the rows of submitted runs, and of their queues, with the history; return how many
    runs there are.
    """
    asks = store.rows(InboxRows.name, "ask", limit=_ALL)
    due = {row["run"]: row for row in _expected(list(store.feed()), asks)}
    found = {row["run"]: row for row in store.rows(InboxRows.name, "work", limit=_ALL)}
    assert found.keys() == due.keys()
    for run, row in due.items():
        assert {name: found[run][name] for name in row} == row
    queues = store.rows(InboxRows.name, "queue", limit=_ALL)
    counted = Counter(
        (row["queue"], count)
        for row in due.values()
        for count in (row["state"], "dated" if row["deadline"] != NEVER else "")
        if count in _COUNTS
    )
    told = {(row["queue"], count): row[count] for row in queues for count in _COUNTS if row[count]}
    assert told == dict(counted)
    assert all(any(row[count] for count in _COUNTS) for row in queues)
    return len(due)


def _expected(history: list[tuple[int, Event]], asks: Any) -> list[dict[str, Any]]:
    begun: dict[str, tuple[int, k.Wishes, LogId]] = {}  # the last submission of each run
    programs: dict[str, str] = {}
    newest: dict[str, str] = {}  # the run of a session is the one that was begun last
    for number, event in history:
        body = event.body
        if isinstance(body, k.RunStarted):
            newest[event.log] = run = event.header.run or event.id
            programs[run] = program_name(body)
            if body.wishes is not None:
                begun[run] = (number, body.wishes, event.log)
        elif isinstance(body, k.RunSubmitted):
            newest[event.log] = body.run
            begun[body.run] = (number, body.wishes, event.log)
    rows = list[dict[str, Any]]()
    for run, (number, wishes, log) in begun.items():
        row = _fold(history, run, number, wishes, log)
        if row is not None and newest[log] == run:
            state, due = _state(row, wishes, asks)
            rows.append(
                {
                    "run": run,
                    "queue": queue_name(programs[run], wishes),
                    "state": state,
                    "due": due,
                    "deadline": row["deadline"],
                    "failures": row["failures"],
                }
            )
    return rows


def _fold(
    history: list[tuple[int, Event]], run: str, begun: int, wishes: k.Wishes, log: LogId
) -> dict[str, Any] | None:
    """Return what became of a run since it was submitted. None: it is over."""
    row: dict[str, Any] = {"run": run, "took": 0, "woke": begun, "failures": 0, "failure": ""}
    inbox = inbox_of(log)
    paused, is_cancelled, granted = False, False, 0
    for number, event in history:
        body = event.body
        if event.log not in (log, inbox):
            continue
        if isinstance(body, (k.SessionPaused, k.SessionMoved)):
            paused = True
        elif isinstance(body, (k.SessionResumed, k.SessionArrived)):
            paused = False
        if number <= begun:
            continue
        if isinstance(body, k.CancelRequested):
            is_cancelled = True
        if isinstance(body, k.BudgetSet):
            granted = number
        if event.log != log or event.header.run != run:
            continue
        if isinstance(body, k.RunFinished) or (isinstance(body, k.RunCancelled) and body.by):
            return None
        if isinstance(body, k.RunResumed) and not body.branch:
            row |= {"took": number, "failure": ""}
        elif isinstance(body, k.RunFailed):
            kind = body.failure.kind
            count = row["failures"] + (kind != BUDGET_FAILURE)
            count = max(count, wishes.attempts) if kind == GIVEN_UP else count
            row |= {"failures": count, "failure": kind, "woke": number}
            row["since"] = event.header.time
        elif isinstance(body, k.RunCancelled):
            row["woke"] = number
    is_last = is_cancelled or row["failures"] >= wishes.attempts or wishes.deadline is None
    row["deadline"] = NEVER if is_last else wishes.deadline
    return {**row, "paused": paused, "granted": granted}


def _state(row: dict[str, Any], wishes: k.Wishes, asks: Any) -> tuple[str, int]:
    run = row["run"]
    if row["paused"]:
        return "paused", NEVER
    mine = [a for a in asks if a["run"] and a["run"].split("/")[0] == run and not a["over"]]
    if mine:
        if any(ask["woken"] for ask in mine):
            return "queued", 0
        times = [ask["until"] for ask in mine if ask["until"] is not None]
        return ("timed", min(times)) if times else ("parked", NEVER)
    if row["failure"] == BUDGET_FAILURE:
        return ("queued", 0) if row["granted"] > row["took"] else ("parked", NEVER)
    if row["failure"]:
        if row["failures"] >= wishes.attempts:
            return "failed", NEVER
        wait_s = backoff_s(RETRY_S, RETRY_S_MAX, run, row["failures"])
        return "timed", row["since"] + int(wait_s * 1e6)
    if row["took"] > row["woke"]:
        return "taken", 0
    if wishes.not_before is not None and not row["took"]:
        return "timed", wishes.not_before
    return "queued", 0
