"""The outline of one log as plain data: which events make up which step, and what they cost.

A step is a row of parallel columns. Its words are not here: they are made from its events when
somebody looks at it.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self, get_args

import msgspec

from plait.ids import Digest, LogId
from plait.outline.shapes import StepMark, StepState, StepType
from plait.outline.spent import SpentCount
from plait.session.life import Life

VERSION = 1  # of the fold and of the bytes: records of others are made anew
TYPES: tuple[StepType, ...] = get_args(StepType)
STATES: tuple[StepState, ...] = get_args(StepState)
MARKS: tuple[StepMark, ...] = get_args(StepMark)
TYPE_CODES = {name: code for code, name in enumerate(TYPES)}
STATE_CODES = {name: code for code, name in enumerate(STATES)}
MARK_BITS: dict[StepMark, int] = {name: 1 << bit for bit, name in enumerate(MARKS)}
if TYPE_CHECKING:
    _Numbers = array[int]
else:  # no subscripts before Python 3.12
    _Numbers = array
BRACKET = -1  # in `owners`: the event belongs to no step


def marks_of(bits: int) -> tuple[StepMark, ...]:
    return tuple([name for name, bit in MARK_BITS.items() if bits & bit]) if bits else ()


class Merge(msgspec.Struct, array_like=True, frozen=True):
    """A merge in a log: the places that it names, and all logs that are counted since."""

    seq: int
    branches: tuple[tuple[LogId, int], ...]
    covers: dict[str, int]


class Column(_Numbers):
    """Numbers that are kept as their bytes."""

    code = "q"

    def __new__(cls, data: bytes = b"") -> Self:
        return super().__new__(cls, cls.code, data)


class ByteColumn(Column):
    code = "B"


class WordColumn(Column):
    code = "H"


class OwnerColumn(Column):
    code = "i"


class LogRecord(msgspec.Struct):
    """The steps of one log's own events, up to `tip`."""

    log: LogId
    place: int  # the last seq inherited
    tip: int = 0
    head: Digest = Digest("")
    # ── a value per step ──
    firsts: Column = msgspec.field(default_factory=Column)
    lasts: Column = msgspec.field(default_factory=Column)
    times_ms: Column = msgspec.field(default_factory=Column)
    types: ByteColumn = msgspec.field(default_factory=ByteColumn)
    states: ByteColumn = msgspec.field(default_factory=ByteColumn)
    marks: WordColumn = msgspec.field(default_factory=WordColumn)
    # ── a value per event ──
    owners: OwnerColumn = msgspec.field(default_factory=OwnerColumn)
    # ── what else the events say ──
    open: dict[str, int] = {}  # steps that may get more events, by the key of those
    life: Life = Life()
    rewinds: list[tuple[int, int]] = []  # seq and target
    merges: list[Merge] = []
    spent: SpentCount = msgspec.field(default_factory=SpentCount)
    last_spending: int = 0  # seq; 0: nothing was spent
    last_words: int = 0  # seq of the last message or reply; 0: there is none
    opened: int = 0  # times of the first and of the last event
    updated: int = 0
    is_of_run: bool = False  # forked by a run
    workflow: str = ""
    numbers: dict[int, int] = {}  # commit numbers of events that were asked for, by seq

    @property
    def step_count(self) -> int:
        return len(self.firsts)

    def step_of(self, seq: int) -> int:
        """Return the index of the step that holds an event; of a bracket, the step before it.

        -1: there is none.
        """
        own = seq - self.place - 1
        if 0 <= own < len(self.owners) and self.owners[own] != BRACKET:
            return self.owners[own]
        return bisect_right(self.firsts, seq) - 1

    def events_of(self, index: int) -> tuple[int, ...]:
        """Return the seqs of the events of a step."""
        first, last = self.firsts[index], self.lasts[index]
        base = self.place + 1
        if last - first < 4:
            owners = self.owners[first - base : last - base + 1]
            return tuple([first + at for at, owner in enumerate(owners) if owner == index])
        return tuple(_positions(self.owners, index, first - base, last - base + 1, base))

    def rewound_spans(self) -> list[tuple[int, int]]:
        """Return the spans of seqs that rewinds went back behind, the newest first. A rewind that
        was itself rewound does not count.
        """
        spans, upto = list[tuple[int, int]](), sys.maxsize
        for seq, target in reversed(self.rewinds):
            if seq <= upto:
                spans.append((target + 1, seq - 1))
                upto = target
        return spans


def _positions(owners: Column, index: int, start: int, stop: int, base: int) -> Iterator[int]:
    at = start
    while True:
        try:
            at = owners.index(index, at, stop)
        except ValueError:
            return
        yield at + base
        at += 1


# ── bytes ────────────────────────────────────────────────────────────────────────────────────

_TAG = f"plait/outline/{VERSION}/{sys.byteorder}\n".encode()


def _column_bytes(column: object) -> bytes:
    assert isinstance(column, Column)
    return column.tobytes()


def _column_of(type: type[Column], data: bytes) -> Column:
    return type(data)


_encode = msgspec.msgpack.Encoder(enc_hook=_column_bytes).encode
_decode = msgspec.msgpack.Decoder(LogRecord, dec_hook=_column_of).decode


def pack_record(record: LogRecord) -> bytes:
    """Return the bytes of a record: a tag, a checksum, and the content."""
    content = _encode(record)
    return _TAG + zlib.crc32(content).to_bytes(4, "big") + content


def unpack_record(data: bytes) -> LogRecord | None:
    """Return the record of these bytes. None: they are torn, foreign or of another version, which
    does not matter to a cache.
    """
    start = len(_TAG) + 4
    if not data.startswith(_TAG):
        return None
    if zlib.crc32(memoryview(data)[start:]).to_bytes(4, "big") != data[start - 4 : start]:
        return None
    try:
        return _decode(memoryview(data)[start:])
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None
