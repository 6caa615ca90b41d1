"""Group commit: threads that write at the same time share one transaction, and so one fsync.

There is no writer thread. A thread that finds no other one writing leads: it runs its own work and
all queued work in one transaction. A thread that comes meanwhile waits, and finds its work done or
leads the next round. A lone writer therefore pays no thread switch, and sixteen at once pay
one fsync per round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, cast

from plait.errors import PlaitError, StoreReentered

T = TypeVar("T")


class Transaction(Protocol):
    """The steps of a round. `translate` turns the database's errors into ours."""

    def begin(self, durable: bool) -> None: ...
    def commit(self, pieces: int) -> None: ...
    def rollback(self) -> None: ...
    def changes(self) -> int: ...
    def translate(self, error: Exception) -> Exception: ...


class _Ticket(Generic[T]):
    __slots__ = ("batch", "done", "durable", "error", "gate", "lead", "result", "work")

    def __init__(self, work: Callable[[], T], durable: bool) -> None:
        self.work = work
        self.durable = durable
        self.result: T | None = None
        self.error: Exception | None = None
        self.done = False
        self.lead = False
        # held until its thread should look up: its work is done, or it leads
        self.gate: threading.Lock | None = None
        self.batch: list[_Ticket[Any]] = []  # the tickets it leads


class GroupCommit:
    """`submit(work)` runs the work in a transaction and returns when that is on disk; if it need
    not be durable, when it is committed.

    A round is as durable as the most demanding piece in it.

    Work either succeeds or raises. A PlaitError raised before it changed anything refuses that
    piece alone; anything else undoes the round, and each piece then gets a round of its own, so
    that no piece fails because of another.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._mutex = threading.Lock()
        self._queue: list[_Ticket[Any]] = []
        self._busy = False
        self._inside: set[int] = set()  # the threads that are in submit

    def submit(self, work: Callable[[], T], durable: bool = True) -> T:
        ticket, thread = _Ticket(work, durable), threading.get_ident()
        if thread in self._inside:  # it would wait for itself
            raise StoreReentered()
        try:
            self._inside.add(thread)
            self._enqueue(ticket)
            if ticket.gate is not None:
                ticket.gate.acquire()
            if ticket.lead:
                self._run_round(ticket)
        # Ctrl-C anywhere, even while settling: settle again, so that no thread is left waiting
        except BaseException:
            self._settle(ticket)
            raise
        finally:
            self._inside.discard(thread)
            # it is in there itself: the work, and the content that it wrote, would stay until
            # cycles are collected
            ticket.batch = []
        if ticket.error is not None:
            raise ticket.error
        return cast("T", ticket.result)

    def _enqueue(self, ticket: _Ticket[Any]) -> None:
        with self._mutex:
            if self._busy:
                # A bare lock, because an Event is not safe to be interrupted in.
                ticket.gate = threading.Lock()
                ticket.gate.acquire()
            else:
                self._busy = ticket.lead = True
            self._queue.append(ticket)

    def _run_round(self, leader: _Ticket[Any]) -> None:
        if len(self._queue) == 1:  # alone; a thread that comes now joins the next round
            leader.batch = [leader]
            self._run_alone(leader)
        else:
            with self._mutex:
                leader.batch = list(self._queue)
                self._queue.clear()
            self._run_batch(leader.batch)
        self._settle(leader)

    def _settle(self, ticket: _Ticket[Any]) -> None:
        """Leave: wake the tickets that are done, queue the others again, name the next leader.

        Repeating it is harmless.
        """
        with self._mutex:
            if ticket in self._queue:
                self._queue.remove(ticket)
            for follower in ticket.batch:
                if follower.done:
                    _wake(follower)
                elif follower is not ticket and follower not in self._queue:
                    self._queue.append(follower)
            if not ticket.lead:
                return
            if self._queue:
                self._queue[0].lead = True
                _wake(self._queue[0])
            else:
                self._busy = False
            ticket.lead = False

    def _run_batch(self, batch: list[_Ticket[Any]]) -> None:
        if len(batch) == 1:
            self._run_alone(batch[0])
            return
        try:
            self._run_together(batch)
        except Exception:  # undone; the piece that failed raises again in a round of its own
            for ticket in batch:
                self._run_alone(ticket)
        for ticket in batch:
            ticket.done = True

    def _run_alone(self, ticket: _Ticket[Any]) -> None:
        transaction = self._transaction
        try:
            try:
                transaction.begin(ticket.durable)
                ticket.error, ticket.result = None, ticket.work()
                transaction.commit(1)
            except BaseException:
                transaction.rollback()
                raise
        except Exception as error:
            ticket.error = transaction.translate(error)
        ticket.done = True

    def _run_together(self, batch: list[_Ticket[Any]]) -> None:
        transaction = self._transaction
        try:
            transaction.begin(any(ticket.durable for ticket in batch))
            for ticket in batch:
                ticket.error, changes = None, transaction.changes()
                try:
                    ticket.result = ticket.work()
                except PlaitError as refusal:
                    if transaction.changes() != changes:
                        raise
                    ticket.error = refusal
            transaction.commit(len(batch))
        except BaseException:
            transaction.rollback()
            raise


def _wake(ticket: _Ticket[Any]) -> None:
    """Open the gate of a ticket. The caller holds the mutex, so that no other thread opens it
    between the question and the act.
    """
    if ticket.gate is not None and ticket.gate.locked():
        ticket.gate.release()
