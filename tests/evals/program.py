"""A workflow with an agent and a tool, its scorers, and a program that kills itself at a moment.

`python -m tests.evals.program STORE EFFECTS KILL_AT JOBS` evaluates it; 0 kills nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.evals import Evaluation, ScorerVerdict, evaluate, trial_of

ROWS = [{"id": f"e{n}", "input": f"{n} + 2", "expected": n + 2} for n in range(1, 7)]


class Moments:
    """Counts the moments of this process, and kills it at one of them."""

    left = 0  # 0: never
    effects: Path | None = None  # None: the tool leaves nothing


def moment() -> None:
    if Moments.left:
        Moments.left -= 1
        if not Moments.left:
            os.kill(os.getpid(), signal.SIGKILL)


@tool(effect="idempotent")
def add(key: str, left: int, right: int) -> int:
    """Add two numbers, and leave a line about it."""
    moment()
    if Moments.effects is not None:
        with Moments.effects.open("a") as file:
            file.write(f"{key}\n")
    return left + right


def answer(session: Session) -> str | ToolCall:
    """Call the tool, then say its result; every fifth seed is off by one."""
    moment()
    trial = trial_of(session)
    if not session.effects:
        left, right = session.messages[0].text.split(" + ")
        key = f"{trial.example}#{trial.number}"
        return ToolCall("add", key=key, left=int(left), right=int(right))
    return str(session.effects[-1].result + (trial.seed % 5 == 0))


class Adder(Workflow):
    def __init__(self) -> None:
        self.agent = Agent("Add.", model=ScriptedModel(answer), tools=[add])

    def forward(self, session: Session) -> Session:
        moment()
        return self.agent(session)


def score_sum(session: Session) -> ScorerVerdict:
    moment()
    expected = str(trial_of(session).row["expected"])
    return ScorerVerdict(
        session.text == expected, {"expected": expected}, session.effects[-1].outcome or ()
    )


def score_brief(session: Session) -> bool:
    moment()
    return len(session.text) < 4


def document_of(found: Evaluation) -> Any:
    """Return an evaluation without its name and the ids of its sessions."""
    document = msgspec.to_builtins(found)
    document = {name: document[name] for name in document if name not in ("name", "session")}
    for part in (*document["trials"], *document["failures"]):
        part.pop("session", None)
        part.pop("sessions", None)
    return document


def main() -> None:
    store, effects, kill_at, jobs = sys.argv[1:]
    Moments.left, Moments.effects = int(kill_at), Path(effects)
    scorers = [score_sum, score_brief]
    found = evaluate(
        ROWS, Adder, scorers=scorers, name="main", k=2, jobs=int(jobs), seed=7, store=store
    )
    print(json.dumps(document_of(found)))


if __name__ == "__main__":
    main()
