"""The contract every sandbox backend keeps, as tests that anybody can run on theirs.

    class TestMine(SandboxContract):
        @pytest.fixture
        def backend(self):
            return MyBackend()

        @pytest.fixture
        def store(self):
            return MemoryStore("mine", source=Seeded())

What a backend does not offer, by its own probe, is not asked of it, except to say so with
NotSupported. `wanted` can be overridden to name an image, options or a rung. Commands use nothing
but a POSIX shell and what every small image has.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgspec

from plait.errors import (
    IsolationMissing,
    NoSuchFile,
    NotAFile,
    NotSupported,
    OutsideWorkspace,
    SandboxError,
    SandboxGone,
)
from plait.event.kinds import Placement
from plait.ids import Digest, derived
from plait.sandbox import Backend, Limits, Sandbox, Wanted
from plait.store import Store
from plait.workspace import EMPTY, Entry, Node, TreeReader
from plait.workspace.edited import edited

Tree = Mapping[str, Node]

_ordinal = count(1)

PLAIN: Tree = {
    "README": Node("file", 0o644, b"read me\n"),
    "run.sh": Node("file", 0o755, b"#!/bin/sh\necho ran\n"),
    "src": Node("folder", 0o755),
    "src/cart.py": Node("file", 0o644, b"total = 0\n"),
    "src/deep": Node("folder", 0o755),
    "src/deep/data.bin": Node("file", 0o600, bytes(range(256)) * 8),
    "empty": Node("folder", 0o755),
    "nothing": Node("file", 0o644, b""),
    "latest": Node("link", 0o777, target="src/cart.py"),
    "dangling": Node("link", 0o777, target="no/where"),
}
ODD_NAMES = (
    "a b",
    "naïve–名前.txt",
    "-rf",
    "line\nbreak",
    "end\n",
    "quote'\"$(x)`",
    os.fsdecode(b"bytes-\xff\xfe"),
    "*?[x]",
    "\\",
)


def put_tree(store: Store, nodes: Tree) -> Digest:
    """A tree in the store."""
    made = edited(store, EMPTY, dict(nodes))
    store.put_blobs(made.blobs)
    return made.tree


def nodes_of(store: Store, tree: Digest) -> dict[str, Node]:
    """What is in a tree, contents and all."""
    reader = TreeReader(store)
    return {path: _node(reader, entry) for path, entry in reader.walk(tree)}


def _node(reader: TreeReader, entry: Entry) -> Node:
    assert entry.kind != "withheld"
    return Node(
        entry.kind, entry.mode, reader.content(entry) if entry.kind == "file" else b"", entry.target
    )


@contextmanager
def refused(error: type[Exception]) -> Generator[None]:
    try:
        yield
    except error as found:
        assert str(found), "an error says what to do next"
    else:
        raise AssertionError(f"{error.__name__} was not raised")


class SandboxContract:
    """What every sandbox does, and above all what it refuses."""

    margin_s = 8.0  # how much later than its limit a command may be ended
    network = "off"  # what the placement says if nothing else is asked for

    def wanted(self, store: Store, tree: Digest = EMPTY, **fields: Any) -> Wanted:
        return Wanted(store, derived("plait/testing/sandbox", next(_ordinal)), tree, **fields)

    @contextmanager
    def made(
        self, backend: Backend, store: Store, nodes: Tree | None = None, **fields: Any
    ) -> Generator[Sandbox]:
        sandbox = backend.create(self.wanted(store, put_tree(store, nodes or {}), **fields))
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

    def _taken(self, sandbox: Sandbox, store: Store) -> Digest:
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
        with refused(NotSupported):
            do()
        return False

    # what a backend says of itself

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
        with self.made(backend, store, limits=Limits(time_s=77.0)) as sandbox:
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
        with refused(IsolationMissing):
            backend.create(self.wanted(store, isolation="no-such-rung"))

    # files there from the start

    def test_a_tree_is_there_as_it_was(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
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
        with self.made(backend, store, PLAIN) as sandbox:
            found = sandbox.snapshot()
            assert found.tree == tree
            assert found.changed == ()
            assert not store.missing_blobs(found.blobs)

    def test_an_empty_workspace_is_empty(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            assert list(sandbox.files.list()) == []
            assert sandbox.snapshot().tree == EMPTY
            assert sandbox.exec(["pwd"]).output.view().strip() == sandbox.workdir

    def test_two_of_them_do_not_share_files(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as one, self.made(backend, store) as other:
            one.files.write("mine", b"1")
            assert one.placement.sandbox != other.placement.sandbox
            with refused(NoSuchFile):
                other.files.read("mine")

    # commands

    def test_a_command_ends_with_its_code(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            ran = sandbox.exec(["sh", "-c", "echo out; exit 7"])
            assert (ran.exit_code, ran.killed, ran.output.view(), ran.output.size) == (
                7,
                "",
                "out\n",
                4,
            )
            assert ran.duration_us > 0
            assert sandbox.exec(["true"]).exit_code == 0

    def test_a_signal_counts_as_a_shell_counts(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            assert sandbox.exec(["sh", "-c", "kill -TERM $$"]).exit_code == 143

    def test_a_command_that_is_not_there_is_127(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            assert sandbox.exec(["no-such-command-anywhere"]).exit_code == 127

    def test_words_arrive_as_they_are(self, backend: Backend, store: Store) -> None:
        words = ["a b", "", "$HOME", "`x`", "'", '"', "\\", "*", "two\nlines", "ünï"]
        with self.made(backend, store) as sandbox:
            ran = sandbox.exec(["printf", "<%s>", *words])
            assert b"".join(ran.output.pieces()) == b"".join(f"<{word}>".encode() for word in words)

    def test_a_word_with_a_nul_is_refused(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            with refused(SandboxError):
                sandbox.exec(["echo", "a\0b"])
            with refused(SandboxError):
                sandbox.exec(["env"], env={"A": "b\0--option"})

    def test_standard_input(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            assert sandbox.exec(["cat"]).output.size == 0
            small = bytes(range(256))
            assert b"".join(sandbox.exec(["cat"], stdin=small).output.pieces()) == small
            assert (
                sandbox.exec(["wc", "-c"], stdin=b"x" * 300_000).output.view().strip() == "300000"
            )

    def test_the_folder_it_runs_in(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
            assert sandbox.exec(["cat", "cart.py"], cwd="src").output.view() == "total = 0\n"
            with refused(NoSuchFile):
                sandbox.exec(["true"], cwd="no/such")
            for path in ("..", "/", "src/../.."):
                with refused(OutsideWorkspace):
                    sandbox.exec(["true"], cwd=path)

    def test_the_environment_is_what_was_named(self, backend: Backend, store: Store) -> None:
        os.environ["PLAIT_CONTRACT_CANARY"] = "canary-of-the-host"
        try:
            with self.made(backend, store, env={"ONE": "1", "TWO": "2"}) as sandbox:
                ran = sandbox.exec(
                    ["sh", "-c", 'echo "$ONE $TWO $THREE"'],
                    env={"TWO": "two words", "THREE": "$3\n'"},
                )
                assert ran.output.view() == "1 two words $3\n'\n"
                assert "canary-of-the-host" not in sandbox.exec(["env"]).output.view()
        finally:
            del os.environ["PLAIT_CONTRACT_CANARY"]

    def test_both_streams_come_in_their_order(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            ran = sandbox.exec(
                ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done"]
            )
            assert ran.output.view().split() == [
                f"{stream}{i}" for i in range(1, 10) for stream in "oe"
            ]

    def test_output_is_seen_before_the_end(self, backend: Backend, store: Store) -> None:
        if not self._offers(backend, "stream"):
            return
        seen: list[tuple[float, bytes]] = []
        with self.made(backend, store) as sandbox:
            ran = sandbox.exec(
                ["sh", "-c", "echo one; sleep 2; echo two"],
                on_output=lambda data: seen.append((time.monotonic(), bytes(data))),
            )
            assert (
                b"".join(data for _, data in seen) == b"one\ntwo\n" == b"".join(ran.output.pieces())
            )
            assert seen[0][1] == b"one\n"
            assert seen[-1][0] - seen[0][0] > 0.5

    def test_odd_bytes_are_kept(self, backend: Backend, store: Store) -> None:
        data = bytes(range(256)) * 3
        with self.made(backend, store, {"data": Node("file", 0o644, data)}) as sandbox:
            output = sandbox.exec(["cat", "data"]).output
            assert b"".join(output.pieces(100)) == data
            assert "\ufffd" in output.view()
            part = sandbox.keep(output, "what it wrote")
            assert b"".join(store.get_blob(blob) for blob in (part.blob, *part.rest)) == data

    def test_much_output_is_kept_whole_and_not_in_memory(
        self, backend: Backend, store: Store
    ) -> None:
        size = 16 << 20
        with self.made(backend, store) as sandbox:
            tracemalloc.start()
            try:
                ran = sandbox.exec(["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x"])
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert (ran.exit_code, ran.output.size) == (0, size)
            assert sum(len(piece) for piece in ran.output.pieces()) == size
            assert len(ran.output.view(1000)) < 1200
            assert peak < size / 2

    def test_too_much_output_ends_it(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, limits=Limits(output_mb=1, time_s=60)) as sandbox:
            ran = sandbox.exec(["yes"])
            assert ran.killed == "output"
            assert ran.output.size <= 2 << 20
            assert sandbox.exec(["echo", "goes on"]).output.view() == "goes on\n"

    def test_too_long_ends_it_and_all_that_it_started(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            began = time.monotonic()
            ran = sandbox.exec(
                ["sh", "-c", f"{_BEATS} & echo begun; sleep 300"], limits=Limits(time_s=2)
            )
            assert time.monotonic() - began < 2 + self.margin_s
            assert (ran.killed, ran.output.view()) == ("time", "begun\n")
            assert ran.exit_code != 0
            self._is_still(sandbox)

    def test_what_it_leaves_behind_ends_with_it(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            began = time.monotonic()
            ran = sandbox.exec(["sh", "-c", f"{_BEATS} & echo begun"])
            assert (ran.exit_code, ran.output.view()) == (0, "begun\n")
            assert time.monotonic() - began < self.margin_s
            self._is_still(sandbox)

    def test_limits_are_only_narrowed(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, limits=Limits(time_s=1)) as sandbox:
            began = time.monotonic()
            assert sandbox.exec(["sleep", "300"], limits=Limits(time_s=500)).killed == "time"
            assert time.monotonic() - began < 1 + self.margin_s

    def _is_still(self, sandbox: Sandbox) -> None:
        before, after = (
            sandbox.exec(["sh", "-c", "sleep 0.3; cat beat 2> /dev/null | wc -c"]).output.view()
            for _ in range(2)
        )
        assert before == after, "something still runs"

    # files, one by one

    def test_files_are_written_and_read(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
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
        with self.made(backend, store, PLAIN) as sandbox:
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
        with self.made(backend, store) as sandbox:
            sandbox.begin()
            for name in ODD_NAMES:
                sandbox.files.write(name, name.encode(errors="surrogateescape"))
            assert [entry.name for entry in sandbox.files.list()] == sorted(
                ODD_NAMES, key=os.fsencode
            )
            tree = self._taken(sandbox, store)
            assert nodes_of(store, tree) == {
                name: Node("file", 0o644, os.fsencode(name)) for name in ODD_NAMES
            }
            sandbox.begin()
            for name in ODD_NAMES:
                assert sandbox.files.read(name) == os.fsencode(name)
                sandbox.files.remove(name)
            sandbox.restore(tree)
            assert sandbox.snapshot().tree == tree

    def test_what_is_not_there_is_said(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            files = sandbox.files
            attempts: list[Callable[[str], object]] = [
                files.read,
                files.entry,
                files.remove,
                files.list,
                lambda path: files.chmod(path, 0o600),
            ]
            for attempt in attempts:
                with refused(NoSuchFile):
                    attempt("no/such/thing")

    def test_a_folder_is_no_file(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
            with refused(NotAFile):
                sandbox.files.read("src")
            with refused(NotAFile):
                sandbox.files.write("src", b"")
            with refused(NotAFile):
                sandbox.files.list("README")
            assert sandbox.snapshot().tree == put_tree(store, PLAIN)

    def test_a_pipe_is_never_opened(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            sandbox.begin()
            sandbox.exec(["mkfifo", "pipe"])
            with refused(NotAFile):
                sandbox.files.read("pipe")
            found = sandbox.snapshot()
            assert (found.tree, found.skipped) == (EMPTY, ("pipe",))

    def test_a_folder_is_listed(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
            names = [path for path in PLAIN if "/" not in path]
            assert [entry.name for entry in sandbox.files.list()] == sorted(names)
            found = {entry.name: entry for entry in sandbox.files.list("src")}
            assert {name: entry.kind for name, entry in found.items()} == {
                "cart.py": "file",
                "deep": "folder",
            }
            assert (found["cart.py"].size, found["cart.py"].mode) == (10, 0o644)

    def test_links(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
            assert sandbox.files.read("latest") == b"total = 0\n"
            sandbox.files.link("there", "src/deep")
            assert sandbox.files.entry("there").target == "src/deep"
            assert sandbox.files.read("there/data.bin") == PLAIN["src/deep/data.bin"].content
            sandbox.files.remove("there")
            sandbox.files.remove("latest")
            assert sandbox.files.read("src/cart.py") == b"total = 0\n"
            with refused(NoSuchFile):
                sandbox.files.entry("latest")

    def test_nothing_outside_is_reached(self, backend: Backend, store: Store) -> None:
        nodes: Tree = {
            "file": Node("link", 0o777, target="/etc/passwd"),
            "folder": Node("link", 0o777, target="/etc"),
            "up": Node("link", 0o777, target="../.."),
            "in": Node("folder", 0o755),
            "twice": Node("link", 0o777, target="folder"),
        }
        with self.made(backend, store, nodes) as sandbox:
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
                with refused(OutsideWorkspace):
                    files.read(path)
            for path in paths:
                with refused(OutsideWorkspace):
                    files.write(path, b"owned")
                with refused(OutsideWorkspace):
                    files.remove(path)
                with refused(OutsideWorkspace):
                    files.entry(path)
                with refused(OutsideWorkspace):
                    files.link(path, "x")
            for path in ("folder/new", "twice/new", "up/new"):
                with refused(OutsideWorkspace):
                    files.make_folder(path)
            for path in ("folder", "twice", "up"):
                with refused(OutsideWorkspace):
                    files.list(path)
            assert sandbox.snapshot().tree == put_tree(store, nodes)

    def test_things_are_removed(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
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
        with self.made(backend, store) as sandbox:
            sandbox.begin()
            sandbox.files.make_folder("a/b/c")
            sandbox.files.make_folder("a/b")
            sandbox.files.chmod("a/b/c", 0o700)
            expected = {
                "a": Node("folder", 0o755),
                "a/b": Node("folder", 0o755),
                "a/b/c": Node("folder", 0o700),
            }
            assert nodes_of(store, self._taken(sandbox, store)) == expected

    # trees

    def test_what_commands_did_is_in_the_tree(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            ran = sandbox.exec(["sh", "-ec", _CHANGES])
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
        with self.made(backend, store, PLAIN) as sandbox:
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
        with self.made(backend, store, {"n": Node("file", 0o644, b"0")}) as sandbox:
            for number in (b"1", b"2", b"3"):
                sandbox.begin()
                sandbox.exec(["sh", "-c", "printf %s " + number.decode() + " > n; touch -d @0 n"])
                assert nodes_of(store, self._taken(sandbox, store))["n"].content == number

    def test_what_the_store_does_not_have_yet_is_said_again(
        self, backend: Backend, store: Store
    ) -> None:
        with self.made(backend, store) as sandbox:
            sandbox.begin()
            sandbox.files.write("one/file", b"never stored before: one")
            sandbox.snapshot()  # nobody keeps it
            sandbox.begin()
            sandbox.files.write("two", b"never stored before: two")
            found = sandbox.snapshot()
            store.put_blobs(found.blobs)
            assert nodes_of(store, found.tree)["one/file"].content == b"never stored before: one"

    def test_what_can_be_made_again_is_no_part_of_it(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN, ignore=("mine", "*.log")) as sandbox:
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
        """Neither bytecode nor an environment that a command made: the next one runs what is
        recorded.
        """
        with self.made(backend, store, PLAIN, ignore=("mine", "src/*.so")) as sandbox:
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
            self._taken(sandbox, store)
            left = sandbox.exec(["find", ".", "(", "-name", "*.pyc", "-o", "-name", "*.so", ")"])
            assert left.output.view() == ""
            assert sandbox.snapshot().tree == put_tree(store, PLAIN)

    def test_a_tree_is_restored_exactly(self, backend: Backend, store: Store) -> None:
        before, other = put_tree(store, PLAIN), put_tree(store, CHANGED)
        with self.made(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.exec(["sh", "-ec", _CHANGES])
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
            self._taken(sandbox, store)
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
        with self.made(backend, store, PLAIN) as sandbox:
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

    # others like it

    def test_a_fork_has_the_files_and_its_own_life(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.files.write("before", b"in both")
            self._taken(sandbox, store)
            fork = sandbox.fork(self.wanted(store, put_tree(store, PLAIN)))
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
                assert "README" not in nodes_of(store, self._taken(fork, store))
                assert "README" in nodes_of(store, self._taken(sandbox, store))
            finally:
                self._end(fork)
            assert sandbox.files.read("before") == b"in both"

    def test_what_is_paused_keeps_its_files(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.files.write("kept", b"kept")
            self._taken(sandbox, store)
            if not self._or_says_so(backend, "pause", sandbox.pause):
                return
            sandbox.resume()
            assert sandbox.files.read("kept") == b"kept"
            assert sandbox.exec(["cat", "kept"]).output.view() == "kept"

    def test_what_is_paused_is_attached_to(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store, PLAIN) as sandbox:
            sandbox.begin()
            sandbox.files.write("kept", b"kept")
            self._taken(sandbox, store)
            if not self._or_says_so(backend, "pause", sandbox.pause):
                return
            sandbox.close()
            again = backend.attach(sandbox.placement, self.wanted(store, put_tree(store, PLAIN)))
            try:
                assert again.files.read("kept") == b"kept"
            finally:
                self._end(again)

    def test_it_can_be_given_more_time(self, backend: Backend, store: Store) -> None:
        with self.made(backend, store) as sandbox:
            self._or_says_so(backend, "renew", lambda: sandbox.renew(600.0))

    def test_another_handle_finds_the_same_files(self, backend: Backend, store: Store) -> None:
        wanted = self.wanted(store, put_tree(store, PLAIN))
        sandbox = backend.create(wanted)
        try:
            sandbox.begin()
            sandbox.exec(["sh", "-ec", _CHANGES])
            self._taken(sandbox, store)
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
            assert nodes_of(store, self._taken(again, store)) == CHANGED
            again.restore(wanted.tree)
            assert again.snapshot().tree == wanted.tree
        finally:
            self._end(again)

    def test_what_is_destroyed_is_gone(self, backend: Backend, store: Store) -> None:
        wanted = self.wanted(store, put_tree(store, PLAIN))
        sandbox = backend.create(wanted)
        assert sandbox.placement.sandbox in [held.sandbox for held in backend.held(store)]
        sandbox.destroy()
        with refused(SandboxGone):
            backend.attach(sandbox.placement, wanted)
        with refused(SandboxError):
            sandbox.exec(["true"])
        sandbox.close()
        assert sandbox.placement.sandbox not in [held.sandbox for held in backend.held(store)]

    def test_it_is_known_whose_it_is(self, backend: Backend, store: Store) -> None:
        wanted = self.wanted(store)
        sandbox = backend.create(wanted)
        try:
            (held,) = [
                held for held in backend.held(store) if held.sandbox == sandbox.placement.sandbox
            ]
            assert (held.backend, held.key) == (backend.name, wanted.key)
            assert held.state
        finally:
            self._end(sandbox)


_BEATS = "( while :; do echo x >> beat; sleep 0.05; done )"

_CHANGES = """
echo changed > README
rm src/cart.py; echo new > src/new
rm nothing; mkdir nothing; echo in > nothing/inside
chmod 700 run.sh
rm latest; ln -s src/new latest
mv src/deep/data.bin moved
"""

CHANGED: Tree = {
    "README": Node("file", 0o644, b"changed\n"),
    "run.sh": Node("file", 0o700, b"#!/bin/sh\necho ran\n"),
    "src": Node("folder", 0o755),
    "src/new": Node("file", 0o644, b"new\n"),
    "src/deep": Node("folder", 0o755),
    "empty": Node("folder", 0o755),
    "nothing": Node("folder", 0o755),
    "nothing/inside": Node("file", 0o644, b"in\n"),
    "latest": Node("link", 0o777, target="src/new"),
    "dangling": Node("link", 0o777, target="no/where"),
    "moved": Node("file", 0o600, bytes(range(256)) * 8),
}
