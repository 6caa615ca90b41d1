"""For the tests of the server: a store in a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import open_store
from plait.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / ".plait")
