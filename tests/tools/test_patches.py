"""Patches: whatever git or diff writes applies here as it does there, and what does not fit is
refused whole.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait.errors import EditRefused, InvalidValue, PlaitError
from plait.tools import apply_patch
from plait.tools.hunks import apply_hunks
from plait.tools.patch import FilePatch, parse_patch
from plait.tools.text import unified_diff
from tests.support import result_delta
from tests.tools.folder_sandbox import FolderSandbox

LINES = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "",
        " ",
        "  x",
        "é",
        "\r",
        "--- a/x",
        "+++ b/x",
        "@@ -1 +1 @@",
        "-",
        "+",
        "diff --git a/x b/x",
        "\\ No",
    ]
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    lines = draw(st.lists(LINES, max_size=30))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n"])) if lines else ""


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str]:
    """A text and another one that has some lines in common with it."""
    before = draw(texts())
    lines = before.split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 3))] = draw(st.lists(LINES, max_size=3))
    return before, "\n".join(lines)


def applied(before: str, patch: str) -> str:
    (part,) = parse_patch(patch)
    return apply_hunks("x", before, part.hunks)


@given(edits(), st.integers(0, 5))
@example(("\r\n", "a\n\r\n"), 0)
@example(("a\r\nb", "a\r\nx\nb"), 0)
def test_our_own_difference_gives_the_target(pair: tuple[str, str], context: int) -> None:
    before, after = pair
    if before != after:
        assert applied(before, unified_diff("x", before, after, context)) == after


def run(folder: Path, *command: str, stdin: bytes = b"", ok: tuple[int, ...] = (0,)) -> bytes:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        command, cwd=folder, input=stdin, capture_output=True, env=env, timeout=60
    )
    assert done.returncode in ok, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("patches")


@given(edits())
def test_what_git_and_diff_write_gives_the_target(scratch: Path, pair: tuple[str, str]) -> None:
    before, after = pair
    if before == after:
        return
    (scratch / "old").write_bytes(before.encode())
    (scratch / "new").write_bytes(after.encode())
    by_git = run(
        scratch, "git", "diff", "--no-index", "--no-color", "--text", "old", "new", ok=(1,)
    ).decode()
    by_diff = run(scratch, "diff", "-u", "--text", "old", "new", ok=(1,)).decode()
    assert applied(before, by_git) == after and applied(before, by_diff) == after


@given(edits())
def test_git_applies_what_we_write(scratch: Path, pair: tuple[str, str]) -> None:
    before, after = pair
    if before == after:
        return
    (scratch / "x").write_bytes(before.encode())
    run(
        scratch,
        "git",
        "apply",
        "--whitespace=nowarn",
        "-",
        stdin=unified_diff("x", before, after).encode(),
    )
    assert (scratch / "x").read_bytes().decode() == after


@given(edits(), texts())
def test_a_patch_for_another_text_gives_what_git_gives_or_is_refused(
    scratch: Path, pair: tuple[str, str], other: str
) -> None:
    """The oracle is git: where we apply, either git does the same, or it refuses because it is
    stricter about the ends of a file.
    """
    before, after = pair
    if before == after:
        return
    patch = unified_diff("x", before, after)
    (scratch / "x").write_bytes(other.encode())
    try:
        ours = applied(other, patch)
    except EditRefused:
        return
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        cwd=scratch,
        input=patch.encode(),
        capture_output=True,
        env=env,
    )
    if done.returncode == 0:
        assert (scratch / "x").read_bytes().decode() == ours


few = settings(max_examples=20)  # each makes a repository
NAMES = st.sampled_from(
    ["a", "b c", "d/e", "d/é", 'q"q', "tab\there", "back\\slash", "d/f/g", " lead"]
)


@few
@given(
    st.dictionaries(NAMES, st.tuples(texts(), st.booleans()), max_size=5),
    st.dictionaries(NAMES, st.tuples(texts(), st.booleans()), max_size=5),
)
def test_a_difference_of_two_folders_as_git_writes_it_leads_from_one_to_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    old: dict[str, tuple[str, bool]],
    new: dict[str, tuple[str, bool]],
) -> None:
    base = tmp_path_factory.mktemp("folders")
    (base / "aside").mkdir()
    repo = base / "repo"
    repo.mkdir()
    run(repo, "git", "init", "-q")
    trees = [_tree(repo, files) for files in (old, new)]
    patch = run(repo, "git", "diff", "--no-color", "--text", "-M50%", *trees).decode()
    work = base / "work"
    work.mkdir()
    _fill(work, old)
    if patch:
        apply_patch(patch, FolderSandbox(work, base / "aside"))
    assert _files(work) == {
        name: (text, 0o755 if executable else 0o644) for name, (text, executable) in new.items()
    }


def _fill(folder: Path, files: dict[str, tuple[str, bool]]) -> None:
    for name, (text, executable) in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
        (folder / name).chmod(0o755 if executable else 0o644)


def _tree(repo: Path, files: dict[str, tuple[str, bool]]) -> str:
    for path in repo.iterdir():
        if path.name != ".git":
            run(repo, "rm", "-rf", path.name)
    _fill(repo, files)
    run(repo, "git", "-c", "core.autocrlf=false", "add", "-A")
    return run(repo, "git", "write-tree").decode().strip()


def _files(folder: Path) -> dict[str, tuple[str, int]]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): (path.read_bytes().decode(), path.stat().st_mode & 0o777)
        for path in paths
    }


@given(
    st.lists(
        st.one_of(
            LINES,
            st.sampled_from(
                [
                    "*** Begin Patch",
                    "*** Update File: x",
                    "*** End Patch",
                    "*** Add File: ../y",
                    "@@",
                ]
            ),
        ),
        max_size=25,
    )
)
def test_whatever_is_parsed_is_parsed_or_refused(lines: list[str]) -> None:
    try:
        assert all(isinstance(part, FilePatch) for part in parse_patch("\n".join(lines)))
    except InvalidValue as error:
        assert error.where == "patch"


# ── the tool ─────────────────────────────────────────────────────────────────────────────────

CODE = "def one():\n    return 1\n\n\ndef two():\n    return 2\n\n\ndef three():\n    return 3\n"


def begin(body: str) -> str:
    return f"*** Begin Patch\n{body}\n*** End Patch\n"


def test_the_form_without_numbers(box: FolderSandbox, root: Path) -> None:
    (root / "x.py").write_text(CODE)
    (root / "gone").write_text("bye\n")
    result = apply_patch(
        begin(
            "*** Update File: x.py\n*** Move to: src/y.py\n@@ def two():\n-    return 2\n+   "
            " return 22\n@@\n def three():\n-    return 3\n+    return 33\n*** End of File\n*** Add"
            " File: new/file.txt\n+hello\n+\n+world\n*** Delete File: gone"
        ),
        box,
    )
    assert (root / "src/y.py").read_text() == CODE.replace("2\n", "22\n").replace("3\n", "33\n")
    assert (
        (root / "new/file.txt").read_text() == "hello\n\nworld\n"
        and not (root / "x.py").exists()
        and not (root / "gone").exists()
    )
    assert result_delta(result)["changed"] == ["gone", "new/file.txt", "src/y.py", "x.py"]
    assert (
        result_delta(result)["renamed"] == [{"from": "x.py", "to": "src/y.py", "copied": False}]
        and "+hello" in result_delta(result)["diff"]
    )


def test_numbers_may_be_off_if_the_lines_are_there_once(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text("".join(f"{n}\n" for n in range(50)))
    apply_patch("--- a/x\n+++ b/x\n@@ -3,3 +3,3 @@\n 29\n-30\n+thirty\n 31\n", box)
    assert (root / "x").read_text().splitlines()[30] == "thirty"


def test_hunks_without_numbers_in_a_diff(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text(CODE)
    apply_patch("--- a/x\n+++ b/x\n@@\n def two():\n-    return 2\n+    return 22\n", box)
    assert "return 22" in (root / "x").read_text()


def test_a_missing_line_feed_at_the_end_stays_missing(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text("a\nb")
    apply_patch(begin("*** Update File: x\n a\n-b\n+c"), box)
    assert (root / "x").read_text() == "a\nc"
    apply_patch(
        "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-c\n\\ No newline at end of file\n+c\n", box
    )
    assert (root / "x").read_text() == "a\nc\n"


def test_windows_lines_stay(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_bytes(b"a\r\nb\r\nc\r\n")
    apply_patch("--- a/x\n+++ b/x\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n+BB\n c\n", box)
    assert (root / "x").read_bytes() == b"a\r\nB\r\nBB\r\nc\r\n"


def test_lines_added_by_name_get_the_ends_of_the_file(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_bytes(b"a\r\nb\r\n")
    apply_patch(begin("*** Update File: x\n@@ a\n+new"), box)
    assert (root / "x").read_bytes() == b"a\r\nnew\r\nb\r\n"


def test_modes(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text("a\n")
    result = apply_patch("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", box)
    assert (root / "x").stat().st_mode & 0o777 == 0o755 and result_delta(result)["modes"] == {
        "x": "755"
    }


def test_two_files_change_names(box: FolderSandbox, root: Path) -> None:
    (root / "a").write_text("A\n")
    (root / "b").write_text("B\n")
    swap = "".join(
        f"diff --git a/{x} b/{y}\nsimilarity index 100%\nrename from {x}\nrename to {y}\n"
        for x, y in ("ab", "ba")
    )
    apply_patch(swap, box)
    assert (root / "a").read_text() == "B\n" and (root / "b").read_text() == "A\n"


def test_a_file_named_twice_is_changed_twice(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text(CODE)
    apply_patch(
        begin(
            "*** Update File: x\n-    return 1\n+    return 11\n*** Update File: x\n-    return"
            " 11\n+    return 111"
        ),
        box,
    )
    assert "return 111" in (root / "x").read_text()


GOOD = "*** Update File: good\n-a\n+b\n"
REFUSED = {
    "no such file": (begin(GOOD + "*** Update File: missing\n-a\n+b"), "there is no such file"),
    "not there": (
        begin(GOOD + "*** Update File: x\n-    return 9\n+    return 8"),
        "hunk 1 of 1: it does not fit",
    ),
    "several": (begin(GOOD + "*** Update File: x\n \n+new"), "stand at 4 places"),
    "applied already": (
        begin(GOOD + "*** Update File: x\n def two():\n-    return zwei\n+    return 2"),
        "applied already",
    ),
    "white space": (
        begin(GOOD + "*** Update File: x\n-\treturn 1\n+\treturn 2"),
        "it does not fit",
    ),
    "no anchor": (
        begin(GOOD + "*** Update File: x\n@@ def four():\n-    return 1\n+    return 2"),
        "no line 'def four\\(\\):'",
    ),
    "before its anchor": (
        begin(GOOD + "*** Update File: x\n@@ def three():\n-    return 1\n+    return 2"),
        "it does not fit",
    ),
    "second hunk": (
        begin(
            "*** Update File: x\n-    return 1\n+    return 11\n@@\n-    return 9\n+    return 8"
        ),
        "hunk 2 of 2",
    ),
    "out of order": (
        begin(
            "*** Update File: x\n-    return 3\n+    return 11\n@@\n-    return 1\n+    return 8"
        ),
        "hunk 2 of 2",
    ),
    "already there": (begin(GOOD + "*** Add File: x\n+new"), "of that name already"),
    "rename onto another": (
        begin("*** Update File: good\n*** Move to: x\n-a\n+b"),
        "of that name already",
    ),
    "not all goes": (
        "--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-def one():\n-    return 1\n",
        "more lines than the patch removes",
    ),
    "below a file": (begin("*** Add File: x/y\n+new"), "is a file, not a folder|no such|below"),
    "a file below a new one": (
        begin("*** Add File: n\n+new\n*** Add File: n/m\n+new"),
        "is a file, not a folder",
    ),
    "binary": (begin(GOOD + "*** Update File: bin\n-a\n+b"), "no UTF-8 text"),
    "a folder": (begin(GOOD + "*** Update File: folder\n-a\n+b"), "it is a folder"),
    "a link": (begin(GOOD + "*** Update File: link\n-a\n+b"), "it is a link"),
    "outside": (begin(GOOD + "*** Add File: ../evil\n+x"), "not in the workspace"),
    "beyond the end": ("--- a/x\n+++ b/x\n@@ -99,0 +100 @@\n+x\n", "there are 10"),
    "counts too high": (
        "--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n def one():\n-    return 1\n+    return 2\n",
        "lacks",
    ),
    "counts too low": (
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n def one():\n-    return 1\n+    return 2\n",
        "more lines than it says",
    ),
    "a link is made": (
        (
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1"
            " @@\n+/etc/passwd\n"
        ),
        "not links",
    ),
    "git's binary": (
        "diff --git a/b b/b\nindex 1..2\nGIT binary patch\nliteral 1\n",
        "binary file",
    ),
    "nothing": ("", "no file in it"),
    "prose": ("please change x", "no file in it"),
    "hunk alone": ("@@ -1 +1 @@\n-a\n+b\n", "without the name"),
    "an odd line": (begin("*** Update File: x\n-    return 1\nreturn 2"), "begins with a space"),
    "numbers of words": ("--- a/x\n+++ b/x\n@@ -one +two @@\n-a\n", "no head of a hunk"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_whole(box: FolderSandbox, root: Path, name: str) -> None:
    (root / "x").write_text(CODE)
    (root / "good").write_text("a\n")
    (root / "bin").write_bytes(b"a\0")
    (root / "folder").mkdir()
    (root / "link").symlink_to("x")
    before = _files(root)
    patch, words = REFUSED[name]
    with pytest.raises(PlaitError, match=words):
        apply_patch(patch, box)
    assert _files(root) == before and not (root.parent / "evil").exists()


def test_a_refusal_shows_the_lines_that_are_there(box: FolderSandbox, root: Path) -> None:
    (root / "x").write_text(CODE)
    with pytest.raises(EditRefused) as caught:
        apply_patch(
            "--- a/x\n+++ b/x\n@@ -5,2 +5,2 @@\n def two():\n-    return zwei\n+    return 22\n",
            box,
        )
    told = str(caught.value)
    assert (
        "expected '    return zwei' at line 6" in told
        and "5\tdef two():\n6\t    return 2\n" in told
    )


def test_what_was_written_is_taken_back_if_the_disk_refuses(
    box: FolderSandbox, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (root / name).write_text(f"{name}\n")
    before, write = _files(root), box.files.write

    def full(path: str, content: bytes, *, mode: int | None = None) -> None:
        if path == "c" and content == b"C\n":
            raise OSError("no space left")
        write(path, content, mode=mode)

    monkeypatch.setattr(box.files, "write", full)
    with pytest.raises(OSError, match="no space"):
        apply_patch(
            begin(
                "*** Delete File: a\n*** Update File: b\n-b\n+B\n*** Add File: d\n+d\n*** Update"
                " File: c\n-c\n+C"
            ),
            box,
        )
    assert _files(root) == before
