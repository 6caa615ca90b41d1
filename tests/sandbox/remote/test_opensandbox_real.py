"""OpenSandbox's own server, on podman: the contract, as far as it goes here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plait.errors import SandboxFailed
from plait.ids import Digest
from plait.sandbox import Backend, Wanted
from plait.sandbox.opensandbox import OpenSandbox
from plait.store import MemoryStore, Store
from plait.testing import SandboxContract
from plait.workspace import EMPTY
from tests.sandbox.remote.real_opensandbox import IMAGE, KEY, missing, running

ONE_AT_A_TIME = (
    "on the host's network every container's daemon listens at port 44772, so there can be one"
    " sandbox at a time"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if why := missing():
        pytest.skip(why)
    with running(tmp_path_factory.mktemp("opensandbox")) as address:
        yield address


@pytest.mark.slow
class TestRealServer(SandboxContract):
    network = "on"

    @pytest.fixture
    def backend(self, address: str, monkeypatch: pytest.MonkeyPatch) -> OpenSandbox:
        monkeypatch.setenv("OPEN_SANDBOX_DOMAIN", address)
        monkeypatch.setenv("OPEN_SANDBOX_API_KEY", KEY)
        return OpenSandbox()

    def new_wanted(self, store: Store, tree: Digest = EMPTY, **fields: Any) -> Wanted:
        return super().new_wanted(store, tree, **{"image": IMAGE, "network": "on", **fields})

    @pytest.mark.skip(reason=ONE_AT_A_TIME)
    def test_two_of_them_do_not_share_files(self, backend: Backend, store: Store) -> None: ...

    @pytest.mark.skip(reason=ONE_AT_A_TIME)
    def test_a_fork_has_the_files_and_its_own_life(
        self, backend: Backend, store: Store
    ) -> None: ...

    def test_no_network_is_refused_without_a_bridge(
        self, backend: OpenSandbox, store: MemoryStore
    ) -> None:
        with pytest.raises(
            SandboxFailed, match="networkPolicy is not supported when docker network_mode=host"
        ):
            backend.create(self.new_wanted(store, network="off"))
