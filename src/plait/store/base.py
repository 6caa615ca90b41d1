"""What a store is: a place where logs of events, and blobs, are kept.

A store knows logs (id, parent, fork place, head), events and blobs, and nothing of what they mean.
Upper layers that want rows to search by (a session's title and status, a memory index) hand in a
`Projection`: the store applies it in the same transaction as the append, and can drop it and
rebuild it from the events at any time.

The contract that every store has to keep is `plait.testing.StoreContract`.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from plait.errors import InvalidValue, StaleEpoch, StoreCorrupt, UnknownKind
from plait.event import Event, parse_event, seal_all
from plait.event.kinds import (
    KINDS,
    ForkedFrom,
    HouseOpened,
    RunBranched,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionOpened,
)
from plait.ids import Digest, LogId, Source, house_of, parse_digest

Durability = Literal["full", "async", "memory"]
"""How a log is written: `full`, on disk when an append returns; `async`, at the next boundary;
`memory`, never.
"""

_KINDS = frozenset(kind.__name__ for kind in KINDS)

TURNS = frozenset(
    kind.__name__
    for kind in (RunStarted, RunBranched, RunResumed, RunFinished, RunFailed, RunCancelled)
)
"""The kinds that say who may write for a run from there on.

Each event of them raises the epoch of its log by one.
"""

Scalar = str | int | float | bytes | None
Row = dict[str, Scalar]


class Log(msgspec.Struct, frozen=True):
    """One log as it stands now: where it came from and where it ends."""

    id: LogId
    parent: LogId | None  # None: a root
    place: int  # the last place inherited from the parent; 0 for a root
    head: Digest
    tip: int  # the seq of the head
    durability: Durability = "full"
    epoch: int = 0  # how many events of the log itself are TURNS


class Fence(NamedTuple):
    """What a write rests on: this log is still at this epoch.

    A run's writes rest on the log where the run began.
    """

    log: LogId
    epoch: int


class Record(msgspec.Struct, frozen=True):
    """One stored event as the store really has it, for those who trust nothing.

    `content` is None if unreadable.
    """

    number: int
    log: LogId
    seq: int
    kind: str
    id: str  # what the store's own index says, as far as it says it: a prefix of the event's id
    raw: bytes
    salt: bytes
    content: bytes | None
    # the blobs the store counts it as pointing to, a body kept as a blob among them
    refs: tuple[Digest, ...]
    apart: Digest | None = None  # the blob that holds its body, if that was too long for the record


class BlobInfo(msgspec.Struct, frozen=True):
    size: int
    stored: int  # bytes it takes after compression
    refs: int  # how many events point to it


class Unchecked(msgspec.Struct, frozen=True):
    """Something that `verify` did not look at, or cannot judge, and the reason."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} ({self.why})"


# ── projections ──────────────────────────────────────────────────────────────────────────────


class Table(msgspec.Struct, frozen=True):
    """The shape of a projection's rows.

    `order` is an integer column that differs from row to row, usually a commit number: rows are
    laid out by it, so that listing in that order costs nothing extra. An index is (the columns
    filtered by …, the column ordered by).
    """

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, Literal["text", "integer", "real", "blob"]]
    order: str | None = None
    indexes: tuple[tuple[str, ...], ...] = ()


class Rows(Protocol):
    """What a projection may do to its own tables, inside the transaction of the append."""

    def get(self, table: str, *key: Scalar) -> Row | None: ...
    def put(self, table: str, row: Row) -> None: ...
    def delete(self, table: str, *key: Scalar) -> None: ...


class Projection(Protocol):
    """A fold whose rows are kept.

    `version` grows whenever `apply` or the tables change: the store then rebuilds.
    """

    @property
    def name(self) -> str:
        """Lowercase, unique in the store."""
        ...

    @property
    def version(self) -> int: ...

    @property
    def kinds(self) -> frozenset[str]:
        """The names of the kinds of event it folds; it sees no others."""
        ...

    @property
    def tables(self) -> tuple[Table, ...]: ...

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        """Fold one event, with its commit number, into the rows.

        Nothing else may decide what they become.
        """
        ...


# ── the protocol ─────────────────────────────────────────────────────────────────────────────


class RunLock(Protocol):
    """A run that this process has taken: no other process, and no second lock of this one, can.

    It is let go when it is released or the process dies, however that happens. A process that is
    forked off does not have it.
    """

    def release(self) -> None:
        """Let the run go. A second time changes nothing, and a closed store does not matter."""
        ...


class Store(Protocol):
    """Where events and blobs live. All methods may be called from any thread."""

    @property
    def address(self) -> str:
        """The one spelling under which `open_store` finds this store again."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where the store keeps what belongs beside it, such as copies of files. None: a store in
        memory, or on another machine.
        """
        ...

    @property
    def id(self) -> LogId:
        """Made once with the store. Its house log, `house_of(id)`, is made with it, and its first
        event names the id.

        That event has the commit number 0: it comes with the store. Numbers, the feed and lists of
        logs begin after it.
        """
        ...

    @property
    def durability(self) -> Durability:
        """How sessions that do not say it themselves are to be written from now on."""
        ...

    # logs

    def begin(
        self,
        log: LogId,
        events: Sequence[Event],
        *,
        parent: LogId | None = None,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
    ) -> Digest:
        """Begin a log with its first events and return the last one's id. With a parent it is a
        fork, after seq - 1 of its first event.

        It is written as its first event says (`SessionOpened.durability`; full if it says nothing),
        a fork as its parent is. Beginning the very same log a second time changes nothing and
        succeeds. `fences` are as for `append`.
        """
        ...

    def append(
        self,
        log: LogId,
        events: Sequence[Event],
        *,
        after: Digest,
        blobs: Mapping[Digest, bytes] | None = None,
        flush: bool = False,
        fences: Sequence[Fence] = (),
    ) -> Digest:
        """Append after exactly this head and return the new one; on return the events are on disk.

        In an `async` log they are on disk at the next boundary: `flush` makes this append one.
        Whatever is lost to a power cut until then is the end of the store's history, in commit
        order, by whole appends; a killed process loses nothing.

        Raises `StaleHead`, and writes nothing, if the head is another. Appending the very same
        events a second time changes nothing and succeeds: that is how an unknown outcome is
        settled.

        Raises `StaleEpoch`, and writes nothing, if the log of one of the `fences` is at another
        epoch. That is asked in the transaction of the append: no event of TURNS can be committed to
        that log between the question and the commit. A writer who was replaced is told so whatever
        the head is, and also if the very same events stand (unless those raised the epoch
        themselves, from the one that the fence names).
        """
        ...

    def flush(self) -> None:
        """On return everything that was ever appended is on disk, by whichever process and in
        whichever log.
        """
        ...

    def log(self, log: LogId) -> Log: ...

    def heads(self, logs: Sequence[LogId]) -> dict[LogId, Log]:
        """Many logs in one question, in the order asked for; those that are unknown
        are left out.
        """
        ...

    def logs(self, *, before: int | None = None, limit: int = 100) -> list[tuple[int, Log]]:
        """A page of logs, latest begun first, each with its ordinal; `before=` the last ordinal
        gives the next page.

        The house log is not among them: its id is `house_of(store.id)`.
        """
        ...

    def match(self, text: str, limit: int = 20) -> list[LogId]:
        """Logs whose id, or whose random tail, starts with this text."""
        ...

    # events

    def read(
        self,
        log: LogId,
        first: int = 1,
        last: int | None = None,
        *,
        kinds: Collection[str] | None = None,
        reverse: bool = False,
    ) -> Iterator[Event]:
        """The events of a log from first to last, through the logs it was forked from."""
        ...

    def event(self, id: Digest) -> Event: ...

    def number_of(self, id: Digest) -> int | None:
        """The commit number of an event; None if the store does not have it."""
        ...

    def feed(
        self,
        after: int = 0,
        *,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        """Everything in commit order, across all logs, with commit numbers; in reverse from the
        newest down to the first after `after`.
        """
        ...

    @property
    def number(self) -> int:
        """The last commit number; 0 while the store is empty."""
        ...

    def records(self, log: LogId) -> Iterator[Record]:
        """The log's own records as stored, unchecked, for `verify`."""
        ...

    # blobs

    def put_blob(self, content: bytes) -> Digest: ...

    def put_blobs(self, contents: Mapping[Digest, bytes]) -> None:
        """Put many at once, all or none; on return they are on disk."""
        ...

    def missing_blobs(self, digests: Collection[Digest]) -> set[Digest]:
        """Those that are not there.

        The others count as put just now: a sweep that looks at age leaves them.
        """
        ...

    def get_blob(self, digest: Digest) -> bytes: ...
    def blob_info(self, digest: Digest) -> BlobInfo: ...

    def blobs(self) -> Iterator[Digest]:
        """The digests of all blobs that are kept, whether an event points to them or not."""
        ...

    def sweep_blobs(self, *, before: int, keep: Container[Digest] = frozenset()) -> int:
        """Remove blobs that no event points to, that were put when `number` was below this, and
        that are not in `keep`; returns how many.

        `keep` is for what events point to through other blobs: the contents of a tree.
        """
        ...

    # snapshots: a cache of what was folded from events, which may be dropped at any time

    def keep(self, log: LogId, seq: int, data: bytes) -> None:
        """Keep bytes about one of the log's own places, instead of what was kept for it before."""
        ...

    def kept(self, log: LogId, upto: int) -> tuple[LogId, int, bytes] | None:
        """The nearest bytes kept at or before a place, through the lineage, after the log and the
        place they were kept for.
        """
        ...

    def all_kept(self, log: LogId) -> list[tuple[int, bytes]]:
        """What is kept for this very log, in the order of its places."""
        ...

    def forget_kept(self, log: LogId | None = None) -> int:
        """Drop what is kept for a log, or for all of them; returns how many there were."""
        ...

    # rows

    def rows(
        self,
        projection: str,
        table: str,
        where: Mapping[str, Scalar] | None = None,
        *,
        order: str | None = None,
        descending: bool = False,
        before: Scalar = None,
        limit: int = 100,
    ) -> list[Row]:
        """Rows with these values, in the table's own order or that of a column; `before` is the
        last value of the previous page.

        Paging is by that one value, so page by a column that differs from row to row.
        """
        ...

    def attach(self, projections: Sequence[Projection]) -> None:
        """Keep these projections from now on, folding those anew that are missing, outdated or
        stale.
        """
        ...

    def rebuild(self, projection: str) -> None:
        """Drop the projection's rows and fold them again from the events."""
        ...

    # locks

    def lock(self, run: str, session: str) -> RunLock:
        """Take a run for this process, and return its lock. `session` is for the error's text.

        Raises `RunHeld`, which names the holder, if another process has the run, or this one.
        """
        ...

    def check(self) -> list[str]:
        """What is counted or referred to wrongly beside the logs, for `verify`; raises
        `StoreCorrupt` if its files are damaged.
        """
        ...

    def unchecked(self) -> list[Unchecked]:
        """What nothing in this store can be compared with, for `verify` to name."""
        ...

    def describe(self) -> dict[str, object]:
        """What there is to know about it, for people: `plait doctor` prints it."""
        ...

    def close(self) -> None: ...

    @property
    def closed(self) -> bool: ...


# ── what all stores check before they write ──────────────────────────────────────────────────


def check_chain(
    log: LogId, events: Sequence[Event], after: Digest | None, *, begins: bool = False
) -> None:
    """The events belong to this log and follow each other, the first one after `after`."""
    if not isinstance(events, (list, tuple)) or not events:
        raise InvalidValue(
            "events", "there are none, or not in a list", "pass a list of sealed events"
        )
    seq, previous = 0, after
    for event in events:
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                "events",
                f"a {type(event).__name__} is not a sealed event",
                "seal it with seal_all first",
            )
        if not event.checked:
            parse_event(event.raw, event.salt, event.content)
        for ref in event.refs:
            parse_digest(ref, "blob")
        header = event.header
        seq = seq or header.seq
        if header.kind == ForkedFrom.__name__ and not (begins and event is events[0]):
            raise InvalidValue(
                "events",
                "ForkedFrom can only be the first event of a fork",
                "begin a new log with it",
            )
        if header.log != log:
            raise InvalidValue(
                "log",
                f"event {header.seq} was sealed for log {header.log}, not {log}",
                "seal it for this log",
            )
        if header.seq != seq:
            raise InvalidValue(
                "seq",
                f"event {header.seq} stands where {seq} is due",
                "seal the events one after another",
            )
        if (header.parents[0] if header.parents else None) != previous:
            if not begins:
                parse_digest(previous, "after")
            raise InvalidValue(
                "parents",
                f"event {header.seq} does not follow {previous}",
                "seal it after the head you append to",
            )
        seq, previous = seq + 1, event.id


def turns_in(events: Sequence[Event]) -> int:
    """By how much these events raise the epoch of their log."""
    return sum([event.kind in TURNS for event in events])


def check_epoch(fence: Fence, found: int, raised: int = 0) -> None:
    """The log of a fence is at its epoch; `raised` is by how much the writer's own events have
    moved it since.
    """
    if found != fence.epoch + raised:
        raise StaleEpoch(fence.log, fence.epoch, found)


def first_parent(events: Sequence[Event]) -> Digest | None:
    """What a log's first event follows: nothing in a root, the fork point in a fork."""
    first = next(iter(events), None)
    return first.header.parents[0] if isinstance(first, Event) and first.header.parents else None


def check_fork(first: Event, parent: LogId | None, point: Event | None) -> None:
    """The first event of a log stands at 1 in a root, and right after the fork point in a child."""
    if parent is None:
        if first.seq != 1 or first.header.parents:
            raise InvalidValue(
                "seq",
                f"a root begins at 1 without parents, not at {first.seq}",
                "name the parent if it is a fork",
            )
        if first.kind == ForkedFrom.__name__:
            raise InvalidValue(
                "parent",
                "the first event says it is a fork, but no parent is given",
                "name the parent",
            )
        return
    step = (
        "seal ForkedFrom(parent, place) at place + 1, with the id of the event at that place as its"
        " parent"
    )
    if point is None:
        raise InvalidValue("place", f"{parent} has no event {first.seq - 1}", step)
    if first.header.parents[:1] != (point.id,):
        raise InvalidValue(
            "parents",
            f"the first event does not name event {point.seq} of {parent} as its parent",
            step,
        )
    body = first.body
    if not isinstance(body, ForkedFrom) or (body.parent, body.place) != (parent, point.seq):
        raise InvalidValue(
            "events",
            f"the first event does not say that it was forked from {parent}@{point.seq}",
            step,
        )


def check_durability(durability: object) -> None:
    if durability not in ("full", "async", None):
        step = "use 'full', or 'async' for commits that are synced at boundaries"
        raise InvalidValue("durability", f"a session cannot be written {durability!r}", step)


def is_async(first: Event) -> bool:
    """Whether a root that begins with this event is to be written without an fsync for every
    append.
    """
    if first.kind != SessionOpened.__name__:
        return False
    body = first.body
    return isinstance(body, SessionOpened) and body.durability == "async"


def house_event(store: LogId, source: Source) -> Event:
    """The first event of a store's house log."""
    log = house_of(store)
    (event,) = seal_all(
        [HouseOpened(store)], log=log, seq=1, parents=(), source=source, actor="service:plait"
    )
    return event


def check_number(name: str, number: int) -> None:
    if type(number) is not int or not 0 <= number < 2**63:
        raise InvalidValue(name, f"{number!r} is not a commit number or ordinal")


def check_limit(limit: int | None) -> None:
    if limit is not None and (type(limit) is not int or not 0 <= limit < 2**63):
        raise InvalidValue("limit", f"{limit!r} is not a count", "pass a number from 0")


def check_kinds(kinds: Collection[str] | None, known: Container[str]) -> None:
    """Names of kinds, and none that nobody ever heard of: a typo would look like an empty log."""
    if isinstance(kinds, str):
        raise InvalidValue("kinds", f"{kinds!r} is one text, not several", f"pass {{{kinds!r}}}")
    # as ours are: a look at each name is more than reading a few events takes
    if isinstance(kinds, frozenset) and kinds <= _KINDS:
        return
    for kind in kinds or ():
        if not isinstance(kind, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                "kinds", f"{kind!r} is not the name of a kind", "pass names, such as 'MessageSaid'"
            )
        if kind not in known:
            raise UnknownKind(kind)


def check_prefix(text: str) -> None:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue(
            "id", f"{text!r} is not a text", "pass the start of an id or of its last group"
        )


def check_span(first: int, last: int | None) -> None:
    check_place("first", first)
    if last is not None:
        check_place("last", last)


def check_place(name: str, place: int) -> None:
    if type(place) is not int:
        raise InvalidValue(name, f"{place!r} is not a position", "pass a number, counted from 1")


def check_own(log: LogId, seq: int, place: int, tip: int) -> None:
    """The place is one of the log's own: neither inherited nor still to come."""
    if type(seq) is not int or not place < seq <= tip:
        raise InvalidValue(
            "seq", f"{seq!r} is not a place of {log} itself, whose own are {place + 1} to {tip}"
        )


def ancestry(store: Store, log: LogId) -> Iterator[Log]:
    """A log and those it was forked from, up to its root."""
    seen: set[LogId] = set()
    above: LogId | None = log
    while above is not None:
        if above in seen:
            raise StoreCorrupt(f"log {log}", "its lineage runs in a circle")
        seen.add(above)
        info = store.log(above)
        yield info
        above = info.parent


class Segment(msgspec.Struct, frozen=True):
    """A stretch of one log that belongs to a lineage."""

    log: LogId
    first: int
    last: int


Lineage = tuple[Segment, ...]


def extend_lineage(inherited: Lineage, place: int, log: LogId) -> Lineage:
    """The lineage of a fork: what it inherited up to its place, then itself, open-ended."""
    kept = tuple(
        segment if segment.last <= place else Segment(segment.log, segment.first, place)
        for segment in inherited
        if segment.first <= place
    )
    return (*kept, Segment(log, place + 1, 2**62))


def cut(lineage: Lineage, first: int, last: int) -> list[Segment]:
    """The stretches that cover first to last."""
    return [
        Segment(segment.log, max(segment.first, first), min(segment.last, last))
        for segment in lineage
        if segment.last >= first and segment.first <= last
    ]
