"""Blobs: content by its digest, and how bytes are packed.

A blob's digest is the plain SHA-256 of its content, so `sha256sum` finds it too. Content is compressed when that
pays; the codec is stored beside the bytes, and the digest is always over the content, never over the packed form.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from hashlib import sha256

import zstandard

from plait.errors import CommitmentBroken, InvalidValue, StoreCorrupt, TooLarge
from plait.ids import Digest, parse_digest

PLAIN, ZSTD, IN_BLOB = 0, 1, 2  # IN_BLOB: an event's body that was too long for its row; the row holds the digest

BODY_INLINE_MAX = 4096
BLOB_SIZE_MAX = 1_000_000_000  # SQLite's own limit for one value
_PACK_MIN = 128  # below, a zstd frame saves nothing


class _Codec(threading.local):
    """zstd contexts may not be shared between threads."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=3, write_checksum=False).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codec = _Codec()


def digest_of(content: bytes) -> Digest:
    return Digest(sha256(content).hexdigest())


def pack(content: bytes) -> tuple[int, bytes]:
    """The codec and the bytes to store."""
    if len(content) >= _PACK_MIN:
        packed = _codec.compress(content)
        if len(packed) < len(content) - len(content) // 16:
            return ZSTD, packed
    return PLAIN, content


def unpack(codec: int, data: bytes, size_max: int = BLOB_SIZE_MAX) -> bytes:
    """The content again. A frame that claims more than `size_max` is refused before memory is given to it."""
    if codec == PLAIN:
        return data
    if codec != ZSTD:
        raise StoreCorrupt("packed bytes", f"unknown codec {codec}")
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= size_max:
            raise StoreCorrupt("packed bytes", f"a frame claims {size:,} bytes")
        return _codec.decompress(data)
    except (zstandard.ZstdError, MemoryError) as error:
        raise StoreCorrupt("packed bytes", str(error)) from error


def frame(content: bytes) -> bytes:
    """Packed whether that pays or not, for where no codec stands beside the bytes."""
    return _codec.compress(content)


def checked(blobs: Mapping[Digest, bytes] | None) -> dict[Digest, bytes]:
    """Content handed in under a digest, once it is known to be that content."""
    if not blobs:
        return {}
    if not isinstance(blobs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue("blobs", f"a {type(blobs).__name__} is not a mapping", "pass {digest: content}")
    for name, content in blobs.items():
        check_size(content)
        found = digest_of(content)
        if found != parse_digest(name, "blobs"):
            raise CommitmentBroken("blob", name, found)
    return dict(blobs)


def check_size(content: bytes, name: str = "blob") -> None:
    if not isinstance(content, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue(name, f"a {type(content).__name__} is not bytes", "encode it first")
    if len(content) > BLOB_SIZE_MAX:
        raise TooLarge(f"the {name}", len(content), BLOB_SIZE_MAX)
