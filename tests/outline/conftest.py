"""Stores that the tests of outlines share: they read them, and write nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from plait import open_store
from plait.ids import LogId
from plait.outline.outlines import Outlines
from plait.store import Store
from tests.outline.sessions import ViewStore, make_long_store, make_view_store


@pytest.fixture(scope="session")
def view() -> Iterator[ViewStore]:
    """One session of each sort, made by real runs."""
    with TemporaryDirectory(prefix="plait-view-", ignore_cleanup_errors=True) as folder:
        yield make_view_store(Path(folder).resolve())


@pytest.fixture(scope="session")
def outlines(view: ViewStore) -> Outlines:
    return Outlines(view.store)


@pytest.fixture(scope="session")
def long_folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="plait-long-", ignore_cleanup_errors=True) as folder:
        made = Path(folder).resolve()
        make_long_store(made, events=2000, branches=6)[0].close()
        yield made


@pytest.fixture
def long_store(long_folder: Path, tmp_path: Path) -> tuple[Store, LogId]:
    """A family of 2,000 events with six branches, in a store of the test's own."""
    shutil.copytree(long_folder / ".plait", tmp_path / "long")
    store = open_store(tmp_path / "long")
    rows = store.rows("session", "session", {"parent": None}, limit=1)
    return store, LogId(str(rows[0]["log"]))
