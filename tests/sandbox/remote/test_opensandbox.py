"""OpenSandbox: the contract, over real HTTP with the vendor's SDK."""

from __future__ import annotations

import pytest

from plait.errors import SandboxFailed, SandboxGone
from plait.sandbox.opensandbox import OpenSandbox
from plait.store import MemoryStore
from plait.testing import SandboxContract
from plait.testing.sandbox.trees import PLAIN
from tests.sandbox.remote.loopback import KEY, Server


@pytest.mark.slow
class TestOpenSandbox(SandboxContract):
    @pytest.fixture
    def backend(self, opensandbox_server: Server) -> OpenSandbox:
        return OpenSandbox()


class TestWire:
    contract = SandboxContract()

    def test_what_is_asked_for(self, opensandbox_server: Server, store: MemoryStore) -> None:
        cloud = opensandbox_server.cloud
        with self.contract.new_sandbox(
            OpenSandbox(), store, PLAIN, image="other:1", options={"timeout_s": 120}
        ) as sandbox:
            (machine,) = cloud.machines.values()
            assert (machine.template, machine.timeout_s, machine.network) == (
                "other:1",
                120,
                {"defaultAction": "deny"},
            )
            assert sandbox.exec(["./run.sh"]).output.view() == "ran\n"
        with self.contract.new_sandbox(OpenSandbox(), store, network="on"):
            assert [machine.network for machine in cloud.machines.values()] == [None]

    def test_the_key_stays_with_the_server(
        self, opensandbox_server: Server, store: MemoryStore
    ) -> None:
        with self.contract.new_sandbox(OpenSandbox(), store, PLAIN) as sandbox:
            sandbox.exec(["true"])
        assert KEY.encode() not in b"".join(opensandbox_server.cloud.bodies)

    def test_an_image_that_is_not_there(
        self, opensandbox_server: Server, store: MemoryStore
    ) -> None:
        with pytest.raises(SandboxFailed, match="no image nowhere:1.*OPEN_SANDBOX_DOMAIN"):
            OpenSandbox().create(self.contract.new_wanted(store, image="nowhere:1"))

    def test_what_ends_by_itself_is_gone(
        self, opensandbox_server: Server, store: MemoryStore
    ) -> None:
        with self.contract.new_sandbox(OpenSandbox(), store) as sandbox:
            opensandbox_server.cloud.machines.popitem()[1].end()
            with pytest.raises(SandboxGone):
                sandbox.exec(["true"])
            with pytest.raises(SandboxGone):
                OpenSandbox().attach(sandbox.placement, self.contract.new_wanted(store))
