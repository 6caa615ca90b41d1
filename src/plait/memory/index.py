"""Other indexes: where memories are looked for, if not in the store's own index.

An index finds, and the record decides. An index holds texts under the ids of memories and gives
ids back. Rows of the store say what each id is: an id that they do not know is dropped and counted,
and scope, time and state are checked as for the store's own index. So an index that is wrong, slow
or gone can hide a memory, and can neither change one nor show one that the reader may not see.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Protocol

from plait.errors import IndexFailed, PlaitError
from plait.event import Event
from plait.event.kinds import (
    MemoryCommitted,
    MemoryRestored,
    MemoryRetracted,
    MemorySuperseded,
)
from plait.ids import Digest, is_digest
from plait.memory.ranking import Part, RankedRow, with_parts
from plait.memory.recall import seeds_for
from plait.memory.rows import DECISION_KINDS, ITEM, decode_decisions
from plait.memory.scopes import Viewer
from plait.memory.standing import VERDICT, MemoryDecision, standing_of
from plait.session.house import Houses
from plait.session.ports import writer_of
from plait.session.value import SessionValue, core_of, position_of
from plait.store import Found, FoundRow, Row, Store


class Index(Protocol):
    """Finds memories by their texts. Every method raises IndexFailed if it cannot do its task.

    `testing.MemoryContract` is its contract. Methods are called from several threads.
    """

    @property
    def name(self) -> str:
        """The name on record, as in `MemoryRecalled.index`."""
        ...

    def put(self, id: str, text: str, owner: str) -> None:
        """Hold a text under an id, in place of an earlier one. From then on searches find it."""
        ...

    def search(self, query: str, owners: Sequence[str], limit: int) -> list[tuple[str, float]]:
        """Return the ids of the best texts of these owners with scores, best first, none twice.

        A score above 0 says that the text has to do with the query; others are left out.
        """
        ...

    def forget(self, id: str) -> None:
        """Remove a text. An id that the index does not have is no error."""
        ...

    def close(self) -> None: ...


STRIDE = 50  # changes after which the mark is written again

_COMMITTED = MemoryCommitted.__name__
_KINDS = DECISION_KINDS | {VERDICT}
# Decisions that hold on the path of their session, and not for a fork that left it before.
_ON_A_PATH = frozenset(
    kind.__name__ for kind in (MemoryRetracted, MemorySuperseded, MemoryRestored)
)


class _FillMark:
    """The commit number up to which an index is filled from one store."""

    def __init__(self, written: int) -> None:
        self.number = self.written = written
        self.changes = 0  # since it was written
        self.ahead = frozenset[int]()  # the events after it that are taken in, and not settled


class IndexFilling:
    """Keeps an index filled from the record: every memory that is active for some reader is in it.

    The mark is the settled commit number up to which the index is filled. Events that are visible
    and not settled are taken in, too, so that a reader finds what it just wrote; the mark does not
    pass them, since others with smaller numbers may follow. It stands in the index, as the id
    of an item with an owner of its own: an index that lost its contents has no mark either, and is
    filled again from the beginning. It is written after every so many changes; a process that
    starts puts the last few texts a second time, which changes nothing.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._marks: dict[str, _FillMark] = {}  # by the id of the store
        self._has_failed = False
        self._lock = Lock()

    def fill(self, store: Store) -> None:
        """Bring the index up to date; raises IndexFailed. What was done until then stays done."""
        with self._lock:
            mark, upto = self._mark(store), store.number
            seen: set[Digest] = set()
            if mark.number < upto:
                for number, event in store.feed(mark.number, kinds=_KINDS):
                    self._take(store, mark, event, seen)
                    mark.number = number
                    if mark.changes >= STRIDE:
                        self._write_mark(store, mark)
                mark.number = max(mark.number, upto)
            ahead = list(store.feed(mark.number, kinds=_KINDS, reverse=True))
            for number, event in ahead:
                if number not in mark.ahead:
                    self._take(store, mark, event, seen)
            mark.ahead = frozenset([number for number, _ in ahead])
            self._has_failed = False

    def _take(self, store: Store, mark: _FillMark, event: Event, seen: set[Digest]) -> None:
        """Bring the memories that an event decides about up to date, unless they were `seen`."""
        new = [memory for memory in _memories_of(event) if memory not in seen]
        mark.changes += sum([self._update(store, memory) for memory in new])
        seen.update(new)

    def fill_if_possible(self, store: Store) -> None:
        """Bring the index up to date if it answers. If not, the next recall does, or tells why.

        One that did not answer is left alone until then: a writer should not wait for it each time.
        """
        if self._has_failed:
            return
        try:
            self.fill(store)
        except PlaitError:
            self._has_failed = True

    def refill(self, store: Store) -> None:
        """Put every text again, whatever the mark says; forget those that are not active."""
        with self._lock:
            mark = self._mark(store)
            if mark.written:
                self._forget(_mark_id(mark.written))
            mark.number = mark.written = 0
            mark.ahead = frozenset()
        self.fill(store)

    def _update(self, store: Store, memory: Digest) -> int:
        """Put or forget one memory; return how many changes that makes."""
        for row in store.rows("memory", ITEM, {"id": memory}, limit=1):
            decisions = decode_decisions(str(row["decisions"]))
            if not _was_ever_active(decisions):
                return 0  # a text in quarantine reaches no index
            if is_active_for_some(row, decisions, store):
                said_by = f"{row['speaker']}: " if row["speaker"] else ""
                self._put(memory, f"{said_by}{row['text']}", str(row["owner"]))
            else:
                self._forget(memory)
            return 1
        return 0

    # ── the mark ─────────────────────────────────────────────────────────────────────────────

    def _mark(self, store: Store) -> _FillMark:
        if store.id not in self._marks:
            found = _search(self.index, _MARK_TEXT, [_mark_owner(store)], STRIDE)
            # a store that was put back to an earlier copy of itself has not come so far yet
            numbers = [number for id, _ in found if (number := _mark_number(id)) <= store.number]
            self._marks[store.id] = _FillMark(max(numbers, default=0))
        return self._marks[store.id]

    def _write_mark(self, store: Store, mark: _FillMark) -> None:
        if mark.number > mark.written:
            self._put(_mark_id(mark.number), _MARK_TEXT, _mark_owner(store))
            if mark.written:
                self._forget(_mark_id(mark.written))
            mark.written = mark.number
        mark.changes = 0

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    def _put(self, id: str, text: str, owner: str) -> None:
        try:
            self.index.put(id, text, owner)
        except Exception as error:
            raise _failure(self.index, error) from error

    def _forget(self, id: str) -> None:
        try:
            self.index.forget(id)
        except Exception as error:
            raise _failure(self.index, error) from error


@contextmanager
def filling_after(filling: IndexFilling | None, where: SessionValue | Store) -> Generator[None]:
    """Fill an index after an append to a session or to the house log; None: there is no index.

    Not if a recording has that append already: a replay makes no calls.
    """
    if filling is None:
        yield
        return
    is_new = not isinstance(where, SessionValue) or not _is_recorded(where)
    yield
    if is_new:
        filling.fill_if_possible(core_of(where).store if isinstance(where, SessionValue) else where)


def _is_recorded(session: SessionValue) -> bool:
    """True if the next append of a session is compared with a recording, and not written."""
    return writer_of(session.run).recorded(position_of(session)) is not None


class IndexFinder:
    """Finds the candidates of one recall in an index: a `Finder`."""

    def __init__(
        self,
        filling: IndexFilling,
        parts: Mapping[str, Part] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self._filling, self._index = filling, filling.index
        self._parts, self._weights, self.seeds = parts, weights, seeds_for(weights)
        self.name = self._index.name
        self.unknown = 0  # ids that the index returned and the record does not know

    def find(self, store: Store, query: str, viewer: Viewer, limit: int) -> Found:
        owners = viewer.owners
        if owners is None:
            raise IndexFailed(self.name, "it searches for owners, and none are named")
        self._filling.fill(store)
        wanted = limit
        while True:
            answer = _search(self._index, query, owners, wanted)
            found = [FoundRow(row, score, (), ()) for row, score in self._rows(store, answer)]
            self.unknown = len(answer) - len(found)
            if len(found) >= limit or len(answer) < wanted:
                return Found(tuple(found[:limit]), {}, len(found), 1.0)
            wanted += limit  # unknown ids take the places of others

    def rank(self, found: Found, query: str) -> Sequence[RankedRow]:
        ranked = [
            RankedRow(each.row, each.score, {self.name: each.score})
            for each in found.rows
            if each.score > 0
        ]
        return with_parts(ranked, self._parts, self._weights)

    def _rows(
        self, store: Store, answer: Iterable[tuple[str, float]]
    ) -> Iterator[tuple[Row, float]]:
        for id, score in answer:
            for row in store.rows("memory", ITEM, {"id": id}, limit=1):
                yield row, score


# ── the record ───────────────────────────────────────────────────────────────────────────────


def is_active_for_some(row: Row, decisions: Sequence[MemoryDecision], store: Store) -> bool:
    """True if a memory may be active for a reader: whether it is for this one, a recall decides.

    A fork may believe what its parent took back later, so at session scope only the house log can
    take a memory from all readers.
    """
    if row["scope"] != "session":
        return Viewer(store, (str(row["owner"]),), ()).standing(row).state == "active"
    houses = Houses(store)
    for_all = [each for each in decisions if each.log in houses or each.kind not in _ON_A_PATH]
    return standing_of(for_all).state == "active"


def _was_ever_active(decisions: Sequence[MemoryDecision]) -> bool:
    return any(each.kind in (_COMMITTED, VERDICT) for each in decisions)


def _memories_of(event: Event) -> Sequence[Digest]:
    """Return the memories that an event decides about."""
    causes = event.header.causes
    return causes if event.kind == VERDICT else causes[:1]


_MARK_TEXT = "mark"


def _mark_owner(store: Store) -> str:
    return f"mark:{store.id}"


def _mark_id(number: int) -> str:
    return f"{number:064x}"  # it looks like an id of ours: an index may count on that


def _mark_number(id: str) -> int:
    return int(id, 16) if is_digest(id) else 0


# ── calls that may fail ──────────────────────────────────────────────────────────────────────


def _search(index: Index, query: str, owners: Sequence[str], limit: int) -> list[tuple[str, float]]:
    """Search, and check the answer: an index may be anybody's."""
    if not owners:
        return []
    try:
        answer = index.search(query, owners, limit)
        found: dict[str, float] = {}
        for id, score in answer:
            if not isinstance(id, str) or not math.isfinite(score):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"{id!r:.80} with score {score!r:.20} is no id with a score")
            found.setdefault(id, float(score))
    except Exception as error:
        raise _failure(index, error) from error
    return list(found.items())[:limit]


def _failure(index: Index, error: Exception) -> PlaitError:
    if isinstance(error, IndexFailed):
        return error
    return IndexFailed(index.name, f"{type(error).__name__}: {error}"[:500])
