"""docs/cli.md names every command, in the sections of `--help`, and no option that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import click

from plait.cli.main import SECTIONS, main

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| .* \| (.*)\|$", re.MULTILINE)


def test_the_page_has_every_command_and_only_options_that_exist() -> None:
    for title, commands in SECTIONS.items():
        section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
        rows = {row[1]: row[2] for row in ROW.finditer(section)}
        assert [str(command.name) for command in commands] == list(
            dict.fromkeys(name.split()[0] for name in rows)
        )
        for name, options in rows.items():
            known = options_of(name)
            for option in re.findall(r"`(-[\w-]+)", options):
                assert option in known, f"{name} has no {option}"


def options_of(name: str) -> set[str]:
    first, *more = name.split()
    command = main.commands[first]
    if isinstance(command, click.Group):
        command = command.commands[more[0]]
    return {option for parameter in command.params for option in parameter.opts}
