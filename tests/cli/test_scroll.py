"""Runs on a terminal: the text of models as it comes, each call of a tool in a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.cli.scroll import Scroll
from tests.cli.shell import Shell, on_a_terminal, program_folder, shell

__all__ = ["shell"]

PROGRAM = '''
from plait import Agent, Parallel, ScriptedModel, ToolCall, Workflow, tool

@tool
def look(sku: str) -> str:
    """Look it up."""
    if sku == "pear":
        raise LookupError("no pears")
    return "four left"

class Desk(Workflow):
    def __init__(self):
        script = [ToolCall("look", sku="apple"), ToolCall("look", sku="pear"), "Four apples are left."]
        self.clerk = Agent("Serve.", model=ScriptedModel(script), tools=[look])

    def forward(self, session):
        return self.clerk(session)

class Team(Workflow):
    def __init__(self):
        self.both = Parallel(
            pro=Agent("For.", model=ScriptedModel(["Yes, it is so."])),
            con=Agent("Against.", model=ScriptedModel(["No, it is not."])),
        )
        self.sum = Agent("Sum up.", model=ScriptedModel(["Yes and no."]))

    def forward(self, session):
        return self.sum(self.both(session))
'''  # noqa: E501
_CURSOR = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]|\r")  # what rich moves the cursor with


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with program_folder(tmp_path, "shop", PROGRAM, monkeypatch) as folder:
        yield folder


def lines_on_a_terminal(*arguments: str, width: int = 80) -> list[str]:
    """The lines that are left on the screen, without the one that is redrawn."""
    text = _CURSOR.sub("", on_a_terminal(*arguments, width=width, NO_COLOR="1"))
    return [line for line in text.split("\n") if " · $" not in line]


def test_a_run_on_a_terminal(folder: Path) -> None:
    lines = lines_on_a_terminal("run", "shop.py:Desk", "-i", "apples")
    told = [re.sub(r"^(.)    \w{8}(@\d+) +", r"\1 \2 ", line) for line in lines[:7]]
    assert [re.sub(r" +\d+ tokens.*", "", line) for line in told] == [
        "❯ @2 apples",
        "● @3 run started Desk",
        "● @9 look apple four left",
        "● @13 look pear no pears",
        "desk/clerk",
        "Four apples are left.",
        "● @18 run finished",
    ], lines
    assert "Four apples are left." not in lines[6:], "it is shown once"
    assert re.fullmatch(r"\w{8}  Desk finished: 3 steps, 2 tool calls, .*", lines[7])


def test_branches_speak_one_after_another(folder: Path) -> None:
    lines = lines_on_a_terminal("run", "shop.py:Team", "-i", "what?")
    for who, said in (
        ("team/both/pro", "Yes, it is so."),
        ("team/both/con", "No, it is not."),
        ("team/sum", "Yes and no."),
    ):
        assert lines[lines.index(who) + 1] == said
    drawn = "\n".join(lines)
    assert "\n├─╮\n│ ○  " in drawn and "\n├─┼─╮\n│ │ ○  " in drawn, "two lanes"
    assert "\n├─┴─╯\n◆    " in drawn, "they meet"


def test_quiet_says_the_result_only(folder: Path) -> None:
    assert lines_on_a_terminal("run", "shop.py:Desk", "-i", "x", "-q") == [
        "Four apples are left.",
        "",
    ]


def test_lines_and_texts_wait_for_the_one_who_speaks(capsys: pytest.CaptureFixture[str]) -> None:
    acts = list[str]()
    scroll = Scroll(
        lambda agent: print(f"[{agent}]"),
        lambda: acts.append("take"),
        lambda: acts.append("leave"),
    )
    scroll.hear("a", "\n\none ")
    scroll.hear("b", "first ")
    scroll.add_lines(lambda: print("a tool of b"))
    scroll.hear("a", "two\x1b[2J")
    scroll.hear("b", "second")
    assert capsys.readouterr().out == "one two"
    scroll.end_text("a", "one two")
    assert scroll.last == "one two\x1b[2J"
    assert capsys.readouterr().out == "\na tool of b\n[b]\nfirst second"
    with scroll.lend():
        assert capsys.readouterr().out == "\n"
        scroll.add_lines(lambda: print("a tool of a"))
        scroll.hear("b", " third")
        assert capsys.readouterr().out == "", "the terminal is lent"
    assert capsys.readouterr().out == "a tool of a\n third"
    scroll.end_text("c", "not in pieces")
    scroll.close()
    assert capsys.readouterr().out == "\n[c]\nnot in pieces\n"
    assert acts[0] == "take" and acts[-1] == "leave"
