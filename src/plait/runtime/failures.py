"""Errors as values that any log can hold: bounded, and with all characters such that UTF-8 can
carry them.
"""

from __future__ import annotations

import traceback
from typing import Any

from plait.errors import PlaitError
from plait.event.kinds import Failure

TRACEBACK_MAX, MESSAGE_MAX = 8_000, 4_000


def failure_of(error: BaseException) -> Failure:
    """Return an error as a value that the log can hold."""
    return Failure(
        bounded_text(type(error).__name__, 200), text_of_error(error), traceback_of(error)
    )


def text_of_error(error: BaseException) -> str:
    """Return the text of an error without advice that only its caller in Python can follow."""
    try:
        text = error.record_text if isinstance(error, PlaitError) else str(error)
    except Exception:
        text = "(it cannot be told in words)"
    return bounded_text(text) or type(error).__name__


def bounded_text(text: Any, limit: int = MESSAGE_MAX) -> str:
    """Return a text, or the repr of a value, bounded and such that UTF-8 can hold it."""
    escaped = escape_text(text if isinstance(text, str) else repr(text))
    if len(escaped) <= limit:
        return escaped
    return f"{escaped[:limit]}… ({len(escaped):,} characters)"


def traceback_of(error: BaseException) -> str:
    try:
        text = escape_text("".join(traceback.format_exception(error)))
    except Exception:
        return ""
    return (
        text
        if len(text) <= TRACEBACK_MAX
        else f"{text[: TRACEBACK_MAX // 4]}\n…\n{text[-TRACEBACK_MAX * 3 // 4 :]}"
    )


def escape_text(text: str) -> str:
    """Escape characters that UTF-8 cannot hold: every error must reach the log."""
    return text.encode("utf-8", "backslashreplace").decode()
