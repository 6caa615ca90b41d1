"""Blobs in a PostgreSQL store: small ones in rows, large ones in a bucket, if it has one.

A blob counts as used while an attachment names it, by a foreign key: a sweep cannot remove a blob
that an append refers to at the same moment, in whichever order they come.

An object is in the bucket before the row that names it is committed. How sweeps and puts of the
same object are kept apart is told in `large.py`.
"""

from __future__ import annotations

from collections.abc import (
    Collection,
    Container,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import psycopg

from plait.errors import StoreCorrupt, StoreDenied, UnknownBlob
from plait.ids import Digest, parse_digest
from plait.store import packing
from plait.store.arguments import check_number
from plait.store.base import BlobInfo
from plait.store.blobs import check_size, checked_blobs, digest_of
from plait.store.postgres.address import check_bucket_client
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.core import PostgresCore
from plait.store.postgres.large import (
    ERA_LOCKED,
    GRACE_S,
    EraPassed,
    ObjectName,
    is_large,
    large_of,
    may_be_large,
    parse_name,
)
from plait.store.postgres.wire import (
    COPY_BEGIN,
    COPY_END,
    pack_byteas,
    pack_copied,
    pack_int2s,
    pack_int4,
    pack_int8s,
)
from plait.store.prepare import PackedBlob, pack_blob

if TYPE_CHECKING:
    from plait.store.postgres.objects import Bucket

_PAGE = 512  # digests fetched at a time
_BATCH_BYTES = 4 << 20  # of content in one statement
_BATCH_ROWS = 2000
_COPY_MIN = 100  # blobs; for 50,000 files COPY takes a third of the time of INSERT
_UPLOADS = 4  # at a time

_PUT = """
INSERT INTO {s}.blob AS old (digest, size, codec, born, data, era)
SELECT b.digest, b.size, b.codec, {xid} << 16, b.data, CASE WHEN b.data IS NULL THEN $5::int4 END
FROM unnest($1::bytea[], $2::int8[], $3::int2[], $4::bytea[]) AS b (digest, size, codec, data)
ON CONFLICT (digest) DO UPDATE SET born = excluded.born, size = excluded.size,
    codec = excluded.codec, data = excluded.data, era = excluded.era"""
_COPY = "COPY {s}.blob (digest, size, codec, born, data, era) FROM STDIN (FORMAT binary)"
# A blob of which nothing says that it is used counts as put now. Its row is renewed if a number may
# have been given out since it was: that of an event that can be seen, or of a transaction that is
# running. A sweep may have removed it since the snapshot of this statement: then the update does
# not find it. With sizes, a blob of another size counts as missing: it is damaged.
_MISSING = """
WITH asked AS (SELECT * FROM unnest($1::bytea[], $2::int8[]) AS a (digest, size)),
newest AS MATERIALIZED (
    SELECT greatest((SELECT max(number) FROM {s}.event),
        (SELECT max(x::text::int8 + {offset}) << 16 | 65535
            FROM pg_snapshot_xip(pg_current_snapshot()) AS x)) AS number
),
there AS MATERIALIZED (
    SELECT a.digest, b.born > newest.number OR EXISTS (
        SELECT 1 FROM {s}.attachment t WHERE t.blob = a.digest) AS kept
    FROM newest, asked a JOIN {s}.blob b ON b.digest = a.digest
        AND b.size = coalesce(a.size, b.size)
),
renewed AS (
    UPDATE {s}.blob b SET born = {xid} << 16 FROM there
    WHERE b.digest = there.digest AND NOT there.kept
    RETURNING b.digest
)
SELECT digest FROM asked EXCEPT SELECT digest FROM there WHERE kept
    EXCEPT SELECT digest FROM renewed"""
_UNUSED = """
SELECT digest FROM {s}.blob b WHERE born < $1::int8 AND digest > $2::bytea
    AND NOT EXISTS (SELECT 1 FROM {s}.attachment a WHERE a.blob = b.digest)
ORDER BY digest LIMIT $3::int8"""
_REMOVE = """
DELETE FROM {s}.blob b WHERE digest = ANY($1::bytea[]) AND born < $2::int8
    AND NOT EXISTS (SELECT 1 FROM {s}.attachment a WHERE a.blob = b.digest)"""

# An era lasts for the grace time at least.
_RAISE_ERA = """
UPDATE {s}.store SET era = era + 1, era_since = clock_timestamp()
WHERE era_since <= clock_timestamp() - make_interval(secs => $1::float8)"""
_NAMED = """
SELECT digest, era, codec FROM {s}.blob WHERE digest = ANY($1::bytea[]) AND data IS NULL
    AND era IS NOT NULL"""


class PostgresBlobs(PostgresCore):
    """Contents by digest."""

    def put_blob(self, content: bytes) -> Digest:
        check_size(content)
        digest = digest_of(content)
        if self._bucket is None or not may_be_large(content) or self._missing({digest: content}):
            self._put({digest: content})
        return digest

    def put_blobs(self, contents: Mapping[Digest, bytes]) -> None:
        content = checked_blobs(contents)
        self._put({digest: content[digest] for digest in self._missing(content)})

    def missing_blobs(self, digests: Collection[Digest]) -> set[Digest]:
        return self._missing({parse_digest(digest): None for digest in digests})

    def _missing(self, contents: Mapping[Digest, bytes | None]) -> set[Digest]:
        """Return the blobs that are not there, or not of the size of their content."""
        names = sorted(contents)  # one order of locks in all processes
        sizes = [None if (content := contents[name]) is None else len(content) for name in names]
        sql = self._sql(_MISSING.replace("{offset}", str(self._offset)))
        digests = [bytes.fromhex(name) for name in names]
        found = self._run(lambda db: db.rows(sql, digests, sizes))
        return {Digest(digest.hex()) for (digest,) in found}

    def get_blob(self, digest: Digest) -> bytes:
        name = bytes.fromhex(parse_digest(digest))
        return self._run(lambda db: self._blob(db, name))

    def blob_info(self, digest: Digest) -> BlobInfo:
        name = bytes.fromhex(parse_digest(digest))
        sql = self._sql(
            "SELECT size, coalesce(length(data), 0)::int8, (SELECT count(*) FROM {s}.attachment a"
            " WHERE a.blob = b.digest) FROM {s}.blob b WHERE digest = $1::bytea"
        )
        row = self._run(lambda db: db.row(sql, name))
        if row is None:
            raise UnknownBlob(digest)
        return BlobInfo(*row)

    def blobs(self) -> Iterator[Digest]:
        after = b""
        sql = self._sql(
            "SELECT digest FROM {s}.blob WHERE digest > $1::bytea ORDER BY digest LIMIT $2::int8"
        )
        while True:
            rows = self._run(lambda db, after=after: db.rows(sql, after, _PAGE))
            yield from [Digest(digest.hex()) for (digest,) in rows]
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def sweep_blobs(self, *, before: int, keep: Container[Digest] = frozenset()) -> int:
        check_number("before", before)
        swept, after, sql = 0, b"", self._sql(_UNUSED)
        while True:
            rows = self._run(lambda db, after=after: db.rows(sql, before, after, _PAGE))
            unused = [digest for (digest,) in rows if Digest(digest.hex()) not in keep]
            swept += self._remove(unused, before)
            if len(rows) < _PAGE:
                break
            after = rows[-1][0]
        self._sweep_objects()
        return swept

    def _remove(self, digests: Sequence[bytes], before: int) -> int:
        """Remove blobs that nothing refers to; one that an append refers to meanwhile stays."""
        if not digests:
            return 0
        sql = self._sql(_REMOVE)

        def remove(db: ServerConnection) -> int | None:
            try:
                return db.run(sql, list(digests), before)
            except psycopg.errors.ForeignKeyViolation:
                return None

        removed = self._run(remove)
        if removed is None and len(digests) > 1:
            middle = len(digests) // 2
            return self._remove(digests[:middle], before) + self._remove(digests[middle:], before)
        return removed or 0

    def _put(self, contents: Mapping[Digest, bytes]) -> None:
        """Put blobs, all of them or none. They are packed batch by batch."""
        while contents:
            large, era = self._upload_contents(contents)
            try:
                return self._run(partial(self._put_rows, contents=contents, large=large, era=era))
            except EraPassed:
                continue

    def _put_rows(
        self,
        db: ServerConnection,
        contents: Mapping[Digest, bytes],
        large: Mapping[Digest, PackedBlob],
        era: int | None,
    ) -> None:
        if len(contents) >= _COPY_MIN:
            with suppress(psycopg.errors.UniqueViolation):  # one of them is there, or arrives now
                with self._in_era(db, era):
                    born = db.get(self._sql("SELECT {xid} << 16"))
                    db.copy(self._sql(_COPY), _copied(_rows(contents, large), born, era))
                return
        sql = self._sql(_PUT).encode()
        with self._in_era(db, era):
            for rows in _rows(contents, large):
                digests, sizes, codecs, data = zip(*rows, strict=True)
                values = pack_byteas(digests), pack_int8s(sizes), pack_int2s(codecs)
                number = None if era is None else pack_int4(era)
                db.run_prepared(b"put", sql, [*values, pack_byteas(data), number])

    @contextmanager
    def _in_era(self, db: ServerConnection, era: int | None) -> Generator[None]:
        """Run a transaction that writes rows of blobs. Raise if their uploads may be swept."""
        with db.transaction():
            if era is not None and db.get(self._sql(ERA_LOCKED), era):
                raise EraPassed
            yield

    def _blob(self, db: ServerConnection, name: bytes) -> bytes:
        sql = self._sql("SELECT codec, data, size, era FROM {s}.blob WHERE digest = $1::bytea")
        digest, missed = Digest(name.hex()), None
        while True:
            row = db.row(sql, name)
            if row is None:
                raise UnknownBlob(digest)
            codec, data, size, era = row
            if data is not None:
                return _checked_content(digest, codec, data, size)
            if era is None:
                raise StoreCorrupt(f"blob {digest}", "its row has no content, and names no object")
            named = ObjectName(digest, era, codec)
            if named == missed:
                why = f"its content is not in the bucket {self._bucket_address} ({named})"
                raise StoreCorrupt(f"blob {digest}", why)
            data = self._object(named, size)
            if data is not None:
                return _checked_content(digest, codec, data, size)
            missed = named  # a put may have moved it meanwhile

    # ── objects ──────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _bucket(self) -> Bucket | None:
        """The bucket that the address names; None: it names none."""
        if not self._bucket_asked:
            return None
        check_bucket_client()
        # its client is loaded by those who use it, and by no others
        from plait.store.postgres.objects import Bucket

        return Bucket(self._bucket_asked, self._id, self._connections.wait_s)

    def _object(self, name: ObjectName, size: int) -> bytes | None:
        """Return an object; None: it is not there."""
        if self._bucket is None:
            address, bucket = self._connections.address, self._bucket_address
            why = f"blob {name.digest} is in the bucket {bucket}, and the address names none"
            raise StoreDenied(address, why, f"add blobs={bucket} to the parameters of the address")
        return self._bucket.get(str(name), size)

    def _upload_contents(
        self, contents: Mapping[Digest, bytes]
    ) -> tuple[dict[Digest, PackedBlob], int | None]:
        """Upload those that belong into the bucket. Returns them without their data, and the
        era.
        """
        large = [digest for digest in sorted(contents) if may_be_large(contents[digest])]
        if self._bucket is None or not large:
            return {}, None
        era = self._era()

        def upload(digest: Digest) -> PackedBlob | None:
            blob = pack_blob(contents[digest])
            if not is_large(blob):
                return None
            self._upload_one(digest, blob, era)
            return blob._replace(data=b"")

        with ThreadPoolExecutor(min(_UPLOADS, len(large))) as threads:
            uploaded = dict(zip(large, threads.map(upload, large), strict=True))
        return {digest: blob for digest, blob in uploaded.items() if blob is not None}, era

    def _upload(self, blobs: Mapping[Digest, PackedBlob]) -> int | None:
        """Upload packed blobs that belong into the bucket. Returns the era; None: there are
        none.
        """
        large = large_of(blobs) if blobs and self._bucket is not None else {}
        if not large:
            return None
        era = self._era()
        for digest, blob in sorted(large.items()):
            self._upload_one(digest, blob, era)
        return era

    def _upload_one(self, digest: Digest, blob: PackedBlob, era: int) -> None:
        """Put an object if it is not there. One that is there is compared: a row will name it."""
        bucket, name = self._bucket, ObjectName(digest, era, blob.codec)
        assert bucket is not None
        if bucket.put(str(name), blob.data):
            return
        found = bucket.get(str(name), blob.size)
        try:
            if found is not None:
                _checked_content(digest, blob.codec, found, blob.size)
                return
        except StoreCorrupt:
            pass
        bucket.replace(str(name), blob.data)

    def _era(self) -> int:
        return self._run(lambda db: db.get(self._sql("SELECT era FROM {s}.store")))

    def _sweep_objects(self) -> None:
        """Remove objects of past eras that no row names."""
        if self._bucket is None:
            return
        self._run(lambda db: db.run(self._sql(_RAISE_ERA), GRACE_S))
        last = self._era() - 2
        for page in self._bucket.names():
            named = [name for name in map(parse_name, page) if name and name.era <= last]
            self._bucket.remove([str(name) for name in self._unnamed(named)])

    def _unnamed(self, names: Sequence[ObjectName]) -> list[ObjectName]:
        """Return the objects that no row names."""
        sql = self._sql(_NAMED)
        digests = [bytes.fromhex(name.digest) for name in names]
        rows = self._run(lambda db: db.rows(sql, digests)) if names else []
        there = {ObjectName(Digest(digest.hex()), era, codec) for digest, era, codec in rows}
        return [name for name in names if name not in there]


def _checked_content(digest: Digest, codec: int, data: bytes, size: int) -> bytes:
    """Return the content of a packed blob, once it is known to be that content."""
    content = packing.unpack(codec, data, min(size, packing.BLOB_SIZE_MAX))
    if len(content) != size or digest_of(content) != digest:
        raise StoreCorrupt(f"blob {digest}", "its content is not what its digest says")
    return content


class _BlobRow(NamedTuple):
    digest: bytes
    size: int
    codec: int
    data: bytes | None  # None: it is in the bucket


def _rows(
    contents: Mapping[Digest, bytes], large: Mapping[Digest, PackedBlob]
) -> Iterator[list[_BlobRow]]:
    """Yield the rows of blobs in batches. Those that are not in the bucket are packed here."""
    for batch in _batches(contents):
        rows: list[_BlobRow] = []
        for digest in batch:
            blob = large.get(digest) or pack_blob(contents[digest])
            data = None if digest in large else blob.data
            rows.append(_BlobRow(bytes.fromhex(digest), blob.size, blob.codec, data))
        yield rows


def _copied(rows: Iterable[list[_BlobRow]], born: int, era: int | None) -> Iterator[bytes]:
    """Yield rows as COPY takes them."""
    yield COPY_BEGIN
    for batch in rows:
        yield pack_copied(
            (
                each.digest,
                each.size,
                each.codec,
                born,
                each.data,
                era if each.data is None else None,
            )
            for each in batch
        )
    yield COPY_END


def _batches(contents: Mapping[Digest, bytes]) -> Iterable[list[Digest]]:
    batch: list[Digest] = []
    size = 0
    for digest in sorted(contents):  # one order of locks in all processes
        batch.append(digest)
        size += len(contents[digest])
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
