"""Values of the hot statements, in PostgreSQL's binary form.

The statements of an append and of a look at heads are sent as they are, without the driver's search
for types: it takes longer than the rest of the append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any

_INT2, _INT4, _INT8 = 21, 23, 20
_BYTEA = 17
_FLOAT8 = 701
_ARRAY = Struct("!iiiii")  # dimensions, any NULL, type of an element, length, first index
_EMPTY = Struct("!iii")
_SIZE = Struct("!i")
_NULL = _SIZE.pack(-1)
_long = Struct("!q")
_int = Struct("!i")
_short = Struct("!h")
_double = Struct("!d")
_of_double = Struct("!id")
_of_long = Struct("!iq")
_of_int = Struct("!ii")
_of_short = Struct("!ih")
_copied = Struct("!hi32siqihiq")
COPY_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END = b"\xff\xff"

pack_int8 = _long.pack
pack_int4 = _int.pack
pack_int2 = _short.pack
pack_float8 = _double.pack


def pack_bool(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def pack_int8s(values: Sequence[int]) -> bytes:
    return _head(_INT8, len(values)) + b"".join([_of_long.pack(8, value) for value in values])


def pack_int4s(values: Sequence[int]) -> bytes:
    return _head(_INT4, len(values)) + b"".join([_of_int.pack(4, value) for value in values])


def pack_int2s(values: Sequence[int]) -> bytes:
    return _head(_INT2, len(values)) + b"".join([_of_short.pack(2, value) for value in values])


def pack_float8s(values: Sequence[float]) -> bytes:
    return _head(_FLOAT8, len(values)) + b"".join([_of_double.pack(8, value) for value in values])


def pack_byteas(values: Sequence[bytes | None]) -> bytes:
    parts = [_head(_BYTEA, len(values))]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += _SIZE.pack(len(value)), value
    return b"".join(parts)


def pack_column(kind: str, values: Sequence[str | int | float | bytes | None]) -> bytes:
    """Pack the values of a column of rows, of which some may be NULL, as an array."""
    type_of, pack = _COLUMNS[kind]
    parts = [_head(type_of, len(values))]
    parts += [_NULL if value is None else pack(value) for value in values]
    return b"".join(parts)


def _sized(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


_COLUMNS: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "text": (_BYTEA, lambda value: _sized(value.encode())),
    "blob": (_BYTEA, _sized),
    "integer": (_INT8, lambda value: _of_long.pack(8, value)),
    "real": (_FLOAT8, lambda value: _of_double.pack(8, value)),
}


def pack_copied(rows: Iterable[tuple[bytes, int, int, int, bytes | None, int | None]]) -> bytes:
    """Pack rows of blobs for COPY: digest, size, codec, born, data, era."""
    parts: list[bytes] = []
    for digest, size, codec, born, data, era in rows:
        parts.append(_copied.pack(6, 32, digest, 8, size, 2, codec, 8, born))
        parts += (_NULL,) if data is None else (_SIZE.pack(len(data)), data)
        parts.append(_NULL if era is None else _of_int.pack(4, era))
    return b"".join(parts)


def unpack_int8(data: bytes | None) -> int:
    assert data is not None
    return _long.unpack(data)[0]


def unpack_int4(data: bytes | None) -> int:
    assert data is not None
    return _int.unpack(data)[0]


def _head(kind: int, length: int) -> bytes:
    return _ARRAY.pack(1, 1, kind, length, 1) if length else _EMPTY.pack(0, 0, kind)
