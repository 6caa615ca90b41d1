"""Trees: snapshots after commands and edits, and restoring one."""

from __future__ import annotations

from plait.sandbox import Backend
from plait.store import Store
from plait.testing.sandbox.case import SandboxCase
from plait.testing.sandbox.trees import CHANGED, CHANGES, PLAIN, nodes_of, put_tree
from plait.workspace import EMPTY, NewEntry


class TreeContract(SandboxCase):
    def test_what_commands_did_is_in_the_tree(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            ran = sandbox.exec(["sh", "-ec", CHANGES])
            assert ran.exit_code == 0, ran.output.view()
            found = sandbox.snapshot()
            store.put_blobs(found.blobs)
            assert nodes_of(store, found.tree) == CHANGED
            assert set(found.changed) >= {
                "README",
                "src/new",
                "moved",
                "run.sh",
                "src/cart.py",
                "latest",
                "nothing",
            }
            assert not {"src/deep", "dangling", "empty"} & set(found.changed)

    def test_what_files_did_is_the_same_tree(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            files = sandbox.files
            files.write("README", b"changed\n")
            files.remove("src/cart.py")
            files.write("src/new", b"new\n")
            files.remove("nothing")
            files.make_folder("nothing")
            files.write("nothing/inside", b"in\n")
            files.chmod("run.sh", 0o700)
            files.remove("latest")
            files.link("latest", "src/new")
            files.write("moved", PLAIN["src/deep/data.bin"].content, mode=0o600)
            files.remove("src/deep/data.bin")
            assert sandbox.snapshot().tree == put_tree(store, CHANGED)

    def test_a_change_of_the_same_size_is_seen(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, {"n": NewEntry("file", 0o644, b"0")}) as sandbox:
            for number in (b"1", b"2", b"3"):
                sandbox.begin()
                sandbox.exec(["sh", "-c", "printf %s " + number.decode() + " > n; touch -d @0 n"])
                assert nodes_of(store, self._snapshot_tree(sandbox, store))["n"].content == number

    def test_what_the_store_does_not_have_yet_is_said_again(
        self, backend: Backend, store: Store
    ) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            sandbox.begin()
            sandbox.files.write("one/file", b"never stored before: one")
            sandbox.snapshot()  # not kept
            sandbox.begin()
            sandbox.files.write("two", b"never stored before: two")
            found = sandbox.snapshot()
            store.put_blobs(found.blobs)
            assert nodes_of(store, found.tree)["one/file"].content == b"never stored before: one"

    def test_what_can_be_made_again_is_no_part_of_it(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN, ignore=("mine", "*.log")) as sandbox:
            sandbox.begin()
            folders = ".git src/node_modules/x src/__pycache__ .plait mine"
            sandbox.exec(
                [
                    "sh",
                    "-c",
                    f"mkdir -p {folders}; for d in {folders} src; do echo x > $d/a.log; done",
                ]
            )
            assert sandbox.snapshot().tree == put_tree(store, PLAIN)

    def test_what_no_tree_may_hold_is_not_there_for_the_next_command(
        self, backend: Backend, store: Store
    ) -> None:
        """Neither bytecode nor an environment that a command made: the next one runs the
        recorded files.
        """
        with self.new_sandbox(backend, store, PLAIN, ignore=("mine", "src/*.so")) as sandbox:
            sandbox.begin()
            folders = ".venv/bin node_modules/.cache src/__pycache__ .tox mine"
            sandbox.exec(
                [
                    "sh",
                    "-c",
                    (
                        f"mkdir -p {folders}; for d in {folders} src; do echo x > $d/a.pyc; echo x"
                        " > $d/a.so; done"
                    ),
                ]
            )
            self._snapshot_tree(sandbox, store)
            left = sandbox.exec(["find", ".", "(", "-name", "*.pyc", "-o", "-name", "*.so", ")"])
            assert left.output.view() == ""
            assert sandbox.snapshot().tree == put_tree(store, PLAIN)

    def test_a_tree_is_restored_exactly(self, backend: Backend, store: Store) -> None:
        before, other = put_tree(store, PLAIN), put_tree(store, CHANGED)
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.exec(["sh", "-ec", CHANGES])
            sandbox.exec(
                [
                    "sh",
                    "-ec",
                    (
                        "mkdir -p more/deep; echo x > more/deep/x; rm -rf empty; echo x > empty; rm"
                        " run.sh; mkdir run.sh"
                    ),
                ]
            )
            self._snapshot_tree(sandbox, store)
            for tree in (before, other, EMPTY, before):
                sandbox.restore(tree)
                found = sandbox.snapshot()
                assert found.tree == tree
                assert found.changed == ()
            assert sandbox.exec(["./run.sh"]).output.view() == "ran\n"

    def test_a_restore_takes_back_what_no_snapshot_saw(
        self, backend: Backend, store: Store
    ) -> None:
        before = put_tree(store, PLAIN)
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.exec(
                [
                    "sh",
                    "-ec",
                    (
                        "printf 'total = 9\\n' > src/cart.py; touch -d @0 src/cart.py; echo more >"
                        " more"
                    ),
                ]
            )
            sandbox.restore(before)
            assert sandbox.files.read("src/cart.py") == b"total = 0\n"
            assert sandbox.snapshot().tree == before
