"""The group of all commands, which are imported when they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from plait_shell.table import SECTIONS, Entry

HELP = """Sessions that are durable, branchable and provable.

S is a session: its id, the start of it, or its label; @ is the one written to last. S@7 is its
value at event 7, and S@-1 one event before the last. S@7:src/cart.py is a file as it was then.

Without a command: where you are, what runs, and what waits for you.
"""
STORE_HELP = "Without a command: look there."
JSON_HELP = "Without a command: print one JSON document."
COMPLETE_VARIABLE = "_PLAIT_COMPLETE"  # set by a shell that completes a line
SETTINGS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
_ENTRIES = {entry.name: entry for entries in SECTIONS.values() for entry in entries}


class SectionedGroup(click.Group):
    """Lists commands in sections, and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _ENTRIES.get(cmd_name)
        return None if entry is None else load_command(entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_unknown = args and not args[0].startswith("-") and args[0] not in _ENTRIES
        if is_unknown and not ctx.resilient_parsing:
            ctx.fail(f"no such command: {args[0]!r}.{nearest_text(args[0], list(_ENTRIES))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _ENTRIES))
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(entry.name.ljust(width), entry.help) for entry in entries])


def load_command(entry: Entry) -> click.Command:
    module, _, name = entry.place.partition(":")
    return getattr(import_module(f"plait.cli.{module}"), name)


def nearest_names(name: str, known: Sequence[str]) -> list[str]:
    """Return the names that may be meant, the nearest first."""
    from difflib import get_close_matches  # after a mistake only

    return get_close_matches(name, known, n=3, cutoff=0.6)


def nearest_text(name: str, known: Sequence[str]) -> str:
    """Return a question that names what may be meant; "" if nothing is near."""
    found = nearest_names(name, known)
    return f" Did you mean {' or '.join(found)}?" if found else ""


def top_help() -> str:
    """Return the text of `plait --help`."""
    options = [
        click.Option(["--version"], is_flag=True, help="Show the version and exit."),
        click.Option(["--store"], metavar="ADDRESS", help=STORE_HELP),
        click.Option(["--json"], is_flag=True, help=JSON_HELP),
    ]
    group = SectionedGroup(
        "plait",
        help=HELP,
        params=options,
        context_settings=dict(SETTINGS),
        invoke_without_command=True,
    )
    context = group.make_context("plait", [], resilient_parsing=True)
    return context.get_help()
