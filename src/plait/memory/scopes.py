"""Scopes: the one place that decides which memories a reader may see.

A memory of session scope rides on the path: a reader sees it if the event that proposed it is on
the reader's path, which a fork takes along, a rewind leaves and a merge brings. A memory of a wider
scope belongs to an agent, a workflow, a project or a user, and follows the commit order of the
store. Search, lists and access by id all ask `Viewer`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import get_args
from weakref import WeakKeyDictionary

from plait.errors import InvalidValue, NoOwner
from plait.event.kinds import Place, Scope, SessionOpened
from plait.ids import Digest, LogId
from plait.memory.rows import ITEM, LATE, deciding_at, decode_decisions
from plait.memory.standing import (
    AGAIN,
    SUPERSEDED,
    VERDICT,
    MemoryDecision,
    MemoryStanding,
    replaced_standing,
    standing_of,
)
from plait.session.arguments import value_text
from plait.session.core import Core
from plait.session.fold import state_at
from plait.session.house import Houses
from plait.session.ports import Position, writer_of
from plait.session.state import Known, Span
from plait.session.value import SessionValue, core_of
from plait.store import Region, Row, Store
from plait.store.search import PLACE_MAX, PLACE_MIN

SCOPES: tuple[Scope, ...] = get_args(Scope)
_PREDECESSORS_MAX = 4096  # sessions of one store that are remembered
_NUMBERS_MAX = 65_536  # places of one store whose commit numbers are remembered
_ALL = 2**31
_SUCCESSIONS_MAX = 32  # sessions that a session succeeds, one after another


class Viewer:
    """A reader of memories: the owners and the path whose memories it may see, as of a commit."""

    def __init__(
        self,
        store: Store,
        owners: Collection[str],
        path: Sequence[Span] | None,
        number: int | None = None,
        head: Position | None = None,
    ) -> None:
        self.store = store
        self._head = head  # the end of the path, if it is known
        self.number = number  # None: as the store is now
        self._wide = frozenset(owners)
        self._path = None if path is None else Known(path)
        self._session_owners = sorted({f"session:{span.log}" for span in path or ()})
        self._houses = Houses(store)
        self._late: dict[str, list[Row]] = {}  # by key: those that may displace others
        self._seen: dict[str, bool] = {}  # the successors that it may see

    @property
    def owners(self) -> list[str] | None:
        """The values of the column `owner` among which its memories are. None: all."""
        return [*sorted(self._wide), *self._session_owners]

    @property
    def regions(self) -> list[Region] | None:
        """The rows of its memories, up to `number`: those that `may_see` allows, and no others. So
        the figures of a search tell nothing of memories that it may not see. None: all.
        """
        if self._head is not None:
            _NUMBERS.add_head(self.store, self._head)
        at_session = [
            Region(f"session:{log}", *_NUMBERS.between(self.store, log, first, last))
            for log, first, last in (self._path.ranges() if self._path is not None else ())
        ]
        return [*map(Region, sorted(self._wide)), *at_session]

    def may_see(self, row: Row) -> bool:
        """True if the reader may see a memory, in whatever state it is."""
        if self.number is not None and int(str(row["number"])) > self.number:
            return False
        if row["scope"] == "session":
            return self._path is not None and self._path.has(_log(row), int(str(row["seq"])))
        return row["owner"] in self._wide

    def is_plainly_active(self, row: Row) -> bool:
        """True if a memory is active for every reader who may see it, at any time: as most are, and
        a recall looks at a hundred.
        """
        return row["plain"] == 1 and self.number is None and row["scope"] != "session"

    def standing(self, row: Row) -> MemoryStanding:
        """Return the standing of a memory for this reader.

        A memory of session scope that a person or a check makes active later replaces the active
        one of its key, for readers who see both. The fold does this for wider scopes.
        """
        own = self.own_standing(row)
        if own.state != "active" or row["scope"] != "session" or not row["key"]:
            return own
        later = self._later_activation(row, own)
        return own if later is None else replaced_standing(*later)

    def own_standing(self, row: Row) -> MemoryStanding:
        """Return the standing of a memory by the decisions about it alone."""
        is_wide = row["scope"] != "session"
        decisions = deciding_at(decode_decisions(str(row["decisions"])), is_wide=is_wide)
        return standing_of([each for each in decisions if self._counts(each, is_wide)])

    def _later_activation(
        self, row: Row, own: MemoryStanding
    ) -> tuple[Digest, MemoryDecision] | None:
        """Return the last memory of the same key that became active later, and the decision."""
        found: list[tuple[tuple[int, int], Digest, MemoryDecision]] = []
        for other in self._late_rows(str(row["key"])):
            by = self.own_standing(other).by if self._may_displace(other, row) else None
            if by is not None and (by.kind == VERDICT or by.log in self._houses):
                when = by.number, int(str(other["number"]))
                found.append((when, Digest(str(other["id"])), by))
        mine = own.by.number if own.by is not None else 0, int(str(row["number"]))
        when, memory, by = max(found, default=((0, 0), Digest(""), None))
        return (memory, by) if by is not None and when > mine else None

    def _may_displace(self, other: Row, row: Row) -> bool:
        is_other = other["id"] != row["id"] and self.may_see(other)
        return is_other and self.own_standing(other).state == "active"

    def _late_rows(self, key: str) -> list[Row]:
        if key not in self._late:
            late = self.store.rows("memory", LATE, {"key": key}, limit=_ALL)
            ids = frozenset([str(each["memory"]) for each in late])
            self._late[key] = (
                self.store.rows("memory", ITEM, {"id": ids}, limit=_ALL) if ids else []
            )
        return self._late[key]

    def _counts(self, decision: MemoryDecision, is_wide: bool) -> bool:
        if self.number is not None and decision.number > self.number:
            return False
        if is_wide:
            return True
        if self._path is not None and self._path.has(decision.log, decision.seq):
            return True
        if decision.log not in self._houses:
            return False
        # a person approved its successor, which only those replace who have it on their path
        is_replaced = decision.kind == SUPERSEDED and decision.rule != AGAIN
        return not is_replaced or self._sees(decision.other)

    def _sees(self, memory: str) -> bool:
        if memory not in self._seen:
            rows = self.store.rows("memory", ITEM, {"id": memory}, limit=1)
            self._seen[memory] = any(
                [row["scope"] != "session" or self.may_see(row) for row in rows]
            )
        return self._seen[memory]


class Overseer(Viewer):
    """The reader at the command line: a person who has the store, and so sees all of it."""

    def __init__(self, store: Store, number: int | None = None) -> None:
        super().__init__(store, (), None, number)

    @property
    def owners(self) -> list[str] | None:
        return None

    @property
    def regions(self) -> list[Region] | None:
        return None

    def may_see(self, row: Row) -> bool:
        return self.number is None or int(str(row["number"])) <= self.number

    def _counts(self, decision: MemoryDecision, is_wide: bool) -> bool:
        return self.number is None or decision.number <= self.number

    def _may_displace(self, other: Row, row: Row) -> bool:
        # the memories of one session: those of another one are no rivals
        return other["owner"] == row["owner"] and super()._may_displace(other, row)


def viewer_of(
    session: SessionValue,
    names: dict[Scope, str],
    scopes: Collection[Scope] | None = None,
    *,
    at: SessionValue | None = None,
    number: int | None = None,
) -> Viewer:
    """Return the reader that a session is, for some scopes or for all.

    `at`: with the path of another value of the session; `number`: as of a commit.
    """
    core = core_of(session)
    wanted = SCOPES if scopes is None else scopes
    wide = [f"{scope}:{names[scope]}" for scope in wanted if scope != "session" and scope in names]
    if "session" not in wanted:
        return Viewer(core.store, wide, (), number)
    shown = core_of(at) if at is not None else core
    return Viewer(core.store, wide, path_of(shown), number, shown.position)


def path_of(core: Core) -> tuple[Span, ...]:
    """Return the path of a session, and those of the sessions that it succeeds."""
    path, store = core.state.story.path, core.store
    found = [*path]
    before = _predecessor(store, path[0].log if path else core.position.id)
    for _ in range(_SUCCESSIONS_MAX):
        if before is None:
            break
        earlier = state_at(store, before.log, before.seq).story.path
        found += earlier
        before = _predecessor(store, earlier[0].log if earlier else before.log)
    return tuple(found)


class _Predecessors:
    """The place that each session continues. It never changes, so it is kept for each store."""

    def __init__(self) -> None:
        self._by_store: WeakKeyDictionary[Store, dict[LogId, Place | None]] = WeakKeyDictionary()

    def of(self, store: Store, root: LogId) -> Place | None:
        known = self._by_store.setdefault(store, {})
        if root not in known:
            if len(known) >= _PREDECESSORS_MAX:
                known.clear()
            opened = next(store.read(root, 1, 1), None)
            body = opened.body if opened is not None else None
            known[root] = None
            if isinstance(body, SessionOpened) and not body.detached:
                known[root] = body.continues
        return known[root]


_PREDECESSORS = _Predecessors()


class _Numbers:
    """The commit numbers of events by their places. They never change, so they are kept for each
    store.
    """

    def __init__(self) -> None:
        self._by_store: WeakKeyDictionary[Store, dict[tuple[LogId, int], int]] = WeakKeyDictionary()

    def add_head(self, store: Store, head: Position) -> None:
        """Look up the number of a session's last event by its id, which is quicker."""
        known, place = self._known(store), (head.id, head.seq)
        if place not in known and (number := store.number_of(head.head)) is not None:
            known[place] = number

    def between(self, store: Store, log: LogId, first: int, last: int) -> tuple[int, int]:
        """Return the numbers of two events of a log. Nothing is before the first place of all, and
        nothing is after an event that is not written yet.
        """
        start = PLACE_MIN if first == 1 else self._number(store, log, first, PLACE_MIN)
        return start, self._number(store, log, last, PLACE_MAX)

    def _number(self, store: Store, log: LogId, seq: int, otherwise: int) -> int:
        known = self._known(store)
        if (log, seq) not in known:
            event = next(store.read(log, seq, seq), None)
            number = None if event is None else store.number_of(event.id)
            if number is None:
                return otherwise
            known[log, seq] = number
        return known[log, seq]

    def _known(self, store: Store) -> dict[tuple[LogId, int], int]:
        known = self._by_store.setdefault(store, {})
        if len(known) >= _NUMBERS_MAX:
            known.clear()
        return known


_NUMBERS = _Numbers()


def _predecessor(store: Store, root: LogId) -> Place | None:
    """Return the place that a session continues, by the root of its lineage. None: none."""
    return _PREDECESSORS.of(store, root)


# ── owners ───────────────────────────────────────────────────────────────────────────────────


def owners_of(session: SessionValue, agent: str = "", workflow: str = "") -> dict[Scope, str]:
    """Return the owners that a session has, by scope.

    `agent` and `workflow` are the names that the program gives; in a run they are those of the
    calls that have the session in hand.
    """
    core = core_of(session)
    # user and project stand in the first event of a lineage: any state of it tells them
    state = core.near or core.state
    path = _call_path(session)
    found: dict[Scope, str] = {"session": session.id}
    if workflow or path:
        found["workflow"] = workflow or path.partition("/")[0]
    if agent or path:
        found["agent"] = agent or path.rpartition("/")[2]
    if state.project:
        found["project"] = state.project
    if state.user:
        found["user"] = state.user
    return found


def _call_path(session: SessionValue) -> str:
    """Return the path of the call that has a session in hand; "": there is none."""
    names = writer_of(session.run).judges(session.id, session.store)
    return names[1] if len(names) > 1 else ""


_STEPS = {
    "project": "open it with Session(…, project=…)",
    "user": "open it with Session(…, user=…)",
    "agent": "use it in an agent's run, or name one: Memory(agent=…)",
    "workflow": "use it in a run, or name one: Memory(workflow=…)",
}


def owner_in(session: SessionValue, scope: Scope, names: dict[Scope, str]) -> str:
    """Return the owner of a scope; raises NoOwner if the session has none."""
    if scope not in SCOPES:
        raise InvalidValue("scope", f"{scope!r} is not one", f"use one of {', '.join(SCOPES)}")
    if scope not in names:
        raise NoOwner(session.short, scope, _STEPS[scope])
    return names[scope]


def check_scopes(scopes: Collection[Scope] | None) -> tuple[Scope, ...] | None:
    """Return scopes in their order. None: all that the session has."""
    if scopes is None:
        return None
    if isinstance(scopes, str) or not isinstance(scopes, Collection):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("scopes", f"{value_text(scopes)} is no list", "pass a list of scopes")
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidValue("scopes", f"{scope!r} is not one", f"use of {', '.join(SCOPES)}")
    if not scopes:
        raise InvalidValue("scopes", "none is named", f"use of {', '.join(SCOPES)}, or None")
    return tuple([scope for scope in SCOPES if scope in scopes])


def _log(row: Row) -> LogId:
    return LogId(str(row["log"]))
