"""Checks of the tables beside the logs, for `verify` and `doctor`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from plait.errors import StoreCorrupt
from plait.event import KINDS
from plait.event.kinds import ForkedFrom, SessionOpened
from plait.ids import LogId
from plait.store import packing
from plait.store.base import Unchecked
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.fold_tables import all_names
from plait.store.postgres.schema import TABLES
from plait.store.projection import Projection

_COLUMNS = {
    "store": "id bytea, migration int4, offset int8, synced int8, bucket text, era int4,"
    " era_since timestamptz, one bool",
    "kind": "code int2, name text",
    "log": "key int8, id bytea, parent int8, place int4, head bytea, tip int4, epoch int4,"
    " lazy bool",
    "event": "number int8, log int8, seq int4, kind int2, codec int2, short int8, salt bytea,"
    " header bytea, body bytea",
    "blob": "digest bytea, size int8, codec int2, born int8, data bytea, era int4",
    "attachment": "event int8, blob bytea",
    "snapshot": "log int8, seq int4, data bytea",
    "projection": "name text, version int4, high int8, open _int8",
    "holder": "id bytea, name text, until timestamptz, advisory int8",
    "hold": "run bytea, holder bytea",
    "notice": "board text, key text, data bytea, put_at timestamptz",
    "allowance": "name text, level float8, at timestamptz, closed_until timestamptz,"
    " drawn float8, wait_s float8",
}
_FOUND_COLUMNS = """
SELECT c.relname::text, string_agg(a.attname || ' ' || t.typname, ', ' ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r' GROUP BY c.relname"""
# Code that the server runs by itself: a trigger or a rule could change rows on their way.
_FOREIGN_CODE = """
SELECT 'trigger ' || tgname || ' on ' || c.relname FROM pg_trigger g JOIN pg_class c
    ON c.oid = g.tgrelid WHERE c.relnamespace = to_regnamespace($1) AND NOT g.tgisinternal
UNION ALL
SELECT 'rule ' || r.rulename || ' on ' || c.relname FROM pg_rewrite r JOIN pg_class c
    ON c.oid = r.ev_class WHERE c.relnamespace = to_regnamespace($1)
UNION ALL
SELECT 'policy ' || p.polname || ' on ' || c.relname FROM pg_policy p JOIN pg_class c
    ON c.oid = p.polrelid WHERE c.relnamespace = to_regnamespace($1)"""
_DANGLING = """
SELECT 'event', number FROM {s}.event e WHERE NOT EXISTS (
    SELECT 1 FROM {s}.log l WHERE l.key = e.log)
UNION ALL SELECT 'log', key FROM {s}.log l WHERE parent IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM {s}.log p WHERE p.key = l.parent)
UNION ALL SELECT 'attachment', event FROM {s}.attachment a WHERE NOT EXISTS (
    SELECT 1 FROM {s}.event e WHERE e.number = a.event)
UNION ALL SELECT 'attachment', event FROM {s}.attachment a WHERE NOT EXISTS (
    SELECT 1 FROM {s}.blob b WHERE b.digest = a.blob)
UNION ALL SELECT 'snapshot', log FROM {s}.snapshot k WHERE NOT EXISTS (
    SELECT 1 FROM {s}.log l WHERE l.key = k.log)
LIMIT 5"""
_MISPLACED = """
SELECT l.id, k.seq FROM {s}.snapshot k JOIN {s}.log l ON l.key = k.log
WHERE k.seq NOT BETWEEN l.place + 1 AND l.tip LIMIT 5"""
_OF_NO_SESSION = """
SELECT l.id, k.seq FROM {s}.snapshot k JOIN {s}.log l ON l.key = k.log WHERE NOT EXISTS (
    SELECT 1 FROM {s}.event e JOIN {s}.kind n ON n.code = e.kind
    WHERE e.log = l.key AND e.seq = l.place + 1 AND n.name = ANY($1::text[])) LIMIT 5"""
_SNAPSHOTS = """
SELECT k.log, k.seq, l.id, k.data FROM {s}.snapshot k LEFT JOIN {s}.log l ON l.key = k.log
WHERE (k.log, k.seq) > ($1::int8, $2::int4) ORDER BY k.log, k.seq LIMIT 20"""
_LATE = """
SELECT digest, born FROM {s}.blob WHERE born < 0
    OR born >> 16 >= pg_snapshot_xmax(pg_current_snapshot())::text::int8 + {offset} LIMIT 5"""
_WRONG_KEYS = """
SELECT l.id, l.key FROM {s}.log l LEFT JOIN {s}.event e ON e.log = l.key AND e.seq = l.place + 1
WHERE e.number IS DISTINCT FROM l.key LIMIT 5"""
LONG_S = 60.0  # a transaction that is open for longer is named
# Only transactions with an id hold numbers back. Of those of other users a plain user sees the
# process, and not since when.
_LONG_OPEN = """
SELECT pid, usename::text, application_name, state,
    extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
    AND xact_start < clock_timestamp() - make_interval(secs => $1)
UNION ALL
SELECT NULL, owner::text, gid, 'prepared', extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - make_interval(secs => $1)
ORDER BY age DESC LIMIT 5"""
_HIDDEN = """
SELECT l.transactionid::text, l.pid, a.usename::text
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'
    AND a.xact_start IS NULL ORDER BY 1 LIMIT 5"""


def table_faults(
    db: ServerConnection, schema: str, attached: Collection[Projection]
) -> Iterator[str]:
    """Compare the tables with those that migrations make."""
    found: dict[str, str] = dict(db.rows(_FOUND_COLUMNS, schema))
    for name, columns in _COLUMNS.items():
        if name not in found:
            yield f"the table {name} is gone"
        elif found[name] != columns:
            yield f"the table {name} is not as it was made: it has {found[name]}"
    ours = {*TABLES, *[name for each in attached for name in all_names(each)]}
    for name in sorted(found.keys() - ours):
        if not name.startswith("p_"):
            yield f"the table {name} is not one of ours"
    for (what,) in db.rows(_FOREIGN_CODE, schema):
        yield f"the {what} is not one of ours"


def store_faults(db: ServerConnection, sql: Callable[[str], str], id: bytes) -> Iterator[str]:
    rows = db.rows(sql("SELECT id FROM {s}.store"))
    if rows != [(id,)]:
        yield f"the store's own row does not hold its id {id.hex()}, and that alone"


def kind_faults(
    db: ServerConnection, sql: Callable[[str], str], known: Mapping[int, str]
) -> Iterator[str]:
    """Compare the kinds with the vocabulary, and with those that the store has read before."""
    there: dict[int, str] = dict(db.rows(sql("SELECT code, name FROM {s}.kind ORDER BY code")))
    vocabulary = {kind.__name__ for kind in KINDS}
    for code, name in there.items():
        if name not in vocabulary:
            yield (
                f"the kind {name!r} (code {code}) is not in the vocabulary: it was edited, or a"
                " newer Plait wrote it"
            )
        elif known.get(code, name) != name:
            yield f"the kind with code {code} is {name}, and was {known[code]} before"
    for name in sorted(vocabulary.difference(there.values())):
        yield f"the kind {name} has no code"


def row_faults(db: ServerConnection, sql: Callable[[str], str], offset: int) -> Iterator[str]:
    """Look for rows that refer to nothing, and caches that cannot be read."""
    for table, key in db.rows(sql(_DANGLING)):
        yield f"row {key} of {table} refers to a row that is not there"
    for digest, born in db.rows(sql(_LATE.replace("{offset}", str(offset)))):
        yield f"blob {digest.hex()} was put at commit {born}, which is none of this store"
    for log, key in db.rows(sql(_WRONG_KEYS)):
        yield f"log {log.hex()} has the key {key}, which is not the number of its first event"
    for log, seq in db.rows(sql(_MISPLACED)):
        yield f"a snapshot is kept for place {seq} of log {log.hex()}, which is not one of its own"
    firsts = [SessionOpened.__name__, ForkedFrom.__name__]
    for log, seq in db.rows(sql(_OF_NO_SESSION), firsts):
        yield f"a snapshot is kept for place {seq} of log {log.hex()}, which is no session"
    after: tuple[int, int] = -1, 0
    while page := db.rows(sql(_SNAPSHOTS), *after):
        for log, seq, id, data in page:
            after = log, seq
            try:
                packing.unpack(packing.ZSTD, data, packing.SNAPSHOT_SIZE_MAX)
            except StoreCorrupt as error:
                name = "?" if id is None else id.hex()
                yield f"the snapshot kept for {name}@{seq} cannot be read: {error.why}"


def unchecked_parts(
    db: ServerConnection, sql: Callable[[str], str], attached: Collection[Projection]
) -> list[Unchecked]:
    parts = [
        Unchecked("blob.born, store.synced, store.era", "no event says it"),
        Unchecked("holder, hold", "which process has a run is a matter of the moment"),
        Unchecked("notice, allowance", "they are a matter of the moment"),
        Unchecked(
            "the loss of whole logs",
            "commit numbers have gaps: only a head kept elsewhere shows it",
        ),
        Unchecked("the indexes of tables", "they are the server's: amcheck looks at them"),
    ]
    ours = {(each.name, each.version) for each in attached}
    for name, version in db.rows(sql("SELECT name, version FROM {s}.projection ORDER BY 1, 2")):
        if (name, version) not in ours:
            what = f"the rows of projection {name}, version {version}"
            parts.append(Unchecked(what, "this program does not have it"))
    return parts


def long_transactions(db: ServerConnection) -> Sequence[Any]:
    """Return transactions that are open for long: they hold settled numbers back."""
    return db.rows(_LONG_OPEN, LONG_S)


def hidden_transactions(db: ServerConnection) -> dict[str, tuple[int, str]]:
    """Return process and user of transactions that this user may not see the age of, by id."""
    return {id: (process, user) for id, process, user in db.rows(_HIDDEN)}


def server_facts(db: ServerConnection) -> dict[str, Any]:
    """Return facts about the server, beyond those that every connection brings."""
    row = db.row(
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL),"
        " current_setting('max_connections')::int8, extract(epoch FROM clock_timestamp())::float8,"
        " current_user::text, current_setting('synchronous_standby_names')"
    )
    assert row is not None
    server = db.facts
    return {
        "version": f"{server.version // 10_000}.{server.version % 10_000}",
        "user": row[3],
        "synchronous_commit": server.synchronous_commit,
        "fsync": server.fsync,
        "synchronous_standby_names": row[4],
        "standby": server.is_standby,
        "read_only": server.is_read_only,
        "pooled": server.is_pooled,
        "encrypted": bool(db.pgconn.ssl_in_use),
        "connections": row[0],
        "connections_max": row[1],
        "clock": row[2],
        "long_transactions": [
            {"process": pid, "user": user, "program": program, "state": state, "age_s": age}
            for pid, user, program, state, age in long_transactions(db)
        ],
    }


def rights_of(db: ServerConnection, schema: str) -> dict[str, bool]:
    """Return what this user may do in a schema that is there."""
    row = db.row(
        "SELECT has_schema_privilege($1, 'CREATE'), bool_and(has_table_privilege(c.oid, 'SELECT')),"
        " bool_and(has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE')"
        " AND has_table_privilege(c.oid, 'DELETE'))"
        " FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident($1))"
        " AND c.relname = ANY($2)",
        schema,
        list(TABLES),
    )
    assert row is not None
    return {"create": row[0], "read": bool(row[1]), "write": bool(row[2])}


def facts(
    db: ServerConnection, sql: Callable[[str], str], id: LogId, address: str
) -> dict[str, object]:
    counts = db.row(
        sql(
            "SELECT (SELECT count(*) FROM {s}.log WHERE key != 0), (SELECT count(*) FROM {s}.event"
            " WHERE number != 0), (SELECT count(*) FROM {s}.blob), (SELECT migration FROM"
            " {s}.store), (SELECT bucket FROM {s}.store), coalesce((SELECT"
            " sum(pg_total_relation_size(oid)) FROM pg_class WHERE"
            " relnamespace = (SELECT relnamespace FROM pg_class WHERE oid ="
            " '{s}.store'::regclass) AND relkind = 'r'), 0)::int8"
        )
    )
    assert counts is not None
    server = db.facts
    return {
        "address": address,
        "id": id,
        "schema": counts[3],
        "server": f"PostgreSQL {server.version // 10_000}.{server.version % 10_000}",
        "standby": server.is_standby,
        "read_only": server.is_read_only,
        "pooled": server.is_pooled,
        "synchronous_commit": server.synchronous_commit,
        "logs": counts[0],
        "events": counts[1],
        "blobs": counts[2],
        "bucket": counts[4],
        "bytes": counts[5],
    }
