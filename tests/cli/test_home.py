"""`plait` alone: where one is, what runs, what waits, and what to type next."""

from __future__ import annotations

import json

from rich.cells import cell_len

from tests.cli.shell import Shell, on_a_terminal, shell

__all__ = ["shell"]

PROGRAM = """
from plait import Agent, ScriptedModel, ToolCall, Workflow, tool
from plait.policy import Ask, Policy


@tool
def wire(to: str, amount: int) -> str:
    "Send money."
    return "sent"


class Pay(Workflow):
    policy = Policy(Ask("wire", when=lambda call: call.arguments["amount"] > 100))

    def __init__(self):
        call = ToolCall("wire", to="ACME", amount=120)
        self.clerk = Agent("Pay.", model=ScriptedModel([call, "Paid."]), tools=[wire])

    def forward(self, session):
        return self.clerk(session)


class Stops(Workflow):
    def forward(self, session):
        raise KeyboardInterrupt
"""


def write_program(shell: Shell) -> None:
    (shell.folder.parent / "pay.py").write_text(PROGRAM)


def test_without_sessions_it_says_how_to_begin(shell: Shell) -> None:
    said = shell()
    assert said.startswith("There are no sessions in this folder, or above it.\n")
    assert "plait new TEXT" in said and "plait --help" in said
    assert json.loads(shell("--json"))["store"] is None
    shell("init")
    assert "There are no sessions in it yet." in shell() and "plait new TEXT" in shell()


def test_what_waits_comes_first_and_the_next_step_is_named(shell: Shell) -> None:
    write_program(shell)
    assert shell.run("run", "pay.py:Pay", "-i", "Pay ACME.", "--approve", "park").exit_code == 4
    session, [ask] = shell.json("show")["short"], shell.json("inbox")["waiting"]
    said = shell()
    assert f'{ask["id"][:8]}  clerk wants to run wire amount=120, to="ACME"' in said
    assert f"  {session}  Pay ACME.  waiting" in said
    assert said.index("Waits for you") < said.index("Latest") < said.index("plait inbox")
    home = json.loads(shell("--json"))
    assert [each["id"] for each in home["waiting"]] == [ask["id"]]
    assert home["latest"][0]["short"] == session
    assert home["next"][0]["command"] == "plait inbox"


def test_a_condition_is_shown_as_it_is_written(shell: Shell) -> None:
    write_program(shell)
    shell.run("run", "pay.py:Pay", "-i", "Pay ACME.", "--approve", "park")
    assert 'tool wire, when call.arguments["amount"] > 100\n' in shell("inbox")


def test_what_was_interrupted_is_told_with_the_command_that_goes_on(shell: Shell) -> None:
    write_program(shell)
    assert shell.run("run", "pay.py:Stops", "-i", "x").exit_code == 130
    session = shell.json("show")["short"]
    said = shell()
    assert f"Interrupted  no process is at it\n  {session}  x" in said
    assert f"plait resume {session}" in said
    shell.run("run", "pay.py:Stops", "-i", "y")
    assert "plait resume --interrupted" in shell()


def test_it_fits_a_narrow_terminal(shell: Shell) -> None:
    write_program(shell)
    shell.run("run", "pay.py:Pay", "-i", "Pay ACME. 日本語 " * 20, "--approve", "park")
    for width in (60, 80):
        lines = on_a_terminal(width=width, NO_COLOR="1").splitlines()
        assert max(map(cell_len, lines)) <= width
    assert "\x1b[" in on_a_terminal() and "\x1b[" not in on_a_terminal(NO_COLOR="1")


def test_options_without_a_command_are_not_those_of_a_command(shell: Shell) -> None:
    assert "stand after the command, as in `plait ls --json`" in shell.error(
        2, "--store", "x", "ls"
    )
    assert "There are no sessions in elsewhere." in shell("--store", "elsewhere")
