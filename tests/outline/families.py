"""Families of sessions at random: messages, facts, calls, forks, merges and rewinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from hypothesis import strategies as st

from plait import Budget, Session, Store, open_store
from plait.errors import NotSettled
from plait.event import kinds as k
from plait.ids import LogId
from tests.support import record

_names = count()

FamilyAct = tuple[str, int, int]  # what is done, to which session, and a number that chooses more
ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "say",
                "fact",
                "retract",
                "todo",
                "settle",
                "verdict",
                "call",
                "reply",
                "budget",
                "fork",
                "fork earlier",
                "merge",
                "merge",
                "rewind",
            ]
        ),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=30,
)


def fresh_memory_store() -> Store:
    """A store in memory of its own."""
    return open_store(f"memory:outline-{next(_names)}")


def family_of(acts: Sequence[FamilyAct], store: Store) -> list[Session]:
    """The sessions that these acts make, the root first, each at its tip."""
    sessions = [Session("Go.", title="a family", store=store)]
    for act, at, number in acts:
        grow(sessions, act, at, number)
    return sessions


def grow(sessions: list[Session], act: str, at: int, number: int) -> None:
    """Do one act to one of the sessions."""
    at %= len(sessions)
    session = sessions[at]
    if act.startswith("fork"):
        place = max(1, session.seq - number) if "earlier" in act else session.seq
        sessions.append(session.fork(f"branch-{len(sessions)}", at=place))
    elif act == "merge":
        other = sessions[number % len(sessions)]
        if other.id != session.id:
            with suppress(NotSettled):  # a call of the other is open
                sessions[at] = session.merge(other, resolve=_first_side)
    elif act == "rewind":
        sessions[at] = session.rewind(max(1, session.seq - 1 - number))
    else:
        sessions[at] = _write(session, act, number)


def _first_side(key: str, sides: Mapping[str, Any]) -> Any:
    return next(iter(sides.values()))


def _write(session: Session, act: str, number: int) -> Session:
    match act:
        case "say":
            return session.say(f"words {number}")
        case "fact":
            return session.fact(f"key {number % 4}", number)
        case "retract":
            key = f"key {number % 4}"
            return session.retract(key) if key in session.facts else session
        case "todo":
            return session.todo(f"do {number}", key=f"work {number % 4}")
        case "settle":
            key = f"work {number % 4}"
            return session.settle(key, "done") if key in session.pending else session
        case "verdict":
            return session.checks.record(f"check {number % 3}", passed=bool(number % 2))
        case "budget":
            return session.budget.grant(Budget(tokens_max=1000 + number))
        case "call":
            return _call(session, number)
        case _:
            usage, price = k.Usage(10 + number, number), k.Price(1000 * number, "prices")
            body = k.ModelReplied((k.Text(f"reply {number}"),), usage, "end", price=price)
            return record(session, k.ModelAsked("m", session.head), body, call=f"m{session.seq}")


def _call(session: Session, number: int) -> Session:
    """A call, with its outcome, without one, or with one that is another call's."""
    call = f"c{session.seq}"
    bodies: list[Any] = [k.ToolRequested("look", {"path": f"file {number}"}, "pure")]
    if number % 3 == 0:
        bodies.append(k.ToolReturned((k.Text(f"found {number}"),), exit_code=number % 2))
    elif number % 3 == 1:
        bodies.append(k.ToolFailed(k.Failure("Wrong", f"failed {number}")))
    return record(session, *bodies, call=call)


def logs_of(sessions: Sequence[Session]) -> list[LogId]:
    return [session.id for session in sessions]
