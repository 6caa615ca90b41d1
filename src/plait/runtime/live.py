"""The world as it is: the clock, fresh ids and chance. The one module that may ask for them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import uuid_utils

from plait.ids import SALT_SIZE, LogId, Micros

CLOCKS_APART_US = 1_000_000  # less is left to the services that set clocks


class Live:
    """The live `Source`.

    The arguments do not matter here; a seeded source answers by them.
    """

    def now(self, log: LogId, seq: int) -> Micros:
        return time.time_ns() // 1000

    def salt(self, log: LogId, seq: int) -> bytes:
        return os.urandom(SALT_SIZE)

    def fresh(self, *about: str | int) -> LogId:
        return LogId(str(uuid_utils.uuid7()))


class SharedClock(Live):
    """The live `Source` of a store that has a clock: processes whose clocks are apart agree on what
    is due.
    """

    def __init__(self, clock_us: Callable[[], Micros | None]) -> None:
        self._clock_us = clock_us

    def now(self, log: LogId, seq: int) -> Micros:
        own, shared = super().now(log, seq), self._clock_us()
        if shared is None or abs(shared - own) < CLOCKS_APART_US:
            return own
        return shared
