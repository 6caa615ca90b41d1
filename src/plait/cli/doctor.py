"""`plait doctor`: checks whether sessions are safe here, and names the next step if not.

The doctor only reads. It makes no store, migrates none and writes to no file, least of all to a
file of another program. A fault becomes a failed check, never a traceback. A check that could not
be made, because an earlier one failed, is left out: nothing is called ok that was not checked.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from plait.cli.machine_checks import (
    backend_check,
    installation_checks,
    installed_version,
    isolation_check,
    python_check,
)
from plait.cli.report import Report, print_report, to_json
from plait.cli.store_checks import check_store
from plait.cli.user_checks import key_check, local_model_check, terminal_check, viewer_check
from plait.errors import BadAddress
from plait.store import canonical_address, locate


@click.command()
@click.option(
    "--store",
    "address",
    metavar="ADDRESS",
    help="A folder, 'sqlite:FOLDER', 'memory:', 'memory:NAME' or 'postgresql://USER@HOST/DATABASE'.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
@click.pass_context
def doctor(context: click.Context, address: str | None, as_json: bool) -> None:
    """Check store, disk, installation, keys and sandboxes.

    It changes nothing in the store. Without --store it looks where
    `open_store()` would: PLAIT_STORE, else .plait in the nearest folder upward, else here. The exit
    code is 1 if a check failed, otherwise 0.
    """
    report = diagnose(_store_address(address))
    if as_json:
        click.echo(to_json(report))
    else:
        print_report(report)
    context.exit(0 if report.ok else 1)


def diagnose(address: str) -> Report:
    """Check the store at a canonical address, and everything it rests on."""
    store, checks = check_store(address)
    checks += [
        python_check(),
        *installation_checks(),
        isolation_check(),
        backend_check(),
        key_check(),
        local_model_check(),
        viewer_check(),
        terminal_check(),
    ]
    return Report(installed_version("plait") or "unknown", checks, store)


def _store_address(given: str | None) -> str:
    where = (
        "'--store'"
        if given is not None
        else "'PLAIT_STORE'"
        if os.environ.get("PLAIT_STORE")
        else "the current folder"
    )
    try:
        return locate(Path.cwd(), os.environ) if given is None else canonical_address(given)
    except BadAddress as error:
        raise click.BadParameter(str(error), param_hint=where) from error
    # the current folder was removed, or lies below one that may not be entered
    except OSError as error:
        raise click.UsageError(
            f"the current folder cannot be used: {error.strerror}. Go elsewhere, or pass --store"
            " /FOLDER."
        ) from error
