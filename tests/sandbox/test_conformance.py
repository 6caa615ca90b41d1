"""The contract of sandboxes, on every rung that this machine offers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plait.ids import Digest
from plait.sandbox import Wanted
from plait.sandbox.local import LocalBackend
from plait.store import SqliteStore, Store
from plait.testing import SandboxContract, Seeded
from plait.workspace import EMPTY
from tests.sandbox.rooms import needs


class OnRung(SandboxContract):
    rung: str

    @pytest.fixture
    def backend(self, tmp_path: Path) -> LocalBackend:
        needs(self.rung, tmp_path)
        return LocalBackend()

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        store = SqliteStore(tmp_path / ".plait", source=Seeded())
        yield store
        store.close()

    def new_wanted(self, store: Store, tree: Digest = EMPTY, **fields: Any) -> Wanted:
        return super().new_wanted(store, tree, **{"isolation": self.rung, **fields})


class TestOverlay(OnRung):
    rung = "overlay"


@pytest.mark.slow
class TestBubblewrap(OnRung):
    rung = "bubblewrap"


@pytest.mark.slow
class TestLandlock(OnRung):
    rung = "landlock"


@pytest.mark.slow
class TestHost(OnRung):
    rung = "host"
    network = "on"
