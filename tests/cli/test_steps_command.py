"""`plait log --steps`: a line for each step, with lanes in the margin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plait import Session
from tests.cli.shell import Shell


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("PLAIT_STORE", str(tmp_path / "store"))
    session = Session("Why does checkout fail?", title="cart bug", store=tmp_path / "store")
    strict, lenient = session.fork("strict"), session.fork("lenient")
    strict = strict.decide("verdict", "reject")
    lenient = lenient.say("I would clamp it.", role="assistant")
    strict.merge(lenient).checks.record("tests", passed=False).rewind(3, reason="wrong track")
    return Shell(tmp_path / "store")


def test_steps_are_drawn_with_their_lanes(shop: Shell) -> None:
    root = shop.jsonl("ls")[0]["short"]
    text = shop("log", "strict", "--steps")
    lines = [re.sub(r"(@\d+) +", r"\1 ", line) for line in text.splitlines()]
    assert lines == [
        f"❯      {root}@2 Why does checkout fail?",
        "╰─┬─╮",
        f"  ○ │  strict@3 forked as strict from {root}@2",
        "  ● │  strict@4 decided verdict = reject",
        f"  │ ○  lenient@3 forked as lenient from {root}@2",
        "  │ ●  lenient@4 I would clamp it.",
        "  ├─╯",
        "  ◆    strict@5 merged lenient",
        "  ●    strict@6 tests failed",
        "  ↺    strict@7 rewound to 3 wrong track",
    ]


def test_the_last_steps_alone(shop: Shell) -> None:
    lines = shop("log", "@", "--steps", "-n", "2").splitlines()
    assert [line.split("@")[1].split()[0] for line in lines] == ["6", "7"]


def test_steps_that_had_happened_at_an_event(shop: Shell) -> None:
    root = shop.jsonl("ls")[0]["short"]
    lines = shop("log", "strict@4", "--steps").splitlines()
    names = [found[0] for line in lines if (found := re.findall(r"\S+@\d+", line))]
    assert names == [f"{root}@2", "strict@3", "strict@4", "lenient@3"]  # lenient@4 came later
    assert len(shop.jsonl("log", "strict@4", "--steps")) == 4


def test_steps_for_programs(shop: Shell) -> None:
    document = shop.json("log", "@", "--steps")
    family, steps = document["family"], document["steps"]
    assert [branch["name"] for branch in family["branches"]] == ["cart bug", "strict", "lenient"]
    assert [step["type"] for step in steps] == [
        "message",
        "fork",
        "fact",
        "fork",
        "message",
        "merge",
        "verdict",
        "rewind",
    ]
    assert [step["is_rewound"] for step in steps][-4:] == [False, True, True, False]
    assert shop.jsonl("log", "@", "--steps") == steps
    assert document["session"]["label"] == "strict"


@pytest.mark.parametrize(
    "more", [["--graph"], ["--react"], ["--kind", "Merged"], ["--reverse"], ["--oneline"]]
)
def test_steps_exclude_the_other_forms(shop: Shell, more: list[str]) -> None:
    assert "--steps shows the whole family" in shop.error(2, "log", "@", "--steps", *more)


def test_the_log_of_the_store_has_no_steps(shop: Shell) -> None:
    assert "--steps" in shop.error(2, "log", "--house", "--steps")
