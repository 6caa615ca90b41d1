"""The result of an evaluation, read from the logs of its sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from plait.errors import UnknownRevision
from plait.evals.intervals import TrialCounts, pass_power, wilson_interval
from plait.evals.scoring import scored_names
from plait.evals.trials import EvalPlan, evaluation_log, read_plan, trial_log
from plait.ids import LogId
from plait.outline.outlines import Outlines
from plait.outline.shapes import StepShape
from plait.outline.steps import step_shapes
from plait.session import Session
from plait.store import Store

TrialEnd = Literal["passed", "failed", "unfinished"]
# Steps that tell of the run and of scorers, not of the work.
BESIDE_WORK = frozenset({"run", "taken", "ended", "verdict", "life", "placement", "budget", "note"})
_UNFINISHED = ("running", "interrupted")


class PassRate(msgspec.Struct, frozen=True):
    """A rate, with Wilson's interval of 95 % over examples."""

    value: float
    low: float
    high: float


class EvalTrial(msgspec.Struct, frozen=True):
    """One session of an evaluation."""

    example: str
    number: int
    session: LogId
    end: TrialEnd
    run: str  # the status of its run; "": there is none yet
    verdicts: dict[str, bool]
    why: str  # it did not pass: the scorers that said no, or the end of its run
    last_step: str  # it did not pass: the last step before that; "": it passed
    cost_usd: float | None  # None: no price is known
    tokens: int
    steps: int  # asks of models, also those that a kill cut off
    tool_calls: int


class FailureGroup(msgspec.Struct, frozen=True):
    """Trials that did not pass, by their last step."""

    last_step: str
    count: int
    sessions: tuple[LogId, ...]


class Evaluation(msgspec.Struct, frozen=True):
    """An evaluation as its sessions tell it."""

    name: str
    session: LogId  # of its plan
    workflow: str
    k: int
    seed: int
    scorers: tuple[str, ...]
    examples: tuple[str, ...]
    trials: tuple[EvalTrial, ...]
    unfinished: int  # trials that are not done: evaluate again
    pass_at_1: PassRate | None  # None: trials are unfinished
    pass_power_k: PassRate | None  # that k trials of an example all pass
    scorer_rates: dict[str, float]  # of the trials that were scored
    cost_usd: float
    unpriced: int  # trials of which no price is known
    tokens: int
    steps: int
    tool_calls: int
    failures: tuple[FailureGroup, ...]  # the largest first

    def trials_by_example(self) -> dict[str, list[EvalTrial]]:
        """Return the trials of each example, in their order."""
        found = dict[str, list[EvalTrial]]()
        for each in self.trials:
            found.setdefault(each.example, []).append(each)
        return found


def counts_of(trials: Sequence[EvalTrial]) -> TrialCounts:
    return TrialCounts(len([each for each in trials if each.end == "passed"]), len(trials))


def read_evaluation(name: str, store: Store) -> Evaluation:
    """Return the evaluation of this name. Raises UnknownRevision if there is none."""
    plan = read_plan(store, name)
    if plan is None:
        raise UnknownRevision(name, f"there is no evaluation {name!r} in {store.address}")
    outlines = Outlines(store)
    logs = [
        (example, number, trial_log(store.id, name, example, number))
        for example, _ in plan.examples
        for number in range(1, plan.k + 1)
    ]
    known = store.heads([log for _, _, log in logs])
    trials = [
        _trial(outlines, plan, example, number, log)
        if log in known
        else EvalTrial(example, number, log, "unfinished", "", {}, "", "", 0.0, 0, 0, 0)
        for example, number, log in logs
    ]
    return _evaluation(name, evaluation_log(store.id, name), plan, trials)


def _trial(outlines: Outlines, plan: EvalPlan, example: str, number: int, log: LogId) -> EvalTrial:
    session = Session.open(log, store=outlines.store)
    runs = session.runs
    status, why = (runs[-1].status, runs[-1].why) if runs else ("", "")
    verdicts, spent = dict(scored_names(session)), session.budget.used
    end: TrialEnd = "failed"
    if status in ("", *_UNFINISHED):
        end = "unfinished"
    elif status == "finished":
        missing = set(plan.scorers) - set(verdicts)
        said_no = [name for name in plan.scorers if not verdicts.get(name, True)]
        why = ", ".join(said_no)
        if missing and session.status not in ("closed", "archived"):
            end = "unfinished"
        elif missing:
            why = "the run closed its session: no verdict can be given"
        else:
            end = "failed" if said_no else "passed"
    return EvalTrial(
        example,
        number,
        log,
        end,
        status,
        verdicts,
        "" if end != "failed" else why or status,
        "" if end != "failed" else last_step_text(outlines, log),
        spent.cost.dollars,
        spent.tokens,
        spent.model_calls,
        spent.tool_calls,
    )


def work_steps(outlines: Outlines, log: LogId) -> list[StepShape]:
    """Return the steps of a log that tell of the work."""
    record = outlines.record(log)
    steps = step_shapes(outlines, record, range(record.step_count))
    return [step for step in steps if step.type not in BESIDE_WORK]


def last_step_text(outlines: Outlines, log: LogId) -> str:
    """Return the sort of the last step: by it failures are grouped."""
    steps = work_steps(outlines, log)
    if not steps:
        return "nothing"
    last = steps[-1]
    words = f"{last.type} {last.verb}".strip() if last.verb != last.type else last.type
    code = f" with exit code {last.exit_code}" if last.exit_code else ""
    return words + ("" if last.state == "done" else f" ({last.state})") + code


def _evaluation(name: str, log: LogId, plan: EvalPlan, trials: Sequence[EvalTrial]) -> Evaluation:
    unfinished = len([each for each in trials if each.end == "unfinished"])
    parts = [trials[at : at + plan.k] for at in range(0, len(trials), plan.k)]
    by_example = [counts_of(part) for part in parts]
    scored = {
        scorer: [each.verdicts[scorer] for each in trials if scorer in each.verdicts]
        for scorer in plan.scorers
    }
    groups = dict[str, list[LogId]]()
    for each in trials:
        if each.end == "failed":
            groups.setdefault(each.last_step, []).append(each.session)
    failures = [FailureGroup(step, len(logs), tuple(logs)) for step, logs in groups.items()]
    return Evaluation(
        name,
        log,
        plan.workflow,
        plan.k,
        plan.seed,
        plan.scorers,
        tuple([example for example, _ in plan.examples]),
        tuple(trials),
        unfinished,
        None if unfinished else _rate(by_example, 1),
        None if unfinished else _rate(by_example, plan.k),
        {scorer: sum(said) / len(said) for scorer, said in scored.items() if said},
        sum([each.cost_usd or 0.0 for each in trials]),
        sum([each.cost_usd is None for each in trials]),
        sum([each.tokens for each in trials]),
        sum([each.steps for each in trials]),
        sum([each.tool_calls for each in trials]),
        tuple(sorted(failures, key=lambda each: (-each.count, each.last_step))),
    )


def _rate(counts: Sequence[TrialCounts], power: int) -> PassRate:
    value = pass_power(counts, power)
    return PassRate(value, *wilson_interval(value, len(counts)))
