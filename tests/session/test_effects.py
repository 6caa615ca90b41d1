"""Tool calls: chosen from a session, and found across a store by index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from plait import Session, Workflow, open_store, tool
from plait.errors import InvalidValue, PlaitError
from plait.event.kinds import (
    Body,
    Failure,
    Text,
    ToolFailed,
    ToolRequested,
    ToolResolved,
    ToolReturned,
    ToolUnknown,
    Trees,
)
from plait.ids import Digest, LogId, Micros
from plait.journal.writer import direct_writer
from plait.runtime.live import Live
from plait.session import EffectRows
from plait.session.audit import verify
from plait.session.effect_rows import OUTCOMES, CallFilter, calling_actor, find_calls
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import counted_logs, position_of
from plait.store import Store
from tests.support import tree

HOUR = 3600 * 10**6


class Clock(Live):
    """A clock that tests set."""

    time = 10**15

    def now(self, log: LogId, seq: int) -> Micros:
        return self.time


@pytest.fixture
def clock(place: Store) -> Clock:
    clock = Clock()
    direct_writer().bind_source(place.address, clock)
    return clock


@pytest.fixture(params=["memory", "sqlite"], autouse=True)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    name = f"memory:{tmp_path.name}" if request.param == "memory" else str(tmp_path / ".plait")
    store = open_store(name)
    yield store
    before = [store.rows(EffectRows.name, table.name, limit=1000) for table in EffectRows.tables]
    store.rebuild(EffectRows.name)
    assert before == [
        store.rows(EffectRows.name, table.name, limit=1000) for table in EffectRows.tables
    ]
    assert list(verify(store, state=True)) == []
    store.close()


def write(session: Session, body: Body, call: str, actor: str = "agent:coder") -> Session:
    draft = Draft(body, Act(actor, "model", call=call))
    return session_at(writer_of(None).append(position_of(session), [draft]))


def called(
    session: Session, tool: str, *changed: str, call: str, exit_code: int | None = None
) -> Session:
    """The session after a call of a tool that changed these paths."""
    session = write(session, ToolRequested(tool, {}, "workspace"), call)
    store = open_store(session.store)
    trees = Trees(tree(store), tree(store, **{f"call{call}": call}), changed)
    return write(session, ToolReturned((Text("ok"),), exit_code, trees), call)


def found(store: Store, **wanted: Any) -> list[tuple[str, int, str]]:
    return [(call.tool, call.seq, call.outcome) for call in find_calls(store, CallFilter(**wanted))]


def test_calls_by_tool_path_and_outcome(place: Store) -> None:
    session = Session(store=place)
    session = called(session, "edit", "src/cart.py", "src/lib/a.py", call="1")
    session = called(session, "shell", "srcs/x", call="2", exit_code=1)
    session = called(session, "shell", call="3", exit_code=0)
    edit, failed, shell = ("edit", 2, "returned"), ("shell", 4, "failed"), ("shell", 6, "returned")
    for wanted, calls in (
        ({}, [shell, failed, edit]),
        ({"tool": "shell"}, [shell, failed]),
        ({"outcome": "failed"}, [failed]),
        ({"outcome": "returned"}, [shell, edit]),
        ({"tool": "shell", "outcome": "returned"}, [shell]),
        ({"path": "src"}, [edit]),
        ({"path": "src/lib"}, [edit]),
        ({"path": "src/cart.py"}, [edit]),
        ({"path": "src/cart"}, []),
        ({"path": "srcs", "outcome": "failed"}, [failed]),
        ({"path": "srcs", "tool": "edit"}, []),
        ({"tool": "nothing"}, []),
    ):
        assert found(place, **wanted) == calls, wanted
        own = session.effects.where(**cast("Any", wanted))
        assert [(each.tool, each.request.seq, each.state) for each in own] == calls[::-1]
    assert session.effects.where(path="./src/", tool="edit")[0].paths == (
        "src/cart.py",
        "src/lib/a.py",
    )
    assert [call.paths for call in find_calls(place, CallFilter(path="srcs"))] == [("srcs/x",)]
    for actor, count in (("agent:coder", 3), ("agent:other", 0)):
        assert len(found(place, actor=actor)) == count


def test_actors_by_the_last_parts_of_their_paths(place: Store) -> None:
    session = Session(store=place)
    with pytest.raises(InvalidValue, match="there are no tool calls"):
        calling_actor(place, "coder")
    actors = ["agent:lead/coder", "agent:boss/tester", "agent:lead/tester", "human:tester"]
    for number, actor in enumerate(actors):
        session = write(session, ToolRequested("shell", {}, "workspace"), str(number), actor)
    for name in ("coder", "lead/coder", "agent:coder", "agent:lead/coder"):
        assert calling_actor(place, name) == "agent:lead/coder"
    assert calling_actor(place, "tester") == "human:tester"  # exactly that
    assert calling_actor(place, "lead/tester") == "agent:lead/tester"
    with pytest.raises(InvalidValue, match="may be agent:boss/tester, agent:lead/tester.*name one"):
        calling_actor(place, "agent:tester")
    for name in ("der", "human:coder", "lead", "agent:", ""):
        with pytest.raises(InvalidValue, match="name one of agent:boss/tester, agent:lead/coder"):
            calling_actor(place, name)
    assert len(found(place, actor="agent:lead/coder")) == 1


def test_calls_of_a_session_and_of_its_branches(place: Store) -> None:
    root = called(Session(store=place), "edit", "a", call="1")
    branch = called(root.fork("b"), "edit", "b", call="2")
    later = called(root, "edit", "c", call="3")
    seqs = [(call.log, call.seq) for call in find_calls(place, CallFilter(tool="edit"))]
    assert seqs == [(root.id, 4), (branch.id, 5), (root.id, 2)]
    for session, count in ((root, 1), (branch, 2), (later, 2), (later.merge(branch), 3)):
        logs = counted_logs(session)
        assert len(found(place, logs=logs)) == len(session.effects) == count


def test_the_outcome_of_a_call_follows_its_events(place: Store) -> None:
    session = Session(store=place)
    request = ToolRequested("pay", {}, "at_most_once")
    steps: list[tuple[Body, str]] = [
        (request, "open"),
        (ToolFailed(Failure("E", "e")), "failed"),
        (ToolRequested("pay", {}, "at_most_once", attempt=2), "open"),
        (ToolUnknown(Digest("0" * 64)), "unknown"),
        (ToolResolved(Digest("0" * 64), "did_not_happen"), "undone"),
        (ToolResolved(Digest("0" * 64), "happened"), "returned"),
    ]
    for body, outcome in steps:
        session = write(session, body, "1")
        assert found(place, tool="pay") == [("pay", 2, outcome)]
        assert found(place, outcome=outcome) == [("pay", 2, outcome)]
        assert [each.state for each in session.effects] == [outcome]
        for other in OUTCOMES:
            assert (other == outcome) == bool(session.effects.where(outcome=other))
    # an outcome without a request, as an answer in an inbox is, belongs to no call
    write(session, ToolFailed(Failure("E", "e")), "nowhere")
    assert len(found(place)) == 1


def test_calls_since(place: Store, clock: Clock) -> None:
    session = called(Session(store=place), "edit", "a", call="1")
    clock.time += 2 * HOUR
    session = called(session, "edit", "a", call="2")
    assert [each.call for each in session.effects.where(since="1h")] == ["2"]
    assert len(session.effects.where(since="3h", tool="edit", path="a")) == 2
    assert found(place, since=clock.time - HOUR) == [("edit", 4, "returned")]
    assert found(place, until=clock.time - HOUR) == [("edit", 2, "returned")]


@pytest.mark.parametrize(
    "wrong", [{"path": ""}, {"path": "/etc"}, {"path": "../x"}, {"outcome": "bad"}, {"since": "x"}]
)
def test_what_cannot_be_asked_for(place: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Session(store=place).effects.where(**wrong)


@tool(effect="pure")
def count(n: int) -> int:
    """Count, if it is not too much."""
    if n > 1:
        raise ValueError("too much")
    return n


class Counts(Workflow):
    def forward(self, session: Session) -> Session:
        for n in range(3):
            session = session.use(count, n=n)
        return session


def test_calls_of_a_run(place: Store) -> None:
    session = Session("go", store=place)
    with pytest.raises(PlaitError, match="too much"):
        Counts()(session)
    (failed,) = find_calls(place, CallFilter(tool="count", outcome="failed"))
    run = session.reload().runs[-1].id
    assert failed.run == run and failed.log == session.id and failed.actor == "service:counts"
    assert len(session.reload().effects.where(tool="count", outcome="returned")) == 2


def test_a_page_of_calls_is_read_by_index(tmp_path: Path) -> None:
    from tests.support import RawSql

    store = open_store(tmp_path / "own")
    raw = RawSql(tmp_path / "own" / "store.db")
    for table, where in (
        ("call", "tool = 'x'"),
        ("call", "odd = 'failed'"),
        ("path", "path = 'x'"),
    ):
        sql = f"SELECT * FROM p_effect__{table} WHERE {where} AND number < 9 ORDER BY number DESC"
        plan = str(raw(f"EXPLAIN QUERY PLAN {sql} LIMIT 200"))
        assert "SEARCH" in plan and "TEMP B-TREE" not in plan, plan
    raw.close()
    store.close()
