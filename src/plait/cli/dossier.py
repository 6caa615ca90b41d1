"""`plait dossier`: the evidence of a run as a folder that a stranger can read, print and check."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from plait.cli.common import Options, acting_command
from plait.cli.documents import print_json
from plait.cli.render import BAD, Cell, Out

LEFT_OUT = 8  # lines about things that are not in it


@click.command("dossier")
@click.argument("session", metavar="[S]", default="@")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder to write, made if need be. An earlier dossier in it is replaced.",
)
@click.option("--no-run", is_flag=True, help="Leave out run.html, the page to walk through.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of dossier.json, and stop.")
@acting_command
def dossier_command(
    given: Options, session: str, folder: Path | None, no_run: bool, schema: bool
) -> None:
    """Write the evidence of a session into a folder.

    The files are dossier.html, dossier.json and run.html. They have what was asked, done, rejected,
    proved, spent, remembered and not undone, each with the step that shows it, of S and all that it
    is connected with by forks and merges. S@42 tells the state at event 42.
    """
    if schema:
        from plait.dossier.shapes import dossier_schema

        print_json(dossier_schema())
        return
    if folder is None:
        raise click.UsageError("Name the folder to write: plait dossier S -o DIR.")
    from plait.dossier.writing import write_dossier

    out = Out(stderr=True)
    written = write_dossier(given.open(session), folder, made=out.now, with_run=not no_run)
    if given.form != "text":
        print_json(msgspec.to_builtins(written))
        return
    for name, size in written.files.items():
        click.echo(f"{folder / name}  {size:,} bytes")
    if not written.is_verified:
        out.line(Cell("the record did not pass verification: the dossier says so on top", BAD))
    for line in written.notices:
        out.line(line)
    for line in written.left_out[:LEFT_OUT]:
        out.hint(f"not in it: {line}")
    if len(written.left_out) > LEFT_OUT:
        out.hint(f"… and {len(written.left_out) - LEFT_OUT:,} more")
