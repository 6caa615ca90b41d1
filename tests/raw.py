"""A store's file, read with SQLite, zstandard and JSON alone: no code of the product has a part in
it.

What the product says of an edited file is compared with what is read here. So nothing here may be
lenient: a packed value is one frame, to its last byte, or it is something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

import plait

_DICTIONARIES = Path(plait.__file__).parent / "store" / "dictionaries"
_MAGIC = b"\x28\xb5\x2f\xfd"
_SIZE_MAX = 10**7
_PACKED_HEADER, _ZSTD, _PACKED_BODY = 8, 1, 3  # of a codec

Ask = Callable[..., list[Any]]


def _unpacker(name: str) -> zstandard.ZstdDecompressor:
    dictionary = zstandard.ZstdCompressionDict((_DICTIONARIES / f"{name}.zdict").read_bytes())
    return zstandard.ZstdDecompressor(dict_data=dictionary)


_HEADERS, _BODIES, _BLOBS = _unpacker("header-1"), _unpacker("body-1"), zstandard.ZstdDecompressor()


def _one_frame(unpacker: zstandard.ZstdDecompressor, data: object) -> bytes | None:
    """The content of bytes that are one frame and nothing else; None if they are not."""
    if not isinstance(data, bytes) or not data.startswith(_MAGIC):
        return None
    try:
        if not 0 <= zstandard.frame_content_size(data) <= _SIZE_MAX:
            return None
        reader = unpacker.decompressobj()
        content = reader.decompress(data)
    except (zstandard.ZstdError, MemoryError):
        return None
    return content if reader.eof and not reader.unused_data and not reader.unconsumed_tail else None


def plain_header(codec: int, header: bytes) -> bytes:
    """A header without its packing; what cannot be unpacked is left as it is."""
    content = _one_frame(_HEADERS, header) if codec & _PACKED_HEADER else header
    return header if content is None else content


def plain_body(codec: int, body: bytes) -> bytes:
    """A body or a blob without its packing; what cannot be unpacked is left as it is."""
    content = _content(codec & ~_PACKED_HEADER, body)[1]
    return body if content is None else content


def _header(codec: int, header: bytes) -> tuple[Any, ...]:
    if not codec & _PACKED_HEADER:
        return "plain", header
    content = _one_frame(_HEADERS, header)
    return ("unreadable", codec, header) if content is None else ("plain", content)


def _content(codec: int, data: Any) -> tuple[Any, ...]:
    if codec not in (_ZSTD, _PACKED_BODY):
        return ("plain", data) if codec == 0 else (codec, data)
    content = _one_frame(_BLOBS if codec == _ZSTD else _BODIES, data)
    return (("codec", codec), data) if content is None else ("plain", content)


class Meaning(NamedTuple):
    """All content of a store, read by raw SQL, with its content unpacked."""

    marks: list[Any]
    schema: list[tuple[Any, ...]]
    stores: list[Any]
    odd: list[tuple[Any, ...]]  # counters that cannot be
    kinds: list[tuple[Any, ...]]
    logs: list[tuple[Any, ...]]
    events: list[tuple[Any, ...]]
    blobs: list[tuple[Any, ...]]  # those that are pointed to, counted as if, or led to by a tree
    projections: list[tuple[Any, ...]]
    rows: dict[str, list[tuple[Any, ...]]]
    loose: frozenset[tuple[Any, ...]]  # the other blobs; they may be swept
    kept: frozenset[tuple[Any, ...]]  # snapshots; a cache may lose any

    def same(self, other: Meaning) -> bool:
        return self[:-2] == other[:-2] and self.loose >= other.loose and self.kept >= other.kept


_EVENTS = (
    "SELECT number, log, seq, kind, short, codec, salt, header, body FROM event ORDER BY number"
)
_ODD = (
    "SELECT digest, born FROM blob WHERE born NOT BETWEEN 0 AND (SELECT max(number) FROM event) "
    "UNION ALL SELECT id, synced FROM store WHERE synced NOT BETWEEN 0 AND 1000000"
)
_LOGS = "SELECT id, parent, place, head, tip, lazy, epoch FROM log ORDER BY key"


def meaning(sql: Ask) -> Meaning:
    kinds, logs = dict(sql("SELECT code, name FROM kind")), dict(sql("SELECT key, id FROM log"))
    digests = dict(sql("SELECT key, digest FROM blob"))
    attached: dict[int, list[Any]] = {}
    for event, blob in sql("SELECT event, blob FROM attachment ORDER BY event, blob"):
        attached.setdefault(event, []).append(digests.get(blob, blob))
    events = [
        (
            number,
            logs.get(log, log),
            seq,
            kinds.get(kind, kind),
            short,
            salt,
            _header(codec, header),
            _body(codec, body),
        )
        + (attached.pop(number, []),)
        for number, log, seq, kind, short, codec, salt, header, body in sql(_EVENTS)
    ]
    blobs = [
        (digest, size, refs, _content(codec, data) if codec != _PACKED_BODY else (codec, data))
        for digest, size, codec, refs, data in sql(
            "SELECT digest, size, codec, refs, data FROM blob ORDER BY digest"
        )
    ]
    wanted = _in_trees(blobs)
    used = [blob for blob in blobs if blob[2] or blob[0] in wanted]
    tables = sql(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'p_*' ORDER BY name"
    )
    return Meaning(
        [sql(f"PRAGMA {name}") for name in ("application_id", "user_version")],
        sql(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT GLOB 'sqlite_stat*'"
            " ORDER BY type, name"
        ),
        [id for (id,) in sql("SELECT id FROM store")],
        sql(_ODD),
        sql("SELECT code, name FROM kind ORDER BY code"),
        [(id, logs.get(parent, parent), *rest) for id, parent, *rest in sql(_LOGS)],
        [*events, *attached.items()],
        used,
        sql("SELECT name, version FROM projection ORDER BY name"),
        {name: sorted(sql(f"SELECT * FROM [{name}]"), key=repr) for (name,) in tables},
        frozenset(blob for blob in blobs if blob not in used),
        frozenset(
            (logs.get(log, log), seq, _state(data))
            for log, seq, data in sql("SELECT log, seq, data FROM snapshot")
        ),
    )


def _body(codec: int, body: bytes | None) -> tuple[Any, ...]:
    return _content(codec & ~_PACKED_HEADER, body)


def _state(data: bytes) -> tuple[Any, ...]:
    content = _one_frame(_BLOBS, data)
    try:
        return (
            ("unreadable", data)
            if content is None
            else ("state", json.dumps(json.loads(content), sort_keys=True))
        )
    except ValueError:
        return "unreadable", data


_TREE = b"plait/tree/1\0"
_DIGEST = re.compile(rb"[0-9a-f]{64}\Z")


def _in_trees(blobs: list[tuple[Any, ...]]) -> set[bytes]:
    """The digests that stand in trees.

    Every blob that is spelled like one is taken for one: there are no others here.
    """
    found: set[bytes] = set()
    for _, _, _, content in blobs:
        raw = content[1]
        if not isinstance(raw, bytes) or not raw.startswith(_TREE):
            continue
        for part in raw[len(_TREE) :].split(b"\0"):
            words = part.split(b" ", 3)
            if len(words) == 4 and words[0][:1] in (b"f", b"d"):
                found |= {
                    bytes.fromhex(word.decode())
                    for word in words[2].split(b",")
                    if _DIGEST.match(word)
                }
    return found
