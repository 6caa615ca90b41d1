"""`plait`: the command line. A command's own imports happen in its module's functions, so that `--help` is quick."""

from __future__ import annotations

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Sessions that are durable, branchable and provable."""
