"""The root of the error tree, and the texts that its errors share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType


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

    @property
    def record_text(self) -> str:
        """The text for a log, the shell or a web page: without steps of the caller's Python."""
        return str(self)


def brief(value: object) -> str:
    """Return the repr of a value, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def spelling_step(
    given: str, known: Iterable[str], meant: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the next step for a name that is not known: the name that was probably meant.

    `meant` has names that other libraries use, each with ours.
    """
    from difflib import get_close_matches  # for a mistake alone

    names = list(known)
    near = [meant[given]] if given in meant else get_close_matches(given, names, 1, 0.5)
    return f"write {near[0]}" if near else f"use one of {', '.join(names)}"


def without_full_stop(text: str) -> str:
    """Return a text without its last full stop: the message around it adds one."""
    return text.rstrip().removesuffix(".")
