"""The fall of memories: those that have no live evidence once others are taken back.

A piece of evidence is live while none of the memories that it rests on is taken back. A memory
stands by any live piece, by a passing verdict on it, or by a person's word. Memories that only
support each other in a circle do not stand: all that rest on what falls are out at first, and those
with live evidence come back in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from plait.event import Event
from plait.event.kinds import MemoryCommitted, MemoryProposed, MemorySuperseded
from plait.ids import Digest, LogId, digest
from plait.memory.rows import (
    ITEM,
    REST,
    SUPPORT,
    decode_decisions,
    decode_grounds,
    holder_names,
)
from plait.memory.scopes import Overseer
from plait.memory.standing import (
    SAME,
    VERDICT,
    VERDICTS,
    MemoryDecision,
    MemoryStanding,
    standing_of,
)
from plait.session.graph_rows import CAUSE_DIGITS
from plait.session.house import Houses
from plait.store import Row, Store

_ALL = 2**31
_DEAD = ("retracted", "rejected")
_GROUND_TAG = b"plait/rollback-ground/1"


class Book:
    """The rows about memories that one plan reads, each once; `number`: as of that commit."""

    def __init__(self, store: Store, number: int | None = None) -> None:
        self.store, self._number = store, number
        self._overseer = Overseer(store, number)
        self._houses = Houses(store)
        self._rows: dict[Digest, Row | None] = {}
        self._standings: dict[Digest, MemoryStanding] = {}
        self._effects: dict[Digest, list[Event]] = {}
        self._dependents: dict[Digest, list[Digest]] = {}

    def add(self, rows: Iterable[Row]) -> list[Digest]:
        """Take in rows that were read already; return their ids."""
        found = {Digest(str(row["id"])): row for row in rows}
        self._rows.update(found)
        return list(found)

    def row(self, memory: Digest) -> Row | None:
        if memory not in self._rows:
            rows = self.store.rows("memory", ITEM, {"id": memory}, limit=1)
            self._rows[memory] = rows[0] if rows else None
        return self._rows[memory]

    def texts(self) -> dict[Digest, str]:
        """Return the texts of all memories that were read."""
        known = self._rows.items()
        return {memory: str(row["text"]) for memory, row in known if row is not None}

    def rows(self) -> list[Row]:
        """Return all rows that were read."""
        return [row for row in self._rows.values() if row is not None]

    def effects(self, memory: Digest) -> list[Event]:
        """Return the events that have a memory among their causes."""
        if memory not in self._effects:
            self._effects[memory] = effects_of(self.store, memory)
        return self._effects[memory]

    def decisions(self, memory: Digest) -> list[MemoryDecision]:
        """Return all decisions about a memory, of every branch."""
        row = self.row(memory)
        every = decode_decisions(str(row["decisions"])) if row is not None else []
        return [each for each in every if self._number is None or each.number <= self._number]

    def standing(self, memory: Digest) -> MemoryStanding:
        """Return the standing of a memory by all decisions about it."""
        if memory not in self._standings:
            row = self.row(memory)
            known = MemoryStanding() if row is None else self._overseer.standing(row)
            self._standings[memory] = known
        return self._standings[memory]

    def is_dead(self, memory: Digest) -> bool:
        """True if a memory is taken back or rejected, so that nothing rests on it."""
        return self.standing(memory).state in _DEAD

    def is_gone(self, memory: Digest) -> bool:
        """True if a memory is taken back for every reader.

        One of session scope may be taken back in one branch alone.
        """
        row = self.row(memory)
        if row is None or not self.is_dead(memory):
            return row is None
        if row["scope"] != "session" or self.standing(memory).state == "rejected":
            return True
        own = [each for each in self.decisions(memory) if each.log in self._houses]
        return standing_of(own).state in _DEAD

    def dependents(self, memory: Digest) -> list[Digest]:
        """Return the memories that have evidence which rests on a memory."""
        if memory not in self._dependents:
            rows = self.store.rows("memory", REST, {"base": memory}, limit=_ALL)
            self._dependents[memory] = [Digest(str(row["memory"])) for row in rows]
        return self._dependents[memory]

    def bases(self, memory: Digest) -> list[tuple[Digest, ...]]:
        """Return, for each piece of evidence for a memory, the memories that it rests on."""
        row = self.row(memory)
        if row is None:
            return []
        found = [ground.memories for ground in decode_grounds(str(row["grounds"]))]
        if not found:
            found.append(())  # a document, or a person's word
        for support in self._supports(memory, row):
            more = [ground.memories for ground in decode_grounds(str(support["grounds"]))]
            found += more if more and not support["person"] else [()]
        return found

    def stands_by_itself(self, memory: Digest) -> bool:
        """True if a person wrote a memory, or the last verdict on it passed. A copy for a wider
        scope rests on its original: the person who widened it said nothing new.
        """
        verdicts = [each.kind for each in self.decisions(memory) if each.kind in VERDICTS]
        if verdicts[-1:] == [VERDICT]:
            return True
        body = self.store.event(memory).body
        if not isinstance(body, MemoryProposed) or not body.by_person:
            return False
        return not any([self._is_copy(memory, base) for base in body.supersedes])

    def _is_copy(self, memory: Digest, base: Digest) -> bool:
        """True if a memory says what the one that it replaces says, and cites it."""
        row, before = self.row(memory), self.row(base)
        return (
            row is not None
            and before is not None
            and row["same"] == before["same"]
            and any([ground.event == base for ground in decode_grounds(str(row["grounds"]))])
        )

    def _supports(self, memory: Digest, row: Row) -> list[Row]:
        if not row["supports"]:
            return []
        rows = self.store.rows("memory", SUPPORT, {"memory": memory}, limit=_ALL)
        limit = self._number
        return [each for each in rows if limit is None or int(str(each["number"])) <= limit]

    def ground(self) -> Digest:
        """Return a digest of all that was read: a plan made from the same has the same."""
        seen = [
            f"{memory} {row['decisions']} {row['supports']}"
            for memory, row in sorted(self._rows.items())
            if row is not None
        ]
        return digest(_GROUND_TAG, "\n".join(seen).encode())


class Fall(NamedTuple):
    """The memories that are out, those of them to be taken back, and those with less evidence."""

    out: Set[Digest]
    retracted: tuple[Digest, ...]
    weakened: tuple[Digest, ...]


def fall_of(book: Book, roots: Sequence[Digest]) -> Fall:
    """Find what falls with some memories."""
    affected = [each for each in _closure(book, roots) if each not in set(roots)]
    out = {*roots, *affected}
    waiting: Iterable[Digest] = affected
    while waiting:
        _bring_back(book, out, roots, waiting)
        # One may have lost its evidence before, and rest here only on memories that stand.
        strays = out - {*_closure(book, roots, out)}
        out -= strays
        waiting = [each for stray in sorted(strays) for each in book.dependents(stray)]
    retracted = [each for each in (*roots, *affected) if each in out and not book.is_gone(each)]
    newly = {each for each in out if not book.is_dead(each)}
    weakened = [each for each in affected if each not in out and _has_lost(book, each, newly)]
    return Fall(out, tuple(dict.fromkeys(retracted)), tuple(weakened))


def _bring_back(
    book: Book, out: set[Digest], roots: Sequence[Digest], candidates: Iterable[Digest]
) -> None:
    """Take those out of `out` that have live evidence, and so on with what rests on them."""
    waiting = deque(candidates)
    while waiting:
        memory = waiting.popleft()
        if memory not in out or memory in roots or book.is_dead(memory):
            continue
        if is_held(book, memory, out):
            out.discard(memory)
            waiting.extend(book.dependents(memory))


def is_held(
    book: Book, memory: Digest, out: Collection[Digest], back: Collection[Digest] = ()
) -> bool:
    """True if a memory has live evidence, or needs none, while some memories are out, and others
    that were taken back are back.
    """
    for bases in book.bases(memory):
        if not any(base in out or (book.is_dead(base) and base not in back) for base in bases):
            return True
    return book.stands_by_itself(memory)


def _has_lost(book: Book, memory: Digest, newly: Set[Digest]) -> bool:
    """True if a piece of evidence was live before these memories were out."""
    for bases in book.bases(memory):
        if newly & {*bases} and not any(book.is_dead(base) for base in bases):
            return True
    return False


def _closure(book: Book, roots: Iterable[Digest], among: Set[Digest] | None = None) -> list[Digest]:
    """Return some memories and all that rest on them, directly or not, nearest first; `among`:
    through these alone.
    """
    found = dict.fromkeys(roots)
    queue = deque(found)
    while queue:
        for memory in book.dependents(queue.popleft()):
            if among is not None and memory not in among:
                continue
            if memory not in found and book.row(memory) is not None:
                found[memory] = None
                queue.append(memory)
    return list(found)


# ── what comes back ──────────────────────────────────────────────────────────────────────────


class Conflict(NamedTuple):
    """A memory about which a later act says something else than the plan would, and the reason."""

    memory: Digest
    why: str


class Return(NamedTuple):
    """Memories that come back, each with the superseder that falls, and those that cannot."""

    pairs: tuple[tuple[Digest, Digest], ...]
    conflicts: tuple[Conflict, ...]


def return_of(book: Book, fall: Fall) -> Return:
    """Find what comes back when memories fall: what they had superseded, unless something else
    still does, or another memory has its key now.
    """
    pairs: list[tuple[Digest, Digest]] = []
    conflicts: list[Conflict] = []
    for memory in _superseded_by(book, fall.out):
        standing = book.standing(memory)
        superseders = standing.superseded_by
        if memory in fall.out or not superseders:
            continue
        if book.is_dead(memory):
            who = standing.by.actor if standing.by is not None else "a rule"
            conflicts.append(Conflict(memory, f"{who} took it back since, so it stays away"))
            continue
        if (first := _first_of(book, memory, fall.out)) is not None:
            why = f"it says the same as m:{first[:8]}, and stays away with it"
            conflicts.append(Conflict(memory, why))
            continue
        holders = [each for each in superseders if each not in fall.out and not book.is_dead(each)]
        later = None if holders else _holder_of(book, superseders, fall.out)
        if holders:
            if (book.row(memory) or {}).get("scope") == "session":
                # in a branch that does not have the other one, it comes back
                pairs += [(memory, each) for each in superseders if each in fall.out]
        elif later is not None:
            why = f"m:{later[:8]} replaced its successor since, so it stays superseded"
            conflicts.append(Conflict(memory, why))
        elif (rival := rival_of(book, memory, fall.out)) is not None:
            conflicts.append(Conflict(memory, f"{rival.why}, so it stays superseded"))
        else:
            pairs += [(memory, each) for each in superseders]
    for memory, other in _crowded_out(book, [memory for memory, _ in pairs]):
        pairs = [pair for pair in pairs if pair[0] != memory]
        why = f"m:{other[:8]} comes back in its place, so it stays superseded"
        conflicts.append(Conflict(memory, why))
    return Return(tuple(pairs), tuple(conflicts))


def _first_of(book: Book, memory: Digest, out: Set[Digest]) -> Digest | None:
    """Return the memory that falls and that another one supported, as the same statement."""
    held = book.standing(memory).superseded_by
    for each in book.decisions(memory):
        if each.rule == SAME and each.other in held and each.other in out:
            return Digest(each.other)
    return None


def _crowded_out(book: Book, back: Sequence[Digest]) -> list[tuple[Digest, Digest]]:
    """Return the memories among those that come back which have a key, or make a statement, that a
    later one among them has, too; each with that one.
    """
    rows = [row for each in dict.fromkeys(back) if (row := book.row(each)) is not None]
    wide = [row for row in rows if row["scope"] != "session"]
    taken: dict[tuple[object, str], Digest] = {}
    found: list[tuple[Digest, Digest]] = []
    for row in sorted(wide, key=lambda row: int(str(row["number"])), reverse=True):
        names = [(row["owner"], name) for name in holder_names(row)]
        memory = Digest(str(row["id"]))
        others = [taken[name] for name in names if name in taken]
        if others:
            found.append((memory, others[0]))
        else:
            taken.update(dict.fromkeys(names, memory))
    return found


def approvals_of(book: Book, fall: Fall, roots: Collection[Digest]) -> list[Conflict]:
    """Return the memories that fall with others although a person had approved them."""
    found: list[Conflict] = []
    for memory in fall.retracted:
        by = [each for each in book.decisions(memory) if _is_approval(each)]
        if by and memory not in roots:
            found.append(Conflict(memory, f"{by[-1].actor} approved it, and it falls all the same"))
    return found


def _is_approval(decision: MemoryDecision) -> bool:
    return decision.kind == MemoryCommitted.__name__ and not decision.rule


def _superseded_by(book: Book, out: Set[Digest]) -> Iterator[Digest]:
    """Yield the memories that those out had superseded, also through others that are dead."""
    queue, seen = deque(sorted(out)), set[Digest]()
    while queue:
        memory = queue.popleft()
        by_events = [
            event.header.causes[0]
            for event in book.effects(memory)
            if event.kind == MemorySuperseded.__name__ and event.header.causes[1:2] == (memory,)
        ]
        for older in (*by_events, *_displaced_by(book, memory)):
            if older in seen:
                continue
            seen.add(older)
            yield older
            if book.is_dead(older) and older not in out:
                queue.append(older)


def _displaced_by(book: Book, memory: Digest) -> list[Digest]:
    """Return the memories that one has displaced by its key or as the same statement, also without
    an event of their own.
    """
    row = book.row(memory)
    columns = [] if row is None else [column for column in ("key", "same") if row[column]]
    found: list[Digest] = []
    for column in columns:
        if row is None or (column == "same" and not row["supports"]):
            continue
        wanted = {column: row[column], "owner": row["owner"]}
        others = book.add(book.store.rows("memory", ITEM, wanted, limit=_ALL))
        found += [each for each in others if memory in book.standing(each).superseded_by]
    return found


def _holder_of(book: Book, superseders: Iterable[Digest], out: Set[Digest]) -> Digest | None:
    """Return a memory that stands, and that replaced one of these, directly or through others."""
    queue, seen = deque(superseders), set[Digest]()
    while queue:
        memory = queue.popleft()
        if memory in seen:
            continue
        seen.add(memory)
        if memory not in out and not book.is_dead(memory):
            return memory
        queue.extend(book.standing(memory).superseded_by)
    return None


def rival_of(book: Book, memory: Digest, out: Collection[Digest]) -> Conflict | None:
    """Return another active memory of the same owner that has the same key, or makes the same
    statement, and that in words.
    """
    row = book.row(memory)
    if row is None:
        return None
    if row["key"]:
        for other in _active_with(book, row, "key", out):
            return Conflict(other, f"m:{other[:8]} has its key now")
    if row["scope"] != "session":
        for other in _active_with(book, row, "same", out):
            if holder_names(row)[0] == holder_names(book.row(other) or {})[0]:
                return Conflict(other, f"m:{other[:8]} says the same now")
    return None


def _active_with(book: Book, row: Row, column: str, out: Collection[Digest]) -> list[Digest]:
    wanted = {column: row[column], "owner": row["owner"]}
    others = book.add(book.store.rows("memory", ITEM, wanted, limit=_ALL))
    return [
        other
        for other in others
        if other != row["id"] and other not in out and book.standing(other).state == "active"
    ]


def effects_of(store: Store, memory: Digest) -> list[Event]:
    """Return the events that have a memory among their causes."""
    found: list[Event] = []
    wanted = {"cause": memory[:CAUSE_DIGITS]}
    for row in store.rows("graph", "cause", wanted, limit=_ALL):
        log, seq = LogId(str(row["log"])), int(str(row["seq"]))
        event = next(store.read(log, seq, seq), None)
        if event is not None and memory in event.header.causes:
            found.append(event)
    return found
