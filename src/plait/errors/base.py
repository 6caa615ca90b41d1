"""The root of the error tree, and the texts that its errors share."""

from __future__ import annotations

from collections.abc import Callable


class _ErrorTexts:
    """Holds the function that hides secrets in texts of errors, since errors quote values.

    One for all errors of the process, and the same after a fork: `plait.secrets`, which stands
    above this module, binds it once.
    """

    def __init__(self) -> None:
        self.hide: Callable[[str], str] = str


_texts = _ErrorTexts()


def hide_with(hide: Callable[[str], str]) -> None:
    """Pass the texts of all errors from now on through this function."""
    _texts.hide = hide


class PlaitError(Exception):
    """The root: `except PlaitError` catches everything that Plait raises on purpose."""

    def __init__(self, *args: object) -> None:
        hide = _texts.hide
        super().__init__(*[hide(arg) if isinstance(arg, str) else arg for arg in args])


def brief(value: object) -> str:
    """Return the repr of a value, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def without_full_stop(text: str) -> str:
    """Return a text without its last full stop: the message around it adds one."""
    return text.rstrip().removesuffix(".")
