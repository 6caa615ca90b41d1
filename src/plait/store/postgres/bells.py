"""Bells between machines: NOTIFY and LISTEN of the server, a channel per store and topic.

A ring is sent by a thread of its own, so that no caller waits for the server, and a topic at most
once in a hundredth of a second: all notifications of a server pass one lock. A
second thread listens, for all bells of the process, on a connection of its own. It is there from
the first `listen` until the last bell is closed. If it breaks, it is made anew, and all bells ring,
since one may have been lost. The connection also has the lock of a holder of runs (`locks.py`): it
says that the process lives, should the connection of its heartbeat end.

Behind a pooler that lends connections per transaction no connection can listen: there bells ring
inside their own process alone.
"""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress

import psycopg

from plait.errors import PlaitError, StoreClosed
from plait.ids import LogId, digest
from plait.store.local_bells import LocalBell, LocalBells
from plait.store.postgres.connections import ServerConnection, ServerConnections
from plait.store.process import STORES

RING_S = 0.01  # between two rings of a topic
_IDLE_S = 5.0  # a thread with nothing to send ends after so long
_LISTEN_WAIT_S = 5.0  # for a server that is slow; later, the bell rings when it is heard
_FLUSH_S = 1.0  # for rings that are on their way when the program or the store ends
_AGAIN_S = (0.1, 1.0)  # between attempts to connect, first and later
_FORK_WAIT_S = 10.0

_NOTIFY = """
WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
SELECT pg_notify(channel, '') FROM lazy, unnest($1::text[]) AS channel"""


class ServerBells:
    """The bells of one store in this process."""

    def __init__(self, connections: ServerConnections, id: LogId) -> None:
        self._connections, self._id = connections, id
        self._local = LocalBells(self._poke)
        self._start()
        STORES.add(self)

    def _start(self) -> None:
        """Begin without threads."""
        self._guard = threading.Lock()
        self._change = threading.Condition(self._guard)
        self._due: dict[str, float] = {}  # topics to be sent, and when
        self._sent_at: dict[str, float] = {}
        self._sender: threading.Thread | None = None
        self._is_sending = self._is_closed = False
        self._listener: _Listener | None = None
        self._is_deaf = False  # a pooler stands between
        self.holder_key: int | None = None  # of the lock that says that this process lives

    # ── to ring ──────────────────────────────────────────────────────────────────────────────

    def ring(self, topic: str) -> None:
        if self._is_deaf:
            self._local.ring(topic)
        with self._guard:
            if self._is_closed or topic in self._due:
                return
            self._due[topic] = self._sent_at.get(topic, 0.0) + RING_S
            if self._sender is None:
                sender = threading.Thread(target=self._send, name="plait-ring", daemon=True)
                with suppress(RuntimeError):  # the program is ending
                    sender.start()
                    self._sender = sender
            self._change.notify_all()

    def _send(self) -> None:
        while topics := self._next_topics():
            channels = [self._channel(topic) for topic in topics]
            # The bell is lost if the server is away for long, or takes none: a standby.
            with suppress(PlaitError, psycopg.Error):
                self._connections.run(lambda db, to=channels: db.run(_NOTIFY, to))
            with self._guard:
                self._is_sending = False
                self._change.notify_all()

    def _next_topics(self) -> list[str]:
        """Wait for topics that are due. Without any for long it returns none: the thread ends."""
        with self._guard:
            while True:
                now = time.monotonic()
                if topics := [topic for topic, at in self._due.items() if at <= now]:
                    self._is_sending = True
                    kept = {topic: at for topic, at in self._sent_at.items() if at > now - RING_S}
                    self._sent_at = kept | dict.fromkeys(topics, now)
                    for topic in topics:
                        del self._due[topic]
                    return topics
                if self._due:
                    self._change.wait(min(self._due.values()) - now)
                elif not self._change.wait(_IDLE_S) and not self._due:
                    self._sender = None
                    return []

    def _flush(self) -> None:
        """Wait a moment for rings that are on their way."""
        with self._guard:
            if self._sender is not None and self._sender.is_alive():
                self._change.wait_for(lambda: not self._due and not self._is_sending, _FLUSH_S)

    def _channel(self, topic: str) -> str:
        return "plait_" + digest(b"plait/bell/1", f"{self._id}/{topic}".encode())[:40]

    # ── to listen ────────────────────────────────────────────────────────────────────────────

    def listen(self, topic: str) -> LocalBell:
        if self._connections.is_closed:
            raise StoreClosed(self._connections.address)
        bell = self._local.listen(topic)
        channel = self._channel(topic)
        with self._guard:
            if self._is_deaf:
                return bell
            listener = self._listener
            if listener is None:
                listener = self._listener = _Listener(self._connections, self)
                listener.start()
            listener.poke()
            self._change.wait_for(
                lambda: self._is_deaf or listener.is_away or channel in listener.channels,
                _LISTEN_WAIT_S,
            )
        return bell

    def wanted_channels(self) -> dict[str, str]:
        """Return the topics that are listened for, by channel."""
        return {self._channel(topic): topic for topic in self._local.topics()}

    def take_key(self, key: int | None) -> None:
        """Have the lock with this key on the connection that listens, as long as there is one."""
        with self._guard:
            self.holder_key = key
            if self._listener is not None:
                self._listener.poke()

    def ring_here(self, topic: str) -> None:
        self._local.ring(topic)

    def tell_change(self) -> None:
        """Wake the threads that wait in `listen`: the listener has got on, or cannot."""
        with self._guard:
            self._change.notify_all()

    def become_deaf(self) -> None:
        with self._guard:
            self._is_deaf, self._listener = True, None
            self._change.notify_all()

    def end_listener(self, listener: _Listener) -> bool:
        """True if no bell is left: then the listener ends, and the next bell gets another one."""
        with self._guard:
            if self._listener is not listener or not self._local.topics():
                self._listener = None if self._listener is listener else self._listener
                return True
            return False

    def close_pipe(self, listener: _Listener) -> None:
        with self._guard:
            listener.close_pipe()

    def _poke(self) -> None:
        with self._guard:
            if self._listener is not None:
                self._listener.poke()

    def close(self) -> None:
        self._flush()
        with self._guard:
            self._is_closed = True
        self._local.close()

    # ── forks ────────────────────────────────────────────────────────────────────────────────

    def freeze(self) -> None:
        """Wait for a connection that is being made: the child could not close it."""
        self._guard.acquire()
        if self._listener is not None:
            self._listener.freeze()

    def thaw(self) -> None:
        if self._listener is not None:
            self._listener.thaw()
        self._guard.release()

    def start_over(self) -> None:
        if self._listener is not None:
            self._listener.forget()
        is_closed = self._is_closed
        self._start()
        self._is_closed = is_closed
        self._local.start_over()

    def sync_at_exit(self) -> None:
        self._flush()


class _Listener:
    """The thread that listens, with its connection."""

    def __init__(self, connections: ServerConnections, bells: ServerBells) -> None:
        self._connections, self._bells = connections, bells
        self._poked, self._poking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._connecting = threading.Lock()  # taken while a connection is made
        self._is_frozen = False
        self._line: ServerConnection | None = None
        self._key: int | None = None  # of the lock that the connection has
        self.channels: dict[str, str] = {}  # that the connection listens to, with their topics
        self.is_away = False  # the server does not answer

    def start(self) -> None:
        thread = threading.Thread(target=self._run, name="plait-listen", daemon=True)
        with suppress(RuntimeError):  # the program is ending
            thread.start()

    def poke(self) -> None:
        """Have the thread look at its topics."""
        if self._poking >= 0:
            with suppress(BlockingIOError):
                os.write(self._poking, b"\0")

    def close_pipe(self) -> None:
        for handle in (self._poked, self._poking):
            if handle >= 0:
                os.close(handle)
        self._poked = self._poking = -1

    def freeze(self) -> None:
        self._is_frozen = self._connecting.acquire(timeout=_FORK_WAIT_S)

    def thaw(self) -> None:
        if self._is_frozen:
            self._is_frozen = False
            self._connecting.release()

    def forget(self) -> None:
        """Close all in a forked child; the server hears nothing of it."""
        if self._line is not None:
            self._line.forget()
        self.close_pipe()

    def _run(self) -> None:
        again_s = 0.0
        try:
            while not self._bells.end_listener(self):
                try:
                    if self._line is None and not self._connect():
                        return
                    self._listen()
                    again_s = 0.0
                    self._wait()
                except (PlaitError, psycopg.Error):
                    self._drop_line()
                    again_s = min(max(again_s * 2, _AGAIN_S[0]), _AGAIN_S[1])
                    self._sleep(again_s)
        finally:
            self._drop_line()
            self._bells.close_pipe(self)

    def _connect(self) -> bool:
        """Open the connection. False: a pooler stands between."""
        with self._connecting:
            line = self._line = self._connections.connect()
        if line.facts.is_pooled:
            self._bells.become_deaf()
            return False
        line.call_on_bell(self._hear)
        return True

    def _hear(self, channel: str) -> None:
        if (topic := self.channels.get(channel)) is not None:
            self._bells.ring_here(topic)

    def _listen(self) -> None:
        """Listen to the channels of all bells, and to no others; have the lock that is wanted."""
        line, wanted = self._line, self._bells.wanted_channels()
        assert line is not None
        if (key := self._bells.holder_key) is not None and key != self._key:
            line.run_script(f"SELECT pg_try_advisory_lock_shared({key})")
            self._key = key
        added = wanted.keys() - self.channels.keys()
        for channel in added:
            line.run_script(f"LISTEN {channel}")
        for channel in self.channels.keys() - wanted.keys():
            line.run_script(f"UNLISTEN {channel}")
        was_away, self.is_away, self.channels = self.is_away, False, wanted
        if was_away:  # a bell may have been lost meanwhile
            for topic in wanted.values():
                self._bells.ring_here(topic)
        if added:
            self._bells.tell_change()

    def _wait(self) -> None:
        """Wait for news of the server, or of this process."""
        line = self._line
        assert line is not None
        poll = select.poll()
        poll.register(line.socket, select.POLLIN)
        poll.register(self._poked, select.POLLIN)
        found = [handle for handle, _ in poll.poll()]
        if self._poked in found:
            self._take_pokes()
        if line.socket in found:
            line.read_bells()

    def _sleep(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._poked, select.POLLIN)
        if poll.poll(seconds * 1000):
            self._take_pokes()

    def _take_pokes(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._poked, 4096)

    def _drop_line(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()
        self._key, self.channels, self.is_away = None, {}, True
        self._bells.tell_change()
