"""Evaluate a workflow on examples: every trial in a session of its own, scored by verdicts.

Nothing is kept but the sessions. A process that goes on with an evaluation finds each trial as it
stands: not begun, with an open run, ended and not scored, or done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from plait.errors import InvalidValue
from plait.evals.dataset import EvalExample, read_dataset
from plait.evals.results import Evaluation, read_evaluation
from plait.evals.scoring import Scorer, score_trial, scorer_names
from plait.evals.trials import (
    EvalPlan,
    check_evaluation_name,
    check_plan,
    open_trial,
    read_plan,
    write_plan,
)
from plait.event.kinds import Budget
from plait.inside import Stop
from plait.journal.writer import direct_writer
from plait.program import check_arguments
from plait.runs.resume import resume
from plait.runtime.executing import executing
from plait.session import Session
from plait.session.arguments import check_budget
from plait.session.finding import address_of
from plait.store import Store
from plait.workflow import Workflow, target_of

K_MAX, JOBS_MAX = 1000, 256
_ENDS = ("finished", "failed", "cancelled", "waiting", "paused")
OnTrial = Callable[[Session, int, int], None]  # a trial that is done, its number, and of how many


class _DueTrial(NamedTuple):
    example: EvalExample
    number: int


def evaluate(
    examples: str | Path | Iterable[Mapping[str, Any]],
    workflow: Workflow | Callable[[], Workflow],
    *,
    scorers: Sequence[Scorer],
    name: str = "main",
    k: int = 1,
    jobs: int = 1,
    seed: int = 0,
    budget: Budget | None = None,
    store: str | Path | Store | None = None,
    on_trial: OnTrial | None = None,
) -> Evaluation:
    """Run a workflow on each example `k` times, score each session, and return the result.

    `examples` is a file of JSON lines, or rows: `{"id": …, "input": …}`, with `args` for `forward`
    and any other fields for scorers (`trial_of(session).row`). `workflow` is best a class or a
    function that makes one, which is called for each trial; an object is shared by all.

    The same call goes on with an evaluation of this name that did not come to its end. Everything
    is checked before the first session is opened. A run that fails, waits or is cancelled is a
    trial that did not pass; it is not tried again.
    """
    for what, value, most in (("k", k, K_MAX), ("jobs", jobs, JOBS_MAX)):
        is_whole = isinstance(value, int) and not isinstance(value, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_whole or not 1 <= value <= most:
            raise InvalidValue(what, f"{value!r:.60} is not one", f"pass 1 to {most}")
    if executing() is not None:
        why = "this is code of a run, and a resume of it would evaluate again"
        raise InvalidValue("evaluate", why, "evaluate from outside of runs")
    names = scorer_names(scorers)
    check_evaluation_name(name, names)
    check_budget(budget)
    dataset = read_dataset(examples)
    first = _make_program(workflow)
    for example in dataset:
        check_arguments(first, (), example.args)
    plan = EvalPlan(
        _name_of(first), k, seed, names, tuple([(each.id, each.digest) for each in dataset])
    )
    opened = direct_writer().store(address_of(store))
    if (before := read_plan(opened, name)) is not None:
        check_plan(before, plan, name)
    write_plan(opened, name, plan)
    scoring = dict(zip(names, scorers, strict=True))
    total, done = len(dataset) * k, 0

    def run_trial(trial: _DueTrial) -> None:
        nonlocal done
        session = open_trial(opened, name, trial.example, trial.number, seed, budget)
        session = _run(session, workflow, trial.example.args)
        if session.runs[-1].status == "finished" and session.status not in ("closed", "archived"):
            session = score_trial(session, scoring)
        done += 1
        if on_trial is not None:
            on_trial(session, done, total)

    _run_all([_DueTrial(each, n) for n in range(1, k + 1) for each in dataset], run_trial, jobs)
    return read_evaluation(name, opened)


def _make_program(workflow: object) -> Workflow:
    made = workflow if isinstance(workflow, Workflow) or not callable(workflow) else workflow()
    if not isinstance(made, Workflow):
        why = f"a {type(made).__name__} is not a workflow"
        raise InvalidValue("workflow", why, "pass a Workflow, or a function that makes one")
    return made


def _name_of(program: Workflow) -> str:
    """Return the name of a program that stays the same where its file lies elsewhere."""
    target, kind = target_of(program), type(program)
    return target.get("name") or kind.__qualname__


def _run(session: Session, workflow: object, args: Mapping[str, Any]) -> Session:
    """Bring the run of a trial to its end, or as far as it goes."""
    runs = session.runs
    if runs and runs[-1].status in _ENDS[:3]:
        return session
    program: Any = _make_program(workflow)
    try:
        if not runs:
            program(session, **args)
        else:
            resume(session, program)
    except (Stop, Exception):
        runs = session.reload().runs
        if not runs or runs[-1].status not in _ENDS:  # it is no end of a run, but of this process
            raise
    return session.reload()


def _run_all(
    trials: Sequence[_DueTrial], run_trial: Callable[[_DueTrial], None], jobs: int
) -> None:
    """Run the trials, so many at a time. The first error ends it: what has begun is finished."""
    if jobs == 1:
        for trial in trials:
            run_trial(trial)
        return
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="plait-eval")
    try:
        futures = [pool.submit(run_trial, trial) for trial in trials]
        over, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in over:
            if not future.cancelled() and (error := future.exception()) is not None:
                raise error
    finally:
        pool.shutdown(cancel_futures=True)
