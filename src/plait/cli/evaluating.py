"""`plait eval`: a workflow on the examples of a dataset, and two evaluations side by side."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
import msgspec

from plait.cli.common import Options, acting_command, parse_budget, quiet_option, store_option
from plait.cli.documents import print_json
from plait.cli.exits import FAILED
from plait.cli.loading import import_from_here, load_function, load_workflow, loading_errors
from plait.cli.render import ACCENT, BAD, DIM, Cell, Column, Out, count_text
from plait.errors import InvalidValue
from plait.ids import LogId, short
from plait.session import Session
from plait.session.ports import store_at
from plait.session.state import dollars_text

if TYPE_CHECKING:
    from plait.evals import Evaluation, EvaluationDiff, PassRate
    from plait.evals.comparing import ExamplePair, StepSide

_PREFIX = "score_"  # of the functions beside a workflow that score it
_EXAMPLES_MAX = 20  # lines about examples that changed


class _EvalGroup(click.Group):
    """A group whose first command need not be named: `plait eval DATASET WORKFLOW`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("eval", cls=_EvalGroup)
def eval_group() -> None:
    """Evaluate a workflow on a dataset: run, show, diff.

    `plait eval DATASET WORKFLOW` is `plait eval run DATASET WORKFLOW`.
    """


@eval_group.command("run")
@click.argument("dataset", metavar="DATASET", type=click.Path(path_type=Path))
@click.argument("target", metavar="WORKFLOW")
@click.option("--k", "k", type=int, default=1, metavar="N", help="Trials of each example; else 1.")
@click.option("--jobs", type=int, default=1, metavar="N", help="Trials at a time; else 1.")
@click.option("--name", default="main", metavar="NAME", help="Of the evaluation; else main.")
@click.option(
    "--scorer",
    "scorers",
    metavar="NAME",
    multiple=True,
    help="A function beside the workflow, or FILE.py:NAME; may be repeated. Else every function"
    f" {_PREFIX}… beside the workflow.",
)
@click.option("--seed", type=int, default=0, metavar="N", help="Trials get theirs from it; else 0.")
@click.option("--model", metavar="NAME", help="Ask this model in every agent.")
@click.option("--budget", metavar="LIMITS", help="Of each trial, as in tokens=20000,steps=40.")
@quiet_option
@acting_command
def eval_run(
    given: Options,
    dataset: Path,
    target: str,
    k: int,
    jobs: int,
    name: str,
    scorers: Sequence[str],
    seed: int,
    model: str | None,
    budget: str | None,
    quiet: bool,
) -> None:
    """Run WORKFLOW on each example of DATASET, and score each session.

    DATASET is a file of JSON lines: {"id": …, "input": …}, with "args" for `forward`, and other
    fields for scorers. An evaluation of this name that was ended goes on where it was.
    """
    from plait.evals import evaluate

    make = partial(load_workflow, target, model)
    make()  # one that cannot be made is refused here, in words
    functions = _scorers(target, scorers)
    out = Out(stderr=True)

    def tell_trial(session: Session, done: int, total: int) -> None:
        out.line(
            Cell(f"{done:>{len(str(total))}}/{total}  ", DIM),
            Cell(session.short, ACCENT),
            f"  {session.title}",
        )

    found = evaluate(
        dataset,
        make,
        scorers=functions,
        name=name,
        k=k,
        jobs=jobs,
        seed=seed,
        budget=parse_budget(budget),
        store=given.new_store,
        on_trial=None if quiet or given.form != "text" else tell_trial,
    )
    _print_evaluation(given, found)


def _scorers(target: str, names: Sequence[str]) -> list[Callable[..., Any]]:
    """Return the scorers that are named, else those that stand beside the workflow."""
    where = target.rpartition(":")[0]
    if names:
        wanted = [name if ":" in name else f"{where}:{name}" for name in names]
        return [load_function(each, "scorer") for each in wanted]
    from plait.program import find_code

    import_from_here()
    with loading_errors(target, "workflow"):
        module: ModuleType = find_code(where, "")
    found = [
        value
        for name, value in vars(module).items()
        if name.startswith(_PREFIX) and inspect.isfunction(value)
    ]
    if not found:
        why = f"{where} has no function that begins with {_PREFIX}"
        step = f"write def {_PREFIX}NAME(session): return …, or pass --scorer FILE.py:NAME"
        raise InvalidValue("scorers", why, step)
    return found


@eval_group.command("show")
@click.argument("name", metavar="NAME", default="main")
@acting_command
def eval_show(given: Options, name: str) -> None:
    """Show the result of an evaluation, as its sessions tell it."""
    from plait.evals import read_evaluation

    _print_evaluation(given, read_evaluation(name, store_at(given.store)))


def _print_evaluation(given: Options, found: Evaluation) -> None:
    if given.form != "text":
        print_json(msgspec.to_builtins(found))
        return
    out = Out()
    out.line(
        Cell(found.name, ACCENT),
        f"  {found.workflow}, {count_text(len(found.examples), 'example')}, k = {found.k}",
    )
    if found.pass_at_1 is not None and found.pass_power_k is not None:
        out.line(f"pass@1  {_rate_text(found.pass_at_1)}")
        out.line(f"pass^{found.k}  {_rate_text(found.pass_power_k)}")
    else:
        out.line(Cell(f"{count_text(found.unfinished, 'trial')} not done", BAD))
    for scorer, rate in found.scorer_rates.items():
        out.line(f"{scorer}  {rate:.1%} of trials")
    cost = dollars_text(found.cost_usd)
    more = f", {count_text(found.unpriced, 'trial')} without a price" if found.unpriced else ""
    out.line(f"cost {cost}{more}, {found.tokens:,} tokens")
    out.line(f"{count_text(found.steps, 'step')}, {count_text(found.tool_calls, 'tool call')}")
    if found.failures:
        out.heading("failures by their last step")
        rows = [
            [Cell(str(each.count)), Cell(each.last_step, BAD), Cell(_sessions_text(each.sessions))]
            for each in found.failures
        ]
        out.table([Column("trials"), Column("last step"), Column("sessions")], rows)
        out.hint(f"plait log {short(found.failures[0].sessions[0])} --steps{store_option(given)}")


def _sessions_text(logs: Sequence[LogId]) -> str:
    return " ".join([short(log) for log in logs[:5]]) + (" …" if len(logs) > 5 else "")


def _rate_text(rate: PassRate) -> str:
    return f"{rate.value:.1%}  ({rate.low:.1%} to {rate.high:.1%})"


@eval_group.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--alpha",
    type=float,
    default=0.05,
    metavar="P",
    help="B is worse if chance makes it so with at most this probability; else 0.05.",
)
@acting_command
def eval_diff(given: Options, a: str, b: str, alpha: float) -> None:
    """Compare two evaluations, paired by example: what changed, and where first.

    The exit code is 1 if B is worse than A beyond noise.
    """
    from plait.evals import compare_evaluations

    found = compare_evaluations(a, b, store_at(given.store), alpha)
    if given.form != "text":
        print_json(msgspec.to_builtins(found))
    else:
        _print_diff(given, found)
    if found.is_worse:
        raise click.exceptions.Exit(FAILED)


def _print_diff(given: Options, found: EvaluationDiff) -> None:
    out = Out()
    for name, rate in ((found.a, found.pass_at_1_a), (found.b, found.pass_at_1_b)):
        out.line(Cell(name, ACCENT), f"  pass@1  {_rate_text(rate)}")
    unpaired = len(found.only_a) + len(found.only_b)
    more = f", {unpaired:,} in one alone or with other rows" if unpaired else ""
    out.line(
        f"{count_text(found.pairs, 'example')} in both{more}: {len(found.worse)} worse,"
        f" {len(found.better)} better"
    )
    for word, pairs, style in (("worse", found.worse, BAD), ("better", found.better, "green")):
        for pair in pairs[:_EXAMPLES_MAX]:
            _print_pair(out, word, pair, style)
        if len(pairs) > _EXAMPLES_MAX:
            out.hint(f"… and {len(pairs) - _EXAMPLES_MAX:,} more that are {word}: --json")
    verdict = "worse beyond noise" if found.is_worse else "not worse beyond noise"
    out.line(
        Cell(f"{found.b} is {verdict}", BAD if found.is_worse else ""),
        Cell(f"  (p = {found.chance:.3g}, level {found.alpha:g})", DIM),
    )
    changed = (*found.worse, *found.better)
    change = changed[0].first_change if changed else None
    if change is not None and change.a is not None and change.b is not None:
        names = f"{short(change.a.session)} {short(change.b.session)}"
        out.hint(f"plait diff {names}{store_option(given)}")


def _print_pair(out: Out, word: str, pair: ExamplePair, style: str) -> None:
    counts = f"{pair.a.passed}/{pair.a.count} to {pair.b.passed}/{pair.b.count}"
    out.line("  ", Cell(word, style), f"  {pair.example}  {counts}")
    change = pair.first_change
    if change is None:
        out.line(Cell("    all steps are alike", DIM))
        return
    out.line(Cell(f"    first change after {count_text(change.common_steps, 'step')}:", DIM))
    for side, name in ((change.a, "A"), (change.b, "B")):
        out.line(f"    {name} {_side_text(side)}")


def _side_text(side: StepSide | None) -> str:
    return "(nothing more)" if side is None else f"{short(side.session)}@{side.seq}  {side.text}"
