"""Run locks beyond one machine: a process is a holder, with a lease on the server's clock.

A holder has one row, and one row for each run that it has. A heartbeat renews its lease, and with
it all its runs. A holder whose lease is over has lost its runs: a partition ends them in that time.
Whoever takes a run of such a holder removes its row in the same statement, and a heartbeat asks
afterwards which runs are left: so a holder that wakes up knows what it has lost.

`kill -9` ends them at once. The heartbeat's connection has an advisory lock of the server, which
the server frees with the connection; a holder without it is gone, whatever its lease says. The lock
is a shared one: a process that listens for bells has it on that connection, too, so that the end of
one connection does not look like the end of the process. Its key has the start of the server in it:
a server that was restarted or promoted has no locks yet, and their absence means nothing until the
holder is back. Behind a pooler that lends connections per transaction such a lock means nothing:
there the lease alone decides.

A lock only says who may work on a run. Who did is said by epochs: a holder that was replaced writes
nothing more.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import psycopg

from plait.errors import PlaitError, RunHeld
from plait.ids import digest
from plait.store.moment import SeenRun
from plait.store.postgres.connections import ServerConnection, ServerConnections
from plait.store.postgres.hold_statements import (
    BEAT,
    GONE,
    HOLDER,
    LEAVE,
    OWN_KEY,
    RELEASE,
    RENEW,
    RUNS,
    TAKE,
    TAKE_FIRST,
    TAKEN,
)
from plait.store.postgres.wire import pack_byteas, pack_int8s
from plait.store.process import STORES
from plait.store.records import to_bytes

LEASE_S = 45.0  # unless PLAIT_STORE_LEASE_S says otherwise; a third of it is between heartbeats
_LOOK_S = 1.0  # between looks if the connection of the heartbeat is cut
_LINE_WAIT_S = 2.0  # for a heartbeat that waits for the server


class HolderWitness(Protocol):
    """A second connection of this process, which says that the process lives."""

    def take_key(self, key: int | None) -> None:
        """Have the shared lock with this key on that connection, if there is one. None: none."""
        ...


class RunLocks:
    """The runs that this process has, in one store."""

    def __init__(self, connections: ServerConnections, schema: str, witness: HolderWitness) -> None:
        self._connections, self._schema, self._witness = connections, schema, witness
        self._lease_s = float(os.environ.get("PLAIT_STORE_LEASE_S") or LEASE_S)
        self._start()
        STORES.call_in_child(self._start_in_child)

    def _start_in_child(self) -> None:
        """Begin without runs, and without the parent's connection: it ends with the parent."""
        if self._line is not None:
            self._line.forget()
        self._start()

    def _start(self) -> None:
        """Begin without runs."""
        # Never held while the server is asked: a server that is away stalls no other thread.
        self._guard = threading.RLock()
        self._turn = threading.Lock()  # of threads that take the first of many runs
        self._holder: bytes | None = None  # None: this process has no row, or gives it up
        self._runs: dict[bytes, object] = {}  # each with a token of its own: it may be taken again
        self._wanted: set[bytes] = set()  # runs that are being taken
        self._released: set[bytes] = set()  # runs whose rows are not removed yet
        self._lease_until = 0.0  # by this process's own clock, which is behind the server's
        self._stop = threading.Event()
        # Of the connection of the heartbeat. It is taken before the guard, if both are needed.
        self._line_lock = threading.RLock()
        self._line: ServerConnection | None = None
        self._row: bytes | None = None  # the holder whose row is written by it
        self._advisory: int | None = None  # the lock that it has; None: the lease decides

    def take(self, run: str, session: str) -> RunHold:
        name = _name_of(run)
        with self._turn, self._guard:
            if name in self._runs or name in self._wanted:
                raise RunHeld(session, run, f"this process, {os.getpid()}")
            self._wanted.add(name)
        try:
            if name in self._released:
                self._take_back(name)
            holder = self._standing_holder()
            taken = self._connections.run(lambda db, by=holder: self._take(db, name, by))
            with self._guard:
                token = object()
                if taken is None:
                    self._runs[name] = token
        except BaseException:
            with self._guard:  # the answer that it was taken may have been lost
                self._released.add(name)
            raise
        else:
            if taken is not None:
                raise RunHeld(session, run, taken)
            return RunHold(self, name, token)
        finally:
            with self._guard:
                self._wanted.discard(name)
            if self._connections.is_closed:
                self.close()

    def take_first(
        self, runs: Sequence[str], seen: Mapping[str, SeenRun] | None = None
    ) -> tuple[str, RunHold] | None:
        """Take the first of these runs that no holder has, by one statement."""
        asked = {_name_of(run): run for run in runs}
        marks = seen or {}
        # A row says which process has a run, and not which thread: so these take turns.
        with self._turn:
            with self._guard:
                others = self._runs.keys() | self._wanted | self._released
                names = [name for name in asked if name not in others]
                self._wanted.update(names)
            try:
                name = self._take_one_of(names, [marks.get(asked[n]) for n in names])
                if name is None:
                    return None
                token = object()
                with self._guard:
                    self._runs[name] = token
                return asked[name], RunHold(self, name, token)
            except BaseException:
                with self._guard:  # the answer that one was taken may have been lost
                    self._released.update(names)
                raise
            finally:
                with self._guard:
                    self._wanted.difference_update(names)
                if self._connections.is_closed:
                    self.close()

    def free_runs(self, runs: Collection[str]) -> set[str]:
        asked = {_name_of(run): run for run in runs}
        if not asked:
            return set()
        sql, names = self._sql(TAKEN), list(asked)
        taken = {name for (name,) in self._connections.run(lambda db: db.rows(sql, names))}
        return {asked[name] for name in asked.keys() - taken if self.is_lost(name)}

    def _take_one_of(self, names: Sequence[bytes], marks: Sequence[SeenRun | None]) -> bytes | None:
        if not names:
            return None
        sql = self._sql(TAKE_FIRST).encode()
        values = [
            pack_byteas(names),
            self._standing_holder(),
            self._schema.encode(),
            pack_byteas([None if mark is None else to_bytes(mark.log) for mark in marks]),
            pack_int8s([0 if mark is None else mark.number for mark in marks]),
        ]
        while True:
            found = self._connections.run(lambda db: db.run_prepared(b"take_first", sql, values))
            if not found.ntuples:
                return None
            if (name := found.get_value(0, 0)) is not None:
                return name
            # Another holder has committed while the statement ran: the next one sees it.

    def _standing_holder(self) -> bytes:
        """Return the holder that this process is, with a lease that is not over."""
        holder = self._holder
        if holder is None or time.monotonic() > self._lease_until:
            holder = self._connections.run(self._become_holder)
        return holder

    def release(self, name: bytes, token: object) -> None:
        with self._guard:
            # else it was lost, and another thread may have taken it again
            if self._runs.get(name) is token:
                del self._runs[name]
                if self._holder is not None:
                    self._released.add(name)
        # On the connection of the heartbeat: the store may be closed. If the heartbeat waits for a
        # server that is away, it removes the row when it is back, or the lease ends by itself.
        if name in self._released and self._line_lock.acquire(timeout=_LINE_WAIT_S):
            try:
                self._remove_released()
            finally:
                self._line_lock.release()
        if self._connections.is_closed:
            self.close()

    def is_taken(self, run: str) -> bool:
        name = _name_of(run)
        sql = self._sql(HOLDER)
        return self._connections.run(lambda db: db.row(sql, name)) is not None

    def has(self, name: bytes, token: object) -> bool:
        """True if this process has not released the run, and was not told that it lost it."""
        return self._runs.get(name) is token

    def is_lost(self, name: bytes) -> bool:
        """True if the lease of this process is over: another process may have taken the run."""
        return name not in self._runs or time.monotonic() > self._lease_until

    def close(self) -> None:
        """Let go of everything when the last run is released: a lock outlives a closed store."""
        with self._guard:
            if self._holder is None or self._runs or self._wanted:
                return
            self._holder = None
            self._stop.set()
        # Else the heartbeat has it, and does the same when it ends.
        if self._line_lock.acquire(timeout=_LINE_WAIT_S):
            try:
                self._drop_line()
            finally:
                self._line_lock.release()

    def _take_back(self, name: bytes) -> None:
        """See to it that the row of a released run is gone, or is ours for good."""
        with self._line_lock:
            self._remove_released()
            with self._guard:
                self._released.discard(name)

    def _remove_released(self) -> None:
        """Remove the rows of released runs, on the connection of the heartbeat."""
        with self._guard:
            left, holder = tuple(self._released), self._row
        if holder is None:
            return
        for name in left:
            try:
                if self._line is None or self._line.has_news():
                    self._beat(holder)
                assert self._line is not None
                self._line.run_prepared(b"release", self._sql(RELEASE).encode(), [name, holder])
            except (PlaitError, psycopg.Error):
                return
            with self._guard:
                self._released.discard(name)

    def _drop_line(self) -> None:
        """Remove the row of this process, and close the connection of the heartbeat."""
        if self._line is not None:
            if self._row is not None:
                with suppress(psycopg.Error):
                    self._line.run(self._sql(LEAVE), self._row)
            self._line.close()
        self._line = self._row = self._advisory = None
        with self._guard:
            self._released.clear()

    def _take(self, db: ServerConnection, name: bytes, holder: bytes) -> str | None:
        """Take a run. Returns the name of the holder that has it; None: it is ours."""
        if db.get(self._sql(TAKE), name, holder) is not None:
            return None
        row = db.row(self._sql(HOLDER), name)
        if row is None or row[1] == holder:  # it was let go of meanwhile, or we took it before
            return None if row is not None else self._take(db, name, holder)
        return row[0]

    def _become_holder(self, db: ServerConnection) -> bytes:
        """Make the row of this process, and begin to renew its lease."""
        new: bytes = db.get("SELECT uuid_send(gen_random_uuid())")
        with self._line_lock:
            holder = self._holder
            if holder is None:
                return self._begin_lease(new)
            if time.monotonic() > self._lease_until:  # others may have removed the row
                self._beat(holder)
            return holder

    def _begin_lease(self, holder: bytes) -> bytes:
        if self._row is not None:  # of a lease that was given up
            self._drop_line()
        self._beat(holder)
        stop = threading.Event()
        with self._guard:
            self._holder, self._stop = holder, stop
        beats = threading.Thread(
            target=self._keep_alive, args=(holder, stop), name="plait-lease", daemon=True
        )
        beats.start()
        return holder

    def _keep_alive(self, holder: bytes, stop: threading.Event) -> None:
        beat_s = self._lease_s / 3
        due = time.monotonic() + beat_s
        while not stop.wait(min(_LOOK_S, beat_s)):
            if time.monotonic() < due and not self._is_cut():
                continue
            with self._line_lock:
                if stop.is_set() or self._row != holder:
                    break
                # The server may be away: the next look tries again, and the lease runs out.
                with suppress(PlaitError, psycopg.Error):
                    self._beat(holder)
                    self._remove_released()
                    due = time.monotonic() + beat_s
        with self._line_lock:
            if self._row == holder:
                self._drop_line()

    def _is_cut(self) -> bool:
        """True if the connection of the heartbeat broke, or has no lock yet."""
        line = self._line
        if line is None or line.has_news():  # nothing was asked: the server ended it
            return True
        return self._advisory is None and not line.facts.is_pooled

    def _beat(self, holder: bytes) -> None:
        """Renew the lease, on the connection that has the advisory lock."""
        begun = time.monotonic()
        if not self._renew(holder):
            self._write_row(holder)
        self._lease_until = begun + self._lease_s

    def _renew(self, holder: bytes) -> bool:
        """Renew the lease by one statement. False: the row has to be written anew."""
        line = self._line
        if line is None or (self._advisory is None and not line.facts.is_pooled):
            return False
        asked_s = time.monotonic()
        try:
            row = line.row(self._sql(RENEW), holder, self._lease_s)
        except psycopg.Error:
            self._lose_line()
            return False
        if row is not None:
            self._connections.clock.take(row[0], asked_s, time.monotonic())
        return row is not None

    def _write_row(self, holder: bytes) -> None:
        """Write the row of this process, and see which runs it still has."""
        with self._guard:
            before = dict(self._runs)
        if self._line is None:
            self._line = self._connections.connect()
        line = self._line
        try:
            if self._advisory is None and not line.facts.is_pooled:
                row = line.row(OWN_KEY, holder)
                self._advisory = row[0] if row is not None and row[1] else None
                self._witness.take_key(self._advisory)
            name = f"process {os.getpid()} on {socket.gethostname()}"
            line.run(self._sql(BEAT), holder, name, self._lease_s, self._advisory)
            self._row = holder
            # Afterwards: who takes a run from us ends before the heartbeat, or comes too late.
            found = {run for (run,) in line.rows(self._sql(RUNS), holder)}
            line.run(self._sql(GONE))
        except psycopg.Error:
            self._lose_line()
            raise
        with self._guard:
            for run in before.keys() - found:
                if self._runs.get(run) is before[run]:
                    del self._runs[run]

    def _lose_line(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = self._advisory = None

    def _sql(self, text: str) -> str:
        return text.replace("{s}", self._schema)


class RunHold:
    """A run that this process has."""

    def __init__(self, locks: RunLocks, name: bytes, token: object) -> None:
        self._locks, self._name, self._token = locks, name, token
        self._is_released = False

    def release(self) -> None:
        self._is_released = True
        self._locks.release(self._name, self._token)

    @property
    def was_taken(self) -> bool:
        """True if a heartbeat found that another process has the run."""
        return not self._is_released and not self._locks.has(self._name, self._token)

    @property
    def is_lost(self) -> bool:
        """True if another process may have the run by now."""
        return self.was_taken or self._locks.is_lost(self._name)


def _name_of(run: str) -> bytes:
    return bytes.fromhex(digest(b"plait/hold/1", run.encode()))
