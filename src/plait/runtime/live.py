"""The world as it is: the clock, fresh ids and chance. The one module that may ask for them."""

from __future__ import annotations

import os
import time

import uuid_utils

from plait.ids import SALT_SIZE, LogId, Micros


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
