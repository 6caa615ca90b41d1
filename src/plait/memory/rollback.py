"""Rollback: memories taken back with all that rests on them, planned first and applied at once.

A plan is a value. It says what falls, what comes back, what is left with less evidence, and who
relied on it, and it is bound to its ground: if memories have changed since, nothing is applied. The
inverse of a rollback is a rollback, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from plait.errors import InvalidValue, PlaitError, StalePlan, UnknownMemory
from plait.event import Event
from plait.event.kinds import (
    MemoryRecalled,
    MemoryRestored,
    MemoryRetracted,
    MemoryRolledBack,
    MemorySuperseded,
    MessageSaid,
    Rewound,
    Text,
)
from plait.ids import Digest, LogId, digest, is_digest, short
from plait.memory.deciding import person_acting
from plait.memory.falling import (
    Book,
    Conflict,
    approvals_of,
    effects_of,
    fall_of,
    is_held,
    return_of,
    rival_of,
)
from plait.memory.items import ID_MIN, SHORT, Named, find_row
from plait.memory.readers import MemoryReader, inboxes_of, readers_of
from plait.memory.rows import ITEM, MemoryRows, holder_names
from plait.memory.scopes import Overseer
from plait.memory.standing import AGAIN, ROLLBACK
from plait.session.house import acts_of_houses, append_to_house
from plait.session.ports import Act, Draft, store_at
from plait.session.value import SessionValue
from plait.store import Row, Store

_ALL = 2**31
_PLAN_TAG = b"plait/rollback/1"
_SERVICE = "service:memory"
_SHOWN_MAX = 20  # lines of one sort that a plan prints
_TEXT_MAX = 80
_encode = msgspec.json.Encoder(order="deterministic").encode
# Events of these kinds may change a plan, in any log: a memory that is written while the plan is
# applied may rest on one that falls.
BEARING = MemoryRows.kinds - {MemoryRecalled.__name__, Rewound.__name__}


class RollbackPlan(msgspec.Struct, frozen=True):
    """A rollback as it would be applied. Nothing has happened yet: `apply` does it."""

    about: str  # a memory, a session, a document or an author, in words
    store: str
    retracted: tuple[Digest, ...] = ()  # these fall
    # these come back, each with the superseder that falls; None: from being taken back
    restored: tuple[tuple[Digest, Digest | None], ...] = ()
    superseded: tuple[tuple[Digest, Digest], ...] = ()  # of an inverse: replaced again, by these
    weakened: tuple[Digest, ...] = ()  # these stay, with less evidence; of an inverse: with more
    conflicts: tuple[Conflict, ...] = ()
    readers: tuple[MemoryReader, ...] = ()  # those who relied on it
    ground: Digest = Digest("")  # of the decisions that it was made from
    digest: Digest = Digest("")  # of all of it except the readers, who may go on reading
    undoes: Digest | None = None
    texts: dict[Digest, str] = {}
    request: tuple[str, str] = ("", "")  # by which it is made again

    @property
    def is_empty(self) -> bool:
        """True if nothing would change."""
        return not (self.retracted or self.restored or self.superseded)

    def apply(self, *, reason: str, actor: str | None = None) -> list[Event]:
        """Have a person do it, in one transaction; return the events.

        Raises StalePlan, and writes nothing, if memories have changed since it was made.
        """
        if not isinstance(reason, str) or not reason.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue("reason", "none is stated", "say why, for those who relied on it")
        store = store_at(self.store)
        act = person_acting(store, actor, "roll memories back", self.about)
        self.check_ground()
        if self.is_empty:
            raise InvalidValue("rollback", f"{self.about}: nothing would change", "leave it")
        return append_to_house(
            self.store,
            self._drafts(act, reason),
            notices=self._notices(store, reason),
            check=GroundCheck(self),
            kinds=BEARING,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for `json.dumps`."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        plain.pop("request")
        return plain

    def __str__(self) -> str:
        verb = "undo" if self.undoes is not None else "roll back"
        if self.is_empty:
            return "\n".join(
                [f"{verb} {self.about}: nothing would change", *self._conflict_lines()]
            )
        back = dict.fromkeys([memory for memory, _ in self.restored])
        lines = [f"{verb} {self.about}"]
        lines += self._lines("falls", self.retracted)
        lines += self._lines("comes back", list(back))
        lines += self._lines("is superseded again", [memory for memory, _ in self.superseded])
        more = "more" if self.undoes is not None else "less"
        lines += self._lines(f"stays, with {more} evidence", self.weakened)
        lines += self._conflict_lines()
        lines += _limited([f"  relied on it: {reader}" for reader in self.readers])
        return "\n".join(lines)

    # ── parts ────────────────────────────────────────────────────────────────────────────────

    def _lines(self, what: str, memories: Sequence[Digest]) -> list[str]:
        return _limited([f"  {what}: {self._named(memory)}" for memory in memories])

    def _conflict_lines(self) -> list[str]:
        return _limited(
            [f"  conflict: {self._named(memory)}: {why}" for memory, why in self.conflicts]
        )

    def _named(self, memory: Digest) -> str:
        text = " ".join(self.texts.get(memory, "").split())
        cut = f"{text[: _TEXT_MAX - 1]}…" if len(text) > _TEXT_MAX else text
        return f"[m:{memory[:SHORT]}] {cut}".rstrip()

    def check_ground(self) -> Book:
        """Raise StalePlan if the plan would be another now; return the rows that it rests on."""
        try:
            book, now = _plan(store_at(self.store), self.request, with_readers=False)
        except PlaitError as error:  # it is undone already, say
            raise StalePlan(self.about) from error
        if now.digest != self.digest:
            raise StalePlan(self.about)
        return book

    def _drafts(self, act: Act, reason: str) -> list[Draft]:
        body = MemoryRolledBack(self.digest, self.about, reason, self.weakened, self.undoes)
        first = (self.undoes,) if self.undoes is not None else self.weakened
        drafts = [Draft(body, act._replace(causes=first))]
        for memory in self.retracted:
            drafts.append(
                Draft(MemoryRetracted(ROLLBACK, reason), act._replace(causes=(memory, 0)))
            )
        # before the others are back: else their keys would supersede these once more
        for memory, other in self.superseded:
            drafts.append(Draft(MemorySuperseded(AGAIN), act._replace(causes=(memory, other, 0))))
        for memory, other in self.restored:
            # without a second memory among its causes it undoes the retraction
            causes = (memory,) if other is None else (memory, other, 0)
            drafts.append(Draft(MemoryRestored(ROLLBACK, reason), act._replace(causes=causes)))
        return drafts

    def _notices(self, store: Store, reason: str) -> dict[LogId, list[Draft]]:
        """Return the messages to the runs that are open and were given what changes."""
        changed = {*self.retracted, *[memory for memory, other in self.restored if other is None]}
        verb = "hold again" if self.undoes is not None else "were taken back"
        notices: dict[LogId, list[Draft]] = {}
        for log, memories in inboxes_of(Book(store), changed).items():
            lines = [f"[memory] Statements from memory that {verb}: {reason}"]
            lines += _limited([self._named(memory) for memory in memories])
            body = MessageSaid("user", (Text("\n".join(lines)),), name="memory")
            notices[log] = [Draft(body, Act(_SERVICE, causes=(0,)))]
        return notices


class GroundCheck:
    """Checks the ground of a plan before its commit, and again after each event that bears on it.

    Others may write memories all the time: those that have nothing to do with the plan are told
    apart by themselves, so that the plan is not made again for each.
    """

    def __init__(self, plan: RollbackPlan) -> None:
        self._plan, self._store = plan, store_at(plan.store)
        self._number = 0
        self._ids: frozenset[str] = frozenset()
        self._names: frozenset[tuple[object, str]] = frozenset()

    def __call__(self, _: object) -> None:
        number = self._store.number
        if self._number and not self._bears(self._number):
            self._number = number
            return
        rows = self._plan.check_ground().rows()
        self._ids = frozenset([str(row["id"]) for row in rows])
        self._names = frozenset([name for row in rows for name in _names_of(row)])
        self._number = number

    def _bears(self, number: int) -> bool:
        """True if an event after a commit may change the plan, settled or not."""
        about: set[str] = set()
        for _, event in self._store.feed(number, kinds=BEARING, reverse=True):
            about.update((event.id, *event.header.causes))
            for ground in getattr(event.body, "grounds", ()):
                about.update(ground.memories)
        if about & self._ids:
            return True
        rows = self._store.rows("memory", ITEM, {"id": frozenset(about)}, limit=_ALL)
        return any([self._is_root(row) or self._names & {*_names_of(row)} for row in rows])

    def _is_root(self, row: Row) -> bool:
        """True if a memory is one of those that a plan is about, by its writer or its source."""
        sort, name = self._plan.request
        if sort == "source":
            return row["source"] is not None
        return name == {"session": row["log"], "author": row["actor"]}.get(sort)


def _names_of(row: Row) -> list[tuple[object, str]]:
    return [(row["owner"], name) for name in holder_names(row)]


def _limited(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN_MAX
    return [*lines[:_SHOWN_MAX], f"  … and {more:,} more"] if more > 0 else lines


# ── planning ─────────────────────────────────────────────────────────────────────────────────


def plan_rollback(
    store: Store,
    *,
    memory: Named | None = None,
    session: SessionValue | None = None,
    source: str | None = None,
    author: str | None = None,
    undo: Event | str | None = None,
) -> RollbackPlan:
    """Plan to take back one memory, all memories of a session, of a source or of an author, or to
    undo an earlier rollback. The work is in proportion to what rests on them.
    """
    named = {
        name: value
        for name, value in (
            ("memory", memory),
            ("session", session),
            ("source", source),
            ("author", author),
            ("undo", undo),
        )
        if value is not None
    }
    if len(named) != 1:
        given = ", ".join(named) or "nothing"
        step = "name one of memory, session, source, author, undo"
        raise InvalidValue("rollback", f"{given} is named", step)
    if memory is not None:
        request = "memory", str(find_row(store, memory, Overseer(store))["id"])
    elif session is not None:
        request = "session", session.id
    elif source is not None:
        request = "source", str(source)
    elif author is not None:
        request = "author", author
    else:
        request = "undo", find_rollback(store, undo or "").id
    return _plan(store, request)[1]


def _plan(
    store: Store, request: tuple[str, str], *, with_readers: bool = True
) -> tuple[Book, RollbackPlan]:
    sort, name = request
    if sort == "undo":
        book, plan = _plan_inverse(store, store.event(Digest(name)))
    else:
        book, plan = _plan_fall(store, *_ROOTS[sort](store, name))
    sealed = _encode(
        [
            plan.about,
            plan.retracted,
            plan.restored,
            plan.superseded,
            plan.weakened,
            plan.conflicts,
            plan.ground,
            plan.undoes,
        ]
    )
    changed = [*plan.retracted, *[memory for memory, other in plan.restored if other is None]]
    readers = readers_of(book, changed) if with_readers else ()
    return book, msgspec.structs.replace(
        plan, readers=readers, digest=digest(_PLAN_TAG, sealed), request=request
    )


def _plan_fall(store: Store, about: str, rows: list[Row]) -> tuple[Book, RollbackPlan]:
    book = Book(store)
    roots = book.add(rows)
    fall = fall_of(book, roots)
    back = return_of(book, fall)
    return book, RollbackPlan(
        about,
        store.address,
        fall.retracted,
        back.pairs,
        weakened=fall.weakened,
        conflicts=(*back.conflicts, *approvals_of(book, fall, set(roots))),
        ground=book.ground(),
        texts=book.texts(),
    )


def _plan_inverse(store: Store, event: Event) -> tuple[Book, RollbackPlan]:
    body = event.body
    assert isinstance(body, MemoryRolledBack)
    inverse = _Inverse(store, event)
    away, now = inverse.away, inverse.now
    rests_away = [
        each for each in body.weakened if any({*bases} & away.keys() for bases in now.bases(each))
    ]
    return now, RollbackPlan(
        f"the rollback {event.id[:SHORT]} of {body.about}",
        store.address,
        (),
        tuple([(memory, None) for memory in inverse.retracted if memory not in away]),
        tuple([pair for pair in inverse.pairs if pair[1] not in away]),
        tuple([each for each in body.weakened if each not in rests_away]),
        tuple([Conflict(memory, why) for memory, why in away.items()]),
        ground=now.ground(),
        undoes=event.id,
        texts=now.texts(),
    )


class _Inverse:
    """The acts of a rollback that is to be undone, and those that cannot be, with the reason."""

    def __init__(self, store: Store, event: Event) -> None:
        self.now, self._then = Book(store), Book(store, (store.number_of(event.id) or 0) - 1)
        self._house = event.log
        events = _events_of(store, event)
        acts = [(each.kind, each.header.causes, each.seq) for each in events]
        self.retracted = {causes[0]: seq for kind, causes, seq in acts if kind == _RETRACTED}
        self.pairs = [(causes[0], causes[1]) for kind, causes, _ in acts if kind != _RETRACTED]
        self.away: dict[Digest, str] = {}  # these do not come back
        # each that stays away may be the last evidence of another
        while any([self._stays_away(each) for each in self.retracted if each not in self.away]):
            pass

    def _stays_away(self, memory: Digest) -> bool:
        why = self._reason_to_stay(memory)
        if why:
            self.away[memory] = why
        return bool(why)

    def _reason_to_stay(self, memory: Digest) -> str:
        by = self.now.standing(memory).by
        if by is None or (by.log, by.seq) != (self._house, self.retracted[memory]):
            return "it was decided about since, and stays as it is"
        back = self.retracted.keys() - self.away.keys()
        had_evidence = is_held(self._then, memory, ())
        if had_evidence and not is_held(self.now, memory, self.away, back):
            return "its evidence was taken back since, so it stays away"
        again = {older for older, _ in self.pairs}
        rival = rival_of(self.now, memory, back | again)
        was_active = self._then.standing(memory).state == "active"
        if rival is not None and was_active and self._then.standing(rival.memory).state != "active":
            return f"{rival.why}, so it stays away"
        return ""


_RETRACTED = MemoryRetracted.__name__


# ── roots ────────────────────────────────────────────────────────────────────────────────────


def _roots_of_memory(store: Store, name: str) -> tuple[str, list[Row]]:
    return f"memory {name[:SHORT]}", store.rows("memory", ITEM, {"id": name}, limit=1)


def _roots_of_session(store: Store, name: str) -> tuple[str, list[Row]]:
    rows = store.rows("memory", ITEM, {"log": name}, order="number", limit=_ALL)
    return f"the memories of session {short(LogId(name))}", _some(rows, name)


def _roots_of_author(store: Store, name: str) -> tuple[str, list[Row]]:
    rows = store.rows("memory", ITEM, {"actor": name}, order="number", limit=_ALL)
    return f"the memories of {name}", _some(rows, name)


def _roots_of_source(store: Store, name: str) -> tuple[str, list[Row]]:
    """Return the memories of a source: by its whole name, else all documents of that file name."""
    rows = store.rows("memory", ITEM, {"source": name}, order="number", limit=_ALL)
    if not rows:
        found = [each for each in _sources(store) if PurePath(each).name == name]
        for each in found:
            rows += store.rows("memory", ITEM, {"source": each}, order="number", limit=_ALL)
    return f"the memories of {name}", _some(rows, name)


def _sources(store: Store) -> Iterator[str]:
    """Yield the name of each source once."""
    before = ""
    while page := store.rows("memory", ITEM, order="source", before=before, limit=1):
        before = str(page[0]["source"])
        yield before


def _some(rows: list[Row], name: str) -> list[Row]:
    if not rows:
        raise UnknownMemory(name)
    return rows


_ROOTS: dict[str, Callable[[Store, str], tuple[str, list[Row]]]] = {
    "memory": _roots_of_memory,
    "session": _roots_of_session,
    "source": _roots_of_source,
    "author": _roots_of_author,
}


# ── rollbacks on record ──────────────────────────────────────────────────────────────────────


def rollbacks(store: Store) -> list[Event]:
    """Return the rollbacks on record, the latest first."""
    return list(acts_of_houses(store, kinds={MemoryRolledBack.__name__}))


def find_rollback(store: Store, named: Event | str) -> Event:
    """Return a rollback that can be undone, by its event, its id or the first digits of that."""
    name = named.id if isinstance(named, Event) else str(named).strip().lower()
    if is_digest(name):
        found = [each for each in _events_with_id(store, name) if _is_rollback(each)]
    else:
        is_long = len(name) >= ID_MIN
        found = [each for each in rollbacks(store) if is_long and each.id.startswith(name)]
    if not found:
        raise InvalidValue("undo", f"no rollback is called {name[:16]}", "see plait log --house")
    if len(found) > 1:
        raise InvalidValue("undo", f"{name} may be any of {len(found)}", "type more digits")
    body = found[0].body
    assert isinstance(body, MemoryRolledBack)
    if body.undoes is not None:
        step = "roll the memory back once more instead"
        raise InvalidValue("undo", f"{name[:SHORT]} undoes a rollback itself", step)
    if any(_is_rollback(each) for each in effects_of(store, found[0].id)):
        raise InvalidValue("undo", f"{name[:SHORT]} is undone already", "leave it")
    return found[0]


def _is_rollback(event: Event) -> bool:
    return event.kind == MemoryRolledBack.__name__


def _events_with_id(store: Store, id: str) -> list[Event]:
    return [store.event(Digest(id))] if store.number_of(Digest(id)) is not None else []


def _events_of(store: Store, rollback: Event) -> list[Event]:
    """Return the retractions and restorations of a rollback, in their order."""
    kinds = (_RETRACTED, MemoryRestored.__name__)
    found = [each for each in effects_of(store, rollback.id) if each.kind in kinds]
    return sorted(found, key=lambda event: event.seq)
