"""Runs from the shell: `run`, `resume`, `replay`, `whatif`.

What a run says in the end goes to stdout, everything about how it goes to stderr. However it stops,
the session is there and the command that goes on is named. What acts is imported inside the
commands: whoever only looks need not wait for it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import click

from plait.cli.common import (
    Given,
    address_of,
    is_number,
    listing,
    pairs,
    text_of,
    value_of,
    writing,
)
from plait.cli.consent import Mode, mode_of, watch_of
from plait.cli.documents import Document, diff_document, print_json, print_jsonl, session_document
from plait.cli.exits import (
    DIVERGED,
    FAILED,
    INTERRUPTED,
    NO_BUDGET,
    NOT_FOUND,
    WAITING,
    Told,
    code_of,
)
from plait.cli.inbox import hints_of, print_ask, waiting_document
from plait.cli.progress import Progress
from plait.cli.render import ACCENT, BAD, DIM, Cell, Out, cell_width, counted
from plait.cli.terminal import clean, cut, visible
from plait.cli.tracing import print_diff
from plait.errors import (
    InvalidInput,
    InvalidValue,
    NeedsWorkflow,
    PlaitError,
    ReplayDiverged,
    RunHeld,
    RunOpen,
)
from plait.event.kinds import Budget
from plait.event.strict import parse
from plait.ids import LogId
from plait.runtime.live import Live
from plait.session import Session, Waiting
from plait.session.inbox import all_waiting, due, root_of
from plait.session.ports import store_at
from plait.session.saying import saying
from plait.session.value import open_run_of

if TYPE_CHECKING:
    from plait.workflow import Workflow

Status = Literal["finished", "waiting", "failed", "cancelled", "interrupted"]
Do = Callable[[Mapping[str, Any]], Session]  # given who attends it: on_event, approver, answerer
LIMITS = tuple(name.removesuffix("_max") for name in Budget.__struct_fields__)

# ── options ──────────────────────────────────────────────────────────────────────────────────

_approve = click.option(
    "--approve",
    type=click.Choice(["ask", "park", "all"]),
    help=(
        "How consent is got: ask at the terminal (as a rule, if there is one), park the run until"
        " `plait approve`, or allow all unseen."
    ),
)
_quiet = click.option("--quiet", "-q", is_flag=True, help="Tell nothing while it runs.")
_workflow = click.option(
    "--workflow",
    "target",
    metavar="TARGET",
    help="The program, FILE.py:NAME or module:NAME, if it is not where it was.",
)


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
@click.option("--model", metavar="NAME", help="Ask this model in every agent, as in openai:gpt-5.")
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
@_approve
@_quiet
@writing
def run_command(
    given: Given,
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
    _act_as(given)
    program, more = _loaded(target, model), _arguments(arguments)
    _check_arguments(program, more)
    if name is not None:
        if title or user or project or tags or budget:
            raise click.UsageError(
                "--title, --user, --project, --tag and --budget are for a new session: leave out"
                " --session, or them."
            )
        session = _gone_on(given, name, text)
    else:
        if text is None and not more:
            raise click.UsageError(
                "say what it is to do, -i TEXT, or in which session, --session S."
            )
        said = [] if text is None else [_nonempty(text_of(text))]
        session = Session(
            *said,
            title=title,
            user=user,
            project=project,
            tags=pairs("--tag", tags),
            budget=parse_budget(budget),
            store=address_of(given.address),
            actor=given.who,
        )
    _Running(given, mode, quiet).go(
        session,
        lambda watch: program(session, **watch, **more),
        again=f"plait run {shlex.quote(target)} --session",
    )


def _gone_on(given: Given, name: str, text: str | None) -> Session:
    session = given.open_last(name)
    if (run := open_run_of(session)) is not None:  # before anything is said in it
        step = (
            f"go on with it: {_command(given, 'resume', session.short)}; or without it: plait fork"
            f" {session.short} LABEL"
        )
        raise Told(
            RunOpen(session.short, run),
            [f"session {session.short} has an open run, {run[:13]}; {step}."],
        )
    return session.say(_nonempty(text_of(text)), actor=given.who) if text is not None else session


def _nonempty(text: str) -> str:
    if not text:
        raise InvalidValue("input", "nothing is said", "pass a text")
    return text


def parse_budget(text: str | None) -> Budget | None:
    if text is None:
        return None
    found: dict[str, Any] = {}
    for name, limit in pairs("--budget", text.split(",")).items():
        value = value_of(limit)
        if name not in LIMITS:
            raise InvalidValue(
                "--budget", f"there is no limit {name!r}", f"name some of {', '.join(LIMITS)}"
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidValue("--budget", f"{limit!r} is not a number", f"write {name}=NUMBER")
        found[f"{name}_max"] = value
    return Budget(**found)


def _arguments(given: Sequence[str]) -> dict[str, Any]:
    return {name: value_of(text) for name, text in pairs("--arg", given).items()}


def _check_arguments(program: Workflow, more: dict[str, Any]) -> None:
    """What `forward` does not take is said before anything is written."""
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


# ── the program ──────────────────────────────────────────────────────────────────────────────


def _loaded(target: str, model: str | None = None) -> Workflow:
    """The workflow that is named; if there is none, what to do about it."""
    from plait.durable import load
    from plait.model import find
    from plait.workflow import name_target, target_of

    _import_from_here()
    where = target.rpartition(":")[0]
    try:
        program = load(target)
    except PlaitError:
        raise
    except SystemExit as error:
        raise InvalidValue(
            "workflow", f"{where} ends the program when it is loaded", _MAIN
        ) from error
    except SyntaxError as error:
        _debug(error)
        at = f"{_brief(error.filename or where)}, line {error.lineno}"
        raise InvalidValue(
            "workflow", f"{at}: {error.msg}", "correct the file and run it again"
        ) from error
    except ImportError as error:
        _debug(error)
        raise _not_imported(where, error) from error
    except Exception as error:
        _debug(error)
        # the call itself did not fit
        if isinstance(error, TypeError) and _innermost(error) == "load":
            step = (
                "write a function that makes it, def make(): return …, and name that: FILE.py:make"
            )
            raise InvalidValue(
                "workflow", f"{target} cannot be made without arguments: {error}", step
            ) from error
        raise InvalidValue(
            "workflow", f"{target} cannot be loaded: {_told(error)}", "correct it and run it again"
        ) from error
    if model is not None:
        find(model)  # what no model is called is said before anything is written
        program.to(model=model)
        # whoever takes the run up again asks the same
        name_target(program, {**target_of(program), "model": model})
    return program


_MAIN = "put what a script does under if __name__ == '__main__':"


def _not_imported(where: str, error: ImportError) -> InvalidValue:
    missing = error.name or ""
    if isinstance(error, ModuleNotFoundError) and (
        where == missing or where.startswith(f"{missing}.")
    ):
        return InvalidValue(
            "workflow",
            f"there is no module {missing!r}",
            "name a file, FILE.py:NAME, or go to the folder it is in",
        )
    return InvalidValue(
        "workflow",
        f"{where} cannot be imported: {_told(error)}",
        "install what it needs, or correct it",
    )


def _import_from_here() -> None:
    """Let modules in the current folder be found, though none in place of one of the standard
    library.
    """
    from plait.program import add_to_path

    add_to_path(os.getcwd())


def _act_as(given: Given) -> None:
    """A run acts on behalf of whoever this process belongs to."""
    if given.actor is not None:
        os.environ["PLAIT_ACTOR"] = given.actor


def _innermost(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].name if frames else ""


def _told(error: BaseException) -> str:
    """An error in a line, with the place in the program, not in ours, that it came from."""
    import traceback

    ours = str(Path(__file__).parent.parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<frozen"))
    ]
    at = f" ({_brief(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{at}"


def _brief(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _debug(error: BaseException) -> None:
    """With PLAIT_DEBUG=1 the whole way an error came."""
    if os.environ.get("PLAIT_DEBUG") == "1":
        import traceback

        click.echo(clean("".join(traceback.format_exception(error)), lines=True), err=True)


# ── how a run stops ──────────────────────────────────────────────────────────────────────────


class Outcome(NamedTuple):
    status: Status
    session: Session
    why: str = ""
    error: BaseException | None = None


def _command(given: Given, verb: str, *words: str) -> str:
    """A command as it has to be typed here."""
    where = ["--store", shlex.quote(given.address)] if given.address is not None else []
    return " ".join(["plait", verb, *words, *where])


class _Running:
    """One run, or several after one another, attended from the shell."""

    def __init__(self, given: Given, mode: Mode, quiet: bool) -> None:
        self.given: Given = given
        self.mode: Mode = mode
        self.quiet, self.mute = quiet, quiet or given.form != "text"
        self.progress = Progress(self.mute)

    def go(
        self,
        session: Session,
        do: Do,
        again: str = "",
        show: Callable[[Session], None] | None = None,
        now: Callable[[], Session] | None = None,
    ) -> None:
        """Run it, say what came of it, and end with the code for that.

        `now`: where it stands, if not in the session itself.
        """
        outcome = self.attend(session, do, now)
        match outcome.status:
            case "finished":
                (show or self._finished)(outcome.session)
                self._cut_short(outcome.session)
            case "waiting":
                self._waiting(outcome)
            case "interrupted":
                self._interrupted(outcome, again)
            case _:
                self._failed(outcome)

    def attend(self, session: Session, do: Do, now: Callable[[], Session] | None = None) -> Outcome:
        from plait.runtime.stops import Cancelled, Parked

        now = now or session.reload
        before = session.reload()
        with self.progress as progress:
            try:
                return Outcome(
                    "finished", do(watch_of(self.mode, progress, session, self.given.who))
                )
            except KeyboardInterrupt as error:
                return Outcome("interrupted", now(), error=error)
            except Parked as parked:
                return Outcome("waiting", parked.session, parked.why)
            except Cancelled as cancelled:
                return Outcome("cancelled", now(), f"it was cancelled: {cancelled}", cancelled)
            except ReplayDiverged as error:
                raise told_diverged(self.given, error) from error
            except NeedsWorkflow as error:
                raise _told_needs(self.given, error) from error
            except Exception as error:
                after = now()
                if isinstance(error, PlaitError) and after == before:
                    raise  # refused before anything happened
                _debug(error)
                return Outcome("failed", after, _told(error), error)

    # ── what is said ─────────────────────────────────────────────────────────────────────────

    def _finished(self, session: Session) -> None:
        text = said_by(session)
        if self.given.form == "json":
            print_json(
                {
                    "status": "finished",
                    "session": session_document(session),
                    "text": text,
                    "used": self.progress.document(),
                }
            )
            return
        if text:
            click.echo(clean(text, lines=True))
        self.sum_up(session)

    def _cut_short(self, session: Session) -> None:
        """Whoever comes to the end of a budget ends well, with an answer; whoever called it must
        still know.
        """
        runs = session.runs
        first = runs[-1].first if runs else session.seq
        spent = [
            event
            for event in store_at(session.store).read(session.id, first, kinds={"BudgetRefused"})
        ]
        if spent:
            if not self.mute:
                grant = _command(self.given, "grant", session.short, "LIMITS")
                self.progress.out.line(
                    f"  cut short: {clean(saying(spent[-1]))}; give it more: {grant}"
                )
            raise click.exceptions.Exit(NO_BUDGET)

    def sum_up(self, session: Session) -> None:
        if not self.mute:
            sys.stdout.flush()
            id = session.short
            self.progress.out.line(Cell(id, ACCENT), f"  finished: {self.progress.summary}")
            for verb in ("log", "show"):
                self.progress.out.line(Cell(f"  {_command(self.given, verb, id)}", DIM))

    def _waiting(self, outcome: Outcome) -> NoReturn:
        session, out = outcome.session, self.progress.out
        asks = waiting_for(session)
        resume = _command(self.given, "resume", session.short)
        if self.given.form == "json":
            waiting = [waiting_document(store_at(session.store), ask) for ask in asks]
            document = {
                "status": "waiting",
                "session": session_document(session),
                "why": outcome.why,
                "waiting": waiting,
            }
            print_json({**document, "resume": resume, "used": self.progress.document()})
            raise click.exceptions.Exit(WAITING)
        for ask in asks:
            print_ask(out, store_at(session.store), ask, full=False, hints=False)
            for hint in hints_of(ask):
                out.line(Cell(f"  {hint}{_where(self.given)}", DIM))
        out.line(Cell(session.short, ACCENT), f"  waits: {outcome.why}")
        out.line(Cell(f"  then: {resume}", DIM))
        raise click.exceptions.Exit(WAITING)

    def _interrupted(self, outcome: Outcome, again: str) -> NoReturn:
        session = outcome.session
        began = bool(session.runs) and session.runs[-1].status == "open"
        resume = (
            _command(self.given, "resume", session.short)
            if began or not again
            else f"{again} {session.short}{_where(self.given)}"
        )
        if self.given.form == "json":
            details = {"session": session.id, "resume": resume}
            raise Told(_Interrupted("interrupted"), [], INTERRUPTED, details)
        if self.progress.out.tty:
            click.echo(err=True)  # the terminal has put ^C there
        click.echo(f"interrupted; go on with: {resume}", err=True)
        raise click.exceptions.Exit(INTERRUPTED)

    def _failed(self, outcome: Outcome) -> NoReturn:
        session, error = outcome.session, outcome.error
        resume = _command(self.given, "resume", session.short)
        ended = outcome.status == "cancelled"
        last = session.events[-1]
        told = cut(clean(saying(last)), 120)
        lines = [
            f"the run {'ended' if ended else 'failed'}: {outcome.why}",
            (
                f"on record: session {session.short}, {counted(session.seq, 'event')}; the last"
                f" is @{last.seq}, {told}"
            ),
            *([] if ended else [f"go on when the cause is gone: {resume}"]),
            f"look at it: {_command(self.given, 'log', session.short)}",
        ]
        details: Document = {
            "session": session.id,
            "place": session.seq,
            **({} if ended else {"resume": resume}),
        }
        known = error if isinstance(error, Exception) else _Cancelled(outcome.why)
        raise Told(known, lines, code_of(known), details)


class _Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


class _Cancelled(Exception):
    """Somebody cancelled the run."""


def _where(given: Given) -> str:
    return f" --store {shlex.quote(given.address)}" if given.address is not None else ""


def waiting_for(session: Session) -> list[Waiting]:
    """What a session and the branches of its run wait for."""
    store = store_at(session.store)
    return [
        ask
        for ask in all_waiting(store)
        if session.id in (ask.log, root_of(store, ask.run, ask.log))
    ]


def said_by(session: Session) -> str | None:
    """What the last run said last. None: nothing."""
    runs = session.runs
    before = {message.id for message in session.at(runs[-1].first).messages} if runs else set[str]()
    said = [
        message
        for message in session.messages
        if message.role == "assistant" and message.id not in before
    ]
    return said[-1].text if said else None


# ── when the program and the record disagree ─────────────────────────────────────────────────


def told_diverged(given: Given, error: ReplayDiverged) -> Told:
    """Both sides next to each other, the place, and the choices."""
    branch = _command(given, "whatif", f"{error.session}@{max(1, error.at - 1)}")
    lines = [
        (
            f"the program goes another way than the record of session {error.session}, at event"
            f" {error.at}:"
        ),
        *_beside(error.expected, error.found),
        "Nothing was executed and nothing was written. Either put the program back as it was,",
        f"or go on live in a branch from just before: {branch}",
    ]
    details = {
        "session": error.session,
        "at": error.at,
        "expected": error.expected,
        "found": error.found,
        "whatif": branch,
    }
    return Told(error, lines, DIVERGED, details)


def _beside(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """A row for the kind and for every field that differs."""
    fields = [
        name
        for name in dict.fromkeys([*left, *right])
        if name == "kind" or left.get(name, _NONE) != right.get(name, _NONE)
    ]
    if left.get("kind") != right.get("kind"):
        fields = [
            name
            for name in fields
            if name == "kind" or left.get(name, None) or right.get(name, None)
        ]
    rows = [
        ("", "on record", "wanted now"),
        *((name, _side(left, name), _side(right, name)) for name in fields),
    ]
    out = Out(stderr=True)
    first = max(cell_width(row[0]) for row in rows)
    half = (out.width - first - 8) // 2 if out.tty else max(cell_width(row[1]) for row in rows)
    if half < 16 or half > 200:  # no room side by side
        return [
            f"  {name}: {side}: {text}"
            for name, *sides in rows[1:]
            for side, text in zip(rows[0][1:], sides, strict=True)
        ]
    return [line for row in rows for line in _row(row, first, half, fold=out.tty)]


_NONE = object()


def _side(side: dict[str, Any], name: str) -> str:
    if name not in side:
        return "–"
    value = side[name]
    return visible(value if name == "kind" else json.dumps(value, ensure_ascii=False, default=str))


def _row(row: tuple[str, str, str], first: int, half: int, *, fold: bool) -> list[str]:
    name, left, right = row
    lefts, rights = (_pieces(left, half), _pieces(right, half)) if fold else ([left], [right])
    count = max(len(lefts), len(rights))
    lefts, rights = lefts + [""] * (count - len(lefts)), rights + [""] * (count - len(rights))
    return [
        f"  {name if not at else '':<{first}}  {one}{' ' * (half - cell_width(one))}  {two}".rstrip()  # noqa: E501
        for at, (one, two) in enumerate(zip(lefts, rights, strict=True))
    ]


def _pieces(text: str, width: int) -> list[str]:
    """A text in pieces that fit; characters may be two cells wide."""
    pieces, piece, used = list[str](), "", 0
    for char in text:
        wide = cell_width(char)
        if used + wide > width:
            pieces.append(piece)
            piece, used = "", 0
        piece, used = piece + char, used + wide
    return [*pieces, piece][:20]


def _told_needs(given: Given, error: NeedsWorkflow, verb: str = "resume") -> Told:
    name = error.workflow.rpartition(":")[2] or "NAME"
    step = f"Name it: {_command(given, verb, error.session)} --workflow FILE.py:{name}"
    if error.more:
        step = f"Pass it in Python: resume(session, {name}(…), {error.more})"
    return Told(
        error,
        [f"the run of session {error.session} is of {error.workflow}, and {error.why}.", step],
        FAILED,
    )


# ── resume ───────────────────────────────────────────────────────────────────────────────────


@click.command("resume")
@click.argument("name", metavar="[S]", required=False)
@_workflow
@click.option(
    "--due",
    "all_due",
    is_flag=True,
    help="Every session whose time has come or whose answer is there, one after another.",
)
@_approve
@_quiet
@writing
def resume_command(
    given: Given,
    name: str | None,
    target: str | None,
    all_due: bool,
    approve: Mode | None,
    quiet: bool,
) -> None:
    """Take up a run that did not come to its end.

    After a crash, a failure, a pause, Ctrl-C or an answer. What is on record is not repeated. The
    program is found by what the run says of itself. Without S, the session written to last.
    """
    if all_due and name is not None:
        raise click.UsageError("--due takes all that are due: leave out S, or --due.")
    mode = mode_of(approve)
    _act_as(given)
    _import_from_here()
    program = _loaded(target) if target is not None else None
    if all_due:
        _resume_due(given, mode, quiet, program)
        return
    session = given.open(name or "@")
    _Running(given, mode, quiet).go(session, _resumer(session, program))


def _resumer(session: Session, program: Workflow | None) -> Do:
    from plait.durable import resume

    return lambda watch: resume(session, program, **watch)


def _resume_due(given: Given, mode: Mode, quiet: bool, program: Workflow | None) -> None:
    """Each on its own: what happens to one does not keep the others from going on."""
    store = store_at(given.store)
    runs = {ask.log: ask.run for ask in all_waiting(store, answered=True)}
    roots = dict.fromkeys(
        root_of(store, runs.get(log), log) for log in due(store, Live().now(LogId(""), 0))
    )
    done = list[Document]()
    out = Out()
    for root in roots:
        session = Session.open(root, store=given.store)
        status, why = _resume_one(_Running(given, mode, quiet), session, program)
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
        if given.form == "text":
            style = BAD if status == "failed" else ""
            out.line(
                Cell(now.short, ACCENT), "  ", Cell(status, style), Cell(f"  {why}" if why else "")
            )
        if status == "interrupted":
            break
    if given.form == "json":
        print_json({"resumed": done})
    elif not roots:
        out.line(Cell("nothing is due", DIM))
    states = {each["status"] for each in done}
    if "interrupted" in states or "failed" in states:
        raise click.exceptions.Exit(INTERRUPTED if "interrupted" in states else FAILED)


def _resume_one(running: _Running, session: Session, program: Workflow | None) -> tuple[str, str]:
    try:
        outcome = running.attend(session, _resumer(session, program))
    except RunHeld as error:
        return "held", f"by {error.holder}"
    except Told as told:
        return "failed", told.lines[0]
    except PlaitError as error:
        return "failed", str(error)
    return outcome.status, outcome.why


# ── replay ───────────────────────────────────────────────────────────────────────────────────


@click.command("replay")
@click.argument("name", metavar="S")
@_workflow
@listing
def replay_command(given: Given, name: str, target: str | None) -> None:
    """Go through the last run of a session by its record alone.

    Nothing is executed, nothing is written.

    The exit code is 7 if the program goes another way than the record.
    """
    from plait.durable import replay

    _import_from_here()
    session = given.open(name)
    program = _loaded(target) if target is not None else None
    try:
        ended = replay(session, program)
    except ReplayDiverged as error:
        raise told_diverged(given, error) from error
    except NeedsWorkflow as error:
        raise _told_needs(given, error, "replay") from error
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
        f"replayed {counted(count, 'event')} of run {run.id[:13]} ({run.workflow}): same head"
        f" {ended.head[:12]}, nothing executed"
    )


# ── whatif ───────────────────────────────────────────────────────────────────────────────────


@click.command("whatif")
@click.argument("name", metavar="S@K")
@click.option("--model", metavar="NAME", help="Ask this model from there on.")
@click.option(
    "--instruction", metavar="TEXT|@FILE", help="Give the agents this instruction from there on."
)
@click.option(
    "--replace",
    "replaced",
    metavar="PLACE=TEXT|@FILE",
    multiple=True,
    help="Let the event at this place say something else.",
)
@click.option(
    "--effects",
    type=click.Choice(["ask", "live"]),
    default="ask",
    help="Whether tools that act ask first (as a rule), or run.",
)
@click.option(
    "--budget",
    metavar="LIMITS",
    help="Grant it a budget of its own, as in steps=40; without, it draws on that of S.",
)
@_workflow
@_approve
@_quiet
@writing
def whatif_command(
    given: Given,
    name: str,
    model: str | None,
    instruction: str | None,
    replaced: Sequence[str],
    effects: Literal["ask", "live"],
    budget: str | None,
    target: str | None,
    approve: Mode | None,
    quiet: bool,
) -> None:
    """Run again from a place with something changed, in a branch.

    Up to S@K it goes by the record, beyond that live. The session itself is not touched.
    """
    from plait import durable

    mode = mode_of(approve)
    _act_as(given)
    _import_from_here()
    at = given.open(name)
    session = at.reload()
    program = _loaded(target) if target is not None else None
    changed: dict[str, Any] = {
        "at": at.seq if at != session or "@" in name.removeprefix("@") else None,
        "model": model,
        "instruction": (
            _text_or_file("--instruction", instruction) if instruction is not None else None
        ),
        "replace": _meant(session, _replaced(replaced)) or None,
        "effects": effects,
        "budget": parse_budget(budget),
    }
    whatif: Callable[..., Session] = durable.whatif
    running, before = _Running(given, mode, quiet), _branch_of(session)

    def now() -> Session:
        branch = _branch_of(session)
        return (
            branch
            if branch is not None and (before is None or branch.id != before.id)
            else session.reload()
        )

    def do(watch: Mapping[str, Any]) -> Session:
        return whatif(session, program, **changed, **watch)

    running.go(session, do, show=lambda made: _compared(running, session, made), now=now)


def _branch_of(session: Session) -> Session | None:
    """The latest one."""
    return next(iter(Session.list(parent=session, store=session.store, limit=1)), None)


def _compared(running: _Running, session: Session, made: Session) -> None:
    found = session.diff(made)
    if running.given.form == "json":
        print_json(
            {
                "session": session_document(made),
                "diff": diff_document(found, session, made),
                "used": running.progress.document(),
            }
        )
        return
    out = Out()
    out.line(Cell(made.short, ACCENT), f"  {made.id}")
    print_diff(found)
    running.sum_up(made)


def _replaced(given: Sequence[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for place, text in pairs("--replace", given).items():
        if not is_number(place) or int(place) < 1:
            raise InvalidValue(
                "--replace", f"{place!r} is not a place", "write PLACE=TEXT, as in 7=yes"
            )
        found[int(place)] = _text_or_file("--replace", text)
    return found


def _meant(session: Session, replaced: Mapping[int, str]) -> dict[int, Any]:
    """What is put in place: of a fact, an answer or data as JSON if it is some, else as the text it
    is.
    """
    found: dict[int, Any] = dict(replaced)
    for place, text in replaced.items():
        if 1 <= place <= session.seq and session.events[place - 1].kind in (
            "FactRecorded",
            "QuestionAnswered",
        ):
            with suppress(InvalidInput):
                found[place] = parse(text.encode())
    return found


def _text_or_file(option: str, text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else FAILED
        wrong = InvalidValue(
            option, f"{text[1:]} cannot be read: {error}", "name a file of text after the @"
        )
        raise Told(wrong, [str(wrong)], code) from error
