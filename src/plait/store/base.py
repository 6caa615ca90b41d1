"""The port: the methods of a store, by subject.

A store keeps logs (id, parent, fork place, head), their events, and blobs, and does not know their
meaning. `Store` is made of nine smaller protocols: events, blobs, snapshots and rows here, locks,
bells, notices, allowances and the clock in `moment.py`. The contract that every store has to keep
is `plait.testing.StoreContract`; docs/stores.md tells how to write one.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from plait.event import Event
from plait.ids import Digest, LogId
from plait.store.epochs import Fence, ReadMark, TipsMark
from plait.store.lineage import Lineage
from plait.store.moment import AllowanceStore, BellStore, ClockStore, LockStore, NoticeStore
from plait.store.projection import Projection, Row, Scalar, Wanted
from plait.store.search import Found, Region

Durability = Literal["full", "async", "memory"]
"""The durability of a log: `full`, on disk when an append returns; `async`, at the next boundary;
`memory`, never.
"""


class Log(msgspec.Struct, frozen=True):
    """One log as it stands now: where it came from and where it ends."""

    id: LogId
    parent: LogId | None  # None: a root
    place: int  # the last place inherited from the parent; 0 for a root
    head: Digest
    tip: int  # the seq of the head
    durability: Durability = "full"
    epoch: int = 0  # how many events of the log itself are of EPOCH_KINDS


class LogAppend(msgspec.Struct, frozen=True):
    """The part of one act that goes to one log."""

    log: LogId
    events: Sequence[Event]
    after: Digest | None  # the head that they come after; None: they begin a root


class HeadsQuestion:
    """A question that an append may answer on its way: how these logs stand.

    A store to which each question is a round trip sets `answer`, without logs that are unknown; the
    others leave it None, since `heads` costs them little. The log of the append stands as the
    append left it, the others as they stood when it began, or later.
    """

    def __init__(self, logs: Sequence[LogId]) -> None:
        self.logs = tuple(dict.fromkeys(logs))
        self.answer: Mapping[LogId, Log] | None = None


class StoredRecord(msgspec.Struct, frozen=True):
    """One stored event as the store really has it, unchecked. `content` is None if unreadable."""

    number: int
    log: LogId
    seq: int
    kind: str
    id: str  # from the store's own index: the event's id, or a prefix of it
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


class EventStore(Protocol):
    """Logs and their events: written at the end of a log, read from any place.

    A fork is a log with a parent: reading it goes through the logs it was forked from.
    """

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
        question: HeadsQuestion | None = None,
    ) -> Digest:
        """Append after exactly this head and return the new one; on return the events are on disk.

        In an `async` log they are on disk at the next boundary: `flush` makes this append one.
        A power cut before it takes the end of the store's history, in commit order, by whole
        appends; a killed process loses nothing.

        Raises `StaleHead`, and writes nothing, if the head is another. Appending the very same
        events a second time changes nothing and succeeds: that is how an unknown outcome is
        settled.

        Raises `StaleEpoch`, and writes nothing, if the log of one of the `fences` is at another
        epoch. That is asked in the transaction of the append: no event of EPOCH_KINDS can be
        committed to that log between the question and the commit. It is raised for any head, and
        also if the very same events stand (unless those raised the epoch themselves, from the one
        that the fence names).
        """
        ...

    def append_all(
        self,
        parts: Sequence[LogAppend],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
        reading: ReadMark | TipsMark | None = None,
    ) -> list[Digest]:
        """Append to several logs, or begin them, in one transaction: all of it or nothing. Returns
        the new heads, one for each part. A log may have several parts, each after the one before.

        One part that cannot be written refuses the whole act, as `append` and `begin` do. The very
        same act a second time changes nothing and succeeds. The commit numbers follow the
        order of the parts.

        Raises `StaleReading`, and writes nothing, if an event of the kinds of `reading` was
        committed that its reader did not see (`ReadMark`, `TipsMark`), by the commit of the act at
        the latest.
        """
        ...

    def flush(self) -> None:
        """On return all that any process ever appended to any log is on disk."""
        ...

    def log(self, log: LogId) -> Log: ...

    def heads(self, logs: Sequence[LogId]) -> dict[LogId, Log]:
        """Many logs in one question, in the order asked for, without those that are unknown."""
        ...

    def lineage(self, log: LogId) -> Lineage:
        """Return the spans of logs that a log is read through, the root's first. The last one is
        its own, without an end. They never change.
        """
        ...

    def logs(self, *, before: int | None = None, limit: int = 100) -> list[tuple[int, Log]]:
        """A page of logs, latest begun first, each with its ordinal; `before=` the last ordinal
        gives the next page.

        The house log is not among them: its id is `house_of(store.id)`.
        """
        ...

    def match(self, text: str, limit: int = 20) -> list[LogId]:
        """Return logs with an id, or a random tail of it, that starts with this text."""
        ...

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

    def read_ahead(self, log: LogId, first: int, last: int) -> AbstractContextManager[None]:
        """Let reads of these events need no question of their own until the context ends."""
        ...

    def look_ahead(
        self, logs: Sequence[LogId], limit: int
    ) -> AbstractContextManager[Mapping[LogId, Log]]:
        """Ask how these logs stand, and read the own events of the first one ahead, unless they are
        more than `limit`.
        """
        ...

    def event(self, id: Digest) -> Event: ...

    def events_at(self, places: Sequence[tuple[LogId, int]]) -> list[Event]:
        """The events at these places (log, seq), in one question, without places that a log itself
        does not have.
        """
        ...

    def number_of(self, id: Digest) -> int | None:
        """The commit number of an event; None if the store does not have it.

        It is unique, larger than the numbers of the events before it in its log, and larger than
        the number of every event that its writer can have seen. Numbers need not be dense.
        """
        ...

    def feed(
        self,
        after: int = 0,
        *,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        """All settled events (`number`) in the order of their numbers, across all logs, with these.
        Whoever goes on after the last number it got misses nothing and gets nothing twice.

        `reverse`: all events that can be seen, settled or not, from the newest down to the first
        after `after`. `visible_events` gives them in their order.
        """
        ...

    @property
    def number(self) -> int:
        """The number of the last settled event; 0: there is none.

        At or below a settled number nothing appears any more. Events above it may be visible
        already, also those of the caller: another transaction with a smaller number may be open.
        """
        ...

    def event_count(self, upto: int) -> int:
        """Return how many events have a commit number of at most `upto`, without the one with the
        number 0, by counting them, for `verify`.
        """
        ...

    def records(self, log: LogId) -> Iterator[StoredRecord]:
        """The log's own records as stored, unchecked, for `verify`."""
        ...


class BlobStore(Protocol):
    """Contents by digest: written once, counted by the events that point to them."""

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
        """The digests of all blobs, with or without an event that points to them."""
        ...

    def sweep_blobs(self, *, before: int, keep: Container[Digest] = frozenset()) -> int:
        """Remove blobs that no event points to, that were put before the event with this number
        was written, and that are not in `keep`; returns how many.

        `keep` is for blobs that events point to through other blobs: the contents of a tree.
        """
        ...


class SnapshotStore(Protocol):
    """A cache of bytes about places of logs, which may be dropped at any time.

    The store does not know their meaning.

    """

    def keep_snapshot(self, log: LogId, seq: int, data: bytes) -> None:
        """Keep bytes about one of the log's own places, and drop those kept for it before."""
        ...

    def nearest_snapshot(self, log: LogId, upto: int) -> tuple[LogId, int, bytes] | None:
        """The nearest bytes kept at or before a place, through the lineage, after the log and the
        place they were kept for.
        """
        ...

    def snapshots(self, log: LogId) -> list[tuple[int, bytes]]:
        """The bytes kept for this very log, in the order of its places."""
        ...

    def drop_snapshots(self, log: LogId | None = None) -> int:
        """Drop the bytes kept for a log, or for all of them; returns how many there were."""
        ...


class RowStore(Protocol):
    """Rows of projections. An answer of `rows` or `search` is as new as the question: every event
    that was committed before is folded, once.

    A store that folds inside (`folds_inside`) folds in the transaction of each append: a projection
    that fails undoes the append. Another one folds behind, when it is asked: an event that a
    projection cannot fold is committed all the same, and the rows of this projection are refused
    from then on, with `RowsBroken`.
    """

    def rows(
        self,
        projection: str,
        table: str,
        where: Mapping[str, Wanted] | None = None,
        *,
        order: str | None = None,
        descending: bool = False,
        before: Scalar = None,
        limit: int = 100,
        kinds: Collection[str] | None = None,
    ) -> list[Row]:
        """Rows with these values, in the table's own order (`Table.order`, or the key) or that of a
        column; rows that are equal in it come in the table's own order. `before` is the last value
        of the previous page. A frozenset of texts or of integers asks for rows that
        have one of these. `kinds`: no event of another kind need be folded for the caller.

        Raises `RowsBroken` if an event could not be folded.

        Paging is by that one value, so page by a column that differs from row to row.
        """
        ...

    def search(
        self,
        projection: str,
        table: str,
        words: Sequence[str],
        *,
        within: Sequence[Region] | None = None,
        upto: int | None = None,
        near: tuple[str, int] | None = None,
        limit: int = 20,
    ) -> Found:
        """Find the rows that have at least one of these words, best first by BM25 over the table's
        `words`; equal ones in the table's order.

        `within` names the regions in which it searches; None: all rows. Rows after `upto`, in the
        table's order, are left out. Rows that are left out are neither found nor neighbours, and
        count in no figure: the answer is the same as if the table did not have them. All stores
        give the same rows, scores and figures (`search.py` has the formula).

        `near` (a column, a number) gives each row that many neighbours on each side: the next rows
        in the table's order with the same value in that column, in the same group and in the same
        region. A row with None or an empty text there has none. The table needs the index (column,
        group, order) for it.

        Among many rows common words do not choose: the `limit` best rows by the other words are
        found, and ranked by all of them (`choosing_words`). So a search costs about the same in
        large tables as in small ones.
        """
        ...

    def check_words(self) -> list[str]:
        """Name the tables whose rows are not found by their words as they should be, for
        `verify`. It reads all rows, and may hold up writers meanwhile.
        """
        ...

    def attached(self) -> list[Projection]:
        """The projections that this process has attached, for `verify`: also those whose rows a
        newer program keeps, which `rows` refuses.
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


class Store(
    EventStore,
    BlobStore,
    SnapshotStore,
    RowStore,
    LockStore,
    BellStore,
    NoticeStore,
    AllowanceStore,
    ClockStore,
    Protocol,
):
    """A place where events and blobs are kept. All methods may be called from any thread."""

    @property
    def address(self) -> str:
        """The one spelling under which `open_store` finds this store again."""
        ...

    @property
    def folder(self) -> Path | None:
        """The folder for things that belong beside the store, such as copies of files.

        None: a store in memory, or on another machine.
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
    def dense(self) -> bool:
        """True: commit numbers are 1, 2, 3, …, and `verify` finds a gap. False: they grow."""
        ...

    @property
    def folds_inside(self) -> bool:
        """True: rows are folded in the transaction of the append. False: when they are asked for.
        See `RowStore`.
        """
        ...

    @property
    def durability(self) -> Durability:
        """The durability of sessions opened from now on that name none."""
        ...

    def set_durability(self, durability: Literal["full", "async"]) -> None:
        """Set the durability of roots from now on; those that stand are written as they were. A
        store in memory has one of its own.
        """
        ...

    def check(self) -> list[str]:
        """Name wrong counts and references beside the logs, for `verify`. Raises `StoreCorrupt`
        if the store's files are damaged.
        """
        ...

    def unchecked_parts(self) -> list[Unchecked]:
        """Name the parts that have nothing in this store to be compared with, for `verify`."""
        ...

    def describe(self) -> dict[str, object]:
        """Return facts about the store for people: `plait doctor` prints them."""
        ...

    def close(self) -> None: ...

    @property
    def is_closed(self) -> bool: ...
