"""Commands: a failure is a result, what is shown is bounded, and what is left out is kept."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from plait.errors import InvalidValue
from plait.event.kinds import File, Placement
from plait.tools import python, shell
from plait.tools.text import SHOWN_MAX
from tests.support import result_text
from tests.tools.folder_sandbox import HERE, FolderSandbox


def test_output_and_exit_code(box: FolderSandbox, root: Path) -> None:
    result = shell("echo out; echo err >&2; pwd; exit 3", box)
    assert result_text(result) == f"out\nerr\n{root}\n[exit code 3]" and result.exit_code == 3
    assert shell("true", box).parts == ["[no output; exit code 0]"]
    assert shell("printf x", box).parts == ["x"] and shell("printf 'é\\r\\n'", box).parts == [
        "é\r\n"
    ]
    assert shell("no-such-command-at-all", box).exit_code == 127


def test_it_is_bash_with_no_input(box: FolderSandbox) -> None:
    assert result_text(shell('a=(1 2 3); echo "${a[1]} $0"; cat; echo end', box)) == "2 bash\nend\n"


@pytest.mark.parametrize(
    "command", ["echo 'a b' \"c  d\" $'e\\tf'", "cat <<'X'\n$HOME `id`\nX", "echo --; echo -n y"]
)
def test_quotes_arrive_as_they_are(box: FolderSandbox, root: Path, command: str) -> None:
    bare = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=root).stdout
    assert result_text(shell(command, box)) == bare


def test_long_output_is_shown_in_part_and_kept_whole(box: FolderSandbox) -> None:
    result = shell("seq 1 200000; exit 1", box)
    shown, kept = result.parts
    assert (
        isinstance(kept, File)
        and box.kept[kept.blob] == "".join(f"{n}\n" for n in range(1, 200_001)).encode()
    )
    assert (
        shown.startswith("1\n2\n")
        and shown.endswith("200000\n[exit code 1]")
        and len(shown) < SHOWN_MAX + 200
    )
    assert isinstance(result.delta, dict) and result.delta["output_bytes"] == len(
        box.kept[kept.blob]
    )


def test_odd_bytes_are_kept(box: FolderSandbox) -> None:
    shown, kept = shell("printf 'a\\377b'", box).parts
    assert shown == "a\ufffdb" and box.kept[kept.blob] == b"a\xffb"


def test_what_takes_too_long_is_ended_and_says_by_which_limit(box: FolderSandbox) -> None:
    result = shell("echo before; sleep 60", box, timeout_s=0.3)
    assert result.exit_code == 137
    assert (
        result_text(result)
        == "before\n[ended before it was done: it ran longer than 0.3 s (limit: time); exit code"
        " 137]"
    )


@pytest.mark.parametrize("command", ["", "  ", "echo \0", "echo " + "x" * 200_000])
def test_commands_that_are_none(box: FolderSandbox, command: str) -> None:
    with pytest.raises(InvalidValue):
        shell(command, box)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf")])
def test_times_that_are_none(box: FolderSandbox, timeout_s: float) -> None:
    for run in (
        lambda: shell("true", box, timeout_s=timeout_s),
        lambda: python("1", box, timeout_s=timeout_s),
    ):
        with pytest.raises(InvalidValue):
            run()


def test_python_runs_a_program(box: FolderSandbox, root: Path) -> None:
    (root / "near.py").write_text("x = 'é'\n")
    program = (
        "import near, sys, pickle\nclass A: pass\npickle.loads(pickle.dumps(A()))\nprint(near.x,"
        " __name__, repr(sys.stdin.read()))"
    )
    assert result_text(python(program, box)) == "é __main__ ''\n"
    assert python("import sys; sys.exit(4)", box).exit_code == 4
    assert python("#" * 300_000 + "\nprint(1)", box).parts == ["1\n"]
    assert {path.name for path in root.iterdir()} <= {"near.py", "__pycache__"}


def test_a_traceback_shows_the_lines_of_the_code_and_nothing_else(box: FolderSandbox) -> None:
    result = python("def f():\n    return 1 / 0\n\nf()\n", box)
    assert result.exit_code == 1
    told = [
        line for line in result_text(result).splitlines() if "^" not in line and "~" not in line
    ]
    assert told == [
        "Traceback (most recent call last):",
        '  File "<code>", line 4, in <module>',
        "    f()",
        '  File "<code>", line 2, in f',
        "    return 1 / 0",
        "ZeroDivisionError: division by zero",
        "[exit code 1]",
    ]
    assert "SyntaxError" in result_text(python("a b", box)) and "_start" not in result_text(
        python("a b", box)
    )


@pytest.mark.parametrize(
    ("placement", "effect"),
    [
        (HERE, "at_most_once"),  # it isolates nothing
        (Placement("local", network="off"), "workspace"),
        (Placement("local", network="off", detail={"in_place": False}), "workspace"),
        (Placement("local", network="off", detail={"in_place": True}), "at_most_once"),
        (Placement("local", network="on"), "at_most_once"),
        (Placement("local"), "at_most_once"),
        (None, "at_most_once"),
    ],
)
def test_a_command_can_be_undone_while_it_reaches_nothing_else(placement: Any, effect: str) -> None:
    assert (
        shell.effect_in(placement, {"command": "x"})
        == effect
        == python.effect_in(placement, {"code": "x"})
    )
