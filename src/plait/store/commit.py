"""Group commit: threads that write at the same time share one transaction, and so one fsync.

There is no writer thread. Whoever comes while nobody writes leads: it runs its own work and all that has queued up,
in one transaction. Whoever comes meanwhile waits and finds its work done, or is told to lead the next round. A lone
writer therefore pays no thread switch, and sixteen at once pay one fsync per round.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, cast

from plait.errors import PlaitError

T = TypeVar("T")


class Transaction(Protocol):
    """What a round is made of. `translate` turns the database's errors into ours."""

    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def changes(self) -> int: ...
    def translate(self, error: Exception) -> Exception: ...


class _Ticket(Generic[T]):
    __slots__ = ("done", "error", "gate", "lead", "result", "work")

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: Exception | None = None
        self.done = False
        self.lead = False
        self.gate: threading.Lock | None = None  # held while its thread waits


class GroupCommit:
    """`submit(work)` runs the work in a transaction and returns when that is on disk.

    Work either succeeds or raises. A PlaitError raised before it changed anything refuses that piece alone; anything
    else undoes the round, and each piece then gets a round of its own, so that nobody fails for a neighbour's sake.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._mutex = threading.Lock()
        self._queue: deque[_Ticket[Any]] = deque()
        self._busy = False

    def submit(self, work: Callable[[], T]) -> T:
        ticket = _Ticket(work)
        try:
            self._enqueue(ticket)
            if ticket.gate is not None:
                ticket.gate.acquire()
            if ticket.lead:
                self._lead(ticket)
        except BaseException:  # Ctrl-C: nobody may be left waiting for a leader that is gone
            self._leave(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return cast("T", ticket.result)

    def _enqueue(self, ticket: _Ticket[Any]) -> None:
        with self._mutex:
            self._queue.append(ticket)
            if self._busy:
                ticket.gate = threading.Lock()
                ticket.gate.acquire()
            else:
                self._busy = ticket.lead = True

    def _lead(self, leader: _Ticket[Any]) -> None:
        with self._mutex:
            batch = list(self._queue)
            self._queue.clear()
        try:
            self._run(batch)
        except BaseException:  # interrupted: the round is undone, and what the others asked for is still owed
            with self._mutex:
                self._queue.extendleft(ticket for ticket in reversed(batch) if ticket is not leader and not ticket.done)
            raise
        finally:
            self._leave(leader)
            for ticket in batch:
                if ticket.done and ticket.gate is not None and ticket is not leader:
                    ticket.gate.release()

    def _leave(self, ticket: _Ticket[Any]) -> None:
        """Take the ticket out of the queue, and if it leads, name the next leader."""
        with self._mutex:
            if ticket in self._queue:
                self._queue.remove(ticket)
            if not ticket.lead:
                return
            ticket.lead = False
            if not self._queue:
                self._busy = False
                return
            heir = self._queue[0]
            heir.lead = True
            if heir.gate is not None:
                heir.gate.release()

    def _run(self, batch: list[_Ticket[Any]]) -> None:
        try:
            self._round(batch)
        except Exception as error:
            if len(batch) == 1:
                batch[0].error = self._transaction.translate(error)
            else:
                for ticket in batch:
                    self._run([ticket])
        for ticket in batch:
            ticket.done = True

    def _round(self, batch: list[_Ticket[Any]]) -> None:
        transaction = self._transaction
        try:
            transaction.begin()
            for ticket in batch:
                ticket.error, changes = None, transaction.changes()
                try:
                    ticket.result = ticket.work()
                except PlaitError as refusal:
                    if transaction.changes() != changes:
                        raise
                    ticket.error = refusal
            transaction.commit()
        except BaseException:
            transaction.rollback()
            raise
