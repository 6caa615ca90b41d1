"""Scenes that need a process of their own. Each prints ok."""

from __future__ import annotations

import os
import signal
import threading
import time

from plait.store import MemoryStore, SqliteStore, Store, verify_store
from plait.store.sqlite.database import Database
from plait.testing import Seeded
from plait.testing.writing import begin, extend, message, run_threads, texts


def fork_in_the_middle(folder: str) -> None:
    """A connection must not cross os.fork: the child opens its own, and ends without harming its
    parent's.
    """
    for store in (SqliteStore(folder, source=Seeded()), MemoryStore(source=Seeded())):
        for _ in range(5):
            _fork_in_the_middle(store)
    print("ok")


def _fork_in_the_middle(store: Store) -> None:
    mine, yours = begin(store), begin(store)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            extend(store, mine, message("meanwhile"))

    writer = threading.Thread(target=write)
    writer.start()  # so that the fork happens in the middle of something
    time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            extend(store, yours, message("from the child"))
            code = 0 if texts(store, yours) == ["from the child"] else 2
            store.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    stop.set()
    writer.join()
    extend(store, mine, message("after"))
    assert texts(store, mine)[-1] == "after"
    if isinstance(store, SqliteStore):
        assert texts(store, yours) == ["from the child"]
    assert list(verify_store(store)) == []


def interrupt_at_random(folder: str) -> None:
    """Ctrl-C at any moment of a group commit: the others' work is done, and the store goes on."""
    store = SqliteStore(folder, source=Seeded())
    logs = [begin(store) for _ in range(5)]
    interrupts = 0

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, ring)
    jobs = [
        lambda log=log: [extend(store, log, message(str(i))) for i in range(200)]
        for log in logs[1:]
    ]
    others = threading.Thread(target=run_threads, args=(jobs,), daemon=True)
    others.start()
    deadline = time.monotonic() + 60
    while others.is_alive():
        assert time.monotonic() < deadline, (
            f"a thread is left waiting after {interrupts} interrupts"
        )
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.0001 * (interrupts % 17))
            for _ in range(50):
                extend(store, logs[0], message("mine"))
        except KeyboardInterrupt:
            interrupts += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    for log in logs[1:]:
        assert texts(store, log) == [str(i) for i in range(200)]
    extend(store, logs[0], message("still writing"))
    assert list(verify_store(store)) == []
    print(f"{interrupts} interrupts")
    assert interrupts > 20
    print("ok")


def add_colour(db: Database) -> None:
    """An invented second migration, in several statements, with data moved."""
    db.execute("ALTER TABLE log ADD COLUMN colour TEXT")
    db.execute("UPDATE log SET colour = 'blue'")
    db.execute("CREATE TABLE palette (name TEXT) STRICT")
    for i in range(200):
        db.execute("INSERT INTO palette VALUES (?)", (f"{i} " * 50,))


def fork_while_opening(folder: str) -> None:
    """A store that is just being opened holds a connection, too: a fork waits for it."""
    store = SqliteStore(folder, source=Seeded())
    log, stop = begin(store), threading.Event()

    def open_again() -> None:
        while not stop.is_set():
            SqliteStore(folder, source=Seeded()).close()

    threads = [threading.Thread(target=open_again) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(40):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                extend(store, log, message(str(i)))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    stop.set()
    for thread in threads:
        thread.join()
    assert texts(store, log) == [str(i) for i in range(40)]
    assert list(verify_store(store)) == []
    print("ok")
