"""OpenSandbox: the contract, over real HTTP with the vendor's SDK."""

from __future__ import annotations

import pytest
from sandbox.remote.loopback import Server

from plait.sandbox.opensandbox import OpenSandbox
from plait.testing import SandboxContract


class TestOpenSandbox(SandboxContract):
    @pytest.fixture
    def backend(self, opensandbox_server: Server) -> OpenSandbox:
        return OpenSandbox()
