"""The fence of a run: a process that lost the run writes nothing.

Every log has an epoch, which the append that takes a run raises. The writes of a run carry the
epoch of its root, and those of the runs around it; a store refuses them under another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from plait.errors import PlaitError, RunLost, StaleEpoch
from plait.event import kinds as k
from plait.ids import LogId, short
from plait.journal.stops import Halted
from plait.store import Fence, Log, Store
from plait.store.epochs import EPOCH_KINDS


class RunFence:
    """The epochs that the writes of one run rest on, and whether it may go on here at all."""

    def __init__(self, run: str, root: LogId, home: str, store: Callable[[str], Store]) -> None:
        self.run, self.root = run, root
        self.home = home  # the address of the store where the run began
        self.epoch: int | None = None  # of its root; None until this process holds the run
        self.is_lost = False  # another process took the run, or ended it
        self.is_closed = False  # the run goes on no more in this process
        self.halted: Halted | None = None
        self._store = store
        self._own: tuple[Fence, ...] = ()
        self._past: tuple[Fence, ...] = ()  # of the value that the run was started with
        self._outer: RunFence | None = None  # of the run whose code started this one

    def hold(self, epoch: int) -> None:
        """Let the run's writes rest on its root being at this epoch."""
        self.epoch, self._own = epoch, (Fence(self.root, epoch), *self._past)

    def rest_on(self, outer: RunFence | None, past: tuple[Fence, ...]) -> None:
        """Let them rest on the run whose code started this one, too, and on fences of the past."""
        self._outer = outer if outer is not None and not outer.is_closed else None
        self._past = self._own = past

    @property
    def outer(self) -> RunFence | None:
        """The fence of the run whose code started this one, as long as that run goes on."""
        outer = self._outer
        return outer if outer is not None and (outer.is_lost or not outer.is_closed) else None

    @property
    def fences(self) -> tuple[Fence, ...]:
        outer = self.outer if self._outer is not None else None
        is_same = outer is not None and self._is_home(outer.home)
        return (*self._own, *outer.fences) if outer is not None and is_same else self._own

    def _is_home(self, address: str) -> bool:
        """True if an address leads to the store of the run; a server's store has many."""
        return address == self.home or self._store(address).id == self._store(self.home).id

    def fences_in(self, address: str) -> tuple[Fence, ...]:
        """Return the fences of a write to this store.

        Runs that began in another store are checked now: no transaction spans two stores.
        """
        if not self._is_home(address):
            self.check()
            return ()
        if self._outer is not None and (outer := self.outer) is not None:
            if not self._is_home(outer.home):
                outer.check()
        return self.fences

    def check(self, heads: Mapping[LogId, Log] | None = None) -> None:
        """Raise if another process took the run, or one whose code started it.

        `heads` are logs as they were just read.
        """
        if self.is_lost:
            self.check_going()
        if (outer := self.outer) is not None and not self._is_home(outer.home):
            outer.check()
        if not (fences := self.fences):
            return
        if heads is None:
            heads = self._store(self.home).heads([fence.log for fence in fences])
        for fence in fences:
            if fence.log in heads and heads[fence.log].epoch != fence.epoch:
                raise self.halt_lost(StaleEpoch(fence.log, fence.epoch, heads[fence.log].epoch))

    # ── not going on ─────────────────────────────────────────────────────────────────────────

    def halt(self, error: PlaitError | None) -> Halted:
        """Write nothing more of this run in this process."""
        self.halted = self.halted or Halted(error)
        return self.halted

    def halt_lost(self, error: StaleEpoch) -> Halted:
        """Halt the run that a refused write shows to be lost, and those that its code started."""
        self.is_lost = True
        if error.log != self.root and self._outer is not None:
            return self.halt(self._outer.halt_lost(error).error)
        return self.halt(RunLost(short(self.root), self.run, self._new_holder()))

    def lose(self) -> None:
        """Halt the run, since another process has its lock: it is about to take the run, or has."""
        self.is_lost = True
        holder = "another process"
        with suppress(PlaitError):  # the store may be away again
            if self._store(self.home).log(self.root).epoch != self.epoch:
                holder = self._new_holder()
        self.halt(RunLost(short(self.root), self.run, holder))

    def check_going(self) -> None:
        if self.halted is not None:
            raise (self.halted.error or self.halted) if self.is_closed else self.halted

    def _new_holder(self) -> str:
        """Return the name of the process that has the run now, or of the person who ended it."""
        marks = self._store(self.home).read(self.root, kinds=EPOCH_KINDS, reverse=True)
        last = next((event for event in marks if event.header.run == self.run), None)
        body = last.body if last is not None else None
        if isinstance(body, k.RunResumed):
            return body.holder
        return f"{last.actor}, who ended it" if last is not None else "another process"
