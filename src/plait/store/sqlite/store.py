"""The embedded store: one SQLite file in a folder.

The path of an append is short on purpose. The event is packed in the caller's thread; the
transaction is one compare-and-set of the log's head and one insert; the fsync is shared with the
other writes of the same moment (`commit.py`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import apsw

from plait.errors import (
    StoreClosed,
    StoreCorrupt,
)
from plait.ids import LogId, Source
from plait.store.arguments import (
    check_closing,
    check_draw,
    check_durability,
    check_name,
    check_notice,
    check_runs,
)
from plait.store.base import Durability, Unchecked
from plait.store.locks import FileLock, free_runs_in, lock_first_in, lock_in, lock_unmoved
from plait.store.moment import Allowance, Bell, Drawn, Notice, OneMachine, SeenRun
from plait.store.process import STORES
from plait.store.projection import Projection
from plait.store.sqlite.allowances import AllowanceFiles
from plait.store.sqlite.bells import PipeBells
from plait.store.sqlite.checks import (
    file_faults,
    kind_faults,
    row_faults,
    schema_faults,
    unchecked_parts,
)
from plait.store.sqlite.connections import Connections
from plait.store.sqlite.database import (
    BUSY_S,
    PRAGMAS,
    Migration,
    check_tables,
    connect,
    migrate,
)
from plait.store.sqlite.events import SqliteEvents
from plait.store.sqlite.folder import make_folder
from plait.store.sqlite.notices import NoticeFiles
from plait.store.sqlite.rows import SqliteRows
from plait.store.sqlite.schema import MIGRATIONS
from plait.store.sqlite.snapshots import SqliteSnapshots
from plait.store.sqlite.words import look_at_indexes

FILE = "store.db"


class SqliteStore(SqliteEvents, SqliteSnapshots, SqliteRows, OneMachine):
    """A store in `folder/store.db`."""

    dense = True
    folds_inside = True

    def __init__(
        self,
        folder: str | Path,
        *,
        source: Source,
        projections: Sequence[Projection] = (),
        migrations: Sequence[Migration] = MIGRATIONS,
        busy_s: float = BUSY_S,
        durability: Literal["full", "async"] = "full",
    ) -> None:
        check_durability(durability)
        self.durability: Durability = durability
        self._folder = Path(os.path.realpath(folder))
        self.address = f"sqlite:{self._folder}"
        self.path = str(self._folder / FILE)
        make_folder(self._folder, FILE)
        with STORES.opening:
            first = connect(self.path, create=True, busy_s=busy_s)
            try:
                migrate(first, migrations)
                check_tables(first, tuple(migrations))
            except (apsw.Error, UnicodeDecodeError) as error:
                raise first.translate(error) from error
            finally:
                first.close()
            # Still inside: a store past this point is known to a fork.
            connections = Connections(
                self.address, self.path, partial(connect, self.path, busy_s=busy_s)
            )
        super().__init__(connections)
        self._bells, self._notices = PipeBells(self._folder), NoticeFiles(self._folder)
        self._allowances = AllowanceFiles(self._folder)
        self._migrations = tuple(migrations)
        self.id: LogId = self._connections.write(lambda db: self._work.settle_in(db, source))
        self.attach(projections)

    def lock(self, run: str, session: str) -> FileLock:
        return lock_in(self._folder, run, session)

    def is_locked(self, run: str) -> bool:
        return not free_runs_in(self._folder, (run,))

    def lock_first(
        self, runs: Sequence[str], seen: Mapping[str, SeenRun] | None = None
    ) -> tuple[str, FileLock] | None:
        check_runs(runs)
        return lock_unmoved(self, runs, seen or {}, lambda left: lock_first_in(self._folder, left))

    def free_runs(self, runs: Collection[str]) -> set[str]:
        check_runs(runs)
        return free_runs_in(self._folder, runs)

    def shared_time(self) -> None:
        """None: all processes of the store are on this machine."""

    def ring(self, topic: str) -> None:
        check_name("topic", topic)
        self._bells.ring(topic)

    def listen(self, topic: str) -> Bell:
        check_name("topic", topic)
        self._check_open()
        return self._bells.listen(topic)

    def put_notice(self, board: str, key: str, data: bytes) -> None:
        check_name("board", board)
        check_name("key", key)
        check_notice(data)
        self._check_open()
        self._notices.put(board, key, data)

    def drop_notice(self, board: str, key: str) -> None:
        check_name("board", board)
        check_name("key", key)
        self._check_open()
        self._notices.drop(board, key)

    def notices(self, board: str) -> dict[str, Notice]:
        check_name("board", board)
        self._check_open()
        return self._notices.read(board)

    def draw(
        self,
        allowance: str,
        amount: float,
        *,
        per_s: float,
        size: float,
        most: float = 0.0,
        reserves: bool = False,
    ) -> Drawn:
        check_draw(allowance, amount, per_s, size, most)
        self._check_open()
        return self._allowances.draw(allowance, amount, per_s, size, most, reserves)

    def close_allowance(self, allowance: str, seconds: float) -> None:
        check_closing(allowance, seconds)
        self._check_open()
        self._allowances.close(allowance, seconds)

    def allowances(self) -> dict[str, Allowance]:
        self._check_open()
        return self._allowances.read()

    def drop_allowance(self, allowance: str) -> None:
        check_name("allowance", allowance)
        self._check_open()
        self._allowances.drop(allowance)

    def _check_open(self) -> None:
        if self._connections.is_closed:
            raise StoreClosed(self.address)

    @property
    def folder(self) -> Path:
        return self._folder

    def set_durability(self, durability: Literal["full", "async"]) -> None:
        self.durability = durability

    def check(self) -> list[str]:
        """Have SQLite check every page and index: a search by a damaged index silently finds
        nothing.
        """
        with self._reader() as db:
            look_at_indexes(db)
            whole: str = db.get("PRAGMA integrity_check(1)")
            if whole != "ok":
                raise StoreCorrupt(self.path, whole)
            return [
                *file_faults(db, self.id, len(self._migrations)),
                *schema_faults(db, self._migrations, self._projections.values()),
                *kind_faults(db, self._names),
                *row_faults(db),
            ]

    def unchecked_parts(self) -> list[Unchecked]:
        with self._reader() as db:
            return unchecked_parts(db, self._projections.values())

    def describe(self) -> dict[str, object]:
        with self._reader() as db:
            pragmas = {
                name: db.get(f"PRAGMA {name}") for name in ("journal_mode", "page_size", *PRAGMAS)
            }
            return {
                "address": self.address,
                "id": self.id,
                "schema": db.get("PRAGMA user_version"),
                "pragmas": pragmas,
                "logs": db.get("SELECT count(*) FROM log WHERE key != 0"),
                "events": db.get("SELECT count(*) FROM event WHERE number != 0"),
                "blobs": db.get("SELECT count(*) FROM blob"),
                "bytes": sum(
                    os.path.getsize(self.path + end)
                    for end in ("", "-wal")
                    if os.path.exists(self.path + end)
                ),
            }

    @property
    def is_closed(self) -> bool:
        return self._connections.is_closed or self._connections.is_gone()

    @property
    def is_closed_lately(self) -> bool:
        """As `closed`, cheap enough for every append: a removed file is noticed a moment later."""
        return self._connections.is_closed or self._connections.is_gone_lately()

    def close(self) -> None:
        self._bells.close()
        self._connections.close()

    def __repr__(self) -> str:
        return f"<SqliteStore {self.address}>"
