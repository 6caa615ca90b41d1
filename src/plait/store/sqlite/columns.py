"""Columns of the tables, as values: events, ids, blobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from plait.errors import (
    StoreCorrupt,
    UnknownBlob,
)
from plait.event import Event
from plait.ids import Digest, LogId, parse_digest, parse_log_id
from plait.store import packing
from plait.store.blobs import digest_of
from plait.store.sqlite.database import Database

COLUMNS = "seq, codec, salt, header, body"

BY_ID = "substr(l.id, 11) = ? AND l.id = ?"

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
        raise StoreCorrupt("an event", "its body is gone")
    kept = codec & ~packing.HEADER_1
    if kept == packing.BODY_1:
        return packing.unpack_body(body)
    if kept == packing.IN_BLOB:
        return get_blob(Digest(body.hex()))
    return packing.unpack(kept, body, packing.BODY_INLINE_MAX)


def holds_blob(db: Database, digest: Digest, content: bytes) -> bool:
    """True if events point to this digest, and this content stands under it."""
    row = db.row(
        "SELECT refs, size, codec, data FROM blob WHERE digest = ?", (bytes.fromhex(digest),)
    )
    if row is None or not row[0] or row[1] != len(content):
        return False
    try:
        return packing.unpack(row[2], row[3], len(content)) == content
    except StoreCorrupt:
        return False


def get_blob(db: Database, digest: Digest) -> bytes:
    row = db.row(
        "SELECT codec, data, size FROM blob WHERE digest = ?",
        (bytes.fromhex(parse_digest(digest)),),
    )
    if row is None:
        raise UnknownBlob(digest)
    codec, data, size = row
    content = packing.unpack(codec, data, min(size, packing.BLOB_SIZE_MAX))
    if len(content) != size or digest_of(content) != digest:
        raise StoreCorrupt(f"blob {digest}", "its content is not what its digest says")
    return content


def only_kinds(kinds: Collection[str] | None, codes: Mapping[str, int]) -> tuple[str, list[int]]:
    """A condition that keeps only these kinds; None keeps all."""
    if kinds is None:
        return "", []
    wanted = [code for name, code in codes.items() if name in kinds]
    return f"AND kind IN ({', '.join('?' * len(wanted))})", wanted


def short_of(id: Digest) -> int:
    """The first 8 bytes of an event's id, as the signed integer that is indexed."""
    number = int(id[:16], 16)
    return number if number < 2**63 else number - 2**64


def by_id(log: LogId) -> tuple[bytes, bytes]:
    """The values for BY_ID."""
    raw = to_bytes(log)
    return raw[10:], raw


def to_bytes(log: LogId) -> bytes:
    return bytes.fromhex(parse_log_id(log).replace("-", ""))


def to_id(raw: bytes) -> LogId:
    text = raw.hex()
    return LogId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
