"""Heads of logs as of an append of a run: an answer that it brought along, for the next effect.

Before each effect a run asks how its log, its inboxes and the logs of its fences stand. Over a wire
that question costs as much as an append, so it travels with the append before it. The safe point
right after that append uses the answer instead of asking, once, and only if

- the run has written nothing to the log since: the value stands at the very position;
- this process has posted or written nothing outside of runs since the append began;
- it is not older than `FRESH_S`.

A message that another process sends after the append is then heard at the next safe point. It came
while the effect was about to begin, like a message that comes right after a question. The order
that can be seen inside the process stays: a post that has returned is heard before the next effect.
The writes of the effect are under the run's fences, which the store checks as it commits, however
old the answer is. Code that waits for an answer does not use this one: it asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from plait.event.kinds import BOUNDARIES
from plait.ids import LogId
from plait.session.ports import Draft, Position
from plait.store import HeadsQuestion, Log

FRESH_S = 0.1


class AskedHeads(NamedTuple):
    """A question on its way with an append."""

    question: HeadsQuestion
    last_post: object  # of the process, when the append began
    begun_s: float


class BroughtHeads:
    """The answers that the appends of a run brought along, at most one for each log."""

    def __init__(self, last_post: Callable[[], object]) -> None:
        self._last_post = last_post
        self._by_log: dict[LogId, tuple[Position, AskedHeads]] = {}

    def ask(self, drafts: Sequence[Draft], logs: Sequence[LogId]) -> AskedHeads:
        """Ask how these logs stand, with an append of these drafts.

        Drafts that announce an effect ask nothing: the answer would be from before the effect.
        """
        is_before_effect = any([type(draft.body) in BOUNDARIES for draft in drafts])
        question = HeadsQuestion(() if is_before_effect else logs)
        return AskedHeads(question, self._last_post(), time.monotonic())

    def keep(self, at: Position, asked: AskedHeads) -> None:
        """Keep the answer for the safe point at this position, right after the append."""
        if asked.question.answer is None:
            self._by_log.pop(at.id, None)
        else:
            self._by_log[at.id] = at, asked

    def take(self, at: Position, logs: Sequence[LogId]) -> Mapping[LogId, Log] | None:
        """Return how these logs stood at the append before this position; None: ask the store."""
        kept = self._by_log.pop(at.id, None)
        if kept is None:
            return None
        position, (question, last_post, begun_s) = kept
        is_right_after = position == at and last_post is self._last_post()
        if not is_right_after or not set(logs) <= set(question.logs):
            return None
        return question.answer if time.monotonic() - begun_s <= FRESH_S else None
