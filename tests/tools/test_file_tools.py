"""The tools for files: what they return is exact, what they leave out is said, and nothing leads
out of the workspace.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.errors import (
    EditRefused,
    InvalidValue,
    NoSuchFile,
    NotAFile,
    OutsideWorkspace,
    PlaitError,
)
from plait.session.content import Loose
from plait.tool import Result
from plait.tools import apply_patch, edit_file, list_files, read_file, search_files, write_file
from plait.tools.files import LINE_MAX
from plait.tools.search import matches_glob
from plait.tools.text import SHOWN_MAX
from tests.support import growth, result_delta
from tests.tools.folder_sandbox import FolderSandbox

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + b"\0" * 40


def text(result: Result) -> str:
    """Return the text shown, without the note before it."""
    assert isinstance(result.parts[-1], str)
    return result.parts[-1]


# ── reading ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "content", ["a\n", "a\nb", "a\r\nb\r\n", "\ufeffé\n", "\n\n\n", "tab\t x \n", "日本\n"]
)
def test_what_is_read_is_exact(box: FolderSandbox, root: Path, content: str) -> None:
    (root / "x").write_bytes(content.encode())
    assert read_file("x", box).parts == [content]


def test_a_long_file_is_read_in_slices_that_make_up_the_whole(
    box: FolderSandbox, root: Path
) -> None:
    whole = "".join(f"line {n} {'é' * (n % 90)}\n" for n in range(1, 3000))
    (root / "x").write_text(whole)
    found, offset = "", 1
    while True:
        note, part = read_file("x", box, offset=offset).parts
        found += part
        if "go on with offset=" not in note:
            break
        assert len(part) <= SHOWN_MAX and "of 2,999" in note
        offset = int(note.rpartition("offset=")[2].rstrip("]"))
    assert found == whole


def test_a_slice_is_what_was_asked_for(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text("".join(f"{n}\n" for n in range(1, 21)))
    result = read_file("x", box, offset=5, limit=2)
    assert result.parts == [
        "[x: lines 5 to 6 of 20; go on with offset=7]",
        "5\n6\n",
    ] and result_delta(result)["lines"] == [5, 6]
    with pytest.raises(InvalidValue, match="has 20 lines"):
        read_file("x", box, offset=21)
    with pytest.raises(InvalidValue):
        read_file("x", box, offset=0)


def test_a_huge_file_is_not_loaded(
    box: FolderSandbox, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (root / "huge").open("wb") as stream:
        stream.write(b"first\n" * 3)
        stream.seek(3 << 30)
        stream.write(b"\nlast\n")
    sizes: list[int | None] = []
    read = box.files.read

    def counted(path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        sizes.append(size)
        return read(path, offset=offset, size=size)

    monkeypatch.setattr(box.files, "read", counted)
    result = read_file("huge", box, limit=2)
    assert (
        "no UTF-8 text" in text(result)
        and None not in sizes
        and sum(size or 0 for size in sizes) < 1 << 24
    )


def test_a_huge_text_is_read_by_range(box: FolderSandbox, root: Path) -> None:
    with (root / "huge.txt").open("wb") as stream:
        for _ in range(70):
            stream.write((b"x" * 99 + b"\n") * 10_486)
    note, part = read_file("huge.txt", box, offset=700_000, limit=3).parts
    assert part == ("x" * 99 + "\n") * 3 and "bytes in all" in note


def test_long_lines_are_cut_and_named(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text("short\n" + "y" * 50_000 + "\nend\n")
    note, part = read_file("x", box).parts
    assert note == f"[of line 2 only the first {LINE_MAX:,} characters are shown]"
    assert part == "short\n" + "y" * LINE_MAX + "\nend\n"


def test_one_line_without_end_is_cut(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text("é" * 3_000_000)
    note, part = read_file("x", box).parts
    assert "of line 1 only" in note and part == "é" * LINE_MAX + "\n"


def test_images_come_back_as_images(box: FolderSandbox, root: Path) -> None:
    (root / "x.dat").write_bytes(PNG)
    words, picture = read_file("x.dat", box).parts
    assert (
        isinstance(picture, Loose)
        and picture.media_type == "image/png"
        and picture.content == PNG
        and "image/png" in words
    )


@pytest.mark.parametrize(
    "content", [b"\0\1\2", b"\xff\xfea\0", b"caf\xe9\n" * 10, b"x" * 9_000 + b"\xe9\n"]
)
def test_binary_is_named_by_type_size_and_digest(
    box: FolderSandbox, root: Path, content: bytes
) -> None:
    (root / "x.bin").write_bytes(content)
    result = read_file("x.bin", box)
    assert f"{len(content):,} bytes" in text(result) and result_delta(result)["digest"] in text(
        result
    )


def test_an_empty_file_says_so(box: FolderSandbox, root: Path) -> None:
    (root / "x").touch()
    assert read_file("x", box).parts == ["[x is empty]"]


# ── hostile paths ────────────────────────────────────────────────────────────────────────────

TOOLS: list[Callable[[FolderSandbox, str], Any]] = [
    lambda box, path: read_file(path, box),
    lambda box, path: write_file(path, "x", box),
    lambda box, path: edit_file(path, "a", "b", box),
    lambda box, path: list_files(box, path),
    lambda box, path: search_files("a", box, path),
    lambda box, path: apply_patch(f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch", box),
]
PATHS = [
    "../../etc/passwd",
    "../outside",
    "a/../../outside",
    "/etc/passwd",
    "/",
    "..",
    "x\0y",
    "n" * 10_000,
    "/".join("d" for _ in range(5_000)),
    "é" * 200,
    "out/secret",
    "out",
    "loop",
    "pipe",
    "dangling/x",
]


@pytest.mark.parametrize("use", range(len(TOOLS)))
@pytest.mark.parametrize("path", PATHS, ids=lambda path: repr(path[:20]))
def test_hostile_paths_are_refused_with_a_typed_error(
    box: FolderSandbox, root: Path, tmp_path: Path, path: str, use: int
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("a canary\n")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("/nowhere")
    os.mkfifo(root / "pipe")
    try:
        result = TOOLS[use](box, path)
    except (PlaitError, OSError, RuntimeError) as error:
        # A loop of links is the test sandbox's own to name; everything else has a type of ours.
        assert isinstance(error, PlaitError) or path == "loop", error
    else:
        assert "canary" not in str(result)
    assert (tmp_path / "outside" / "secret").read_text() == "a canary\n" and os.listdir(
        tmp_path / "outside"
    ) == ["secret"]


def test_paths_as_the_sandbox_shows_them_are_understood(box: FolderSandbox, root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "x").write_text("1\n")
    for path in (f"{box.workdir}/a/x", "./a//x", "a/../a/x"):
        assert text(read_file(path, box)) == "1\n"
    with pytest.raises(OutsideWorkspace):
        read_file(f"{box.workdir}-other/x", box)


def test_folders_are_no_files(box: FolderSandbox, root: Path) -> None:
    (root / "a").mkdir()
    for call in (
        lambda: read_file("a", box),
        lambda: write_file("a", "x", box),
        lambda: write_file("new/", "x", box),
    ):
        with pytest.raises(NotAFile):
            call()
    with pytest.raises(PlaitError):
        write_file("", "x", box)


# ── writing ──────────────────────────────────────────────────────────────────────────────────


def test_writing_leaves_the_difference(box: FolderSandbox, root: Path) -> None:
    made = write_file("a/b/x.txt", "one\ntwo\n", box)
    assert result_delta(made)["created"] is True and result_delta(made)["bytes"] == {
        "before": None,
        "after": 8,
    }
    assert (
        result_delta(made)["diff"]
        == "--- /dev/null\n+++ b/a/b/x.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    )
    (root / "a/b/x.txt").chmod(0o755)
    again = write_file("a/b/x.txt", "one\n2\n", box)
    assert result_delta(again)["created"] is False and "-two\n+2\n" in result_delta(again)["diff"]
    assert text(again) == "overwrote a/b/x.txt: 1 line added, 1 removed, 6 bytes"
    assert (root / "a/b/x.txt").stat().st_mode & 0o777 == 0o755
    assert "already" in text(write_file("a/b/x.txt", "one\n2\n", box))


def test_a_long_difference_is_bounded_and_kept_whole(box: FolderSandbox) -> None:
    result = write_file("x", "".join(f"line {n}\n" for n in range(20_000)), box)
    assert len(result_delta(result)["diff"]) < 21_000
    whole = result.parts[1]
    assert (
        isinstance(whole, Loose)
        and whole.content.endswith(b"+line 19999\n")
        and whole.name == "x.diff"
    )


def test_what_was_binary_is_named(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_bytes(b"\0\1")
    assert "binary, sha256" in result_delta(write_file("x", "text", box))["before"]


def test_the_difference_of_very_different_files_is_quick(box: FolderSandbox) -> None:
    def replace_lines(size: int) -> None:
        write_file("x", "".join(f"a {n}\n" for n in range(size)), box)
        result = write_file("x", "".join(f"b {n}\n" for n in range(size)), box)
        assert f"{size:,} lines added, {size:,} removed" in result.parts[0]

    assert growth(replace_lines, 10_000, 4) < 1.5


# ── editing ──────────────────────────────────────────────────────────────────────────────────

CODE = """\
def total(cart):
    total = 0
    for item in cart:
        total += item.price
    return total


def count(cart):
    number = 0
    for item in cart:
        number += 1
    return number
"""

FAULTY = {
    "empty": ("", "x"),
    "the same": ("total = 0", "total = 0"),
    "ambiguous line": ("    for item in cart:\n", "    for each in cart:\n"),
    "ambiguous word": ("cart", "basket"),
    "ambiguous by overlap": ("  ", " "),
    "ambiguous newline": ("\n", "\n\n"),
    "tabs for spaces": ("\ttotal = 0\n", "\ttotal = 1\n"),
    "indented less": ("def total(cart):\n  total = 0\n", "def total(cart):\n  total = 1\n"),
    "indented more": ("        return total\n", "        return round(total)\n"),
    "trailing space": ("total = 0 \n", "total = 1\n"),
    "no break space": ("total\u00a0= 0", "total = 1"),
    "crlf": ("total = 0\r\n", "total = 1\r\n"),
    "already applied": ("return sum(cart)", "return number"),
    "stale context": ("def total(basket):\n    total = 0\n", "def total(basket):\n    total = 1\n"),
    "another case": ("Def Total(cart):", "def total(basket):"),
    "line numbers copied": ("2\t    total = 0\n", "2\t    total = 1\n"),
    "lines swapped": ("    total = 0\ndef total(cart):\n", "x"),
    "a line left out": ("    total = 0\n        total += item.price\n", "x"),
    "elided": ("def total(cart):\n    ...\n    return total\n", "x"),
    "beyond the end": ("    return number\n\n\n", "    return number\n"),
    "nothing like it": ("☃☃☃☃☃☃☃☃", "x"),
    "html escaped": ("total &lt; 0 &amp;&amp; total", "x"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_faulty_edits_are_refused(box: FolderSandbox, root: Path, name: str) -> None:
    (root / "cart.py").write_text(CODE)
    with pytest.raises(EditRefused) as caught:
        edit_file("cart.py", *FAULTY[name], box)
    assert (root / "cart.py").read_text() == CODE and str(caught.value).startswith(
        "'cart.py' was not edited: "
    )


def test_a_refusal_says_where_to_look(box: FolderSandbox, root: Path) -> None:
    (root / "cart.py").write_text(CODE)
    cases = {
        "ambiguous line": "2 times, at lines 3, 10",
        "already applied": "at line 12",
        "stale context": "1\tdef total(cart):",
        "indented less": "lines 1 to 2 differ from it only in white space",
        "another case": "1\tdef total(cart):",
    }
    for name, words in cases.items():
        with pytest.raises(EditRefused, match=words.replace("(", r"\(").replace(")", r"\)")):
            edit_file("cart.py", *FAULTY[name], box)


def test_an_edit_is_exact_and_leaves_its_difference(box: FolderSandbox, root: Path) -> None:
    (root / "cart.py").write_text(CODE)
    (root / "cart.py").chmod(0o750)
    result = edit_file("cart.py", "    total = 0\n", "    total = Money(0)\n", box)
    assert (root / "cart.py").read_text() == CODE.replace("total = 0", "total = Money(0)")
    assert (root / "cart.py").stat().st_mode & 0o777 == 0o750
    assert result_delta(result)["diff"] == text(
        result
    ) and "-    total = 0\n+    total = Money(0)\n" in text(result)


def test_replace_all_replaces_all(box: FolderSandbox, root: Path) -> None:
    (root / "cart.py").write_text(CODE)
    edit_file("cart.py", "cart", "basket", box, replace_all=True)
    assert (root / "cart.py").read_text() == CODE.replace("cart", "basket")


def test_windows_lines_stay_windows_lines(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    edit_file("x", "one\ntwo\n", "1\n2\n2b\n", box)
    assert (root / "x").read_bytes() == b"1\r\n2\r\n2b\r\nthree\r\n"
    (root / "mixed").write_bytes(b"one\r\ntwo\nthree\r\n")
    edit_file("mixed", "two\n", "2\n", box)
    assert (root / "mixed").read_bytes() == b"one\r\n2\nthree\r\n"


def test_binary_and_missing_files_are_not_edited(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_bytes(b"a\0b")
    with pytest.raises(EditRefused, match="no UTF-8 text"):
        edit_file("x", "a", "b", box)
    with pytest.raises(NoSuchFile):
        edit_file("y", "a", "b", box)


# ── listing and searching ────────────────────────────────────────────────────────────────────


@pytest.fixture
def tree(root: Path) -> Path:
    for path, content in {
        "a.py": "import os\nTOTAL = 1\n",
        "src/cart.py": "def total(cart):\n    return 1\n",
        "src/deep/er/x.txt": "total eclipse\r\nof the heart\r\n",
        "node_modules/m/x.js": "total\n",
        ".git/config": "total\n",
        "binary": "total\0",
        "ünï": "Total\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    (root / "link").symlink_to("src")
    (root / "out").symlink_to("/etc")
    os.mkfifo(root / "src/pipe")
    return root


def test_listing_names_what_is_there(box: FolderSandbox, tree: Path) -> None:
    lines = text(list_files(box)).splitlines()
    assert lines[:3] == [".git/", "a.py (20 bytes)", "binary (6 bytes)"]
    assert {
        "link -> src",
        "out -> /etc",
        "node_modules/",
        "src/",
        "src/cart.py (30 bytes)",
        "src/deep/",
    } <= set(lines)
    assert not any(
        line.startswith(("link/", "out/", "node_modules/m", "src/deep/er")) for line in lines
    )
    assert "node_modules/m/" in text(list_files(box, "node_modules"))
    assert text(list_files(box, limit=2)).endswith("(up to 5,000)]")
    with pytest.raises(NoSuchFile):
        list_files(box, "a.py")


def test_searching_finds_lines(box: FolderSandbox, tree: Path) -> None:
    found = text(search_files("total", box)).splitlines()
    assert found == [
        "src/cart.py:1: def total(cart):",
        "src/deep/er/x.txt:1: total eclipse",
        "[2 matches in 4 files searched]",
    ]
    assert (
        "a.py:2: TOTAL = 1"
        in text(search_files("total$|^total =", box, ignore_case=True)).splitlines()
    )
    assert (
        text(search_files("eclipse$", box, glob="src/**/*.txt", context=1)).splitlines()[1]
        == "src/deep/er/x.txt:2- of the heart"
    )
    assert text(search_files("total", box, "node_modules")).startswith(
        "node_modules/m/x.js:1: total"
    )
    assert text(search_files("total", box, "src/cart.py")).startswith("src/cart.py:1:")
    assert text(search_files("nothing here", box)) == "[0 matches in 4 files searched]"


def test_searching_is_bounded(box: FolderSandbox, root: Path) -> None:
    (root / "many").write_text("match\n" * 5_000)
    (root / "wide").write_text("match" + "x" * 100_000)
    (root / "huge").write_bytes(b"match\n" * (2 << 20))
    result = search_files("match", box, limit=10)
    assert "there may be more" in text(result) and result_delta(result)["matches"] == 10
    assert "more characters]" in text(search_files("match", box, "wide"))
    assert len(text(search_files("match", box, limit=1000, context=5))) <= SHOWN_MAX + 500
    assert "too long to search: huge" in text(search_files("nothing", box))


def test_a_catastrophic_expression_is_ended(
    box: FolderSandbox, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.tools.search._TIME_S", 1.0)
    (root / "x").write_text("a" * 5_000 + "!\n")
    with pytest.raises(InvalidValue, match="it took more than 1 s in x"):
        search_files("(a+)+$", box)


def test_wrong_expressions_are_named(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text("a\n")
    for pattern in ("(", "a{1000000000000}", "[z-a]", "(?P<x>a)(?P<x>b)"):
        with pytest.raises(InvalidValue, match="no regular expression"):
            search_files(pattern, box)


def test_the_child_that_searches_is_ended_and_knows_nothing(
    box: FolderSandbox, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    given: list[Any] = []
    popen = subprocess.Popen

    def noted(*args: Any, **more: Any) -> Any:
        given.append(more["env"])
        made.append(popen(*args, **more))
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    (root / "x").write_text("a\n")
    search_files("a", box)
    with pytest.raises(InvalidValue):
        search_files("(", box)
    assert given == [{}, {}] and all(child.poll() is not None for child in made)


@pytest.mark.parametrize(
    ("path", "glob", "fits"),
    [
        ("src/a.py", "*.py", True),
        ("src/a.py", "src/*.py", True),
        ("src/b/a.py", "src/*.py", False),
        ("src/b/a.py", "src/**/*.py", True),
        ("src/a.py", "src/**/*.py", True),
        ("src/a.py", "**/a.py", True),
        ("a.pyc", "*.py", False),
        ("/".join("a" * 60), "/".join(["**"] * 30) + "/b", False),
    ],
)
def test_globs(path: str, glob: str, fits: bool) -> None:
    assert matches_glob(path, glob) is fits
