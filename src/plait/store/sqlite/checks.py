"""Checks of a SQLite store beside its logs: the schema, the vocabulary, counts and caches.

`verify` recomputes events and blobs through the store's own protocol. Here are the parts that only
this kind of store has. The schema that is expected is the one that the migrations make in an empty
database, so a new migration needs nothing here. `unchecked_parts` names the parts that
no event can prove.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from plait.errors import StoreCorrupt
from plait.event import KINDS
from plait.event.kinds import ForkedFrom, SessionOpened
from plait.ids import LogId
from plait.store import packing
from plait.store.base import Unchecked
from plait.store.projection import Projection
from plait.store.sqlite.database import (
    APPLICATION_ID,
    Database,
    Migration,
    SchemaRow,
    blank_database,
    made_schema,
    schema_rows,
)
from plait.store.sqlite.tables import recreate
from plait.store.sqlite.words import is_index

_SYNCED_MAX = 2**62

# Edits of these change nothing that is read.
_HARMLESS = (
    Unchecked(
        "which codes the kinds have that no event is of",
        "any will do, and older stores have others",
    ),
    Unchecked(
        "whether a projection was marked as old, stale or missing",
        "then its rows are folded anew on opening",
    ),
)

# The columns that something compares: here, in `verify`, or on opening. Others are named as not
# checked.
_COMPARED = {
    "store": "id",
    "kind": "code name",
    "log": "key id parent place head tip lazy epoch",
    "event": "number log seq kind short codec salt header body",
    "blob": "key digest size codec refs data",
    "attachment": "event blob",
    "projection": "name version stale",
    "snapshot": "key log seq data",
}
_TABLE_NAME = re.compile(r"p_([a-z0-9_]+?)__[a-z0-9_]+\Z")
# SQLite makes these by itself. By their names alone anything could pass: a trigger can be given one
# of them.
_OF_SQLITE: frozenset[SchemaRow] = frozenset(
    ("table", name, name, f"CREATE TABLE {name}({columns})")
    for name, columns in (
        ("sqlite_stat1", "tbl,idx,stat"),
        ("sqlite_stat4", "tbl,idx,neq,nlt,ndlt,sample"),
        ("sqlite_sequence", "name,seq"),
    )
)

_COLUMNS = (
    "SELECT s.name, c.name FROM sqlite_schema s, pragma_table_info(s.name) c WHERE s.type = 'table'"
    " AND s.name NOT GLOB 'p_*' AND s.name NOT GLOB 'sqlite_*' ORDER BY s.name, c.cid"
)
_DANGLING = "SELECT [table], rowid, parent FROM pragma_foreign_key_check LIMIT 5"
_MISCOUNTED = (
    "SELECT b.digest, b.refs, coalesce(a.events, 0) FROM blob b "
    "LEFT JOIN (SELECT blob, count(*) AS events FROM attachment GROUP BY blob) a ON a.blob = b.key "
    "WHERE b.refs != coalesce(a.events, 0) LIMIT 5"
)
_BORN_LATE = (
    "SELECT digest, born FROM blob WHERE born NOT BETWEEN 0 AND (SELECT coalesce(max(number), 0)"
    " FROM event) LIMIT 5"
)
_LAZY = "SELECT id, lazy FROM log WHERE lazy NOT IN (0, 1) LIMIT 5"
_MISPLACED = (
    "SELECT l.id, s.seq FROM snapshot s JOIN log l ON l.key = s.log WHERE s.seq NOT BETWEEN l.place"
    " + 1 AND l.tip LIMIT 5"
)
_OF_NO_SESSION = (
    "SELECT l.id, s.seq FROM snapshot s JOIN log l ON l.key = s.log WHERE NOT EXISTS (SELECT 1"
    " FROM event e JOIN kind k ON k.code = e.kind WHERE e.log = l.key AND e.seq = l.place + 1 AND"
    f" k.name IN ('{SessionOpened.__name__}', '{ForkedFrom.__name__}')) LIMIT 5"
)
_SNAPSHOT = (
    "SELECT s.key, l.id, s.seq, s.data FROM snapshot s LEFT JOIN log l ON l.key = s.log WHERE s.key"
    " > ? ORDER BY s.key LIMIT 1"
)
_WITHOUT_TABLES = (
    "SELECT p.name FROM projection p WHERE NOT EXISTS (SELECT 1 FROM sqlite_schema s WHERE"
    " s.type = 'table' AND substr(s.name, 1, length(p.name) + 4) = 'p_' || p.name || '__') LIMIT 5"
)


# ── the file ─────────────────────────────────────────────────────────────────────────────────


def file_faults(db: Database, id: LogId, schema: int) -> Iterator[str]:
    """Compare the file's marks and its own row as they were when the store
    was opened."""
    for name, wanted in (("application_id", APPLICATION_ID), ("user_version", schema)):
        found = db.get(f"PRAGMA {name}")
        if found != wanted:
            yield f"the file's {name} is {found}, not {wanted}"
    rows = db.rows("SELECT id, synced FROM store")
    if [_hex(row[0]) for row in rows] != [id.replace("-", "")]:
        yield f"the store's own row does not hold its id {id}, and that alone"
    for _, synced in rows:
        if type(synced) is not int or not 0 <= synced < _SYNCED_MAX:
            yield f"the store's own row counts {synced!r} syncs"


def kind_faults(db: Database, known: Mapping[int, str]) -> Iterator[str]:
    """Compare the kinds in the file with the vocabulary, and with the kinds that the store has
    read before.
    """
    there: dict[int, str] = dict(db.rows("SELECT code, name FROM kind ORDER BY code"))
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
    gap = next((code for code in range(1, len(there) + 1) if code not in there), None)
    if gap is not None:
        yield f"the kind with code {gap} is missing: codes have no gaps"


# ── the schema ───────────────────────────────────────────────────────────────────────────────


def schema_faults(
    db: Database, migrations: tuple[Migration, ...], attached: Collection[Projection]
) -> Iterator[str]:
    """Compare every table, index, view and trigger with those that migrations and
    projections make.
    """
    db.execute("BEGIN")  # another process may fold a projection of another shape at this moment
    try:
        there = schema_rows(db)
        declared: dict[str, int] = dict(db.rows("SELECT name, version FROM projection"))
    finally:
        db.execute("ROLLBACK")
    kept = [each for each in attached if declared.get(each.name) == each.version]
    expected = made_schema(migrations) | _projection_schema(kept)
    foreign = declared.keys() - {each.name for each in kept}
    names = {(type, name) for type, name, _, _ in there}
    for type, name, _, _ in sorted(expected.difference(there), key=_by_name):
        yield f"the {type} {name} is {'not as it was made' if (type, name) in names else 'gone'}"
    wanted = {(type, name) for type, name, _, _ in expected}
    for row in sorted(set(there).difference(expected), key=_by_name):
        type, name, table, _ = row
        if (type, name) in wanted or row in _OF_SQLITE or _is_of_projection(row, foreign):
            continue
        yield f"the {type} {name}{f' on {table}' if table != name else ''} is not one of ours"


def _projection_schema(projections: Sequence[Projection]) -> frozenset[SchemaRow]:
    blank = blank_database(())
    try:
        for projection in projections:
            recreate(blank, projection)
        return frozenset(schema_rows(blank))
    finally:
        blank.close()


def _is_of_projection(row: SchemaRow, names: Collection[str]) -> bool:
    """True if this is a table or a plain index as a projection of one of these names could have
    made it.
    """
    type, name, table, sql = row
    match = _TABLE_NAME.match(table)
    if match is None or match[1] not in names:
        return False
    if type == "table":
        is_plain = sql is not None and not sql.startswith("CREATE VIRTUAL")
        return name == table and (is_plain or is_index(sql or ""))
    if sql is None:
        return name.startswith(f"sqlite_autoindex_{table}_")
    return type == "index" and name.startswith(f"{table}_") and sql.startswith("CREATE INDEX")


def _by_name(row: SchemaRow) -> tuple[str, str]:
    return row[:2]


# ── rows ─────────────────────────────────────────────────────────────────────────────────────


def row_faults(db: Database) -> Iterator[str]:
    """Look for rows that refer to nothing, counts that are wrong, and caches that
    cannot be read.
    """
    for table, key, parent in db.rows(_DANGLING):
        yield (
            f"row {'?' if key is None else key} of {table} refers to a row of {parent} that is not"
            " there"
        )
    for digest, refs, count in db.rows(_MISCOUNTED):
        yield f"blob {_hex(digest)} is counted {refs} times, but attached {count} times"
    for digest, born in db.rows(_BORN_LATE):
        yield f"blob {_hex(digest)} was put at commit {born}, which is none of this store"
    for log, lazy in db.rows(_LAZY):
        yield f"the row of log {_hex(log)} says lazy is {lazy}"
    for log, seq in db.rows(_MISPLACED):
        yield f"a snapshot is kept for place {seq} of log {_hex(log)}, which is not one of its own"
    for log, seq in db.rows(_OF_NO_SESSION):
        yield f"a snapshot is kept for place {seq} of log {_hex(log)}, which is no session"
    for (name,) in db.rows(_WITHOUT_TABLES):
        yield f"projection {name!r} is kept, but has no tables"
    yield from _snapshot_faults(db)


def _snapshot_faults(db: Database) -> Iterator[str]:
    """A snapshot that cannot be read is never used.

    It is named all the same: nothing of ours wrote it so.
    """
    key = -(2**63)
    while (row := db.row(_SNAPSHOT, (key,))) is not None:
        key, log, seq, data = row
        try:
            packing.unpack(packing.ZSTD, data, packing.SNAPSHOT_SIZE_MAX)
        except StoreCorrupt as error:
            yield f"the snapshot kept for {_hex(log)}@{seq} cannot be read: {error.why}"


def _hex(raw: object) -> str:
    return raw.hex() if isinstance(raw, bytes) else repr(raw)


# ── not checked ──────────────────────────────────────────────────────────────────────────────


def unchecked_parts(db: Database, attached: Collection[Projection]) -> list[Unchecked]:
    """Name the parts of the file that have nothing to be compared with."""
    columns = db.rows(_COLUMNS)
    loose = [
        f"{table}.{column}"
        for table, column in columns
        if column not in _COMPARED.get(table, "").split()
    ]
    parts = [Unchecked(", ".join(loose), "no event says it")] if loose else []
    versions: dict[str, int] = dict(db.rows("SELECT name, version FROM projection ORDER BY name"))
    for projection in attached:
        if versions.get(projection.name) == projection.version:
            del versions[projection.name]
    for name in versions:
        parts.append(Unchecked(f"the rows of projection {name}", "this program does not have it"))
    statistics = sorted(row[1] for row in schema_rows(db) if row in _OF_SQLITE)
    if statistics:
        parts.append(Unchecked(", ".join(statistics), "SQLite's own, for planning queries"))
    return [*parts, *_HARMLESS]
