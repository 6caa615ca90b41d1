"""The stores of this process, and the one set of hooks that takes them through a fork.

A session has the address of its store and never the store, so the open stores are found in a table
that the whole process shares. Before a fork every write comes to its end, since a child that is
copied in the middle of one has half of it for ever. The parent then goes on. In the child the
stores stay in the table, and each puts itself right: the other threads are gone, and the locks of
the parent are not the child's.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from plait.store.base import Store


class StorePart(Protocol):
    """A part of a store that must not be in use while the process is copied."""

    def freeze(self) -> None:
        """Wait for all uses to end, and let none begin."""
        ...

    def thaw(self) -> None:
        """Go on, in the parent."""
        ...

    def start_over(self) -> None:
        """Go on in the child, without the threads and locks of the parent."""
        ...

    def sync_at_exit(self) -> None:
        """Bring the writes of this process to the disk that it did not wait for."""
        ...


class ProcessStores:
    """The open stores by address, and the parts of stores that a fork waits for."""

    def __init__(self) -> None:
        self.by_address: dict[str, Store] = {}
        # held while a store is opened, made or migrated, and by a fork: until it is over, a
        # connection exists that no part below knows of
        self.opening = threading.RLock()
        self._parts: weakref.WeakSet[StorePart] = weakref.WeakSet()
        self._frozen: list[StorePart] = []  # while the process forks
        self._in_child: list[Callable[[], object]] = []

    def add(self, part: StorePart) -> None:
        """Take a part through forks, and to the end of the process, for as long as it lives."""
        self._parts.add(part)

    def call_in_child(self, put_right: Callable[[], object]) -> None:
        """Have a module put its own state right in every forked child."""
        self._in_child.append(put_right)

    def freeze(self) -> None:
        self.opening.acquire()
        for part in list(self._parts):
            part.freeze()
            self._frozen.append(part)

    def thaw(self) -> None:
        try:
            while self._frozen:
                self._frozen.pop().thaw()
        finally:
            self.opening.release()

    def start_over(self) -> None:
        try:
            for put_right in self._in_child:
                put_right()
            while self._frozen:
                self._frozen.pop().start_over()
        finally:
            self.opening.release()

    def sync_at_exit(self) -> None:
        for part in list(self._parts):
            part.sync_at_exit()


STORES = ProcessStores()

os.register_at_fork(
    before=STORES.freeze,
    after_in_parent=STORES.thaw,
    after_in_child=STORES.start_over,
)
atexit.register(STORES.sync_at_exit)
