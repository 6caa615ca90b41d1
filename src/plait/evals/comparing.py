"""Two evaluations side by side, paired by example: which changed, where first, and whether the
second one is worse beyond noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plait.errors import InvalidValue
from plait.evals.intervals import TrialCounts, worse_chance
from plait.evals.results import EvalTrial, PassRate, counts_of, read_evaluation, work_steps
from plait.evals.trials import read_plan
from plait.ids import LogId
from plait.outline.outlines import Outlines
from plait.outline.shapes import StepShape
from plait.store import Store

ALPHA = 0.05


class StepSide(msgspec.Struct, frozen=True):
    """A step of one side, and the place at which it had happened."""

    session: LogId
    seq: int
    text: str


class FirstChange(msgspec.Struct, frozen=True):
    """The first step in which two trials of an example differ."""

    trial_a: int
    trial_b: int
    common_steps: int  # steps before it that are alike
    a: StepSide | None  # None: this side has no further step
    b: StepSide | None


class ExamplePair(msgspec.Struct, frozen=True):
    """An example whose trials passed more or less often on the second side."""

    example: str
    a: TrialCounts
    b: TrialCounts
    first_change: FirstChange | None  # None: all steps are alike


class EvaluationDiff(msgspec.Struct, frozen=True):
    """Two evaluations, compared by the examples that both have."""

    a: str
    b: str
    pairs: int  # examples that both have
    only_a: tuple[str, ...]  # examples that the other has not, or has with another row
    only_b: tuple[str, ...]
    pass_at_1_a: PassRate
    pass_at_1_b: PassRate
    worse: tuple[ExamplePair, ...]
    better: tuple[ExamplePair, ...]
    cost_usd: tuple[float, float]
    steps: tuple[int, int]
    chance: float  # that B passes as seldom as this, or less often, if A and B are the same
    alpha: float
    is_worse: bool  # B passes less often than A, and `chance` is at most `alpha`


def compare_evaluations(a: str, b: str, store: Store, alpha: float = ALPHA) -> EvaluationDiff:
    """Compare two evaluations of a store. Raises InvalidValue if one is not done, or if no example
    is in both.
    """
    if isinstance(alpha, bool) or not 0 < alpha < 1:
        raise InvalidValue("alpha", f"{alpha!r:.60} is not a level", "pass one between 0 and 1")
    left, right = read_evaluation(a, store), read_evaluation(b, store)
    for each in (left, right):
        if each.unfinished:
            why = f"{each.unfinished} of {len(each.trials)} trials of {each.name} are not done"
            step = f"go on with it: plait eval DATASET WORKFLOW --name {each.name}"
            raise InvalidValue("evaluation", why, step)
    mine, theirs = (_rows(name, store) for name in (a, b))
    both = [example for example in mine if mine[example] == theirs.get(example)]
    if not both:
        why = f"{a} and {b} have no example in common"
        raise InvalidValue("evaluation", why, "compare evaluations of one dataset")
    ours, others = left.trials_by_example(), right.trials_by_example()
    counts = {each: (counts_of(ours[each]), counts_of(others[each])) for each in both}
    outlines = Outlines(store)
    changed = {
        example: one.passed / one.count - other.passed / other.count
        for example, (one, other) in counts.items()
    }
    chance = worse_chance(list(counts.values()))
    pairs = {
        example: ExamplePair(
            example,
            *counts[example],
            _first_change(outlines, ours[example], others[example], by > 0),
        )
        for example, by in changed.items()
        if by
    }
    is_less = sum(changed.values()) > 0
    assert left.pass_at_1 is not None and right.pass_at_1 is not None
    return EvaluationDiff(
        a,
        b,
        len(both),
        tuple([each for each in mine if each not in counts]),
        tuple([each for each in theirs if each not in counts]),
        left.pass_at_1,
        right.pass_at_1,
        tuple([pair for example, pair in pairs.items() if changed[example] > 0]),
        tuple([pair for example, pair in pairs.items() if changed[example] < 0]),
        (left.cost_usd, right.cost_usd),
        (left.steps, right.steps),
        chance,
        alpha,
        is_less and chance <= alpha,
    )


def _rows(name: str, store: Store) -> dict[str, str]:
    """Return the examples of an evaluation, each with the digest of its row."""
    plan = read_plan(store, name)
    return dict(plan.examples) if plan is not None else {}


def _first_change(
    outlines: Outlines, mine: Sequence[EvalTrial], theirs: Sequence[EvalTrial], is_worse: bool
) -> FirstChange | None:
    """Compare the first two trials of an example of which one passed, the first one if the second
    side is worse: of the same number, if there are such.
    """
    choices = [
        (one.number != other.number, one.number, other.number, one, other)
        for one in mine
        for other in theirs
        if one.end != other.end and (one.end == "passed") == is_worse
    ]
    *_, one, other = min(choices, key=lambda each: each[:3])
    return _compare_trials(outlines, one, other)


def _compare_trials(outlines: Outlines, one: EvalTrial, other: EvalTrial) -> FirstChange | None:
    mine, theirs = (work_steps(outlines, each.session) for each in (one, other))
    length = max(len(mine), len(theirs))
    for at in range(length):
        a = mine[at] if at < len(mine) else None
        b = theirs[at] if at < len(theirs) else None
        if a is None or b is None or _words(a) != _words(b):
            return FirstChange(one.number, other.number, at, _side(a), _side(b))
    return None


def _words(step: StepShape) -> tuple[object, ...]:
    return step.type, step.verb, step.subject, step.says, step.state, step.exit_code


def _side(step: StepShape | None) -> StepSide | None:
    if step is None:
        return None
    words = [step.verb or step.type, step.subject, step.says]
    return StepSide(step.log, step.seq, " ".join([word for word in words if word]))
