"""Stores that sessions are copied between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from plait import migrate_store, open_store
from plait.store import Store
from tests.support import fresh_store, postgres_server

DURABLE_PAIRS = ["sqlite-sqlite", "sqlite-postgres", "postgres-sqlite", "postgres-postgres"]


@pytest.fixture(params=[*DURABLE_PAIRS, "memory-sqlite", "sqlite-memory"])
def addresses(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of a store to copy from, and of an empty one; a test may name the kinds."""
    found: list[str] = []
    with ExitStack() as stack:
        for n, kind in enumerate(str(request.param).split("-")):
            if kind == "postgres":
                found.append(stack.enter_context(fresh_store(postgres_server())))
                migrate_store(found[-1])
            else:
                found.append(
                    f"memory:{tmp_path.name}-{n}" if kind == "memory" else f"{tmp_path}/{n}"
                )
        yield found


@pytest.fixture
def pair(addresses: list[str]) -> tuple[Store, Store]:
    """A store to copy from, and an empty one."""
    return open_store(addresses[0]), open_store(addresses[1])


@pytest.fixture
def source(tmp_path: Path) -> Store:
    return open_store(tmp_path / "source")


@pytest.fixture
def target(tmp_path: Path) -> Store:
    return open_store(tmp_path / "target")
