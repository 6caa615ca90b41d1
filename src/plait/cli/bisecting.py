"""`plait bisect`: the step of a session that broke a test, found by halves."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from plait.cli.common import Options, acting_command, command_line, names_of, store_of
from plait.cli.documents import print_json
from plait.cli.exits import ShellError, code_of
from plait.cli.files import SessionPath, print_patch
from plait.cli.loading import error_text, load_function, print_debug
from plait.cli.render import ACCENT, BAD, DIM, STRONG, Cell, Column, Out, as_json, count_text
from plait.errors import BisectAborted, EndsAgree, InvalidValue, PlaitError
from plait.event.kinds import Merged
from plait.outline.documents import Document, event_document, files_document, place_document
from plait.session import Session
from plait.session.event_text import event_text
from plait.session.safe_text import clean

if TYPE_CHECKING:
    from plait.runs.bisect import Bisection, StepTest

OUTPUT_LINES = 20  # of the test at the first bad step
_STYLES = {"good": "green", "bad": BAD, "skipped": DIM}


@click.command("bisect")
@click.argument("session", metavar="S")
@click.argument("command", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--predicate",
    metavar="TARGET",
    help="Test with a function of a session, FILE.py:NAME or module:NAME, instead of COMMAND.",
)
@click.option("--good", type=int, metavar="K", help="A good step; else the first with files.")
@click.option("--bad", type=int, metavar="K", help="A bad step; else the last of S.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End each run after so long, as bad; else the limit of the placement.",
)
@acting_command
def bisect_command(
    given: Options,
    session: str,
    command: Sequence[str],
    predicate: str | None,
    good: int | None,
    bad: int | None,
    timeout: float | None,
) -> None:
    """Find the step that broke a test.

    COMMAND runs in a sandbox on the files of S as they were at one step and another, by halves. It
    exits with 0 if they are good, with 125 if it cannot tell, and with 1 to 127 if they are bad.
    Nothing is written, and the folder of the session is not touched.

    With --predicate, a function is called with the session as it was at one event and another. It
    returns True for good, False for bad, and None if it cannot tell.
    """
    from plait.runs.bisect import bisect

    if bool(command) == (predicate is not None):
        raise click.UsageError(
            "say how to test, in one way: plait bisect S -- pytest -q, or --predicate FILE.py:NAME"
        )
    if predicate is not None and timeout is not None:
        raise click.UsageError("--timeout is for a COMMAND.")
    test = shlex.join(command) if predicate is None else predicate
    asked = _Predicate(predicate) if predicate is not None else None
    named = SessionPath.of(given, session)
    out, width = Out(stderr=True), len(_name(named.session))

    def tell_test(test: StepTest) -> None:
        _print_test(out, test, width)

    if given.form == "text":
        out.line(Cell(f"bisecting {named.name} with: {test}", DIM))
    try:
        with named.shell_errors():
            found = bisect(
                named.session,
                asked,
                command=command or None,
                good=good,
                bad=bad,
                timeout_s=timeout,
                on_test=tell_test if given.form == "text" else None,
            )
    except (EndsAgree, BisectAborted) as error:
        raise _with_output(error) from error
    if given.form == "json":
        print_json(_bisection_document(found, command, predicate))
    else:
        _print_found(given, found, test)


class _Predicate:
    """A function that is named on the command line; its errors name the step it was asked about."""

    def __init__(self, target: str) -> None:
        self._target, self._function = target, load_function(target, "predicate")

    def __call__(self, value: Session) -> bool | None:
        try:
            return self._function(value)
        except PlaitError:
            raise
        except Exception as error:
            print_debug(error)
            why = f"{self._target} failed at {_name(value)}: {error_text(error)}"
            step = "let it return None where it cannot tell"
            raise InvalidValue("predicate", why, step) from error


def _with_output(error: EndsAgree | BisectAborted) -> ShellError:
    """Return the error with the last lines of the command, which often tell why."""
    told = str(error).replace("bad=K", "--bad K").replace("good=K", "--good K")
    lines = [told, *(f"  | {line}" for line in _last_lines(error.output))]
    return ShellError(error, lines, code_of(error), {"output": error.output})


def _last_lines(output: str) -> list[str]:
    lines = output.rstrip().splitlines()
    return [clean(line) for line in lines[-OUTPUT_LINES:]]


def _print_test(out: Out, test: StepTest, width: int) -> None:
    how = f"{_end_text(test)}, " if test.exit_code is not None else ""
    out.line(
        "  ",
        Cell(f"{_name(test.session):<{width}}", ACCENT),
        Cell(f"  {test.outcome:<7}", _STYLES[test.outcome]),
        Cell(f"  {how}among {count_text(test.left, 'step')}", DIM),
    )


def _end_text(test: StepTest) -> str:
    seconds = f"{test.duration_us / 1e6:.1f} s"
    if test.killed:
        return f"ended by its limit of {test.killed} after {seconds}"
    return f"exit {test.exit_code} after {seconds}"


# ── the answer ───────────────────────────────────────────────────────────────────────────────


def _print_found(given: Options, found: Bisection, test: str) -> None:
    out, bad = Out(), found.first_bad
    one = "first bad step" if not found.suspects else "first bad step that could be tested"
    out.line(Cell(f"{one}: ", STRONG), Cell(_name(bad), ACCENT), f", in {_runs_text(found)}")
    rows = ([Cell(name, DIM), Cell(text)] for name, text in _details(out, found))
    out.table([Column(), Column(flex=True)], rows, indent="  ")
    tested = _test_of(found, bad)
    if tested is not None and (lines := _last_lines(tested.output)):
        out.heading(test, _end_text(tested))
        for line in lines:
            out.line("  ", line)
    if patch := found.diff.files.patch():
        out.heading("Changed", f"from {_name(found.last_good)} to {_name(bad)}")
        print_patch(patch)
    out.line()
    out.hint(f"why: {command_line(given, 'why', _name(bad))}")
    if found.event.header.run is not None:
        out.hint(f"step through it: {command_line(given, 'debug', _name(bad))}")
    out.hint(
        f"go back: {command_line(given, 'rewind', found.session.short, str(_step_back(found)))}"
    )


def _step_back(found: Bisection) -> int:
    """Return the seq of the session before the bad step, or before the merge or the call that
    brought it.
    """
    return found.via[0].seq - 1 if found.via else found.last_good.seq


def _details(out: Out, found: Bisection) -> Iterator[tuple[str, str]]:
    event, effect = found.event, found.effect
    if effect is None:
        yield "step", event_text(event)
    else:
        yield "call", f"{effect.tool} {as_json(effect.arguments)}"
        yield from [("in", effect.path)] if effect.path else []
    yield "by", f"{event.actor}, {out.time(event.header.time)}"
    for at in found.via:
        yield "via", _via_text(at)
    if found.branch:
        yield "branch", found.branch
    elif isinstance(event.body, Merged):
        logs = [place.log for place in event.body.branches]
        names = names_of(store_of(found.session), logs).values()
        yield "merge", f"its branches are good by themselves: {', '.join(names)}"
    yield "good", _name(found.last_good)
    if found.suspects:
        yield "or", f"{', '.join(map(_name, found.suspects))}: not tested, exit 125"


def _via_text(at: Session) -> str:
    """Tell the merge, or the call of an agent, that brought a branch into a session."""
    event = at.events[-1]
    if isinstance(event.body, Merged) and event.header.call is None:
        return f"{_name(at)}, {event_text(event)}"
    effect = next(each for each in at.effects if each.call == event.header.call)
    return f"{_name(at)}, the call {effect.tool} {as_json(effect.arguments)}"


def _test_of(found: Bisection, session: Session) -> StepTest | None:
    tree = session.files.tree
    return next((test for test in found.tests if test.session.files.tree == tree), None)


def _runs_text(found: Bisection) -> str:
    return count_text(found.runs, "run")


def _name(session: Session) -> str:
    return f"{session.short}@{session.seq}"


def _bisection_document(
    found: Bisection, command: Sequence[str], predicate: str | None
) -> Document:
    effect, files = found.effect, found.diff.files
    return {
        "session": place_document(found.session),
        "command": list(command) or None,
        "predicate": predicate,
        "first_bad": place_document(found.first_bad),
        "last_good": place_document(found.last_good),
        "suspects": [*map(place_document, found.suspects)],
        "merge": place_document(found.merge) if found.merge is not None else None,
        "via": [*map(place_document, found.via)],
        "branch": found.branch or None,
        "event": event_document(found.event),
        "call": None
        if effect is None
        else {
            "id": effect.call,
            "tool": effect.tool,
            "arguments": effect.arguments,
            "actor": effect.actor,
            "path": effect.path,
        },
        "files": files_document(files),
        "patch": files.patch(),
        "runs": found.runs,
        "tests": [*map(_test_document, found.tests)],
    }


def _test_document(test: StepTest) -> Document:
    return {
        **place_document(test.session),
        "outcome": test.outcome,
        "exit_code": test.exit_code,
        "killed": test.killed or None,
        "duration_us": test.duration_us,
        "output": test.output,
    }
