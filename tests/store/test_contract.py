"""Every store of ours keeps the contract."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest

from plait import open_store
from plait.errors import StoreFailed, UnknownRows
from plait.event.kinds import File, MessageSaid, ScratchSet, Text
from plait.store import MemoryStore, Projection, SqliteStore, Store, verify_store
from plait.store.epochs import EPOCH_KINDS
from plait.store.sqlite.schema import MIGRATIONS
from plait.testing import Seeded, StoreContract
from plait.testing.projections import Tally
from plait.testing.writing import Opened, begin, extend, message, texts
from tests.faults.folders import old_store
from tests.support import RawSql, pgbouncer_port, pooled_store, postgres_server


class TestMemory(StoreContract):
    durable = False

    @pytest.fixture
    def opened(self) -> Opened:
        return lambda *projections: MemoryStore(source=Seeded(), projections=projections)


class TestSqlite(StoreContract):
    durability: Literal["full", "async"] = "full"

    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Opened]:
        stores: list[Store] = []

        def open(*projections: Projection) -> Store:
            stores.append(
                SqliteStore(
                    tmp_path / "store",
                    source=Seeded(),
                    projections=projections,
                    durability=self.durability,
                )
            )
            return stores[-1]

        yield open
        for store in stores:
            store.close()


class TestSqliteAsync(TestSqlite):
    durability = "async"


class TestPostgres(StoreContract):
    dense = False
    folds_inside = False
    durability: Literal["full", "async"] = "full"
    version = 18

    @contextmanager
    def address(self) -> Generator[str]:
        """The address of a new store, as its users see it."""
        with pooled_store(postgres_server(self.version)) as address:
            yield address

    @pytest.fixture
    def opened(self) -> Iterator[Opened]:
        from plait.store.postgres.store import PostgresStore

        with self.address() as address, ExitStack() as stores:

            def open(*projections: Projection) -> Store:
                store = PostgresStore(
                    address,
                    source=Seeded(),
                    projections=projections,
                    durability=self.durability,
                )
                stores.callback(store.close)
                return store

            yield open


@pytest.mark.ci
class TestPostgresAsync(TestPostgres):
    durability = "async"


@pytest.mark.ci
class TestPostgres16(TestPostgres):
    version = 16


@pytest.mark.ci
class TestPostgres15(TestPostgres):
    """The oldest server, and one whose text does not sort by its bytes by itself."""

    version = 15


@pytest.mark.ci
class TestPgbouncer(TestPostgres):
    """Behind a pooler that lends connections per transaction: a lock dies with its lease."""

    @pytest.fixture(autouse=True)
    def short_lease(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PLAIT_STORE_LEASE_S", "5")

    @contextmanager
    def address(self) -> Generator[str]:
        server = postgres_server(self.version)
        with pooled_store(server, port=pgbouncer_port(server)) as address:
            yield address


def test_a_store_whose_file_was_removed_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing into an unlinked file succeeds, and is lost.

    So it is soon refused, and opening again finds what is there.
    """
    monkeypatch.setattr("plait.store.sqlite.connections._CHECK_EVERY_S", 0.0)
    store = open_store(tmp_path / "store")
    log = begin(store, message("one"))
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreFailed, match="removed or replaced"):
        extend(store, log, message("two"))
    again = open_store(tmp_path / "store")
    assert again is not store and again.number == 0
    begin(again, message("new"))
    with pytest.raises(StoreFailed, match="removed or replaced"):
        begin(store)
    again.close()


def test_projections_can_join_an_open_store(tmp_path: Path) -> None:
    for address in (str(tmp_path / "late"), "memory:late"):
        store = open_store(address)
        log = begin(store, ScratchSet("a", 1))
        with pytest.raises(UnknownRows, match="open_store"):
            store.rows("tally", "count")
        assert open_store(address, projections=[Tally()]) is store
        extend(store, log, ScratchSet("a", 2))
        assert [row["times"] for row in store.rows("tally", "count")] == [2]
        assert [row["log"] for row in store.rows("session", "session")] == [log]
        store.close()


@pytest.mark.parametrize("schema", range(1, len(MIGRATIONS)))
def test_a_store_of_an_old_schema_is_brought_up_to_date(tmp_path: Path, schema: int) -> None:
    old_store(tmp_path, schema)
    assert RawSql(tmp_path / "store.db")("PRAGMA user_version") == [(schema,)]
    store = SqliteStore(tmp_path, source=Seeded(), projections=(Tally(),))
    assert store.describe()["schema"] == len(MIGRATIONS)
    assert list(verify_store(store)) == []
    (_, child), (_, root) = store.logs()
    said_there = [
        event.body.parts[0] for event in store.read(root.id) if isinstance(event.body, MessageSaid)
    ]
    assert [part.text[:9] for part in said_there if isinstance(part, Text)] == [
        "kept",
        "prose, an",
        "long long",
        "\u2028\0漢",
    ]
    assert [store.get_blob(part.blob)[:8] for part in said_there if isinstance(part, File)] == [
        b"a figure"
    ]
    assert texts(store, child.id)[2:] == ["on the branch"]
    assert {child.durability, root.durability} == {"full"}
    marks = [each.kind for each in store.read(root.id) if each.kind in EPOCH_KINDS]
    assert (root.epoch, child.epoch) == (len(marks), bool(marks)), (
        "the epochs of runs that were there before there were epochs"
    )
    assert bool(marks) == (schema > 2)
    extend(store, root.id, message("and on"), message("prose, and more of it. " * 20))
    store.keep_snapshot(root.id, 4, b"state")
    assert store.nearest_snapshot(root.id, 5) == (root.id, 4, b"state")
    assert list(verify_store(store)) == []
    store.close()


def test_a_snapshot_that_cannot_be_read_is_as_good_as_none(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, source=Seeded())
    log = begin(store, message("one"), message("two"))
    for seq in (1, 2, 3):
        store.keep_snapshot(log, seq, b"state " * 100)
    for seq, edit in ((2, "substr(data, 1, 9)"), (3, "x''")):
        raw = RawSql(tmp_path / "store.db")
        raw(f"UPDATE snapshot SET data = {edit} WHERE seq = ?", (seq,))
        raw.close()
    assert store.nearest_snapshot(log, 3) == (log, 1, b"state " * 100)
    assert store.snapshots(log) == [(1, b"state " * 100)]
    store.keep_snapshot(log, 3, b"again")
    assert store.nearest_snapshot(log, 3) == (log, 3, b"again")
    (fault,) = verify_store(store)  # it is never used, but somebody edited it
    assert "snapshot" in str(fault) and "@2" in str(fault)
    store.drop_snapshots(log)
    assert list(verify_store(store)) == []
    store.close()


def test_rows_of_a_newer_version_are_not_ours(tmp_path: Path) -> None:
    class Newer(Tally):
        version = 2

    SqliteStore(tmp_path, source=Seeded(), projections=(Newer(),)).close()
    store = SqliteStore(tmp_path, source=Seeded(), projections=(Tally(),))
    with pytest.raises(UnknownRows, match="newer version"):
        store.rows("tally", "count")
    store.close()
