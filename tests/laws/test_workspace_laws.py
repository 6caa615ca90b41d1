"""The laws of files, on random folders: what was recorded is what is there, however it got there.

Every law is tried on plain copies and on layered ones; the layered ones are changed through a real
overlay where this machine mounts one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.errors import WorkspaceError
from plait.ids import Digest
from plait.store import MemoryStore, Store
from plait.testing import Seeded
from plait.workspace import FileAccess, NewEntry, Workspace, disk
from plait.workspace.checkout import checkout
from plait.workspace.copies import Copy, Layered, Plain, open_copy
from plait.workspace.edited import edit_tree
from plait.workspace.index import Index
from plait.workspace.rules import USUAL
from plait.workspace.scan import Scan
from plait.workspace.sink import Sink
from plait.workspace.tree import TreeReader, differing_paths
from tests import trees
from tests.trees import Edit, Told, edit, tell

NAMES = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "-rf",
        "new\nline",
        " ",
        "日本",
        "\udcff\udcfe",
        "a b",
        "*",
        "é",
        "ȩ",
        "x" * 200,
    ]
)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "write",
                "write",
                "rewrite",
                "remove",
                "folder",
                "link",
                "mode",
                "move",
                "move",
                "again",
            ]
        ),
        st.integers(0, 50),
        st.integers(0, 50),
        NAMES,
        st.sampled_from(
            ["", "one", "two", "a", "..", "../..", "nowhere", "\0\x01binary", "/etc/passwd", "a/b"]
        ),
        st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o000, 0o777]),
    ),
    max_size=12,
)
QUICK = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
MOUNTED = settings(QUICK, max_examples=8)


class Stage:
    """A store in memory and a place on disk."""

    def __init__(self, place: Path) -> None:
        self.place, self.cache = place, place / "cache"
        self.store: Store = MemoryStore("laws", source=Seeded(7))
        self.cache.mkdir()
        self.seen: dict[Path, Index] = {}  # what is remembered of each folder from the last time

    def folder(self, name: str, *edits: Sequence[Edit]) -> Path:
        folder = self.place / name
        folder.mkdir()
        for each in edits:
            edit(str(folder), each)
        return folder

    def tree(self, folder: Path) -> Digest:
        """The tree of a folder of ours, modes that lock its owner out included."""
        sink = Sink(self.store)
        with disk.closing_handle(disk.open_root(folder)) as root:
            scan = Scan(sink, USUAL, self.seen.get(folder, {}), reader=TreeReader(self.store))
            found = scan.scan_folder(root)
        sink.flush()
        self.seen[folder] = found.seen
        return found.tree

    def copy(
        self, tree: Digest, *, layered: bool, base: Digest | None = None, name: str = "copy"
    ) -> Copy:
        return open_copy(self.store, self.cache, name, tree, layered=layered, base=base)

    def told(self, tree: Digest) -> Told:
        """Return the content of a tree, in the words of `trees.tell`."""
        reader = TreeReader(self.store)
        return {
            path: [
                entry.kind,
                entry.mode,
                entry.target if entry.kind == "link" else b64encode(reader.content(entry)).decode(),
            ]
            if entry.kind != "folder"
            else ["folder", entry.mode, ""]
            for path, entry in reader.walk(tree)
        }

    def recorded(self, copy: Copy) -> Digest:
        snapshot = copy.snapshot()
        self.store.put_blobs(snapshot.blobs)
        return snapshot.tree


@contextmanager
def stage() -> Generator[Stage]:
    with TemporaryDirectory(prefix="laws-") as place:
        yield Stage(Path(place))


# ── mounts ───────────────────────────────────────────────────────────────────────────────────

NAMESPACES = {"root": ["unshare", "-m"], "user": ["unshare", "-Urm"]}


def mounted(layers: Layered, edits: Sequence[Edit], namespace: str) -> Told:
    """Change the files through an overlay, and tell what it shows."""
    merged = layers.upper.parent / "merged"
    merged.mkdir(exist_ok=True)
    options = f"userxattr,lowerdir={layers.lower},upperdir={layers.upper},workdir={layers.work}"
    script = 'mount -t overlay overlay -o "$1" "$2" && exec "$3" "$4" "$2"'
    command = [
        *NAMESPACES[namespace],
        "sh",
        "-c",
        script,
        "sh",
        options,
        str(merged),
        sys.executable,
        trees.__file__,
    ]
    ran = subprocess.run(
        command, input=json.dumps(edits), capture_output=True, text=True, timeout=60
    )
    if ran.returncode:
        raise OSError(ran.stderr)
    return json.loads(ran.stdout)


@cache
def why_not(namespace: str) -> str:
    with TemporaryDirectory(prefix="laws-") as place:
        layers = Layered(*(Path(place, "in", name) for name in ("lower", "upper", "work")))
        for folder in layers:
            folder.mkdir(parents=True)
        try:
            mounted(layers, [], namespace)
        except (OSError, subprocess.SubprocessError) as error:
            return f"no overlay can be mounted here: {error}"
    return ""


def need(namespace: str) -> None:
    if why_not(namespace):
        pytest.skip(why_not(namespace))


# ── laws ─────────────────────────────────────────────────────────────────────────────────────


@QUICK
@given(EDITS)
def test_a_snapshot_says_what_is_there(edits: Sequence[Edit]) -> None:
    with stage() as it:
        folder = it.folder("folder", edits)
        tree = it.tree(folder)
        assert it.told(tree) == tell(str(folder))
        assert it.tree(folder) == tree  # by what it remembers


@QUICK
@given(EDITS)
def test_a_checkout_has_the_same_tree(edits: Sequence[Edit]) -> None:
    with stage() as it:
        folder = it.folder("folder", edits)
        tree = it.tree(folder)
        checkout(it.store, tree, it.place / "out")
        assert tell(str(it.place / "out")) == tell(str(folder))
        assert it.tree(it.place / "out") == tree


@QUICK
@given(EDITS, EDITS, EDITS)
def test_a_plain_copy_follows_every_change(
    first: Sequence[Edit], second: Sequence[Edit], third: Sequence[Edit]
) -> None:
    with stage() as it:
        tree = it.tree(it.folder("folder", first))
        copy = it.copy(tree, layered=False)
        assert isinstance(copy.layers, Plain)
        for edits in (second, third):
            copy.begin()
            edit(str(copy.layers.folder), edits)
            before, now = copy.tree, it.recorded(copy)
            assert it.told(now) == tell(str(copy.layers.folder))
            assert it.tree(copy.layers.folder) == now
            assert (before == now) == (it.told(before) == it.told(now))
        copy.switch(tree)
        assert tell(str(copy.layers.folder)) == it.told(tree)
        assert copy.snapshot().tree == tree
        copy.close()


@pytest.mark.parametrize("namespace", NAMESPACES)
@MOUNTED
@given(EDITS, EDITS, EDITS)
def test_an_upper_folder_is_read_as_the_overlay_shows_it(
    namespace: str, first: Sequence[Edit], second: Sequence[Edit], third: Sequence[Edit]
) -> None:
    need(namespace)
    with stage() as it:
        tree = it.tree(it.folder("folder", first))
        copy = it.copy(tree, layered=True)
        assert isinstance(copy.layers, Layered)
        for edits in (second, third):
            copy.begin()
            shown = mounted(copy.layers, edits, namespace)
            assert seen_by(copy.files) == shown
            assert it.told(it.recorded(copy)) == shown
        middle = copy.tree
        for goal in (tree, middle):
            copy.switch(goal)
            assert seen_by(copy.files) == it.told(goal) == mounted(copy.layers, [], namespace)
            assert copy.snapshot().tree == goal
        copy.close()


@QUICK
@given(EDITS, EDITS, EDITS)
def test_switching_gives_the_other_tree(
    first: Sequence[Edit], second: Sequence[Edit], third: Sequence[Edit]
) -> None:
    """From any tree to any other, on any base, and back; a copy of another name does not notice."""
    with stage() as it:
        goals = [
            it.tree(it.folder("1", first)),
            it.tree(it.folder("2", first, second)),
            it.tree(it.folder("3", third)),
        ]
        copies = [it.copy(goals[0], layered=False, name="plain")]
        copies += [
            it.copy(goals[0], layered=True, base=base, name=base) for base in dict.fromkeys(goals)
        ]
        for goal in (*goals, *reversed(goals)):
            for copy in copies:
                copy.switch(goal)
                assert seen_by(copy.files) == it.told(goal)
                assert copy.snapshot().tree == goal
        for copy in copies:
            copy.close()


@pytest.mark.parametrize("namespace", NAMESPACES)
@MOUNTED
@given(EDITS, EDITS)
def test_what_is_written_by_files_is_what_the_overlay_shows(
    namespace: str, first: Sequence[Edit], second: Sequence[Edit]
) -> None:
    need(namespace)
    with stage() as it:
        tree = it.tree(it.folder("folder", first))
        layered, plain = (
            it.copy(tree, layered=True, name="layered"),
            it.copy(tree, layered=False, name="plain"),
        )
        for copy in (layered, plain):
            copy.begin()
            edit_by(copy.files, second)
        assert isinstance(layered.layers, Layered)
        shown = mounted(layered.layers, [], namespace)
        assert seen_by(layered.files) == seen_by(plain.files) == shown
        assert it.recorded(layered) == it.recorded(plain)
        assert it.told(layered.tree) == shown
        for copy in (layered, plain):
            copy.close()


@QUICK
@given(EDITS, EDITS)
def test_a_tree_edited_by_its_differences_is_the_other(
    first: Sequence[Edit], second: Sequence[Edit]
) -> None:
    with stage() as it:
        before, after = it.tree(it.folder("1", first)), it.tree(it.folder("2", first, second))
        view, changes = Workspace(it.store, after), dict[str, NewEntry | None]()
        for change in differing_paths(TreeReader(it.store), before, after):
            now = change.after
            if now is None or (change.before is not None and change.before.kind != now.kind):
                changes[change.path] = None
        removed = edit_tree(it.store, before, changes)
        it.store.put_blobs(removed.blobs)
        changes = dict[str, NewEntry | None]()
        for change in differing_paths(TreeReader(it.store), removed.tree, after):
            now = change.after
            assert now is not None
            assert now.kind != "withheld"
            content = view.read(change.path) if now.kind == "file" else b""
            changes[change.path] = NewEntry(now.kind, now.mode, content, now.target)
        assert edit_tree(it.store, removed.tree, changes).tree == after


# ── by our own Files ─────────────────────────────────────────────────────────────────────────


def seen_by(files: FileAccess, path: str = "") -> Told:
    found: Told = {}
    for entry in files.list(path):
        here = f"{path}/{entry.name}" if path else entry.name
        if entry.kind == "folder":
            found[here] = ["folder", entry.mode, ""]
            found.update(seen_by(files, here))
        elif entry.kind == "link":
            found[here] = ["link", 0o777, entry.target]
        else:
            found[here] = ["file", entry.mode, b64encode(files.read(here)).decode()]
    return found


def edit_by(files: FileAccess, edits: Sequence[Edit]) -> None:
    for each in edits:
        try:
            _edit_by(files, *each)
        except WorkspaceError:
            continue


def _edit_by(
    files: FileAccess, what: str, first: int, second: int, name: str, content: str, mode: int
) -> None:
    there = seen_by(files)
    paths = sorted(there, key=os.fsencode)
    folders = ["", *(path for path in paths if there[path][0] == "folder")]
    target = paths[first % len(paths)] if paths else "missing"
    new = f"{folders[second % len(folders)]}/{name}".lstrip("/")
    if what in ("write", "move"):
        files.write(new, content.encode(), mode=mode)
    elif what == "rewrite":
        files.write(target, content.encode())
    elif what == "remove":
        files.remove(target)
    elif what == "folder":
        files.make_folder(f"{new}/{name}")
    elif what == "link":
        files.link(new, content.replace("\0", "") or "nowhere")
    elif what == "mode":
        files.chmod(target, mode | 0o500)
    elif what == "again":
        files.remove(target)
        files.make_folder(target) if there[target][0] == "file" else files.write(
            target, content.encode()
        )
