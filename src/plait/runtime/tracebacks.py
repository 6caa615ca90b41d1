"""Hides secrets in the tracebacks of uncaught errors.

A workflow's own exception reaches the program as it was raised, so its text may hold a secret. The
record has it hidden; the text that Python prints on stderr when the program, or a thread, ends is
hidden here.
"""

from __future__ import annotations

import sys
import threading
import traceback
from types import TracebackType
from typing import Any

from plait import secrets
from plait.runtime.process import THIS_PROCESS


def hide_in_tracebacks() -> None:
    """Hide secrets from now on in tracebacks of uncaught errors; all others are
    printed as before.
    """
    if THIS_PROCESS.is_excepthook_installed:
        return
    THIS_PROCESS.is_excepthook_installed = True
    whole, threaded = sys.excepthook, threading.excepthook

    def print_error(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not _print_hidden(kind, error, trace):
            whole(kind, error, trace)

    def print_thread_error(args: Any) -> None:
        if args.exc_value is None or not _print_hidden(
            args.exc_type, args.exc_value, args.exc_traceback
        ):
            threaded(args)

    sys.excepthook, threading.excepthook = print_error, print_thread_error


def _print_hidden(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> bool:
    """Print an error without its secrets; return False if it holds none, and
    nothing was printed.
    """
    if not secrets.is_armed():
        return False
    text = "".join(traceback.format_exception(kind, error, trace))
    hidden = secrets.hide_shown_text(text)
    if hidden != text:
        sys.stderr.write(hidden)
    return hidden != text
