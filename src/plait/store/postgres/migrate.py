"""Making and upgrading the tables of a store: the only place that changes a schema.

`plait migrate` calls it. Each step is one transaction, under a lock that other migrations of the
same schema wait for, so that it may be cut off and repeated, and started twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plait.errors import SchemaTooNew, StoreDenied, StoreReadOnly
from plait.ids import Digest, LogId, Source
from plait.store import packing
from plait.store.chain import house_event
from plait.store.postgres.address import PostgresAddress, check_bucket_client
from plait.store.postgres.connections import ServerConnection, ServerConnections
from plait.store.postgres.core import ORDINAL_BITS, add_kinds
from plait.store.postgres.faults import read_only_reason
from plait.store.postgres.fold_tables import create_tables
from plait.store.postgres.large import ObjectName
from plait.store.postgres.schema import MIGRATIONS, SCHEMA_VERSION, TABLES, quote_name
from plait.store.projection import Projection
from plait.store.records import short_of, to_bytes, to_id
from plait.store.rows import check_names

_NEXT_XID = "pg_snapshot_xmax(pg_current_snapshot())::text::int8"


class Migrated(NamedTuple):
    """The versions that a migration found and left, and its statements."""

    id: LogId | None  # None: nothing was done yet
    before: int  # the version of the tables; 0: there were none
    after: int
    statements: tuple[str, ...]


def migrate(
    address: PostgresAddress,
    *,
    source: Source,
    projections: Sequence[Projection] = (),
    grant: Sequence[str] = (),
    grant_read: Sequence[str] = (),
    dry_run: bool = False,
) -> Migrated:
    """Make the tables of a store, or bring them up to date. `grant` names users that run agents,
    `grant_read` users that only read.

    With `dry_run` nothing is changed, and the statements that would be run are returned.
    """
    connections = ServerConnections(address)
    try:
        work = _Migration(address, source, projections, grant, grant_read, connections.wait_s)
        return connections.run(work.plan if dry_run else work.run)
    finally:
        connections.close()


class _Migration:
    def __init__(
        self,
        address: PostgresAddress,
        source: Source,
        projections: Sequence[Projection],
        grant: Sequence[str],
        grant_read: Sequence[str],
        wait_s: float,
    ) -> None:
        self._wait_s = wait_s  # for the bucket
        self._address, self._source = address, source
        self._schema = quote_name(address.schema)
        self._projections = projections
        self._granted = [(user, _WRITE) for user in grant] + [(user, _READ) for user in grant_read]
        for projection in projections:
            check_names(projection)

    def run(self, db: ServerConnection) -> Migrated:
        if db.facts.is_read_only:
            raise StoreReadOnly(self._address.text, read_only_reason(db.facts.is_standby))
        with db.transaction():
            db.run("SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", self._address.schema)
            planned = self.plan(db)
            for statement in planned.statements:
                db.run_script(statement)
            id = self._settle_in(db)
            if self._address.blobs:
                self._set_bucket(db, id)
            return planned._replace(id=id, after=SCHEMA_VERSION)

    def plan(self, db: ServerConnection) -> Migrated:
        """Return the statements that are due, without running them."""
        before = self._version(db)
        if before > SCHEMA_VERSION:
            raise SchemaTooNew(self._address.text, before, SCHEMA_VERSION)
        statements: list[str] = []
        if not db.get("SELECT 1 FROM pg_namespace WHERE nspname = $1", self._address.schema):
            statements.append(f"CREATE SCHEMA {self._schema}")
        for step in MIGRATIONS[before:]:
            statements.append(step.strip().replace("{schema}", self._schema))
        made = self._made_projections(db) if before else set[tuple[str, int]]()
        for projection in self._projections:
            if (projection.name, projection.version) not in made:
                statements += create_tables(self._schema, projection)
        for user, rights in self._granted:
            self._check_user(db, user)
            statements += _grants(self._schema, quote_name(user), rights)
        return Migrated(None, before, before, tuple(statements))

    def _made_projections(self, db: ServerConnection) -> set[tuple[str, int]]:
        """Return names and versions of the projections that have tables."""
        rows = db.rows(f"SELECT name, version FROM {self._schema}.projection")
        return {(name, version) for name, version in rows}

    def _check_user(self, db: ServerConnection, user: str) -> None:
        if not db.get("SELECT 1 FROM pg_roles WHERE rolname = $1", user):
            step = "create the user first: CREATE ROLE … LOGIN"
            raise StoreDenied(self._address.text, f"there is no user {user!r} to grant to", step)

    def _version(self, db: ServerConnection) -> int:
        if db.get("SELECT to_regclass($1)", f"{self._schema}.store") is None:
            taken = db.get(
                "SELECT string_agg(relname, ', ') FROM pg_class WHERE relnamespace ="
                " to_regnamespace($1) AND relname = ANY($2)",
                self._schema,
                list(TABLES),
            )
            if taken:
                why = f"the schema {self._schema} has tables of that name already ({taken})"
                raise StoreDenied(self._address.text, why, "name another schema: ?schema=NAME")
            return 0
        found = db.get(
            "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname ="
            " ANY($2)",
            f"{self._schema}.store",
            ["id", "migration", "offset"],
        )
        if found != 3:
            why = f"the table {self._schema}.store is not one of ours"
            raise StoreDenied(self._address.text, why, "name another schema: ?schema=NAME")
        return db.get(f"SELECT migration FROM {self._schema}.store") or 0

    def _settle_in(self, db: ServerConnection) -> LogId:
        """Give the store its id and house log, once; bring numbers after those that stand."""
        s = self._schema
        id = db.get(f"SELECT id FROM {s}.store")
        if id is None:
            log_id = self._source.fresh("store")
            db.run(
                f"INSERT INTO {s}.store (id, migration) VALUES ($1::bytea, $2::int4)",
                to_bytes(log_id),
                SCHEMA_VERSION,
            )
            self._make_house(db, log_id)
            add_kinds(db, self._schema)
            return log_id
        db.run(f"UPDATE {s}.store SET migration = $1::int4", SCHEMA_VERSION)
        add_kinds(db, self._schema)
        self._go_on_counting(db)
        return to_id(id)

    def _set_bucket(self, db: ServerConnection, id: LogId) -> None:
        """Record the bucket of the address, for all clients. It may take the place of another one
        once all objects are there.
        """
        s, wanted = self._schema, self._address.blobs
        if db.get(f"SELECT bucket FROM {s}.store") == wanted:
            return
        check_bucket_client()
        # its client is loaded by those who use it, and by no others
        from plait.store.postgres.objects import Bucket

        bucket = Bucket(wanted, id, self._wait_s)
        there = {name for page in bucket.names() for name in page}
        rows = db.rows(f"SELECT digest, era, codec FROM {s}.blob WHERE era IS NOT NULL")
        needed = {str(ObjectName(Digest(row[0].hex()), row[1], row[2])) for row in rows}
        if missing := needed - there:
            why = f"{len(missing)} of {len(needed)} large blobs are not in {wanted}/{id} yet"
            step = "copy the objects of the former bucket there, and repeat the command"
            raise StoreDenied(self._address.text, why, step)
        db.run(f"UPDATE {s}.store SET bucket = $1::text", wanted)

    def _go_on_counting(self, db: ServerConnection) -> None:
        """Bring new numbers after those that stand: after a restore from a dump, the ids of
        transactions may have begun anew. Rows are then folded anew, too.
        """
        s = self._schema
        last = db.get(f"SELECT max(number) FROM {s}.event") or 0
        moved = db.run(
            f'UPDATE {s}.store SET "offset" = ($1::int8 >> {ORDINAL_BITS}) + 1 - {_NEXT_XID}'
            f' WHERE ($1::int8 >> {ORDINAL_BITS}) >= {_NEXT_XID} + "offset"',
            last,
        )
        if moved:
            db.run(f"UPDATE {s}.projection SET high = -1")

    def _make_house(self, db: ServerConnection, id: LogId) -> None:
        """Insert the house log with the key 0, and its first event with the number 0."""
        first, s = house_event(id, self._source), self._schema
        db.run(f"INSERT INTO {s}.kind (code, name) VALUES (1, $1)", first.kind)
        codec, header, body = packing.pack_event(first.raw, first.content)
        db.run(
            f"INSERT INTO {s}.log (key, id, parent, place, head, tip, epoch, lazy)"
            " VALUES (0, $1::bytea, NULL, 0, $2::bytea, 1, 0, false)",
            to_bytes(first.log),
            bytes.fromhex(first.id),
        )
        db.run(
            f"INSERT INTO {s}.event (number, log, seq, kind, codec, short, salt, header, body)"
            " VALUES (0, 0, 1, 1, $1::int2, $2::int8, $3::bytea, $4::bytea, $5::bytea)",
            codec,
            short_of(first.id),
            first.salt,
            header,
            body,
        )


_WRITE, _READ = "SELECT, INSERT, UPDATE, DELETE", "SELECT"


def _grants(schema: str, user: str, rights: str) -> list[str]:
    """Return the statements that give a user rights to all tables, also to those that the user who
    migrates makes later.
    """
    return [
        f"GRANT USAGE ON SCHEMA {schema} TO {user}",
        f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {user}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {rights} ON TABLES TO {user}",
    ]
