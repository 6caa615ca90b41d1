from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from plait.ids import Digest
from plait.workspace import NewEntry, TreeEntry
from plait.workspace.changes import Changes
from plait.workspace.diff import Stat, changes, renames, stat_lines
from plait.workspace.git_patch import patch_text, quoted_path
from plait.workspace.tree import EMPTY, TreeReader, encode
from tests.planting import FOLDER, Blobs, Content, check_out, found_in, git
from tests.support import count_calls

Files = dict[str, Content]


def executable(text: str) -> NewEntry:
    return NewEntry("file", 0o755, text.encode())


def link(target: str) -> NewEntry:
    return NewEntry("link", 0o777, target=target)


def between(left: Files, right: Files) -> Changes:
    blobs = Blobs()
    return Changes(blobs, blobs.plant(left), blobs.plant(right))


def changed_kinds(left: Files, right: Files) -> list[tuple[str, str | None, str | None]]:
    return [
        (each.path, each.before and each.before.kind, each.after and each.after.kind)
        for each in between(left, right)
    ]


# ── paths ────────────────────────────────────────────────────────────────────────────────────


def test_what_came_went_and_changed() -> None:
    left: Files = {"same": "1", "gone": "2", "edited": "3", "src/deep/er": "4"}
    right: Files = {"same": "1", "come": "5", "edited": "6", "src/deep/er": "7"}
    assert changed_kinds(left, right) == [
        ("come", None, "file"),
        ("edited", "file", "file"),
        ("gone", "file", None),
        ("src/deep/er", "file", "file"),
    ]


def test_a_folder_of_one_side_is_told_by_what_is_in_it() -> None:
    assert changed_kinds({}, {"a/b/c": "1", "a/e": FOLDER}) == [
        ("a/b/c", None, "file"),
        ("a/e", None, "folder"),
    ]
    assert changed_kinds({"a/b/c": "1", "a/e": FOLDER}, {}) == [
        ("a/b/c", "file", None),
        ("a/e", "folder", None),
    ]


def test_a_mode_is_a_change_of_files_and_of_folders() -> None:
    assert changed_kinds({"run": "1"}, {"run": executable("1")}) == [("run", "file", "file")]
    assert changed_kinds({"d/x": "1"}, {"d": NewEntry("folder", 0o700), "d/x": "1"}) == [
        ("d", "folder", "folder")
    ]


def test_a_folder_that_was_emptied_is_not_one_that_went() -> None:
    assert changed_kinds({"d/x": "1"}, {"d": FOLDER}) == [
        ("d", "folder", "folder"),
        ("d/x", "file", None),
    ]
    assert changed_kinds({"d/x": "1"}, {}) == [("d/x", "file", None)]


def test_a_file_became_a_folder() -> None:
    assert changed_kinds({"d": "1"}, {"d/x": "1"}) == [("d", "file", None), ("d/x", None, "file")]
    assert changed_kinds({"d": "1"}, {"d": FOLDER}) == [("d", "file", "folder")]
    assert changed_kinds({"d": "1"}, {"d": link("x")}) == [("d", "file", "link")]


def test_no_tree_is_a_tree_with_nothing_in_it() -> None:
    blobs = Blobs()
    tree = blobs.plant({"a": "1"})
    assert [each.path for each in changes(blobs, None, tree)] == ["a"]
    assert changes(blobs, None, EMPTY) == changes(blobs, tree, tree) == []
    assert not Changes(blobs, None, EMPTY)


def test_what_is_the_same_is_not_looked_at() -> None:
    blobs = Blobs()
    files: Files = {f"d{i}/f{j}": f"{i} {j}" for i in range(50) for j in range(5)}
    left, right = blobs.plant(files), blobs.plant({**files, "d7/f3": "another"})
    blobs.asked = 0
    assert [each.path for each in changes(blobs, left, right)] == ["d7/f3"]
    assert blobs.asked == 4  # both roots, both d7


def test_renames_pair_equal_content_and_prefer_the_same_name() -> None:
    found = between(
        {"a": "1", "b": "1", "x/c": "2", "e": ""}, {"new": "1", "y/b": "1", "y/c": "2", "f": ""}
    )
    assert [(pair.removed.path, pair.added.path) for pair in renames(found)] == [
        ("a", "new"),
        ("b", "y/b"),
        ("x/c", "y/c"),
    ]


def test_ten_changes_among_fifty_thousand_files() -> None:
    blobs = Blobs()
    files: Files = {f"d{i % 500}/f{i}": f"{i}" for i in range(50_000)}
    left = blobs.plant(files)
    right = blobs.plant({**files, **{f"d{i * 50}/f{i * 50}": "new" for i in range(10)}})
    reader = TreeReader(blobs)
    assert len(changes(reader, left, right)) == 10
    assert count_calls(lambda: changes(reader, left, right)) < 10_000, "it looks at every file"


# ── the value ────────────────────────────────────────────────────────────────────────────────


def test_the_summary() -> None:
    left: Files = {
        "gone": "1\n2\n",
        "edited": "1\n2\n3\n",
        "old": "moved\n",
        "run": "x\n",
        "pic": b"\0\1",
        "l": "to\n",
    }
    right: Files = {
        "come": "1\n",
        "edited": "1\nzwei\ndrei\n3\n",
        "sub/new": "moved\n",
        "run": executable("x\n"),
        "pic": b"\0\2",
        "l": link("to"),
        "e": FOLDER,
        "a\nb": "",
    }
    found = between(left, right)
    assert str(found).split("\n") == [
        'A "a\\nb"',
        "A come +1 −0",
        "A e/",
        "M edited +2 −1",
        "D gone +0 −2",
        "M l (file → link) +1 −1",
        "M pic (no text)",
        "M run (644 → 755)",
        "R old → sub/new",
    ]
    assert found.added_paths == ("a\nb", "come", "e")
    assert found.removed_paths == ("gone",)
    assert found.changed_paths == ("edited", "l", "pic", "run")
    assert found.renamed_paths == {"old": "sub/new"}
    assert len(found) == len(found.paths) == len(list(found)) == 10
    assert found and "pic" in found and "same" not in found


def test_a_long_summary_ends() -> None:
    lines = between({}, {f"{i:04}": "x" for i in range(300)}).lines(most=20)
    assert len(lines) == 21 and lines[-1] == "… and 280 more"


def test_lines_are_counted() -> None:
    blobs = Blobs()
    left, right = (
        blobs.plant({"a": "1\n2\n", "b": b"\0", "long": "x" * 100}),
        blobs.plant({"a": "2\n3\n4\n", "b": b"1", "long": "y"}),
    )
    found = changes(blobs, left, right)
    assert stat_lines(blobs, found, size_max=50) == [
        Stat("a", 2, 1),
        Stat("b", None, None),
        Stat("long", None, None),
    ]


# ── patches ──────────────────────────────────────────────────────────────────────────────────

CASES: dict[str, tuple[Files, Files]] = {
    "edit": (
        {"a": "".join(f"{i}\n" for i in range(40))},
        {"a": "".join(f"{i}\n" for i in range(40) if i not in (3, 30)) + "end\n"},
    ),
    "new and gone": ({"gone": "1\n2\n", "d/x": "1\n"}, {"new": "1\n", "e/f/g": "deep\n"}),
    "empty files": ({"gone": "", "full": "1\n", "x": ""}, {"new": "", "full": "", "x": "1\n"}),
    "no newline": ({"a": "1\n2", "b": "1\n", "c": "1"}, {"a": "1\n3", "b": "1", "c": "1\n"}),
    "carriage returns": ({"a": "1\r\n2\r\n3\r"}, {"a": "1\r\nzwei\r\n3\r\n"}),
    "line separators": ({"a": "1\u20282\n\x0c\x85\n"}, {"a": "1\u20283\n\x0c\x85\n\u2029"}),
    "modes": (
        {"a": "1\n", "b": executable("1\n"), "c": "1\n"},
        {"a": executable("1\n"), "b": "2\n", "c": executable("2\n")},
    ),
    "new executable": ({}, {"run": executable("#!/bin/sh\n")}),
    "links": ({"l": link("a"), "gone": link("x")}, {"l": link("b"), "new": link("y z")}),
    "file and link": ({"a": "1\n", "b": link("x")}, {"a": link("1"), "b": "2\n"}),
    "renames": ({"a": "1\n", "b": "2\n"}, {"d/a": "1\n", "c": executable("2\n")}),
    "a swap": ({"a": "1\n", "b": "2\n"}, {"a": "2\n", "b": "1\n"}),
    "file to folder": ({"a": "1\n", "z": "1\n"}, {"a/x": "2\n", "z/y": "1\n"}),
    "folder to file": ({"a/x": "2\n", "a/b/y": "3\n"}, {"a": "4\n"}),
    "odd names": (
        {
            "a b": "1\n",
            'q"\\': "1\n",
            "tab\there": "1\n",
            "ünï": "1\n",
            "nl\nx": "1\n",
            " lead": "1\n",
            "sep\u2028": "1\n",
        },
        {
            "a b": "2\n",
            'q"\\': "2\n",
            "tab\there": "2\n",
            "ünï": "2\n",
            "nl\nx": "2\n",
            " lead": executable("1\n"),
            "sep\u2028": "2\n",
        },
    ),
    "odd bytes in names": (
        {os.fsdecode(b"\xff\xfe"): "1\n"},
        {os.fsdecode(b"\xff\xfe"): "2\n", os.fsdecode(b"new\x80 x"): "n\n"},
    ),
    "lines that look like headers": (
        {"a": "-- x\n++ y\n@@ z\n"},
        {"a": "-- x\n+++ b/y\ndiff --git a/a b/a\n@@ z\n"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_git_applies_it(case: str, tmp_path: Path) -> None:
    left, right = CASES[case]
    here, wanted = tmp_path / "here", tmp_path / "wanted"
    here.mkdir()
    wanted.mkdir()
    git(here, "init", "-q")
    check_out(left, here)
    check_out(right, wanted)
    git(here, "apply", "-", stdin=between(left, right).patch().encode())
    assert found_in(here) == found_in(wanted)


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
@pytest.mark.parametrize(
    "case",
    ["edit", "new and gone", "no newline", "modes", "new executable", "renames", "line separators"],
)
def test_patch_applies_it(case: str, tmp_path: Path) -> None:
    left, right = CASES[case]
    here, wanted = tmp_path / "here", tmp_path / "wanted"
    here.mkdir()
    wanted.mkdir()
    check_out(left, here)
    check_out(right, wanted)
    done = subprocess.run(
        ["patch", "-p1", "--binary"],
        cwd=here,
        input=between(left, right).patch().encode(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert found_in(here) == found_in(wanted)


def test_what_a_patch_cannot_say_does_not_keep_git_from_the_rest(tmp_path: Path) -> None:
    left: Files = {
        "bin": b"\0a",
        "long": "x\n" * 100,
        "run": "1\n",
        "t": "1\n",
        "latin": b"\xe4\n",
        "e": FOLDER,
        "zbin": b"\0",
    }
    right: Files = {
        "bin": b"\0b",
        "long": "y\n" * 100,
        "run": executable("1\n"),
        "t": "2\n",
        "latin": b"\xf6\n",
        "zbin": executable("\0\0"),
    }
    blobs = Blobs()
    found = changes(blobs, blobs.plant(left), blobs.plant(right))
    patch = patch_text(blobs, found, size_max=150)
    digest = found[0].before and found[0].before.blobs[0]
    assert (
        f"# Binary files a/bin and b/bin differ: 2 bytes (sha256 {digest}) became 2 bytes (sha256 "
        in patch
    )
    assert "# Files a/long and b/long differ, and are too long to be shown: 200 bytes" in patch
    assert "# Empty folder e/ removed" in patch
    check_out(left, tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "apply", "-", stdin=patch.encode())
    after = found_in(tmp_path)
    assert (
        after["t"] == ("file", b"2\n", False)
        and after["run"] == ("file", b"1\n", True)
        and after["bin"] == ("file", b"\0a", False)
    )


def test_a_withheld_file_is_told_and_not_read() -> None:
    blobs = Blobs()
    secret = TreeEntry(".env", "withheld", 0o600, 31, (Digest("4" * 64),))
    tree = blobs.put(encode([secret]))
    found = Changes(blobs, None, tree)
    assert str(found) == "A .env (withheld)"
    assert (
        found.patch()
        == "# Files /dev/null and b/.env differ, and a side that holds a secret was withheld:"
        " nothing became withheld\n"
    )


def test_a_patch_reads_as_git_writes_it(tmp_path: Path) -> None:
    lines = [f"line {i}\n" for i in range(30)]
    left, right = (
        {"a b": "".join(lines)},
        {"a b": "".join([*lines[:5], "new\n", *lines[5:20], *lines[22:]])},
    )
    git(tmp_path, "init", "-q")
    check_out(left, tmp_path)
    git(tmp_path, "add", "-A")
    check_out(right, tmp_path)
    theirs = git(tmp_path, "diff").stdout.decode().split("\n")
    theirs = [
        line.partition(" @@ ")[0] + " @@" if line.startswith("@@") else line
        for line in theirs
        if not line.startswith("index ")
    ]
    assert between({**left}, {**right}).patch().split("\n") == theirs


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ("plain name", "plain name"),
        ("übung", "übung"),
        ('a"b', '"a\\"b"'),
        ("a\tb", '"a\\tb"'),
        (os.fsdecode(b"\xff"), '"\\377"'),
        ("\x01", '"\\001"'),
    ],
)
def test_quoting(path: str, spelled: str) -> None:
    assert quoted_path(path) == spelled
