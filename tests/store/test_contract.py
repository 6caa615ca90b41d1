"""Every store of ours keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.store import MemoryStore, Projection, SqliteStore, Store
from plait.testing import Seeded, StoreContract
from plait.testing.store import Opened


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
