"""The tables, as numbered steps.

A step that has landed is never edited; the next one is added below it.
"""

from __future__ import annotations

from plait.store.sqlite.database import Database, Migration


def _first(db: Database) -> None:
    # The commit number is the row id: events are written at the end of the table, pages stay full,
    # and the order of
    # everything across all logs is the order of the table.
    #
    # event.short holds the first 8 bytes of the event's id as a signed integer: enough to find it,
    # and a quarter of
    # the index. kind stands in the place index so that a search by kind in a log reads the index
    # alone. That (log, seq)
    # is unique follows from the compare-and-set of log.head, in the same transaction.
    #
    # A log is found by its random tail, the part of its id that people type; so it needs no second
    # index on the id.
    db.execute("""
        CREATE TABLE store (
            id      BLOB NOT NULL
        ) STRICT;
        CREATE TABLE kind (
            code    INTEGER PRIMARY KEY,
            name    TEXT NOT NULL UNIQUE
        ) STRICT;
        CREATE TABLE log (
            key     INTEGER PRIMARY KEY,
            id      BLOB NOT NULL,
            parent  INTEGER REFERENCES log,
            place   INTEGER NOT NULL,
            head    BLOB NOT NULL,
            tip     INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX log_tail ON log (substr(id, 11));
        CREATE TABLE event (
            number  INTEGER PRIMARY KEY,
            log     INTEGER NOT NULL REFERENCES log,
            seq     INTEGER NOT NULL,
            kind    INTEGER NOT NULL REFERENCES kind,
            short   INTEGER NOT NULL,
            codec   INTEGER NOT NULL,
            salt    BLOB NOT NULL,
            header  BLOB NOT NULL,
            body    BLOB
        ) STRICT;
        CREATE INDEX event_place ON event (log, seq, kind);
        CREATE INDEX event_id ON event (short);
        CREATE TABLE blob (
            key     INTEGER PRIMARY KEY,
            digest  BLOB NOT NULL UNIQUE,
            size    INTEGER NOT NULL,
            codec   INTEGER NOT NULL,
            refs    INTEGER NOT NULL,
            born    INTEGER NOT NULL,
            data    BLOB NOT NULL
        ) STRICT;
        CREATE INDEX blob_unused ON blob (born) WHERE refs = 0;
        CREATE TABLE attachment (
            event   INTEGER NOT NULL REFERENCES event,
            blob    INTEGER NOT NULL REFERENCES blob,
            PRIMARY KEY (event, blob)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE projection (
            name    TEXT PRIMARY KEY,
            version INTEGER NOT NULL,
            stale   INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        """)


def _snapshots(db: Database) -> None:
    # A cache: deleting its rows costs time and nothing else. data is always one zstd frame,
    # so that no codec has to stand beside it. The rows are large, so the table is an ordinary one,
    # and its places are found by the index.
    db.execute("""
        CREATE TABLE snapshot (
            key     INTEGER PRIMARY KEY,
            log     INTEGER NOT NULL REFERENCES log,
            seq     INTEGER NOT NULL,
            data    BLOB NOT NULL
        ) STRICT;
        CREATE UNIQUE INDEX snapshot_place ON snapshot (log, seq);
        """)


def _lazy_logs(db: Database) -> None:
    # 1: its commits need no fsync of their own. From this number on events may also be packed whole
    # (see transact.py). store.synced counts the commits that were made for the sake of their fsync
    # alone.
    db.execute("ALTER TABLE log ADD COLUMN lazy INTEGER NOT NULL DEFAULT 0")
    db.execute("CREATE INDEX log_lazy ON log (key) WHERE lazy = 1")
    db.execute("ALTER TABLE store ADD COLUMN synced INTEGER NOT NULL DEFAULT 0")


def _epochs(db: Database) -> None:
    # How many events of a log say that a run began, ended, or has another holder. Appends compare
    # it in the statement that moves the head, so it stands in the row; verify counts the events
    # again.
    db.execute("ALTER TABLE log ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0")
    db.execute("""
        UPDATE log SET epoch = counted.times FROM (
            SELECT event.log AS log, count(*) AS times FROM event JOIN kind \
ON kind.code = event.kind
            WHERE kind.name IN ('RunStarted', 'RunBranched', 'RunResumed', 'RunFinished', \
'RunFailed', 'RunCancelled')
            GROUP BY event.log
        ) counted WHERE counted.log = log.key
        """)


MIGRATIONS: tuple[Migration, ...] = (_first, _snapshots, _lazy_logs, _epochs)
