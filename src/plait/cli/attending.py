"""Runs attended from the shell: progress on stderr, the result on stdout, an exit code at the end.

However a run stops, its session is kept, and the command that resumes it is printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, NoReturn

import click

from plait.cli.asks import hints_of, print_ask, waiting_document
from plait.cli.common import Options, command_line, store_option
from plait.cli.consent import Mode, run_hooks
from plait.cli.divergence import divergence_error, missing_program_error
from plait.cli.documents import print_json
from plait.cli.exits import INTERRUPTED, NO_BUDGET, WAITING, ShellError, code_of
from plait.cli.lines import LineProgress, print_line
from plait.cli.loading import error_text, print_debug
from plait.cli.progress import Progress
from plait.cli.render import ACCENT, DIM, Cell, count_text
from plait.cli.run_totals import totals_of_last_run
from plait.cli.terminal import cut_text
from plait.errors import BudgetExceeded, NeedsWorkflow, PlaitError, ReplayDiverged, RunHeld
from plait.event.kinds import BudgetRefused, BudgetSet
from plait.outline.documents import Document, session_document
from plait.session import Session, Waiting
from plait.session.event_text import event_text
from plait.session.inbox import all_waiting, root_of
from plait.session.ports import store_at
from plait.session.safe_text import clean
from plait.session.value import open_run_of

# a resume takes the run over before it calls the program
_RESUMED = "The step was not executed; that the run was resumed is on record."
Status = Literal["finished", "waiting", "failed", "cancelled", "interrupted"]
Do = Callable[[Mapping[str, Any]], Session]  # given on_event, approver, answerer


def act_as(given: Options) -> None:
    """Let runs of this process act on behalf of the principal given with --as."""
    if given.actor is not None:
        os.environ["PLAIT_ACTOR"] = given.actor


class RunEnd(NamedTuple):
    status: Status
    session: Session
    why: str = ""
    error: BaseException | None = None


class RunAttendant:
    """Attends one run, or several after one another, from the shell."""

    def __init__(
        self, given: Options, mode: Mode, quiet: bool, progress: Progress | None = None
    ) -> None:
        self.given: Options = given
        self.mode: Mode = mode
        self.quiet, self.mute = quiet, quiet or given.form != "text"
        self.progress = progress or self._new_progress()
        self._before: Session | None = None  # as it was before the run
        # more fields of the document that is printed with --json
        self.more: Callable[[Session], Document] = lambda session: {}

    def _new_progress(self) -> Progress:
        return LineProgress() if self.given.form == "jsonl" else Progress(self.mute)

    def print_end(self, document: Document, status: Status = "finished") -> None:
        """Print the end of a run for programs: as the one document, or as the last line."""
        if self.given.form == "jsonl":
            print_line({"type": status, **document})
        else:
            print_json({"status": status, **document})

    def attend_run(
        self,
        session: Session,
        do: Do,
        again: str = "",
        show: Callable[[Session], None] | None = None,
        now: Callable[[], Session] | None = None,
    ) -> None:
        """Run it, print the result, and end with the exit code for it.

        `now` returns the session in which the run stands, if it is not `session` itself.
        """
        outcome = self.attend(session, do, now)
        match outcome.status:
            case "finished":
                (show or self._print_result)(outcome.session)
                self._exit_if_cut_short(outcome.session)
            case "waiting":
                self._exit_waiting(outcome)
            case "interrupted":
                self._exit_interrupted(outcome, again)
            case _:
                raise self.failure_error(outcome)

    def attend(self, session: Session, do: Do, now: Callable[[], Session] | None = None) -> RunEnd:
        from plait.journal.stops import Parked
        from plait.runtime.stops import Cancelled

        now = now or session.reload
        self._before = before = session.reload()
        self.progress.begin(before)
        with self.progress as progress:
            try:
                return RunEnd(
                    "finished", do(run_hooks(self.mode, progress, session, self.given.actor_name))
                )
            except KeyboardInterrupt as error:
                return RunEnd("interrupted", now(), error=error)
            except Parked as parked:
                return RunEnd("waiting", parked.session, parked.why)
            except Cancelled as cancelled:
                return RunEnd("cancelled", now(), f"it was cancelled: {cancelled}", cancelled)
            except ReplayDiverged as error:
                raise divergence_error(self.given, error, _RESUMED) from error
            except NeedsWorkflow as error:
                raise missing_program_error(self.given, error) from error
            except Exception as error:
                after = now()
                # another process has the run, and may have written meanwhile
                is_held = isinstance(error, RunHeld) and error.session == session.short
                if is_held or (isinstance(error, PlaitError) and after == before):
                    raise  # refused before anything happened
                print_debug(error)
                return RunEnd("failed", after, error_text(error), error)

    # ── how it ends ──────────────────────────────────────────────────────────────────────────

    def _print_result(self, session: Session) -> None:
        text = last_reply(session)
        if self.given.form != "text":
            self.print_end(
                {
                    "session": session_document(session),
                    "text": text,
                    "used": totals_of_last_run(session).document(),
                    **self.more(session),
                }
            )
            return
        self.print_text(text)
        self.sum_up(session)

    def print_text(self, text: str | None) -> None:
        """Print the last reply, unless it stands on the terminal."""
        if text and text.strip() != (self.progress.shown_text or "").strip():
            click.echo(clean(text, lines=True))

    def _exit_if_cut_short(self, session: Session) -> None:
        """Exit with NO_BUDGET if the run was cut short, and was granted no more since. It finished
        with an answer, so only the exit code tells the caller.
        """
        runs = session.runs
        first = runs[-1].first if runs else session.seq
        kinds = {BudgetRefused.__name__, BudgetSet.__name__}
        spent = list(store_at(session.store).read(session.id, first, kinds=kinds))
        if spent and spent[-1].kind == BudgetRefused.__name__:
            if not self.mute:
                grant = command_line(self.given, "grant", session.short, "LIMITS")
                self.progress.out.line(
                    f"  cut short: {clean(event_text(spent[-1]))}; give it more: {grant}"
                )
            raise click.exceptions.Exit(NO_BUDGET)

    def sum_up(self, session: Session) -> None:
        if not self.mute:
            sys.stdout.flush()
            id = session.short
            program = session.runs[-1].workflow.rpartition(":")[2] if session.runs else ""
            used = totals_of_last_run(session).text
            is_old = session == self._before
            ended = "had finished already, and nothing was run" if is_old else "finished"
            self.progress.out.line(Cell(id, ACCENT), f"  {program} {ended}: {used}")
            for verb in ("log", "show"):
                self.progress.out.line(Cell(f"  {command_line(self.given, verb, id)}", DIM))

    def _exit_waiting(self, outcome: RunEnd) -> NoReturn:
        if self.given.form != "text":
            used = totals_of_last_run(outcome.session).document()
            self.print_end({**self.waiting_document(outcome), "used": used}, "waiting")
            raise click.exceptions.Exit(WAITING)
        self.print_waiting(outcome)
        raise click.exceptions.Exit(WAITING)

    def waiting_document(self, outcome: RunEnd) -> Document:
        session = outcome.session
        return {
            "session": session_document(session),
            "why": outcome.why,
            "waiting": [waiting_document(store_at(session.store), ask) for ask in asks_of(session)],
            **self.more(session),
            "resume": command_line(self.given, "resume", session.short),
        }

    def print_waiting(self, outcome: RunEnd) -> None:
        """Print the asks for which a run waits, and the commands that answer them."""
        session, out = outcome.session, self.progress.out
        for ask in asks_of(session):
            if ask.event not in self.progress.seen_asks:
                print_ask(out, store_at(session.store), ask, full=False, hints=False)
            for hint in hints_of(ask):
                out.line(Cell(f"  {hint}{store_option(self.given)}", DIM))
        out.line(Cell(session.short, ACCENT), f"  waits: {outcome.why}")
        out.line(Cell(f"  then: {command_line(self.given, 'resume', session.short)}", DIM))

    def _exit_interrupted(self, outcome: RunEnd, again: str) -> NoReturn:
        session = outcome.session
        began = open_run_of(session) is not None
        resume = (
            command_line(self.given, "resume", session.short)
            if began or not again
            else f"{again} {session.short}{store_option(self.given)}"
        )
        if self.given.form != "text":
            details = {"type": "Interrupted", "session": session.id, "resume": resume}
            raise ShellError(_RunStopped("interrupted"), [], INTERRUPTED, details)
        if self.progress.out.tty:
            click.echo(err=True)  # the terminal has put ^C there
        click.echo(f"interrupted; go on with: {resume}", err=True)
        raise click.exceptions.Exit(INTERRUPTED)

    def _first_step(self, outcome: RunEnd) -> str:
        if not isinstance(outcome.error, BudgetExceeded):
            return "go on when the cause is gone"
        grant = command_line(self.given, "grant", outcome.session.short, "LIMITS")
        return f"give it more with {grant}, then go on"

    def failure_error(self, outcome: RunEnd) -> ShellError:
        """Return the error that tells of a run that failed or was cancelled."""
        session, error = outcome.session, outcome.error
        resume = command_line(self.given, "resume", session.short)
        ended = outcome.status == "cancelled"
        last = session.events[-1]
        told = cut_text(clean(event_text(last)), 120)
        lines = [
            f"the run {'ended' if ended else 'failed'}: {outcome.why}",
            (
                f"on record: session {session.short}, {count_text(session.seq, 'event')}; the last"
                f" is @{last.seq}, {told}"
            ),
            *([] if ended else [f"{self._first_step(outcome)}: {resume}"]),
            f"look at it: {command_line(self.given, 'log', session.short)}",
        ]
        details: Document = {
            "session": session.id,
            "place": session.seq,
            **({} if ended else {"resume": resume}),
        }
        if isinstance(error, Exception):
            known = error
        else:
            known, details = _RunStopped(outcome.why), {"type": "Cancelled", **details}
        return ShellError(known, lines, code_of(known), details)


class _RunStopped(Exception):
    """A run that ended by Ctrl-C or was cancelled, in place of an error of its own."""


def asks_of(session: Session) -> list[Waiting]:
    """Return the asks of a session and of the branches of its run."""
    store = store_at(session.store)
    return [
        ask
        for ask in all_waiting(store)
        if session.id in (ask.log, root_of(store, ask.run, ask.log))
    ]


def last_reply(session: Session) -> str | None:
    """Return the last reply of the last run; None if it gave none."""
    runs = session.runs
    before = {message.id for message in session.at(runs[-1].first).messages} if runs else set[str]()
    said = [
        message
        for message in session.messages
        if message.role == "assistant" and message.id not in before
    ]
    return said[-1].text if said else None
