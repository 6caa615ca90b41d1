"""Ablation: the same run without a memory, and what changes."""

from __future__ import annotations

import re

import pytest

from plait import Agent, Budget, Memory, Parallel, Session, ToolCall, Workflow, tool
from plait.errors import (
    BudgetExceeded,
    InvalidValue,
    NotRecalled,
    RunOpen,
    UnknownMemory,
    WrongStatus,
)
from plait.event.kinds import MemoryRecalled, MemoryUsed, ModelAsked
from plait.runs.ablate import Ablation
from plait.session.value import walk_path
from tests.support import (
    STAGING,
    PromptModel,
    assert_replays,
    events_of,
    remembered,
    scripted_model,
    speaker,
)

ASK = "May I write to the staging database?"


@tool(effect="pure")
def write(where: str) -> str:
    """Write somewhere."""
    return f"wrote to {where}"


def _answer(prompt: str) -> str | ToolCall:
    if "read-only" in prompt:
        return "No, it is read-only."
    return "Written." if "wrote to" in prompt else ToolCall("write", where="staging")


def ann(memory: Memory | None = None, **more: object) -> Agent:
    model = PromptModel(_answer)
    return Agent("x", name="ann", model=model, tools=[write], memory=memory or Memory(), **more)  # pyright: ignore[reportArgumentType]


def asked(text: str = ASK, budget: Budget | None = None) -> Session:
    return Session(text, user="u-17", project="shop", budget=budget)


class Twice(Workflow):
    """Recalls as an agent and as a program, one after the other, and judges the answer."""

    def __init__(self) -> None:
        self.ann = ann()

    def forward(self, session: Session) -> Session:
        session = self.ann(session)
        session, hits = Memory().recall(session, "staging database")
        refused = "No" in session.text
        session = session.checks.record("refused", passed=refused, because=session)
        return session.say(f"{len(hits)} known")


def test_a_run_without_a_memory_tells_what_the_memory_changed() -> None:
    id = remembered()
    done = ann()(asked())
    assert done.text == "No, it is read-only."
    found = Memory().ablate(done, id, workflow=ann())
    assert isinstance(found, Ablation) and found
    assert found.differs == {"text": 1, "calls": 1, "files": 0, "verdicts": 0}
    (run,) = found.runs
    assert run.session.text == "Written." and run.differs == ("text", "calls")
    assert not any(id in str(event.body) for event in events_of(run.session, ModelAsked))
    told = str(found)
    for line in (STAGING, "- ann: No", "+ ann: Written.", '+ write {"where":"staging"}'):
        assert line in told, told
    (used,) = events_of(found.session, MemoryUsed)
    assert used.body == MemoryUsed("ablation", runs=1, differs=found.differs)
    assert used.header.causes == (id, run.session.head)
    assert found.session.text == done.text, "the session itself goes on as it was"
    assert_replays(run.session, ann())


def test_a_memory_that_changes_nothing() -> None:
    remembered()
    other = remembered("The staging database is in Frankfurt.")
    done = ann()(asked())
    found = Memory().ablate(done, other, workflow=ann())
    assert not found and "nothing changes" in str(found)


def test_no_later_recall_of_the_branch_returns_it_either() -> None:
    id = remembered()
    done = Twice()(asked())
    found = Memory().ablate(done, id[:8], workflow=Twice(), n=2)
    assert len(found.recalls) == 2
    assert found.differs == {"text": 2, "calls": 2, "files": 0, "verdicts": 2}
    assert {run.session.lineage.label for run in found.runs} == {
        f"without {id[:8]} 1",
        f"without {id[:8]} 2",
    }
    for run in found.runs:
        recalls = [event.body for _, event in walk_path(run.session, {"MemoryRecalled"})]
        assert len(recalls) == 2
        for body in recalls:
            assert isinstance(body, MemoryRecalled)
            assert not body.hits
            assert [each.memory for each in body.left_out] == [id]


def test_a_recall_in_a_branch_and_one_by_a_tool() -> None:
    id = remembered()

    def twins() -> Parallel:
        return Parallel(one=ann(), two=speaker("Perhaps."))

    found = Memory().ablate(twins()(asked()), id, workflow=twins())
    assert found.differs["text"] == 1 and found.runs[0].session.text != ""

    def by_tool() -> Agent:
        model = PromptModel(_answer_by_tool)
        return Agent("x", name="bob", model=model, tools=[write, *Memory().tools])

    done = by_tool()(asked())
    assert done.text == "No, it is read-only."
    found = Memory().ablate(done, id, workflow=by_tool())
    assert found.runs[0].session.text == "Written."
    assert_replays(found.runs[0].session, by_tool())


def _answer_by_tool(prompt: str) -> str | ToolCall:
    if "matches" not in prompt and "m:" not in prompt:
        return ToolCall("recall", query="staging database")
    return _answer(prompt)


def test_its_cost_counts_against_the_budget_of_the_session() -> None:
    id = remembered()
    done = ann()(asked(budget=Budget(tokens_max=100_000)))
    assert done.budget.left_now == Budget(tokens_max=99_890)
    found = Memory().ablate(done, id, workflow=ann())
    assert found.session.budget.left_now == Budget(tokens_max=99_670), "two more asks of 110"
    poor = ann()(asked(budget=Budget(tokens_max=300)))
    with pytest.raises(BudgetExceeded):
        Memory().ablate(poor, id, workflow=ann())
    assert not events_of(poor.reload(), MemoryUsed)


def test_nothing_runs_if_it_cannot_be() -> None:
    id, memory = remembered(), Memory()
    with pytest.raises(NotRecalled, match="no recall of the last run"):
        memory.ablate(speaker("hi")(asked()), id)
    with pytest.raises(NotRecalled):
        memory.ablate(asked(), id)
    done = ann()(asked())
    with pytest.raises(UnknownMemory):
        memory.ablate(done, "ffffffff")
    with pytest.raises(InvalidValue, match="number of runs"):
        memory.ablate(done, id, n=0)
    session = asked("go on")
    broken = Agent("x", name="ann", model=scripted_model(ToolCall("stop")), tools=[stop])
    with pytest.raises(KeyboardInterrupt):
        broken(session)
    with pytest.raises(RunOpen, match=re.escape("resume it first")):
        memory.ablate(session.reload(), id)
    closed = done.close()
    with pytest.raises(WrongStatus, match="fork"):
        memory.ablate(closed, id)


@tool(effect="pure")
def stop() -> str:
    """Interrupt."""
    raise KeyboardInterrupt
