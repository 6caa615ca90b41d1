"""Cube: the contract, over real HTTP with the vendor's SDK; a copy that fails half-way leaves
nothing behind.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from plait.errors import InvalidValue, SandboxFailed, SandboxGone
from plait.sandbox.cube import Cube
from plait.store import MemoryStore
from plait.testing import SandboxContract
from plait.testing.sandbox.trees import PLAIN
from tests.sandbox.remote.loopback import Server


@pytest.mark.slow
class TestCube(SandboxContract):
    @pytest.fixture
    def backend(self, cube_server: Server) -> Cube:
        return Cube()


class TestCopies:
    contract = SandboxContract()

    def test_a_copy_leaves_no_snapshot(self, cube_server: Server, store: MemoryStore) -> None:
        with (
            self.contract.new_sandbox(Cube(), store, PLAIN) as sandbox,
            closing(sandbox.fork(self.contract.new_wanted(store))) as other,
        ):
            assert cube_server.cloud.images == {}
            assert other.files.read("README") == b"read me\n"
            assert len(cube_server.cloud.machines) == 2

    def test_a_copy_that_fails_leaves_no_snapshot(
        self, cube_server: Server, store: MemoryStore
    ) -> None:
        with self.contract.new_sandbox(Cube(), store) as sandbox:
            cube_server.cloud.refuses.append("/sandboxes")
            with pytest.raises(SandboxFailed, match="refused on purpose"):
                sandbox.fork(self.contract.new_wanted(store))
            assert cube_server.cloud.images == {}
            assert len(cube_server.cloud.machines) == 1

    def test_what_a_dead_process_left_is_removed_by_the_next_to_attach(
        self, cube_server: Server, store: MemoryStore
    ) -> None:
        with self.contract.new_sandbox(Cube(), store) as sandbox:
            machine = cube_server.cloud.machines[sandbox.placement.sandbox]
            left, other, named = (cube_server.cloud.snapshot(machine) for _ in range(3))
            marks = {
                left: f"plait-copy-of-{machine.name}",
                other: "plait-copy-of-another",
                named: "somebody's",
            }
            for name, mark in marks.items():
                cube_server.cloud.images[name].template, cube_server.cloud.images[name].marks = (
                    machine.name,
                    {"name": mark},
                )
            Cube().attach(sandbox.placement, self.contract.new_wanted(store)).close()
            assert set(cube_server.cloud.images) == {other, named}

    def test_what_ends_by_itself_is_gone(self, cube_server: Server, store: MemoryStore) -> None:
        with self.contract.new_sandbox(Cube(), store) as sandbox:
            cube_server.cloud.machines.popitem()[1].end()
            with pytest.raises(SandboxGone):
                sandbox.exec(["true"])

    def test_a_template_has_to_be_named(
        self, cube_server: Server, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CUBE_TEMPLATE_ID")
        with pytest.raises(InvalidValue, match="CUBE_TEMPLATE_ID"):
            Cube().create(self.contract.new_wanted(store))
        with pytest.raises(SandboxFailed, match="does not exist"):
            Cube().create(self.contract.new_wanted(store, image="nowhere"))
        with self.contract.new_sandbox(Cube(), store, image="small") as sandbox:
            assert sandbox.placement.image == "small"
