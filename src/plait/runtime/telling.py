"""Telling the listeners of a run what a model says, as it says it, and without secrets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from plait import secrets
from plait.event.kinds import File
from plait.ids import Digest, LogId
from plait.model.base import Delta, ReasoningDelta, TextDelta, ToolDelta, Turn, Unseen
from plait.model.files import unseen_parts
from plait.runtime.answer_text import SPOKEN
from plait.runtime.effects import AskModel
from plait.runtime.run import Run
from plait.secrets import HiddenPieces


class UnseenWarning(UserWarning):
    """A model cannot see an image or a file of its prompt."""


class DeltaTeller:
    """Hands on the deltas of one attempt, to the listeners of a run.

    A secret can lie across deltas, so of each text that grows (the answer, its reasoning, the
    arguments of each call) the end is held back while it could be the beginning of one.
    """

    def __init__(self, path: str, tell: Callable[[Delta], object]) -> None:
        self._path, self._tell = path, tell
        self._pieces: dict[tuple[type[Delta], int], tuple[HiddenPieces, Delta]] = {}

    def __call__(self, delta: Delta) -> None:
        delta = msgspec.structs.replace(delta, agent=self._path)
        field = _GROWING.get(type(delta)) if secrets.is_armed() else None
        text = getattr(delta, field) if field else ""
        if not field or not text:
            self._tell(delta)
            return
        key = type(delta), getattr(delta, "index", 0)
        pieces = self._pieces[key][0] if key in self._pieces else HiddenPieces()
        self._pieces[key] = pieces, delta
        self._show(delta, field, pieces.feed(text))

    def end(self) -> None:
        """Tell what was held back: nothing more will come."""
        for (kind, _), (pieces, delta) in self._pieces.items():
            self._show(delta, _GROWING[kind], pieces.end())
        self._pieces.clear()

    def _show(self, delta: Delta, field: str, text: str) -> None:
        if text:
            self._tell(msgspec.structs.replace(delta, **{field: text}))


def teller_of(run: Run, effect: AskModel, log: LogId) -> DeltaTeller | None:
    """Return the teller of an attempt. None: there are no listeners.

    Texts that are no part of the conversation are not told: those of guards, of selectors, and of
    agents that work for an agent which holds its text back.
    """
    if effect.text is not None:
        effect.text.begin_reply()
    if not run.listeners:
        return None
    tell = effect.text.tell if effect.text is not None else run.listeners.tell
    if not is_unheard(run, effect, log):
        return DeltaTeller(effect.path, tell)
    return DeltaTeller(
        effect.path, lambda delta: None if isinstance(delta, SPOKEN) else tell(delta)
    )


def is_unheard(run: Run, effect: AskModel, log: LogId) -> bool:
    """True if listeners do not hear the text of an ask."""
    return effect.aside or run.stack.is_silenced(log)


def tell_unseen_parts(
    run: Run, effect: AskModel, turns: Sequence[Turn], blob: Callable[[Digest], bytes]
) -> None:
    """Warn of the images and files that a model cannot see, once in a run for each."""
    model = effect.model
    for part in unseen_parts(model, turns, blob):
        if not run.is_first_time(("unseen", model.name, part.blob)):
            continue
        name = part.name if isinstance(part, File) else part.alt
        run.listeners.tell(Unseen(model.name, name, part.media_type, effect.path))
        with suppress(Warning):  # where warnings are errors, too
            what = f"{name or 'an image'} ({part.media_type})"
            why = f"{model.name} cannot see {what}; it is told that this was left out"
            warnings.warn(why, UnseenWarning, stacklevel=2)


_GROWING: Mapping[type[Delta], str] = {
    TextDelta: "text",
    ReasoningDelta: "thought",
    ToolDelta: "arguments",
}
