"""Cube: the contract, over real HTTP with the vendor's SDK."""

from __future__ import annotations

import pytest

from plait.sandbox.cube import Cube
from plait.testing import SandboxContract
from sandbox.remote.loopback import Server


class TestCube(SandboxContract):
    @pytest.fixture
    def backend(self, cube_server: Server) -> Cube:
        return Cube()
