"""Images with nothing but busybox: listings without find's printing, archives without GNU tar, a
shell that is no bash.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from plait.errors import NotSupported, SandboxGone
from plait.sandbox import Wanted
from plait.sandbox.remote import RemoteBackend
from plait.sandbox.remote_shell import Guest
from plait.store import MemoryStore
from plait.testing import SandboxContract
from plait.testing.sandbox.trees import ODD_NAMES


class Folder:
    """A guest that is a folder of this machine, with the programs of busybox."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.id = root, name

    def shell(self, script: str, wait_s: float) -> str:
        if not self.root.is_dir():
            raise SandboxGone("bare", self.id)
        env = {"PATH": str(self.root / "bin")}
        ran = subprocess.run(
            [str(self.root / "bin/sh"), "-c", script],
            env=env,
            cwd=self.root,
            capture_output=True,
            timeout=wait_s,
        )
        return ran.stdout.decode()

    def write_file(self, path: str, content: bytes) -> None:
        Path(path).write_bytes(content)

    def read_file(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def renew(self, seconds: float) -> None: ...
    def close(self) -> None: ...

    def kill(self) -> None:
        shutil.rmtree(self.root)

    def copy(self, wanted: Wanted) -> Guest:
        raise NotSupported("bare", "copy")


class Bare(RemoteBackend):
    name = package = "bare"
    key = ""
    rung = "none"
    tested = "bare"
    copies = False

    def __init__(self, folder: Path) -> None:
        self._folder, self._keys = folder, dict[str, str]()
        Bare.workdir = str(folder / "one/workspace")

    def version(self) -> str:
        return "1"

    def make(self, wanted: Wanted) -> Guest:
        root = self._folder / "one"
        (root / "bin").mkdir(parents=True)
        subprocess.run([_busybox(), "--install", "-s", str(root / "bin")], check=True)
        self._keys["one"] = wanted.key
        return Folder(root, "one")

    def find(self, sandbox: str) -> Guest:
        if not (self._folder / sandbox).is_dir():
            raise SandboxGone(self.name, sandbox)
        return Folder(self._folder / sandbox, sandbox)

    def all(self) -> Sequence[tuple[str, str, Mapping[str, str]]]:
        there = [name for name in self._keys if (self._folder / name).is_dir()]
        return [
            (name, "there", {"plait-store": "", "plait-session": self._keys[name]})
            for name in there
        ]


def _busybox() -> str:
    found = shutil.which("busybox")
    if found is None:
        pytest.skip("busybox is not installed")
    return os.path.realpath(found)


@pytest.mark.slow
class TestBusybox:
    contract = SandboxContract()

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Bare:
        _busybox()
        return Bare(tmp_path)

    @pytest.mark.parametrize(
        "name",
        [
            "a_tree_is_there_as_it_was",
            "a_tree_is_restored_exactly",
            "another_handle_finds_the_same_files",
            "both_streams_come_in_their_order",
            "links",
            "modes_are_kept_and_set",
            "nothing_outside_is_reached",
            "standard_input",
            "too_long_ends_it_and_all_that_it_started",
            "what_commands_did_is_in_the_tree",
            "what_files_did_is_the_same_tree",
            "what_it_leaves_behind_ends_with_it",
            "what_is_not_there_is_said",
        ],
    )
    def test_the_contract_holds(self, name: str, backend: Bare, store: MemoryStore) -> None:
        getattr(self.contract, f"test_{name}")(backend, store)

    def test_names_may_be_odd(self, backend: Bare, store: MemoryStore) -> None:
        with self.contract.new_sandbox(backend, store) as sandbox:
            for name in ODD_NAMES:
                sandbox.files.write(name, os.fsencode(name))
            assert [entry.name for entry in sandbox.files.list()] == sorted(
                ODD_NAMES, key=os.fsencode
            )
            tree = sandbox.snapshot()
            store.put_blobs(tree.blobs)
            for name in ODD_NAMES:
                sandbox.files.remove(name)
            sandbox.restore(tree.tree)
            assert sandbox.snapshot().tree == tree.tree
