"""The desktop tools, with a real editor on an X server inside a real sandbox: what is typed there
ends up in a file of the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.errors import SandboxFailed
from plait.event.kinds import Placement
from plait.sandbox import Sandbox
from plait.tool import Result
from plait.tools import screen
from plait.tools.desktop import (
    desktop_click,
    desktop_key,
    desktop_screenshot,
    desktop_start,
    desktop_type,
)
from tests.support import result_text
from tests.tools.screens import PNG, gone, placed, require_desktop

IN_THE_TEXT = (300, 200)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    require_desktop("mousepad")
    with placed(tmp_path_factory.mktemp("desktop"), {"notes.txt": "old\n"}) as made:
        yield made


def picture(result: Result) -> bytes:
    assert result.parts[1].content.startswith(PNG)
    return result.parts[1].content


def test_a_text_is_typed_and_saved_to_the_workspace(sandbox: Sandbox) -> None:
    started = desktop_start("mousepad notes.txt", sandbox)
    assert "notes.txt - Mousepad" in result_text(started)
    steps = [started, desktop_click(*IN_THE_TEXT, sandbox), desktop_key("ctrl+a", sandbox)]
    steps += [
        desktop_type("Grüße żółw 你好,\n\tline {2} ~ 'end'", sandbox),
        desktop_key("ctrl+s", sandbox),
    ]
    assert len({picture(step) for step in steps}) > 2  # what was done can be seen
    assert steps[-1].delta == {
        "windows": ["/workspace/notes.txt - Mousepad"],
        "action": "press ctrl+s",
    }
    assert sandbox.files.read("notes.txt").decode() == "Grüße żółw 你好,\n\tline {2} ~ 'end'"
    assert "windows: none" in result_text(desktop_key("ctrl+q", sandbox))


def test_a_program_that_does_not_run_says_why(sandbox: Sandbox) -> None:
    failed = desktop_start("no-such-editor", sandbox)
    assert "'no-such-editor' ended with 127" in result_text(failed) and "not found" in result_text(
        failed
    )
    assert "no-such-editor" not in result_text(desktop_screenshot(sandbox))


def test_what_cannot_be_done_is_refused(sandbox: Sandbox) -> None:
    desktop_start("true", sandbox)
    with pytest.raises(SandboxFailed, match="not on the screen, which is 1024 wide and 768 high"):
        desktop_click(1024, 10, sandbox)
    with pytest.raises(SandboxFailed, match="No such key name 'nokey'"):
        desktop_key("nokey", sandbox)


@pytest.mark.slow
def test_it_ends_with_its_sandbox_and_is_said_to_be_gone(tmp_path: Path) -> None:
    require_desktop("mousepad")
    with placed(tmp_path, {}) as sandbox:
        with pytest.raises(SandboxFailed, match="start the program with desktop_start"):
            desktop_key("ctrl+s", sandbox)
        desktop_start("mousepad", sandbox)
        found = screen.find_screen(sandbox, "desktop")
        assert found is not None
    gone(found.pid)
    with pytest.raises(SandboxFailed, match="start the program with desktop_start"):
        desktop_screenshot(sandbox)


def test_the_class_is_that_of_commands() -> None:
    off, on = Placement("local", network="off"), Placement("local", network="on")
    in_place = Placement("local", network="off", detail={"in_place": True})
    for tool in (desktop_start, desktop_click, desktop_type, desktop_key):
        assert [tool.effect_in(each, {}) for each in (off, on, in_place, None)] == [
            "workspace",
            *["at_most_once"] * 3,
        ]
    assert desktop_screenshot.effect == "pure"
