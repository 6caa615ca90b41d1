"""Columns of event tables, as values: events and ids, the same in every database."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from plait.errors import ContentGone, StoreCorrupt
from plait.event import Event
from plait.ids import Digest, LogId, parse_log_id
from plait.store import packing

COLUMNS = "seq, codec, salt, header, body"

_PACKED = packing.HEADER_1 | packing.BODY_1  # how most events are kept


def to_event(row: Any, get_blob: Callable[[Digest], bytes], kind: str | None = None) -> Event:
    """Return an event from its COLUMNS. It is unpacked, and its body fetched, at first access."""
    codec, body = row[1], row[4]
    if type(codec) is not int:  # a damaged page can give anything
        raise StoreCorrupt("an event", f"its codec is {codec!r}")
    if codec == _PACKED and body is not None:
        return Event(
            partial(packing.unpack_header, codec, row[3]),
            row[2],
            partial(packing.unpack_body, body),
            kind=kind,
        )
    return Event(
        partial(packing.unpack_header, codec, row[3]),
        row[2],
        partial(content_of, codec, body, get_blob),
        kind=kind,
    )


def content_of(codec: int, body: bytes | None, get_blob: Callable[[Digest], bytes]) -> bytes:
    if body is None:
        raise ContentGone("an event", "its body is gone")
    kept = codec & ~packing.HEADER_1
    if kept == packing.BODY_1:
        return packing.unpack_body(body)
    if kept == packing.IN_BLOB:
        return get_blob(Digest(body.hex()))
    return packing.unpack(kept, body, packing.BODY_INLINE_MAX)


def short_of(id: Digest) -> int:
    """The first 8 bytes of an event's id, as the signed integer that is indexed."""
    number = int(id[:16], 16)
    return number if number < 2**63 else number - 2**64


@lru_cache(4096)  # the same few logs are written to and asked for
def to_bytes(log: LogId) -> bytes:
    return bytes.fromhex(parse_log_id(log).replace("-", ""))


def to_id(raw: bytes) -> LogId:
    text = raw.hex()
    return LogId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
