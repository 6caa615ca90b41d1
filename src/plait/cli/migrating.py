"""`plait migrate`: makes and upgrades the tables of a store that a server keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import click

from plait import migrate_store
from plait.cli.common import address_of
from plait.cli.documents import print_json
from plait.cli.loading import import_from_here, loading_errors
from plait.cli.render import Out
from plait.errors import InvalidValue
from plait.store import Projection


@click.command("migrate")
@click.argument("address", metavar="[ADDRESS]", required=False)
@click.option("--dry-run", is_flag=True, help="Print the SQL; change nothing.")
@click.option(
    "--grant",
    metavar="USER",
    multiple=True,
    help="Let this user of the server run agents; may be repeated.",
)
@click.option(
    "--grant-read",
    metavar="USER",
    multiple=True,
    help="Let this user of the server look, and no more; may be repeated.",
)
@click.option(
    "--projections",
    "targets",
    metavar="TARGET",
    multiple=True,
    help="Make the tables of your own rows too: FILE.py:NAME or module:NAME; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs.")
def migrate_command(
    address: str | None,
    dry_run: bool,
    grant: Sequence[str],
    grant_read: Sequence[str],
    targets: Sequence[str],
    as_json: bool,
) -> None:
    """Make or upgrade the tables of a PostgreSQL store.

    No other command changes them, so only the user of this one needs the right to create tables.
    Doing it again changes nothing. A store in a folder needs no migration: it is brought up to date
    when it is used. Without ADDRESS it is the store that the other commands use.
    """
    where = address_of(address)
    found = migrate_store(
        where,
        projections=[each for target in targets for each in load_projections(target)],
        grant=grant,
        grant_read=grant_read,
        dry_run=dry_run,
    )
    if as_json:
        done = {"before": 0, "after": 0, "statements": ()} if found is None else found._asdict()
        due = found is not None
        print_json({"store": where, "needs_migration": due, "dry_run": dry_run, **done})
        return
    out = Out()
    if found is None:
        out.line(f"nothing to do: {where} is brought up to date when it is used")
    elif dry_run:
        for statement in found.statements:
            click.echo(f"{statement.rstrip(';')};")
        click.echo("-- and the rows with the store's id, its kinds of events and its house log")
    elif not found.before:
        out.line(f"made the tables of {where}, version {found.after}")
    elif found.before < found.after:
        out.line(f"brought the tables of {where} from version {found.before} to {found.after}")
    else:
        out.line(f"the tables of {where} are of version {found.after}, the latest")


def _is_several(value: object) -> bool:
    return isinstance(value, (list, tuple))


def load_projections(target: str) -> list[Projection]:
    """Return the projections that a target names: one, a class of one, or several."""
    from plait.program import load_value

    import_from_here()
    with loading_errors(target, "projections"):
        value: Any = load_value(target, "projections")
        found: list[Any] = [*cast("Sequence[Any]", value)] if _is_several(value) else [value]
        made = [each() if isinstance(each, type) else each for each in found]
    for each in made:
        if not all(hasattr(each, name) for name in ("name", "version", "kinds", "tables", "apply")):
            why = f"{target} is a {type(each).__name__}, and not a projection"
            raise InvalidValue("--projections", why, "name a projection, as docs/stores.md has it")
    return made
