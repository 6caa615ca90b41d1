"""Blobs in a store in memory."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping

from plait.errors import (
    UnknownBlob,
)
from plait.ids import Digest, parse_digest
from plait.store.arguments import (
    check_number,
)
from plait.store.base import BlobInfo
from plait.store.blobs import check_size, checked_blobs, digest_of
from plait.store.memory.core import MemoryBlob, MemoryCore


class MemoryBlobs(MemoryCore):
    """Contents by digest."""

    def put_blob(self, content: bytes) -> Digest:
        check_size(content)
        digest = digest_of(content)
        with self._open():
            self._keep_blobs({digest: content})
        return digest

    def put_blobs(self, contents: Mapping[Digest, bytes]) -> None:
        content = checked_blobs(contents)
        with self._open():
            self._keep_blobs(content)

    def missing_blobs(self, digests: Collection[Digest]) -> set[Digest]:
        with self._open():
            there = [
                self._blobs[digest] for digest in digests if parse_digest(digest) in self._blobs
            ]
            for blob in there:
                blob.born = max(blob.born, self.number)
            return {digest for digest in digests if digest not in self._blobs}

    def get_blob(self, digest: Digest) -> bytes:
        return self._blob(digest).content

    def blob_info(self, digest: Digest) -> BlobInfo:
        blob = self._blob(digest)
        return BlobInfo(len(blob.content), len(blob.content), blob.refs)

    def blobs(self) -> Iterator[Digest]:
        with self._open():
            return iter(list(self._blobs))

    def sweep_blobs(self, *, before: int, keep: Container[Digest] = frozenset()) -> int:
        check_number("before", before)
        with self._open():
            unused = [
                digest
                for digest, blob in self._blobs.items()
                if not blob.refs and blob.born < before and digest not in keep
            ]
            for digest in unused:
                del self._blobs[digest]
        return len(unused)

    def _blob(self, digest: Digest) -> MemoryBlob:
        with self._open():
            if parse_digest(digest) not in self._blobs:
                raise UnknownBlob(digest)
            return self._blobs[digest]

    def _keep_blobs(self, content: Mapping[Digest, bytes]) -> None:
        for digest, data in content.items():
            blob = self._blobs.setdefault(digest, MemoryBlob(data, len(self._feed)))
            blob.born = len(self._feed)
