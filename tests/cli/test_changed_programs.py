"""Changed programs in the shell: `plait check`, and `plait resume --accept`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, program_folder, shell
from tests.support import run_forked

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


def _events(shell: Shell) -> int:
    return shell.open("@").seq


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "        for reader in READERS:",
            '        raise ValueError("no readers")\n        for reader in READERS:',
            "ValueError: no readers (letters.py, line 20)",
        ),
        (
            "        for reader in READERS:",
            '        int("many")\n        for reader in READERS:',
            "ValueError: invalid literal for int() with base 10: 'many' (letters.py, line 20)",
        ),
        (
            "        for reader in READERS:",
            "        raise SystemExit(3)\n        for reader in READERS:",
            "SystemExit: 3 (letters.py, line 20)",
        ),
    ],
)
def test_a_program_that_raises_is_named_with_its_line(
    shell: Shell, folder: Path, old: str, new: str, words: str
) -> None:
    _ran(shell, 4, "run", "letters.py:Letters", "-i", "Write.")
    before, file = _events(shell), folder / "letters.py"
    file.write_text(file.read_text().replace(old, new, 1))
    for target in ((), ("letters.py:Letters",)):
        out, err = _ran(shell, 1, "check", *target)
        assert "raises an error after event 5" in out and words in out and not err
        assert "1 open run checked, 1 would not go on" in out
    (checked,) = json.loads(_ran(shell, 1, "check", "--json")[0])["runs"]
    assert (checked["safe"], checked["after"], checked["at"]) == (False, 5, None)
    raised = checked["raised"]
    assert raised["type"] == words.partition(":")[0] and raised["line"] == 20
    assert Path(raised["file"]).name == "letters.py"
    _, err = _ran(shell, 1, "resume", "@", "--accept", "fewer")
    assert f"raises an error after event 5 of session {checked['short']}: {words}" in err
    assert "Nothing was written; correct the program" in err and _events(shell) == before


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("from pathlib", "import nowhere\nfrom pathlib", "'nowhere' (letters.py, line 2)"),
        (
            "class Letters(Workflow):",
            "class Letters(Workflow):\n    def __init__(self):\n        raise KeyError('host')\n",
            "KeyError: 'host' (letters.py, line 19)",
        ),
        ("from pathlib", "raise SystemExit(3)\nfrom pathlib", "SystemExit: 3 (letters.py, line 2)"),
    ],
)
def test_a_program_that_cannot_be_made_is_named_with_its_line(
    shell: Shell, folder: Path, old: str, new: str, words: str
) -> None:
    _ran(shell, 4, "run", "letters.py:Letters", "-i", "Write.")
    before, file = _events(shell), folder / "letters.py"
    file.write_text(file.read_text().replace(old, new, 1))
    for target in ((), ("letters.py:Letters",)):
        out, err = _ran(shell, 1, "check", *target)
        assert "cannot be checked" in out and words in out and not err
    _, err = _ran(shell, 1, "resume", "@", "--accept", "fewer")
    assert words in err and "Correct it, or name it: plait resume" in err
    assert _events(shell) == before


def test_a_run_that_fails_again_at_its_end_is_told_and_an_asking_one_goes_on(
    shell: Shell, folder: Path
) -> None:
    file = folder / "letters.py"
    source = file.read_text()
    raising = 'raise ValueError("over")\n        return session.ask("Go on?", ("yes", "no"))'
    file.write_text(source.replace('return session.ask("Go on?", ("yes", "no"))', raising))
    _ran(shell, 1, "run", "letters.py:Letters", "-i", "Write.")
    out, _ = _ran(shell, 1, "check")
    assert (
        "raises an error after event 9" in out and "ValueError: over (letters.py, line 22)" in out
    )
    file.write_text(source)
    assert "0 would not go on" in _ran(shell, 0, "check")[0]
    # an error that the program itself catches is none
    caught = "try:\n            int('x')\n        except ValueError:\n            pass\n        "
    file.write_text(source.replace("return session.ask", f"{caught}return session.ask", 1))
    assert "0 would not go on" in _ran(shell, 0, "check")[0]


def test_an_error_in_a_branch_is_of_the_program_and_a_failed_tool_is_not(
    shell: Shell, folder: Path
) -> None:
    file = folder / "letters.py"
    source = file.read_text() + (
        "\n\nfrom plait import Parallel\n\n\n"
        "class Both(Workflow):\n"
        "    def __init__(self):\n"
        "        self.both = Parallel(a=Letters(), b=Letters())\n\n"
        "    def forward(self, session):\n"
        "        return self.both(session)\n"
    )
    file.write_text(source)
    _ran(shell, 4, "run", "letters.py:Both", "-i", "Write.")
    raising = source.replace("for reader in", "raise ValueError('no')\n        for reader in")
    file.write_text(raising)
    out, _ = _ran(shell, 1, "check")
    assert "raises an error after event" in out and "(letters.py, line 20)" in out
    # the tool failed, and a resume tries it again
    file.write_text(source.replace("    with Path", "    raise OSError('no')\n    with Path"))
    _ran(shell, 1, "run", "letters.py:Letters", "-i", "Write.")
    assert "goes on" in _ran(shell, 0, "check", "letters.py:Letters")[0]


SCRIPT = """
from plait import Session, Workflow


class Greet(Workflow):
    def forward(self, session):
        return session.fact("greeting", "Dear").ask("Shall it be sent?")


def main():
    try:
        Greet()(Session("Greet them."))
    except BaseException as error:
        print(type(error).__name__)
"""


def test_a_run_that_python_started_is_checked(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f'{SCRIPT}\n\nif __name__ == "__main__":\n    main()\n')
    done = run_forked([sys.executable, str(script)], cwd=tmp_path)
    assert done.stdout == "Parked\n", done.stderr
    for target in ((), ("script.py",), ("script",), ("script.py:Greet",)):
        assert "1 open run checked, 0 would not go on" in shell("check", *target)
    assert "0 open runs" in shell("check", "pathlib")
    script.write_text(script.read_text().replace("Dear", "Hello"))
    assert "diverges at event" in shell("check", code=1)
    script.write_text(script.read_text().replace("Hello", "Dear"))
    shell("answer", shell.open("@").inbox.waiting[0].event, "yes")
    shell("resume", "@")
    assert shell.open("@").status == "finished"


def test_a_script_that_would_start_again_is_not_loaded(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"{SCRIPT}\n\nmain()\n")
    done = run_forked([sys.executable, str(script)], cwd=tmp_path)
    assert done.stdout == "Parked\n", done.stderr
    told = shell("check", code=1)
    assert "started by `python script.py`" in told and 'if __name__ == "__main__":' in told
    assert 'if __name__ == "__main__":' in shell.error(1, "resume", "@")
    assert len(shell.json("ls", "--all")["sessions"]) == 1, "it was not started again"
    script.unlink()
    told = shell("check", code=1)
    assert "cannot be read" in told and "plait check script.py:Greet" in told
