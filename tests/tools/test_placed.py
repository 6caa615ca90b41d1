"""The tools where they are meant to run: in a placed session, on every rung that this machine
offers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall
from plait.errors import ToolFailed
from plait.event import kinds as k
from plait.sandbox import backend
from plait.tools import (
    FILES,
    apply_patch,
    edit_file,
    list_files,
    python,
    read_file,
    search_files,
    shell,
    write_file,
)
from tests.support import filled_folder

RUNGS = [
    each.name
    for each in backend("local").probe().capabilities
    if each.name in ("overlay", "bubblewrap", "landlock", "host") and each.offered
]


@pytest.fixture(params=RUNGS)
def placed(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    repo = filled_folder(tmp_path / "repo", {"cart.py": "def total(cart):\n    return 0\n"})
    (tmp_path / "outside").write_text("canary\n")
    return Session("Fix it.", store=tmp_path / "store").to("local", repo, isolation=request.param)


def outcome(session: Session) -> Any:
    return session.events.where(k.ToolReturned)[-1].body


def refused(session: Session, tool: Any, **arguments: Any) -> str:
    """The kind of error that a call is recorded with."""
    with pytest.raises(ToolFailed) as caught:
        session.reload().use(tool, **arguments)
    return caught.value.kind


def test_files_are_read_written_edited_and_found(placed: Session) -> None:
    assert placed.use(read_file, path="cart.py").result == "def total(cart):\n    return 0\n"
    session = placed.reload().use(write_file, path="src/new.py", content="x = 1\n")
    assert outcome(session).delta["created"] is True and outcome(session).trees.changed == (
        "src",
        "src/new.py",
    )
    session = session.use(edit_file, path="cart.py", old="return 0", new="return sum(cart)")
    assert "+    return sum(cart)" in session.result
    session = session.use(
        apply_patch,
        patch=(
            "*** Begin Patch\n*** Update File: src/new.py\n*** Move to: src/old.py\n-x = 1\n+x ="
            " 2\n*** End Patch"
        ),
    )
    assert session.use(list_files).result.splitlines() == [
        "cart.py (38 bytes)",
        "src/",
        "src/old.py (6 bytes)",
    ]
    session = session.reload().use(search_files, pattern=r"sum\(|x = \d")
    assert session.result.splitlines()[:2] == [
        "cart.py:2:     return sum(cart)",
        "src/old.py:1: x = 2",
    ]
    assert (
        session.use(shell, command="cat cart.py src/old.py").result
        == "def total(cart):\n    return sum(cart)\nx = 2\n"
    )


def test_commands_say_how_they_ended(placed: Session) -> None:
    session = placed.use(shell, command="seq 1 100000; echo err >&2; exit 7")
    body = outcome(session)
    assert body.exit_code == 7 and body.placement.rung in RUNGS
    (file,) = body.kept
    assert session.result.endswith("err\n[exit code 7]") and file.name == "shell-output.txt"
    assert (
        session.files.blob(file.blob)
        == "".join(f"{n}\n" for n in range(1, 100_001)).encode() + b"err\n"
    )
    session = session.use(python, code="open('made', 'w').write('é'); print(1 / 0)")
    assert (
        "ZeroDivisionError" in session.result
        and outcome(session).trees.changed == ("made",)
        and outcome(session).exit_code == 1
    )
    session = session.use(shell, command="echo before; sleep 60", timeout_s=0.5)
    assert session.result.startswith(
        "before\n[ended before it was done: it ran longer than 0.5 s (limit: time)"
    )


def test_what_commands_leave_behind_is_no_way_out(placed: Session, tmp_path: Path) -> None:
    out = tmp_path / "outside"
    made = (
        f"ln -s {out} link; ln -s {tmp_path} folder; ln -s loop loop; mkfifo pipe; ln -s pipe"
        " to-pipe; mkdir d; ln -s ../.. d/up"
    )
    session = placed.use(shell, command=made)
    for path in (
        "link",
        "folder/outside",
        "d/up/outside",
        "../outside",
        str(out),
        "loop",
        "pipe",
        "to-pipe",
        "d",
        "x" * 5_000,
        "a\0b",
    ):
        assert refused(session, read_file, path=path) in (
            "OutsideWorkspace",
            "NotAFile",
            "NoSuchFile",
            "InvalidValue",
        ), path
        if path not in ("loop",):
            assert refused(session, edit_file, path=path, old="canary", new="x"), path
    for path in ("folder/new", "d/up/new", "../new", "folder/outside"):
        assert refused(session, write_file, path=path, content="x") == "OutsideWorkspace", path
        assert refused(
            session, apply_patch, patch=f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
        ), path
    session = session.reload().use(search_files, pattern="canary")
    assert "0 matches" in session.result
    assert f"link -> {out}" in session.reload().use(list_files).result
    assert out.read_text() == "canary\n" and not (tmp_path / "new").exists()


def test_the_class_of_a_command_is_by_where_it_runs(placed: Session, tmp_path: Path) -> None:
    session = placed.use(shell, command="true")
    reaches_out = outcome(session).placement.network != "off"
    assert session.effects[-1].effect == ("at_most_once" if reaches_out else "workspace")


def test_in_place_nothing_is_undone(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    session = (
        Session("x", store=tmp_path / "store")
        .to("local", tmp_path / "repo", in_place=True)
        .use(shell, command="echo 1 > x")
    )
    assert (
        session.effects[-1].effect == "at_most_once"
        and (tmp_path / "repo" / "x").read_text() == "1\n"
    )


def test_a_scripted_agent_fixes_a_file(placed: Session) -> None:
    script = [
        ToolCall("read_file", path="cart.py"),
        ToolCall("edit_file", path="cart.py", old="return 1", new="return sum(cart)"),
        ToolCall("edit_file", path="cart.py", old="return 0", new="return sum(cart)"),
        ToolCall(
            "python", code="from cart import total\nassert total([1, 2]) == 3\nprint('passed')"
        ),
        "Done.",
    ]
    session = Agent("Fix.", model=ScriptedModel(script), tools=[*FILES, python])(placed)
    kinds = [effect.failure.kind if effect.failure else effect.result for effect in session.effects]
    assert kinds[0].startswith("def total") and kinds[1] == "EditRefused" and kinds[3] == "passed\n"
    assert session.text == "Done."
