"""Stores that workers serve while they are disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import open_store
from plait.store import Store
from tests.faults.postgres_aftermath import made_store


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind, which several processes can open."""
    if request.param == "postgres":
        yield made_store(request.getfixturevalue("postgres_address"))
    else:
        yield open_store(tmp_path / ".plait")
