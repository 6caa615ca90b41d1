"""Lives: forks, pauses, other handles, and the end."""

from __future__ import annotations

import msgspec

from plait.errors import (
    SandboxError,
    SandboxGone,
)
from plait.event.kinds import Placement
from plait.sandbox import Backend
from plait.store import Store
from plait.testing.sandbox.case import SandboxCase, check_refused
from plait.testing.sandbox.trees import CHANGED, CHANGES, PLAIN, nodes_of, put_tree


class LifeContract(SandboxCase):
    def test_a_fork_has_the_files_and_its_own_life(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.files.write("before", b"in both")
            self._snapshot_tree(sandbox, store)
            fork = sandbox.fork(self.new_wanted(store, put_tree(store, PLAIN)))
            try:
                assert fork.placement.sandbox != sandbox.placement.sandbox
                assert fork.files.read("before") == b"in both"
                assert fork.files.read("src/cart.py") == b"total = 0\n"
                fork.begin()
                sandbox.begin()
                fork.exec(["sh", "-c", "echo fork > here; rm README"])
                sandbox.exec(["sh", "-c", "echo source > here"])
                assert fork.files.read("here") == b"fork\n"
                assert sandbox.files.read("here") == b"source\n"
                assert "README" not in nodes_of(store, self._snapshot_tree(fork, store))
                assert "README" in nodes_of(store, self._snapshot_tree(sandbox, store))
            finally:
                self._end(fork)
            assert sandbox.files.read("before") == b"in both"

    def test_what_is_paused_keeps_its_files(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.files.write("kept", b"kept")
            self._snapshot_tree(sandbox, store)
            if not self._or_says_so(backend, "pause", sandbox.pause):
                return
            sandbox.resume()
            assert sandbox.files.read("kept") == b"kept"
            assert sandbox.exec(["cat", "kept"]).output.view() == "kept"

    def test_what_is_paused_is_attached_to(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.files.write("kept", b"kept")
            self._snapshot_tree(sandbox, store)
            if not self._or_says_so(backend, "pause", sandbox.pause):
                return
            sandbox.close()
            again = backend.attach(
                sandbox.placement, self.new_wanted(store, put_tree(store, PLAIN))
            )
            try:
                assert again.files.read("kept") == b"kept"
            finally:
                self._end(again)

    def test_it_can_be_given_more_time(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            self._or_says_so(backend, "renew", lambda: sandbox.renew(600.0))

    def test_another_handle_finds_the_same_files(self, backend: Backend, store: Store) -> None:
        wanted = self.new_wanted(store, put_tree(store, PLAIN))
        sandbox = backend.create(wanted)
        try:
            sandbox.begin()
            sandbox.exec(["sh", "-ec", CHANGES])
            self._snapshot_tree(sandbox, store)
            placement = msgspec.json.decode(msgspec.json.encode(sandbox.placement), type=Placement)
        finally:
            sandbox.close()
        again = backend.attach(placement, wanted)
        try:
            assert (again.placement.sandbox, again.placement.generation) == (
                placement.sandbox,
                placement.generation,
            )
            assert again.files.read("README") == b"changed\n"
            assert nodes_of(store, self._snapshot_tree(again, store)) == CHANGED
            again.restore(wanted.tree)
            assert again.snapshot().tree == wanted.tree
        finally:
            self._end(again)

    def test_what_is_destroyed_is_gone(self, backend: Backend, store: Store) -> None:
        wanted = self.new_wanted(store, put_tree(store, PLAIN))
        sandbox = backend.create(wanted)
        assert sandbox.placement.sandbox in [held.sandbox for held in backend.list_sandboxes(store)]
        sandbox.destroy()
        with check_refused(SandboxGone):
            backend.attach(sandbox.placement, wanted)
        with check_refused(SandboxError):
            sandbox.exec(["true"])
        sandbox.close()
        assert sandbox.placement.sandbox not in [
            held.sandbox for held in backend.list_sandboxes(store)
        ]

    def test_it_is_known_whose_it_is(self, backend: Backend, store: Store) -> None:
        wanted = self.new_wanted(store)
        sandbox = backend.create(wanted)
        try:
            (held,) = [
                held
                for held in backend.list_sandboxes(store)
                if held.sandbox == sandbox.placement.sandbox
            ]
            assert (held.backend, held.key) == (backend.name, wanted.key)
            assert held.state
        finally:
            self._end(sandbox)
