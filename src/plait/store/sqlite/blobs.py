"""Blobs in a SQLite store."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping

import msgspec

from plait.errors import (
    UnknownBlob,
)
from plait.ids import Digest, parse_digest
from plait.store.arguments import (
    check_number,
)
from plait.store.base import BlobInfo
from plait.store.blobs import check_size, checked_blobs, digest_of
from plait.store.prepare import pack_blob
from plait.store.sqlite.columns import get_blob, holds_blob
from plait.store.sqlite.core import SqliteCore

_PAGE = 512  # digests fetched at a time


class SqliteBlobs(SqliteCore):
    """Contents by digest."""

    def put_blob(self, content: bytes) -> Digest:
        check_size(content)
        digest = digest_of(content)
        with self._reader() as db:
            there = holds_blob(db, digest, content)
            any_async = db.get("SELECT 1 FROM log WHERE lazy = 1 LIMIT 1")
        if there:
            if any_async:
                # an event of an async log may have brought it, a moment ago, in whichever process
                self.flush()
            return digest
        packed = {digest: pack_blob(content)}
        self._connections.write(lambda db: self._work.put_blobs(db, packed))
        return digest

    def put_blobs(self, contents: Mapping[Digest, bytes]) -> None:
        content = checked_blobs(contents)
        # Those of another length were planted. To read the others, too, would cost as much again:
        # `verify` does.
        missing = self.missing_blobs(content) | self._blobs_of_other_sizes(content)
        packed = {digest: pack_blob(content[digest]) for digest in missing}
        if packed:
            self._connections.write(lambda db: self._work.put_blobs(db, packed))
        if len(missing) < len(content):
            with self._reader() as db:
                any_async = db.get("SELECT 1 FROM log WHERE lazy = 1 LIMIT 1")
            if any_async:
                self.flush()  # as in put_blob

    def missing_blobs(self, digests: Collection[Digest]) -> set[Digest]:
        names = [parse_digest(digest) for digest in digests]
        with self._reader() as db:
            born = db.get("SELECT max(number) FROM event") or 0
            sql = (
                "SELECT j.value, b.refs = 0 AND b.born < ? FROM json_each(?) j JOIN blob b ON"
                " b.digest = unhex(j.value)"
            )
            there = dict(db.rows(sql, (born, msgspec.json.encode(names).decode())))
        old = [digest for digest, is_old in there.items() if is_old]
        gone = (
            self._connections.write(lambda db: self._work.renew_blobs(db, old))
            if old
            else set[Digest]()
        )
        return (set(names) - there.keys()) | gone

    def get_blob(self, digest: Digest) -> bytes:
        with self._reader() as db:
            return get_blob(db, digest)

    def blob_info(self, digest: Digest) -> BlobInfo:
        with self._reader() as db:
            row = db.row(
                "SELECT size, length(data), refs FROM blob WHERE digest = ?",
                (bytes.fromhex(parse_digest(digest)),),
            )
        if row is None:
            raise UnknownBlob(digest)
        return BlobInfo(*row)

    def blobs(self) -> Iterator[Digest]:
        after = -(2**63)
        while True:
            with self._reader() as db:
                rows = db.rows(
                    "SELECT key, digest FROM blob WHERE key > ? ORDER BY key LIMIT ?",
                    (after, _PAGE),
                )
                digests = [Digest(digest.hex()) for _, digest in rows]
            yield from digests
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def sweep_blobs(self, *, before: int, keep: Container[Digest] = frozenset()) -> int:
        check_number("before", before)
        return self._connections.write(lambda db: self._work.sweep_blobs(db, before, keep))

    def _blobs_of_other_sizes(self, contents: Mapping[Digest, bytes]) -> set[Digest]:
        sizes = {digest: len(content) for digest, content in contents.items()}
        sql = (
            "SELECT j.key FROM json_each(?) j JOIN blob b ON b.digest = unhex(j.key) WHERE b.size"
            " != j.value"
        )
        with self._reader() as db:
            return {digest for (digest,) in db.rows(sql, (msgspec.json.encode(sizes).decode(),))}
