"""Sweeps: workers also see to deadlines, and to runs of workers that died while an ask was open.

Such a run looks parked in its rows. The notice of the dead worker still names it; if that is lost,
too, the run goes on when its ask is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from plait.cluster.claiming import ClaimedWork, Claims
from plait.cluster.workers import Board, remove_worker
from plait.errors import SessionError
from plait.ids import LogId, Micros
from plait.session import Session
from plait.session.ask_rows import InboxRows
from plait.store import Store

_LATE_MAX = 32
ACTOR = "service:cluster"


def sweep(
    store: Store, board: Board, claims: Claims, now: Micros, has_room: Callable[[], bool]
) -> Iterator[ClaimedWork]:
    """Claim the runs of dead workers, and yield them, while the worker has room. The notice of a
    dead worker stays until each of its runs was tried: another worker may have room for the rest.
    """
    for notice, is_alive in board.workers:
        if is_alive:
            continue
        for run in notice.runs:
            if not has_room():
                return
            if (work := claims.claim_run(run, now)) is not None:
                yield work
        remove_worker(store, notice.name)


def cancel_late_runs(store: Store, now: Micros) -> int:
    """Cancel the runs whose deadline has passed; return how many."""
    rows = store.rows(InboxRows.name, "work", order="deadline", limit=_LATE_MAX)
    late = [row for row in rows if int(str(row["deadline"])) <= now]
    for row in late:
        if row["state"] == "failed":
            continue
        with suppress(SessionError):  # it ended meanwhile
            session = Session.open(LogId(str(row["log"])), store=store)
            session.inbox.cancel("its deadline has passed", actor=ACTOR)
    return len(late)
