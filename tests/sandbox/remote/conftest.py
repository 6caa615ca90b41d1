"""Backends on loopback: the vendor's own SDK, and a server of ours that speaks its protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plait.store import MemoryStore
from plait.testing import Seeded
from tests.sandbox.remote.cube_server import CubeHandler
from tests.sandbox.remote.e2b_server import E2BHandler
from tests.sandbox.remote.loopback import KEY, Server
from tests.sandbox.remote.opensandbox_server import OpenSandboxHandler


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[MemoryStore]:
    store = MemoryStore(request.node.nodeid, source=Seeded())
    yield store
    store.close()


@pytest.fixture
def e2b_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(E2BHandler)
    for name, value in {
        "API_URL": server.url,
        "SANDBOX_URL": server.url,
        "API_KEY": KEY,
        "HTTP_VERSION": "1.1",
    }.items():
        monkeypatch.setenv(f"E2B_{name}", value)
    yield server
    server.close()


@pytest.fixture
def cube_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(CubeHandler)
    proxy = {"PROXY_NODE_IP": "127.0.0.1", "PROXY_PORT_HTTP": str(server.port)}
    for name, value in {
        "API_URL": server.url,
        "API_KEY": KEY,
        "TEMPLATE_ID": "small",
        **proxy,
    }.items():
        monkeypatch.setenv(f"CUBE_{name}", value)
    yield server
    server.close()


@pytest.fixture
def opensandbox_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(OpenSandboxHandler)
    monkeypatch.setenv("OPEN_SANDBOX_DOMAIN", f"127.0.0.1:{server.port}")
    monkeypatch.setenv("OPEN_SANDBOX_API_KEY", KEY)
    yield server
    server.close()
