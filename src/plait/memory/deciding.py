"""Decisions of people about memories: approved, rejected, forgotten, widened.

They belong to no session, so they stand in the house log. A decision is checked against the record
as it is at the moment of the append: another person may have decided meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from plait.errors import InvalidValue, MayNotDecide
from plait.event import Body
from plait.event.kinds import (
    MemoryCommitted,
    MemoryRejected,
    MemoryRetracted,
    MemorySuperseded,
)
from plait.ids import Digest, is_digest
from plait.inside import is_inside
from plait.memory.arguments import check_actor
from plait.memory.items import SHORT, MemoryItem, Named, find_row, item_of, name_of
from plait.memory.remember import is_home, replaced_by
from plait.memory.rows import DECISION_KINDS, ITEM, REWIND
from plait.memory.scopes import Overseer, Viewer
from plait.session.acting import act_of, acting_in
from plait.session.appending import append_drafts, refuse_if_busy
from plait.session.house import append_to_house
from plait.session.moves import check_may
from plait.session.ports import Act, Draft, writer_of
from plait.session.value import S, SessionValue, core_of, position_of
from plait.store import Row, Store, shared_names

_ALL = 2**31
_FORGOTTEN = frozenset({MemoryRetracted.__name__})
_WAITING = ("quarantined", "proposed")


def approve(
    store: Store, named: Named, *, reason: str = "", actor: str | None = None
) -> MemoryItem:
    """Have a person commit a memory that waits; return it as it is then.

    The one who wrote it may not: that would be no second opinion. A memory that was committed by an
    event rewound since is active; approving it says that it stays.
    """
    act = person_acting(store, actor, "approve a memory", name_of(named))

    def drafts(row: Row) -> list[Draft]:
        memory = Digest(str(row["id"]))
        committed = _draft(MemoryCommitted("", reason), act, memory)
        if _is_rewound(store, row):
            return [committed]
        if row["actor"] == act.actor:
            raise MayNotDecide(_short(row), act.actor, "it wrote that memory itself")
        replaced = replaced_by(Viewer(store, (str(row["owner"]),), ()), row)
        return [
            committed,
            *[_draft(MemorySuperseded("key"), act, each, memory) for each in replaced],
        ]

    return _decide(store, named, (*_WAITING, "rejected"), "approved", drafts, _is_rewound)


def reject(store: Store, named: Named, *, reason: str = "", actor: str | None = None) -> MemoryItem:
    """Have a person reject a memory that waits, for good."""
    act = person_acting(store, actor, "reject a memory", name_of(named))
    return _decide(
        store,
        named,
        _WAITING,
        "rejected",
        lambda row: [_draft(MemoryRejected("", reason), act, Digest(str(row["id"])))],
    )


def forget(store: Store, named: Named, *, reason: str = "", actor: str | None = None) -> MemoryItem:
    """Have a person take one memory back, and nothing that rests on it: see `rollback`."""
    act = person_acting(store, actor, "forget a memory", name_of(named))
    return _decide(
        store,
        named,
        ("active", "quarantined", "proposed", "superseded"),
        "forgotten",
        lambda row: [_draft(MemoryRetracted("", reason), act, Digest(str(row["id"])))],
    )


def forget_in(session: S, row: Row, viewer: Viewer, reason: str, actor: str | None = None) -> S:
    """Take a memory back as an act of a session: of its own scope, or at home of a wider one."""
    check_may(core_of(session), "forget")
    refuse_if_busy(session, "forget", "forget it in the workflow, or in a fork")
    if row["scope"] != "session" and not is_home(session):
        why = f"a branch or a run forgets nothing of the {row['scope']}; a person can"
        raise MayNotDecide(_short(row), acting_in(session, actor).actor, why)
    memory = Digest(str(row["id"]))
    is_dead = viewer.standing(row).state in ("retracted", "rejected")
    if is_dead and not is_recorded_next(session, _FORGOTTEN, memory):
        raise InvalidValue("memory", f"{_short(row)} is forgotten already", "leave it")
    act = acting_in(session, actor)
    body = MemoryRetracted("writer", reason)
    return append_drafts(session, [_draft(body, act, memory)])


def is_recorded_next(session: SessionValue, kinds: Collection[str], memory: Digest) -> bool:
    """True if the run did this to a memory right here before: others may have changed it since."""
    step = writer_of(session.run).recorded(position_of(session))
    return step is not None and step.kind in kinds and memory in step.header.causes


def pending(store: Store, viewer: Viewer | None = None) -> list[tuple[MemoryItem, str]]:
    """Return the memories that wait for a person, each with the reason: those in quarantine, those
    that no finished run proposed, and those that were committed by events rewound since.
    """
    reader = viewer if viewer is not None else Overseer(store)
    rewinds = _rewinds_of(store)
    # for one who sees all, a memory with a plain commit waits only if that was rewound
    is_short = isinstance(reader, Overseer) and not rewinds
    where = {"plain": 0} if is_short else None
    found: list[tuple[MemoryItem, str]] = []
    for row in store.rows("memory", ITEM, where, order="number", limit=_ALL):
        if reader.may_see(row):
            item = item_of(store, row, reader)
            if why := _reason_pending(item, rewinds):
                found.append((item, why))
    return found


_Rewinds = Mapping[str, Sequence[tuple[int, int]]]  # by log: the seq of each, and its target


def _rewinds_of(store: Store) -> _Rewinds:
    found: dict[str, list[tuple[int, int]]] = {}
    for row in store.rows("memory", REWIND, limit=_ALL):
        place = int(str(row["seq"])), int(str(row["target"]))
        found.setdefault(str(row["log"]), []).append(place)
    return found


def _reason_pending(item: MemoryItem, rewinds: _Rewinds) -> str:
    """Return why a memory waits for a person; "": it does not."""
    by = item.standing.by
    if item.state == "quarantined":
        return f"quarantined by rule {by.rule if by else '?'}"
    if item.state == "proposed":
        return "proposed by a branch or a run that has not finished"
    if item.state == "active" and item.scope != "session" and by is not None:
        # the commit may stand in another log than the memory: of a merge, a support or a verdict
        for at, target in rewinds.get(by.log, ()):
            if target < by.seq < at:
                return f"committed by an event that was rewound at {at}"
    return ""


# ── one decision ─────────────────────────────────────────────────────────────────────────────


def _decide(
    store: Store,
    named: Named,
    states: tuple[str, ...],
    verb: str,
    drafts: Callable[[Row], list[Draft]],
    waits: Callable[[Store, Row], bool] = lambda store, row: (
        False
    ),  # in another state, all the same
) -> MemoryItem:
    viewer = Overseer(store)
    memory = str(find_row(store, named, viewer)["id"])

    def check(_: object = None) -> Row:
        row = find_row(store, memory, viewer)
        state = viewer.standing(row).state
        if state not in states and not waits(store, row):
            raise InvalidValue(
                "memory", f"{memory[:8]} is {state}, and cannot be {verb}", "see plait memory show"
            )
        return row

    append_to_house(store.address, drafts(check()), check=check, kinds=DECISION_KINDS)
    return item_of(store, find_row(store, memory, viewer), viewer)


def _is_rewound(store: Store, row: Row) -> bool:
    """True if a memory is active by an event that was rewound since."""
    item = item_of(store, row, Overseer(store))
    return item.state == "active" and bool(_reason_pending(item, _rewinds_of(store)))


def person_acting(store: Store, actor: str | None, verb: str, name: str) -> Act:
    """Return the act of a person; raises MayNotDecide for code of a run, and for other actors."""
    check_actor(actor)
    writer = writer_of(None)
    name = name[:SHORT] if is_digest(name) else name
    who = actor or writer.principal()
    if why := is_inside(store.address, shared_names):
        raise MayNotDecide(name, who, why)
    if not who.startswith("human:"):
        raise MayNotDecide(name, who, f"only a person may {verb}")
    return act_of(who)


def _draft(body: Body, act: Act, *memories: Digest) -> Draft:
    return Draft(body, Act(act.actor, act.origin, call=act.call, causes=memories))


def _short(row: Row) -> str:
    return str(row["id"])[:8]
