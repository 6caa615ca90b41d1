"""Rows of work: the submitted runs that are open, and the queues they stand in. They are part of
the rows of asks, since an ask decides if a run can go on.

A run is in one state:

| state | meaning |
|---|---|
| queued | a worker may take it now |
| timed | a worker may take it from `due` on |
| taken | a worker has taken it, or had it when it died |
| parked | it waits for an answer, a signal, a verdict or a grant |
| paused | its session is paused, or moved |
| failed | it has failed as often as it may |

Whether a process executes a run now is told by its lock, and not by a row: a run that is `taken`
and has no lock may be taken again.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from plait.event import Event
from plait.event.kinds import (
    BudgetSet,
    CancelRequested,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    RunSubmitted,
    SessionArrived,
    SessionMoved,
    SessionPaused,
    SessionResumed,
    Wishes,
)
from plait.ids import LogId, inbox_of
from plait.session.backoff import backoff_s
from plait.session.life import is_word_to_branch
from plait.store import Row, Rows, Scalar, Table

WorkState = Literal["queued", "timed", "taken", "parked", "paused", "failed"]

WORK_BELL = "work"  # rings when a run may have become ready
NEVER = 2**63 - 1
PRIORITY_MAX = 100
RETRY_S, RETRY_S_MAX = 1.0, 300.0  # between attempts of a run
BUDGET_FAILURE = "BudgetExceeded"
GIVEN_UP = "WorkersDied"  # the failure of a run that ended the workers which took it

WORK_TABLES = (
    Table(
        "work",
        key=("run",),
        columns={
            "run": "text",
            "number": "integer",  # the commit that submitted it
            "log": "text",
            "queue": "text",
            "state": "text",
            "rank": "integer",  # its place in the queue: by priority, then by age
            "due": "integer",  # not before; NEVER: an event has to come first
            "wishes": "text",
            "program": "text",
            "host": "text",  # of the worker that had it last; "": none had
            "worker": "text",
            "since": "integer",  # the time of the event that set it free: start, failure, grant
            "woke": "integer",  # the commit of that event
            "took": "integer",  # the last commit by which a process took it
            "failures": "integer",
            "failure": "text",  # the last one, while it is not taken up again
            "deadline": "integer",
            "paused": "integer",
        },
        order="number",
        indexes=(
            ("queue", "state", "rank"),
            ("state", "due"),
            ("state", "number"),
            ("deadline",),
            ("log", "number"),
        ),
    ),
    # the submitted run of a session, found by its log and by its inbox; and the last word there
    # about pauses, which may be folded before the run
    Table(
        "work_log",
        key=("log",),
        columns={"log": "text", "run": "text", "paused": "integer", "paused_by": "integer"},
    ),
    Table("work_asks", key=("run",), columns={"run": "text", "asks": "text"}),  # of any run
    Table(
        "queue",
        key=("queue",),
        columns={
            "queue": "text",
            "program": "text",
            "need": "text",
            "project": "text",
            "code": "text",  # "": any
            "queued": "integer",  # runs in this state
        },
    ),
)

WORK_KINDS = frozenset(
    kind.__name__
    for kind in (
        RunSubmitted,
        BudgetSet,
        SessionPaused,
        SessionResumed,
        SessionMoved,
        SessionArrived,
    )
)
_OF_RUNS = frozenset(kind.__name__ for kind in (RunResumed, RunFinished, RunFailed, RunCancelled))
_PAUSES = {
    SessionPaused.__name__: 1,
    SessionResumed.__name__: 0,
    SessionMoved.__name__: 1,
    SessionArrived.__name__: 0,
}
_encode = msgspec.json.Encoder(order="deterministic").encode
_ids = msgspec.json.Decoder(list[str]).decode
read_wishes = msgspec.json.Decoder(Wishes).decode


class NotedRows:
    """Rows that note which runs have other asks after an event was folded."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.runs: dict[str, None] = {}
        self.read_runs: dict[Scalar, Row | None] = {}  # rows of runs that were read meanwhile

    def get(self, table: str, *key: Scalar) -> Row | None:
        row = self._rows.get(table, *key)
        if table == "run":
            self.read_runs[key[0]] = row
        return row

    def put(self, table: str, row: Row) -> None:
        self._rows.put(table, row)
        if table == "ask":
            self._note(row, is_open=True)

    def delete(self, table: str, *key: Scalar) -> None:
        row = self._rows.get(table, *key) if table == "ask" else None
        self._rows.delete(table, *key)
        if row is not None:
            self._note(row, is_open=False)

    def _note(self, ask: Row, *, is_open: bool) -> None:
        """Keep the ids of a run's asks: they stand in several logs."""
        if ask["run"] is None:
            return
        run = _root_run(ask["run"])
        known = self._rows.get("work_asks", run)
        ids = {*_ids(str(known["asks"]))} if known is not None else set[str]()
        after = ids | {str(ask["id"])} if is_open else ids - {str(ask["id"])}
        if not after:
            self._rows.delete("work_asks", run)
        elif after != ids:
            self._rows.put("work_asks", {"run": run, "asks": _encode(sorted(after)).decode()})
        self.runs[run] = None


def fold_work(rows: Rows, noted: NotedRows, number: int, event: Event) -> None:
    """Bring the rows of submitted runs up to date after an event."""
    body = event.body
    if event.kind in _PAUSES:
        _keep_pause(rows, number, event)
    if isinstance(body, (RunStarted, RunSubmitted)) and body.wishes is not None:
        _add_work(rows, number, event, body.wishes)
    run = _run_of_event(rows, noted, event)
    for each in {**noted.runs, **({run: None} if run is not None else {})}:
        row = rows.get("work", each)
        if row is not None:
            after = {**row, **_own_changes(rows, row, number, event)} if each == run else row
            _keep_work(rows, row, after, is_over=each == run and _is_over(event, each))


def _run_of_event(rows: Rows, noted: NotedRows, event: Event) -> str | None:
    """Return the submitted run that an event is about. None: there is none.

    Most runs are not submitted, and their own events find that in the row of the run, which was
    read already.
    """
    if event.kind == RunStarted.__name__:
        return None  # its row is new
    own = noted.read_runs.get(event.header.run) if event.header.run is not None else None
    if own is not None and event.kind in _OF_RUNS:
        return str(own["run"]) if own["submitted"] else None
    named = rows.get("work_log", event.log)
    return str(named["run"]) if named is not None and named["run"] is not None else None


def _keep_pause(rows: Rows, number: int, event: Event) -> None:
    """Keep the last word about pauses in a log."""
    known = rows.get("work_log", event.log)
    if known is None or number > _integer(known, "paused_by"):
        run = known["run"] if known is not None else None
        paused = _PAUSES[event.kind]
        rows.put("work_log", {"log": event.log, "run": run, "paused": paused, "paused_by": number})


def _is_paused(rows: Rows, log: LogId) -> int:
    """Return 1 if the last word about pauses, in a session's log or its inbox, is a pause."""
    said = [rows.get("work_log", each) for each in (log, inbox_of(log))]
    words = [(_integer(row, "paused_by"), row["paused"]) for row in said if row is not None]
    return int(str(max(words)[1])) if words else 0


def _name_run(rows: Rows, log: str, run: str | None) -> None:
    known = rows.get("work_log", log) or {"log": log, "paused": 0, "paused_by": 0}
    if run is None and not known["paused_by"]:
        rows.delete("work_log", log)
    else:
        rows.put("work_log", {**known, "run": run})


def _add_work(rows: Rows, number: int, event: Event, wishes: Wishes) -> None:
    body, log = event.body, event.log
    run = body.run if isinstance(body, RunSubmitted) else event.header.run or event.id
    known = rows.get("work", run)
    if isinstance(body, RunStarted):
        program = program_name(body)
    else:
        started = known or rows.get("run", run)
        program = str(started["program" if known is not None else "workflow"]) if started else ""
    if known is not None:
        _keep_work(rows, known, known, is_over=True)
    if isinstance(body, RunSubmitted) and (started := rows.get("run", run)) is not None:
        rows.put("run", {**started, "submitted": 1})
    row: Row = {
        "run": run,
        "number": number,
        "log": log,
        "queue": queue_name(program, wishes),
        "state": "",
        "rank": rank_of(wishes.priority, event.header.time),
        "due": NEVER,
        "wishes": _encode(wishes).decode(),
        "program": program,
        "host": "",
        "worker": "",
        "since": event.header.time,
        "woke": number,
        "took": 0,
        "failures": 0,
        "failure": "",
        "deadline": wishes.deadline if wishes.deadline is not None else NEVER,
        "paused": _is_paused(rows, log),
    }
    for each in (log, inbox_of(log)):
        _name_run(rows, each, run)
    _keep_work(rows, None, row, is_over=False)


def _own_changes(rows: Rows, row: Row, number: int, event: Event) -> Row:
    """Return what an event of the session, or of its inbox, changes in the row of its run."""
    body, time = event.body, event.header.time
    if event.kind in _PAUSES:
        return {"paused": _is_paused(rows, _log(row))}
    if isinstance(body, CancelRequested):
        return {"deadline": NEVER}  # it is cancelled once
    if event.header.run != row["run"] and not isinstance(body, BudgetSet):
        return {}
    if isinstance(body, RunResumed) and not is_word_to_branch(event):
        claim = body.claim
        return {
            "took": number,
            "failure": "",
            "host": claim.host if claim is not None else "",
            "worker": claim.worker if claim is not None else body.holder,
        }
    if isinstance(body, RunFailed):
        failed: Row = {"failures": _integer(row, "failures") + 1, "failure": body.failure.kind}
        return {**failed, "since": time, "woke": number}
    if isinstance(body, RunCancelled):  # without a wish: its process let go of it
        return {"since": time, "woke": number}
    if isinstance(body, BudgetSet) and row["failure"] == BUDGET_FAILURE:
        return {"failure": "", "since": time, "woke": number}
    return {}


def _is_over(event: Event, run: str) -> bool:
    body = event.body
    if event.header.run != run:
        return False
    return isinstance(body, RunFinished) or (isinstance(body, RunCancelled) and bool(body.by))


def _keep_work(rows: Rows, before: Row | None, after: Row, *, is_over: bool) -> None:
    """Put the row of a run, with its state, and count it in its queue."""
    was_queued = before is not None and before["state"] == "queued"
    if is_over:
        rows.delete("work", after["run"])
        for log in (_log(after), inbox_of(_log(after))):
            named = rows.get("work_log", log)
            if named is not None and named["run"] == after["run"]:
                _name_run(rows, log, None)
        if was_queued:
            _count(rows, after, -1)
        return
    state, due = _state_of(rows, after)
    after = {**after, "state": state, "due": due}
    if state == "failed":
        after["deadline"] = NEVER
    if after != before:
        rows.put("work", after)
    if was_queued != (state == "queued"):
        _count(rows, after, -1 if was_queued else 1)


def _state_of(rows: Rows, row: Row) -> tuple[WorkState, int]:
    """Return the state of a run, and the time from which a worker may take it."""
    if row["paused"]:
        return "paused", NEVER
    wishes = read_wishes(str(row["wishes"]))
    known = rows.get("work_asks", row["run"])
    ids = _ids(str(known["asks"])) if known is not None else []
    asks = [ask for id in ids if (ask := rows.get("ask", id)) is not None and not ask["over"]]
    if asks:
        if any([ask["woken"] for ask in asks]):
            return "queued", 0
        times = [int(str(ask["until"])) for ask in asks if ask["until"] is not None]
        return ("timed", min(times)) if times else ("parked", NEVER)
    if row["failure"] == BUDGET_FAILURE:
        return "parked", NEVER
    if row["failure"]:
        failures = _integer(row, "failures")
        if failures >= wishes.attempts or row["failure"] == GIVEN_UP:
            return "failed", NEVER
        wait_s = backoff_s(RETRY_S, RETRY_S_MAX, str(row["run"]), failures)
        return "timed", _integer(row, "since") + int(wait_s * 1e6)
    if _integer(row, "took") > _integer(row, "woke"):
        return "taken", 0
    if wishes.not_before is not None and not _integer(row, "took"):
        return "timed", wishes.not_before
    return "queued", 0


def _count(rows: Rows, row: Row, more: int) -> None:
    name = str(row["queue"])
    wishes = read_wishes(str(row["wishes"]))
    known = rows.get("queue", name)
    count = (_integer(known, "queued") if known is not None else 0) + more
    if not count:
        rows.delete("queue", name)
        return
    rows.put(
        "queue",
        {
            "queue": name,
            "program": row["program"],
            "need": _encode(wishes.need).decode(),
            "project": wishes.project,
            "code": wishes.code if wishes.same_code else "",
            "queued": count,
        },
    )


# ── names and numbers ────────────────────────────────────────────────────────────────────────


def program_name(started: RunStarted) -> str:
    """Return the name under which workers know the program of a run: MODULE:NAME."""
    target: Any = started.environment or {}
    if target.get("file") and target.get("name"):
        return f"{target['file']}:{target['name']}"
    return started.workflow


def queue_name(program: str, wishes: Wishes) -> str:
    """Return the name of the queue that a run stands in: all its runs may be taken by the same
    workers, and use the same share.
    """
    code = wishes.code if wishes.same_code else ""
    return _encode([wishes.project, program, wishes.need, code]).decode()


def rank_of(priority: int, time: int) -> int:
    """Return a number by which runs of a queue are sorted: by priority, then by age."""
    return ((PRIORITY_MAX - priority) << 52) + min(max(time, 0), 2**52 - 1)


def _root_run(run: Scalar) -> str:
    """Return the run around a call that writes in a name of its own."""
    return str(run).partition("/")[0]


def _integer(row: Row, column: str) -> int:
    return int(str(row[column]))


def _log(row: Row) -> LogId:
    return LogId(str(row["log"]))
