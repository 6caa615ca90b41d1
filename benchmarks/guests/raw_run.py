"""The raw limit of a durable step: bare SQLite through apsw, WAL and FULL, three commits.

What is written is what Plait writes for such a step before it compresses it: four events of some
400 bytes of header and 60 to 200 of body, in three transactions.
"""

from __future__ import annotations

import random
from pathlib import Path

import apsw
from worker import Runner, serve, share

from measure import Raw

HEADER_SIZE = 400
BODIES = (180, 320, 90)  # the question, the reply with the call it asks for, the result


class Bare(Runner):
    settings = "WAL, synchronous FULL, three commits per step; survives power loss"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.raw = Raw(folder / "store")
        draw = random.Random(0)
        self.rows = [(draw.randbytes(HEADER_SIZE), draw.randbytes(size)) for size in BODIES]

    def version(self) -> str:
        return f"apsw {apsw.apsw_version()} (SQLite {apsw.sqlite_lib_version()})"

    def settle(self) -> None:
        self.raw.settle()

    def steps(self, calls: int) -> dict[str, float]:
        return share(calls, lambda: self._steps(calls))

    def appends(self, calls: int) -> float:
        return float(len(BODIES))

    def _steps(self, calls: int) -> None:
        for _ in range(calls):
            for header, body in self.rows:
                self.raw.insert(header, body)


if __name__ == "__main__":
    serve(Bare)
