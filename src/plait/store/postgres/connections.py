"""The connections of one process to one database server: a few, lent to one thread at a time.

A piece of work gets a connection, and may be run again: if the connection breaks, or the server
restarts or fails over, `run` waits for the server and repeats the work on another one. So work must
be safe to repeat. An append is: the very same events a second time change nothing.

A fork waits until no connection is lent. The child closes the sockets and nothing else: a polite
goodbye would end the sessions of the parent.
"""

from __future__ import annotations

import math
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import generators, pq, waiting
from psycopg.adapt import Transformer
from psycopg.conninfo import make_conninfo

from plait.errors import (
    BadSettings,
    PlaitError,
    StoreBusy,
    StoreClosed,
    StoreDenied,
    StoreReplaced,
    StoreUnreachable,
)
from plait.store.postgres.address import PASSWORDS, PostgresAddress
from plait.store.postgres.faults import (
    check_encryption,
    check_server,
    is_collision,
    is_lost,
    refused_connection,
    refused_statement,
    unknown_outcome,
)
from plait.store.postgres.refusals import ask_refusal
from plait.store.postgres.server_clock import ServerClock
from plait.store.postgres.server_facts import FACTS, IDLE_S, ServerFacts, long_limit
from plait.store.process import STORES

T = TypeVar("T")

WAIT_S = 60.0  # for a server that is away, unless PLAIT_STORE_WAIT_S says otherwise
CONNECTIONS_MAX = 8  # unless PLAIT_STORE_CONNECTIONS says otherwise
_BUSY_S = 30.0  # a thread waits this long for a connection
_FORK_WAIT_S = 10.0
LOOK_S = 0.2  # how often a thread that waits for an answer looks for signals
_IDLE_MAX = 1  # connections that are kept when nothing happens, beside that of the heartbeat
_IDLE_S = 30.0
_COLLISIONS_MAX = 20  # deadlocks and the like in a row, before it is said

_DEFAULTS = {
    "fallback_application_name": "plait",  # PGAPPNAME says another
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class ServerConnection:
    """One connection. Statements have `$1` for values; values and answers travel in binary form."""

    def __init__(self, connection: psycopg.Connection[Any], facts: ServerFacts) -> None:
        self._connection, self.pgconn = connection, connection.pgconn
        self.prepared: set[bytes] = set()
        self._transformer = Transformer(connection)
        self.facts = facts
        self.used_at = 0.0

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._execute(sql, values).fetchall()

    def row(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        return self._execute(sql, values).fetchone()

    def get(self, sql: str, *values: Any) -> Any:
        row = self.row(sql, *values)
        return None if row is None else row[0]

    def run(self, sql: str, *values: Any) -> int:
        """Run a statement, and return how many rows it changed."""
        return self._execute(sql, values).rowcount

    def run_script(self, sql: str) -> None:
        """Run statements that have no values, one after another.

        The driver does not see them: after a ROLLBACK it would drop all prepared statements.
        """
        self.pgconn.send_query(sql.encode())
        self.result()

    def run_prepared(
        self, name: bytes, sql: bytes, values: Sequence[bytes | None]
    ) -> pq.abc.PGresult:
        """Run a statement of the hot path: prepared once per connection, values already in binary
        form, and nothing between this call and the driver's library.
        """
        formats, pgconn = [1] * len(values), self.pgconn
        if self.facts.is_pooled:  # the next transaction may be on another session of the server
            pgconn.send_query_params(sql, values, None, formats, 1)
        else:
            if name not in self.prepared:
                pgconn.send_prepare(name, sql)
                self.result()
                self.prepared.add(name)
            pgconn.send_query_prepared(name, values, formats, 1)
        return self.result()

    def load(
        self, result: pq.abc.PGresult, oids: Sequence[int], make_row: Callable[[Sequence[Any]], T]
    ) -> list[T]:
        """Return the rows of a result, whose columns are read by these types: text may be kept as
        bytes.
        """
        self._transformer.set_pgresult(result, set_loaders=False)
        self._transformer.set_loader_types(oids, pq.Format.BINARY)
        return self._transformer.load_rows(0, result.ntuples, make_row)

    def copy(self, sql: str, chunks: Iterable[bytes]) -> None:
        """Bring in rows, in the binary form of COPY."""
        with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
            for chunk in chunks:
                copy.write(chunk)

    @contextmanager
    def transaction(self, begin: str = "BEGIN") -> Generator[None]:
        idle = f"SET LOCAL idle_in_transaction_session_timeout = {int(IDLE_S * 1000)}"
        self.run_script(f"{begin}; {idle}{long_limit(self.facts)}")
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):
                self.run_script("ROLLBACK")
            raise
        self.run_script("COMMIT")

    def stream(self, sql: str, values: Sequence[Any], size: int) -> Generator[list[Any]]:
        """Yield the rows of a query in pages, inside a transaction, by a cursor of the server."""
        with psycopg.RawServerCursor(self._connection, "pages") as cursor:
            cursor.execute(sql.encode(), values, binary=True)
            while page := cursor.fetchmany(size):
                yield page

    @property
    def is_idle(self) -> bool:
        return self.pgconn.transaction_status == pq.TransactionStatus.IDLE

    @property
    def socket(self) -> int:
        return self.pgconn.socket

    def has_news(self) -> bool:
        """True if the server has said something that nobody asked for, such as goodbye."""
        try:
            return bool(select.select([self.socket], [], [], 0)[0])
        except (OSError, ValueError, psycopg.Error):
            return True

    def call_on_bell(self, heard: Callable[[str], None]) -> None:
        """Have the channel of each NOTIFY that arrives passed on."""
        self._connection.add_notify_handler(lambda notify: heard(notify.channel))

    def read_bells(self) -> None:
        """Read what the server has sent by itself. Raises if it has ended the connection."""
        self.pgconn.consume_input()
        while (notify := self.pgconn.notifies()) is not None:
            if self.pgconn.notify_handler is not None:
                self.pgconn.notify_handler(notify)

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._connection.close()

    def forget(self) -> None:
        """Close the socket and nothing else, in a forked child: the connection is the parent's."""
        with suppress(OSError, psycopg.Error):
            os.close(self.socket)
        _INHERITED.append(self)

    def _execute(self, sql: str, values: Sequence[Any]) -> psycopg.Cursor[Any]:
        return self._connection.execute(
            sql.encode(), values, prepare=not self.facts.is_pooled, binary=True
        )

    def result(self) -> pq.abc.PGresult:
        """Wait for the answer to a statement that was sent, and check it.

        The library's own call would not see Ctrl-C until the server has answered.
        """
        pgconn = self.pgconn
        results = waiting.wait(generators.execute(pgconn), pgconn.socket, LOOK_S)
        for result in results:
            self.check_result(result)
        return results[-1]

    def check_result(self, result: pq.abc.PGresult) -> None:
        if result.status in _GOOD:
            return
        if self.pgconn.status == pq.ConnStatus.BAD:
            message = self.pgconn.error_message.decode(errors="replace")
            raise psycopg.OperationalError(_text(message))
        raise psycopg.errors.error_from_result(result)


class ServerConnections:
    """`run(work)` runs work on a connection that no other thread has meanwhile."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address.text
        self._driver_address = address.driver_address
        said = dict(address.options)
        self._defaults = {name: each for name, each in _DEFAULTS.items() if name not in said}
        self._max = int(_setting("PLAIT_STORE_CONNECTIONS", CONNECTIONS_MAX, least=1))
        self.wait_s = _setting("PLAIT_STORE_WAIT_S", WAIT_S, least=0)
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._queue: deque[threading.Condition] = deque()  # threads that wait for a connection
        self._idle: list[ServerConnection] = []
        self._lent = 0
        self._frozen = False
        self._timer: threading.Timer | None = None
        self._identity: int | None = None  # of the server that the first connection led to
        self._was_primary = False
        self.clock = ServerClock()
        self.losses = 0  # connections that broke: answers kept from before may be of another server
        self.is_closed = False
        STORES.add(self)

    def run(self, work: Callable[[ServerConnection], T]) -> T:
        """Run work that may be repeated, until it has an answer or the server is away for long."""
        lost_at, collisions, is_cut = None, 0, False
        while True:
            has_begun = False
            try:
                db = self._take()
                has_begun = True
                return self._lend(db, work)
            except psycopg.Error as error:
                if is_collision(error) and collisions < _COLLISIONS_MAX:
                    collisions += 1
                    time.sleep(0.001 * collisions * (1 + os.getpid() % 7))
                    continue
                if not is_lost(error):
                    # what was cut off before may stand
                    refuse = unknown_outcome if is_cut else refused_statement
                    raise refuse(self.address, error) from error
                is_cut |= has_begun
                lost_at = self._wait(lost_at, error)
            except StoreDenied as error:
                if not is_cut or has_begun:
                    raise
                raise StoreUnreachable(self.address, error.why, self.wait_s) from error

    def _wait(self, lost_at: float | None, error: Exception) -> float:
        """Wait a moment for a server that is away; returns since when it is."""
        now = time.monotonic()
        if lost_at is None:  # an idle connection may be old: the next one is new
            self._drop_idle()
            return now
        if now - lost_at >= self.wait_s:
            why, is_new = _text(str(error)), self._identity is None
            raise StoreUnreachable(self.address, why, self.wait_s, is_new) from error
        time.sleep(min(0.05 + (now - lost_at) / 5, 1.0))
        return lost_at

    def _lend(self, db: ServerConnection, work: Callable[[ServerConnection], T]) -> T:
        is_whole = False
        try:
            found = work(db)
            is_whole = True
            return found
        except (PlaitError, psycopg.Error):
            is_whole = True  # if the connection is still good
            raise
        finally:
            # After any other error, such as an interrupt, an answer may still be on its way.
            self._give_back(db, is_whole and db.is_idle)

    def _take(self) -> ServerConnection:
        with self._lock:
            if self._queue or not self._is_free():
                self._wait_for_turn()
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self.connect()
        except BaseException:
            with self._lock:
                self._lent -= 1
                self._wake()
            raise

    def _wait_for_turn(self) -> None:
        """Wait until a connection is free, after those who came before."""
        until = time.monotonic() + _BUSY_S
        turn = threading.Condition(self._lock)
        self._queue.append(turn)
        try:
            while not (self._is_free() and self._queue[0] is turn):
                if not turn.wait(until - time.monotonic()):
                    why = f"had no connection free for {_BUSY_S:g} s (PLAIT_STORE_CONNECTIONS)"
                    raise StoreBusy(self.address, _BUSY_S, why)
        finally:
            self._queue.remove(turn)
            self._wake()

    def _is_free(self) -> bool:
        if self.is_closed:
            raise StoreClosed(self.address)
        return not self._frozen and (bool(self._idle) or self._lent < self._max)

    def _wake(self) -> None:
        """Let the next one look, and a fork that waits for all."""
        if self._frozen:
            self._change.notify_all()
        if self._queue:
            self._queue[0].notify()

    def connect(self) -> ServerConnection:
        """Open a connection, and check that the server behind it can be relied on."""
        given: dict[str, Any] = {**self._defaults}
        if (password := PASSWORDS.find(self.address)) is not None:
            given["password"] = password
        address = make_conninfo(self._driver_address, **given)
        try:
            connection = psycopg.connect(address, autocommit=True, cursor_factory=psycopg.RawCursor)
        except psycopg.Error as error:
            is_late = isinstance(error, psycopg.errors.ConnectionTimeout)
            refusal = None if is_late else ask_refusal(address)
            denied = refused_connection(self.address, error, refusal)
            raise denied or psycopg.OperationalError(_text(str(error))) from error
        try:
            check_encryption(self.address, connection.pgconn)
            asked_s = time.monotonic()
            asked = FACTS.encode(), [connection.pgconn.backend_pid]
            row = connection.execute(*asked, prepare=False, binary=True).fetchone()
            assert row is not None
            *said, process, identity, now, _ = row
            self.clock.take(now, asked_s, time.monotonic())
            is_pooled = process != connection.pgconn.backend_pid
            facts = ServerFacts._make([*said, is_pooled, identity])
            check_server(self.address, facts.version, facts.encoding, facts)
            self._check_same(facts)
        except BaseException:
            connection.close()
            raise
        connection.prepare_threshold = None if is_pooled else 5
        return ServerConnection(connection, facts)

    def _check_same(self, facts: ServerFacts) -> None:
        """Raise unless this is the server that was there before, and still takes writes."""
        if self._identity is None:
            self._identity = facts.identity
        if facts.identity != self._identity:
            raise StoreReplaced(self.address)
        # In the middle of a failover the address may lead to a standby that is not promoted yet.
        if self._was_primary and facts.is_standby:
            raise psycopg.OperationalError("the server is a standby, and was none before")
        self._was_primary = not facts.is_standby

    def _give_back(self, db: ServerConnection, is_good: bool) -> None:
        with self._lock:
            self._lent -= 1
            if is_good and not self.is_closed:
                db.used_at = time.monotonic()
                self._idle.append(db)
                if len(self._idle) > _IDLE_MAX and self._timer is None:
                    self._close_idle_later()
            else:
                self.losses += not is_good
                db.close()
            if self._queue or self._frozen:
                self._wake()

    def _drop_idle(self) -> None:
        with self._change:
            dropped, self._idle = self._idle, []
            self.losses += 1
        for db in dropped:
            db.close()

    def _close_idle_later(self) -> None:
        self._timer = threading.Timer(_IDLE_S, self._close_idle)
        self._timer.daemon = True
        with suppress(RuntimeError):  # the program is ending
            self._timer.start()

    def _close_idle(self) -> None:
        """Close connections that were not needed for a while, but for a few."""
        with self._change:
            self._timer = None
            old = time.monotonic() - _IDLE_S
            extra = [db for db in self._idle[:-_IDLE_MAX] if db.used_at <= old]
            self._idle = [db for db in self._idle if db not in extra]
            if len(self._idle) > _IDLE_MAX and not self.is_closed:
                self._close_idle_later()
        for db in extra:
            db.close()

    def close(self) -> None:
        with self._change:
            self.is_closed = True
            idle, self._idle = self._idle, []
            if self._timer is not None:
                self._timer.cancel()
            for turn in self._queue:
                turn.notify()
        for db in idle:
            db.close()

    # ── forks ────────────────────────────────────────────────────────────────────────────────

    def freeze(self) -> None:
        self._change.acquire()
        self._frozen = True
        until = time.monotonic() + _FORK_WAIT_S
        while self._lent and self._change.wait(until - time.monotonic()):
            pass

    def thaw(self) -> None:
        self._frozen = False
        self._wake()
        self._change.release()

    def start_over(self) -> None:
        """Go on in a forked child: its connections are the parent's."""
        for db in self._idle:
            db.forget()
        self._lock = threading.RLock()
        self._change, self._queue = threading.Condition(self._lock), deque()
        self._idle, self._lent, self._frozen, self._timer = [], 0, False, None
        self.losses += 1

    def sync_at_exit(self) -> None:
        """Do nothing: the server has what was sent, and syncs it by itself."""


# ServerConnections of a parent, in a forked child: kept, so that nothing ever closes them politely.
_INHERITED: list[ServerConnection] = []


def _setting(name: str, default: float, *, least: float) -> float:
    """Return a setting of the environment that is a number; `default` if it is not set."""
    given = os.environ.get(name)
    if not given:
        return default
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not least <= found < math.inf:
        why, step = f"{given!r} is not a number from {least:g} on", "correct it, or unset it"
        raise BadSettings("the environment", 0, name, why, step)
    return found


def _text(message: str) -> str:
    """Return the text of a lost connection in one line, without the driver's question."""
    told = re.sub(r"\s*Is the server running [^?]*\?", "", message)
    return " ".join(told.split()) or "the connection broke"
