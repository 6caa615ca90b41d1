"""Exit codes, in one table, and the one place where errors become words.

    0    done
    1    failed: every error that is not named below, and output that could not be written
    2    usage: the command line or a value on it is wrong, or names several things at once
    3    not found: no such store, session, place, key, event, memory, file, sandbox or worker
    4    waiting: the run is parked until a person answers or a time comes; `plait inbox` shows for
         what, `plait resume` goes on
    5    the budget does not allow it: the run failed there, and can be resumed with a larger one
    6    verification failed: `plait verify` found something wrong
    7    the program went another way than the record, in a replay or when a run was taken up again
    8    a merge, or publishing files, needs a choice by a person, or a base
    75   not now: another process was first, a plan is stale, a queue or the disk is full, or the
         server of the store does not answer; try again
    130  interrupted, as by SIGINT
    141  the reader of the output has gone, as by SIGPIPE: `plait log | head`

Every message for people is cleaned first: an error quotes names, and names come from anywhere.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TextIO, cast

import click

from plait import errors, secrets
from plait.errors import PlaitError
from plait.session import ABSENT
from plait.session.safe_text import clean
from plait_shell.groups import SectionedGroup

FAILED, USAGE, NOT_FOUND, WAITING, NO_BUDGET, UNVERIFIED, DIVERGED, CONFLICT = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
)
RETRY, INTERRUPTED, NO_READER = 75, 130, 141

CODES: dict[type[PlaitError], int] = {
    PlaitError: FAILED,
    errors.InvalidInput: USAGE,
    # These two are about the contents of the store, not about the command line.
    errors.UnknownKind: FAILED,
    errors.UnknownVersion: FAILED,
    errors.BadAddress: USAGE,
    errors.UntrustedStore: USAGE,
    errors.AmbiguousRevision: USAGE,
    errors.UnknownRevision: NOT_FOUND,
    errors.UnknownPlace: NOT_FOUND,
    errors.UnknownWorker: NOT_FOUND,
    errors.UnknownKey: NOT_FOUND,
    errors.UnknownAsk: NOT_FOUND,
    errors.NoPrompt: NOT_FOUND,
    errors.UnknownLog: NOT_FOUND,
    errors.UnknownEvent: NOT_FOUND,
    errors.NoStore: NOT_FOUND,
    errors.NotMigrated: NOT_FOUND,
    errors.NotPlaced: NOT_FOUND,
    errors.NoSuchFile: NOT_FOUND,
    errors.NotAFile: USAGE,
    errors.OutsideWorkspace: USAGE,
    errors.UnknownBackend: USAGE,
    errors.SandboxGone: NOT_FOUND,
    errors.UnknownMemory: NOT_FOUND,
    errors.AmbiguousMemory: USAGE,
    errors.NoEvidence: USAGE,
    errors.NotEvidence: USAGE,
    errors.NoOwner: USAGE,
    errors.QueueFull: RETRY,
    errors.StalePlan: RETRY,
    errors.BudgetExceeded: NO_BUDGET,
    errors.ReplayDiverged: DIVERGED,
    errors.MergeConflict: CONFLICT,
    errors.NoCommonBase: CONFLICT,
    errors.RunHeld: RETRY,
    errors.SandboxBusy: RETRY,
    errors.StillArriving: RETRY,
    errors.StaleHead: RETRY,
    errors.StoreBusy: RETRY,
    errors.StoreUnsettled: RETRY,
    errors.DiskFull: RETRY,
    errors.StoreUnreachable: RETRY,
    errors.ServerUnreachable: RETRY,
    errors.EventsLost: RETRY,
    errors.OutcomeUnknown: RETRY,
}


class ShellError(Exception):
    """An error with lines written for the shell, an exit code, and details for programs."""

    def __init__(
        self,
        error: Exception,
        lines: Sequence[str],
        code: int | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(error, lines)
        self.error, self.lines, self.details = error, lines, details or {}
        self.code = code if code is not None else code_of(error)


class _NoReader(Exception):
    """The other end of the pipe is closed."""


def code_of(error: BaseException) -> int:
    return next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), FAILED)


class CommandGroup(SectionedGroup):
    """The group of all commands. It turns errors into a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # click has an answer of its own, and it is 1
            raise _NoReader from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        group: Any = super()

        def call() -> Any:
            return group.main(given, prog_name, complete_var, False, windows_expand_args, **extra)

        if not standalone_mode:
            return call()
        as_json = any(
            flag in given[: given.index("--") if "--" in given else None]
            for flag in ("--json", "--jsonl")
        )
        sys.exit(_exit_code(call, as_json))


def _exit_code(run: Callable[[], Any], as_json: bool) -> int:
    """Run the command with a stderr that hides secrets, and return the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as with >&-
            setattr(sys, name, open(os.devnull, "w"))
    stderr, sys.stderr = sys.stderr, cast("TextIO", HidingStream(sys.stderr))
    try:
        return _run_to_exit_code(run, as_json)
    finally:
        sys.stderr = stderr


class HidingStream:
    """A stream that hides every secret the process knows, in all text written to it: tracebacks,
    warnings, prints.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(secrets.hide_shown_text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _run_to_exit_code(run: Callable[[], Any], as_json: bool) -> int:
    try:
        code = run()
        sys.stdout.flush()  # here, where a full disk can still be reported
        return code if isinstance(code, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (_NoReader, BrokenPipeError):
        _drop_output()
        return NO_READER
    except click.ClickException as error:
        return _print_error(
            error, [error.format_message()], error.exit_code, as_json, before=_usage_text(error)
        )
    except ShellError as shell:
        return _print_error(shell.error, shell.lines, shell.code, as_json, details=shell.details)
    except PlaitError as error:
        return _print_error(error, _error_lines(error), code_of(error), as_json)
    except OSError as error:
        _drop_output()
        where = (
            f"{os.fsdecode(error.filename)}:"
            if error.filename
            else "the output could not be written:"
        )
        return _print_error(
            error,
            [
                f"{where} {error.strerror or error}. If the command writes, look whether it did"
                " before you repeat it: plait log."
            ],
            FAILED,
            as_json,
        )
    except Exception:  # a bug of ours: Python prints it at exit
        sys.excepthook = _print_hidden
        raise


def _print_hidden(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.stderr.write(
        secrets.hide_shown_text("".join(traceback.format_exception(kind, error, trace)))
    )


def _print_error(
    error: Exception,
    lines: Sequence[str],
    code: int,
    as_json: bool,
    before: str = "",
    details: Mapping[str, object] | None = None,
) -> int:
    """Print an error on stderr, as one JSON document or as cleaned lines, and return the
    exit code.
    """
    if as_json:
        text = error.record_text if isinstance(error, PlaitError) else "\n".join(lines)
        said = json.dumps(
            {
                "error": {
                    "type": type(error).__name__,
                    "message": text,
                    "exit_code": code,
                    **_error_details(error),
                    **(details or {}),
                }
            }
        )
    else:
        said = before + "plait: " + "\n".join(map(clean, lines))
    try:
        click.echo(secrets.hide_shown_text(said), err=True)
    except OSError:  # stderr is closed; the exit code still tells
        pass
    return code


def _usage_text(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{context.get_usage()}\nTry '{context.command_path} --help'.\n\n" if context else ""


def _error_lines(error: PlaitError) -> list[str]:
    if isinstance(error, errors.AmbiguousRevision):
        return [
            f"{error.text!r} could be any of these. Write more of the id.",
            *(f"  {clean(each)}" for each in error.candidates),
        ]
    return [error.record_text]


def _error_details(error: Exception) -> dict[str, object]:
    """Return the fields of an error that a program needs to go on."""
    if isinstance(error, errors.MergeConflict):
        said = {
            key: {side: value for side, value in sides.items() if value is not ABSENT}
            for key, sides in error.conflicts.items()
        }
        gone = {
            key: [side for side, value in sides.items() if value is ABSENT]
            for key, sides in error.conflicts.items()
        }
        return {
            "conflicts": said,
            "retracted": {key: sides for key, sides in gone.items() if sides},
        }
    if isinstance(error, errors.AmbiguousRevision):
        return {"candidates": list(error.candidates)}
    if isinstance(error, errors.AmbiguousMemory):
        return {"candidates": list(error.found)}
    return {}


def _drop_output() -> None:
    """Send the rest of the output nowhere: Python would try to write it at exit, and complain."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):  # a stream without a file, as in tests
        pass
