"""The statements of an append and of a beginning.

An append is one statement, one round trip and one commit. Its first part moves the head of the log,
under the conditions that the append names: head, tip, epoch and the epochs of other logs. All other
parts select from the row that was moved: if it was not, they do nothing.

Most appends have one event. Its values are sent one by one: unpacking six arrays took an eighth of
the server's time for the statement.

The epoch of another log is read under a lock that an append to that log waits for (FOR SHARE), so
that no event which raises it can be committed in between. A blob that is not there breaks the
foreign key of its attachment, and with it the whole statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from plait.ids import Digest
from plait.store.epochs import Fence
from plait.store.postgres.heads import HEADS_TOO
from plait.store.postgres.large import row_data
from plait.store.postgres.wire import (
    pack_bool,
    pack_byteas,
    pack_int2,
    pack_int2s,
    pack_int4,
    pack_int4s,
    pack_int8,
    pack_int8s,
)
from plait.store.prepare import Prepared

_APPEND = """
WITH moved AS (
    UPDATE {s}.log SET head = $9::bytea, tip = tip + {count},
        epoch = epoch + $10::int4
    WHERE key = $11::int8 AND head = $12::bytea AND tip = $13::int4
        AND ($14::int4 IS NULL OR epoch = $14::int4){fences}
    RETURNING key, $13::int4 AS tip, epoch
)"""
_BEGIN = """
WITH moved AS (
    INSERT INTO {s}.log (key, id, parent, place, head, tip, epoch, lazy)
    SELECT {xid} << 16 | {first}, $11::bytea, $12::int8, $13::int4, $9::bytea,
        $13::int4 + {count}, $10::int4, $14::bool
    WHERE true{fences}
    ON CONFLICT (id) DO NOTHING
    RETURNING key, place AS tip
)"""
_EVENT = """, added AS (
    INSERT INTO {s}.event (number, log, seq, kind, codec, short, salt, header, body)
    SELECT {xid} << 16 | {first}, moved.key, moved.tip + 1, $1::int2, $2::int2, $3::int8,
        $4::bytea, $5::bytea, $6::bytea
    FROM moved
)"""
_EVENTS = """, added AS (
    INSERT INTO {s}.event (number, log, seq, kind, codec, short, salt, header, body)
    SELECT {xid} << 16 | {nth}, moved.key, moved.tip + n, e.kind, e.codec, e.short,
        e.salt, e.header, e.body
    FROM moved, unnest($1::int2[], $2::int2[], $3::int8[], $4::bytea[], $5::bytea[], $6::bytea[])
        WITH ORDINALITY AS e (kind, codec, short, salt, header, body, n)
)"""
_BLOBS = """, brought AS (
    INSERT INTO {s}.blob AS old (digest, size, codec, born, data, era)
    SELECT b.digest, b.size, b.codec, {xid} << 16, b.data, {era}
    FROM moved, unnest($%d::bytea[], $%d::int8[], $%d::int2[], $%d::bytea[])
        AS b (digest, size, codec, data)
    ON CONFLICT (digest) DO UPDATE SET size = excluded.size, codec = excluded.codec,
        born = excluded.born, data = excluded.data, era = excluded.era
    WHERE (old.size, old.codec, old.data, old.era) IS DISTINCT FROM
        (excluded.size, excluded.codec, excluded.data, excluded.era)
)"""
_ATTACHED = """, attached AS (
    INSERT INTO {s}.attachment (event, blob)
    SELECT DISTINCT {xid} << 16 | {nth}, r.blob
    FROM moved, unnest($%d::int4[], $%d::bytea[]) AS r (n, blob)
)"""
_FENCES = """
        AND (SELECT count(*) FROM (
            SELECT 1 FROM {s}.log held JOIN unnest($%d::int8[], $%d::int4[]) AS f (key, epoch)
                ON held.key = f.key AND held.epoch = f.epoch FOR SHARE OF held
        ) AS fences) = cardinality($%d::int8[])"""
# Large blobs were uploaded in an era that no sweep has passed: `large.py` tells the rule.
_ERA = """
        AND (SELECT era FROM {s}.store FOR SHARE) <= $%d::int4 + 1"""
# The ordinals of the events in their transaction: in a row from $8 on, or each for itself.
_IN_A_ROW = {"first": "$8::int4", "nth": "($8::int4 + n - 1)"}
_APART = {"first": "($8::int4[])[1]", "nth": "($8::int4[])[n]"}
_END = """
SELECT key, CASE WHEN $7::bool THEN set_config('synchronous_commit', 'off', true) END FROM moved"""


class Write(NamedTuple):
    """A statement that writes, and its values."""

    name: bytes
    sql: str  # with {s}, {xid}: the store fills them in, once for each name
    values: list[bytes | None]
    era: int | None  # of the objects that it names; None: it names none


Places = int | Sequence[int]
"""The ordinals of events in their transaction: the first of them, or all if others come between."""


class LogFence(NamedTuple):
    """A fence, and the key of its log."""

    fence: Fence
    key: int


def append_write(
    prepared: Prepared,
    codes: Sequence[int],
    key: int,
    after: Digest,
    fences: Sequence[LogFence],
    *,
    lazy: bool,
    places: Places = 0,
    era: int | None = None,
    asked: Sequence[bytes] = (),
) -> Write:
    """Return the statement that appends to a log. `places` are those of the events in their
    transaction. `asked` are logs of which the answer is to say how they stand.
    """
    own = {each.fence.epoch for each in fences if each.key == key}
    others = [each for each in fences if each.key != key]
    values = _event_values(prepared, codes, lazy, places)
    values += [
        pack_int8(key),
        bytes.fromhex(after),
        pack_int4(prepared.first.seq - 1),
        # of two epochs one is stale: no log is at -1
        pack_int4(own.pop() if len(own) == 1 else -1) if own else None,
    ]
    apart = not isinstance(places, int)
    return _write(b"append", prepared, others, values, era, asked, is_apart=apart)


def begin_write(
    prepared: Prepared,
    codes: Sequence[int],
    log: bytes,
    parent: int | None,
    fences: Sequence[LogFence],
    *,
    is_lazy_log: bool,
    places: Places = 0,
    era: int | None = None,
) -> Write:
    """Return the statement that begins a log. `is_lazy_log`: later appends need not be synced.

    This one is, always: processes keep the keys of logs in memory, and a crash that took a log back
    would give its key to another one.
    """
    values = _event_values(prepared, codes, False, places)
    values += [
        log,
        None if parent is None else pack_int8(parent),
        pack_int4(prepared.first.seq - 1),
        pack_bool(is_lazy_log),
    ]
    return _write(b"begin", prepared, fences, values, era, is_apart=not isinstance(places, int))


def _event_values(
    prepared: Prepared, codes: Sequence[int], lazy: bool, places: Places
) -> list[bytes | None]:
    events = prepared.events
    values: list[bytes | None]
    if len(events) == 1:
        (event,) = events
        values = [
            pack_int2(codes[0]),
            pack_int2(event.codec),
            pack_int8(event.short),
            event.event.salt,
            event.header,
            event.body,
        ]
    else:
        values = [
            pack_int2s(codes),
            pack_int2s([event.codec for event in events]),
            pack_int8s([event.short for event in events]),
            pack_byteas([event.event.salt for event in events]),
            pack_byteas([event.header for event in events]),
            pack_byteas([event.body for event in events]),
        ]
    values += [
        pack_bool(lazy),
        pack_int4(places) if isinstance(places, int) else pack_int4s(places),
        bytes.fromhex(prepared.last.id),
        pack_int4(prepared.raised),
    ]
    return values


def _write(
    name: bytes,
    prepared: Prepared,
    fences: Sequence[LogFence],
    values: list[bytes | None],
    era: int | None,
    asked: Sequence[bytes] = (),
    *,
    is_apart: bool,
) -> Write:
    refs = [(n, ref) for n, event in enumerate(prepared.events, 1) for ref in event.refs]
    if fences:
        values += [
            pack_int8s([each.key for each in fences]),
            pack_int4s([each.fence.epoch for each in fences]),
        ]
    if prepared.blobs:
        blobs = sorted(prepared.blobs.items())  # one order of locks in all processes
        values += [
            pack_byteas([bytes.fromhex(digest) for digest, _ in blobs]),
            pack_int8s([blob.size for _, blob in blobs]),
            pack_int2s([blob.codec for _, blob in blobs]),
            pack_byteas([row_data(blob, era) for _, blob in blobs]),
        ]
        values += [] if era is None else [pack_int4(era)]
    if refs:
        values += [
            pack_int4s([n for n, _ in refs]),
            pack_byteas([bytes.fromhex(ref) for _, ref in refs]),
        ]
    if asked:
        values.append(pack_byteas(asked))
    form = _Form(
        len(prepared.events) == 1,
        bool(fences),
        bool(prepared.blobs),
        bool(refs),
        era is not None,
        is_apart,
        bool(asked),
    )
    return Write(*_statement(name, form), values, era)


class _Form(NamedTuple):
    """The parts that a statement has beside the events."""

    one: bool  # there is one event
    fenced: bool
    blobs: bool
    refs: bool
    large: bool  # some of the blobs are in a bucket
    apart: bool  # events of other logs come between
    heads: bool  # it says how logs stand


@lru_cache(128)
def _statement(kind: bytes, form: _Form) -> tuple[bytes, str]:
    """Return a statement with its name."""
    name = kind + b"".join([f"_{part}".encode() for part, has in form._asdict().items() if has])
    at = 15  # the next value
    head = _APPEND if kind == b"append" else _BEGIN
    condition = ""
    if form.fenced:
        condition = _FENCES % (at, at + 1, at)
        at += 2
    sql, era = _EVENT if form.one else _EVENTS, "NULL"
    if form.blobs:
        sql += _BLOBS % (at, at + 1, at + 2, at + 3)
        at += 4
    if form.large:
        condition += _ERA % at
        era = f"CASE WHEN b.data IS NULL THEN ${at}::int4 END"
        at += 1
    sql = (head.replace("{fences}", condition) + sql).replace("{era}", era)
    if form.refs:
        sql += _ATTACHED % (at, at + 1)
        at += 2
    for place, text in (_APART if form.apart else _IN_A_ROW).items():
        sql = sql.replace(f"{{{place}}}", text)
    sql += HEADS_TOO % at if form.heads else _END
    return name, sql.replace("{count}", "1" if form.one else "cardinality($1::int2[])")
