"""The raw limit: bare SQLite through apsw, WAL and FULL, one table (`measure.Raw`).

One append is one INSERT and COMMIT of the bytes Plait keeps for the same message before it
compresses them: a header of 351 bytes and the body. A fork is compared with the same, because less
than one commit cannot be durable. A page is read from a plain table with the index it needs.
"""

from __future__ import annotations

import random
from pathlib import Path

import apsw
from worker import Guest, serve

from measure import Raw

HEADER_SIZE = 351  # of a message's event


class Bare(Guest):
    settings = "WAL, synchronous FULL, one commit per row; survives power loss"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.raw = Raw(folder / "store")
        self.header = random.Random(0).randbytes(HEADER_SIZE)
        self.filled: dict[str, tuple[int, int]] = {}
        self.held = apsw.Connection(":memory:")

    def version(self) -> str:
        return f"apsw {apsw.apsw_version()} (SQLite {apsw.sqlite_lib_version()})"

    def begin(self) -> str:
        return str(len(self.filled))

    def fill(self, session: str, texts: list[str]) -> None:
        first = self._last() + 1
        self.raw.insert_all((self.header, text.encode()) for text in texts)
        self.filled[session] = first, self._last()

    def append(self, session: str, text: str) -> None:
        self.raw.insert(self.header, text.encode())

    def fork(self, session: str, place: int) -> None:
        self.raw.insert(self.header, b"x" * 100)

    def state(self, session: str) -> int:
        again = apsw.Connection(str(self.folder / "store" / "raw.db"))
        rows = again.execute(
            "SELECT header, body FROM event WHERE number BETWEEN ? AND ?", self.filled[session]
        ).fetchall()
        again.close()
        return len(rows)

    def crowd(self, count: int) -> None:
        self.raw.db.execute(
            "CREATE TABLE session (number INTEGER PRIMARY KEY, id, title, status); CREATE INDEX"
            " shown ON session (status)"
        )
        rows = [(f"{i:036}", f"session {i}", "open") for i in range(count)]
        with self.raw.db:
            self.raw.db.executemany(
                "INSERT INTO session (id, title, status) VALUES (?, ?, ?)", rows
            )

    def page(self) -> int:
        return len(
            self.raw.db.execute(
                "SELECT * FROM session WHERE status = 'open' ORDER BY number DESC LIMIT 100"
            ).fetchall()
        )

    def hold(self, texts: list[str]) -> str:
        self.held.execute(
            "CREATE TABLE IF NOT EXISTS event (number INTEGER PRIMARY KEY, header BLOB NOT NULL,"
            " body BLOB NOT NULL)"
        )
        self.remember("", texts)
        return ""

    def remember(self, session: str, texts: list[str]) -> None:
        for text in texts:
            self.held.execute(
                "INSERT INTO event (header, body) VALUES (?, ?)", (self.header, text.encode())
            )

    def _last(self) -> int:
        return self.raw.db.execute("SELECT coalesce(max(number), 0) FROM event").get


if __name__ == "__main__":
    serve(Bare)
