"""`plait`: the command line. `plait_shell.table` lists its commands.

Commands import heavy packages where they use them, so that each is quick.
"""

from __future__ import annotations

import os
from importlib import import_module

import click

from plait.cli.common import Options
from plait.cli.exits import CommandGroup
from plait_shell.groups import COMPLETE_VARIABLE, HELP, JSON_HELP, SETTINGS, STORE_HELP


class CompletingGroup(CommandGroup):
    """The group of all commands, with completion by names if a shell asks for it."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None and COMPLETE_VARIABLE in os.environ:
            from plait.cli.completion import add_names

            within = command.commands.values() if isinstance(command, click.Group) else [command]
            for each in within:
                add_names(each)
        return command


if COMPLETE_VARIABLE in os.environ:
    import_module("plait.cli.completion")  # it has the shells that we know


@click.group(
    "plait",
    cls=CompletingGroup,
    help=HELP,
    context_settings=dict(SETTINGS),
    invoke_without_command=True,
    no_args_is_help=False,
)
@click.version_option(package_name="plait", prog_name="plait", message="%(prog)s %(version)s")
@click.option("--store", "address", metavar="ADDRESS", help=STORE_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
@click.pass_context
def main(context: click.Context, address: str | None, as_json: bool) -> None:
    if context.invoked_subcommand is None:
        from plait.cli.home import print_home

        print_home(Options(address, "json" if as_json else "text"))
    elif address is not None or as_json:
        raise click.UsageError(
            "--store and --json stand after the command, as in `plait"
            f" {context.invoked_subcommand} --json`."
        )
