"""Copies: clean or thrown away, one process at a time, and right after every kind of end."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from plait import secrets
from plait.errors import NotSupported, SandboxBusy, UnknownBlob
from plait.ids import Digest
from plait.secrets import Secret
from plait.store import SqliteStore, Store
from plait.testing import Seeded
from plait.workspace import EMPTY, Rules, TreeSnapshot, Workspace
from plait.workspace.base import PIECE, NewEntry
from plait.workspace.copies import (
    Copy,
    Layered,
    Plain,
    open_copy,
    open_in_place,
)
from plait.workspace.copy_state import cache_folder, list_copies
from plait.workspace.edited import edit_tree
from plait.workspace.folder_snapshot import snapshot_folder
from plait.workspace.rules import heavy_in, rules_for
from tests.support import filled_folder, python

pytestmark = pytest.mark.long  # `make quick` leaves these out

BOTH = pytest.mark.parametrize("layered", [False, True], ids=["plain", "layered"])


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    store = SqliteStore(tmp_path / "store", source=Seeded(3))
    yield store
    store.close()


@pytest.fixture
def cache(store: Store) -> Path:
    return cache_folder(store)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "src" / "b.py").write_text("b = 2\n")
    (folder / "README").write_text("read me\n")
    return folder


@pytest.fixture
def tree(store: Store, folder: Path) -> Digest:
    return snapshot_folder(store, folder).tree


def record(store: Store, copy: Copy) -> Digest:
    snapshot = copy.snapshot()
    store.put_blobs(snapshot.blobs)
    return snapshot.tree


# ── life of a copy ───────────────────────────────────────────────────────────────────────────


@BOTH
def test_a_clean_copy_is_used_again(store: Store, cache: Path, tree: Digest, layered: bool) -> None:
    copy = open_copy(store, cache, "s", tree, layered=layered)
    copy.begin()
    assert copy.in_doubt
    copy.files.write("src/a.py", b"a = 2\n")
    copy.files.write("__pycache__/junk", b"junk")
    snapshot = copy.snapshot()
    assert snapshot.changed == ("src/a.py",)
    assert not copy.in_doubt
    assert snapshot.dropped == ("__pycache__",)
    store.put_blobs(snapshot.blobs)
    place = cache / "copies" / "s" / ("upper" if layered else "files") / "src" / "a.py"
    written = place.stat().st_ino
    copy.close()
    again = open_copy(store, cache, "s", snapshot.tree, layered=layered)
    assert again.generation == 0
    assert place.stat().st_ino == written  # the very same files
    assert again.snapshot().changed == ()
    again.close()
    back = open_copy(store, cache, "s", tree, layered=layered)
    assert back.files.read("src/a.py") == b"a = 1\n"
    assert (back.generation, back.tree) == (0, tree)
    back.close()


@BOTH
def test_a_copy_in_doubt_is_built_again(
    store: Store, cache: Path, tree: Digest, layered: bool
) -> None:
    copy = open_copy(store, cache, "s", tree, layered=layered)
    copy.begin()
    copy.files.write("half", b"done")
    copy.close()
    assert list_copies(cache)[0].in_doubt
    again = open_copy(store, cache, "s", tree, layered=layered)
    assert again.generation == 1
    assert again.snapshot().tree == tree
    again.close()


@BOTH
@pytest.mark.parametrize("part", ["state", "index", "files", "upper", "scratch"])
def test_a_damaged_copy_is_built_again(
    store: Store, cache: Path, tree: Digest, layered: bool, part: str
) -> None:
    open_copy(store, cache, "s", tree, layered=layered).close()
    path = cache / "copies" / "s" / part
    if not path.exists():
        pytest.skip("this kind has no such part")
    shutil.rmtree(path) if path.is_dir() else path.write_bytes(b"\0damaged" * 10)
    copy = open_copy(store, cache, "s", tree, layered=layered)
    assert copy.snapshot().tree == tree
    copy.close()


@BOTH
def test_a_copy_from_before_the_machine_was_started_is_built_again(
    store: Store, cache: Path, tree: Digest, layered: bool
) -> None:
    open_copy(store, cache, "s", tree, layered=layered).close()
    for file in [cache / "copies" / "s" / "state", *cache.glob("bases/*/made")]:
        file.write_bytes(file.read_bytes().replace(b'"boot":"', b'"boot":"other'))
    for lower in cache.glob("bases/*/files/README"):
        lower.write_text("torn")
    copy = open_copy(store, cache, "s", tree, layered=layered)
    assert copy.generation == 1
    assert copy.files.read("README") == b"read me\n"
    copy.close()


@BOTH
def test_a_snapshot_that_nobody_recorded_is_not_built_upon(
    store: Store, cache: Path, tree: Digest, layered: bool
) -> None:
    copy = open_copy(store, cache, "s", tree, layered=layered)
    copy.files.write("new/file", b"lost")
    lost = copy.snapshot()
    copy.files.write("other", b"kept")
    second = copy.snapshot()
    assert set(lost.blobs) - {lost.tree} <= set(second.blobs)  # they are needed still
    copy.close()
    again = open_copy(store, cache, "s", tree, layered=layered)
    assert again.snapshot().tree == tree
    again.close()


@BOTH
def test_one_process_at_a_time(store: Store, cache: Path, tree: Digest, layered: bool) -> None:
    copy = open_copy(store, cache, "s", tree, layered=layered)
    with pytest.raises(SandboxBusy, match="another process"):
        open_copy(store, cache, "s", tree, layered=layered)
    assert [(info.name, info.in_use) for info in list_copies(cache)] == [("s", True)]
    other = open_copy(store, cache, "t", tree, layered=layered)
    other.discard()
    copy.close()
    assert [(info.name, info.in_use) for info in list_copies(cache)] == [("s", False)]


@BOTH
def test_switching_empties_the_scratch_folder(
    store: Store, cache: Path, tree: Digest, layered: bool
) -> None:
    copy = open_copy(store, cache, "s", tree, layered=layered)
    (copy.scratch / "deep").mkdir()
    (copy.scratch / "deep" / "left").write_text("over")
    copy.switch(EMPTY)
    assert list(copy.scratch.iterdir()) == []
    assert copy.files.list() == []
    assert copy.snapshot().tree == EMPTY
    copy.discard()


def test_an_unknown_tree_leaves_no_copy_that_is_trusted(
    store: Store, cache: Path, tree: Digest
) -> None:
    with pytest.raises(UnknownBlob):
        open_copy(store, cache, "s", Digest("0" * 64), layered=False)
    copy = open_copy(store, cache, "s", tree, layered=False)  # and the lock is free
    assert copy.snapshot().tree == tree
    copy.close()


def test_names_that_are_no_file_names(store: Store, cache: Path, tree: Digest) -> None:
    for name in ("../out", "a/b", "", "x" * 300, "s.lock"):
        copy = open_copy(store, cache, name, tree, layered=False)
        assert isinstance(copy.layers, Plain)
        assert (cache / "copies") in copy.layers.folder.parents
        copy.discard()


def test_a_layered_copy_holds_only_what_differs(store: Store, cache: Path, tree: Digest) -> None:
    other = edit_tree(
        store, tree, {"src/a.py": NewEntry("file", content=b"a = 3\n"), "README": None}
    )
    store.put_blobs(other.blobs)
    copy = open_copy(store, cache, "s", other.tree, layered=True, base=tree)
    assert isinstance(copy.layers, Layered)
    upper = copy.layers.upper
    assert sorted(os.listdir(upper)) == ["README", "src"]
    assert os.listdir(upper / "src") == ["a.py"]
    assert stat.S_ISCHR((upper / "README").lstat().st_mode)
    copy.switch(tree)
    assert os.listdir(upper) == []
    copy.close()


def test_the_folder_itself_has_no_way_back(
    store: Store, cache: Path, folder: Path, tree: Digest
) -> None:
    copy = open_in_place(store, cache, folder)
    assert copy.tree == tree
    copy.begin()
    (folder / "new").write_text("new")
    assert copy.snapshot().changed == ("new",)
    with pytest.raises(NotSupported):
        copy.switch(tree)
    with pytest.raises(SandboxBusy):
        open_in_place(store, cache, folder)
    copy.discard()
    assert (folder / "new").read_text() == "new"


def test_the_cache_of_a_store_in_memory_goes_with_the_process() -> None:
    code = (
        "from plait import open_store; from plait.workspace.copy_state import cache_folder as f;"
        " p = f(open_store('memory:x')); (p / 'd').mkdir(); (p / 'd').chmod(0); print(p)"
    )
    ran = python(code)
    assert not Path(ran.stdout.strip()).exists()


# ── what is read, and what is not ────────────────────────────────────────────────────────────


def test_what_is_written_in_the_same_tick_is_seen(store: Store, cache: Path, tree: Digest) -> None:
    """Same size, same inode, and times that may be the same: git's racy entries."""
    copy = open_copy(store, cache, "s", tree, layered=False)
    assert isinstance(copy.layers, Plain)
    path = copy.layers.folder / "README"
    for number in range(60):
        path.write_text(f"{number:08}")
        assert Workspace(store, record(store, copy)).text("README") == f"{number:08}"
    copy.close()


def test_long_files_are_kept_in_pieces(store: Store, cache: Path, folder: Path) -> None:
    for size in (PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 9 * PIECE + 5):
        content = os.urandom(size)
        (folder / "long").write_bytes(content)
        tree = snapshot_folder(store, folder).tree
        view = Workspace(store, tree)
        assert view.read("long") == content
        assert len(view.entry("long").blobs) == -(-size // PIECE)
        copy = open_copy(store, cache, "s", tree, layered=False)
        assert copy.files.read("long") == content
        assert copy.snapshot().tree == tree
        copy.close()


def test_pipes_are_told_and_never_opened(store: Store, folder: Path, tree: Digest) -> None:
    os.mkfifo(folder / "src" / "pipe")
    snapshot = snapshot_folder(store, folder)
    assert snapshot.skipped == ("src/pipe",)
    assert snapshot.tree == tree


def test_a_file_with_a_secret_is_named_and_its_content_is_nowhere(
    store: Store, cache: Path, folder: Path, tmp_path: Path
) -> None:
    value = "canary-8e1f-secret-value"
    Secret("CANARY", value)
    try:
        (folder / ".env").write_text(f"KEY={value}\n")
        (folder / "long").write_bytes(b"x" * (PIECE - 10) + value.encode() + b"y" * PIECE)
        snapshot = snapshot_folder(store, folder)
        assert snapshot.withheld == (".env", "long")
        for layered in (False, True):
            copy = open_copy(store, cache, f"s{layered}", snapshot.tree, layered=layered)
            assert [entry.name for entry in copy.files.list()] == ["README", "src"]
            # that it is not here does not mean that it was removed
            assert copy.snapshot().tree == snapshot.tree
            copy.files.write("src/a.py", b"changed")
            changed = copy.snapshot()
            assert changed.changed == ("src/a.py",)
            store.put_blobs(changed.blobs)
            copy.files.write(".env", b"KEY=public\n")
            copy.files.write("leak", value.encode())
            written = copy.snapshot()
            assert (written.changed, written.withheld) == ((".env", "leak"), ("leak", "long"))
            store.put_blobs(written.blobs)
            copy.switch(snapshot.tree)
            assert [entry.name for entry in copy.files.list()] == ["README", "src"]
            assert copy.snapshot().tree == snapshot.tree
            without = edit_tree(store, snapshot.tree, {".env": None, "long": None})
            store.put_blobs(without.blobs)
            # nothing changes on disk, but the tree does
            for goal in (without.tree, snapshot.tree, without.tree):
                copy.switch(goal)
                assert copy.snapshot().tree == goal
            copy.switch(written.tree)
            assert copy.files.read(".env") == b"KEY=public\n"
            assert copy.snapshot().tree == written.tree
            copy.files.remove(".env")
            assert copy.snapshot().changed == (".env",)
            copy.discard()
        made = edit_tree(store, snapshot.tree, {"x": NewEntry("file", content=value.encode())})
        assert made.withheld == ("x",)
        store.close()
        for file in (tmp_path / "store").rglob("*"):
            assert not file.is_file() or value.encode() not in file.read_bytes()
    finally:
        secrets.forget("CANARY")


def test_rules_are_the_same_for_every_kind_of_reading(
    store: Store, cache: Path, folder: Path
) -> None:
    (folder / ".plaitignore").write_text("# big things\n*.bin\n/data/out\nbuild/\n\n")
    (folder / "venv").write_text("a file of that name is a file")
    (folder / "src" / ".venv").mkdir()
    rules = rules_for(folder, ignore=("own.txt",), store=folder / "state" / "store")
    names = [
        "a.bin",
        "own.txt",
        "build/x",
        "src/build",
        "data/out/x",
        "src/data/out",
        ".plait/x",
        "src/.plait/x",
        ".git/x",
    ]
    names += [
        "state/store/db",
        "state/other",
        "src/__pycache__/a.pyc",
        "x.pyc",
        "src/.venv/lib",
        ".plait-1-2.tmp",
    ]
    filled_folder(folder, {name: name for name in names})
    tree = snapshot_folder(store, folder, rules).tree
    kept = {
        ".plaitignore",
        "README",
        "src/a.py",
        "src/b.py",
        "src/build",
        "src/data/out",
        "state/other",
        "venv",
    }
    assert set(Workspace(store, tree).files()) == kept
    assert heavy_in(folder, rules) == [".git", "src/.venv"]
    for layered in (False, True):
        copy = open_copy(store, cache, f"s{layered}", EMPTY, layered=layered, rules=rules)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and ".plait" not in path.parts:
                copy.files.write(
                    str(path.relative_to(folder)),
                    path.read_bytes(),
                    mode=path.stat().st_mode & 0o777,
                )
        shutil.copytree(
            folder / ".plait",
            (copy.layers.folder if isinstance(copy.layers, Plain) else copy.layers.upper)
            / ".plait",
        )
        for name in ("build", "data"):
            copy.files.make_folder(name)
        record(store, copy)
        assert set(Workspace(store, copy.tree).files()) == kept
        copy.close()


def test_other_rules_do_not_use_what_was_remembered(store: Store, folder: Path) -> None:
    assert "README" in Workspace(store, snapshot_folder(store, folder).tree)
    assert "README" not in Workspace(
        store, snapshot_folder(store, folder, Rules(ignore=("README",))).tree
    )


def test_what_a_sweep_took_is_read_again(store: Store, folder: Path, tree: Digest) -> None:
    assert store.sweep_blobs(before=2**40) > 0
    assert snapshot_folder(store, folder).tree == tree
    assert Workspace(store, tree).text("README") == "read me\n"


# ── modes, and people without rights ─────────────────────────────────────────────────────────

_CLOSED = """
import os, sys
from pathlib import Path
from tempfile import mkdtemp
from plait.store import SqliteStore
from plait.testing import Seeded
from plait.workspace import EMPTY, Workspace
from plait.workspace.copies import open_copy
from plait.workspace.folder_snapshot import snapshot_folder
from plait.workspace.edited import edit_tree
from plait.workspace.base import NewEntry
place = Path(sys.argv[1])
folder = place / "folder"
(folder / "ro" / "deep").mkdir(parents=True)
(folder / "ro" / "f").write_text("f")
(folder / "ro" / "deep" / "g").write_text("g")
(folder / "shut").mkdir()
(folder / "shut" / "h").write_text("h")
(folder / "none").write_text("none")
(folder / "none").chmod(0)
(folder / "ro" / "deep").chmod(0o555)
(folder / "ro").chmod(0o555)
(folder / "shut").chmod(0)
store = SqliteStore(place / "store", source=Seeded(1))
tree = snapshot_folder(store, folder).tree
assert Workspace(store, tree).files() == ["ro/deep/g", "ro/f"], Workspace(store, tree).files()  # what is locked is the owner's
closed = edit_tree(store, tree, {"none": NewEntry("file", 0, b"none"), "shut": NewEntry("folder", 0), "shut/h": NewEntry("file", content=b"h")})
store.put_blobs(closed.blobs)
tree = closed.tree
assert Workspace(store, tree).files() == ["none", "ro/deep/g", "ro/f", "shut/h"], Workspace(store, tree).files()
changes = {"ro/deep/g": NewEntry("file", content=b"G"), "shut/h": None, "none": NewEntry("file", 0, b"NONE"), "ro/new": NewEntry("file")}
other = edit_tree(store, tree, changes)
store.put_blobs(other.blobs)
for layered in (False, True):
    copy = open_copy(store, place / "cache", f"s{layered}", tree, layered=layered)
    for goal in (tree, other.tree, tree, EMPTY, other.tree):
        copy.switch(goal)
        assert copy.snapshot().tree == goal
    copy.files.write("ro/deep/new", b"new")
    assert copy.snapshot().changed == ("ro/deep/new",)
    copy.discard()
print(os.getuid())
"""  # noqa: E501


@pytest.mark.parametrize("uid", [None, 65534], ids=["whoever runs this", "nobody"])
def test_closed_folders_and_files_survive(tmp_path: Path, uid: int | None) -> None:
    prefix: list[str] = []
    if uid is not None:
        if os.getuid() != 0 or shutil.which("setpriv") is None:
            pytest.skip("only root can become somebody else")
        prefix = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    # not below tmp_path, which is open to its owner only
    place = Path(mkdtemp(prefix="plait-closed-"))
    place.chmod(0o777)
    try:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(
            [*prefix, sys.executable, "-c", _CLOSED, str(place)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
        )
        if uid is not None and (
            "Permission denied" in ran.stderr or "No module named 'plait'" in ran.stderr
        ):
            pytest.skip("nobody may not read this Python")
        assert ran.returncode == 0, ran.stderr
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", str(place)], check=False)
        shutil.rmtree(place)


# ── killed ───────────────────────────────────────────────────────────────────────────────────

_VICTIM = """
import sys
from pathlib import Path
from tempfile import mkdtemp
from plait.store import SqliteStore
from plait.testing import Seeded
from plait.workspace.copies import open_copy
place, one, other, layered = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "True"
store = SqliteStore(place, source=Seeded(1))
print("ready", flush=True)
while True:
    copy = open_copy(store, place / "work", "s", one, layered=layered)
    copy.begin()
    copy.files.write("src/a.py", b"half")
    copy.files.remove("many")
    copy.snapshot()
    copy.switch(other)
    copy.switch(one)
    copy.discard() if copy.generation % 3 == 0 else copy.close()
"""


@BOTH
@pytest.mark.parametrize("rounds", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_anywhere_the_next_one_finds_the_right_files(
    store: Store, cache: Path, folder: Path, layered: bool, rounds: int
) -> None:
    (folder / "many").mkdir()
    for number in range(60):
        (folder / "many" / str(number)).write_text(str(number))
    one = snapshot_folder(store, folder).tree
    shutil.rmtree(folder / "many")
    (folder / "many").write_text("a file")
    (folder / "src" / "b.py").chmod(0o755)
    other = snapshot_folder(store, folder).tree
    for number in range(rounds):
        command = [sys.executable, "-c", _VICTIM, str(cache.parent), one, other, str(layered)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"ready\n"
            end = time.monotonic() + 0.013 * (number % 16)
            while time.monotonic() < end:
                assert victim.poll() is None, victim.communicate()[1]
            victim.send_signal(signal.SIGKILL)
        for tree in (other, one):
            copy = open_copy(store, cache, "s", tree, layered=layered)
            assert copy.snapshot().tree == tree
            copy.close()


# ── what is in no tree ───────────────────────────────────────────────────────────────────────


@BOTH
def test_a_root_that_was_closed_is_opened_again(
    store: Store, cache: Path, tree: Digest, layered: bool
) -> None:
    copy = open_copy(store, cache, "s", tree, layered=layered)
    root = copy.layers.folder if isinstance(copy.layers, Plain) else copy.layers.upper
    root.chmod(0)
    copy.scratch.chmod(0)
    copy.begin()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (root, copy.scratch)] == [0o755, 0o755]
    assert record(store, copy) == tree
    copy.close()


def test_a_folder_in_place_keeps_its_mode(store: Store, cache: Path, folder: Path) -> None:
    folder.chmod(0o750)
    copy = open_in_place(store, cache, folder)
    copy.begin()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    copy.close()


@BOTH
def test_pipes_do_not_outlast_a_switch(
    store: Store, cache: Path, tree: Digest, layered: bool
) -> None:
    copy = open_copy(store, cache, "s", tree, layered=layered)
    root = copy.layers.folder if isinstance(copy.layers, Plain) else copy.layers.upper
    copy.files.write("new", b"x")
    copy.files.remove("README")
    (root / "src").mkdir(exist_ok=True)
    for name in ("pipe", "src/.venv"):
        os.mkfifo(root / name)
    assert copy.snapshot().skipped == ("pipe", "src/.venv")
    store.put_blobs(copy.snapshot().blobs)
    copy.switch(tree)
    assert not (root / "pipe").exists() and not (root / "src/.venv").exists()
    assert {entry.name for entry in copy.files.list()} == {"README", "src"}
    assert record(store, copy) == tree
    copy.close()


@BOTH
def test_names_and_targets_that_hold_a_secret_are_in_no_tree(
    store: Store, cache: Path, tree: Digest, layered: bool
) -> None:
    value = "hush-9f27c1d4"
    copy = open_copy(store, cache, "s", tree, layered=layered)
    copy.files.write(f"src/{value}.txt", b"x")
    copy.files.write(f"{value}/inside", b"x")
    copy.files.link("link", f"https://{value}@example.org")
    copy.snapshot()  # what was seen before it was known
    secrets.register(value, "HUSH")
    try:
        found = copy.snapshot()
        copy.save_index()
        assert found.withheld == ("[secret HUSH]", "link", "src/[secret HUSH].txt")
        assert found.tree == tree
        assert value.encode() not in (cache / "copies" / "s" / "index").read_bytes()
    finally:
        secrets.forget("HUSH")
        copy.close()


def test_rules_are_not_read_through_a_link(folder: Path) -> None:
    (folder.parent / "elsewhere").write_text("README\n")
    (folder / ".plaitignore").symlink_to("../elsewhere")
    assert "README" not in rules_for(folder).ignore


@BOTH
def test_what_nobody_recorded_comes_again_in_another_process(
    store: Store, cache: Path, folder: Path, layered: bool
) -> None:
    """A snapshot that was never written, the files put back, and the same change made once more
    after the copy was opened anew.
    """
    tree = snapshot_folder(store, folder).tree
    found: list[TreeSnapshot] = []
    for _ in range(2):
        copy = open_copy(store, cache, "s", tree, layered=layered)
        copy.begin()
        copy.files.write("src/deep/new.py", b"new")
        found.append(copy.snapshot())
        copy.switch(tree)
        copy.close()
    first, second = found
    store.put_blobs(second.blobs)
    assert (
        first.tree == second.tree
        and Workspace(store, second.tree).read("src/deep/new.py") == b"new"
    )
