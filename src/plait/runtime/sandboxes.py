"""The live sandboxes of this process, by session.

A session only records its placement and its trees; the live handle is kept here, found by the
session's id. A tool that takes a sandbox is lent one for the time of its call. Before the call the
files are made those of the session's tree, since an unrecorded call may have left others there;
after it they are recorded again. A handle that cannot be trusted any more (an abandoned call may
still work in it) is replaced: the next call gets another sandbox, made from the recorded tree.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from threading import Lock, RLock
from typing import NamedTuple

import msgspec

from plait.errors import NotPlaced, PlaitError, SandboxBusy, SandboxFailed, SandboxGone
from plait.event import Json
from plait.event.kinds import Bypassed, Placement, PlacementChanged, Trees
from plait.ids import Digest, LogId
from plait.runtime.lent_sandbox import LentSandbox
from plait.runtime.placement import detail_of, sandbox_key, wanted_of
from plait.runtime.process import THIS_PROCESS
from plait.sandbox import Backend, Sandbox, Wanted, backend
from plait.session import Session
from plait.session.ports import store_at
from plait.workspace import EMPTY, EMPTY_BYTES, TreeSnapshot

WAIT_S = 600.0  # for another call on the same session
KEPT = 64  # handles; the least recently used one is closed first

# ── one call ─────────────────────────────────────────────────────────────────────────────────


class SandboxOutcome(NamedTuple):
    """The trees, blobs and events to record after a call in a sandbox."""

    trees: Trees | None = None
    placement: Placement | None = None
    blobs: Mapping[Digest, bytes] = {}
    before: Sequence[PlacementChanged | Bypassed] = ()  # recorded ahead of the outcome
    since: Digest | None = None  # the session's tree when the call began


class BatchSandbox:
    """The sandbox of one batch of tool calls, which run one after another: each begins with the
    files that the one before it left.
    """

    def __init__(self, session: Session, listener: Callable[[str], object] | None = None) -> None:
        # the listener gets the output of commands while they run
        self._session, self._listener = session, listener
        self._now: tuple[Placement, Digest] | None = None  # None: those of the session
        self._visit: SandboxCall | None = None

    def enter(self) -> SandboxCall:
        placement, tree = self.now
        self._visit = SandboxCall(
            self, _live_sandboxes.take(self._session, placement, tree), self._listener
        )
        return self._visit

    def advance(self, placement: Placement, tree: Digest) -> None:
        """Set the placement and the tree with which the next call of the batch begins."""
        self._now, self._visit = (placement, tree), None

    def abandon(self) -> None:
        """Leave the current call behind. It may go on, but only on files that no session uses."""
        if self._visit is not None:
            self._visit.abandon()

    @property
    def now(self) -> tuple[Placement, Digest]:
        """The placement and the tree with which the next call begins."""
        if self._now is None:
            placement = self._session.files.placement
            if placement is None:
                raise NotPlaced(self._session.short)
            self._now = placement, self._session.files.tree or EMPTY
        return self._now


class SandboxCall:
    """One call in a sandbox."""

    def __init__(
        self, site: BatchSandbox, live: LiveSandbox, on_text: Callable[[str], object] | None
    ) -> None:
        self._site, self._live = site, live
        self.sandbox = LentSandbox(live.sandbox, on_text)

    def leave(self) -> SandboxOutcome:
        """End the call and return its changes to the files. The tool's handle stops working."""
        self.sandbox.revoke()
        live = self._live
        try:
            if not live.trusted:
                return SandboxOutcome()  # the call was abandoned
            if self.sandbox.broken:
                live.distrust()
                return SandboxOutcome()
            if self.sandbox.running:
                step = "wait for it before the tool returns"
                raise SandboxFailed(
                    live.sandbox.placement.backend,
                    "be given back",
                    "a command still runs in it",
                    step,
                )
            return self._outcome(live, live.record(self.sandbox.has_begun))
        except Exception:
            live.distrust()
            raise
        finally:
            live.release()

    def _outcome(self, live: LiveSandbox, found: TreeSnapshot) -> SandboxOutcome:
        placed, since = self._site.now
        after = _placement_now(live.sandbox.placement, placed, live.key)
        ahead: list[PlacementChanged | Bypassed] = []
        if after != placed:
            replaced = _left_behind(placed, after) or live.replaced
            ahead.append(PlacementChanged(after, live.before, replaced))
        if live.outside_change is not None:
            ahead.append(live.outside_change)
        trees, blobs = Trees(live.before, found.tree, found.changed), {**live.blobs, **found.blobs}
        live.forget_recorded()
        self._site.advance(after, found.tree)
        return SandboxOutcome(
            trees,
            msgspec.structs.replace(after, detail=_paths_left_out(found)),
            blobs,
            ahead,
            since,
        )

    def abandon(self) -> None:
        self.sandbox.revoke()
        self._live.distrust()


def _paths_left_out(found: TreeSnapshot) -> Json:
    """Return the paths that are not in the tree, by reason."""
    left_out: dict[str, Json] = {}
    for name, paths in (
        ("withheld", found.withheld),
        ("skipped", found.skipped),
        ("dropped", found.dropped),
    ):
        if paths:
            left_out[name] = list(paths[:100])
    if found.more:
        left_out["more"] = found.more
    return left_out or None


def _placement_now(now: Placement, before: Placement, key: str) -> Placement:
    """Return the sandbox's own placement, with the options recorded before and the key."""
    kept = {name: value for name, value in detail_of(before).items() if name != "left out"}
    detail = {**kept, **detail_of(now), "key": key}
    return msgspec.structs.replace(now, detail=detail)


def _left_behind(before: Placement, now: Placement) -> str:
    """Return the sandbox that a session has left on another machine, as "NAME on HOST"; "" if it
    works on the same one.
    """
    host = detail_of(before).get("host")
    is_elsewhere = bool(host) and host != detail_of(now).get("host", host)
    return f"{before.sandbox or before.backend} on {host}" if is_elsewhere else ""


# ── the handles ──────────────────────────────────────────────────────────────────────────────


class LiveSandbox:
    """A handle on a sandbox, the tree that its files are known to be, and the lock for one call."""

    def __init__(
        self,
        key: str,
        sandbox: Sandbox,
        tree: Digest | None,
        in_place: bool,
        replaced: str = "",
        *,
        temporary: bool = False,
    ) -> None:
        self.key, self.sandbox, self.in_place, self.replaced = key, sandbox, in_place, replaced
        self._is_temporary = temporary and not in_place  # destroyed with this process
        self.tree = tree  # None: not known
        # seq of the session when a call last began here; None: no call did
        self._seq: int | None = None
        self.trusted = True
        self._lock = Lock()
        self.before = tree or EMPTY
        self.blobs: Mapping[Digest, bytes] = {EMPTY: EMPTY_BYTES} if tree == EMPTY else {}
        self.outside_change: Bypassed | None = None  # a change made outside of calls

    def acquire(self) -> None:
        """Wait until no other call has it.

        Raises SandboxFailed for a tool that has it already: it would wait for itself.
        """
        if self in _on_loan.get() or not self._lock.acquire(timeout=WAIT_S):
            why = (
                "the tool that asks for it has it already"
                if self in _on_loan.get()
                else f"another call has had it for {WAIT_S:g} s"
            )
            raise SandboxFailed(
                self.sandbox.placement.backend,
                "be lent twice",
                why,
                "use the sandbox that the tool was given",
            )
        _on_loan.set(_on_loan.get() | {self})

    def try_acquire(self) -> bool:
        """Take it, if no call has it."""
        is_taken = self._lock.acquire(blocking=False)
        if is_taken:
            _on_loan.set(_on_loan.get() | {self})
        return is_taken

    def release(self) -> None:
        _on_loan.set(_on_loan.get() - {self})
        self._lock.release()

    def record(self, has_begun: bool) -> TreeSnapshot:
        """Return the files after a call; without a look at them if the call never touched them."""
        if not has_begun:
            return TreeSnapshot(self.before, {})
        found = self.sandbox.snapshot()
        self.tree = found.tree
        return found

    def follow_rewinds(self, session: Session) -> None:
        """Forget the known tree if the session was rewound since the last call.

        The files are then put in place anew even if the tree is the same, which also ends
        processes that stay, and undoes their changes.
        """
        if self._seq is not None:
            since = store_at(session.store).read(
                session.id, self._seq + 1, session.seq, kinds=("Rewound",)
            )
            self.tree = None if next(since, None) is not None else self.tree
        self._seq = session.seq

    def put_tree(self, tree: Digest) -> None:
        """Make the files those of this tree. In place nothing is undone: a difference is recorded
        as a change made outside of calls.
        """
        self.before = tree
        if not self.in_place:
            if self.tree != tree:
                self.sandbox.begin()
                self.sandbox.restore(tree)
                self.tree = tree
            return
        found = self.sandbox.snapshot()
        self.tree = found.tree
        if found.tree != tree:
            change: dict[str, Json] = {
                "before": tree,
                "after": found.tree,
                "changed": list(found.changed[:100]),
            }
            self.before, self.blobs = found.tree, {**self.blobs, **found.blobs}
            self.outside_change = Bypassed("workspace", change)

    def forget_recorded(self) -> None:
        """Clear the facts that the outcome of a call has passed on to be recorded."""
        self.replaced, self.outside_change, self.blobs = "", None, {}

    def distrust(self) -> None:
        """Mark it as unusable; the next call opens another sandbox."""
        self.trusted = False

    def close(self) -> None:
        with suppress(PlaitError, OSError):
            self.sandbox.destroy() if self._is_temporary else self.sandbox.close()


class LiveSandboxes:
    """The handles of this process, by store, backend and key."""

    def __init__(self) -> None:
        self._apart = 0
        self.start_child()

    def start_child(self) -> None:
        """Begin empty in a forked child: the handles, and the lock, are the parent's."""
        self._by_name: dict[tuple[str, str], LiveSandbox] = {}
        self._lock = RLock()

    def take(self, session: Session, placement: Placement, tree: Digest) -> LiveSandbox:
        """Return the sandbox of a session, with the files of this tree, locked for one call."""
        while True:
            live = self._find(session, placement, tree)
            live.acquire()
            try:
                if live.trusted:
                    live.follow_rewinds(session)
                    live.put_tree(tree)
                    return live
            except BaseException:
                live.distrust()
                live.release()
                raise
            live.release()

    def _find(self, session: Session, placement: Placement, tree: Digest) -> LiveSandbox:
        key = sandbox_key(session.id, placement)
        name = session.store, f"{placement.backend}/{key}"
        with self._lock:
            live = self._by_name.pop(name, None)
            if live is None or not live.trusted:
                live = self._open(session, placement, key, tree, after=live)
            self._by_name[name] = live  # in the order of use
            for other in list(self._by_name)[:-KEPT]:
                self._by_name.pop(other).close()
            return live

    def _open(
        self,
        session: Session,
        placement: Placement,
        key: str,
        tree: Digest,
        *,
        after: LiveSandbox | None,
    ) -> LiveSandbox:
        """Attach to the recorded sandbox if it is this session's and still there, else create one.

        `after`: the one before, if it is not trusted any more.
        """
        store, chosen = store_at(session.store), backend(placement.backend)
        wanted = wanted_of(store, key, tree, placement)
        mine = placement.sandbox and detail_of(placement).get("key") == key and after is None
        replaced = placement.sandbox if after is not None else ""
        try:
            if mine:
                return LiveSandbox(key, chosen.attach(placement, wanted), None, wanted.in_place)
        except SandboxGone:
            replaced = placement.sandbox
        except SandboxBusy:
            return self._create_aside(chosen, wanted, key, replaced)
        if after is None:
            with suppress(SandboxBusy):
                return LiveSandbox(key, chosen.create(wanted), tree, wanted.in_place, replaced)
        return self._create_aside(chosen, wanted, key, replaced)

    def _create_aside(
        self, chosen: Backend, wanted: Wanted, key: str, replaced: str
    ) -> LiveSandbox:
        """Create a temporary sandbox with files of its own, because another process or an abandoned
        call works in the session's.
        """
        self._apart += 1
        apart = msgspec.structs.replace(wanted, key=f"{key}.{os.getpid()}.{self._apart}")
        return LiveSandbox(
            key, chosen.create(apart), wanted.tree, wanted.in_place, replaced, temporary=True
        )

    def make(self, session: Session, placement: Placement, tree: Digest) -> Placement:
        """Create the sandbox of a session that is about to be placed there, and return its
        placement.
        """
        key = sandbox_key(session.id, placement)
        wanted = wanted_of(store_at(session.store), key, tree, placement)
        live = LiveSandbox(key, backend(placement.backend).create(wanted), tree, wanted.in_place)
        with self._lock:
            before = self._by_name.pop((session.store, f"{placement.backend}/{key}"), None)
            self._by_name[session.store, f"{placement.backend}/{key}"] = live
        if before is not None:
            before.close()
        return _placement_now(live.sandbox.placement, placement, key)

    def drop_idle(self, store: str, log: LogId) -> None:
        """Close the handles of a session that no call uses."""
        with self._lock:
            mine = [
                (name, live)
                for name, live in self._by_name.items()
                if name[0] == store and live.key[: len(log)] == log
            ]
            for name, live in mine:
                if live.try_acquire():
                    del self._by_name[name]
                    live.close()
                    live.distrust()
                    live.release()

    def drop(self, store: str | None = None) -> None:
        """Close all handles, or those of a store. Sandboxes stay, temporary ones aside."""
        with self._lock:
            for name in [name for name in self._by_name if store in (None, name[0])]:
                self._by_name.pop(name).close()


# the sandboxes lent to the call that runs in this context
_on_loan: ContextVar[frozenset[LiveSandbox]] = ContextVar("plait_sandboxes", default=frozenset())


# one table per process: a handle is a lock on files and must be found by every run of the process
_live_sandboxes = LiveSandboxes()


def close_sandboxes() -> None:
    """Close every handle. The next call attaches to its sandbox again, as another process would."""
    _live_sandboxes.drop()


def close_idle_sandboxes(store: str, log: LogId) -> None:
    """Close the handles of a session that no call uses."""
    _live_sandboxes.drop_idle(store, log)


def make_sandbox(session: Session, placement: Placement, tree: Digest) -> Placement:
    """Create the sandbox of a session at once, and return its placement."""
    return _live_sandboxes.make(session, placement, tree)


atexit.register(_live_sandboxes.drop)
THIS_PROCESS.call_in_child(_live_sandboxes.start_child)
