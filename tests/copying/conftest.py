"""Stores that sessions are copied between."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import open_store
from plait.store import Store


@pytest.fixture
def source(tmp_path: Path) -> Store:
    return open_store(tmp_path / "source")


@pytest.fixture
def target(tmp_path: Path) -> Store:
    return open_store(tmp_path / "target")
