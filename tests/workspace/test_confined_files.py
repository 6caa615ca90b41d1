"""Files by path: whatever the path and the links say, nothing outside is reached, and nothing is
waited for.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from pathlib import Path

import pytest

from plait.errors import NoSuchFile, NotAFile, OutsideWorkspace, WorkspaceError
from plait.workspace.files import LocalFiles
from plait.workspace.folder_walk import Closed
from tests.support import dose, report


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d" / "f").write_text("inside")
    return root


@pytest.fixture
def files(root: Path) -> LocalFiles:
    return LocalFiles(root)


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "d/../../secret",
        "/etc/passwd",
        "..",
        "d/../..",
        "a\0b",
        "out",
        "out/secret",
        "far",
        "up/secret",
    ],
)
def test_no_way_leads_out(root: Path, files: LocalFiles, path: str) -> None:
    (root / "out").symlink_to("..")
    (root / "up").symlink_to("d/../..")
    (root / "far").symlink_to("/etc/passwd")
    for ask in (
        lambda: files.read(path),
        lambda: files.write(path, b"gone"),
        lambda: files.list(path),
        lambda: files.make_folder(f"{path}/new"),
        lambda: files.chmod(path, 0o777),
    ):
        with pytest.raises(OutsideWorkspace):
            ask()
    assert (root.parent / "secret").read_text() == "outside"
    assert sorted(each.name for each in root.parent.iterdir()) == ["root", "secret"]


def test_links_inside_are_followed(root: Path, files: LocalFiles) -> None:
    (root / "to").symlink_to("d")
    (root / "d" / "back").symlink_to("../to/f")
    (root / "later").symlink_to("d/made")
    assert files.read("to/f") == files.read("d/back") == files.read("./d//../d/f") == b"inside"
    files.write("d/back", b"changed")
    files.write("later", b"made")
    assert (root / "d" / "f").read_text() == "changed"
    assert (root / "d" / "made").read_text() == "made"
    assert (root / "later").is_symlink()
    assert files.entry("to").target == "d"
    files.remove("to")
    assert (root / "d" / "f").exists()


def test_links_in_a_circle_end(root: Path, files: LocalFiles) -> None:
    (root / "x").symlink_to("y")
    (root / "y").symlink_to("x")
    (root / "me").symlink_to("me/me")
    for path in ("x", "y/z", "me"):
        with pytest.raises(OutsideWorkspace, match="circle"):
            files.read(path)


def test_what_is_no_file_is_never_opened(root: Path, files: LocalFiles) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "socket"))
        for path, what in (
            ("pipe", "a pipe"),
            ("socket", "a socket"),
            ("d", "a folder"),
            ("", "a folder"),
        ):
            with pytest.raises(NotAFile, match=what):
                files.read(path)
        for path in ("pipe", "socket"):
            with pytest.raises(NotAFile):
                files.write(path, b"x")
            with pytest.raises(NotAFile):
                files.chmod(path, 0o777)
        assert [entry.name for entry in files.list()] == ["d", "pipe", "socket"]


def test_parts_of_a_file(files: LocalFiles) -> None:
    files.write("n/e/w", b"0123456789", mode=0o751)
    assert files.read("n/e/w", offset=3, size=4) == b"3456"
    assert files.read("n/e/w", offset=8) == b"89"
    assert files.read("n/e/w", offset=100) == files.read("n/e/w", size=0) == b""
    assert files.entry("n/e/w").mode == 0o751
    files.write("n/e/w", b"less")  # keeps the mode
    assert (files.entry("n/e/w").mode, files.entry("n/e/w").size) == (0o751, 4)


def test_what_is_not_there(root: Path, files: LocalFiles) -> None:
    (root / "nowhere").symlink_to("missing")
    for ask in (files.read, files.entry, files.remove, files.list):
        with pytest.raises(NoSuchFile):
            ask("missing")
    with pytest.raises(NoSuchFile):
        files.read("nowhere")
    with pytest.raises(NoSuchFile):
        files.read("d/f/g")
    with pytest.raises(NoSuchFile):
        files.read("x" * 300)
    with pytest.raises(NotAFile):
        files.remove("")


def test_a_write_leaves_nothing_behind(root: Path, files: LocalFiles) -> None:
    with pytest.raises(NotAFile):
        files.write("d", b"x")
    files.write("d/f", b"new")
    files.link("d/l", "f")
    files.link("d/l", "g")
    assert sorted(os.listdir(root / "d")) == ["f", "l"]
    assert os.readlink(root / "d" / "l") == "g"


def test_a_lower_folder_is_never_written_to(root: Path, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    upper.mkdir()
    files = LocalFiles(upper, root)
    files.write("d/f", b"changed")
    files.chmod("d", 0o700)
    files.remove("d")
    assert files.list() == []
    files.make_folder("d")
    assert files.list("d") == []  # what was below stays hidden
    assert (root / "d" / "f").read_text() == "inside"
    assert (root / "d").stat().st_mode & 0o777 == 0o755


def test_links_swapped_under_us_lead_nowhere(root: Path, files: LocalFiles) -> None:
    """A folder is by turns a folder and a link to one outside; the same for a file."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside")
    (root / "swap").mkdir()
    (root / "swap" / "f").write_text("inside")
    (root / "bad").symlink_to(outside)
    (root / "g").write_text("inside")
    (root / "badfile").symlink_to(outside / "f")
    done = threading.Event()
    here = os.open(root, os.O_RDONLY)
    exchange = ctypes.CDLL(None).renameat2  # both names at once, so that there is never nothing

    def race() -> None:
        while not done.is_set():
            for one, other in ((b"swap", b"bad"), (b"g", b"badfile")):
                exchange(here, one, here, other, 2)

    racer = threading.Thread(target=race)
    racer.start()
    attempts, escapes, refused = dose("RACES", 1_500, 100_000), 0, 0
    try:
        for number in range(attempts):
            try:
                if number % 3 == 0:
                    escapes += files.read("swap/f") == b"outside"
                elif number % 3 == 1:
                    escapes += files.read("g") == b"outside"
                else:
                    files.write("swap/new", b"written")
            except WorkspaceError:
                refused += 1
    finally:
        done.set()
        racer.join()
        os.close(here)
    assert escapes == 0
    assert os.listdir(outside) == ["f"]
    assert (root / "swap" / "new").exists() or (root / "bad" / "new").exists()
    assert (outside / "f").read_text() == "outside"
    assert refused < attempts
    report("symlink race", f"{attempts:,} attempts, {escapes} escapes, {refused:,} refused")


# ── closed places ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path",
    [
        ".plait",
        ".plait/store.db",
        "d/.plait/store.db",
        "to/store.db",
        "over/.plait/new/x",
        "kept/x",
    ],
)
def test_what_is_of_plait_is_not_there(root: Path, path: str) -> None:
    for store in (".plait", "d/.plait", "kept"):
        (root / store).mkdir()
        (root / store / "store.db").write_text("store")
    (root / "to").symlink_to("d/.plait")
    (root / "over").symlink_to("d")
    files = LocalFiles(root, closed=Closed(own=frozenset({"kept"})))
    assert [entry.name for entry in files.list()] == ["d", "over", "to"]
    assert [entry.name for entry in files.list("d")] == ["f"]
    for look in (files.read, files.list):
        with pytest.raises(NoSuchFile):
            look(path)
    for change in (
        lambda: files.write(path, b"x"),
        lambda: files.make_folder(path),
        lambda: files.link(f"{path}/x", "f"),
    ):
        with pytest.raises(OutsideWorkspace, match="Plait's own"):
            change()
    with pytest.raises(OutsideWorkspace, match="Plait's own"):
        files.remove("d")
    assert (
        (root / "d" / ".plait" / "store.db").read_text()
        == (root / ".plait" / "store.db").read_text()
        == "store"
    )


def test_heavy_folders_are_read_where_they_lie_and_never_written(
    root: Path, tmp_path: Path
) -> None:
    origin = tmp_path / "origin"
    (origin / "d" / ".git" / "hooks").mkdir(parents=True)
    (origin / "d" / ".git" / "config").write_text("settings")
    (origin / "d" / ".git" / "out").symlink_to("../../../secret")
    (origin / "d" / ".git" / "back").symlink_to("../f")
    files = LocalFiles(root).with_closed(Closed(heavy=frozenset({"d/.git"}), origin=origin))
    assert files.read("d/.git/config") == b"settings"
    assert files.read("d/.git/back") == b"inside"
    assert [entry.name for entry in files.list("d")] == [".git", "f"]
    with pytest.raises(OutsideWorkspace):
        files.read("d/.git/out")
    for change in (
        lambda: files.write("d/.git/config", b"x"),
        lambda: files.write("d/.git/hooks/pre-commit", b"x"),
        lambda: files.remove("d/.git"),
        lambda: files.remove("d"),
        lambda: files.chmod("d/.git/config", 0o777),
        lambda: files.make_folder("d/.git/new"),
        lambda: files.link("d/.git/new", "x"),
    ):
        with pytest.raises(OutsideWorkspace, match="read-only"):
            change()
    assert sorted(os.listdir(origin / "d" / ".git")) == ["back", "config", "hooks", "out"]
    assert not (root / "d" / ".git").exists()
