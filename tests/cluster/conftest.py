"""A store for each test, and workers that end with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plait import open_store
from plait.cluster import Worker
from plait.store import Store, canonical_address, find_open
from tests.support import child_environment

FLOWS = "tests.cluster.flows"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    address = canonical_address(str(tmp_path / ".plait"))
    monkeypatch.setenv("PLAIT_STORE", address)
    yield open_store(address)
    if (opened := find_open(address)) is not None:
        opened.close()


@pytest.fixture
def serve(store: Store) -> Iterator[Callable[..., Worker]]:
    """Start a worker in a thread of this process; it is drained after the test."""
    going = list[tuple[Worker, threading.Thread]]()

    def start(**how: Any) -> Worker:
        worker = Worker(store, how.pop("modules", [FLOWS]), **how)
        thread = threading.Thread(target=worker.serve)
        going.append((worker, thread))
        thread.start()
        return worker

    yield start
    for worker, _ in going:
        worker.drain()
    for _, thread in going:
        thread.join()


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of workers in processes of their own."""
    return child_environment()
