"""The writer of sessions outside of any run: seals drafts into events, and appends them."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol

from plait import secrets
from plait.errors import (
    InvalidValue,
    LogExists,
    MayNotApprove,
    OutcomeUnknown,
    StaleEpoch,
    StaleHead,
    StaleReading,
)
from plait.event import Body, Event, seal
from plait.event.hidden import without_secrets
from plait.event.kinds import (
    BOUNDARIES,
    ApprovalDenied,
    ApprovalGranted,
    BudgetSet,
    Place,
    QuestionAnswered,
    ToolResolved,
)
from plait.ids import Digest, LogId, Source, house_of, inbox_of, short
from plait.inside import is_inside
from plait.journal.hidden_names import act_without_secrets, plain_name
from plait.session.ports import UNNAMED, Act, Draft, Position, Post, bind_writer
from plait.store import Fence, LogAppend, ReadMark, Store, shared_names

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

    def source(self, address: str) -> Source:
        """Return the source of time, ids and salt for a store."""
        return self._sources.get(address, self._source)

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
        return _login()

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
    ) -> Position:
        check_decisions(position.store, position.id, drafts)
        return self.write(position, drafts, merges=merges, blobs=blobs)[0]

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
        return self._post(
            address, [Post(log, drafts)], blobs=blobs, check=check, run=run, fences=fences
        )

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
                store.log(log)  # raises if there is no such log, whose inbox would never be read
            targets.append((house_of(store.id) if log is None else inbox_of(log), drafts))
        return self.append_to_ends(
            store, targets, blobs=blobs, check=check, run=run, fences=fences, kinds=kinds
        )

    def append_to_ends(
        self,
        store: Store,
        targets: Sequence[tuple[LogId, Sequence[Draft]]],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        run: str | None = None,
        fences: Sequence[Fence] | None = None,
        kinds: frozenset[str] = frozenset(),
    ) -> list[Event]:
        """Append to the ends of several logs: all of it or nothing.

        `kinds`: it is checked anew if an event of one of these was appended meanwhile, to any log.
        """
        while True:  # each time around, another writer was first
            reading = ReadMark(store.number, kinds) if kinds else None
            parts, events = self._seal_parts(store, targets, run)
            if check is not None:
                check(events)
            try:
                _write_surely(
                    lambda resting, parts=parts, reading=reading: store.append_all(
                        parts, blobs=blobs, fences=resting, reading=reading
                    ),
                    store,
                    fences,
                    run,
                )
            except (StaleHead, StaleReading, LogExists):
                continue
            return events

    def _seal_parts(
        self, store: Store, targets: Sequence[tuple[LogId, Sequence[Draft]]], run: str | None
    ) -> tuple[list[LogAppend], list[Event]]:
        """Seal drafts for the ends of logs as they are now, and return all their events, too."""
        parts: list[LogAppend] = []
        events: list[Event] = []
        heads = store.heads([log for log, _ in targets])
        for log, drafts in targets:
            end = heads.get(log)
            seq, parents = (1, ()) if end is None else (end.tip + 1, (end.head,))
            sealed = _seal(
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
        events = _seal(
            source,
            drafts,
            log,
            fork.seq + 1 if fork else 1,
            (fork.head,) if fork else (),
            run,
            behalf,
        )
        parent = fork.log if fork else None
        _write_surely(
            lambda resting: store.begin(log, events, parent=parent, blobs=blobs, fences=resting),
            store,
            fences,
            by,
        )
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
    ) -> tuple[Position, list[Event]]:
        """Append, and return the events as they were written.

        `merges` are further parents of the draft with the number `merging`. `held` are events that
        were sealed before, up to this position, and are written only now. `fences` are as for
        `start`.
        """
        store = self.store(position.store)
        after, events = self.seal(position, drafts, merges=merges, merging=merging, behalf=behalf)
        flush = any([type(draft.body) in BOUNDARIES for draft in drafts])
        first = held[0].header.parents[0] if held else position.head
        every = [*held, *events] if held else events

        def write(resting: Sequence[Fence]) -> Digest:
            return store.append(
                position.id, every, after=first, blobs=blobs, flush=flush, fences=resting
            )

        _write_surely(write, store, fences, position.run, position, drafts)
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
        events = _seal(
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
        last = events[-1] if events else None
        return (
            Position(position.store, position.id, last.seq, last.id, position.run)
            if last
            else position
        ), events


def _seal(
    source: Source,
    drafts: Sequence[Draft],
    log: LogId,
    seq: int,
    parents: tuple[Digest, ...],
    run: str | None,
    behalf: str | None = None,  # the principal for which drafts without one are written
    merges: tuple[Digest, ...] = (),
    merging: int = 0,
    earlier: Sequence[Event] = (),  # of the same act, in other logs
) -> list[Event]:
    events: list[Event] = []
    sealed = [*earlier]
    if secrets.is_armed():
        drafts = [Draft(without_secrets(body), act_without_secrets(act)) for body, act in drafts]
        behalf = plain_name(behalf) if behalf else behalf
    for index, (body, act) in enumerate(drafts):
        place = seq + index
        event = seal(
            body,
            log=log,
            seq=place,
            parents=(*parents, *merges) if merges and index == merging else parents,
            time=source.now(log, place),
            salt=source.salt(log, place),
            actor=act.actor,
            origin=act.origin,
            behalf=act.behalf or (behalf if act.actor != behalf else None),
            run=run,
            call=act.call,
            causes=tuple(
                [sealed[cause].id if isinstance(cause, int) else cause for cause in act.causes]
            )
            if act.causes
            else (),
        )
        events.append(event)
        sealed.append(event)
        parents = (event.id,)
    return events


@cache
def _login() -> str:
    """Return the principal of the person who is logged in.

    It is looked up once: every append asks for it, and may mean reading a user database.
    """
    try:
        return f"human:{re.sub(r'[^!-~]', '_', getpass.getuser())}"
    except (KeyError, OSError, ImportError):  # a container without a user database
        return f"human:uid-{os.getuid()}"


def _write_surely(
    write: Callable[[Sequence[Fence]], object],
    store: Store,
    fences: Sequence[Fence] | None,
    by: str | None,
    position: Position | None = None,
    drafts: Sequence[Draft] = (),
) -> None:
    """Write; if the outcome is unknown, write the very same events again, which settles it."""
    insider = _bound.insider if fences is None else None
    if insider is not None:
        fences = insider.fences(store.address, by)
    try:
        try:
            write(fences or ())
        except OutcomeUnknown:
            write(fences or ())
    except StaleEpoch as error:
        if insider is None:
            raise
        raise insider.loss_error(error, by, position, drafts) from None
