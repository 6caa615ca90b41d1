"""E2B: the contract, over real HTTP with the vendor's SDK."""

from __future__ import annotations

import pytest

from plait.sandbox.e2b import E2B
from plait.testing import SandboxContract
from sandbox.remote.loopback import Server


class TestE2B(SandboxContract):
    @pytest.fixture
    def backend(self, e2b_server: Server) -> E2B:
        return E2B()
