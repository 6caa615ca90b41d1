"""`plait`: the command line. A command imports what is heavy where it renders, so that `--help` is quick."""

from __future__ import annotations

import click

from plait.cli.doctor import doctor


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="plait", prog_name="plait", message="%(prog)s %(version)s")
def main() -> None:
    """Sessions that are durable, branchable and provable."""


main.add_command(doctor)
