"""The commonest mistakes, each with its whole message and its exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plait.cli import exits
from tests.cli.shell import Shell, shell

__all__ = ["shell"]

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
PROGRAM = """
from plait import Workflow


class Team(Workflow):
    def forward(self, session):
        return session
"""

# the line that is typed, its exit code, and the message; {s} stands for a session, {b} for a branch
MISTAKES = [
    ("shwo {s}", 2, "no such command: 'shwo'. Did you mean show?"),
    ("memory shw", 2, "No such command 'shw'. Did you mean 'show'?"),
    (
        "log {s} --stpes",
        2,
        "No such option '--stpes'. (Did you mean one of: '--steps', '--store'?)",
    ),
    ("say", 2, "Missing argument 'S'."),
    (
        "show strct",
        3,
        "'strct': no session is called that. Did you mean strict? `plait ls` shows all.",
    ),
    (
        "show zzzz",
        3,
        "'zzzz': no session is called that. `plait ls` shows the sessions; write one as its id, the"
        " start of it, or its label, then @PLACE.",
    ),
    (
        "show {s}@99",
        3,
        "session {s} has no event 99: its events are 1 to 4; -1 is the one before the last.",
    ),
    (
        "say {s}@2 hello",
        2,
        "{s}@2 is in the past: nothing can be appended there. Branch off with `plait fork {s}@2"
        " LABEL`, or go back with `plait rewind {s} 2`.",
    ),
    (
        "why {s} bd",
        3,
        "session {s} has no fact, pending work, verdict, evidence, result, file line or message"
        " 'bd'. There are 'db'; check the name.",
    ),
    ("retract {s} bd", 3, "session {s} has no fact 'bd'. There are 'db'; check the name."),
    (
        "cat {s}:crt.py",
        3,
        "there is no 'crt.py' in {s}. Did you mean cart.py? See what there is with: plait files"
        " {s}",
    ),
    (
        "cat strict:cart.py",
        3,
        "strict has no files: it was not placed. Place it: plait to {b} local FOLDER",
    ),
    (
        "run team.py:Taem -i x",
        2,
        "workflow: team.py has no 'Taem'. Nothing was written; it has: Team.",
    ),
    (
        "run temm.py:Team -i x",
        2,
        "workflow: there is no file temm.py. Nothing was written; check the path.",
    ),
    ("run team.py:Team", 2, "say what it is to do, -i TEXT, or in which session, --session S."),
    (
        "approve zzzz",
        3,
        "this store, 'zzzz': nothing that waits for an approval is called that. Nothing was"
        " written; look at what waits: session.inbox.waiting, or `plait inbox`.",
    ),
    ("new x --tag team", 2, "Invalid value for '--tag': 'team' is not KEY=VALUE."),
    (
        "ls --store nowhere",
        3,
        "there is no store at sqlite:{folder}/nowhere. Make one with `plait init`, or name another"
        " with --store or PLAIT_STORE.",
    ),
    (
        "log --kind MessageSaidd",
        2,
        "kind: there is no kind of event 'MessageSaidd'. Nothing was written; perhaps MessageSaid"
        " or Merged or MemoryUsed is meant.",
    ),
    (
        "resume strict",
        1,
        "there is nothing to resume in session {b}: no run was ever started in it. Nothing was"
        " written; start one: plait run FILE.py:NAME --session {b}.",
    ),
]


@pytest.fixture
def names(shell: Shell, tmp_path: Path) -> dict[str, str]:
    """The session that the mistakes are about, and a branch of it."""
    (tmp_path / "team.py").write_text(PROGRAM)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "cart.py").write_text("total = 0\n")
    name = shell.new("x")
    shell("fact", name, "db", "15")
    branch = shell.json("fork", name, "strict")["short"]
    shell("to", name, "local", "shop")
    return {"s": name, "b": branch, "folder": str(tmp_path.resolve())}


@pytest.mark.parametrize(("line", "code", "told"), MISTAKES, ids=[each[0] for each in MISTAKES])
def test_a_mistake_is_told_with_the_next_step(
    shell: Shell, names: dict[str, str], line: str, code: int, told: str
) -> None:
    done = shell.run(*line.format(**names).split())
    usage, _, said = done.stderr.rpartition("plait: ")
    assert (said.strip(), done.exit_code, done.stdout) == (told.format(**names), code, "")
    assert usage == "" or usage.startswith("Usage: plait ")


def test_the_page_has_the_table_of_exit_codes() -> None:
    section = PAGE.split("\n## Exit codes\n")[1]
    on_page = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    in_code = {int(code) for code in re.findall(r"^    (\d+)  ", exits.__doc__ or "", re.MULTILINE)}
    assert on_page == in_code >= {0, 130, 141, *exits.CODES.values(), exits.WAITING}
    assert {code for _, code, _ in MISTAKES} <= on_page
