"""The text of an agent's replies on its way to the listeners of a run, while it may be refused.

Guards judge an answer when all of it is there, and so does the check of its type. An agent that
holds its text back tells it when the guards have passed it. Otherwise listeners hear the text as it
comes, and `Restarted` if it does not stand.
"""

from __future__ import annotations

from plait.model.base import Delta, ReasoningDelta, Restarted, TextDelta
from plait.runtime.listeners import Listeners

SPOKEN = TextDelta | ReasoningDelta


class AnswerText:
    """The text of one call of an agent, one reply after another."""

    def __init__(self, listeners: Listeners, path: str, *, is_held: bool) -> None:
        self._listeners, self._path, self._is_held = listeners, path, is_held
        self._held: list[SPOKEN] = []  # of this reply
        self._has_text = False  # True: this reply has a text, heard or held

    def begin_reply(self) -> None:
        """Forget the reply before: it was no answer, or it failed."""
        self._held, self._has_text = [], False

    def tell(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._has_text = True
        if self._is_held and isinstance(delta, SPOKEN):
            self._held.append(delta)
        else:
            self._listeners.tell(delta)

    def let_pass(self) -> None:
        """Tell what was held back: the answer stands."""
        for delta in self._held:
            self._listeners.tell(delta)
        self.begin_reply()

    def correct(self, text: str, why: str) -> None:
        """Tell another text in the place of this one."""
        was_heard = self._has_text
        self.refuse(why)
        if was_heard:  # otherwise the reply is recorded, and was heard before
            self._listeners.tell(TextDelta(text, self._path))

    def refuse(self, why: str) -> None:
        """Take the text back: the answer does not stand."""
        if self._has_text and not self._is_held:
            self._listeners.tell(Restarted(why, self._path))
        self.begin_reply()
