"""Runs from the shell: `run`, `resume`, `replay`.

The result goes to stdout, the progress to stderr. Packages that act are imported inside the
commands: commands that only look do not wait for them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from plait.cli.accepting import resume_accepting
from plait.cli.attending import Do, RunAttendant, act_as
from plait.cli.common import (
    Options,
    approve_option,
    command_line,
    listing,
    pairs,
    parse_budget,
    quiet_option,
    running,
    text_of,
    value_of,
    workflow_option,
)
from plait.cli.consent import Mode, mode_of
from plait.cli.divergence import divergence_error, missing_program_error
from plait.cli.documents import print_json, print_jsonl
from plait.cli.exits import FAILED, INTERRUPTED, WAITING, ShellError
from plait.cli.loading import import_from_here, load_workflow
from plait.cli.render import ACCENT, BAD, DIM, Cell, Out, count_text
from plait.errors import InvalidValue, NeedsWorkflow, PlaitError, ReplayDiverged, RunHeld, RunOpen
from plait.ids import LogId
from plait.outline.documents import Document
from plait.runtime.live import Live
from plait.session import Session
from plait.session.inbox import due_roots
from plait.session.ports import store_at
from plait.session.status import interrupted_runs, sessions_with_left_turns
from plait.session.value import open_run_of
from plait.store import Store

if TYPE_CHECKING:
    from plait.workflow import Workflow


# ── run ──────────────────────────────────────────────────────────────────────────────────────


@click.command("run")
@click.argument("target", metavar="TARGET")
@click.option(
    "--input", "-i", "text", metavar="TEXT", help="What it is to do; - reads standard input."
)
@click.option("--session", "name", metavar="S", help="Go on in this session instead of a new one.")
@click.option("--title", default="", help="What the session is about.")
@click.option("--user", help="For whom.")
@click.option("--project", help="For what.")
@click.option("--tag", "tags", metavar="K=V", multiple=True, help="A tag; may be repeated.")
@click.option(
    "--model",
    metavar="NAME",
    help="Ask this model in every agent, as in openai:gpt-5; a,b: b if a is down.",
)
@click.option(
    "--arg",
    "arguments",
    metavar="NAME=JSON",
    multiple=True,
    help="What `forward` takes besides the session; may be repeated.",
)
@click.option(
    "--budget",
    metavar="LIMITS",
    help="As in tokens=200000,cost_usd=1.5,wall_s=600,steps=40,tool_calls=100.",
)
@approve_option
@quiet_option
@running
def run_command(
    given: Options,
    target: str,
    text: str | None,
    name: str | None,
    title: str,
    user: str | None,
    project: str | None,
    tags: Sequence[str],
    model: str | None,
    arguments: Sequence[str],
    budget: str | None,
    approve: Mode | None,
    quiet: bool,
) -> None:
    """Run a workflow, and print what it says in the end.

    TARGET is FILE.py:NAME or module:NAME: a class, an object, or a function that makes one. The
    session is kept, and can be resumed however the run stops. Exit codes: 4 if it waits for
    somebody, 5 if the budget is spent, 130 after Ctrl-C.
    """
    mode = mode_of(approve)
    act_as(given)
    program, more = load_workflow(target, model), _arguments(arguments)
    check_forward_arguments(program, more)
    if name is not None:
        if title or user or project or tags or budget:
            raise click.UsageError(
                "--title, --user, --project, --tag and --budget are for a new session: leave out"
                " --session, or them."
            )
        session = _continue_session(given, name, text)
    else:
        if text is None and not more:
            raise click.UsageError(
                "say what it is to do, -i TEXT, or in which session, --session S."
            )
        said = [] if text is None else [_require_text(text_of(text))]
        session = Session(
            *said,
            title=title,
            user=user,
            project=project,
            tags=pairs("--tag", tags),
            budget=parse_budget(budget),
            store=given.new_store,
            actor=given.actor_name,
        )
    RunAttendant(given, mode, quiet).attend_run(
        session,
        lambda watch: program(session, **watch, **more),
        again=f"plait run {shlex.quote(target)} --session",
    )


def _continue_session(given: Options, name: str, text: str | None) -> Session:
    session = given.open_last(name)
    if (run := open_run_of(session)) is not None:  # before anything is written to it
        resume = command_line(given, "resume", session.short)
        step = f"go on with it: {resume}; or without it: plait fork {session.short} LABEL"
        raise ShellError(
            RunOpen(session.short, run),
            [f"session {session.short} has an open run, {run[:13]}; {step}."],
        )
    return (
        session.say(_require_text(text_of(text)), actor=given.actor_name)
        if text is not None
        else session
    )


def _require_text(text: str) -> str:
    if not text:
        raise InvalidValue("input", "nothing is said", "pass a text")
    return text


def _arguments(given: Sequence[str]) -> dict[str, Any]:
    return {name: value_of(text) for name, text in pairs("--arg", given).items()}


def check_forward_arguments(program: Workflow, more: dict[str, Any]) -> None:
    """Refuse arguments that `forward` does not take, before anything is written."""
    import inspect

    from plait.workflow import original

    name = type(program).__name__
    forward = inspect.signature(original(type(program)))
    try:
        if taken := {"on_event", "approver", "answerer", "session"} & set(more):
            raise TypeError(f"{', '.join(sorted(taken))} cannot be given here")
        forward.bind(program, None, **more)
    except TypeError as error:
        raise InvalidValue(
            "--arg",
            f"{name}.forward{forward}: {error}",
            "pass what it takes besides the session: --arg NAME=JSON",
        ) from error


# ── resume ───────────────────────────────────────────────────────────────────────────────────


@click.command("resume")
@click.argument("name", metavar="[S]", required=False)
@workflow_option
@click.option(
    "--due",
    "all_due",
    is_flag=True,
    help="Every session whose time has come or whose answer is there, one after another.",
)
@click.option(
    "--interrupted",
    "all_interrupted",
    is_flag=True,
    help="Every session whose run is open, or in which messages wait, and no process is at it; with"
    " --due, both.",
)
@click.option(
    "--accept",
    metavar="REASON",
    help="Go on with a changed program, live from the first difference, which is printed.",
)
@approve_option
@quiet_option
@running
def resume_command(
    given: Options,
    name: str | None,
    target: str | None,
    all_due: bool,
    all_interrupted: bool,
    accept: str | None,
    approve: Mode | None,
    quiet: bool,
) -> None:
    """Take up a run that did not come to its end.

    After a crash, a failure, a pause, Ctrl-C or an answer. What is on record is not repeated. The
    program is found by what the run says of itself. Then messages to the session whose clients are
    gone are answered. Without S, the session written to last.
    """
    if (all_due or all_interrupted) and name is not None:
        raise click.UsageError(
            "--due and --interrupted find sessions by themselves: leave out S, or them."
        )
    if (all_due or all_interrupted) and accept is not None:
        raise click.UsageError(
            "--accept is for one session: name it, and leave out --due and --interrupted."
        )
    mode = mode_of(approve)
    act_as(given)
    import_from_here()
    program = load_workflow(target) if target is not None else None
    if all_due or all_interrupted:
        store = store_at(given.store)
        roots = [
            *(_due_roots(store) if all_due else ()),
            *(_interrupted_roots(store) if all_interrupted else ()),
        ]
        done = _resume_all(given, mode, quiet, program, list(dict.fromkeys(roots)), _resumer)
        is_stopped = any(each["status"] == "interrupted" for each in done)
        if all_interrupted and not is_stopped:
            # no run is open in these, and one that failed is not tried again
            left = sessions_with_left_turns(store)
            done += _resume_all(given, mode, quiet, program, left, _answerer)
        if given.form == "json":
            print_json({"resumed": done})
        if not done and given.form == "text":
            wanted = {"due": all_due, "interrupted": all_interrupted}
            names = " or ".join([name for name, is_wanted in wanted.items() if is_wanted])
            Out().line(Cell(f"nothing is {names}", DIM))
        _exit_after(done)
        return
    session = given.open(name or "@")
    attendant = RunAttendant(given, mode, quiet)
    if accept is None:
        attendant.attend_run(session, _resumer(session, program))
    else:
        resume_accepting(attendant, session, program, accept)


def _resumer(session: Session, program: Workflow | None) -> Do:
    from plait.runs.resume import resume

    return lambda watch: resume(session, program, **watch)


def _answerer(session: Session, program: Workflow | None) -> Do:
    from plait.runs.turn_drivers import answer_queue
    from plait.runtime.attendants import Watch

    return lambda watch: answer_queue(session, program, Watch(**watch))


def _due_roots(store: Store) -> list[LogId]:
    """Return the sessions whose runs could go on: a time is over, or an answer is there. A paused
    one is taken up by its name alone.
    """
    roots = due_roots(store, Live().now(LogId(""), 0))
    return [root for root in roots if Session.open(root, store=store).status != "paused"]


def _interrupted_roots(store: Store) -> list[LogId]:
    return [LogId(str(run["log"])) for run in interrupted_runs(store)]


def _resume_all(
    given: Options,
    mode: Mode,
    quiet: bool,
    program: Workflow | None,
    roots: list[LogId],
    act: Callable[[Session, Workflow | None], Do],
) -> list[Document]:
    """Resume these sessions, and return how each went. A failure of one does not keep the others
    from going on.
    """
    done = list[Document]()
    out = Out()
    for root in roots:
        session = Session.open(root, store=given.store)
        status, why = _resume_one(RunAttendant(given, mode, quiet), session, act(session, program))
        now = session.reload()
        done.append(
            {
                "session": now.id,
                "short": now.short,
                "place": now.seq,
                "status": status,
                "why": why,
            }
        )
        if given.form == "jsonl":
            print_jsonl([{"type": "resumed", **done[-1]}])
        if given.form == "text":
            style = BAD if status == "failed" else ""
            out.line(
                Cell(now.short, ACCENT), "  ", Cell(status, style), Cell(f"  {why}" if why else "")
            )
        if status == "interrupted":
            break
    return done


def _exit_after(done: list[Document]) -> None:
    """End with the exit code of the worst end among the resumed runs.

    A run that waits again is one of them: it needs a person, which cron has to tell.
    """
    states = {each["status"] for each in done}
    for status, code in (("interrupted", INTERRUPTED), ("failed", FAILED), ("waiting", WAITING)):
        if status in states:
            raise click.exceptions.Exit(code)


def _resume_one(running: RunAttendant, session: Session, do: Do) -> tuple[str, str]:
    try:
        outcome = running.attend(session, do)
    except RunHeld as error:
        return "held", f"by {error.holder}"
    except ShellError as told:
        return "failed", told.lines[0]
    except PlaitError as error:
        return "failed", error.record_text
    return outcome.status, outcome.why


# ── replay ───────────────────────────────────────────────────────────────────────────────────


@click.command("replay")
@click.argument("name", metavar="S")
@workflow_option
@listing
def replay_command(given: Options, name: str, target: str | None) -> None:
    """Go through the last run of a session by its record alone.

    Nothing is executed, nothing is written.

    The exit code is 7 if the program goes another way than the record.
    """
    from plait.runs.replay import replay

    import_from_here()
    session = given.open(name)
    program = load_workflow(target) if target is not None else None
    try:
        ended = replay(session, program)
    except ReplayDiverged as error:
        raise divergence_error(given, error) from error
    except NeedsWorkflow as error:
        raise missing_program_error(given, error) from error
    run = session.runs[-1]
    count = ended.seq - run.first + 1
    if given.form != "text":
        document = {
            "session": session.id,
            "run": run.id,
            "workflow": run.workflow,
            "events": count,
            "place": ended.seq,
            "head": ended.head,
        }
        print_json(document) if given.form == "json" else print_jsonl([document])
        return
    Out().line(
        f"replayed {count_text(count, 'event')} of run {run.id[:13]} ({run.workflow}): same head"
        f" {ended.head[:12]}, nothing executed"
    )
