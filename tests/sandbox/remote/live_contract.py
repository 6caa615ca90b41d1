"""The contract against the real services.

`test_live.py` runs this file in a process that may reach them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plait.sandbox.cube import Cube
from plait.sandbox.e2b import E2B
from plait.sandbox.opensandbox import OpenSandbox
from plait.store import MemoryStore
from plait.testing import SandboxContract, Seeded


class Live(SandboxContract):
    @pytest.fixture
    def store(self, request: pytest.FixtureRequest) -> Iterator[MemoryStore]:
        store = MemoryStore(request.node.nodeid, source=Seeded())
        yield store
        store.close()


class TestE2B(Live):
    @pytest.fixture
    def backend(self) -> E2B:
        return E2B()


class TestOpenSandbox(Live):
    @pytest.fixture
    def backend(self) -> OpenSandbox:
        return OpenSandbox()


class TestCube(Live):
    @pytest.fixture
    def backend(self) -> Cube:
        return Cube()
