"""Sandboxes for a test: made, snapshotted and ended."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from plait.errors import (
    NotSupported,
    SandboxGone,
)
from plait.ids import Digest
from plait.sandbox import Backend, Sandbox, Wanted
from plait.store import Store
from plait.testing.sandbox.trees import Tree, put_tree
from plait.testing.writing import new_log
from plait.workspace import EMPTY


@contextmanager
def check_refused(error: type[Exception]) -> Generator[None]:
    try:
        yield
    except error as found:
        assert str(found), "an error says what to do next"
    else:
        raise AssertionError(f"{error.__name__} was not raised")


class SandboxCase:
    """The sandboxes that every part of the contract needs."""

    network = "off"  # of the placement, if no other is asked for

    def new_wanted(self, store: Store, tree: Digest = EMPTY, **fields: Any) -> Wanted:
        return Wanted(store, new_log(), tree, **fields)

    @contextmanager
    def new_sandbox(
        self, backend: Backend, store: Store, nodes: Tree | None = None, **fields: Any
    ) -> Generator[Sandbox]:
        sandbox = backend.create(self.new_wanted(store, put_tree(store, nodes or {}), **fields))
        try:
            yield sandbox
        finally:
            self._end(sandbox)

    def _end(self, sandbox: Sandbox) -> None:
        try:
            sandbox.destroy()
        except SandboxGone:
            pass
        sandbox.close()

    def _snapshot_tree(self, sandbox: Sandbox, store: Store) -> Digest:
        """A snapshot, and its blobs in the store as the event would bring them."""
        found = sandbox.snapshot()
        store.put_blobs(found.blobs)
        return found.tree

    def _offers(self, backend: Backend, name: str) -> bool:
        return any(
            capability.name == name and capability.offered
            for capability in backend.probe().capabilities
        )

    def _or_says_so(self, backend: Backend, name: str, do: Callable[[], object]) -> bool:
        """Do it if it is offered; else it is refused by name, and the test is over."""
        if self._offers(backend, name):
            do()
            return True
        with check_refused(NotSupported):
            do()
        return False
