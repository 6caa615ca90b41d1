"""The feed: everything that is committed to a store, in the order of commit numbers, as it comes.

One thread per store reads, and only while there are listeners. It looks at once if a bell rings,
and else after a while, soon if there was something new the last time. It keeps the last rows. A
listener is a number: it takes the rows after it, from those that are kept or else from the store.
So a slow listener costs no memory, and one that comes back goes on where it was.
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Set
from itertools import islice
from typing import Protocol

from plait.errors import PlaitError
from plait.ids import LogId, inbox_of
from plait.server.live_shapes import NewsRow, ResetShape
from plait.session.appending import WORK_BELL
from plait.session.listing import session_row
from plait.store import Store

BATCH = 500  # rows that are read, and sent, at once
KEPT = 5_000  # rows that are kept for listeners
FAST_S, SLOW_S = 0.05, 0.25  # between two looks, after news and without any
RETRY_S = 1.0  # after a look that failed
_ALL = 2**31


class FeedSource(Protocol):
    """Something else to look at while somebody listens. It is called in the thread of the feed."""

    def look(self, kinds: Set[str]) -> bool:
        """Look once, after events of these kinds. True: there was something new."""
        ...


class NewsOwners:
    """The sessions that inboxes belong to: the id of an inbox follows from that of its session."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[LogId, LogId] = {}

    def session_of(self, log: LogId) -> LogId | None:
        """Return the session that a log is, or is the inbox of. None: neither."""
        found = self._known.get(log)
        if found is None:
            found = log if session_row(self._store, log) else self._owner_of(log)
            if found is not None:
                self._known[log] = found
        return found

    def _owner_of(self, log: LogId) -> LogId | None:
        rows = self._store.rows("session", "session", limit=_ALL)
        for row in rows:
            session = LogId(str(row["log"]))
            self._known.setdefault(inbox_of(session), session)
        return self._known.get(log)


class Feed:
    """The feed of one store, for any number of listeners on one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._owners = NewsOwners(store)
        self._kept: deque[NewsRow] = deque(maxlen=KEPT)
        self._first = 0  # rows after this number are among the kept ones, or not there
        self._listeners: set[FeedListener] = set()
        self._guard = threading.Lock()
        self._ended: threading.Event | None = None  # of the thread that reads; None: there is none
        self._sources = list[FeedSource]()
        self.looks = 0  # how often the store was looked at
        self.error = ""  # of the last look; "": it went well

    @property
    def is_over(self) -> bool:
        """True if the store is gone: a listener that comes back is told so."""
        return self._store.is_closed

    def add_source(self, source: FeedSource) -> None:
        """Look at this, too, while somebody listens."""
        self._sources.append(source)

    def listen(self, after: int | None) -> FeedListener:
        """Return a new listener, which is given everything after a number. None: from now on.

        One that has heard more than the store has is told so, and begins at the store's number.
        """
        now = self._store.number
        listener = FeedListener(self, asyncio.get_running_loop(), now if after is None else after)
        if listener.number > now:
            listener.reset(now)
        with self._guard:
            self._listeners.add(listener)
            if self._ended is None:
                self._ended = threading.Event()
                self._kept.clear()
                self._first = now
                thread = threading.Thread(
                    target=self._read, args=(self._ended, self._first), name="plait-feed"
                )
                thread.daemon = True
                thread.start()
        return listener

    def leave(self, listener: FeedListener) -> None:
        """Take a listener off; with the last one, the store is not looked at any more."""
        with self._guard:
            self._listeners.discard(listener)
            if not self._listeners and self._ended is not None:
                self._ended.set()
                self._ended = None

    def tell(self, event: str, data: bytes) -> None:
        """Send all listeners something that is not on record. It is called from any thread."""
        for listener in self._all_listeners():
            listener.call(lambda listener=listener: listener.add(event, data))

    def rows_after(self, number: int) -> list[NewsRow]:
        """Return the rows after a number, at most a batch of them; from the store if need be."""
        with self._guard:
            first, rows = self._first, list(self._kept) if number >= self._first else []
        if number >= first:
            at = bisect_right(rows, number, key=lambda row: row.number)
            return rows[at : at + BATCH]
        return self._read_rows(number)

    def _all_listeners(self) -> list[FeedListener]:
        with self._guard:
            return list(self._listeners)

    def _read_rows(self, after: int) -> list[NewsRow]:
        found = islice(self._store.feed(after, limit=BATCH), BATCH)
        return [
            NewsRow(number, event.log, event.seq, event.kind, self._owners.session_of(event.log))
            for number, event in found
        ]

    def _read(self, ended: threading.Event, last: int) -> None:
        """Read what is new until nobody listens any more."""
        bell = self._store.listen(WORK_BELL)
        try:
            wait_s = FAST_S
            while not ended.is_set():
                bell.wait(wait_s)
                if ended.is_set():
                    return
                is_new, last = self._look(ended, last)
                wait_s = FAST_S if is_new else min(wait_s * 1.5, SLOW_S)
                if self.error:
                    wait_s = RETRY_S
        finally:
            bell.close()

    def _look(self, ended: threading.Event, last: int) -> tuple[bool, int]:
        self.looks += 1
        kinds = set[str]()
        if self._store.is_closed:
            self.error = "the store is gone"
            for listener in self._all_listeners():
                listener.call(listener.wake)
            return False, last
        try:
            while rows := self._read_rows(last):
                self.error = ""  # before a listener wakes, and asks
                last = rows[-1].number
                kinds.update(row.kind for row in rows)
                with self._guard:
                    if ended.is_set():  # another thread reads by now
                        return False, last
                    dropped = len(self._kept) + len(rows) - KEPT
                    if dropped > 0:
                        self._first = self._kept[dropped - 1].number
                    self._kept.extend(rows)
                for listener in self._all_listeners():
                    listener.call(listener.wake)
                if len(rows) < BATCH:
                    break
            last = last if kinds else self._begin_again(ended, last)
            self.error = ""
        except PlaitError as error:  # the store is away: it is looked at again
            self.error = error.record_text
        is_new = [source.look(kinds) for source in self._sources]
        return bool(kinds) or any(is_new), last

    def _begin_again(self, ended: threading.Event, last: int) -> int:
        """Return the number to go on from. If the store ends before the last one, as after a
        restore from a backup, listeners are told so.
        """
        number = self._store.number
        if number >= last:
            return last
        with self._guard:
            if ended.is_set():
                return last
            self._kept.clear()
            self._first = number
        for listener in self._all_listeners():
            listener.call(lambda listener=listener: listener.reset(number))
        return number


class FeedListener:
    """One listener of a feed: the number up to which it has heard, and a flag to wake it."""

    MESSAGES = 1_000  # that are not on record, and wait; older ones are dropped

    def __init__(self, feed: Feed, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._feed, self._loop = feed, loop
        self.number = number
        self._news = asyncio.Event()
        self._reset: ResetShape | None = None
        self._messages: deque[tuple[str, bytes]] = deque(maxlen=self.MESSAGES)

    def call(self, do: Callable[[], object]) -> None:
        """Call something on the listener's event loop."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(do)

    def wake(self) -> None:
        self._news.set()

    def add(self, event: str, data: bytes) -> None:
        """Put a message that is not on record in its queue."""
        self._messages.append((event, data))
        self._news.set()

    def reset(self, number: int) -> None:
        """Go on from a number that is less than what was heard, and say so."""
        if self.number > number:
            self.number = number
            self._reset = ResetShape(number)
            self._news.set()

    def take_reset(self) -> ResetShape | None:
        """Return where the feed begins again, once. It is to be told before further rows."""
        found, self._reset = self._reset, None
        return found

    async def wait(self, timeout_s: float) -> bool:
        """Wait for something new. False: the time is over."""
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def take_messages(self) -> list[tuple[str, bytes]]:
        """Return the messages that wait, and have none any more."""
        found = list(self._messages)
        self._messages.clear()
        return found

    def take_rows(self) -> list[NewsRow]:
        """Return the next rows, and go on after them. It may read the store."""
        rows = self._feed.rows_after(self.number)
        if rows:
            self.number = rows[-1].number
        return rows

    def close(self) -> None:
        self._feed.leave(self)
