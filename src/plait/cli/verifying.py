"""`plait verify`: every event checked against its hash and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from plait.cli.common import Options, listing
from plait.cli.documents import print_json, print_jsonl
from plait.cli.exits import UNVERIFIED
from plait.cli.render import BAD, Cell, Out, count_text
from plait.errors import PlaitError, SchemaAltered, StoreCorrupt
from plait.ids import short
from plait.outline.documents import fault_document, unchecked_document
from plait.session.audit import Audit, LogCounts, count_logs, logs_behind
from plait.session.ports import store_at
from plait.store import StoreFault, Unchecked


@click.command("verify")
@click.argument("session", metavar="[S]", required=False)
@click.option(
    "--state", is_flag=True, help="Also fold everything again, and compare with what is kept."
)
@listing
@click.pass_context
def verify_command(
    context: click.Context, given: Options, session: str | None, state: bool
) -> None:
    """Check every event against its hash and its neighbours.

    Without S the whole store is checked; with S, all that it is made of, merged branches too. The
    last lines name what was not checked, and why. The exit code is 6 if something is wrong.
    """
    counts = LogCounts(0, 0, 0)
    try:
        store = store_at(given.store)
        logs = None if session is None else logs_behind(store, [given.open(session).id])
        with suppress(PlaitError):  # what is damaged is named below, and counted by nobody
            counts = count_logs(store, logs)
        audit = Audit(store, logs, state=state)
        faults = list(audit.faults())
        unchecked = audit.unchecked_parts()
    except (StoreCorrupt, SchemaAltered) as error:  # so badly that it cannot even be looked through
        faults, unchecked = (
            [StoreFault(None, 0, str(error))],
            [Unchecked("everything else", "the store cannot be opened")],
        )
    skipped = {"not_checked": [unchecked_document(each) for each in unchecked]}
    if given.form == "jsonl":
        print_jsonl([*map(fault_document, faults), skipped])
    elif given.form == "json":
        checked = {**counts._asdict(), "state": state}
        print_json(
            {
                "ok": not faults,
                **checked,
                "faults": [fault_document(fault) for fault in faults],
                **skipped,
            }
        )
    else:
        _print_faults(extent_text(counts), faults)
        _print_unchecked(unchecked)
    context.exit(UNVERIFIED if faults else 0)


def _print_unchecked(unchecked: Sequence[Unchecked]) -> None:
    out = Out()
    out.line("not checked:")
    for each in unchecked:
        first, *more = out.wrap_lines(str(each), out.width - 6, 20)
        out.line(f"  - {first}")
        for line in more:
            out.line(f"    {line}")


def extent_text(counts: LogCounts) -> str:
    """Return how much was checked."""
    others = f" and {count_text(counts.other_logs, 'other log')}" if counts.other_logs else ""
    return f"{count_text(counts.sessions, 'session')}{others}, {count_text(counts.events, 'event')}"


def _print_faults(extent: str, faults: Sequence[StoreFault]) -> None:
    out = Out()
    if not faults:
        out.line(f"{extent}: nothing is wrong")
        return
    for fault in faults:
        where = f"{short(fault.log)}@{fault.seq}" if fault.log else "the store"
        first, *more = out.wrap_lines(fault.what, out.width - len(where) - 2, 20)
        out.line(Cell(where, BAD), "  ", first)
        for line in more:
            out.line(" " * (len(where) + 2), line)
    out.line(f"{extent}: {count_text(len(faults), 'fault')}")
    out.hint(
        "Keep a copy of the store, and restore it from a backup. Each session is named at its first"
        " broken event."
    )
