"""The messages between a PostgreSQL client and its server, and counts of them.

`WireCounts` says what a client asked of a server. `Conversation` reads the messages of one
connection, in both directions, and adds to the counts.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

_ASYNCHRONOUS = b"NSA"
"""Notices, settings and notifications: the server may send them when nobody asked."""


@dataclass
class WireCounts:
    """Counts of what went over the wire, without the opening of connections.

    A round trip is a question that the client waited for: an answer after a Query, a Sync or a
    Flush. Questions sent before the answer to the first has begun are one round trip. A commit is a
    transaction that ended well, by COMMIT or by itself, whether it wrote or not.
    """

    address: str = ""
    connections: int = 0
    round_trips: int = 0
    statements: int = 0
    commits: int = 0
    texts: list[str] = field(default_factory=list[str])
    """The SQL of every statement, in order. Empty if it was prepared before the connection came
    this way.
    """

    def reset(self) -> None:
        """Begin at nothing."""
        self.connections = self.round_trips = self.statements = self.commits = 0
        self.texts = []


class Messages:
    """Cuts a stream into messages: a letter, a length, and what it says."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def split(self, chunk: bytes) -> Iterator[bytes]:
        """Add a chunk of the stream, and give every message that is complete now."""
        self._rest += chunk
        while len(self._rest) >= 5:
            (length,) = struct.unpack_from("!I", self._rest, 1)
            if len(self._rest) <= length:
                return
            message = bytes(self._rest[: length + 1])
            del self._rest[: length + 1]
            yield message


def _texts_of(message: bytes, count: int) -> list[str]:
    """The first strings of a message, each of which ends with a zero."""
    return [each.decode(errors="replace") for each in message[5:].split(b"\0", count)[:count]]


class Conversation:
    """One connection: knows its prepared statements, and which questions are open."""

    def __init__(self, counts: WireCounts) -> None:
        self._counts = counts
        self._prepared: dict[str, str] = {}
        self._portals: dict[str, str] = {}
        self._is_open = False
        self._is_asking = False
        self._has_failed = False
        self._tag = b""
        # For every Query and Sync without its ReadyForQuery: the statements that it ends.
        self._pending: deque[int] = deque()
        self._unsynced = 0

    @property
    def pending(self) -> int:
        """The number of questions that the server has not finished."""
        return len(self._pending)

    def ask(self, message: bytes) -> str | None:
        """Take a message of the client. Return the SQL if the server runs a statement by it."""
        kind = message[:1]
        text: str | None = None
        if kind == b"P":
            name, sql = _texts_of(message, 2)
            self._prepared[name] = sql
        elif kind == b"B":
            portal, name = _texts_of(message, 2)
            self._portals[portal] = self._prepared.get(name, "")
        elif kind in b"QFE":
            text = self._text_of_statement(kind, message)
            self._counts.statements += 1
            self._counts.texts.append(text)
            self._unsynced += 1
        if kind in b"QFS":
            self._pending.append(self._unsynced)
            self._unsynced = 0
        self._is_asking |= kind in b"QFSH"
        return text

    def _text_of_statement(self, kind: bytes, message: bytes) -> str:
        if kind == b"F":
            return ""
        [first] = _texts_of(message, 1)
        return first if kind == b"Q" else self._portals.get(first, "")

    def answer(self, message: bytes) -> bool:
        """Take a message of the server. True: a question is finished by it."""
        kind = message[:1]
        if not self._is_open:
            self._is_open = kind == b"Z"
            self._counts.connections += self._is_open
            return False
        if self._is_asking and kind not in _ASYNCHRONOUS:
            self._is_asking = False
            self._counts.round_trips += 1
        if kind == b"E":
            self._has_failed = True
        elif kind == b"C":
            self._tag = message[5:-1]
        elif kind == b"Z":
            self._finish(is_idle=message[5:6] == b"I")
            return True
        return False

    def _finish(self, *, is_idle: bool) -> None:
        statements = self._pending.popleft() if self._pending else 0
        if is_idle and statements and not self._has_failed and self._tag != b"ROLLBACK":
            self._counts.commits += 1
        self._has_failed, self._tag = False, b""
