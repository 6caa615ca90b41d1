"""The root of the error tree, and the texts that its errors share."""

from __future__ import annotations

from collections.abc import Callable


def _as_it_is(text: str) -> str:
    return text


_hide: Callable[[str], str] = _as_it_is


def hide_with(hide: Callable[[str], str]) -> None:
    """Pass the texts of all errors from now on through this function.

    Errors quote values, and a quoted value may hold a secret.
    """
    global _hide
    _hide = hide


class PlaitError(Exception):
    """The root: `except PlaitError` catches everything that Plait raises on purpose."""

    def __init__(self, *args: object) -> None:
        super().__init__(*[_hide(arg) if isinstance(arg, str) else arg for arg in args])


def brief(value: object) -> str:
    """Return the repr of a value, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def without_full_stop(text: str) -> str:
    """Return a text without its last full stop: the message around it adds one."""
    return text.rstrip().removesuffix(".")
