"""The writer of sessions outside of any run: seals drafts into events, and appends them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from plait.errors import (
    InvalidValue,
    LogExists,
    MayNotApprove,
    OutcomeUnknown,
    StaleEpoch,
    StaleHead,
    StaleReading,
)
from plait.event import Body, Event
from plait.event.kinds import (
    BOUNDARIES,
    ApprovalDenied,
    ApprovalGranted,
    BudgetSet,
    Place,
    QuestionAnswered,
    SessionMoved,
    ToolResolved,
)
from plait.ids import Digest, LogId, Source, house_of, inbox_of, short
from plait.inside import is_inside
from plait.journal.hidden_names import login_name
from plait.journal.sealing import seal_drafts
from plait.journal.store_clock import StoreClock
from plait.session.moves import check_arrived, home_fence
from plait.session.ports import UNNAMED, Act, Condition, Draft, Position, Post, bind_writer
from plait.store import (
    Fence,
    HeadsQuestion,
    Log,
    LogAppend,
    Store,
    TipsMark,
    read_mark,
    shared_names,
)

_PRINCIPAL = re.compile(r"[a-z][a-z0-9_-]*:\S{1,200}\Z")

_DECISIONS = frozenset({ApprovalGranted, ApprovalDenied, QuestionAnswered, ToolResolved})
# A run may bound itself in its own log; a budget that comes by the inbox raises its limit.
_POSTED_DECISIONS = _DECISIONS | {BudgetSet}
# The name of code of a run that acts around the values of its run: it speaks for no person, and
# for no workflow.
RUN_CODE = "service:run"


def check_decisions(
    address: str, log: LogId, drafts: Sequence[Draft], decisions: frozenset[type[Body]] = _DECISIONS
) -> None:
    """Raise MayNotApprove if code of a run is about to decide for people.

    Decisions that the runtime records for people take another way.
    """
    for draft in drafts:
        if type(draft.body) in decisions and (why := is_inside(address, shared_names)):
            raise MayNotApprove(short(log), draft.act.actor, why)


def house_refusal(store: Store, posts: Sequence[Post], why: str) -> MayNotApprove:
    """Return the error for code of a run that is about to act for the house."""
    actors = [draft.act.actor for post in posts for draft in post.drafts]
    return MayNotApprove(short(house_of(store.id)), next(iter(actors), RUN_CODE), why)


class Insider(Protocol):
    """Knows which run the executing code belongs to.

    Whatever that code writes, anywhere, is refused once another process has the run.
    """

    def fences(self, address: str, by: str | None) -> Sequence[Fence]:
        """Return the fences of a write to this store, by a value of this run.

        There are none if the executing code belongs to no run.
        """
        ...

    def loss_error(
        self, error: StaleEpoch, by: str | None, position: Position | None, drafts: Sequence[Draft]
    ) -> BaseException:
        """Return the error to raise if such a write is refused; its drafts go to the inbox."""
        ...


class _Bound:
    """The parts that the rooms above bind, once per process."""

    direct: DirectWriter
    insider: Insider | None = None
    acting: Callable[[str, Position | None], Act] | None = None


_bound = _Bound()


def bind_fences(insider: Insider) -> None:
    """Let writes outside of a run rest on the run whose code makes them."""
    _bound.insider = insider


def bind_acting(acting: Callable[[str, Position | None], Act]) -> None:
    """Let `acting` say how code of a run acts on values that are not the run's."""
    _bound.acting = acting


def bind_direct_writer(writer: DirectWriter) -> None:
    """Bind the writer of sessions outside of any run."""
    _bound.direct = writer
    bind_writer(writer)


def direct_writer() -> DirectWriter:
    return _bound.direct


class DirectWriter:
    """The `Writer` for values without a run."""

    def __init__(
        self, source: Source, store: Callable[[str], Store], address: Callable[[], str]
    ) -> None:
        self._source = source
        self.store = store  # opens the store at an address; an attribute: every append asks for it
        self._sources: dict[str, Source] = {}
        self._processes: dict[tuple[int, str], str] = {}
        self.address = address
        self.last_post = object()  # another one after each post, and each write outside of runs

    def source(self, address: str) -> Source:
        """Return the source of time, ids and salt for a store. A server has its own clock."""
        bound = self._sources.get(address)
        return StoreClock(self._source, self.store(address)) if bound is None else bound

    def bind_source(self, address: str, source: Source) -> None:
        """Use this source for a store from now on: a simulation has its own clock and chance."""
        self._sources[address] = source

    def process(self, address: str) -> str:
        """Return a name of this process; in a simulation it follows from the seed."""
        key = os.getpid(), address  # a forked child is another process
        if key not in self._processes:
            self._processes[key] = str(self.source(address).fresh("process"))
        return self._processes[key]

    def principal(self, log: LogId | None = None) -> str:
        """Return PLAIT_ACTOR, else the name of the person who is logged in."""
        given = os.environ.get("PLAIT_ACTOR")
        if given is not None:
            if not _PRINCIPAL.match(given):
                raise InvalidValue(
                    "PLAIT_ACTOR",
                    f"{given!r} is not a principal",
                    "set it to something like human:u-17 or service:ci",
                )
            return given
        return login_name()

    def acting(self, store: str, position: Position | None = None) -> Act:
        return _bound.acting(store, position) if _bound.acting is not None else UNNAMED

    def judges(self, log: LogId, store: str) -> tuple[str, ...]:
        return (RUN_CODE,) if is_inside(store, shared_names) else ()

    def path_of(self, log: LogId, workflow: object) -> str | None:
        return None

    def has_in_hand(self, position: Position) -> bool:
        return True

    def has_calls(self, log: LogId) -> bool:
        return False

    def is_current(self, position: Position) -> bool:
        return self.store(position.store).log(position.id).head == position.head

    def latest(self, position: Position) -> Position:
        log = self.store(position.store).log(position.id)
        return Position(position.store, log.id, log.tip, log.head, position.run)

    def begin(
        self,
        address: str,
        drafts: Sequence[Draft],
        *,
        fork: Place | None = None,
        blobs: Mapping[Digest, bytes] | None = None,
        run: str | None = None,
    ) -> Position:
        about = ("fork", fork.log, fork.seq) if fork else ("session",)
        check_decisions(address, fork.log if fork else LogId(""), drafts)
        store = self.store(address)
        log = self.source(store.address).fresh(*about)
        return self.start(store, log, drafts, fork=fork, blobs=blobs, by=run)[0]

    def recorded(self, position: Position, ahead: int = 0) -> Event | None:
        return None

    def withheld(self, position: Position) -> frozenset[Digest]:
        return frozenset()

    def append(
        self,
        position: Position,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        blobs: Mapping[Digest, bytes] | None = None,
        condition: Condition | None = None,
    ) -> Position:
        check_decisions(position.store, position.id, drafts)
        if condition is None:
            return self.write(position, drafts, merges=merges, blobs=blobs)[0]
        assert not merges, "a merge has no condition"
        return self._append_if(condition, position, drafts, blobs)

    def _append_if(
        self,
        condition: Condition,
        position: Position,
        drafts: Sequence[Draft],
        blobs: Mapping[Digest, bytes] | None,
    ) -> Position:
        """Append after exactly this position, while a condition holds."""
        store = self.store(position.store)

        def check(events: Sequence[Event]) -> None:
            (found,) = events[0].header.parents
            if found != position.head:
                raise StaleHead(position.id, position.head, found, events[0].seq - 1)
            condition.check()

        targets = [(position.id, drafts)]
        last = self.append_to_ends(
            store,
            targets,
            blobs=blobs,
            check=check,
            run=position.run,
            kinds=condition.kinds,
            logs=(position.id, inbox_of(position.id)),
        )[-1]
        if any([type(draft.body) in BOUNDARIES for draft in drafts]):
            store.flush()
        return Position(position.store, position.id, last.seq, last.id, position.run)

    def post(
        self,
        address: str,
        log: LogId,
        drafts: Sequence[Draft],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        run: str | None = None,
        fences: Sequence[Fence] | None = None,
    ) -> list[Event]:
        posts = [Post(log, drafts)]
        return self._post(address, posts, blobs=blobs, check=check, run=run, fences=fences)

    def post_to_house(
        self,
        address: str,
        drafts: Sequence[Draft],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
    ) -> list[Event]:
        return self.post_all(address, [Post(None, drafts)], blobs=blobs, check=check)

    def post_all(
        self,
        address: str,
        posts: Sequence[Post],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        kinds: frozenset[str] = frozenset(),
    ) -> list[Event]:
        if why := is_inside(address, shared_names):
            raise house_refusal(self.store(address), posts, why)
        return self._post(address, posts, blobs=blobs, check=check, kinds=kinds)

    def _post(
        self,
        address: str,
        posts: Sequence[Post],
        *,
        blobs: Mapping[Digest, bytes] | None,
        check: Callable[[Sequence[Event]], object] | None,
        run: str | None = None,
        fences: Sequence[Fence] | None = None,
        kinds: frozenset[str] = frozenset(),
    ) -> list[Event]:
        store = self.store(address)
        targets: list[tuple[LogId, Sequence[Draft]]] = []
        for log, drafts in posts:
            if log is not None:
                check_decisions(address, log, drafts, _POSTED_DECISIONS)
            targets.append((house_of(store.id) if log is None else inbox_of(log), drafts))
        readers = [log for log, _ in posts if log is not None]
        return self.append_to_ends(store, targets, readers, blobs, check, run, fences, kinds)

    def append_to_ends(
        self,
        store: Store,
        targets: Sequence[tuple[LogId, Sequence[Draft]]],
        readers: Sequence[LogId] = (),
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        run: str | None = None,
        fences: Sequence[Fence] | None = None,
        kinds: frozenset[str] = frozenset(),
        logs: Sequence[LogId] | None = None,
        heads: Mapping[LogId, Log] | None = None,
    ) -> list[Event]:
        """Append to the ends of several logs: all or nothing. `readers` are sessions that must
        be there, all of them, and not have moved to another store: with `SessionMoved` among
        `kinds`, it is `check` that looks for that.

        It is checked anew if an event of `kinds` came meanwhile to one of `logs`; None: to any.
        `heads` are all of these logs as the caller has read them, with the house log.
        """
        looked_at = () if SessionMoved.__name__ in kinds else readers
        known, asked = heads, [*[log for log, _ in targets], *readers, *(logs or ())]
        while True:  # each time around, another writer was first
            reading = read_mark(store, kinds) if kinds and logs is None else None
            heads = known or store.heads([*asked, house_of(store.id)])
            known = None
            if logs is not None:
                ends = {log: heads[log].tip if log in heads else 0 for log in logs}
                reading = TipsMark(kinds, ends)
            check_arrived(store, readers, heads)
            at_home = [home_fence(store, log, heads) for log in looked_at]
            parts, events = self._seal_parts(store, targets, run, heads)
            if check is not None:
                check(events)
            try:
                write = partial(store.append_all, parts, blobs=blobs, reading=reading)
                _write_surely(write, store, fences, run, at_home=at_home)
                self.last_post = object()
                return events
            except (StaleHead, StaleReading, LogExists):
                continue
            except StaleEpoch as error:  # a run began or ended in one of the sessions
                own = {fence.log for fence in fences or ()}
                if error.log not in {fence.log for fence in at_home} - own:
                    raise

    def _seal_parts(
        self,
        store: Store,
        targets: Sequence[tuple[LogId, Sequence[Draft]]],
        run: str | None,
        heads: Mapping[LogId, Log],
    ) -> tuple[list[LogAppend], list[Event]]:
        """Seal drafts for the ends of logs as they are now; return their events, too."""
        parts: list[LogAppend] = []
        events: list[Event] = []
        for log, drafts in targets:
            end = heads.get(log)
            seq, parents = (1, ()) if end is None else (end.tip + 1, (end.head,))
            sealed = seal_drafts(
                self.source(store.address), drafts, log, seq, parents, run, earlier=events
            )
            parts.append(LogAppend(log, sealed, None if end is None else end.head))
            events += sealed
        return parts, events

    def start(
        self,
        store: Store,
        log: LogId,
        drafts: Sequence[Draft],
        *,
        fork: Place | None = None,
        blobs: Mapping[Digest, bytes] | None = None,
        run: str | None = None,
        behalf: str | None = None,
        fences: Sequence[Fence] | None = None,
        by: str | None = None,
    ) -> tuple[Position, list[Event]]:
        """Begin a log under this id.

        `fences` None: those of the run whose code this is, or of the run `by`.
        """
        source = self.source(store.address)
        events = seal_drafts(
            source,
            drafts,
            log,
            fork.seq + 1 if fork else 1,
            (fork.head,) if fork else (),
            run,
            behalf,
        )
        parent = fork.log if fork else None
        write = partial(store.begin, log, events, parent=parent, blobs=blobs)
        _write_surely(write, store, fences, by)
        return Position(store.address, log, events[-1].seq, events[-1].id, run), events

    def write(
        self,
        position: Position,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        merging: int = 0,
        blobs: Mapping[Digest, bytes] | None = None,
        behalf: str | None = None,
        held: Sequence[Event] = (),
        fences: Sequence[Fence] | None = None,
        question: HeadsQuestion | None = None,
    ) -> tuple[Position, list[Event]]:
        """Append, and return the events as they were written.

        `merges` are further parents of the draft with the number `merging`. `held` are events that
        were sealed before, up to this position, and are written only now. `fences` are as for
        `start`. A run asks a `question` with each of its writes.
        """
        store = self.store(position.store)
        after, events = self.seal(position, drafts, merges=merges, merging=merging, behalf=behalf)
        flush = any([type(draft.body) in BOUNDARIES for draft in drafts])
        first = held[0].header.parents[0] if held else position.head
        every = [*held, *events] if held else events

        write = partial(store.append, position.id, every, after=first, blobs=blobs, flush=flush)
        write = partial(write, question=question)
        _write_surely(write, store, fences, position.run, position, drafts)
        if question is None:
            self.last_post = object()
        return after, events

    def seal(
        self,
        position: Position,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        merging: int = 0,
        behalf: str | None = None,
    ) -> tuple[Position, list[Event]]:
        """Return the position after these drafts, and the events as they would be written."""
        events = seal_drafts(
            self.source(position.store),
            drafts,
            position.id,
            position.seq + 1,
            (position.head,),
            position.run,
            behalf,
            merges,
            merging,
        )
        if not events:
            return position, events
        last = events[-1]
        return Position(position.store, position.id, last.seq, last.id, position.run), events


def _write_surely(
    write: Callable[..., object],
    store: Store,
    fences: Sequence[Fence] | None,
    by: str | None,
    position: Position | None = None,
    drafts: Sequence[Draft] = (),
    at_home: Sequence[Fence] = (),
) -> None:
    """Write under fences; if the outcome is unknown, write the very same events again, which
    settles it.
    """
    insider = _bound.insider if fences is None else None
    if insider is not None:
        fences = insider.fences(store.address, by)
    resting = list(fences or ())
    if at_home:
        own = {fence.log for fence in resting}
        resting += [fence for fence in at_home if fence.log not in own]
    try:
        try:
            write(fences=resting)
        except OutcomeUnknown:
            write(fences=resting)
    except StaleEpoch as error:
        if insider is None or error.log not in {fence.log for fence in fences or ()}:
            raise
        raise insider.loss_error(error, by, position, drafts) from None
