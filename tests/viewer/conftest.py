"""What the tests of the page share: one store, which they read, and a server of it per module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.outline.sessions import ViewStore, make_view_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.server.clients import LiveServer


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    pytest.importorskip("playwright")
    from tests.viewer.browsers import started_browser

    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> ViewStore:
    return make_view_store(tmp_path_factory.mktemp("viewed"))


@pytest.fixture(scope="module")
def server(made: ViewStore) -> Iterator[LiveServer]:
    from tests.server.clients import live_server

    with live_server(made.folder, PLAIT_ACTOR="human:ann") as server:
        yield server
