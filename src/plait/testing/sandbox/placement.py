"""Placement: the offer of a backend, its words about a sandbox, and the files at the start."""

from __future__ import annotations

import msgspec

from plait.errors import (
    IsolationMissing,
    NoSuchFile,
)
from plait.event.kinds import Placement
from plait.sandbox import Backend, Limits
from plait.store import Store
from plait.testing.sandbox.case import SandboxCase, check_refused
from plait.testing.sandbox.trees import PLAIN, put_tree
from plait.workspace import EMPTY


class PlacementContract(SandboxCase):
    def test_it_says_what_it_offers(self, backend: Backend) -> None:
        probe = backend.probe()
        assert probe.backend == backend.name
        assert probe.label
        names = [capability.name for capability in probe.capabilities]
        assert len(names) == len(set(names))
        assert {"exec", "files", "snapshot", "fork"} <= {
            capability.name for capability in probe.capabilities if capability.offered
        }
        assert all(
            capability.why and capability.fix
            for capability in probe.capabilities
            if not capability.offered
        )

    def test_the_placement_says_what_it_was(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, limits=Limits(time_s=77.0)) as sandbox:
            placement = sandbox.placement
            assert placement.backend == backend.name
            assert placement.sandbox
            assert placement.generation >= 0
            assert placement.rung
            assert placement.network == self.network
            detail = placement.detail
            assert isinstance(detail, dict)
            assert isinstance(detail["version"], str)
            limits = detail["limits"]
            assert isinstance(limits, dict)
            assert limits["time_s"] == 77.0
            assert msgspec.json.decode(msgspec.json.encode(placement), type=Placement) == placement

    def test_isolation_that_is_not_there_is_refused(self, backend: Backend, store: Store) -> None:
        with check_refused(IsolationMissing):
            backend.create(self.new_wanted(store, isolation="no-such-rung"))

    def test_a_tree_is_there_as_it_was(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            for path, node in PLAIN.items():
                entry = sandbox.files.entry(path)
                assert entry.kind == node.kind, path
                if node.kind == "file":
                    assert sandbox.files.read(path) == node.content, path
                if node.kind == "link":
                    assert entry.target == node.target
                else:
                    assert entry.mode == node.mode, path
            assert sandbox.exec(["./run.sh"]).output.view() == "ran\n"

    def test_a_snapshot_of_what_nobody_touched_is_the_same_tree(
        self, backend: Backend, store: Store
    ) -> None:
        tree = put_tree(store, PLAIN)
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            found = sandbox.snapshot()
            assert found.tree == tree
            assert found.changed == ()
            assert not store.missing_blobs(found.blobs)

    def test_an_empty_workspace_is_empty(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            assert list(sandbox.files.list()) == []
            assert sandbox.snapshot().tree == EMPTY
            assert sandbox.exec(["pwd"]).output.view().strip() == sandbox.workdir

    def test_two_of_them_do_not_share_files(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as one, self.new_sandbox(backend, store) as other:
            one.files.write("mine", b"1")
            assert one.placement.sandbox != other.placement.sandbox
            with check_refused(NoSuchFile):
                other.files.read("mine")
