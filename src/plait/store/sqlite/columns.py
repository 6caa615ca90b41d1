"""Columns of the tables, as values: blobs, and conditions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from plait.errors import (
    StoreCorrupt,
    UnknownBlob,
)
from plait.ids import Digest, LogId, parse_digest
from plait.store import packing
from plait.store.blobs import digest_of
from plait.store.records import to_bytes
from plait.store.sqlite.database import Database

BY_ID = "substr(l.id, 11) = ? AND l.id = ?"


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
    wanted = [codes[name] for name in kinds if name in codes]
    return f"AND kind IN ({', '.join('?' * len(wanted))})", wanted


def by_id(log: LogId) -> tuple[bytes, bytes]:
    """The values for BY_ID."""
    raw = to_bytes(log)
    return raw[10:], raw
