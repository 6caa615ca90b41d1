"""Files, one by one: written, read, listed, removed, and never outside."""

from __future__ import annotations

import os
from collections.abc import Callable

from plait.errors import (
    NoSuchFile,
    NotAFile,
    OutsideWorkspace,
)
from plait.sandbox import Backend
from plait.store import Store
from plait.testing.sandbox.case import SandboxCase, check_refused
from plait.testing.sandbox.trees import ODD_NAMES, PLAIN, Tree, nodes_of, put_tree
from plait.workspace import EMPTY, NewEntry


class FileContract(SandboxCase):
    def test_files_are_written_and_read(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            files, data = sandbox.files, bytes(range(256)) * 5000
            files.write("new/folders/data", data)
            assert files.read("new/folders/data") == data
            assert files.read("new/folders/data", offset=250, size=10) == data[250:260]
            assert files.read("new/folders/data", offset=len(data) + 5) == b""
            assert files.entry("new/folders/data").size == len(data)
            assert files.entry("new/folders/data").mode == 0o644
            assert sandbox.exec(["wc", "-c"], stdin=b"").exit_code == 0
            assert sandbox.exec(
                ["sh", "-c", "wc -c < new/folders/data"]
            ).output.view().strip() == str(len(data))

    def test_modes_are_kept_and_set(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.files.write("run.sh", b"#!/bin/sh\necho again\n")
            assert sandbox.files.entry("run.sh").mode == 0o755
            sandbox.files.write("run.sh", b"", mode=0o640)
            assert sandbox.files.entry("run.sh").mode == 0o640
            sandbox.files.chmod("README", 0o600)
            assert (
                sandbox.exec(["sh", "-c", "ls -l README | cut -c1-10"]).output.view().strip()
                == "-rw-------"
            )

    def test_names_may_be_odd(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            sandbox.begin()
            for name in ODD_NAMES:
                sandbox.files.write(name, name.encode(errors="surrogateescape"))
            assert [entry.name for entry in sandbox.files.list()] == sorted(
                ODD_NAMES, key=os.fsencode
            )
            tree = self._snapshot_tree(sandbox, store)
            assert nodes_of(store, tree) == {
                name: NewEntry("file", 0o644, os.fsencode(name)) for name in ODD_NAMES
            }
            sandbox.begin()
            for name in ODD_NAMES:
                assert sandbox.files.read(name) == os.fsencode(name)
                sandbox.files.remove(name)
            sandbox.restore(tree)
            assert sandbox.snapshot().tree == tree

    def test_what_is_not_there_is_said(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            files = sandbox.files
            attempts: list[Callable[[str], object]] = [
                files.read,
                files.entry,
                files.remove,
                files.list,
                lambda path: files.chmod(path, 0o600),
            ]
            for attempt in attempts:
                with check_refused(NoSuchFile):
                    attempt("no/such/thing")

    def test_a_folder_is_no_file(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            with check_refused(NotAFile):
                sandbox.files.read("src")
            with check_refused(NotAFile):
                sandbox.files.write("src", b"")
            with check_refused(NotAFile):
                sandbox.files.list("README")
            assert sandbox.snapshot().tree == put_tree(store, PLAIN)

    def test_a_pipe_is_never_opened(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            sandbox.begin()
            sandbox.exec(["mkfifo", "pipe"])
            with check_refused(NotAFile):
                sandbox.files.read("pipe")
            found = sandbox.snapshot()
            assert (found.tree, found.skipped) == (EMPTY, ("pipe",))

    def test_a_folder_is_listed(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            names = [path for path in PLAIN if "/" not in path]
            assert [entry.name for entry in sandbox.files.list()] == sorted(names)
            found = {entry.name: entry for entry in sandbox.files.list("src")}
            assert {name: entry.kind for name, entry in found.items()} == {
                "cart.py": "file",
                "deep": "folder",
            }
            assert (found["cart.py"].size, found["cart.py"].mode) == (10, 0o644)

    def test_links(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            assert sandbox.files.read("latest") == b"total = 0\n"
            sandbox.files.link("there", "src/deep")
            assert sandbox.files.entry("there").target == "src/deep"
            assert sandbox.files.read("there/data.bin") == PLAIN["src/deep/data.bin"].content
            sandbox.files.remove("there")
            sandbox.files.remove("latest")
            assert sandbox.files.read("src/cart.py") == b"total = 0\n"
            with check_refused(NoSuchFile):
                sandbox.files.entry("latest")

    def test_nothing_outside_is_reached(self, backend: Backend, store: Store) -> None:
        nodes: Tree = {
            "file": NewEntry("link", 0o777, target="/etc/passwd"),
            "folder": NewEntry("link", 0o777, target="/etc"),
            "up": NewEntry("link", 0o777, target="../.."),
            "in": NewEntry("folder", 0o755),
            "twice": NewEntry("link", 0o777, target="folder"),
        }
        with self.new_sandbox(backend, store, nodes) as sandbox:
            files = sandbox.files
            paths = (
                "..",
                "../x",
                "in/../../x",
                "/etc/passwd",
                "folder/passwd",
                "twice/passwd",
                "up/etc/passwd",
            )
            for path in (*paths, "file"):
                with check_refused(OutsideWorkspace):
                    files.read(path)
            for path in paths:
                with check_refused(OutsideWorkspace):
                    files.write(path, b"owned")
                with check_refused(OutsideWorkspace):
                    files.remove(path)
                with check_refused(OutsideWorkspace):
                    files.entry(path)
                with check_refused(OutsideWorkspace):
                    files.link(path, "x")
            for path in ("folder/new", "twice/new", "up/new"):
                with check_refused(OutsideWorkspace):
                    files.make_folder(path)
            for path in ("folder", "twice", "up"):
                with check_refused(OutsideWorkspace):
                    files.list(path)
            assert sandbox.snapshot().tree == put_tree(store, nodes)

    def test_things_are_removed(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.files.remove("src")
            sandbox.files.remove("README")
            left = {
                path: node
                for path, node in PLAIN.items()
                if path != "README" and path.split("/")[0] != "src"
            }
            assert sandbox.snapshot().tree == put_tree(store, left)

    def test_folders_are_made(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            sandbox.begin()
            sandbox.files.make_folder("a/b/c")
            sandbox.files.make_folder("a/b")
            sandbox.files.chmod("a/b/c", 0o700)
            expected = {
                "a": NewEntry("folder", 0o755),
                "a/b": NewEntry("folder", 0o755),
                "a/b/c": NewEntry("folder", 0o700),
            }
            assert nodes_of(store, self._snapshot_tree(sandbox, store)) == expected
