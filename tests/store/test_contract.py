"""Every store of ours keeps the contract."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import open_store
from plait.errors import StoreFailed, UnknownRows
from plait.event.kinds import ScratchSet
from plait.store import MemoryStore, Projection, SqliteStore, Store, verify_store
from plait.store.schema import MIGRATIONS
from plait.testing import Seeded, StoreContract
from plait.testing.store import Opened, Tally, begin, extend, fork, said, texts
from support import RawSql


class TestMemory(StoreContract):
    durable = False

    @pytest.fixture
    def opened(self) -> Opened:
        return lambda *projections: MemoryStore(source=Seeded(), projections=projections)


class TestSqlite(StoreContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Opened]:
        stores: list[Store] = []

        def open(*projections: Projection) -> Store:
            stores.append(SqliteStore(tmp_path / "store", source=Seeded(), projections=projections))
            return stores[-1]

        yield open
        for store in stores:
            store.close()


def test_a_store_whose_file_was_removed_takes_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing into an unlinked file succeeds, and is lost. So it is soon refused, and opening again finds what is there."""
    monkeypatch.setattr("plait.store.connections._CHECK_EVERY_S", 0.0)
    store = open_store(tmp_path / "store")
    log = begin(store, said("one"))
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreFailed, match="removed or replaced"):
        extend(store, log, said("two"))
    again = open_store(tmp_path / "store")
    assert again is not store and again.number == 0
    begin(again, said("new"))
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


def test_a_store_of_schema_1_is_brought_up_to_date(tmp_path: Path) -> None:
    old = SqliteStore(tmp_path, source=Seeded(), projections=(Tally(),), migrations=MIGRATIONS[:1])
    log = begin(old, said("one"), ScratchSet("a", 1), said("long " * 2000))
    child = fork(old, log, 2)
    extend(old, child, said("mine"))
    assert old.describe()["schema"] == 1
    old.close()
    store = SqliteStore(tmp_path, source=Seeded(), projections=(Tally(),))
    assert store.describe()["schema"] == len(MIGRATIONS)
    assert list(verify_store(store)) == []
    assert texts(store, child) == ["one", "mine"]
    assert [row["times"] for row in store.rows("tally", "count")] == [1]
    store.keep(log, 3, b"state")
    assert store.kept(log, 4) == (log, 3, b"state")
    store.close()


def test_a_snapshot_that_cannot_be_read_is_as_good_as_none(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, source=Seeded())
    log = begin(store, said("one"), said("two"))
    for seq in (1, 2, 3):
        store.keep(log, seq, b"state " * 100)
    for seq, edit in ((2, "substr(data, 1, 9)"), (3, "x''")):
        raw = RawSql(tmp_path / "store.db")
        raw(f"UPDATE snapshot SET data = {edit} WHERE seq = ?", (seq,))
        raw.close()
    assert store.kept(log, 3) == (log, 1, b"state " * 100)
    assert store.all_kept(log) == [(1, b"state " * 100)]
    store.keep(log, 3, b"again")
    assert store.kept(log, 3) == (log, 3, b"again")
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
