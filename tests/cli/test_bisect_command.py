"""`plait bisect`: the first bad step, with its call and its patch."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.field import Field
from tests.cli.shell import Shell, on_a_terminal, shell

__all__ = ["shell"]

TEST = ("sh", "-c", "cat cart.py; ! grep -q bug cart.py")


def repaired(shell: Shell, texts: tuple[str, ...]) -> str:
    field, name = Field(shell), shell.new("Repair it.")
    field.place(name, field.plant({"cart.py": "start\n"}))
    for text in texts:
        field.work(name, "edit_file", field.plant({"cart.py": text}))
    return name


TEXTS = ("one\n", "two\n", "two\nbug\n", "two\nbug\nthree\n")


def test_the_first_bad_step_is_shown_with_its_call_and_patch(shell: Shell) -> None:
    name = repaired(shell, TEXTS)
    before = shell.open(name)
    result = shell.run("bisect", name, "--", *TEST)
    assert result.exit_code == 0
    told = result.stdout
    assert told.startswith(f"first bad step: {name}@9, in 3 runs\n")
    assert 'call  edit_file {"n":3}' in told and f"good  {name}@7" in told
    assert "exit 1 after" in told and "\n  two\n  bug\n" in told
    assert told.endswith("@@ -1 +1,2 @@\n two\n+bug\n\n")
    assert f"bisecting {name} with: sh -c 'cat cart.py; ! grep -q bug cart.py'" in result.stderr
    assert result.stderr.count("among") == 3
    ends = ("--good", "5", "--bad", "-2")
    found = json.loads(shell("bisect", name, *ends, "--json", "--", *TEST))
    assert found["first_bad"] == {"id": before.id, "place": 9}
    assert found["last_good"] == {"id": before.id, "place": 7}
    assert (found["call"]["tool"], found["event"]["seq"]) == ("edit_file", 9)
    assert [test["outcome"] for test in found["tests"]] == ["bad", "good"][: found["runs"]]
    assert found["patch"].endswith("+bug\n") and found["suspects"] == []
    assert shell.open(name) == before


def test_a_terminal_of_80_columns_shows_it_whole(shell: Shell) -> None:
    name = repaired(shell, TEXTS)
    shown = on_a_terminal("bisect", name, "--", *TEST, width=80, NO_COLOR="1")
    assert max(map(len, shown.splitlines())) <= 80
    assert f"why: plait why {name}@9" in shown and f"go back: plait rewind {name} 7" in shown


def test_a_predicate_is_a_function_in_a_file(shell: Shell, tmp_path: Path) -> None:
    name = repaired(shell, TEXTS)
    file = tmp_path / "checks.py"
    file.write_text(
        "def is_short(value):\n    return value.files.text('cart.py').count('\\n') < 2\n"
        "def is_odd(value):\n    return 1 / 0\n"
        "def is_text(value):\n    return 'yes'\n"
    )
    before = shell.open(name)
    result = shell.run("bisect", name, "--good", "3", "--predicate", f"{file}:is_short")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"first bad step: {name}@9, in ") and "+bug" in result.stdout
    assert "exit" not in result.stderr and "among" in result.stderr
    found = shell.json("bisect", name, "--good", "3", "--predicate", f"{file}:is_short")
    assert (found["command"], found["predicate"]) == (None, f"{file}:is_short")
    for target, told in (
        (f"{file}:is_long", "it has: is_short, is_odd, is_text"),
        (f"{tmp_path}/nix.py:is_short", "there is no file"),
        ("nix", "does not name one"),
        (f"{file}:is_odd", "ZeroDivisionError"),
        (f"{file}:is_text", "it returned a str"),
    ):
        error = shell.error(2, "bisect", name, "--predicate", target)
        assert "predicate: " in error and told in error, error
    assert "in one way" in shell.error(2, "bisect", name, "--predicate", "a:b", "--", "true")
    assert shell.open(name) == before


def test_ends_that_agree_and_bad_input_exit_with_2(shell: Shell) -> None:
    name = repaired(shell, TEXTS)
    told = shell.error(2, "bisect", name, "--json", "--", "sh", "-c", "echo fine")
    error = json.loads(told)["error"]
    assert (error["type"], error["output"]) == ("EndsAgree", "fine\n")
    lines = shell.run("bisect", name, "--", "no-such-program").stderr.splitlines()
    assert f"{name}@3 is bad already" in lines[-2] and "name an earlier: --good K" in lines[-2]
    assert lines[-1].startswith("  | ") and "no-such-program" in lines[-1]
    assert "say how to test" in shell.error(2, "bisect", name)
    told = shell.run("bisect", name, "--", "sh", "-c", "exit 255")
    assert told.exit_code == 1 and "exit with 125 where it cannot test" in told.stderr
    assert "was not placed" in shell.error(3, "bisect", shell.new("No files."), "--", "true")[-200:]
    shell.error(3, "bisect", name, "--good", "900", "--", "true")
