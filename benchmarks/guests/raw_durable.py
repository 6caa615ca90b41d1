"""The raw limit: as many rows of the same size read through apsw, and nothing done with them."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
from worker import Resumer, clocked, serve

from measure import Raw

HEADER_SIZE, BODY_SIZE = 150, 90  # what Plait writes for such an event, compressed
EVENTS = 2  # per effect: what was asked, and what came of it


class Bare(Resumer):
    settings = "as many rows of the same size, read in one query"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.raw, self.rows = Raw(folder / "store"), 0

    def version(self) -> str:
        return f"apsw {apsw.apsw_version()} (SQLite {apsw.sqlite_lib_version()})"

    def settle(self) -> None:
        self.raw.settle()

    def record(self, shape: str, effects: int, times: int) -> None:
        draw = random.Random(0)
        if not self.rows:
            self.raw.insert_all(
                (draw.randbytes(HEADER_SIZE), draw.randbytes(BODY_SIZE))
                for _ in range(effects * EVENTS)
            )
            self.rows = effects * EVENTS

    def read(self, shape: str) -> dict[str, float]:
        sql = "SELECT header, body FROM event ORDER BY number DESC LIMIT ?"
        took = clocked(lambda: len(self.raw.db.execute(sql, (self.rows,)).fetchall()))
        assert took.pop("value") == self.rows
        return took


if __name__ == "__main__":
    serve(Bare)
