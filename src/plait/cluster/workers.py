"""The workers that serve a store, as their notices tell.

A worker has a lock for as long as it lives, and a notice with what it can do. Both end with it: a
notice without a lock is that of a worker that died, and is removed by the next reader.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import msgspec

from plait.errors import InvalidValue, PlaitError, RunHeld, UnknownWorker, WorkerNameTaken
from plait.ids import digest
from plait.store import RunLock, Store

ENDED = "ended"  # the topic of the bell for those who wait for a run
WORKERS = "workers"  # the board of their notices
_DRAIN = "drain:"  # the beginning of the key of a wish there that a worker be drained
_NAME_MAX = 120
UNFIT = "unfit"  # the board of runs that a code does not fit
LET_GO = "let go"  # runs that drained workers let go of


class WorkerNotice(msgspec.Struct, frozen=True):
    """The words of a worker about itself."""

    name: str
    host: str
    pid: int
    labels: tuple[str, ...]
    programs: tuple[str, ...]
    code: str
    slots: int
    runs: tuple[str, ...] = ()  # that it has
    draining: bool = False
    since: int = 0
    rungs: tuple[str, ...] = ()  # of isolation that it offers, the best first


class UnfitNotice(msgspec.Struct, frozen=True):
    """A run that goes another way with a worker's code than its record."""

    run: str
    code: str
    worker: str
    why: str


def check_worker_name(name: str) -> None:
    """Raise for a name that no notice can have. "": the worker makes one itself."""
    is_text = isinstance(name, str) and name.isprintable()  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_text or len(name.encode()) > _NAME_MAX or name.startswith(_DRAIN):
        step = f"use letters that can be printed, at most {_NAME_MAX} bytes"
        raise InvalidValue("name", f"{name!r:.40} is not the name of a worker", step)


def lock_worker(store: Store, name: str) -> RunLock:
    """Take the name of a worker, for as long as this process lives."""
    try:
        return store.lock(_lock_name(name), name)
    except RunHeld:
        raise WorkerNameTaken(name, store.address) from None


def put_worker(store: Store, notice: WorkerNotice) -> None:
    store.put_notice(WORKERS, notice.name, msgspec.json.encode(notice))


def live_workers(store: Store) -> list[WorkerNotice]:
    """Return the workers that live, by name. Notices of others are removed."""
    return [notice for notice, is_alive in all_workers(store) if is_alive]


def all_workers(store: Store) -> list[tuple[WorkerNotice, bool]]:
    """Return the notices of workers by name, each with True if the worker lives."""
    return read_board(store, "").workers


class Board(NamedTuple):
    """The notices of workers, as one worker reads them."""

    workers: list[tuple[WorkerNotice, bool]]  # True: it lives
    is_drain_asked: bool  # of the reader


def read_board(store: Store, reader: str) -> Board:
    """Read the notices of workers. The reader lives: without others no lock is asked for."""
    notices = store.notices(WORKERS)
    names = sorted([name for name in notices if not name.startswith(_DRAIN)])
    others = [_lock_name(name) for name in names if name != reader]
    free = store.free_runs(others) if others else set[str]()
    found = list[tuple[WorkerNotice, bool]]()
    for name in names:
        with suppress(msgspec.DecodeError):
            told = msgspec.json.decode(notices[name].data, type=WorkerNotice)
            found.append((told, _lock_name(name) not in free))
    return Board(found, _DRAIN + reader in notices)


def find_worker(store: Store, name: str) -> WorkerNotice:
    """Return a worker that lives."""
    known = {worker.name: worker for worker in live_workers(store)}
    if name not in known:
        raise UnknownWorker(name, list(known))
    return known[name]


def drain_bell(name: str) -> str:
    """Return the topic of the bell that a worker hears when it is to be drained."""
    return f"{_DRAIN}{digest(b'plait/worker/1', name.encode())[:32]}"


def ask_drain(store: Store, name: str) -> None:
    """Ask a worker to finish: it takes no more runs, and lets go of those that it has."""
    find_worker(store, name)
    store.put_notice(WORKERS, _DRAIN + name, b"{}")
    store.ring(drain_bell(name))


def remove_worker(store: Store, name: str) -> None:
    with suppress(PlaitError):
        store.drop_notice(WORKERS, name)
        store.drop_notice(WORKERS, _DRAIN + name)


def note_unfit(store: Store, notice: UnfitNotice) -> None:
    key = f"{notice.run[:40]}/{notice.code[:16]}"
    store.put_notice(UNFIT, key, msgspec.json.encode(notice))


def unfit_notices(store: Store, run: str) -> list[UnfitNotice]:
    found = list[UnfitNotice]()
    for key, notice in sorted(store.notices(UNFIT).items()):
        if key.startswith(run[:40]):
            with suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(notice.data, type=UnfitNotice))
    return found


def note_let_go(store: Store, run: str) -> None:
    """Say that a worker lets go of a run because it is drained: that is not the death of one."""
    store.put_notice(LET_GO, run[:40], b"{}")


def take_let_go(store: Store, run: str) -> bool:
    """True if the last worker of a run let go of it. The notice is removed."""
    if run[:40] not in store.notices(LET_GO):
        return False
    store.drop_notice(LET_GO, run[:40])
    return True


def _lock_name(name: str) -> str:
    return f"worker/{name}"
