"""What errors say to somebody who meets them for the first time: whole sentences, and what is in
dispute itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.cli.choices import side_lines
from plait.errors import MergeConflict, ModelFailed, NotAFile, NotApplied, ToolFailed
from plait.session import ABSENT
from tests.cli.field import Field
from tests.cli.shell import Shell, shell

__all__ = ["shell"]

HEAD = '"""The cart."""\n\n'


# ── errors ───────────────────────────────────────────────────────────────────────────────────


def test_a_conflict_names_the_next_step_of_its_caller() -> None:
    sides = {"verdict": {"strict": "reject", "lenient": "clamp"}}
    assert str(MergeConflict("abc", sides)).endswith(
        "choose with resolve={'verdict': value}, or merge --resolve KEY=VALUE in the shell."
    )
    error = MergeConflict("abc", sides, step="choose as you like")
    assert (
        str(error).endswith("Nothing was written; choose as you like.")
        and error.step == "choose as you like"
    )


def test_a_conflict_quotes_what_differs() -> None:
    said = str(
        MergeConflict(
            "abc",
            {
                "cart.py": {"a": f"{HEAD}x = 1\n", "b": f"{HEAD}x = 2\n"},
                "k": {"a": "x", "b": ABSENT},
            },
        )
    )
    assert r"'cart.py': a says 'x = 1\n', b says 'x = 2\n'; 'k': a says 'x', b says" in said


@pytest.mark.parametrize(
    "error",
    [
        ToolFailed("t", "K", "it broke. "),
        ModelFailed("m", "K", "it broke.", 1),
        ToolFailed("t", "K", "it broke"),
    ],
)
def test_a_sentence_ends_once(error: Exception) -> None:
    assert "it broke. It is recorded" in str(error)


def test_files_that_cannot_be_written_anywhere() -> None:
    error = NotApplied("out", "something is in it already", "name an empty folder")
    assert (
        str(error)
        == "cannot write the files to 'out': something is in it already. Name an empty folder."
    )
    assert (
        str(NotApplied("out", "no.", "try again."))
        == "cannot write the files to 'out': no. Try again."
    )


def test_the_workspace_itself_has_a_name() -> None:
    assert str(NotAFile("", "a folder")).startswith("'.' is a folder")


# ── conflicts of files ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sides", "told"),
    [
        (
            {"a": f"{HEAD}x = 1\nend\n", "bc": f"{HEAD}x = 2\nend\n"},
            ["    a   3: x = 1", "    bc  3: x = 2"],
        ),
        (
            {"a": "one\ntwo\n", "b": "one\n"},
            ["    a  2: two", "    b  (has nothing there, at line 2)"],
        ),
        ({"a": "x\n", "b": ABSENT}, ["    a  x", "    b  (gone)"]),
        (
            {"a": "same\nlines\n", "b": ABSENT},
            ["    a  1: same", "       2: lines", "    b  (gone)"],
        ),
        ({"a": "x", "b": ""}, ["    a  x", "    b  (empty)"]),
        # what cannot be seen is told, too
        ({"a": "x\r\n", "b": "x\n"}, ["    a  x\\u000d", "    b  x"]),
        (
            {"a": "1\n2\n3\n4\n5\n", "b": "\x1b[2J\n"},
            [
                "    a  1: 1",
                "       2: 2",
                "       3: 3",
                "       … 2 more lines",
                "    b  1: \\u001b[2J",
            ],
        ),
        (
            {"a": "z" * 500 + "1", "b": "z" * 500 + "2"},
            [f"    {side}  …{'z' * 20}{end}" for side, end in (("a", 1), ("b", 2))],
        ),
    ],
)
def test_a_conflict_shows_the_lines_that_differ(sides: dict[str, object], told: list[str]) -> None:
    assert side_lines(sides) == told


def test_merge_shows_how_branches_differ(shell: Shell) -> None:
    field, name = Field(shell), shell.new("branches")
    field.place(name, field.plant({"cart.py": f"{HEAD}x = 0\n"}))
    for label in ("left", "right"):
        shell("fork", name, label)
        field.work(label, "edit_file", field.plant({"cart.py": f"{HEAD}x = '{label}'\n"}))
    said = shell.error(8, "merge", "left", "right")
    assert (
        "    left   3: x = 'left'\n    right  3: x = 'right'\n" in said
        and "\n  plait diff left right --files\n" in said
    )
    assert "+x = 'right'" in shell("diff", "left", "right", "--files")


def test_a_full_folder_is_not_checked_out_to(shell: Shell, tmp_path: Path) -> None:
    field, name = Field(shell), shell.new("files")
    field.place(name, field.plant({"a": "a\n"}))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    said = shell.error(1, "checkout", name, "full")
    assert (
        "cannot write the files to 'full': something is in it already. Name an empty folder" in said
    )
