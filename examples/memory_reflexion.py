"""Verbal feedback after a failure, as in Reflexion: a task that failed is tried again with a
reflection on the failure, which cites the validation that failed.

The actor sees the task and its memories, not the earlier trial. It stands for a model: it picks, by
a seed, one of the rules that agree with all that its prompt says. Validations run the rule.

`python examples/memory_reflexion.py` needs no key and no network, and prints:

    30 tasks; 0 passed at the first trial
    at the second: 19 with memory, 2 without
    in pairs: 17 only with it, 0 only without
    The rule 'half up' failed: f(-2.6) is -2, f(2.5) is 2, f(3.5) is 3.
    recalled after its rollback: 0
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from plait import Agent, Memory, ScriptedModel, Session, Workflow
from plait.event.kinds import Text, ValidationRecorded
from plait.model.base import OnDelta, Reply, Request, Returned
from plait.session.content import text_of

RULES: dict[str, Callable[[float], int]] = {
    "down": math.floor,
    "up": math.ceil,
    "to zero": math.trunc,
    "from zero": lambda x: math.floor(x) if x < 0 else math.ceil(x),
    "half up": lambda x: math.floor(x + 0.5),
    "half to even": round,
}
CASES = (2.5, 3.5, 2.4, -2.5, -2.6)


def chosen(seed: str, names: list[str]) -> str:
    """Pick a name by a seed."""
    return names[int(sha256(seed.encode()).hexdigest(), 16) % len(names)]


class Actor:
    """Stands for a model that guesses, and believes its prompt."""

    name = "actor"

    def __init__(self, task: int) -> None:
        self._task, self._asked = task, 0

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        texts = [text_of(turn.parts) for turn in request.turns if not isinstance(turn, Returned)]
        facts = re.findall(r"f\((-?[\d.]+)\) is (-?\d+)", "\n".join(texts))
        fitting = [name for name in RULES if all(RULES[name](float(x)) == int(y) for x, y in facts)]
        self._asked += 1
        return Reply((Text(chosen(f"{self._task} {self._asked}", fitting)),))


def reflect(session: Session) -> str:
    """Stand for a model that puts the failure before it into words."""
    failed: Any = verdicts(session)[-1].detail
    wanted = ", ".join(f"f({x}) is {y}" for x, y in failed["wanted"].items())
    return f"The rule '{failed['rule']}' failed: {wanted}."


class Reflexion(Workflow):
    """Tries a task twice. `memory=None`: without reflections."""

    def __init__(self, task: int, memory: Memory | None) -> None:
        self.task, self.memory = task, memory
        self.actor = Agent("Name the rule of f.", model=Actor(task), view=1, memory=memory)
        self.critic = Agent("Say what went wrong.", model=ScriptedModel(reflect))

    def forward(self, session: Session) -> Session:
        for _ in range(2):
            session = self.actor(session.say(f"Which rule has function f of task {self.task}?"))
            session = self.check(session)
            if verdicts(session)[-1].passed or self.memory is None:
                continue
            failed = session
            session = self.critic(session)
            # a failed attempt is active at once, in its session; a conclusion would have to wait
            session = self.memory.remember(session, session.text, kind="failure", evidence=failed)
        return session

    def check(self, session: Session) -> Session:
        """Validate the answer by running the rule."""
        answer, right = session.text, rule_of(self.task)
        values = {str(x): RULES[right](x) for x in CASES if RULES[answer](x) != RULES[right](x)}
        return session.checks.record(
            "trial", passed=not values, detail={"rule": answer, "wanted": values}
        )


def rule_of(task: int) -> str:
    """Return the hidden rule of a task: none that the actor guesses at first."""
    first = chosen(f"{task} 1", [*RULES])
    return chosen(f"rule {task}", [name for name in RULES if name != first])


def verdicts(session: Session) -> list[ValidationRecorded]:
    bodies = [event.body for event in session.events]
    return [body for body in bodies if isinstance(body, ValidationRecorded)]


def run_pairs(tasks: int, memory: Memory) -> list[tuple[Session, Session]]:
    """Run each task with memory and without, in a session of its own."""
    return [
        (
            Reflexion(task, memory)(Session(store="memory:reflexion")),
            Reflexion(task, None)(Session(store="memory:reflexion")),
        )
        for task in range(tasks)
    ]


def main() -> None:
    memory = Memory()
    pairs = run_pairs(30, memory)
    first = [verdicts(session)[0].passed for pair in pairs for session in pair]
    passed = [[verdicts(session)[1].passed for session in pair] for pair in pairs]
    only_with, only_without = passed.count([True, False]), passed.count([False, True])
    both = passed.count([True, True])
    print(f"30 tasks; {sum(first)} passed at the first trial")
    print(f"at the second: {only_with + both} with memory, {only_without + both} without")
    print(f"in pairs: {only_with} only with it, {only_without} only without")
    session, (hit, *_) = memory.recall(pairs[0][0], "which rule failed?")
    print(hit.text)
    memory.rollback(hit).apply(reason="the task has changed")
    session, hits = memory.recall(session, "which rule failed?")
    print(f"recalled after its rollback: {len(hits)}")


if __name__ == "__main__":
    main()
