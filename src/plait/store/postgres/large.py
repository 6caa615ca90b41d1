"""Large blobs, which a store with a bucket keeps there: which ones, and under which names.

An object is named by digest, era and codec, and holds the packed bytes. The era is a number in the
store's own row, which sweeps raise. It keeps a sweep and a put of the same blob apart, however slow
either is:

- A put uploads under the era that it has read, if no such object is there. The statement that then
  writes the row requires that the era has been raised once at most since, under a lock that a raise
  waits for (FOR SHARE). Else the put begins anew, in the present era.
- A sweep removes objects of eras before the last two, if no row names them. None can be named any
  more, so a removal that arrives late does no harm.
- An era lasts for the grace time at least, by the server's clock. So an object stays that long
  after its row is gone, and an upload that long before its row is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from plait.ids import Digest
from plait.store import packing
from plait.store.prepare import PackedBlob

# Packed bytes. On one machine, with the database on disk and moto's S3 server beside it, a put and
# a get took 28 ms in a row and 39 ms in the bucket for 256 KB, 54 ms and 44 ms for 512 KB, 170 ms
# and 67 ms for 1 MB. Reading alone is faster from a row up to 2 MB.
OBJECT_MIN = 512 << 10
GRACE_S = 3600.0

# After a raise, this era and the one before it may still be written with.
ERA_PASSED = "SELECT era > $1::int4 + 1 FROM {s}.store"
ERA_LOCKED = f"{ERA_PASSED} FOR SHARE"

_NAME = re.compile(r"([0-9a-f]{64})\.(\d{1,9})(\.zst)?\Z")


class EraPassed(Exception):
    """The uploads are of an era that may be swept: they have to be repeated."""


class ObjectName(NamedTuple):
    """The name of an object, below the prefix and the store's id."""

    digest: Digest
    era: int
    codec: int

    def __str__(self) -> str:
        return f"{self.digest}.{self.era}{'.zst' if self.codec == packing.ZSTD else ''}"


def parse_name(name: str) -> ObjectName | None:
    """Return the parts of a name; None: the object is none of ours."""
    found = _NAME.match(name)
    if found is None:
        return None
    return ObjectName(Digest(found[1]), int(found[2]), packing.ZSTD if found[3] else packing.PLAIN)


def may_be_large(content: bytes) -> bool:
    """False if the content, once packed, cannot belong into a bucket."""
    return len(content) >= OBJECT_MIN


def is_large(blob: PackedBlob) -> bool:
    return len(blob.data) >= OBJECT_MIN


def large_of(blobs: Mapping[Digest, PackedBlob]) -> dict[Digest, PackedBlob]:
    """Return the blobs that belong into a bucket."""
    return {digest: blob for digest, blob in blobs.items() if is_large(blob)}


def row_data(blob: PackedBlob, era: int | None) -> bytes | None:
    """Return the bytes for the row of a blob; None: they are in the bucket."""
    return None if era is not None and is_large(blob) else blob.data
