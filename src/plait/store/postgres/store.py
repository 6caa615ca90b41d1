"""The store in a PostgreSQL database.

An append is one statement, one round trip and one commit (`statements.py`). Rows of projections are
folded behind, by those who read them (`fold.py`). The tables are made by `plait migrate` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from plait.ids import LogId, Micros, Source
from plait.store.arguments import check_durability, check_name, check_runs
from plait.store.base import Durability, Unchecked
from plait.store.local_bells import LocalBell
from plait.store.moment import SeenRun
from plait.store.postgres.address import check_bucket_client, parse_address
from plait.store.postgres.allowances import PostgresAllowances
from plait.store.postgres.bells import ServerBells
from plait.store.postgres.checks import (
    facts,
    kind_faults,
    long_transactions,
    row_faults,
    store_faults,
    table_faults,
    unchecked_parts,
)
from plait.store.postgres.connections import ServerConnection, ServerConnections
from plait.store.postgres.events import PostgresEvents
from plait.store.postgres.locks import RunHold, RunLocks
from plait.store.postgres.notices import PostgresNotices
from plait.store.postgres.rows import PostgresRows
from plait.store.postgres.snapshots import PostgresSnapshots
from plait.store.projection import Projection
from plait.store.records import to_bytes


class PostgresStore(
    PostgresRows, PostgresEvents, PostgresSnapshots, PostgresNotices, PostgresAllowances
):
    """A store in one schema of a database."""

    dense = False

    def __init__(
        self,
        address: str,
        *,
        source: Source,
        projections: Sequence[Projection] = (),
        durability: Literal["full", "async"] = "full",
    ) -> None:
        check_durability(durability)
        self.durability: Durability = durability
        parts = parse_address(address)
        if parts.blobs:
            check_bucket_client()
        self.address = parts.text
        self._schema_name = parts.schema
        connections = ServerConnections(parts)
        try:
            super().__init__(connections, parts.schema, parts.blobs)
            self._prepare_rows()
            self._bells = ServerBells(self._connections, self._id)
            self._locks = RunLocks(self._connections, self._schema, self._bells)
            self._load_kinds()
            self.attach(projections)
        except BaseException:  # as where the tables are not there
            connections.close()
            raise

    @property
    def id(self) -> LogId:
        return self._id

    @property
    def folder(self) -> Path | None:
        return None

    def lock(self, run: str, session: str) -> RunHold:
        return self._locks.take(run, session)

    def is_locked(self, run: str) -> bool:
        return self._locks.is_taken(run)

    def lock_first(
        self, runs: Sequence[str], seen: Mapping[str, SeenRun] | None = None
    ) -> tuple[str, RunHold] | None:
        check_runs(runs)
        return self._locks.take_first(runs, seen)

    def free_runs(self, runs: Collection[str]) -> set[str]:
        check_runs(runs)
        return self._locks.free_runs(runs)

    def shared_time(self) -> Micros:
        return self._connections.clock.now()

    def ring(self, topic: str) -> None:
        check_name("topic", topic)
        self._bells.ring(topic)

    def listen(self, topic: str) -> LocalBell:
        check_name("topic", topic)
        return self._bells.listen(topic)

    def set_durability(self, durability: Literal["full", "async"]) -> None:
        self.durability = durability

    def check(self) -> list[str]:
        def look(db: ServerConnection) -> list[str]:
            return [
                *table_faults(db, self._schema_name, self._projections.values()),
                *store_faults(db, self._sql, to_bytes(self.id)),
                *kind_faults(db, self._sql, self._names),
                *row_faults(db, self._sql, self._offset),
            ]

        return self._run(look)

    def unchecked_parts(self) -> list[Unchecked]:
        return self._run(lambda db: unchecked_parts(db, self._sql, self._projections.values()))

    def describe(self) -> dict[str, object]:
        def look(db: ServerConnection) -> dict[str, object]:
            found = facts(db, self._sql, self.id, self.address)
            found["long_transactions"] = long_transactions(db)
            return found

        return self._run(look)

    @property
    def is_closed(self) -> bool:
        return self._connections.is_closed

    def close(self) -> None:
        self._bells.close()
        self._locks.close()
        self._connections.close()

    def __repr__(self) -> str:
        return f"<PostgresStore {self.address}>"
