"""Heartbeats: a tool that works for long says that it still does, and is given up if it is silent.

A heartbeat is live only. Listeners hear its detail as output; the last one is on record if the tool
is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from plait import inside, secrets
from plait.runtime.failures import bounded_text

_DETAIL_MAX = 1000  # characters


class Heart:
    """The heartbeats of one run of a tool."""

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        timeout_s: float | None,
        heartbeat_s: float | None,
        on_beat: Callable[[str], object] | None = None,
    ) -> None:
        self._clock, self._timeout_s, self._heartbeat_s = clock, timeout_s, heartbeat_s
        self._on_beat = on_beat
        self._began = clock()
        self._last: int | None = None  # None: its code has not begun
        self.detail = ""  # of the last heartbeat

    def begin(self) -> None:
        """Count the silence from here on: the tool's code begins."""
        self._last = self._clock()

    def beat(self, detail: str) -> None:
        self._last = self._clock()
        self.detail = bounded_text(secrets.hide_shown_text(detail), _DETAIL_MAX)
        if self._on_beat is not None and self.detail:
            self._on_beat(f"{self.detail}\n")

    def left_s(self) -> float | None:
        """Return the seconds until the tool is given up, if no heartbeat comes; None: never."""
        now, left = self._clock(), list[float]()
        if self._timeout_s is not None:
            left.append(self._timeout_s - (now - self._began) / 1e6)
        if self._heartbeat_s is not None:
            since = self._last if self._last is not None else now
            left.append(self._heartbeat_s - (now - since) / 1e6)
        return min(left, default=None)

    @property
    def is_silent(self) -> bool:
        """True if the last heartbeat is too long ago."""
        if self._heartbeat_s is None or self._last is None:
            return False
        return (self._clock() - self._last) / 1e6 >= self._heartbeat_s


beating: ContextVar[Heart | None] = ContextVar("plait_heart", default=None)


def heartbeat(detail: object = "") -> None:
    """Say that the tool whose code this is still works, and what it has come to.

    A tool with `heartbeat_s=` that is silent for longer is given up. Outside of a tool call it does
    nothing.
    """
    heart = beating.get()
    if heart is None and (context := inside.starter_context()) is not None:
        heart = context.get(beating)
    if heart is not None:
        heart.beat(str(detail))
