"""A run: one outermost call of a workflow on a session, and everything below it.

What a run knows is kept by log, never by thread or context: which call has a log in hand (so that
an agent knows its path wherever it is called from), what rides in the next transaction, where each
log's tip is. A value finds its run by the id it carries.

Events that only describe (a call started, a call finished) wait for the next append to their log
and are written with it, so that they cost no transaction of their own; nothing that acts waits.

A run that is taken up again has paths: what its logs have on record. Whatever is appended is first
looked for there, and only what lies beyond is written. What a tool does with the session it was
handed belongs to the tool's own bracket: such values carry the run's id and the call's (a *scope*),
so that a path of the run passes over it, and nothing of it is counted when the tool is not run
again.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter, deque
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import count, islice
from threading import Lock, Thread, current_thread
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import msgspec

from plait import inside
from plait.errors import EffectError, InvalidValue, PlaitError, RunLost, StaleEpoch, StaleHead
from plait.event import Body, Event, Json
from plait.event import kinds as k
from plait.event.codec import VOCABULARY
from plait.event.hidden import without_secrets
from plait.event.kinds import Budget, ForkedFrom, Place, Purpose, SessionOpened
from plait.ids import Digest, LogId, Micros, derived, digest, inbox_of, short
from plait.model.base import Delta
from plait.runtime import bypass
from plait.runtime.loop import code_thread
from plait.runtime.path import Cursor, Differs
from plait.runtime.policy import Approver, Policy
from plait.runtime.pool import Pool
from plait.runtime.reads import NOTHING_READ, Calls, Reads, doing, tool_act
from plait.runtime.record import Overrides, Recording, after_found, diverged
from plait.runtime.stops import Cancelled, Halted, Parked, Stop
from plait.runtime.tracebacks import hide_in_tracebacks
from plait.runtime.write import DirectWriter, bind_acting, bind_fences, check_decisions
from plait.session import Session
from plait.session.grants import Grant, is_share, spent_under
from plait.session.inbox import arrived
from plait.session.ports import (
    UNNAMED,
    Act,
    Draft,
    Position,
    bind_reader,
    bind_writer,
    note_read,
    unbind_writer,
    writer_of,
)
from plait.session.session import session_at
from plait.session.state import NOTHING
from plait.session.value import (
    advance,
    delivered_seq,
    keep_snapshot_if_due,
    next_value,
    position_of,
)
from plait.store import Fence, Log, Store
from plait.store.base import TURNS, turns_in

OnEvent = Callable[[Event | Delta], object]
Rider = tuple[Draft, Mapping[Digest, bytes]]  # what waits for the next append to its log


class Frame(NamedTuple):
    """A call that is going on."""

    path: str  # review/critics/style
    call: str  # its bracket
    node: object  # the workflow that was called
    # and the function of it that is running: `super().forward` is no call of its own
    forward: object
    log: LogId  # where it began
    actor: str  # as whom it acts
    purpose: Purpose
    scope: str  # the run, or the tool call in it whose doing this is
    # its callers', and its own: nobody may more than who called it
    policies: tuple[Policy, ...] = ()


# events of a log that a run remembers, so that whoever comes next need not read them back
TAIL = 64


class Run:
    """The one writer of a run's logs, and what it has in hand."""

    def __init__(
        self,
        id: str,
        root: LogId,
        direct: DirectWriter,
        io: Any,
        *,
        behalf: str,
        on_event: OnEvent | None = None,
    ) -> None:
        self.id, self.root, self.io = id, root, io
        # for all of it that is not on record, besides those of its workflows
        self.policies: tuple[Policy, ...] = ()
        # what is otherwise than its workflows say, beyond the record
        self.overrides: Overrides | None = None
        # who is asked at once; None: whoever looks into the inbox
        self.approver: Approver | None = None
        # likewise, for questions
        self.answerer: Callable[[str, tuple[str, ...]], Json] | None = None
        self.holder = ""  # how its RunResumed names whoever took it up; "": nobody had to
        self.taker = direct.principal()  # and as whom
        self.home = ""  # the address of the store where it began
        # of its root, as long as this process holds the run; None: it holds nothing yet
        self.epoch: int | None = None
        self._own: tuple[Fence, ...] = ()  # that its root is at that epoch
        self._past: tuple[Fence, ...] = ()  # what the value rested on that it was started with
        self._outer: Run | None = None  # the run whose code started this one
        self.is_lost = False  # whether another process took it, or ended it
        self._direct, self.behalf = direct, behalf
        self._listeners: list[OnEvent] = [on_event] if on_event else []
        self._lock = Lock()
        self._frames: dict[LogId, tuple[Frame, ...]] = {}
        self._bases: dict[LogId, tuple[Frame, ...]] = {}
        self._riding: dict[tuple[LogId, str], list[Rider]] = {}
        self._tips: dict[LogId, Position] = {}
        self._parents: dict[LogId, LogId] = {}
        self._forks: Counter[tuple[str, ...]] = Counter()
        self._forkers: dict[tuple[str, ...], Thread] = {}
        self._stopped: dict[int, LogId] = {}
        self._stops = count()
        self.closed = False
        self.has_ended = False  # whether its end is on record, written here
        self._threads: dict[str, Thread] = {}  # by call: the thread whose code it is
        self._over: set[str] = set()  # scopes of tool calls that have an outcome
        self._posted: Counter[tuple[LogId, str, bytes]] = Counter()
        self._agents: dict[tuple[LogId, str], str] = {}
        self._calls: Counter[tuple[LogId, str]] = Counter()
        self._tails: dict[LogId, deque[Event]] = {}
        self._halted: Halted | None = None
        # told before and after each write: a simulation may end there
        self.on_write: Callable[[str, Sequence[Draft]], None] | None = None
        self._delivered: dict[LogId, int] = {}
        self._met: set[tuple[str, ...]] = set()
        self.pools: dict[LogId, Pool] = {}  # by the log that has a budget
        self.outer_pool: Pool | None = None  # that of the run whose code started this one
        self.started_at = 0  # up to where in its inbox a wish to cancel was for a run before it
        # up to where in its inbox a wish to pause is over, because somebody resumed it since
        self.resumed_at = 0
        self.gated = False  # whether a verdict was ever required in it
        self.reads = Reads()  # shared with the runs that its code starts
        # by the scope of a tool call: how the tool acts on the session it was handed
        self._acts: dict[str, Act] = {}
        # what is on record; None: it was begun here, and all of it is being written
        self.recording: Recording | None = None
        self.address = direct.address

    # ── the Writer ───────────────────────────────────────────────────────────────────────────

    def store(self, address: str) -> Store:
        return self._direct.store(address)

    def noticed(self, body: k.Bypassed) -> None:
        """Something went around the session: said with the next append to the run's own log."""
        if not self.closed and not (
            self.recording is not None and self.on_record(session_at(self.tip(self.root)))
        ):
            self.ride(self.root, self.id, Draft(body, Act("service:plait", "program")))

    def policies_for(self, session: Session) -> tuple[Policy, ...]:
        """What holds for all of the run that is not on record."""
        return self.policies if self.policies and not self.before_branch(session) else ()

    def now(self, session: Session) -> Micros:
        return self._direct.source(session.store).now(session.id, session.seq + 1)

    def process(self, session: Session) -> str:
        """A name that no other process has: consent may count in this one only."""
        return self._direct.process(session.store)

    def principal(self, log: LogId | None = None) -> str:
        frames = self.frames(log or self.root)
        return f"service:{principal_of(frames[-1].path)}" if frames else self._direct.principal()

    def acting(self, store: str, spot: Position | None = None) -> Act:
        """A tool acts as who called it, because of what that call was made for; a workflow as
        itself.
        """
        act = (
            self._acts.get(spot.run or "", UNNAMED) if spot is not None and self._acts else UNNAMED
        )
        if not self.reads.places:
            return act
        read = self.reads.sources(
            self.calls(spot.id if spot is not None else self.root), store, spot
        )
        if read is NOTHING_READ:
            return act
        return act._replace(origin=read.origin or act.origin, causes=(*act.causes, *read.causes))

    def calls(self, log: LogId) -> Calls:
        """The calls whose code this is: as the context says, else those that have
        this log in hand.
        """
        here = doing.get()
        if (
            not here
            and (context := inside.starter_context()) is not None
            and context.get(running) is self
        ):
            here = context.get(doing, ())
        return here or tuple([frame.call for frame in self.frames(log)])

    def let_act(self, scope: str, act: Act) -> None:
        self._acts[scope] = act

    def judges(self, log: LogId, store: str) -> tuple[str, ...]:
        """The names of the calls that have this log in hand, as gates may name them."""
        frames = self.frames(log)
        known = {kind.__qualname__ for frame in frames for kind in type(frame.node).__mro__[:-1]}
        return (self.principal(log), *(frame.path for frame in frames[-1:]), *sorted(known))

    def path_of(self, log: LogId, workflow: object) -> str | None:
        """The path of a workflow that is called, or may be called, by who has this log in hand."""
        for frame in reversed(self.frames(log)):
            if frame.node is workflow:
                return frame.path
            parts: Any = getattr(frame.node, "named_parts", tuple)()
            found = next((path for path, part in parts if part is workflow), None)
            own = getattr(workflow, "name", None)
            if found is not None:
                return own if isinstance(own, str) and own else f"{frame.path}/{found}"
        return None

    def begin(
        self,
        address: str,
        drafts: Sequence[Draft],
        *,
        fork: Place | None = None,
        blobs: Mapping[Digest, bytes] | None = None,
        run: str | None = None,
    ) -> Position:
        """A log of this run.

        Its id follows from where it was made, so that the same run made again finds it.
        """
        check_decisions(address, self.root, drafts)
        self._check_going()
        scope = run or self.id
        log, store = self._name(drafts[0].body, fork, scope), self.store(address)
        was = (
            self._was_named(store, drafts[0].body, fork)
            if self.recording is not None and self.recording.branched
            else None
        )
        recorded = (
            self.recording.began(self, store, log, drafts, scope, was)
            if self.recording is not None
            else None
        )
        if recorded is None:
            if self.on_write is not None:
                self.on_write("before", drafts)
            resting = self.fences_in(address)
            try:
                recorded = self._direct.start(
                    store,
                    log,
                    drafts,
                    fork=fork,
                    blobs=blobs,
                    run=scope,
                    behalf=self.behalf,
                    fences=resting,
                )
            except StaleEpoch as error:
                raise self.halt_lost(error) from None
            if self.on_write is not None:
                self.on_write("after", drafts)
            self._tell(recorded[1])
        spot = recorded[0]
        log = spot.id  # what was merged before it was branched off keeps its name
        with self._lock:
            self._tips[log] = spot
            if fork is not None:
                self._parents[log] = fork.log
                self._frames[log] = self._bases[log] = self._frames.get(fork.log, ())
                first = drafts[0].body
                if isinstance(first, ForkedFrom) and first.budget is not None:
                    self.pools[log] = self._share(
                        store, recorded[1][0], first.budget, self.pool(fork.log)
                    )
                if (
                    agent := self._agents.get((fork.log, scope))
                    or self._agents.get((fork.log, self.id))
                ) is not None:
                    self._agents[log, scope] = agent
        return spot

    def _share(self, store: Store, forked: Event, budget: Budget, above: Pool | None) -> Pool:
        """Make the pool of a branch with a budget of its own, less what it and its branches have on
        record.
        """
        spent, wall_s = NOTHING, 0.0
        if self.recording is not None:
            grant = Grant(forked.id, forked.log, forked.seq, budget)
            spent, wall_s = spent_under(store, grant), self.recording.wall_s(forked.log)
        return Pool(
            budget, spent=spent, wall_s=wall_s, above=above, clock=lambda: self.io.clock() / 1e6
        )

    def append(
        self,
        spot: Position,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        blobs: Mapping[Digest, bytes] | None = None,
    ) -> Position:
        check_decisions(spot.store, spot.id, drafts)
        return self.write(spot, drafts, merges=merges, blobs=blobs)[0]

    def write(
        self,
        spot: Position,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        blobs: Mapping[Digest, bytes] | None = None,
        held: Sequence[Event] = (),
    ) -> tuple[Position, list[Event]]:
        """Append, with what was waiting for it; returns the events of these drafts.

        `held` were sealed before, up to this spot.
        """
        self._check_going()
        key = spot.id, spot.run or self.id
        with self._lock:
            riding = self._riding.pop(key, None)
        ahead = len(riding) if riding else 0
        try:
            every, more = _with(riding, drafts, blobs) if riding else (drafts, blobs)
            after, events = self._write(spot, every, merges, ahead, more, held)
        except BaseException:
            if riding:
                with self._lock:
                    self._riding[key] = [*riding, *self._riding.get(key, [])]
            raise
        return after, events[ahead:] if ahead else events

    def _write(
        self,
        spot: Position,
        drafts: Sequence[Draft],
        merges: tuple[Digest, ...],
        merging: int,
        blobs: Mapping[Digest, bytes] | None,
        held: Sequence[Event],
    ) -> tuple[Position, list[Event]]:
        if not self.gated and k.GateRequired in [type(draft.body) for draft in drafts]:
            self.gated = True
        found: list[Event] = []
        path = self._path(spot)
        if path is not None:
            found = self._matched(path, spot, drafts, blobs)
            if len(found) == len(drafts):
                return path.at, found
            drafts, spot = after_found(drafts, found), path.at
            merging -= len(found)
        spot = self._beyond(spot)
        # a simulation may end the process here, or let it look as if it had ended
        if self.on_write is not None:
            self.on_write("before", drafts)
        resting = self.fences_in(spot.store)
        try:
            # What a run does, it does on behalf of whoever started it.
            after, events = self._direct.write(
                spot,
                drafts,
                merges=merges,
                merging=merging,
                blobs=blobs,
                behalf=self.behalf,
                held=held,
                fences=resting,
            )
        except StaleEpoch as error:
            raise self.halt_lost(error, spot, [*map(_redrafted, held), *drafts]) from None
        if spot.id == self.root and self.epoch is not None and (turns := turns_in(events)):
            self.hold_at(self.epoch + turns)
            self.has_ended = True  # it says that it was resumed through another writer
        with self._lock:
            self._tips[spot.id] = after
            self._tail(spot.id).extend([*held, *events] if held else events)
        for event in events:
            if event.kind == k.BudgetSet.__name__:
                self._grant(event)
        if self.on_write is not None:
            self.on_write("after", drafts)
        self._tell([*held, *events] if held else events)
        return after, [*found, *events] if found else events

    def _grant(self, event: Event) -> None:
        """Bound a log by a budget from here on: one from outside replaces what was left, one of the
        run's own code draws on it as well.
        """
        body = event.body
        assert isinstance(body, k.BudgetSet)
        above = (
            self.pool(event.log)
            if is_share(self._direct.store(self._tips[event.log].store), event)
            else self.outer_pool
        )
        self.pools[event.log] = Pool(body.budget, above=above, clock=lambda: self.io.clock() / 1e6)

    def post(
        self,
        address: str,
        log: LogId,
        drafts: Sequence[Draft],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        run: str | None = None,
    ) -> list[Event]:
        self._check_going()
        if self.recording is not None and run is not None:
            drafts = [draft for draft in drafts if not self._was_posted(address, log, draft, run)]
            if not drafts:
                return []
        try:
            return self._direct.post(
                address,
                log,
                drafts,
                blobs=blobs,
                check=check,
                run=run,
                fences=self.fences_in(address),
            )
        except StaleEpoch as error:
            raise self.halt_lost(error) from None

    def _was_posted(self, address: str, log: LogId, draft: Draft, run: str) -> bool:
        """Whether code of the run posted this in an earlier life of it: then it stands in the
        inbox.
        """
        if self.recording is not None and self.recording.strict:
            return True
        body = without_secrets(draft.body)
        key = log, type(body).__name__, VOCABULARY.encode(body)
        with self._lock:
            self._posted[key] += 1
            times = self._posted[key]
        stands = [
            event
            for event in arrived(self._direct.store(address), log)
            if event.header.run == run and event.body == body
        ]
        return len(stands) >= times

    def latest(self, spot: Position) -> Position:
        """Where a log stands: for a run that is taken up again, where it stood then."""
        path = self._path(spot)
        return self._direct.latest(spot) if path is None else self._at_gap(path, spot)

    def is_current(self, spot: Position) -> bool:
        """Whether one can go on from this spot: it is the last step taken, whatever others wrote
        since, or the end of the log.
        """
        path = (
            self.recording.paths.get(spot.id)
            if self.recording is not None and spot.run == self.id
            else None
        )
        return spot.seq >= path.at.seq if path is not None else self._direct.is_current(spot)

    # ── the record ───────────────────────────────────────────────────────────────────────────

    def take(self, session: Session, calls: Container[str | None]) -> tuple[Session, Event] | None:
        """The next step on record, if it belongs to one of these brackets; None: it does not, or
        there is none.
        """
        path = self._path(position_of(session)) if self.recording is not None else None
        event = path.take(calls) if path is not None else None
        if path is None or event is None:
            return None
        self._remember(path, [event])
        return _moved(session, path.at, [event]), event

    def peek(self, session: Session) -> Event | None:
        """The next step on record."""
        path = self._path(position_of(session))
        return (
            path.peek(self.waiting(session.id, session.run or self.id))
            if path is not None
            else None
        )

    def pool(self, log: LogId) -> Pool | None:
        """What a branch draws on: its own budget, else that of whatever it was forked from."""
        if not self.pools:  # as most runs have none
            return None
        at: LogId | None = log
        while at is not None:
            if at in self.pools:
                return self.pools[at]
            at = self._parents.get(at)
        return self.pools.get(self.root)

    def next_of(self, session: Session, calls: Container[str | None]) -> Event | None:
        path = self._path(position_of(session))
        return path.next_of(calls) if path is not None else None

    def take_delivery(self, session: Session) -> tuple[Session, list[Event]] | None:
        """What the record says was delivered here; None: it says nothing any more."""
        path = self._path(position_of(session))
        if path is None:
            return None
        self._take_riding(path, position_of(session))
        events = path.take_delivery()
        self._remember(path, events)
        for event in events[:1]:
            body = event.body
            assert isinstance(body, k.Delivered)
            # what a run heard that this one was branched off, it heard in another inbox
            if body.inbox == inbox_of(session.id):
                self._delivered[session.id] = max(body.upto, self._delivered.get(session.id, 0))
        return _moved(session, path.at, events) if events else session, events[1:]

    def _take_riding(self, path: Cursor, spot: Position) -> None:
        """What waited for the next append was written with the delivery, if one is on record right
        after it.
        """
        key = spot.id, self.id
        with self._lock:
            riding = [draft for draft, _ in self._riding.get(key, ())]
        if riding and path.delivers_after(riding):
            self._matched(path, spot, riding)
            with self._lock:
                del self._riding[key][: len(riding)]

    def goes_on(self, session: Session) -> bool:
        """Whether the record has an ordinary step right after this value: then nothing arrived
        here, and there is nothing to heed.
        """
        path = self.recording.paths.get(session.id) if self.recording is not None else None
        if path is None or path.at.seq != session.seq or self._riding.get((session.id, self.id)):
            return False
        return path.follows(session.seq)

    def on_record(self, session: Session) -> bool:
        """Whether what follows in this log is on record."""
        return self.recording is not None and self._path(position_of(session)) is not None

    def follows(self, session: Session) -> bool:
        """Whether what the program does next is on record: after what waits for the next append,
        which may be all that is left.
        """
        path = self._path(position_of(session))
        if path is None or self.recording is None:
            return False
        return (
            self.recording.strict
            or path.closed
            or path.goes_on(self.waiting(session.id, session.run or self.id))
        )

    def before_branch(self, session: Session) -> bool:
        """Whether what follows is the record of the run this one was branched off."""
        path = (
            self._path(position_of(session))
            if self.recording is not None and self.recording.branched
            else None
        )
        return path is not None and path.before_branch(
            self.waiting(session.id, session.run or self.id)
        )

    def branched_off(self, session: Session) -> tuple[str, ...]:
        """The runs that this one was branched off, the first one first."""
        return (
            self.recording.before if self.recording is not None and session.run == self.id else ()
        )

    def is_inherited(self, event: Event) -> bool:
        """Whether an event was there when this run was branched off: what was asked for there was
        not asked for here.
        """
        return event.header.run != self.id or (
            self.recording is not None
            and event.log == self.root
            and event.seq <= self.recording.restated
        )

    def joined(self, session: Session) -> Session:
        """The value from which a run goes on: what others wrote since its last step
        is taken along.
        """
        path = (
            self.recording.paths.get(session.id)
            if self.recording is not None and session.run == self.id
            else None
        )
        if path is None or session.seq != path.at.seq:
            return session
        spot = self._at_gap(path, position_of(session))
        if (
            path.over
            and self.recording is not None
            and not self.recording.strict
            and not path.closed
        ):
            self._live(spot)
        return next_value(session, spot) if spot.seq != session.seq else session

    def ended(self, session: Session) -> Stop:
        """The record ends, and only the record may be followed: what would have to be run is not on
        it.
        """
        assert self.recording is not None
        if session.id != self.root and not self.recording.finished:
            return Parked(session, "the record of this branch ends here")  # others went on
        if self.recording.open or self.ends_here(session):
            return self.halt(None)
        return self.halt(
            diverged(position_of(session), Differs(None, "(an effect that is not on record)"))
        )

    def was_on_record(self, event: Event) -> bool:
        """Whether an event was there when the run was taken up again."""
        return self.recording is not None and event.seq <= self.recording.frontier.get(event.log, 0)

    def ends_here(self, session: Session) -> bool:
        """Whether the record has nothing more in this log but its end."""
        path = self.recording.paths.get(session.id) if self.recording is not None else None
        return (
            path is not None and self.recording is not None and self.recording.strict and path.ends
        )

    def names(self, session: Session) -> tuple[str, LogId]:
        """The run and the log after which calls are named: in what is branched off, as they were
        named there.
        """
        path = (
            self._path(position_of(session))
            if self.recording is not None and self.recording.branched
            else None
        )
        step = path.peek() if path is not None else None
        if step is not None:
            return step.header.run or self.id, step.log
        return session.run or self.id, session.id

    # ── the inbox ────────────────────────────────────────────────────────────────────────────

    def delivered(self, session: Session) -> int:
        """Up to where the inbox of a log was delivered."""
        if session.id not in self._delivered:
            self._delivered[session.id] = delivered_seq(session)
        return self._delivered[session.id]

    def set_delivered(self, log: LogId, upto: int) -> None:
        self._delivered[log] = upto

    def first_time(self, what: tuple[str, ...]) -> bool:
        """Whether this is asked for the first time in this execution."""
        with self._lock:
            before = len(self._met)
            self._met.add(what)
            return len(self._met) > before

    def is_tip(self, session: Session) -> bool:
        """Whether this is the last value of its log that the run has made."""
        at = self._tips.get(session.id)
        return at is not None and (at.seq, at.head) == (session.seq, session.head)

    def check_all_taken(self) -> None:
        """The program has come to its end: no branch may have a step on record that it never came
        to.
        """
        for log, path in (self.recording.paths if self.recording is not None else {}).items():
            step = path.left() if log != self.root else None
            if step is not None:
                raise self.halt(diverged(path.at, Differs(step, "(the end of the program)")))

    def _path(self, spot: Position) -> Cursor | None:
        """The path of a log, as long as there is something on it; only what the run itself does is
        on a path.
        """
        if self.recording is None or (spot.run is not None and spot.run != self.id):
            return None
        path = self.recording.paths.get(spot.id)
        return (
            path
            if path is not None and (self.recording.strict or path.closed or not path.over)
            else None
        )

    def _matched(
        self,
        path: Cursor,
        spot: Position,
        drafts: Sequence[Draft],
        blobs: Mapping[Digest, bytes] | None = None,
    ) -> list[Event]:
        """As many of these drafts as are on record."""
        assert self.recording is not None
        if spot.seq < path.at.seq:
            raise StaleHead(spot.id, spot.head, path.at.head, path.at.seq)
        found: list[Event] = []
        for draft in drafts:
            try:
                event = path.match(draft)
            except Differs as error:
                if self.recording.strict and not self.recording.finished and path.ends:
                    # nothing more was done, and then somebody ended it
                    raise self.halt(None) from None
                raise self.halt(diverged(spot, error, self.store(spot.store), blobs)) from None
            if event is None:
                if self.recording.strict and spot.id != self.root and not self.recording.finished:
                    raise Parked(session_at(spot), "the record of this branch ends here")
                if self.recording.strict or path.closed:
                    raise self.halt(
                        None if self.recording.open else diverged(spot, Differs(None, draft))
                    )
                break
            found.append(event)
        self._remember(path, found)
        return found

    def _remember(self, path: Cursor, events: Sequence[Event]) -> None:
        with self._lock:
            self._tips[path.log] = path.at
            self._tail(path.log).extend(events)

    def _tail(self, log: LogId) -> deque[Event]:
        found = self._tails.get(log)
        if found is None:
            found = self._tails[log] = deque(maxlen=TAIL)
        return found

    def _at_gap(self, path: Cursor, spot: Position) -> Position:
        step, place = path.peek(), path.gap()
        if path.over or step is None:
            return msgspec.structs.replace(path.tip, run=spot.run)
        return (
            spot
            if place <= spot.seq
            else msgspec.structs.replace(spot, seq=place, head=step.header.parents[0])
        )

    def _beyond(self, spot: Position) -> Position:
        """Where to write what comes right after the last step on record: after what others wrote
        since.
        """
        path = (
            self.recording.paths.get(spot.id)
            if self.recording is not None and spot.run == self.id
            else None
        )
        if path is None or spot.seq != path.at.seq:
            return spot
        self._live(path.tip)
        return path.tip

    def _live(self, spot: Position) -> None:
        """From here on this log is written."""
        assert self.recording is not None
        self.recording.paths.pop(spot.id, None)
        with self._lock:
            self._tips[spot.id] = spot

    # ── not going on ─────────────────────────────────────────────────────────────────────────

    def halt(self, error: PlaitError | None) -> Halted:
        """From now on nothing of this run is written by this process."""
        self._halted = self._halted or Halted(error)
        return self._halted

    @property
    def is_halted(self) -> bool:
        return self._halted is not None

    def _check_going(self) -> None:
        if self._halted is not None:
            raise (self._halted.error or self._halted) if self.closed else self._halted

    # ── the fence ────────────────────────────────────────────────────────────────────────────

    def hold_at(self, epoch: int) -> None:
        """From now on its writes rest on its root being at this epoch: another process that takes
        the run raises it.
        """
        self.epoch, self._own = epoch, (Fence(self.root, epoch), *self._past)

    def rest_on(self, outer: Run | None, value: str | None) -> None:
        """What this run writes also rests on the run whose code started it, as long as that goes
        on, and on that of its first value.
        """
        self._outer = outer if outer is not None and not outer.closed else None
        past = _let_go.get(value) if value is not None and value != self.id else None
        self._past = self._own = past.fences if past is not None and past.home == self.home else ()

    @property
    def outer(self) -> Run | None:
        """The run whose code started this one; None: no run's, or that run has come to its end."""
        return (
            self._outer
            if self._outer is not None and (self._outer.is_lost or not self._outer.closed)
            else None
        )

    @property
    def fences(self) -> tuple[Fence, ...]:
        """What its writes rest on: the epoch of its root, and those of the runs whose code started
        it.
        """
        outer = self.outer if self._outer is not None else None
        return (
            (*self._own, *outer.fences)
            if outer is not None and outer.home == self.home
            else self._own
        )

    def fences_in(self, address: str) -> tuple[Fence, ...]:
        """What a write to this store rests on.

        Runs that began in another store are asked now: no transaction spans two stores.
        """
        if address != self.home:
            self.check_mine()
            return ()
        if (
            self._outer is not None
            and (outer := self.outer) is not None
            and outer.home != self.home
        ):
            outer.check_mine()
        return self.fences

    def check_mine(self, heads: Mapping[LogId, Log] | None = None) -> None:
        """Raises if another process took the run, or one whose code started it.

        `heads` are logs as they were just read.
        """
        if self.is_lost:
            self._check_going()
        if (outer := self.outer) is not None and outer.home != self.home:
            outer.check_mine()
        fences = self.fences
        if not fences:
            return
        known = (
            heads
            if heads is not None
            else self.store(self.home).heads([fence.log for fence in fences])
        )
        for fence in fences:
            if fence.log in known and known[fence.log].epoch != fence.epoch:
                raise self.halt_lost(StaleEpoch(fence.log, fence.epoch, known[fence.log].epoch))

    def halt_lost(
        self, error: StaleEpoch, spot: Position | None = None, drafts: Sequence[Draft] = ()
    ) -> Halted:
        """This process has lost the run: from now on nothing of it is written here.

        Outcomes that came too late go to the inbox.
        """
        if spot is not None:
            post_late(self._direct, spot, drafts)
        self.is_lost = True
        if error.log != self.root and self._outer is not None:
            return self.halt(self._outer.halt_lost(error).error)
        return self.halt(RunLost(short(self.root), self.id, self._taken_by()))

    def _taken_by(self) -> str:
        """Who has the run now, or ended it."""
        turns = self.store(self.home).read(self.root, kinds=TURNS, reverse=True)
        last = next((event for event in turns if event.header.run == self.id), None)
        body = last.body if last is not None else None
        if isinstance(body, k.RunResumed):
            return body.holder
        return f"{last.actor}, who ended it" if last is not None else "another process"

    def seal(self, spot: Position, drafts: Sequence[Draft]) -> tuple[Position, list[Event]] | None:
        """The events as they would be written here; None: somebody else wrote, or something waits
        that has to come first.
        """
        with self._lock:
            if (
                self.closed
                or self._tips.get(spot.id) != spot
                or self._riding.get((spot.id, spot.run or self.id))
            ):
                return None
        return self._direct.seal(spot, drafts, behalf=self.behalf)

    def since(self, log: LogId, first: int, last: int) -> list[Event] | None:
        """The events of a log from first to last as this run wrote them; None: it did not write
        them all, or has forgotten.
        """
        wanted = last - first + 1
        with self._lock:
            tail = self._tails.get(log)
            if not tail or wanted < 1 or tail[-1].seq < last:
                return [] if wanted < 1 else None
            found = list(islice(reversed(tail), tail[-1].seq - last, tail[-1].seq - first + 1))
        # Places only grow, so as many events as places between these two are all of them.
        return (
            found[::-1]
            if len(found) == wanted and (found[0].seq, found[-1].seq) == (last, first)
            else None
        )

    def _name(self, first: Body, fork: Place | None, scope: str) -> LogId:
        if fork is None:
            place = first.continues if isinstance(first, SessionOpened) else None
            about = ("root", place.log if place else "", str(place.seq if place else 0), "")
        else:
            label = first.label if isinstance(first, ForkedFrom) else None
            about = ("fork", fork.log, str(fork.seq), label or "")
        key = (scope, *about)
        with self._lock:
            before = self._forkers.get(key)
            self._forkers[key] = current_thread()
            if before is not None and before is not current_thread() and before.is_alive():
                raise InvalidValue(
                    "label",
                    f"two threads fork {about[1][-12:-4]}@{about[2]} under one name",
                    "give each branch a label of its own",
                )
            ordinal = self._forks[key]
            self._forks[key] += 1
        return derived("plait/fork/1", scope, *about, ordinal)

    def _was_named(self, store: Store, first: Body, fork: Place | None) -> LogId | None:
        """What a branch was called in the run this one was branched off."""
        if fork is None or not isinstance(first, ForkedFrom):
            return None
        made_at = store.event(fork.head)
        about = ("fork", fork.log, str(fork.seq), first.label or "")
        ordinal = self._forks[(self.id, *about)] - 1
        return derived(
            "plait/fork/1",
            made_at.header.run or "",
            "fork",
            made_at.log,
            str(fork.seq),
            first.label or "",
            ordinal,
        )

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    def frames(self, log: LogId) -> tuple[Frame, ...]:
        """The calls that have this log in hand, the outermost first."""
        found = self._frames.get(log)
        return found if found is not None else self._frames.get(self.root, ())

    def base(self, log: LogId) -> tuple[Frame, ...]:
        """The calls that had this log in hand when it was forked."""
        return self._bases.get(log, ())

    def drop_frame(self, log: LogId, frame: Frame) -> None:
        """This call no longer has the log in hand, nor what it called."""
        with self._lock:
            frames = self._frames.get(log, ())
            if frame in frames:
                self._frames[log] = tuple([each for each in frames if each != frame])
            self._threads.pop(frame.call, None)

    def begin_code(self, frame: Frame) -> None:
        """The code of this call runs in this thread."""
        self._threads[frame.call] = code_thread()

    def end_scope(self, scope: str | None) -> None:
        """The tool call whose scope this is has an outcome: what threads of it still do is done
        from outside.
        """
        if scope is not None and scope != self.id:
            self._over.add(scope)

    def has_in_hand(self, spot: Position) -> bool:
        """Whether the code here is what has a value in hand: code of its call, and not another
        thread that was handed it, too.
        """
        scope = spot.run or self.id
        if scope in self._over:
            return False
        here: Thread | None = None
        for frame in self._frames.get(spot.id, ()):
            if frame.log == spot.id and frame.scope == scope:
                here = here or code_thread()
                if self._threads.get(frame.call, here) is here:
                    return True
        return here is None

    def set_frames(self, log: LogId, frames: tuple[Frame, ...]) -> None:
        with self._lock:
            self._frames[log] = frames

    def ride(
        self, log: LogId, scope: str, draft: Draft, blobs: Mapping[Digest, bytes] | None = None
    ) -> None:
        """Write this with the next append to the log."""
        with self._lock:
            self._riding.setdefault((log, scope), []).append((draft, dict(blobs) if blobs else {}))

    def hand_over(self, log: LogId, scope: str, agent: str) -> str | None:
        """From now on this agent has the session; returns who had it before, if
        that was another.
        """
        with self._lock:
            before = self._agents.get((log, scope)) or self._agents.get((log, self.id))
            self._agents[log, scope] = agent
        return before if before != agent else None

    def ordinal(self, log: LogId, scope: str) -> int:
        """How many calls had this log in hand before, in this execution."""
        with self._lock:
            self._calls[log, scope] += 1
            return self._calls[log, scope]

    def waiting(self, log: LogId, scope: str) -> int:
        """How many events wait for the next append to a log."""
        with self._lock:
            return len(self._riding.get((log, scope), ()))

    def tip(self, log: LogId, scope: str | None = None) -> Position:
        return msgspec.structs.replace(self._tips[log], run=scope or self.id)

    def start(self, spot: Position) -> None:
        with self._lock:
            self._tips[spot.id] = spot

    def left(self) -> list[tuple[LogId, str]]:
        """Logs for which something still waits, and in whose name."""
        with self._lock:
            return [
                (log, scope)
                for (log, scope), riding in self._riding.items()
                if riding and log in self._tips
            ]

    # ── stopping and telling ─────────────────────────────────────────────────────────────────

    def stop(self, log: LogId) -> int:
        """Nothing more is to happen in this branch, nor in branches of it, until `go_on` takes back
        this very stop.
        """
        with self._lock:
            stop = next(self._stops)
            self._stopped = {**self._stopped, stop: log}
            return stop

    def go_on(self, stop: int) -> None:
        """What was stopped has come to rest: whoever had it called may go on, unless somebody else
        stopped it, too.
        """
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
        self._check_going()
        path = self.recording.paths.get(log) if self.recording is not None else None
        if path is not None and path.goes_on(self.waiting(log, self.id)):
            return  # it went on so far, whoever stopped it when
        if self.is_stopped(log) or (
            path is not None and path.stopped and self.went_on_without(log)
        ):
            raise Cancelled(f"branch {log[-12:-4]} was stopped")

    def went_on_without(self, log: LogId) -> bool:
        """Whether, on record, whatever a branch was forked from went on after the branch was
        stopped.
        """
        assert self.recording is not None
        parent = self._parents.get(log, self.root)
        above = self.recording.paths.get(parent)
        return self.recording.strict or (
            above is not None and above.goes_on(self.waiting(parent, self.id))
        )

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
        item = item if isinstance(item, Event) else without_secrets(item)
        for listener in self._listeners:
            try:
                listener(item)
            # whoever only watches must not bring down what it watches
            except BaseException as error:
                if inside.ends_run(error):
                    raise
                if self.unlisten(listener):
                    with suppress(Warning):  # where warnings are errors, too
                        warnings.warn(
                            f"on_event raised {type(error).__name__}; it is not called any more",
                            RuntimeWarning,
                            stacklevel=2,
                        )

    def _tell(self, events: Sequence[Event]) -> None:
        if self._listeners:
            for event in events:
                self.tell(event)


_OUTCOMES = (k.ToolReturned, k.ToolFailed)


def post_late(direct: DirectWriter, spot: Position, drafts: Sequence[Draft]) -> None:
    """Outcomes that came too late for their log go to its inbox: what a tool did is never lost."""
    late = [
        draft._replace(act=draft.act._replace(causes=()))
        for draft in drafts
        if isinstance(draft.body, _OUTCOMES)
    ]
    if late:
        direct.post(spot.store, spot.id, late, fences=())


def _redrafted(event: Event) -> Draft:
    return Draft(event.body, Act(event.actor, event.header.origin, call=event.header.call))


def _with(
    riding: Sequence[Rider], drafts: Sequence[Draft], blobs: Mapping[Digest, bytes] | None
) -> tuple[list[Draft], dict[Digest, bytes]]:
    """What is written together: what was waiting first, and what is due after it."""
    ahead = len(riding)
    every = [draft for draft, _ in riding]
    every += [
        draft._replace(act=_shifted(draft.act, ahead)) if draft.act.causes else draft
        for draft in drafts
    ]
    more = dict(blobs) if blobs else {}
    for _, with_it in riding:
        more.update(with_it)
    return every, more


def _moved(session: Session, spot: Position, events: Sequence[Event]) -> Session:
    """The value after these events.

    What stands between it and them, and is no step of the run, may have changed its life.
    """
    if events[0].seq != session.seq + 1:
        return next_value(session, spot)
    return advance(session, spot, *[event.kind for event in events])


def _shifted(act: Act, by: int) -> Act:
    return act._replace(
        causes=tuple([cause + by if isinstance(cause, int) else cause for cause in act.causes])
    )


# ── the registry ─────────────────────────────────────────────────────────────────────────────

_runs: dict[str, Run] = {}


_scopes: dict[str, set[str]] = {}


class _LetGo(NamedTuple):
    """A run that is open and that this process no longer has: it is parked, or was interrupted.

    Another may take it.
    """

    root: LogId
    id: str
    home: str
    fences: tuple[Fence, ...]


# by run and scope: values of it may be in the hands of a thread that goes on
_let_go: dict[str, _LetGo] = {}
_LET_GO_MAX = 10_000


def open_run(run: Run) -> None:
    hide_in_tracebacks()
    _runs[run.id] = run
    _let_go.pop(run.id, None)
    bind_writer(run, run.id)


def watch_run(run: Run, address: str, policy: str | None) -> None:
    """From now on what the run's own code does around the session is noticed."""
    scheme, _, folder = address.partition(":")
    if scheme == "sqlite":
        bypass.spare(folder)
    bypass.watch(run, bypass.policy_of(policy, os.environ))


def close_run(run: Run) -> None:
    run.closed = True
    bypass.unwatch(run)
    if run.is_lost:
        # its values may be in hands that do not know yet, a thread of the program's: they write
        # nothing, ever
        return
    for scope in (run.id, *_scopes.pop(run.id, ())):
        _runs.pop(scope, None)
        unbind_writer(scope)
        if run.fences and not run.has_ended:
            _let_go[scope] = _LetGo(run.root, run.id, run.home, run.fences)
    while len(_let_go) > _LET_GO_MAX:
        _let_go.pop(next(iter(_let_go)))


def scoped(session: Session, call: str, attempt: int, act: Act) -> Session:
    """The session as a tool is handed it: what it does with it belongs to its own bracket, and is
    done as `act` says.
    """
    run = run_of(session)
    if run is None:
        return session
    scope = f"{session.run}/{call}/{attempt}" if attempt > 1 else f"{session.run}/{call}"
    if len(scope) > 180:  # a tool in a tool in a tool
        scope = f"{run.id}/{digest(b'plait/scope/1', scope.encode())[:24]}"
    _scopes.setdefault(run.id, set()).add(scope)
    _runs[scope] = run
    run.let_act(scope, act)
    bind_writer(run, scope)
    return advance(session, msgspec.structs.replace(position_of(session), run=scope))


# whose code this is; threads we start know it, too
running: ContextVar[Run | None] = ContextVar("plait_run", default=None)
acting: ContextVar[Frame | None] = ContextVar("plait_call", default=None)  # which call of it
bypass.bind(running.get)
inside.bind(running.get)


class _RunReader:
    """Notes what the code of a run reads, also of values that are not the run's."""

    def read(self, spot: Position, whole: bool) -> None:
        run = _runs.get(spot.run or "") or _run_here()
        if run is not None and not run.closed:
            run.reads.note(run.calls(spot.id), spot, whole=whole)


def note_error(error: BaseException) -> None:
    """Note that the code here is handed an error that tells of a session."""
    if isinstance(error, EffectError) and isinstance(error.session, Session):
        note_read(position_of(error.session))


def note_raised(run: Run, frame: Frame, callers: tuple[Frame, ...], error: BaseException) -> None:
    """Note for the caller of a call that raised, whose code this is, what that call had read and
    written.
    """
    here = running.get() or (run if callers else None)
    if not isinstance(error, Exception) or here is None or here.closed:
        return
    caller = doing.get() or tuple([each.call for each in callers])
    with suppress(PlaitError):  # what the caller has to see is the error
        here.reads.hand_up((*caller, frame.call), caller)
        here.reads.note(caller, run.tip(frame.log))
        if isinstance(error, EffectError) and isinstance(error.session, Session):
            here.reads.note(caller, position_of(error.session))


def _acting_inside(store: str, spot: Position | None) -> Act:
    """How code of a run, or of a tool, acts on a value that is not the run's: a session of its own,
    say.
    """
    run = _run_here()
    if run is not None and not run.closed:
        return run.acting(store, spot)
    handed = tool_act.get()
    return (
        handed[1] if handed is not None and spot is not None and spot.id == handed[0] else UNNAMED
    )


bind_reader(_RunReader())
bind_acting(_acting_inside)


def _code_here() -> tuple[Run | None, Frame | None]:
    """Return the run and the call whose code this is, also in threads that it started by itself."""
    run = running.get()
    if run is None and (context := inside.starter_context()) is not None:
        return context.get(running), context.get(acting)
    return run, acting.get()


def _run_here() -> Run | None:
    """Return the run whose code this is: asked at every append, so it looks for no more."""
    run = running.get()
    if run is None and (context := inside.starter_context()) is not None:
        return context.get(running)
    return run


def executing() -> tuple[Run, Frame | None] | None:
    """Return the open run and the call whose code this is. None: no open run's, or unknown."""
    run, frame = _code_here()
    return (run, frame) if run is not None and not run.closed else None


def policies_here(run: Run | None, session: Session) -> tuple[Policy, ...]:
    """Return the policies that bind an effect: those of the calls that have the session in hand,
    and of the call whose code this is.
    """
    top = run.frames(session.id)[-1:] if run is not None else ()
    found = [*run.policies_for(session), *_policies_of(top)] if run is not None else []
    # as in most calls: nothing else binds it
    if run is not None and running.get() is run and acting.get() in (None, *top):
        return tuple(found)
    here = executing()
    if here is not None:
        outer, frame = here
        found += outer.policies if outer is not run else ()
        found += _policies_of((frame,) if frame is not None else ())
    return tuple({id(each): each for each in found}.values())


def _policies_of(frames: Sequence[Frame]) -> tuple[Policy, ...]:
    return frames[-1].policies if frames else ()


class _Inside:
    """What writes outside of any run rest on: on the run whose code this is, and on that of a value
    whose run was let go.
    """

    def fences(self, address: str, by: str | None) -> tuple[Fence, ...]:
        run = _run_here()
        past = _let_go.get(by) if by is not None and _let_go else None
        own = past.fences if past is not None and past.home == address else ()
        if run is None or (run.closed and not run.is_lost):
            return own
        if run.is_lost:
            run.check_mine()
        return (*own, *run.fences_in(address))

    def loss_error(
        self, error: StaleEpoch, by: str | None, spot: Position | None, drafts: Sequence[Draft]
    ) -> BaseException:
        run, past = _run_here(), _let_go.get(by) if by is not None else None
        if past is not None and error.log in [fence.log for fence in past.fences]:
            if spot is not None:
                post_late(direct_writer(), spot, drafts)
            return RunLost(short(past.root), past.id, "another process")
        return error if run is None else run.halt_lost(error)


bind_fences(_Inside())


def check_held(session: Session) -> None:
    """Right before an effect starts that no append of its own precedes: raises if the run it
    belongs to was taken.
    """
    run = run_of(session) or _run_here()
    if run is not None and (run.is_lost or not run.closed):
        run.check_mine()


def check_running(session: Session) -> None:
    """Before anything happens: raises if this branch was stopped, or if this is code of a run that
    is over.
    """
    run = run_of(session)
    if run is not None:
        return run.check(session.id)
    mine = running.get()
    if mine is not None and mine.closed:
        raise Cancelled("the run this belongs to has ended")


def _leave_to_parent() -> None:
    """In a forked child: runs are the parent's, and nothing of them is written here."""
    for run in set(_runs.values()):
        run.halt(RunLost(short(run.root), run.id, "the process that this one was forked from"))


os.register_at_fork(after_in_child=_leave_to_parent)


def is_going_on(id: str) -> bool:
    """Whether a run goes on, or is replayed, in this process."""
    run = _runs.get(id)
    return run is not None and not run.closed


def run_of(session: Session) -> Run | None:
    """The run this value belongs to, if it is going on in this process."""
    return _runs.get(session.run or "")


def direct_writer() -> DirectWriter:
    return cast("DirectWriter", writer_of(None))


def is_tried_again(session: Session) -> bool:
    """Whether an answer that ended the run is asked for again, because the run was taken up again:
    now, or on record.
    """
    run = run_of(session)
    if run is None or run.recording is None:
        return False
    step = run.peek(session)
    # On record it ended a call, or was followed by another ask. Where the record is over, the end
    # of the run says what it died of.
    return (
        step.kind != k.CallFinished.__name__
        if step is not None
        else session.head in run.recording.reopened
    )


def append_events(
    session: Session,
    drafts: Sequence[Draft],
    blobs: Mapping[Digest, bytes] | None = None,
    *,
    held: Sequence[Event] = (),
) -> tuple[Session, list[Event]]:
    """Append to a session whatever the runtime has to say, in a run or outside of any; returns the
    events as they were written.
    """
    writer = run_of(session) or direct_writer()
    spot, events = writer.write(position_of(session), drafts, blobs=blobs, held=held)
    after = advance(session, spot, *[type(draft.body).__name__ for draft in drafts])
    if not isinstance(writer, Run) or writer.recording is None:
        keep_snapshot_if_due(after, since=session.seq - len(held))
    return after, events


def append_at_tip(spot: Position, drafts: Sequence[Draft], fences: Sequence[Fence] = ()) -> None:
    """Append where a log ends by now, around any run that has it in hand here: for what decides who
    has it.
    """
    direct = direct_writer()
    while True:  # each time around somebody else got something written
        try:
            direct.write(spot, drafts, fences=fences)
            return
        except StaleHead:
            spot = direct.latest(spot)


def append_events_at_tip(
    session: Session,
    drafts: Sequence[Draft] | Callable[[Session], Sequence[Draft]],
    blobs: Mapping[Digest, bytes] | None = None,
) -> tuple[Session, list[Event]]:
    """Append where the log ends by now: for what has to be on record whoever else wrote.

    Drafts may depend on where that is.
    """
    for _ in range(100):
        try:
            return append_events(session, drafts(session) if callable(drafts) else drafts, blobs)
        except StaleHead:
            session = session.reload()
    return append_events(session, drafts(session) if callable(drafts) else drafts, blobs)


def call_id(run: str | None, log: LogId, seq: int, *more: str | int) -> str:
    """The name of a bracket: it follows from where it begins, and suits every provider as the id of
    a call.
    """
    text = "/".join(map(str, (run or "", log, seq, *more)))
    return f"c{digest(b'plait/call/1', text.encode())[:23]}"


def import_path(cls: type) -> str:
    """Where a class is found: module:Class. A file that was loaded by itself goes by its name."""
    return f"{cls.__module__.partition('@')[0]}:{cls.__qualname__}"


@lru_cache(1024)  # the same few paths, at every call
def principal_of(path: str) -> str:
    """A call path as part of a principal: without spaces, not too long."""
    text = (
        quote(path, safe="/-_.~+:@#=[]()<>", encoding="utf-8", errors="backslashreplace")
        or "workflow"
    )
    return (
        text if len(text) <= 200 else f"{text[:160]}~{digest(b'plait/path/1', text.encode())[:16]}"
    )
