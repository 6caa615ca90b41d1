"""The branches that runs of a session opened: those of agents as tools, and forks of programs.

A branch that a person forks is a session of its own, also if it is a fork of such a branch.
"""

from __future__ import annotations

from collections.abc import Iterator

from plait.ids import LogId
from plait.session.value import SessionValue, core_of, counted_logs
from plait.store import Store, ancestry


def logs_with_branches(session: SessionValue) -> dict[LogId, int]:
    """Return every log that a session covers, and the branches of its runs, merged or not; each
    with its last seq that counts.
    """
    store, covers = core_of(session).store, counted_logs(session)
    return {**covers, **{log: store.log(log).tip for log in branches_of_runs(session)}}


def branches_of_runs(session: SessionValue) -> Iterator[LogId]:
    """Yield the logs that runs forked from the logs that a session covers, and their forks, if they
    have events that the session does not cover.
    """
    core = core_of(session)
    store, covers = core.store, counted_logs(session)
    # of these it has the events up to a place alone, also if they are branches of runs
    lineage = {info.id for info in ancestry(store, core.position.id)}
    logs, seen = list(covers), {*lineage}
    while logs:
        parent = logs.pop()
        is_whole = parent not in lineage and is_of_run(store, parent)
        for row in store.rows("session", "session", {"parent": parent}, limit=2**31):
            log = LogId(str(row["log"]))
            is_later = not is_whole and int(row["place"] or 0) > covers[parent]
            if log in seen or is_later or not is_of_run(store, log):
                continue
            seen.add(log)
            logs.append(log)
            if covers.get(log, 0) < store.log(log).tip:
                yield log


def is_of_run(store: Store, log: LogId) -> bool:
    """Return True if a run made this log, as a branch of its own."""
    first = store.log(log).place + 1
    return next(store.read(log, first, first)).header.run is not None
