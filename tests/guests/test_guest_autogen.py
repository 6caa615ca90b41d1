"""AutoGen's RoundRobinGroupChat and its twin of ten lines say the same, in the same order."""

from __future__ import annotations

from typing import Any

import pytest
from examples.round_robin import RoundRobin, transcript

from plait import Agent, ScriptedModel, Session
from tests.guests.hosting import guest
from tests.support import report

POEM = {
    "writer": ["The sea is big.", "The sea keeps every secret.", "Enough."],
    "critic": ["Too plain.", "Better. APPROVE", "Again?"],
}
CASES: dict[str, dict[str, Any]] = {
    "until the word is said": {
        "task": "Write a line.",
        "word": "APPROVE",
        "turns_max": 10,
        "agents": POEM,
    },
    "until enough have spoken": {
        "task": "Write a line.",
        "word": "NEVER",
        "turns_max": 3,
        "agents": POEM,
    },
    "three of them": {
        "task": "Plan a trip.",
        "word": "DONE",
        "turns_max": 20,
        "agents": {
            "planner": ["Rome.", "Paris."],
            "guide": ["Too hot.", "Fine."],
            "treasurer": ["Too dear.", "Cheap. DONE"],
        },
    },
    "the first one says it": {
        "task": "Say it.",
        "word": "STOP",
        "turns_max": 10,
        "agents": {"a": ["STOP here"], "b": ["never"]},
    },
    "the task has it": {
        "task": "Say STOP.",
        "word": "STOP",
        "turns_max": 10,
        "agents": {"a": ["one"], "b": ["two"]},
    },
    "both limits at once": {
        "task": "Count.",
        "word": "two",
        "turns_max": 2,
        "agents": {"a": ["one"], "b": ["two"], "c": ["three"]},
    },
    "other scripts": {
        "task": "Zähle. 数える",
        "word": "終",
        "turns_max": 9,
        "agents": {"eins": ["ä", "ö"], "zwei": ["い", "終わり"]},
    },
}


def twin(case: dict[str, Any]) -> list[list[str]]:
    agents = {
        name: Agent(f"You are the {name}.", model=ScriptedModel(texts))
        for name, texts in case["agents"].items()
    }
    team = RoundRobin(case["word"], case["turns_max"], **agents)
    return [[*each] for each in transcript(team(Session(case["task"], store="memory:")))]


@pytest.mark.slow
def test_the_same_speakers_and_texts_in_the_same_order() -> None:
    theirs = guest("autogen", "autogen_team.py", list(CASES.values()))
    ours = [twin(case) for case in CASES.values()]
    assert dict(zip(CASES, ours, strict=True)) == dict(zip(CASES, theirs, strict=True))
    assert [len(each) for each in theirs] == [5, 4, 7, 2, 1, 3, 5]
    report("AutoGen's round robin", f"{len(CASES)} cases, {sum(map(len, ours))} messages, the same")
