"""Time, ids and salt from a seed."""

from __future__ import annotations

from hashlib import sha256

from plait.ids import SALT_SIZE, LogId, Micros, derive_id


class Seeded:
    """A `Source` with answers that follow from the seed and the question alone, never from time or
    count.
    """

    def __init__(self, seed: int = 0, start: Micros = 1_750_000_000_000_000) -> None:
        self.seed = seed
        self.start = start

    def now(self, log: LogId, seq: int) -> Micros:
        return self.start + seq * 1_000_000

    def salt(self, log: LogId, seq: int) -> bytes:
        return sha256(f"{self.seed}/{log}/{seq}".encode()).digest()[:SALT_SIZE]

    def fresh(self, *about: str | int) -> LogId:
        return derive_id("plait/seeded/1", self.seed, *about)
