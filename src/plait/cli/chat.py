"""A chat at the terminal: `plait chat`. Each line is a turn, on record.

Without a terminal the lines come from standard input, and only the answers go to standard output;
with --jsonl, deltas and events too.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from plait.cli.attending import Do, RunAttendant, RunEnd, act_as, last_reply
from plait.cli.common import (
    Options,
    approve_option,
    command_line,
    lines_left,
    read_line,
    store_of,
    talking,
    text_or_file,
)
from plait.cli.consent import Mode, mode_of
from plait.cli.divergence import missing_program_error
from plait.cli.exits import INTERRUPTED, WAITING, ShellError
from plait.cli.lines import LineProgress, print_line
from plait.cli.loading import import_from_here, load_workflow, rebind_model
from plait.cli.progress import Progress
from plait.cli.render import ACCENT, BAD, DIM, Cell, Column, Out, count_text
from plait.errors import InvalidValue, NeedsWorkflow, NoModel, PlaitError, RunHeld, UnknownLog
from plait.event.kinds import TurnPosted
from plait.ids import inbox_of
from plait.outline.documents import place_document
from plait.session import Session
from plait.session.content import text_of, unpack
from plait.session.inbox import inbox_events
from plait.session.safe_text import clean
from plait.session.value import open_run_of

if TYPE_CHECKING:
    from plait.workflow import Workflow

TALK = "plait.cli.talk:Talk"
PROMPT = "> "
HELP = (
    ("/fork [LABEL]", "go on in a branch; the session stays as it is"),
    ("/back [N]", "go back N messages of yours, or 1, and go on from there"),
    ("/why [WHAT]", "where the last answer comes from, or WHAT, as in plait why"),
    ("/cost", "what it has cost"),
    ("/files", "its files"),
    ("/cancel", "drop an answer that was stopped or waits"),
    ("/help", "this list; a line with a space before / is said as it is"),
    ("/quit", "leave, as Ctrl-D and Ctrl-C do; Ctrl-C stops an answer first"),
)


@click.command("chat")
@click.argument("what", metavar="[S|TARGET]", required=False)
@click.option("--session", "name", metavar="S", help="With TARGET: go on in this session.")
@click.option("--model", metavar="NAME", help="Ask this model, as in openai:gpt-5 or local.")
@click.option(
    "--instruction", metavar="TEXT|@FILE", help="Without TARGET: tell the agent what it is to do."
)
@approve_option
@talking
def chat_command(
    given: Options,
    what: str | None,
    name: str | None,
    model: str | None,
    instruction: str | None,
    approve: Mode | None,
) -> None:
    """Talk to a model, a session or a workflow, on record.

    S goes on with a session and its program. TARGET is FILE.py:NAME or module:NAME, as in `plait
    run`. Without either, a new session with an agent that has no tools. /help lists the commands.
    """
    mode: Mode = "park" if given.form == "jsonl" and approve is None else mode_of(approve)
    act_as(given)
    import_from_here()
    target = what if what is not None and ":" in what else None
    if what is not None and target is None:
        if name is not None:
            raise click.UsageError("name the session once: S, or --session S.")
        if what.endswith(".py"):
            raise InvalidValue("workflow", f"{what!r} does not name one", f"write {what}:Workflow")
        name = what
    session = given.open_last(name) if name is not None else None
    program = _program_of(given, session, target, model)
    if instruction is not None:
        _instruct(program, text_or_file("--instruction", instruction))
    Chat(given, mode, program, session, is_instructed=instruction is not None).talk()


def _instruct(program: Workflow, text: str) -> None:
    from plait.program import Instructed

    if not isinstance(program, Instructed):
        raise click.UsageError(
            "the program has an instruction of its own: leave out --instruction, or the program."
        )
    program.instruct(text)


def _program_of(
    given: Options, session: Session | None, target: str | None, model: str | None
) -> Workflow:
    """Return the workflow that answers: the one that is named, or that of the session."""
    from plait.journal.recorded_run import last_run
    from plait.program import find_program_call

    if target is not None:
        return load_workflow(target, model)
    at = session
    while at is not None and last_run(at) is None:  # a branch goes on with its parent's
        at = at.lineage.parent
    run = last_run(at) if at is not None else None
    if at is None or run is None:
        if model is None and not os.environ.get("PLAIT_MODEL"):
            raise ShellError(
                NoModel("no model is named"),
                [
                    "no model is named. Say which: plait chat --model openai:gpt-5 (or"
                    " anthropic:claude-sonnet-5-5, local, http://HOST:PORT/v1), or set PLAIT_MODEL."
                ],
            )
        return load_workflow(TALK, model)
    try:
        program = find_program_call(at, run, None, (), {}).program
    except NeedsWorkflow as error:
        told = missing_program_error(given, error)
        step = command_line(given, "chat", "FILE.py:NAME", "--session", error.session)
        raise ShellError(error, [told.lines[0], f"Name it: {step}"], told.code) from error
    if model is not None:
        rebind_model(program, model)
    return program


class Chat:
    """One chat, line by line."""

    def __init__(
        self,
        given: Options,
        mode: Mode,
        program: Workflow,
        session: Session | None,
        *,
        is_instructed: bool,
    ) -> None:
        self._given, self._program, self._is_instructed = given, program, is_instructed
        self._prints_lines = given.form == "jsonl"
        progress = LineProgress() if self._prints_lines else Progress(is_chat=True)
        self._attendant = RunAttendant(given, mode, quiet=False, progress=progress)
        self._session = session  # None: nothing was said yet
        self._unsent = ""  # the line at hand, until it stands in the queue
        self._out = Out(stderr=True)
        on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._is_interactive = on_terminal and not self._prints_lines

    def talk(self) -> None:
        """Answer each line until there are no more."""
        if self._is_interactive:
            self._begin()
        try:
            while (line := self._read()) is not None:
                if line.startswith("/") and self._is_interactive:
                    if line.split()[0] in ("/quit", "/exit"):
                        break
                    self._do(line)
                elif line.strip():
                    self._answer(line.strip())
        except BaseException:
            if not self._is_interactive:
                self._tell_unsent()
            raise
        finally:
            self._leave()

    # ── the terminal ─────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        import readline  # it takes over input(): history and keys

        session = self._session
        shown = session.messages.shown if session is not None else []
        for message in shown:
            if message.role == "user" and "\n" not in message.text:
                readline.add_history(message.text)
        if session is None:
            self._out.line(Cell("a new session; /help lists the commands, Ctrl-D leaves", DIM))
            return
        for message in shown[-2:]:
            head = PROMPT if message.role == "user" else ""
            click.echo(f"{head}{clean(message.text, lines=True)}")
        self._tell_unfinished(session)

    def _tell_unfinished(self, session: Session) -> None:
        if open_run_of(session) is not None:
            self._out.line(
                Cell("an answer is not finished: your next line goes on with it, /cancel drops it")
            )

    def _read(self) -> str | None:
        """Return the next line. None: there are no more."""
        if not self._is_interactive:
            return read_line() or None
        try:
            return input(PROMPT)
        except (EOFError, KeyboardInterrupt):
            click.echo()
            return None

    def _leave(self) -> None:
        if self._session is None or self._prints_lines:
            return
        go_on = command_line(self._given, "chat", self._session.short)
        self._out.line(Cell(self._session.short, ACCENT), f"  is kept; go on: {go_on}")

    def _tell_unsent(self) -> None:
        """Name the lines of a pipe that were not sent: the chat ends before them."""
        lines = [line for line in (self._unsent, *lines_left()) if line]
        if self._prints_lines and lines:
            print_line({"type": "unsent", "lines": lines})
        elif lines:
            self._out.line(Cell(f"not sent: {count_text(len(lines), 'line')}", BAD))
            for line in lines:
                self._out.line(f"  {clean(line)}")

    # ── a line ───────────────────────────────────────────────────────────────────────────────

    def _answer(self, text: str) -> None:
        """Say a line, and show the answer. What was not finished before is finished first."""
        self._unsent = text
        try:
            session = self._session = self._session or self._new_session(text)
            if not self._finish_before(session, text):
                return
            end = _inbox_end(session)
            try:
                self._attend(
                    lambda watch: session.turn(
                        text, self._program, actor=self._given.actor_name, **watch
                    )
                )
            finally:
                if _is_posted(session, text, end):
                    self._unsent = ""
        except (PlaitError, ShellError) as error:
            if not self._is_interactive:
                raise
            self._print_error(error)

    def _new_session(self, text: str) -> Session:
        """Make the session of a first line, if the line can be said and answered."""
        from plait.runs.turns import check_turn

        check_turn(Session(store="memory:chat"), text, self._program)
        return Session(store=self._given.new_store, actor=self._given.actor_name)

    def _finish_before(self, session: Session, text: str) -> bool:
        """Go on with a run that was stopped or waits, and show it. False: it is still there."""
        from plait.journal.recorded_run import last_run
        from plait.runs.resume import resume
        from plait.runtime.names import import_path

        session = session.reload()
        run = last_run(session)
        if run is None or open_run_of(session) is None:
            return True
        is_same = run.workflow == import_path(type(self._program)) and not self._is_instructed
        program = self._program if is_same else None  # None: the one on record
        try:
            end = self._attend(lambda watch: resume(session, program, **watch))
        except RunHeld:  # by another process: the turn waits for it
            return True
        if end.status in ("finished", "failed", "cancelled"):
            return True
        self._out.line(Cell("your line was not said: ", BAD), text)
        return False

    def _attend(self, do: Do) -> RunEnd:
        """Follow a run to its end, and print what is left to say."""
        assert self._session is not None
        attendant = self._attendant
        end = attendant.attend(self._session, do)
        if end.status == "finished":
            self._session = end.session
            self._print_answer(end.session)
        elif end.status == "waiting":
            if self._prints_lines:
                print_line({"type": "waiting", **attendant.waiting_document(end)})
            else:
                attendant.print_waiting(end)
            if not self._is_interactive:
                raise click.exceptions.Exit(WAITING)
        elif end.status == "interrupted":
            if not self._is_interactive:
                raise click.exceptions.Exit(INTERRUPTED)
            click.echo(err=True)  # the terminal has put ^C there
            self._tell_unfinished(end.session)
        elif self._is_interactive:
            self._print_error(attendant.failure_error(end))
        else:
            raise attendant.failure_error(end)
        return end

    def _print_answer(self, session: Session) -> None:
        text = last_reply(session)
        if self._prints_lines:
            print_line({"type": "answer", "session": place_document(session), "text": text})
        else:
            self._attendant.print_text(text)

    def _print_error(self, error: PlaitError | ShellError) -> None:
        first, *others = error.lines if isinstance(error, ShellError) else [error.record_text]
        self._out.line(Cell(first, BAD))
        for line in others:
            self._out.line(Cell(line, DIM))

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def _do(self, line: str) -> None:
        """Carry out a command. An error is told, and the chat goes on."""
        name, *words = line.split()
        try:
            if name == "/help":
                self._out.table(
                    [Column(whole=True), Column(flex=True)],
                    [(Cell(what), Cell(means, DIM)) for what, means in HELP],
                    indent="  ",
                )
            elif self._session is None:
                raise InvalidValue(name, "nothing was said yet", "say something first")
            else:
                self._session = self._changed(self._session.reload(), name, words)
        except (PlaitError, ShellError) as error:
            self._print_error(error)
        except click.ClickException as error:
            self._out.line(Cell(error.format_message(), BAD))

    def _changed(self, session: Session, name: str, words: list[str]) -> Session:
        """Carry out a command on the session, and return the session to go on with."""
        match name:
            case "/fork":
                made = session.fork(" ".join(words) or None, actor=self._given.actor_name)
                before = command_line(self._given, "chat", session.short)
                self._out.line(
                    Cell(made.short, ACCENT), f"  a branch; the session before: {before}"
                )
                return made
            case "/back":
                self._call("rewind", session.short, str(_place_before(session, words)))
            case "/why":
                said = [each.seq for each in session.messages if each.role == "assistant"]
                self._call(
                    "why", session.short, *(words or [str(said[-1] if said else session.seq)])
                )
            case "/cost" | "/files":
                self._call(name[1:], session.short)
            case "/cancel":
                session.inbox.cancel("dropped in the chat", actor=self._given.actor_name)
                self._out.line(Cell("dropped; what it did is on record", DIM))
            case _:
                raise InvalidValue(name, "there is no such command", "/help lists them")
        return session.reload()

    def _call(self, *words: str) -> None:
        """Call another command of `plait`."""
        address = self._given.address
        where = ["--store", address] if address is not None else []
        root = click.get_current_context().find_root().command
        root.main([*words, *where], standalone_mode=False)


def _inbox_end(session: Session) -> int:
    """Return the place of the last event in the inbox of a session."""
    with suppress(UnknownLog):
        return store_of(session).log(inbox_of(session.id)).tip
    return 0


def _is_posted(session: Session, text: str, after: int) -> bool:
    """True if a message of these words was put into the queue after this place of the inbox."""
    store = store_of(session)
    bodies = [event.body for event in inbox_events(store, session.id, after)]
    parts = [body.parts for body in bodies if isinstance(body, TurnPosted)]
    return any(text_of(unpack(each, store.get_blob)) == text for each in parts)


def _place_before(session: Session, words: list[str]) -> int:
    """Return the place before the user's last messages."""
    count = int(words[0]) if words and words[0].isdecimal() and len(words[0]) < 9 else 0
    said = [each.seq for each in session.messages if each.role == "user"]
    if not words:
        count = 1
    if not 0 < count <= len(said):
        step = f"pass a number from 1 to {len(said)}"
        raise InvalidValue("/back", f"there are {len(said)} messages of yours", step)
    return said[-count] - 1
