"""Changed programs in the shell: `plait check`, and `plait resume --accept`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, program_folder, shell

__all__ = ["shell"]

PROGRAM = '''
from pathlib import Path

from plait import Workflow, tool

WORD, READERS = "a", ("ann", "bob")


@tool
def post(to: str) -> str:
    """Send a letter."""
    with Path(__file__).with_name("posted").open("a") as posted:
        posted.write(to + "\\n")
    return f"sent to {to}"


class Letters(Workflow):
    def forward(self, session):
        session = session.fact("word", WORD)
        for reader in READERS:
            session = session.use(post, to=reader)
        return session.ask("Go on?", ("yes", "no"))


class Other(Workflow):
    def forward(self, session):
        return session.ask("Go on?")
'''


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with program_folder(tmp_path, "letters", PROGRAM, monkeypatch) as folder:
        yield folder


def _ran(shell: Shell, code: int, *arguments: str) -> tuple[str, str]:
    done = shell.run(*arguments)
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def _change(folder: Path) -> None:
    file = folder / "letters.py"
    file.write_text(
        file.read_text().replace(
            'WORD, READERS = "a", ("ann", "bob")', 'WORD, READERS = "b", ("ann",)'
        )
    )


def test_check_and_accept(shell: Shell, folder: Path) -> None:
    _ran(shell, 4, "run", "letters.py:Letters", "-i", "Write.")
    _ran(shell, 4, "run", "letters.py:Other", "-i", "Write.")
    out, _ = _ran(shell, 0, "check")
    assert "2 open runs checked, 0 would not go on" in out
    _change(folder)
    out, _ = _ran(shell, 1, "check", "letters.py")
    assert "diverges at event 5" in out and '"a"' in out and '"b"' in out
    document = json.loads(_ran(shell, 1, "check", "letters.py:Letters", "--json")[0])
    (checked,) = document["runs"]
    assert (checked["at"], checked["safe"], document["unsafe"]) == (5, False, 1)
    assert checked["revision"] == checked["code"]  # of the class; what it reads has changed
    name = checked["short"]
    (listed,) = shell.json("runs", "--revision", checked["revision"][:8])["runs"]
    assert listed["short"] == name and "Letters" in listed["workflow"]
    (found,) = shell.json("ls", "--revision", checked["revision"])["sessions"]
    assert found["short"] == name
    assert shell.json("ls", "--revision", "0" * 16)["sessions"] == []
    assert checked["revision"][:8] in shell("runs")
    before = shell.open(name)
    _, err = _ran(shell, 7, "resume", name)
    assert f"plait resume {name} --accept" in err
    assert "The step was not executed; that the run was resumed is on record." in err
    assert "FactRecorded" not in err  # the kind is the same on both sides
    _ran(shell, 2, "resume", "--due", "--accept", "why")
    assert shell.open(name).seq == before.seq + 1  # that it was resumed
    _, err = _ran(shell, 4, "resume", name, "--accept", "fewer letters", "--as", "human:eve")
    assert err.index("differs from event 5") < err.index("waits")
    assert "not undone, not asked for again" in err and '{"to":"bob"}' in err
    session = shell.open(name)
    accepted = session.events.where("ChangeAccepted")[0]
    assert accepted.actor == "human:eve"
    assert (folder / "posted").read_text().split() == ["ann", "bob"]
    _, err = _ran(shell, 1, "resume", name, "--accept", "again")
    assert "an accept without a difference" in err and shell.open(name) == session
    document = json.loads(_ran(shell, 0, "check", "letters:Letters", "--json")[0])
    assert document["unsafe"] == 0


def test_check_tells_of_programs_that_are_gone(shell: Shell, folder: Path) -> None:
    _ran(shell, 4, "run", "letters.py:Other", "-i", "Write.")
    (folder / "letters.py").write_text("")
    out, _ = _ran(shell, 1, "check")
    assert "cannot be checked" in out and "Other" in out
    (folder / "others.py").write_text("")
    out, _ = _ran(shell, 0, "check", "others")
    assert "0 open runs checked" in out


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("leters.py", "leters.py"),
        ("leters", "there is no module 'leters'"),
        ("letters.py:Nope", "it has: Letters, Other"),
        ("letters.py:tool", "letters.py:tool is not a workflow"),
        ("leters.py:Letters", "leters.py"),
    ],
)
def test_check_refuses_a_target_that_does_not_exist(
    shell: Shell, folder: Path, target: str, words: str
) -> None:
    _ran(shell, 4, "run", "letters.py:Other", "-i", "Write.")
    assert words in shell.error(2, "check", target)
    assert "0 open runs checked" in shell("check", "letters.py:Letters")


def test_accepted_changes_as_a_document(shell: Shell, folder: Path) -> None:
    _ran(shell, 4, "run", "letters.py:Letters", "-i", "Write.")
    _change(folder)
    out, _ = _ran(shell, 4, "resume", "@", "--accept", "fewer", "--json")
    document = json.loads(out)
    assert [each["at"] for each in document["accepted"]] == [5]
    assert [each["arguments"] for each in document["not_undone"]] == [{"to": "bob"}]
