"""A run: one outermost call of a workflow on a session, and everything below it.

What a run knows is kept by log, never by thread or context: which call has a log in hand (so that an agent knows its path wherever
it is called from), what rides in the next transaction, where each log's tip is. A value finds its run by the id it carries.

Events that only describe (a call started, a call finished) wait for the next append to their log and are written with it, so that
they cost no transaction of their own; nothing that acts waits.
"""

from __future__ import annotations

import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import count, islice
from threading import Lock, Thread, current_thread
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from plait.errors import InvalidValue, StaleHead
from plait.event import Body, Event
from plait.event.kinds import ForkedFrom, Place, Purpose, SessionOpened
from plait.ids import Digest, LogId, derived, digest
from plait.model.base import Delta
from plait.runtime.write import DirectWriter
from plait.session import Session
from plait.session.ports import Act, Draft, Spot, bind_writer, unbind_writer, writer_of
from plait.store import Store

OnEvent = Callable[[Event | Delta], object]
Rider = tuple[Draft, Mapping[Digest, bytes]]  # what waits for the next append to its log


class Cancelled(BaseException):
    """Somebody stopped this. Not an Exception: a workflow's `except Exception` must not swallow it."""


class Frame(NamedTuple):
    """A call that is going on."""

    path: str  # review/critics/style
    call: str  # its bracket
    node: object  # the workflow that was called
    forward: object  # and the function of it that is running: `super().forward` is no call of its own
    log: LogId  # where it began
    actor: str  # as whom it acts
    purpose: Purpose


TAIL = 64  # events of a log that a run remembers, so that whoever comes next need not read them back


class Run:
    """The one writer of a run's logs, and what it has in hand."""

    def __init__(self, id: str, root: LogId, direct: DirectWriter, io: Any, *, behalf: str | None, on_event: OnEvent | None = None) -> None:
        self.id, self.root, self.io = id, root, io
        self._direct, self._behalf = direct, behalf
        self._listeners: list[OnEvent] = [on_event] if on_event else []
        self._lock = Lock()
        self._frames: dict[LogId, tuple[Frame, ...]] = {}
        self._bases: dict[LogId, tuple[Frame, ...]] = {}
        self._riding: dict[LogId, list[Rider]] = {}
        self._tips: dict[LogId, Spot] = {}
        self._parents: dict[LogId, LogId] = {}
        self._forks: Counter[tuple[str, ...]] = Counter()
        self._forkers: dict[tuple[str, ...], Thread] = {}
        self._stopped: dict[int, LogId] = {}
        self._stops = count()
        self.closed = False
        self._agents: dict[LogId, str] = {}
        self._calls: Counter[LogId] = Counter()
        self._tails: dict[LogId, deque[Event]] = {}
        self.address, self.post = direct.address, direct.post

    # ── the Writer ───────────────────────────────────────────────────────────────────────────

    def store(self, address: str) -> Store:
        return self._direct.store(address)

    def principal(self, log: LogId | None = None) -> str:
        frames = self.frames(log or self.root)
        return f"service:{principal_of(frames[-1].path)}" if frames else self._direct.principal()

    def begin(
        self, address: str, drafts: Sequence[Draft], *, fork: Place | None = None, blobs: Mapping[Digest, bytes] | None = None
    ) -> Spot:
        """A log of this run. Its id follows from where it was made, so that the same run made again finds it."""
        log = self._name(drafts[0].body, fork)
        spot, events = self._direct.start(self.store(address), log, drafts, fork=fork, blobs=blobs, run=self.id, behalf=self._behalf)
        with self._lock:
            self._tips[log] = spot
            if fork is not None:
                self._parents[log] = fork.log
                self._frames[log] = self._bases[log] = self._frames.get(fork.log, ())
                if fork.log in self._agents:
                    self._agents[log] = self._agents[fork.log]
        self._tell(events)
        return spot

    def append(
        self, spot: Spot, drafts: Sequence[Draft], *, merges: tuple[Digest, ...] = (), blobs: Mapping[Digest, bytes] | None = None
    ) -> Spot:
        return self.write(spot, drafts, merges=merges, blobs=blobs)[0]

    def write(
        self,
        spot: Spot,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        blobs: Mapping[Digest, bytes] | None = None,
        held: Sequence[Event] = (),
    ) -> tuple[Spot, list[Event]]:
        """Append, with what was waiting for it; returns the events of these drafts. `held` were sealed before, up to this spot."""
        with self._lock:
            riding = self._riding.pop(spot.id, None)
        ahead = len(riding) if riding else 0
        try:
            every, more = _with(riding, drafts, blobs) if riding else (drafts, blobs)
            # What a run does, it does on behalf of whoever started it.
            after, events = self._direct.write(spot, every, merges=merges, merging=ahead, blobs=more, behalf=self._behalf, held=held)
        except BaseException:
            if riding:
                with self._lock:
                    self._riding[spot.id] = [*riding, *self._riding.get(spot.id, [])]
            raise
        with self._lock:
            self._tips[spot.id] = after
            self._tails.setdefault(spot.id, deque(maxlen=TAIL)).extend([*held, *events])
        self._tell([*held, *events] if held else events)
        return after, events[ahead:] if ahead else events

    def seal(self, spot: Spot, drafts: Sequence[Draft]) -> tuple[Spot, list[Event]] | None:
        """The events as they would be written here; None: somebody else wrote, or something waits that has to come first."""
        with self._lock:
            if self.closed or self._tips.get(spot.id) != spot or self._riding.get(spot.id):
                return None
        return self._direct.seal(spot, drafts, behalf=self._behalf)

    def since(self, log: LogId, first: int, last: int) -> list[Event] | None:
        """The events of a log from first to last as this run wrote them; None: it did not write them all, or has forgotten."""
        wanted = last - first + 1
        with self._lock:
            tail = self._tails.get(log)
            if not tail or wanted < 1 or tail[-1].seq < last:
                return [] if wanted < 1 else None
            found = list(islice(reversed(tail), tail[-1].seq - last, tail[-1].seq - first + 1))
        # Places only grow, so as many events as places between these two are all of them.
        return found[::-1] if len(found) == wanted and (found[0].seq, found[-1].seq) == (last, first) else None

    def _name(self, first: Body, fork: Place | None) -> LogId:
        if fork is None:
            place = first.continues if isinstance(first, SessionOpened) else None
            about = ("root", place.log if place else "", str(place.seq if place else 0), "")
        else:
            label = first.label if isinstance(first, ForkedFrom) else None
            about = ("fork", fork.log, str(fork.seq), label or "")
        with self._lock:
            before = self._forkers.get(about)
            self._forkers[about] = current_thread()
            if before is not None and before is not current_thread() and before.is_alive():
                raise InvalidValue(
                    "label", f"two threads fork {about[1][-12:-4]}@{about[2]} under one name", "give each branch a label of its own"
                )
            ordinal = self._forks[about]
            self._forks[about] += 1
        return derived("plait/fork/1", self.id, *about, ordinal)

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    def frames(self, log: LogId) -> tuple[Frame, ...]:
        """The calls that have this log in hand, the outermost first."""
        with self._lock:
            return self._frames.get(log, self._frames.get(self.root, ()))

    def base(self, log: LogId) -> tuple[Frame, ...]:
        """The calls that had this log in hand when it was forked."""
        return self._bases.get(log, ())

    def drop_frame(self, log: LogId, frame: Frame) -> None:
        """This call no longer has the log in hand, nor what it called."""
        with self._lock:
            frames = self._frames.get(log, ())
            if frame in frames:
                self._frames[log] = tuple([each for each in frames if each != frame])

    def set_frames(self, log: LogId, frames: tuple[Frame, ...]) -> None:
        with self._lock:
            self._frames[log] = frames

    def ride(self, log: LogId, draft: Draft, blobs: Mapping[Digest, bytes] | None = None) -> None:
        """Write this with the next append to the log."""
        with self._lock:
            self._riding.setdefault(log, []).append((draft, dict(blobs or {})))

    def hand_over(self, log: LogId, agent: str) -> str | None:
        """From now on this agent has the session; returns who had it before, if that was another."""
        with self._lock:
            before = self._agents.get(log)
            self._agents[log] = agent
        return before if before != agent else None

    def ordinal(self, log: LogId) -> int:
        """How many calls had this log in hand before, in this execution."""
        with self._lock:
            self._calls[log] += 1
            return self._calls[log]

    def waiting(self, log: LogId) -> int:
        """How many events wait for the next append to a log."""
        with self._lock:
            return len(self._riding.get(log, ()))

    def tip(self, log: LogId) -> Spot:
        return self._tips[log]

    def start(self, spot: Spot) -> None:
        with self._lock:
            self._tips[spot.id] = spot

    def left(self) -> list[LogId]:
        """Logs for which something still waits."""
        with self._lock:
            return [log for log, riding in self._riding.items() if riding and log in self._tips]

    # ── stopping and telling ─────────────────────────────────────────────────────────────────

    def stop(self, log: LogId) -> int:
        """Nothing more is to happen in this branch, nor in branches of it, until `go_on` takes back this very stop."""
        with self._lock:
            stop = next(self._stops)
            self._stopped = {**self._stopped, stop: log}
            return stop

    def go_on(self, stop: int) -> None:
        """What was stopped has come to rest: whoever had it called may go on, unless somebody else stopped it, too."""
        with self._lock:
            self._stopped = {other: log for other, log in self._stopped.items() if other != stop}

    def is_stopped(self, log: LogId) -> bool:
        at: LogId | None = log if self._stopped else None
        while at is not None:
            if at in self._stopped.values():
                return True
            at = self._parents.get(at)
        return False

    def check(self, log: LogId) -> None:
        """Before every effect: raises if this branch was stopped."""
        if self.is_stopped(log):
            raise Cancelled(f"branch {log[-12:-4]} was stopped")

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def listen(self, listener: OnEvent) -> None:
        with self._lock:
            self._listeners = [*self._listeners, listener]

    def unlisten(self, listener: OnEvent) -> bool:
        """Whether it was still listening."""
        with self._lock:
            before = len(self._listeners)
            self._listeners = [each for each in self._listeners if each is not listener]
            return len(self._listeners) < before

    def tell(self, item: Event | Delta) -> None:
        for listener in self._listeners:
            try:
                listener(item)
            except Exception as error:  # whoever only watches must not bring down what it watches
                if self.unlisten(listener):
                    with suppress(Warning):  # where warnings are errors, too
                        warnings.warn(f"on_event raised {type(error).__name__}; it is not called any more", RuntimeWarning, stacklevel=2)

    def _tell(self, events: Sequence[Event]) -> None:
        if self._listeners:
            for event in events:
                self.tell(event)


def _with(
    riding: Sequence[Rider], drafts: Sequence[Draft], blobs: Mapping[Digest, bytes] | None
) -> tuple[list[Draft], dict[Digest, bytes]]:
    """What is written together: what was waiting first, and what is due after it."""
    every = [*(draft for draft, _ in riding), *(draft._replace(act=_moved(draft.act, len(riding))) for draft in drafts)]
    return every, {**(blobs or {}), **{name: content for _, with_it in riding for name, content in with_it.items()}}


def _moved(act: Act, by: int) -> Act:
    return act._replace(causes=tuple([cause + by if isinstance(cause, int) else cause for cause in act.causes])) if act.causes else act


# ── the registry ─────────────────────────────────────────────────────────────────────────────

_runs: dict[str, Run] = {}


def open_run(run: Run) -> None:
    _runs[run.id] = run
    bind_writer(run, run.id)


def close_run(run: Run) -> None:
    run.closed = True
    _runs.pop(run.id, None)
    unbind_writer(run.id)


running: ContextVar[Run | None] = ContextVar("plait_run", default=None)  # whose code this is; threads we start know it, too


def check_running(session: Session) -> None:
    """Before anything happens: raises if this branch was stopped, or if this is code of a run that is over."""
    run = run_of(session)
    if run is not None:
        return run.check(session.id)
    mine = running.get()
    if mine is not None and mine.closed:
        raise Cancelled("the run this belongs to has ended")


def run_of(session: Session) -> Run | None:
    """The run this value belongs to, if it is going on in this process."""
    return _runs.get(session.run) if session.run is not None else None


def direct_writer() -> DirectWriter:
    return cast("DirectWriter", writer_of(None))


def record(
    session: Session, drafts: Sequence[Draft], blobs: Mapping[Digest, bytes] | None = None, *, held: Sequence[Event] = ()
) -> tuple[Session, list[Event]]:
    """Append to a session whatever the runtime has to say, in a run or outside of any; returns the events as they were written."""
    writer = run_of(session) or direct_writer()
    spot, events = writer.write(session.spot, drafts, blobs=blobs, held=held)
    after = session.later(spot, *[type(draft.body).__name__ for draft in drafts])
    after.keep_state(since=session.place)
    return after, events


def record_at_tip(
    session: Session, drafts: Sequence[Draft] | Callable[[Session], Sequence[Draft]], blobs: Mapping[Digest, bytes] | None = None
) -> tuple[Session, list[Event]]:
    """Append where the log ends by now: for what has to be on record whoever else wrote. Drafts may depend on where that is."""
    for _ in range(100):
        try:
            return record(session, drafts(session) if callable(drafts) else drafts, blobs)
        except StaleHead:
            session = session.reload()
    return record(session, drafts(session) if callable(drafts) else drafts, blobs)


def call_id(run: str | None, log: LogId, seq: int, *more: str | int) -> str:
    """The name of a bracket: it follows from where it begins, and suits every provider as the id of a call."""
    text = "/".join(map(str, (run or "", log, seq, *more)))
    return f"c{digest(b'plait/call/1', text.encode())[:23]}"


@lru_cache(1024)  # the same few paths, at every call
def principal_of(path: str) -> str:
    """A call path as part of a principal: without spaces, not too long."""
    text = quote(path, safe="/-_.~+:@#=[]()<>", encoding="utf-8", errors="backslashreplace") or "workflow"
    return text if len(text) <= 200 else f"{text[:160]}~{digest(b'plait/path/1', text.encode())[:16]}"
