"""`plait eval`: what it prints, and what it refuses before the first session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell

PROGRAM = """
from plait import Workflow
from plait.evals import trial_of


class Echo(Workflow):
    def forward(self, session):
        return session.say(session.messages[0].text, role="assistant")


class Unmade(Echo):
    def __init__(self):
        raise OSError("no key")


def score_said(session):
    return session.text == trial_of(session).row["expected"]


def other(session):
    return True
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    Path("echo_flow.py").write_text(PROGRAM)
    rows = ['{"input": "a", "expected": "a"}', '{"input": "b", "expected": "c"}']
    Path("tasks.jsonl").write_text("\n".join(rows))
    shell = Shell(tmp_path / ".plait")
    shell("init")
    return shell


def test_an_evaluation_is_run_shown_and_gone_on_with(place: Shell) -> None:
    told = place("eval", "tasks.jsonl", "echo_flow.py:Echo", "--k", "2", "--jobs", "2")
    for line in ("Echo, 2 examples, k = 2", "pass@1  50.0%", "pass^2  50.0%", "message"):
        assert line in told
    document = place.json("eval", "run", "tasks.jsonl", "echo_flow.py:Echo", "--k", "2")
    assert place.json("eval", "show") == document
    assert [each["end"] for each in document["trials"]] == ["passed"] * 2 + ["failed"] * 2
    assert document["scorers"] == ["score_said"]
    sessions = place.json("ls")
    place("eval", "tasks.jsonl", "echo_flow.py:Echo", "--k", "2", "-q")
    assert place.json("ls") == sessions


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("tasks.jsonl", "echo_flow.py:Echo", "--k", "0"), "k: 0"),
        (("tasks.jsonl", "echo_flow.py:Unmade"), "no key"),
        (("none.jsonl", "echo_flow.py:Echo"), "none.jsonl: No such file"),
        (("bad.jsonl", "echo_flow.py:Echo"), "bad.jsonl, line 2: field input"),
        (
            ("tasks.jsonl", "echo_flow.py:Echo", "--scorer", "other", "--scorer", "other"),
            "two scorers have the name other",
        ),
        (("tasks.jsonl", "echo_flow.py:Echo", "--scorer", "missing"), "has no 'missing'"),
    ],
)
def test_bad_input_opens_no_session(place: Shell, words: tuple[str, ...], told: str) -> None:
    Path("bad.jsonl").write_text('{"input": "a"}\n{"input": 3}\n')
    assert told in place.error(2, "eval", *words)
    assert place.json("ls")["sessions"] == []


def test_a_scorer_of_another_file_is_named_by_it(place: Shell) -> None:
    Path("judges.py").write_text("def said_something(session):\n    return bool(session.text)\n")
    words = ("eval", "tasks.jsonl", "echo_flow.py:Echo", "--scorer", "judges.py:said_something")
    document = place.json(*words, "--scorer", "other")
    assert document["scorers"] == ["said_something", "other"]
    assert document["pass_at_1"]["value"] == 1.0
