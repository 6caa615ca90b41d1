"""Bells that ring inside one process.

They are those of a store in memory. A store with a server rings them when the server sends news.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from plait.store.arguments import check_timeout


class LocalBell:
    """A listener for one topic, in this process."""

    def __init__(self, closed: Callable[[LocalBell], object]) -> None:
        self._closed = closed
        self._news = threading.Event()
        self._is_closed = False

    def wait(self, timeout_s: float) -> bool:
        check_timeout(timeout_s)
        rang = self._news.wait(timeout_s)
        if rang:
            self._news.clear()
        if self._is_closed:
            self._news.set()  # no later `wait` waits
        return rang and not self._is_closed

    def ring(self) -> None:
        self._news.set()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._news.set()
            self._closed(self)

    def forget(self) -> None:
        """Be closed in a forked child, where another thread may have left any lock taken."""
        self._is_closed = True
        self._news = threading.Event()
        self._news.set()


class LocalBells:
    """The bells of one store in this process, by topic."""

    def __init__(self, changed: Callable[[], object] = lambda: None) -> None:
        self._changed = changed  # called when a bell was closed
        self._guard = threading.Lock()
        self._bells: dict[str, set[LocalBell]] = {}

    def listen(self, topic: str) -> LocalBell:
        bell = LocalBell(lambda bell: self._drop(topic, bell))
        with self._guard:
            self._bells.setdefault(topic, set()).add(bell)
        return bell

    def topics(self) -> set[str]:
        """Return the topics that have a listener."""
        with self._guard:
            return set(self._bells)

    def ring(self, topic: str) -> None:
        with self._guard:
            bells = tuple(self._bells.get(topic, ()))
        for bell in bells:
            bell.ring()

    def close(self) -> None:
        with self._guard:
            bells = [bell for each in self._bells.values() for bell in each]
        for bell in bells:
            bell.close()

    def _drop(self, topic: str, bell: LocalBell) -> None:
        with self._guard:
            bells = self._bells.get(topic, set())
            bells.discard(bell)
            if not bells:
                self._bells.pop(topic, None)
        self._changed()

    def start_over(self) -> None:
        """Go on in a forked child, without the bells of the parent."""
        self._guard = threading.Lock()
        bells, self._bells = self._bells, {}
        for bell in [bell for each in bells.values() for bell in each]:
            bell.forget()
