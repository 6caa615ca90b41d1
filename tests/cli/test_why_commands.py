"""`plait why` from a line of a file, with placement, reasons and prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall
from plait.tools import decide, write_file
from tests.cli.shell import Shell, shell

__all__ = ["shell"]


@pytest.fixture
def worked(shell: Shell, tmp_path: Path) -> Session:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "cart.py").write_text("one\ntwo\n")
    session = Session("Fix it.", store=shell.address).to("local", folder, isolation="host")
    script = [
        ToolCall("write_file", path="cart.py", content="one\ntwo and a half\n"),
        ToolCall("decide", key="done", value=True, reason="it is short"),
        "Fixed.",
    ]
    tools = [write_file, decide]
    return Agent("Repair.", model=ScriptedModel(script), tools=tools, name="ana")(session)


def test_why_of_a_file_line(shell: Shell, worked: Session) -> None:
    steps = shell.jsonl("why", worked.short, "cart.py:2")
    assert steps == shell.json("why", worked.short, "cart.py:2")["steps"]
    assert (steps[0]["kind"], steps[0]["files"]) == ("ToolReturned", ["cart.py"])
    assert steps[0]["placement"].startswith("local, ")
    relations = {step["kind"]: step["relation"] for step in steps}
    assert relations["ToolRequested"] == "decision" and relations["MessageSaid"] == "context"
    told = shell("why", worked.short, "cart.py:2", "--all")
    assert "cart.py:2" in told and "(in local, " in told and "having seen" in told
    assert shell.jsonl("influence", worked.short, "cart.py:2")[0]["id"] == steps[0]["id"]
    assert "has 2 lines here" in shell.error(2, "why", worked.short, "cart.py:9")


def test_the_short_answer_has_decisions_first(shell: Shell, worked: Session) -> None:
    lines = shell("why", worked.short, "cart.py:2").splitlines()
    words = [line.strip() for line in lines[1:]]
    assert words[0].startswith("written by") and "write_file cart.py ± cart.py" in words[0]
    assert [line.split("  ")[0] for line in words[1:4]] == ["decided in", "ran in", "asked by"]
    assert "Fix it." in words[3] and "human:" in words[3]
    last = [line.strip() for line in shell("why", worked.short, "Fixed.").splitlines()]
    assert any(line.startswith("having seen  decided done = true") for line in last)
    # nothing is lost: what is not told here is counted, and --all has it
    count = int(last[-1].split()[1])
    steps = shell.jsonl("why", worked.short, "Fixed.")
    assert last[-1] == f"and {count} events behind these: plait why {worked.short} Fixed. --all"
    assert count + len(last) - 2 == len(steps)
    assert len(shell("why", worked.short, "Fixed.", "--all").splitlines()) == len(steps) + 1


def test_why_with_prompts(shell: Shell, worked: Session) -> None:
    assert "Repair." not in shell("why", worked.short, "cart.py:2")
    told = shell("why", worked.short, "cart.py:2", "--prompt")
    assert "Prompt at" in told and "Repair." in told and "said: Fix it." in told
    asks = [
        step
        for step in shell.jsonl("why", worked.short, "cart.py:2", "--prompt")
        if "prompt" in step
    ]
    assert asks and all(step["prompt"]["as_sent"] for step in asks)


def test_reasons_in_the_shell(shell: Shell, worked: Session) -> None:
    assert shell.jsonl("why", worked.short, "done")[0]["reason"] == "it is short"
    shell("decide", worked.short, "db", "sqlite", "--reason", "one file")
    assert 'decided db = "sqlite": one file' in shell("why", worked.short, "db")
