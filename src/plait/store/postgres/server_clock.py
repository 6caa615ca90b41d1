"""The server's clock, as this process knows it between two answers of the server.

The clocks of clients may be days apart, and may be set at any time. So the time is counted from the
server's last word, by a clock that nobody sets (`time.monotonic`). Every new connection and every
heartbeat brings a word, without a question of its own.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from plait.ids import Micros

NOW_SQL = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8"
_DRIFT = 1e-4  # of a clock, at most, in each second


class _ServerWord(NamedTuple):
    """The server said this time, at this moment of the monotonic clock, give or take `error_s`."""

    time: Micros
    at_s: float
    error_s: float

    def time_at(self, at_s: float) -> Micros:
        return self.time + int((at_s - self.at_s) * 1e6)

    def error_at(self, at_s: float) -> float:
        return self.error_s + (at_s - self.at_s) * _DRIFT


class ServerClock:
    """The time of a server."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._word: _ServerWord | None = None

    def take(self, time_told: Micros, asked_s: float, answered_s: float) -> None:
        """Take a word of the server, asked for and answered at these moments. One that a slow line
        makes less sure than the word before is not taken, unless the clock was set.
        """
        word = _ServerWord(
            time_told, (asked_s + answered_s) / 2, max(answered_s - asked_s, 0.0) / 2
        )
        with self._guard:
            before = self._word
            if before is not None:
                error_s = before.error_at(word.at_s)
                apart_s = abs(before.time_at(word.at_s) - word.time) / 1e6
                if word.error_s > error_s and apart_s <= word.error_s + error_s:
                    return
            self._word = word

    def now(self) -> Micros:
        """Return the time. There was a connection before: it said the first word."""
        word = self._word
        assert word is not None, "the store was opened by a connection"
        return word.time_at(time.monotonic())
