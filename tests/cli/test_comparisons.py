"""What-ifs, comparisons and summaries in the shell: tool calls, and what does not differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, on_a_terminal, program_folder, shell

__all__ = ["shell"]

PROGRAM = '''
from plait import Agent, ScriptedModel, ToolCall, tool
from plait.policy import Ask, Policy


@tool(effect="pure")
def look(page: int) -> str:
    """Look something up."""
    return f"page {page}"


@tool(effect="idempotent")
def wire(to: str) -> str:
    """Send money."""
    return f"sent to {to}"


def answer(session):
    made = [effect.tool for effect in session.effects]
    if "look" not in made:
        return ToolCall("look", page=1)
    if session.effects[0].result == "closed":
        return "No."
    return "Paid." if "wire" in made else ToolCall("wire", to="ACME")


clerk = Agent(
    "Pay.",
    model=ScriptedModel(answer),
    name="clerk",
    tools=[look, wire],
    policy=Policy(Ask("wire")),
)
'''


@pytest.fixture
def paid(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The short id of a session in which a payment waited for consent, and was resumed."""
    with program_folder(tmp_path, "pay", PROGRAM, monkeypatch):
        shell("run", "pay.py:clerk", "-i", "Pay.", code=4)
        (ask,) = shell.json("inbox")["waiting"]
        shell("approve", ask["id"])
        done = shell.run("resume", "@")
        assert done.exit_code == 0 and "Agent finished: 3 steps, 2 tool calls" in done.stderr
        assert done.exit_code == 0 and " in 2 lives\n" in done.stderr
        yield shell.open("@").short


def _first_result(shell: Shell, name: str) -> int:
    return shell.open(name).events.where("ToolReturned")[0].seq


def test_a_what_if_that_changes_nothing_says_so(shell: Shell, paid: str) -> None:
    done = shell.run("whatif", f"{paid}@4", "--approve", "all")
    assert done.exit_code == 0, done.output
    assert "nothing differs: the branch says, calls and leaves the same" in done.stderr
    assert "lives" not in done.stderr
    other = shell.open("@").short
    document = shell.json("diff", paid, other)
    assert document["same_story"] and document["different"]  # in events of their own
    done = shell.run("whatif", paid, "--replace", f"{_first_result(shell, paid)}=closed")
    assert done.exit_code == 0 and "nothing differs" not in done.stderr, done.output


def test_a_comparison_has_the_tool_calls(shell: Shell, paid: str) -> None:
    done = shell.run("whatif", paid, "--replace", f"{_first_result(shell, paid)}=closed")
    other = shell.open("@").short
    lines = shell("diff", paid, other).splitlines()
    assert "tool calls: 0 in common" in lines
    for line in ('- look {"page":1}: returned page 1', '+ look {"page":1}: returned closed'):
        assert line in lines
    assert not shell.json("diff", paid, other)["same_story"] and done.exit_code == 0
    (first, second) = shell.json("diff", paid, other)["calls"]["left"]
    assert (first["tool"], second["arguments"]) == ("look", {"to": "ACME"})
    for width in (80, 120):
        told = on_a_terminal("diff", paid, other, width=width, NO_COLOR="1")
        assert "Tool calls  0 in common" in told and 'wire {"to":"ACME"}: returned' in told
    same = shell("diff", paid, paid)
    assert "tool calls: 2 in common" in same


def test_a_model_is_named_in_the_way_of_the_shell(shell: Shell, paid: str) -> None:
    told = shell.error(1, "whatif", f"{paid}@4", "--model", "gpt5")
    assert "no model is called 'gpt5'" in told and "Agent" not in told
    assert "Name one with --model, or in PLAIT_MODEL: 'openai:gpt-5'" in told


def test_a_program_that_is_gone_is_named_by_its_variable(
    shell: Shell, paid: str, tmp_path: Path
) -> None:
    (tmp_path / "pay.py").rename(tmp_path / "other.py")
    told = shell.error(1, "whatif", f"{paid}@4")
    assert f"Name it: plait whatif {paid} --workflow FILE.py:clerk" in told
