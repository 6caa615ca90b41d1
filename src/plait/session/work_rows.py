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

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from plait.event import Event
from plait.event.kinds import (
    BudgetSet,
    CancelRequested,
    PlannedRun,
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
            "deadline": "integer",  # NEVER: none, or it does not matter any more
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
    # the submitted run of a session, found by its log and by its inbox; and the last words there
    # about pauses, cancels and budgets, which may be folded before the run
    Table(
        "work_log",
        key=("log",),
        columns={
            "log": "text",
            "run": "text",
            "paused": "integer",
            "paused_by": "integer",  # the commits of these words; 0: there was none
            "cancelled_by": "integer",
            "granted_by": "integer",
        },
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
            "timed": "integer",
            "taken": "integer",
            "dated": "integer",  # runs with a deadline
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
_WORDS = frozenset({*_PAUSES, CancelRequested.__name__, BudgetSet.__name__})
_COUNTED = ("queued", "timed", "taken")
_WORD_COLUMNS = ("paused_by", "cancelled_by", "granted_by")
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
    if event.kind in _WORDS:
        _keep_word(rows, number, event)
    if isinstance(body, (RunStarted, RunSubmitted)):
        _end_work_before(rows, event.log)
        if body.wishes is not None:
            _add_work(rows, number, event, body.wishes)
    run = _run_of_event(rows, noted, event)
    for each in {**noted.runs, **({run: None} if run is not None else {})}:
        row = rows.get("work", each)
        if row is not None:
            after = {**row, **_own_changes(row, number, event)} if each == run else row
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


def _keep_word(rows: Rows, number: int, event: Event) -> None:
    """Keep the last words in a log about pauses, cancels and budgets. A session and its inbox may
    be folded in any order between them, so the numbers decide.
    """
    said: Row = {}
    if event.kind in _PAUSES:
        said = {"paused": _PAUSES[event.kind], "paused_by": number}
    elif isinstance(event.body, CancelRequested):
        said = {"cancelled_by": number}
    elif event.header.run is None:  # the run itself divides what it has
        said = {"granted_by": number}
    if said:
        rows.put("work_log", {**_words_in(rows, event.log), **said})


def _words_in(rows: Rows, log: str) -> Row:
    none: Row = {"paused": 0, "paused_by": 0, "cancelled_by": 0, "granted_by": 0}
    return rows.get("work_log", log) or {"log": log, "run": None, **none}


def _is_paused(words: Sequence[Row]) -> bool:
    """True if the last word about pauses, in a session's log or its inbox, is a pause."""
    return bool(max([(_integer(row, "paused_by"), row["paused"]) for row in words])[1])


def _name_run(rows: Rows, log: str, run: str | None) -> None:
    known = _words_in(rows, log)
    if run is None and not any([known[word] for word in _WORD_COLUMNS]):
        rows.delete("work_log", log)
    else:
        rows.put("work_log", {**known, "run": run})


def _end_work_before(rows: Rows, log: str) -> None:
    """Leave the run before to itself when another one begins in its session."""
    named = rows.get("work_log", log)
    row = rows.get("work", named["run"]) if named is not None and named["run"] is not None else None
    if row is not None:
        _keep_work(rows, row, row, is_over=True)


def _add_work(rows: Rows, number: int, event: Event, wishes: Wishes) -> None:
    body, log = event.body, event.log
    run = body.run if isinstance(body, RunSubmitted) else event.header.run or event.id
    if isinstance(body, RunStarted):
        program = program_name(body)
    else:
        started = rows.get("run", run)
        program = str(started["workflow"]) if started is not None else ""
        if started is not None:
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
        "deadline": NEVER,
    }
    for each in (log, inbox_of(log)):
        _name_run(rows, each, run)
    _keep_work(rows, None, row, is_over=False)


def _own_changes(row: Row, number: int, event: Event) -> Row:
    """Return what an event of the session itself changes in the row of its run."""
    body, time = event.body, event.header.time
    if event.log != row["log"]:
        return {}
    if event.header.run != row["run"]:
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
        kind = body.failure.kind
        failures = _integer(row, "failures") + (kind != BUDGET_FAILURE)
        if kind == GIVEN_UP:
            failures = max(failures, read_wishes(str(row["wishes"])).attempts)
        return {"failures": failures, "failure": kind, "since": time, "woke": number}
    if isinstance(body, RunCancelled):  # without a wish: its process let go of it
        return {"since": time, "woke": number}
    return {}


def _is_over(event: Event, run: str) -> bool:
    body = event.body
    if event.header.run != run:
        return False
    return isinstance(body, RunFinished) or (isinstance(body, RunCancelled) and bool(body.by))


def _keep_work(rows: Rows, before: Row | None, after: Row, *, is_over: bool) -> None:
    """Put the row of a run, with its state, and count it in its queue."""
    if is_over:
        rows.delete("work", after["run"])
        for log in (_log(after), inbox_of(_log(after))):
            named = rows.get("work_log", log)
            if named is not None and named["run"] == after["run"]:
                _name_run(rows, log, None)
        _count(rows, after, _counted(before), {})
        return
    wishes = read_wishes(str(after["wishes"]))
    words = [_words_in(rows, log) for log in (_log(after), inbox_of(_log(after)))]
    state, due = _state_of(rows, after, wishes, words)
    deadline = _deadline_of(after, wishes, words)
    after = {**after, "state": state, "due": due, "deadline": deadline}
    if after != before:
        rows.put("work", after)
    _count(rows, after, _counted(before), _counted(after))


def _deadline_of(row: Row, wishes: Wishes, words: Sequence[Row]) -> int:
    """Return the time at which a run is cancelled. One that was cancelled since it was submitted,
    or has no attempt left, is not cancelled any more.
    """
    is_cancelled = any([_integer(each, "cancelled_by") > _integer(row, "number") for each in words])
    if wishes.deadline is None or is_cancelled or _integer(row, "failures") >= wishes.attempts:
        return NEVER
    return wishes.deadline


def _state_of(rows: Rows, row: Row, wishes: Wishes, words: Sequence[Row]) -> tuple[WorkState, int]:
    """Return the state of a run, and the time from which a worker may take it."""
    if _is_paused(words):
        return "paused", NEVER
    known = rows.get("work_asks", row["run"])
    ids = _ids(str(known["asks"])) if known is not None else []
    asks = [ask for id in ids if (ask := rows.get("ask", id)) is not None and not ask["over"]]
    if asks:
        if any([ask["woken"] for ask in asks]):
            return "queued", 0
        times = [int(str(ask["until"])) for ask in asks if ask["until"] is not None]
        return ("timed", min(times)) if times else ("parked", NEVER)
    if row["failure"] == BUDGET_FAILURE:
        # a grant that was sent to the run before it failed may not have been heard any more
        taken = max(_integer(row, "took"), _integer(row, "number"))
        is_granted = any([_integer(each, "granted_by") > taken for each in words])
        return ("queued", 0) if is_granted else ("parked", NEVER)
    if row["failure"]:
        failures = _integer(row, "failures")
        if failures >= wishes.attempts:
            return "failed", NEVER
        wait_s = backoff_s(RETRY_S, RETRY_S_MAX, str(row["run"]), failures)
        return "timed", _integer(row, "since") + int(wait_s * 1e6)
    if _integer(row, "took") > _integer(row, "woke"):
        return "taken", 0
    if wishes.not_before is not None and not _integer(row, "took"):
        return "timed", wishes.not_before
    return "queued", 0


def _counted(row: Row | None) -> dict[str, int]:
    """Return the counts of its queue in which a run is one."""
    if row is None:
        return {}
    counts = {str(row["state"]): 1} if row["state"] in _COUNTED else {}
    return {**counts, "dated": 1} if row["deadline"] != NEVER else counts


def _count(rows: Rows, row: Row, before: dict[str, int], after: dict[str, int]) -> None:
    """Count a run in its queue. A queue without any is no row: idle workers ask for these alone."""
    if before == after:
        return
    name = str(row["queue"])
    known = rows.get("queue", name)
    counts = {
        column: (_integer(known, column) if known is not None else 0)
        + after.get(column, 0)
        - before.get(column, 0)
        for column in (*_COUNTED, "dated")
    }
    if not any(counts.values()):
        rows.delete("queue", name)
        return
    wishes = read_wishes(str(row["wishes"]))
    rows.put(
        "queue",
        {
            "queue": name,
            "program": row["program"],
            "need": _encode(wishes.need).decode(),
            "project": wishes.project,
            "code": wishes.code if wishes.same_code else "",
            **counts,
        },
    )


# ── names and numbers ────────────────────────────────────────────────────────────────────────


def program_name(started: RunStarted | PlannedRun) -> str:
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
