"""A research agent: a baseline that really trains, two experiments as parallel forks, a verifier.

`python examples/research/research.py` needs scikit-learn and no key, and prints:

    baseline    validation 0.9577
    neighbors   validation 0.9868  because three neighbours bend where a line cannot
    svc         validation 0.9947  because a kernel bends everywhere, at some cost
    best        svc, because it has the highest validation
    held out    0.9574 before, 0.9889 after: passed
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

from plait import Agent, Budget, Parallel, ScriptedModel, Session, Workflow
from plait.event.kinds import FactRecorded
from plait.model.base import Model
from plait.tools import shell, write_file

WORK = Path(__file__).parent / "work"
SEED = 42
WANTED = 0.985
BASELINE = {"model": "logistic", "settings": {"max_iter": 5000}, "seed": SEED}


class Proposal(TypedDict):
    """The next experiment, and why it is worth its time."""

    settings: dict[str, int | float]
    reason: str


def metric_in(session: Session, path: str) -> float:
    """Return the metric that a program has left in the files."""
    return float(session.files.text(path))


class Train(Workflow):
    """Trains with the parameters that the plan has for its name, and records the metric."""

    def __init__(self, name: str) -> None:
        self.name = name

    def forward(self, session: Session) -> Session:
        plan: Any = session.facts[f"plan {self.name}"]
        folder = f"runs/{self.name}"
        written = json.dumps(plan, indent=1)
        session = session.use(write_file, path=f"{folder}/parameters.json", content=written)
        session = session.use(shell, command=f"python3 train.py {folder}")
        return session.fact(
            f"validation {self.name}", metric_in(session, f"{folder}/validation.json")
        )


class Verify(Workflow):
    """Measures on digits that no experiment has seen, and gives the verdict."""

    def forward(self, session: Session, best: str) -> Session:
        found = dict[str, float]()
        for name in ("baseline", best):
            session = session.use(shell, command=f"python3 train.py runs/{name} --held-out")
            found[name] = metric_in(session, f"runs/{name}/held-out.json")
            session = session.fact(f"held out {name}", found[name])
        passed = found[best] >= WANTED and found[best] > found["baseline"]
        shown = [effect.request for effect in session.effects[-2:]]
        return session.checks.record("held out", passed, detail=found[best], evidence=shown)


class Research(Workflow):
    def __init__(self, planning: Model | None = None) -> None:
        model = planning or ScriptedModel([*PROPOSALS.values()])
        self.planner = Agent("Propose one experiment.", model=model, returns=Proposal)
        self.baseline = Train("baseline")
        self.experiments = Parallel({name: Train(name) for name in PROPOSALS})
        self.verifier = Verify()

    def forward(self, session: Session) -> Session:
        session = session.to("local", str(WORK)).budget.grant(Budget(tool_calls_max=20))
        session = self.baseline(session.fact("plan baseline", BASELINE))
        for name in PROPOSALS:
            session = self.planner(session)
            proposed = session.result_as(Proposal)
            plan = {"model": name, "settings": proposed["settings"], "seed": SEED}
            session = session.decide(f"plan {name}", plan, reason=proposed["reason"])
        session = self.experiments(session)
        metrics: dict[str, Any] = {name: session.facts[f"validation {name}"] for name in PROPOSALS}
        best = max(metrics, key=lambda name: metrics[name])
        session = session.decide("best", best, reason="it has the highest validation")
        return self.verifier(session, best)


PROPOSALS = {
    "neighbors": '{"settings": {"n_neighbors": 3},'
    ' "reason": "three neighbours bend where a line cannot"}',
    "svc": '{"settings": {"gamma": 0.001, "C": 10},'
    ' "reason": "a kernel bends everywhere, at some cost"}',
}


def main() -> None:
    session = Research()(Session("Classify the digits better than the baseline."))
    facts: dict[str, Any] = dict(session.facts)
    decided = [event.body for event in session.events if isinstance(event.body, FactRecorded)]
    reasons = {body.key: body.reason for body in decided}
    print(f"baseline    validation {facts['validation baseline']:.4f}")
    for name in PROPOSALS:
        why = reasons[f"plan {name}"]
        print(f"{name:10}  validation {facts[f'validation {name}']:.4f}  because {why}")
    best = facts["best"]
    print(f"best        {best}, because {reasons['best']}")
    verdict = session.checks.verdicts[-1]
    before, after = facts["held out baseline"], facts[f"held out {best}"]
    how = "passed" if verdict.passed else "failed"
    print(f"held out    {before:.4f} before, {after:.4f} after: {how}")


if __name__ == "__main__":
    main()
