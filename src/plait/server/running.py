"""Answers about runs that are started from here, and the acts that start and stop them."""

from __future__ import annotations

from plait.errors import NoHost
from plait.ids import LogId
from plait.outline.shapes import SeqRef
from plait.server.desk import ServerDesk
from plait.server.live_shapes import RunList, RunShape
from plait.server.params import NewRun, RunParams, StopRun
from plait.server.runner import Runner
from plait.session.run_rows import INBOX, RUN_TABLE

_OPEN_MAX = 1_000


def list_runs(desk: ServerDesk) -> RunList:
    """Return the runs that were started from here, and the sessions whose runs go on."""
    started = desk.runner.runs() if desk.runner is not None else []
    rows = desk.store.rows(
        INBOX, RUN_TABLE.name, {"status": "open"}, order="number", descending=True, limit=_OPEN_MAX
    )
    free = desk.store.free_runs([str(row["run"]) for row in rows])
    locked = [
        SeqRef(LogId(str(row["log"])), int(str(row["seq"])))
        for row in rows
        if str(row["run"]) not in free
    ]
    return RunList(tuple(started), tuple(locked))


def start_run(desk: ServerDesk, body: NewRun) -> RunShape:
    """Start a process that resumes a session, or runs it again with something changed."""
    session = desk.open(body.session)
    return _runner(desk).start(body, session, desk.actor)


def stop_run(desk: ServerDesk, params: RunParams, body: StopRun) -> RunShape:
    """Interrupt the process of a run, as Ctrl-C does."""
    return _runner(desk).stop(params.run)


def _runner(desk: ServerDesk) -> Runner:
    if desk.runner is None:
        raise NoHost("start runs")
    return desk.runner
