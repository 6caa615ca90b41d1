"""A browser, a server and real sessions, once for each module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.outline.sessions import ViewStore, make_view_store
from tests.server.clients import LiveServer, live_server
from tests.viewer.browsers import WAIT_MS, Viewer, opened_viewer, started_browser

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def made(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> ViewStore:
    return make_view_store(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="module")
def server(made: ViewStore) -> Iterator[LiveServer]:
    with live_server(made.folder, PLAIT_ACTOR="human:ann") as server:
        yield server


@pytest.fixture
def viewer(browser: Browser, server: LiveServer) -> Iterator[Viewer]:
    with opened_viewer(browser, server) as viewer:
        yield viewer


@pytest.fixture
def telephone(browser: Browser, server: LiveServer) -> Iterator[Viewer]:
    with opened_viewer(browser, server, width=390, theme="dark") as viewer:
        yield viewer
