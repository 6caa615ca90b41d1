"""Costs by run: branches that lost count, and are told apart."""

from __future__ import annotations

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.ids import LogId, short
from plait.session.ledger import costs, spent_in_branches
from plait.session.ports import store_at
from tests.cli.shell import Shell, shell

__all__ = ["shell"]


@tool(effect="pure")
def look() -> str:
    """Look at something."""
    return "seen"


class Contest(Workflow):
    """Three try, one of them in two branches, and one is merged."""

    def __init__(self) -> None:
        self.a = Agent("x", model=ScriptedModel([ToolCall("look"), "done"]), tools=[look])

    def forward(self, session: Session) -> Session:
        winner = self.a(session.fork("winner"))
        loser = session.fork("loser").use(look)
        loser.merge(self.a(loser.fork("helper")))
        session.fork("other").use(look)
        return session.use(look).merge(winner)


def by_run(session: Session | None, store: str) -> dict[str, tuple[int, int]]:
    rows = costs(store_at(store), "run", session=session).rows
    return {branch: (spent.model_calls, spent.tool_calls) for (_, branch), spent in rows}


def test_losing_branches_count_in_rows_of_their_own(shell: Shell) -> None:
    session = Contest()(Session("go", store=shell.address))
    wanted = {"": (2, 2), "not merged": (2, 3)}
    assert by_run(session, session.store) == by_run(None, session.store) == wanted
    found = costs(store_at(session.store), session=session)
    assert (found.total.model_calls, found.total.tool_calls) == (4, 5)
    left = spent_in_branches(session)
    assert found.not_merged == left
    assert (left.model_calls, left.tool_calls) == wanted["not merged"]


def test_each_run_has_its_rows(shell: Shell) -> None:
    session = Contest()(Session("go", store=shell.address))
    again = Contest()(session)
    found = costs(store_at(session.store), "run", session=again)
    assert found.by == ("run", "branch") and len(found.rows) == 4
    assert {key[0] for key, _ in found.rows} == {run.id for run in again.runs}
    assert found.total.tool_calls == 10
    assert by_run(session, session.store) == {"": (2, 2), "not merged": (2, 3)}  # as it was then


def test_the_shell_tells_them_apart(shell: Shell) -> None:
    session = Contest()(Session("go", store=shell.address))
    run = session.runs[-1].id
    for given in ((), (session.short,)):
        rows = shell.json("cost", *given, "--by", "run")["rows"]
        assert sorted((row["run"], row["branch"] or "", row["tool_calls"]) for row in rows) == [
            (run, "", 2),
            (run, "not merged", 3),
        ]
    first, *_ = shell("cost", "--by", "run").splitlines()
    assert short(LogId(run)) in first
    assert "not merged" in shell("cost", session.short, "--by", "run")
