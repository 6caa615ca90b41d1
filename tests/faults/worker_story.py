"""A worker that serves a store until it is empty, and kills itself at a moment of its life.

Moments are what other processes can see: a statement of SQLite, a byte of the lock file that is
taken or freed, and a file that is put in place or removed. They are counted from 1, from the first
look of the worker on. If it comes to its end, the file `moments` says how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path

import apsw

SEEN = frozenset({"fcntl.fcntl", "fcntl.lockf", "os.rename", "os.remove"})


class Moments:
    """Counts what this process does from now on, and kills it at one of these moments."""

    def __init__(self, last: int) -> None:
        """`last`: 0 for never."""
        self._last, self._numbers, self.seen = last, count(1), 0

    def watch(self) -> None:
        sys.addaudithook(self._hear_audit)
        apsw.connection_hooks.append(self._watch_connection)

    def _watch_connection(self, connection: apsw.Connection) -> None:
        connection.exec_trace = self._hear_statement

    def _hear_statement(self, *_: object) -> bool:
        self._meet()
        return True

    def _hear_audit(self, event: str, _: tuple[object, ...]) -> None:
        if event in SEEN:
            self._meet()

    def _meet(self) -> None:
        self.seen = next(self._numbers)
        if self.seen == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    address, name, folder, last = sys.argv[1:]
    from plait import open_store
    from plait.cluster import Worker
    from tests.faults.herd import FLOWS

    moments = Moments(int(last))
    moments.watch()
    store = open_store(address)
    Worker(store, [FLOWS], name=name, slots=2, until_empty=True).serve()
    store.close()
    (Path(folder) / "moments").write_text(str(moments.seen))


if __name__ == "__main__":
    main()
