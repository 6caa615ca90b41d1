"""Blobs: content by its digest.

A blob's digest is the plain SHA-256 of its content, so `sha256sum` finds it too. How it is packed
is in `packing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from plait.errors import CommitmentBroken, InvalidValue, TooLarge
from plait.ids import Digest, parse_digest
from plait.store.packing import BLOB_SIZE_MAX


def digest_of(content: bytes) -> Digest:
    return Digest(sha256(content).hexdigest())


def checked_blobs(blobs: Mapping[Digest, bytes] | None) -> dict[Digest, bytes]:
    """Content handed in under a digest, once it is known to be that content."""
    if not blobs:
        return {}
    if not isinstance(blobs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue(
            "blobs", f"a {type(blobs).__name__} is not a mapping", "pass {digest: content}"
        )
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
