"""The shares of projects: those that a program gives, and below them those of plait.toml."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from plait.cluster.choosing import ProjectShare
from plait.errors import InvalidValue, QueueFull, RunHeld, StoreBusy
from plait.ids import Micros
from plait.model.settings import project_settings
from plait.session.ask_rows import InboxRows
from plait.store import RunLock, Store

_ALL = 2**31
_RETRY_S, _RETRY_S_MAX = 1.0, 60.0
_TURN_S = 20.0  # for others that submit a run of the same project


def merged_shares(given: Mapping[str, ProjectShare] | None) -> dict[str, ProjectShare]:
    """Return the shares of projects by their names; raise for one that is none."""
    for project, share in (given or {}).items():
        _check_share(project, share)
    settings = {
        name: ProjectShare(each.weight or 1.0, each.running_max, each.queued_max)
        for name, each in project_settings().items()
    }
    return {**settings, **(given or {})}


def _check_share(project: str, share: ProjectShare) -> None:
    where = f"shares[{project!r:.60}]"
    if not isinstance(share, ProjectShare):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(where, f"{share!r:.60} is no share", "pass a ProjectShare")
    weight = share.weight
    is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_number or not 0 < weight < math.inf:
        raise InvalidValue(where, f"weight {weight!r:.40} is not above 0", "pass a number above 0")
    for name, value in (("running_max", share.running_max), ("queued_max", share.queued_max)):
        is_count = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_count and value > 0):
            step = "pass a whole number above 0, or None for no limit"
            raise InvalidValue(where, f"{name} {value!r:.40} is not a count", step)


def check_room(store: Store, project: str, share: ProjectShare | None, now: Micros) -> None:
    """Raise QueueFull if a project has as many runs in the queue as it may."""
    if share is None or share.queued_max is None:
        return
    rows = store.rows(InboxRows.name, "queue", limit=_ALL)
    queues = [row for row in rows if row["project"] == project and row["queued"]]
    queued = sum([int(str(row["queued"])) for row in queues])
    if queued >= share.queued_max:
        names = [str(row["queue"]) for row in queues]
        raise QueueFull(
            project, queued, share.queued_max, _retry_after_s(store, names, queued, now)
        )


@contextmanager
def admission(store: Store, project: str, share: ProjectShare, now: Micros) -> Generator[None]:
    """Raise QueueFull if a project has as many runs in the queue as it may. Else let no other
    thread or process submit one of the project, in this store, until the context ends.
    """
    lock = _lock_admission(store, project)
    try:
        check_room(store, project, share, now)
        yield
    finally:
        lock.release()


def _lock_admission(store: Store, project: str) -> RunLock:
    """Wait until no other submits a run of a project."""
    until = time.monotonic() + _TURN_S
    pause_s = 0.001
    while True:
        try:
            return store.lock(f"admission/{project}", project)
        except RunHeld as error:
            if time.monotonic() > until:
                why = f"has no end of a submit of project {project!r:.60}, by {error.holder}"
                raise StoreBusy(store.address, _TURN_S, why) from None
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.02)


def _retry_after_s(store: Store, queues: list[str], queued: int, now: Micros) -> float:
    """Return about how long it takes until one more run is taken: the first of the queue has waited
    while all that are in it came.
    """
    where = {"queue": frozenset(queues), "state": "queued"}
    first = store.rows(InboxRows.name, "work", where, order="number", limit=1)
    waited_s = (now - int(str(first[0]["since"]))) / 1e6 if first else 0.0
    return min(max(waited_s / queued, _RETRY_S), _RETRY_S_MAX)
