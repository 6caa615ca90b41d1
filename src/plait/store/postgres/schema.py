"""The tables of a PostgreSQL store, as numbered steps.

A step that has landed is never edited; the next one is added below it. `plait migrate` runs them,
and nothing else does: a program that opens a store changes no table.

- A commit number is `(transaction id + offset) << 16 | place in the transaction`. It needs no lock
  that all writers wait for, and grows along every log and with causes: a writer's transaction
  begins after those that it has seen have ended. `store.offset` is 0 until the database is restored
  from a dump into a server whose transaction ids are lower.
- The key of a log is the number of its first event, so logs are listed in the order of their
  beginnings.
- `event.short` holds the first 8 bytes of the event's id: enough to find it.
- An attachment names its blob by digest, as a foreign key: a sweep and an append that refers to the
  blob exclude each other.
- `store.bucket` is where large blobs are kept: the row of such a blob has no data, and `blob.era`
  instead, which is part of the object's name (`large.py`).
- Head, tip and epoch of a log are in no index, and pages have room, so that an append does not
  touch the indexes of the log.
- Long columns are never compressed by the server: their content is packed already. They stay in
  their row as long as it fits into a page.
"""

from __future__ import annotations

_FIRST = """
CREATE TABLE {schema}.store (
    id          bytea NOT NULL,
    migration   int4 NOT NULL,
    "offset"    int8 NOT NULL DEFAULT 0,
    synced      int8 NOT NULL DEFAULT 0,
    bucket      text COLLATE "C",
    era         int4 NOT NULL DEFAULT 0,
    era_since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    one         bool NOT NULL DEFAULT true UNIQUE CHECK (one)
);
CREATE TABLE {schema}.kind (
    code        int2 PRIMARY KEY,
    name        text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE {schema}.log (
    key         int8 PRIMARY KEY,
    id          bytea NOT NULL UNIQUE,
    parent      int8,
    place       int4 NOT NULL,
    head        bytea NOT NULL,
    tip         int4 NOT NULL,
    epoch       int4 NOT NULL,
    lazy        bool NOT NULL
) WITH (fillfactor = 60);
CREATE INDEX log_tail ON {schema}.log (substr(id, 11));
CREATE TABLE {schema}.event (
    number      int8 PRIMARY KEY,
    log         int8 NOT NULL,
    seq         int4 NOT NULL,
    kind        int2 NOT NULL,
    codec       int2 NOT NULL,
    short       int8 NOT NULL,
    salt        bytea NOT NULL,
    header      bytea NOT NULL,
    body        bytea
) WITH (toast_tuple_target = 8160);
ALTER TABLE {schema}.event ALTER salt SET STORAGE PLAIN,
    ALTER header SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX event_place ON {schema}.event (log, seq) INCLUDE (kind);
CREATE INDEX event_id ON {schema}.event (short);
CREATE TABLE {schema}.blob (
    digest      bytea PRIMARY KEY,
    size        int8 NOT NULL,
    codec       int2 NOT NULL,
    born        int8 NOT NULL,
    data        bytea,
    era         int4
);
ALTER TABLE {schema}.blob ALTER data SET STORAGE EXTERNAL;
CREATE TABLE {schema}.attachment (
    event       int8 NOT NULL,
    blob        bytea NOT NULL REFERENCES {schema}.blob,
    PRIMARY KEY (event, blob)
);
CREATE INDEX attachment_blob ON {schema}.attachment (blob);
CREATE TABLE {schema}.snapshot (
    log         int8 NOT NULL,
    seq         int4 NOT NULL,
    data        bytea NOT NULL,
    PRIMARY KEY (log, seq)
);
ALTER TABLE {schema}.snapshot ALTER data SET STORAGE EXTERNAL;
CREATE TABLE {schema}.projection (
    name        text COLLATE "C" NOT NULL,
    version     int4 NOT NULL,
    high        int8 NOT NULL,
    open        int8[] NOT NULL,
    PRIMARY KEY (name, version)
);
CREATE TABLE {schema}.holder (
    id          bytea PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    until       timestamptz NOT NULL,
    advisory    int8
);
CREATE TABLE {schema}.hold (
    run         bytea PRIMARY KEY,
    holder      bytea NOT NULL
);
CREATE INDEX hold_holder ON {schema}.hold (holder);
"""

_NOTICES = """
CREATE TABLE {schema}.notice (
    board       text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    data        bytea NOT NULL,
    put_at      timestamptz NOT NULL,
    PRIMARY KEY (board, key)
) WITH (fillfactor = 50);
"""

_ALLOWANCES = """
CREATE TABLE {schema}.allowance (
    name        text COLLATE "C" PRIMARY KEY,
    level       float8 NOT NULL,
    at          timestamptz NOT NULL,
    closed_until timestamptz NOT NULL,
    drawn       float8 NOT NULL,
    wait_s      float8 NOT NULL
) WITH (fillfactor = 50);
"""

MIGRATIONS: tuple[str, ...] = (_FIRST, _NOTICES, _ALLOWANCES)
SCHEMA_VERSION = len(MIGRATIONS)

# The tables whose rows agents write; nothing else is needed to run them.
TABLES = (
    "store",
    "kind",
    "log",
    "event",
    "blob",
    "attachment",
    "snapshot",
    "projection",
    "holder",
    "hold",
    "notice",
    "allowance",
)


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
