"""Packing of bytes for the disk. Hashes are of the content, never of the packed form.

An event is a few hundred bytes, too few for a compressor to learn anything from, so it is told:
headers and bodies each have a shipped dictionary, trained by `tools/dictionaries.py`. That takes a
header from 350 to about 150 bytes, and since the dictionary brings its tables along, it also halves
the time it takes to pack and unpack a body. Blobs are long enough to do without.

The codec stands beside the bytes. A dictionary that was ever written with is read for ever, under
its number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import zstandard

from plait.errors import StoreCorrupt

# how a body is kept; IN_BLOB: it was too long, and its digest stands there
PLAIN, ZSTD, IN_BLOB, BODY_1 = 0, 1, 2, 3
HEADER_1 = 8  # added to that if the header is packed

BLOB_SIZE_MAX = 1_000_000_000  # SQLite's own limit for one value
BODY_INLINE_MAX = 4096
SNAPSHOT_SIZE_MAX = 64 * 1024 * 1024  # a cache need not be larger, and a hostile one may not
_HEADER_SIZE_MAX = 1024 * 1024
_PACK_MIN = 128  # below, a zstd frame without a dictionary saves nothing

DICTIONARIES = Path(__file__).parent / "dictionaries"

_Convert = Callable[[bytes], bytes]

_frame_size = zstandard.frame_content_size

# A frame is unpacked with (data, 0, False, False): to its own size, that one alone, and nothing may
# follow it, because no hash would cover it. By position: a name costs as much as unpacking a
# header.


class _Codec(threading.local):
    """zstd contexts may not be shared between threads."""

    def __init__(self) -> None:
        self.pack: _Convert = zstandard.ZstdCompressor(level=3, write_checksum=False).compress
        self.unpacker = zstandard.ZstdDecompressor()
        self.pack_header, self.unpack_header = _with_dictionary("header-1")
        self.pack_body, self.unpack_body = _with_dictionary("body-1")


def _with_dictionary(name: str) -> tuple[_Convert, Callable[..., bytes]]:
    dictionary = _dictionary(name)
    packer = zstandard.ZstdCompressor(
        level=1, dict_data=dictionary, write_checksum=False, write_dict_id=False
    )
    return packer.compress, zstandard.ZstdDecompressor(dict_data=dictionary).decompress


@cache
def _dictionary(name: str) -> zstandard.ZstdCompressionDict:
    dictionary = zstandard.ZstdCompressionDict((DICTIONARIES / f"{name}.zdict").read_bytes())
    dictionary.precompute_compress(level=1)  # pyright: ignore[reportUnknownMemberType]
    return dictionary


_codec = _Codec()


def pack(content: bytes) -> tuple[int, bytes]:
    """For blobs: the codec and the bytes to store."""
    if len(content) >= _PACK_MIN:
        packed = _codec.pack(content)
        if len(packed) < len(content) - len(content) // 16:
            return ZSTD, packed
    return PLAIN, content


def pack_event(header: bytes, body: bytes) -> tuple[int, bytes, bytes]:
    """The codec, and header and body as they are stored."""
    head, packed = _codec.pack_header(header), _codec.pack_body(body)
    if len(packed) < len(body):
        return HEADER_1 | BODY_1, head, packed
    return HEADER_1 | PLAIN, head, body


def pack_header(header: bytes) -> bytes:
    """Pack the header of an event with its body in a blob: the codec is HEADER_1 | IN_BLOB."""
    return _codec.pack_header(header)


def unpack(codec: int, data: bytes, size_max: int = BLOB_SIZE_MAX) -> bytes:
    """Content again, if no dictionary was used.

    A frame that claims more than `size_max` is refused before memory is given to it.
    """
    if codec == PLAIN:
        return _plain(data)
    if codec == ZSTD:
        return _unpack(data, size_max)
    raise StoreCorrupt("packed bytes", f"unknown codec {codec}")


def unpack_body(data: bytes) -> bytes:
    """Of codec BODY_1: most events have this one, so it takes no detour."""
    try:
        if 0 < _frame_size(data) <= BODY_INLINE_MAX:
            return _codec.unpack_body(data, 0, False, False)
    except (zstandard.ZstdError, MemoryError, TypeError) as error:
        raise StoreCorrupt("packed bytes", str(error)) from error
    raise StoreCorrupt("packed bytes", f"a frame claims {_frame_size(data):,} bytes")


def unpack_header(codec: int, data: bytes) -> bytes:
    """A header again, by the codec of its event."""
    if not codec & HEADER_1:
        return _plain(data)
    try:
        if 0 < _frame_size(data) <= _HEADER_SIZE_MAX:
            return _codec.unpack_header(data, 0, False, False)
    except (zstandard.ZstdError, MemoryError, TypeError) as error:
        raise StoreCorrupt("packed bytes", str(error)) from error
    raise StoreCorrupt("packed bytes", f"a frame claims {_frame_size(data):,} bytes")


def _plain(data: object) -> bytes:
    if not isinstance(data, bytes):  # a damaged page can give anything
        raise StoreCorrupt("packed bytes", f"a {type(data).__name__} stands there")
    return data


def frame(content: bytes) -> bytes:
    """Packed whether that pays or not, for where no codec stands beside the bytes."""
    return _codec.pack(content)


def _unpack(data: bytes, size_max: int) -> bytes:
    try:
        size = _frame_size(data)
        if not 0 <= size <= size_max:
            raise StoreCorrupt("packed bytes", f"a frame claims {size:,} bytes")
        return _codec.unpacker.decompress(data, 0, False, False) if size else _unpack_empty(data)
    except (zstandard.ZstdError, MemoryError, TypeError) as error:
        raise StoreCorrupt("packed bytes", str(error)) from error


def _unpack_empty(data: bytes) -> bytes:
    """Of a frame that claims to hold nothing the library believes it, without a
    look at the rest.
    """
    reader = _codec.unpacker.decompressobj()
    content = reader.decompress(data)
    if (
        content
        or reader.unused_data
        or not reader.eof
        or not data.startswith(zstandard.FRAME_HEADER)
    ):
        raise zstandard.ZstdError("an empty frame has bytes beside it")
    return content
