"""Digests and ids.

A digest is SHA-256 in lowercase hex, always over a tag that says what is hashed, so that the bytes
of one thing can never stand in for another. Logs have UUIDs: version 7 when fresh (made by the
`Source`), version 8 when derived by hashing from something that is known already, so that
deriving it again finds the same log.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import NewType, Protocol

import msgspec

from plait.errors import InvalidValue

Digest = NewType("Digest", str)
LogId = NewType("LogId", str)
Micros = int  # microseconds since 1970, UTC

SALT_SIZE = 16

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


class Source(Protocol):
    """Gives time, ids and salt: the live one asks the system, a seeded one computes them.

    A seeded source answers by its arguments and never by the number of earlier calls, so that
    threads do not change a simulated history.
    """

    def now(self, log: LogId, seq: int) -> Micros: ...
    def salt(self, log: LogId, seq: int) -> bytes: ...
    def fresh(self, *about: str | int) -> LogId: ...


def digest(*parts: bytes) -> Digest:
    """SHA-256 of the parts one after another. The first one is the tag."""
    return Digest(sha256(b"".join(parts)).hexdigest())


def derive_id(tag: str, *parts: str | int) -> LogId:
    """Return the id that follows from the parts: their SHA-256 as a UUID, version 8."""
    raw = bytearray(sha256(msgspec.json.encode([tag, *parts])).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return LogId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


@lru_cache(1024)  # asked for at every effect
def inbox_of(log: LogId) -> LogId:
    """The log in which others write to a session while a run holds it."""
    return derive_id("plait/inbox/1", log)


def house_of(store: LogId) -> LogId:
    """The log of acts that belong to no session of a store."""
    return derive_id("plait/house/1", store)


def short(log: LogId) -> str:
    """Return the id as people type it: the start of the random tail.

    The front of a UUIDv7 is the time, the same for all of an hour.
    """
    return log[-12:-4]


def is_digest(text: str) -> bool:
    return _DIGEST.match(text) is not None


def parse_digest(text: object, where: str = "digest") -> Digest:
    if isinstance(text, str) and _DIGEST.match(text):
        return Digest(text)
    raise InvalidValue(where, f"{text!r} is not 64 lowercase hex digits", "pass the whole digest")


def parse_log_id(text: object, where: str = "log") -> LogId:
    if isinstance(text, str) and _UUID.match(text):
        return LogId(text)
    raise InvalidValue(
        where,
        f"{text!r} is not a UUID of version 7 or 8 in lowercase",
        "pass the whole id; match() finds it by a part",
    )
