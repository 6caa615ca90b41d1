"""A store of each kind, and a memory in it."""

from __future__ import annotations

import pytest

from plait import Memory, Session, Store
from tests.session.conftest import sqlite, store

__all__ = ["memory", "sqlite", "store"]


@pytest.fixture
def memory(store: Store) -> Memory:
    return Memory(store=store)


@pytest.fixture
def session(store: Store) -> Session:
    return Session("Hi", user="ann", project="shop", store=store)
