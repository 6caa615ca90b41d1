"""Asks at the terminal: for consent to an agent's requests, and for answers.

The prompt shows exactly the values that are bound, nothing folded and nothing hidden. Consent is
typed after that: earlier input is thrown away. Any answer but a clear yes is a refusal or a
question back, and `later` leaves the ask in the inbox.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import click

from plait.cli.asks import print_ask
from plait.cli.common import value_of
from plait.cli.progress import Progress
from plait.cli.render import BAD, DIM, STRONG, Cell, Out
from plait.errors import InvalidInput
from plait.event import Json, parse
from plait.session import Session
from plait.session.ports import store_at
from plait.session.safe_text import visible

if TYPE_CHECKING:
    from plait.runtime.policy import Approval, Denied, Granted

Mode = Literal["ask", "park", "all"]
YES, NO, EDIT, LATER = ("y", "yes"), ("n", "no"), ("e", "edit"), ("l", "later")


def mode_of(given: Mode | None) -> Mode:
    """Return the mode that was given; else `ask` if there is a terminal, else `park`."""
    there = sys.stdin.isatty() and sys.stderr.isatty()
    if given == "ask" and not there:
        raise click.UsageError(
            "--approve ask needs a terminal. Use --approve park, and answer with `plait approve`."
        )
    return given or ("ask" if there else "park")


def run_hooks(mode: Mode, progress: Progress, session: Session, who: str) -> dict[str, Any]:
    """Return the keyword arguments that make a run report its progress and ask in this mode."""
    if mode == "ask":
        here = Terminal(progress, session)
        return {"on_event": progress, "approver": here.approve, "answerer": here.answer}
    return {"on_event": progress, "approver": consent_to_all(who) if mode == "all" else None}


def consent_to_all(who: str) -> Callable[[Approval], Granted]:
    """Return an approver that grants everything. Each grant says that it was not looked at."""

    def grant(approval: Approval) -> Granted:
        from plait.runtime.policy import Granted

        return Granted(note=f"not looked at: {who} started this with --approve all")

    return grant


class Terminal:
    """Asks one thing at a time, from whichever branch it comes."""

    def __init__(
        self, progress: Progress, session: Session, read: Callable[[str], str | None] | None = None
    ) -> None:
        self._progress, self._session, self._read = progress, session, read or read_line
        self._lock = Lock()

    # ── consent ──────────────────────────────────────────────────────────────────────────────

    def approve(self, approval: Approval) -> Granted | Denied:
        with self._lock, self._progress.lend_terminal() as out:
            return self._decide(out, approval)

    def _decide(self, out: Out, approval: Approval) -> Granted | Denied:
        from plait.runtime.policy import Denied, Granted

        session: Session = approval.session
        asked = next(ask for ask in session.inbox.waiting if ask.binding == approval.binding)
        out.line()
        print_ask(out, store_at(session.store), asked, full=True, hints=False)
        edited: Json = None
        while True:
            said = self._read(
                f"Allow it{' as edited' if edited is not None else ''}? [y]es [n]o [e]dit [l]ater,"
                " or why not: "
            )
            word = said.strip().lower() if said is not None else LATER[0]
            if word in LATER:
                raise self._parked_error(
                    session, f"consent was put off: plait approve {asked.event[:12]}"
                )
            if word in YES:
                return Granted(edited)
            if word in NO:
                return Denied()
            if word in EDIT:
                edited = _edit_arguments(
                    out, _arguments(approval) if edited is None else edited, edited
                )
            elif len(word) > 2:
                return Denied((said or "").strip())
            else:
                out.line(
                    "y allows it, n does not, e edits the arguments, l leaves it for later; a"
                    " sentence is why not"
                )

    @staticmethod
    def _parked_error(session: Session, why: str) -> BaseException:
        from plait.journal.stops import Parked

        return Parked(session, why)

    # ── questions ────────────────────────────────────────────────────────────────────────────

    def answer(self, question: str, choices: tuple[str, ...]) -> Json:
        with self._lock, self._progress.lend_terminal() as out:
            out.line()
            out.line(Cell(visible(question), STRONG))
            for number, choice in enumerate(choices, 1):
                out.line(Cell(f"  {number}  ", DIM), visible(choice))
            while True:
                said = self._read(
                    "Number or answer (end of input: later): "
                    if choices
                    else "Answer (end of input: later): "
                )
                if said is None:
                    raise self._parked_error(
                        self._session, "the question was put off: plait inbox shows it"
                    )
                if (found := _parse_choice(said.strip(), choices)) is not None:
                    return found


def _parse_choice(said: str, choices: tuple[str, ...]) -> Json:
    """Return the answer that was typed; None if it is none of the choices."""
    if not choices:
        return value_of(said) if said else None
    if said in choices:
        return said
    return (
        choices[int(said) - 1]
        if said.isascii() and said.isdecimal() and 0 < int(said[:9]) <= len(choices)
        else None
    )


def _arguments(approval: Approval) -> Json:
    return getattr(approval.request.body, "arguments", None)


def _edit_arguments(out: Out, arguments: Json, before: Json) -> Json:
    """Let the arguments be edited in an editor, and show the result. Returns `before` if that is
    not a valid JSON object.
    """
    # An escape for each character that an editor would hide or obey: JSON reads it back as it was.
    text = "\n".join(map(visible, json.dumps(arguments, indent=2, ensure_ascii=False).split("\n")))
    try:
        written = click.edit(text + "\n", extension=".json")
        if written is None:
            out.line(Cell("nothing was changed", DIM))
            return before
        value = parse(written.encode("utf-8", "surrogatepass"))
    except (click.ClickException, InvalidInput, UnicodeError, OSError) as error:
        out.line(
            Cell(
                error.format_message() if isinstance(error, click.ClickException) else str(error),
                BAD,
            )
        )
        return before
    if not isinstance(value, dict):
        out.line(Cell("that is not a JSON object with all arguments by name", BAD))
        return before
    out.line(Cell("  edited      ", DIM), visible(json.dumps(value, ensure_ascii=False)))
    return value


def read_line(prompt: str) -> str | None:
    """Read a line from the terminal, typed after the prompt. None: the input has ended."""
    import termios

    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # a key that was pressed before is no answer
    click.echo(prompt, nl=False, err=True)
    line = b""
    # Python's buffer is not used: a branch that still waits here when the process ends would hold
    # its lock.
    while not line.endswith(b"\n") and (more := os.read(sys.stdin.fileno(), 4096)):
        line += more
    if not line:
        click.echo(err=True)
        return None
    return line.decode("utf-8", "replace")
