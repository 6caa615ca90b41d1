"""Heads of logs, as an answer of the server: by a question of its own, or along with an append."""

from __future__ import annotations

from psycopg import pq

from plait.ids import Digest, LogId
from plait.store.base import Log
from plait.store.postgres.wire import unpack_int4
from plait.store.records import to_id

HEADS = """
SELECT l.id, p.id, l.place, l.head, l.tip, l.lazy, l.epoch
FROM unnest($1::bytea[]) WITH ORDINALITY AS asked (id, n)
    JOIN {s}.log l ON l.id = asked.id LEFT JOIN {s}.log p ON p.key = l.parent
ORDER BY asked.n"""
# The end of an append that is asked how logs stand. The statement sees them as they were when it
# began, and its own log as it leaves it.
HEADS_TOO = """
SELECT moved.key, CASE WHEN $7::bool THEN set_config('synchronous_commit', 'off', true) END, h.*
FROM moved LEFT JOIN LATERAL (
    SELECT l.id, p.id AS parent, l.place,
        CASE WHEN l.key = moved.key THEN $9::bytea ELSE l.head END AS head,
        CASE WHEN l.key = moved.key THEN moved.tip + {count} ELSE l.tip END AS tip,
        l.lazy, CASE WHEN l.key = moved.key THEN moved.epoch ELSE l.epoch END AS epoch
    FROM {s}.log l LEFT JOIN {s}.log p ON p.key = l.parent WHERE l.id = ANY($%d::bytea[])
) h ON true"""


def to_log(
    id: LogId,
    parent: bytes | None,
    place: int,
    head: bytes | None,
    tip: int,
    lazy: bool,
    epoch: int,
) -> Log:
    return Log(
        id,
        None if parent is None else to_id(parent),
        place,
        Digest((head or b"").hex()),
        tip,
        "async" if lazy else "full",
        epoch,
    )


def heads_in(result: pq.abc.PGresult, first: int = 0) -> dict[LogId, Log]:
    """Return the logs in an answer in binary form, whose columns begin with this one."""
    found: dict[LogId, Log] = {}
    for row in range(result.ntuples):
        id, parent, place, head, tip, lazy, epoch = [
            result.get_value(row, first + column) for column in range(7)
        ]
        if id is not None:  # None: an append was asked about logs, and none of them is there
            log, numbers = to_id(id), (unpack_int4(place), head, unpack_int4(tip))
            found[log] = to_log(log, parent, *numbers, lazy == b"\1", unpack_int4(epoch))
    return found
