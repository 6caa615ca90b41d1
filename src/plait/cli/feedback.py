"""The verdict of a person on a run: `feedback`."""

from __future__ import annotations

import click

from plait.cli.common import Options, text_of, writing
from plait.cli.writing import print_written


@click.command()
@click.argument("session", metavar="S")
@click.argument("text", default="")
@click.option("--good", is_flag=True, help="It did well.")
@click.option("--bad", is_flag=True, help="It did not.")
@writing
def feedback(given: Options, session: str, text: str, good: bool, bad: bool) -> None:
    """Say how the last run of a session did.

    With --good or --bad, and TEXT to say why. It is a verdict by the name of feedback, about
    that run. As TEXT, - reads standard input.
    """
    if good == bad:
        raise click.UsageError("say how it did: --good or --bad, one of them.")
    before = given.open_last(session)
    after = before.checks.feedback(good, text_of(text), actor=given.actor_name)
    print_written(given, before, after)
