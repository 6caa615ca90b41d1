"""docs/cli.md names every command, in the sections of `--help`, and no option that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import click

from plait.cli.main import main
from plait_shell.table import SECTIONS
from tests.support import python

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| .* \| (.*)\|$", re.MULTILINE)


def test_the_page_has_every_command_and_only_options_that_exist() -> None:
    for title, entries in SECTIONS.items():
        section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
        rows = {row[1]: row[2] for row in ROW.finditer(section)}
        assert [entry.name for entry in entries] == list(
            dict.fromkeys(name.split()[0] for name in rows)
        )
        for name, options in rows.items():
            known = options_of(name)
            for option in re.findall(r"`(-[\w-]+)", options):
                assert option in known, f"{name} has no {option}"


def options_of(name: str) -> set[str]:
    first, *more = name.split()
    command = command_of(first)
    if isinstance(command, click.Group):
        command = command.commands[more[0]]
    return {option for parameter in command.params for option in parameter.opts}


def command_of(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


def test_the_table_of_commands_has_the_words_of_their_docstrings() -> None:
    for entry in [entry for entries in SECTIONS.values() for entry in entries]:
        command = command_of(entry.name)
        assert (command.name, command.get_short_help_str(80)) == (entry.name, entry.help)
        assert len(entry.help) <= 66, "it is cut at 80 columns"


def test_help_is_the_same_with_and_without_plait() -> None:
    set_help = "import sys; sys.argv[1:] = ['--help'];"
    whole = python(f"{set_help} from plait.cli import main; main(prog_name='plait')")
    end = "sys.exit('plait' in sys.modules)"
    alone = python(f"{set_help} from plait_shell import main; main(); {end}")
    assert alone.stdout == whole.stdout and "Without a command" in alone.stdout
