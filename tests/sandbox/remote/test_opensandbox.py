"""OpenSandbox: the contract, over real HTTP with the vendor's SDK."""

from __future__ import annotations

import pytest

from plait.sandbox.opensandbox import OpenSandbox
from plait.testing import SandboxContract
from sandbox.remote.loopback import Server


class TestOpenSandbox(SandboxContract):
    @pytest.fixture
    def backend(self, opensandbox_server: Server) -> OpenSandbox:
        return OpenSandbox()
