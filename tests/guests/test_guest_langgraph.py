"""langgraph-supervisor and its twin of ten lines hand over to the same workers and say the same, in
the same order.
"""

from __future__ import annotations

from typing import Any

import pytest
from examples.supervisor import Supervisor, routes, transcript

from plait import Agent, ScriptedModel, Session, ToolCall
from tests.guests.hosting import guest
from tests.support import double, report

WORKERS = {
    "researcher": ["found it", "found more", "nothing left"],
    "writer": ["a draft", "a better draft", "the last draft"],
}
CASES: dict[str, dict[str, Any]] = {
    "nobody": {"choices": [], "workers": WORKERS},
    "one": {"choices": ["writer"], "workers": WORKERS},
    "one after the other": {"choices": ["researcher", "writer"], "workers": WORKERS},
    "the same again": {"choices": ["researcher", "researcher", "writer"], "workers": WORKERS},
    "to and fro": {
        "choices": ["researcher", "writer", "researcher", "writer", "writer"],
        "workers": WORKERS,
    },
    "a worker with a tool": {
        "choices": ["doubler", "writer"],
        "workers": {"doubler": [21, "it is 42"], "writer": ["so be it"]},
    },
    "a tool each time": {
        "choices": ["doubler", "doubler"],
        "workers": {"doubler": [1, 2, "4", 4, "8"], "writer": ["never"]},
    },
    "somebody who is not there": {
        "choices": ["writer", "nobody", "researcher"],
        "workers": WORKERS,
    },
    "the last one alone": {"choices": ["writer", "writer", "writer"], "workers": WORKERS},
    "nobody who is there": {"choices": ["nobody"], "workers": WORKERS},
    "nobody, again and again": {
        "choices": ["nobody", "nobody", "writer", "nobody"],
        "workers": WORKERS,
    },
    "three workers in a row": {
        "choices": ["planner", "coder", "tester"],
        "workers": {"planner": ["a plan"], "coder": ["a patch"], "tester": ["it passes"]},
    },
    "back to the one before": {
        "choices": ["coder", "tester", "coder", "tester"],
        "workers": {
            "planner": ["never"],
            "coder": ["a patch", "a better patch"],
            "tester": ["it fails", "it passes"],
        },
    },
    "a ring": {
        "choices": ["a", "b", "c", "a", "b", "c"],
        "workers": {"a": ["1", "4"], "b": ["2", "5"], "c": ["3", "6"]},
    },
    "five workers, one of them used": {
        "choices": ["e"],
        "workers": {name: [f"I am {name}"] for name in "abcde"},
    },
    "a tool between two texts": {
        "choices": ["doubler", "writer", "doubler"],
        "workers": {"doubler": [3, "6", 6, "12"], "writer": ["go on"]},
    },
    "two who use the tool": {
        "choices": ["left", "right"],
        "workers": {"left": [5, "10"], "right": [7, 14, "28"]},
    },
    "other scripts": {
        "choices": ["forscher", "schreiber"],
        "workers": {"forscher": ["Größe: 4 806 m"], "schreiber": ["高さは4806メートル"]},
    },
    "long texts": {
        "choices": ["writer", "researcher"],
        "workers": {"writer": ["word " * 500 + "end"], "researcher": ["line\n" * 200 + "end"]},
    },
    "ten handoffs": {
        "choices": ["researcher", "writer"] * 5,
        "workers": {
            "researcher": [f"finding {number}" for number in range(5)],
            "writer": [f"draft {number}" for number in range(5)],
        },
    },
}
for number, made in enumerate(CASES.values()):
    made.update(task=f"Question {number}?", answer=f"Answer {number}.")


def worker(name: str, script: list[str | int]) -> Agent:
    items = [ToolCall("double", number=item) if isinstance(item, int) else item for item in script]
    return Agent(f"You are the {name}.", model=ScriptedModel(items), tools=[double])


def twin(case: dict[str, Any]) -> dict[str, Any]:
    workers = {name: worker(name, script) for name, script in case["workers"].items()}
    team = Supervisor(
        ScriptedModel([*case["choices"], "done"]), ScriptedModel([case["answer"]]), **workers
    )
    session = team(Session(case["task"], store="memory:"))
    *chosen, last = [route.choice for route in routes(session)]
    assert last == "done"  # where theirs just answers, ours says so
    return {"handoffs": chosen, "said": [[*each] for each in transcript(session)]}


def named(told: dict[str, Any]) -> dict[str, Any]:
    """Theirs answers as the supervisor; ours has an agent for it."""
    return {
        **told,
        "said": [["answer" if who == "supervisor" else who, text] for who, text in told["said"]],
    }


@pytest.mark.slow
def test_the_same_handoffs_and_speakers_in_the_same_order() -> None:
    theirs = [named(told) for told in guest("langgraph", "langgraph_team.py", list(CASES.values()))]
    ours = [twin(case) for case in CASES.values()]
    assert dict(zip(CASES, ours, strict=True)) == dict(zip(CASES, theirs, strict=True))
    for case, told in zip(CASES.values(), ours, strict=True):
        assert told["handoffs"] == [name for name in case["choices"] if name != "nobody"]
        assert [who for who, _ in told["said"]] == ["user", *told["handoffs"], "answer"]
    report(
        "langgraph-supervisor",
        f"{len(CASES)} cases, {sum(len(each['handoffs']) for each in ours)} handoffs, the same",
    )
