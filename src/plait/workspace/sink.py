"""Content on its way to the store, in batches."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

from plait.ids import Digest
from plait.workspace.tree import digest_of

BATCH = 8 << 20  # bytes of content that are held before they go to the store


class BlobWriter(Protocol):
    """Stores contents in batches."""

    def put_blobs(self, contents: Mapping[Digest, bytes]) -> None: ...


class Sink:
    """Collects content that the store may not have yet, and writes it whenever a batch is full."""

    def __init__(self, store: BlobWriter) -> None:
        self._store, self._lock = store, threading.Lock()
        self.waiting: dict[Digest, bytes] = {}
        self._size = 0

    def add(self, content: bytes) -> Digest:
        digest = digest_of(content)
        full: dict[Digest, bytes] = {}
        with self._lock:
            if digest not in self.waiting:
                self.waiting[digest] = content
                self._size += len(content) + 200
            if self._size > BATCH:
                full, self.waiting, self._size = self.waiting, {}, 0
        if full:
            self._store.put_blobs(full)
        return digest

    def flush(self) -> None:
        waiting, self.waiting, self._size = self.waiting, {}, 0
        if waiting:
            self._store.put_blobs(waiting)
