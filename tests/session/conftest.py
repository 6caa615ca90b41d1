"""A store of each kind, through the public door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import Store, open_store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(
        f"memory:{tmp_path.name}" if request.param == "memory" else tmp_path / ".plait"
    )
    yield opened
    opened.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / ".plait")
    yield opened
    opened.close()
