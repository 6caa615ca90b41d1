"""`plait copy`: sessions go to another store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from plait import errors
from plait.cli.common import Options, between_stores
from plait.cli.documents import print_json
from plait.cli.exits import CODES, FAILED
from plait.cli.render import Out, count_text
from plait.errors import InvalidValue
from plait.ids import short
from plait.session.ports import store_at
from plait.store import store_exists

if TYPE_CHECKING:
    from plait.copying.transfer import CopyCounts

_OFTEN = 1000  # events or blobs between two lines of progress


@click.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.argument("sessions", metavar="[S]...", nargs=-1)
@click.option("--move", is_flag=True, help="End every session in FROM: it goes on in TO alone.")
@click.option("--dry-run", is_flag=True, help="Tell what would be copied; write nothing.")
@click.option("--quiet", "-q", is_flag=True, help="Tell nothing while it copies.")
@between_stores
def copy_command(
    given: Options,
    source: str,
    target: str,
    sessions: Sequence[str],
    move: bool,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Copy sessions from one store to another.

    Without S all sessions are copied; with S, these and all that they rest on. They keep their ids
    and events. A session whose run is open is moved: it ends in FROM, and goes on in TO. If the
    command is interrupted, repeat it. A session that cannot be copied is named and left out, with
    those that rest on it; the exit code tells.
    """
    from plait.copying import copy_sessions

    begin = Options(source, given.form, given.actor)
    from_store = store_at(begin.store)
    end = Options(target, given.form, given.actor).new_store
    if end == from_store.address:
        raise InvalidValue("TO", "it is the store FROM", "name another store")
    to_store = store_at(end) if store_exists(end) or not dry_run else None
    chosen = [begin.open(name).id for name in sessions] if sessions else None
    progress = _CopyProgress(quiet=quiet or given.form == "json")
    found = copy_sessions(
        from_store,
        to_store,
        chosen,
        move=move,
        is_trial=dry_run,
        actor=given.actor_name,
        report=progress.tell,
    )
    codes = {CODES.get(getattr(errors, each.error), FAILED) for each in found.left_out}
    code = codes.pop() if len(codes) == 1 else FAILED if codes else 0
    if given.form == "json":
        print_json({**msgspec.to_builtins(found), "target": end, "dry_run": dry_run})
        return code
    out = Out()
    verb = "would copy" if dry_run else "copied"
    amounts = [
        count_text(amount, what)
        for amount, what in ((found.events, "event"), (found.blobs, "blob"), (found.bytes, "byte"))
    ]
    logs = f"{count_text(found.sessions, 'session')}, {count_text(found.logs, 'log')}"
    there = f"; {count_text(found.events_there, 'event')} there already"
    out.line(f"{verb} {', '.join(amounts)} of {logs}{there if found.events_there else ''}")
    for log in found.moved:
        out.line(f"{short(log)} {'would move' if dry_run else 'moved'} to {end}")
    told = Out(stderr=True)
    for each in found.left_out:
        told.line(f"{short(each.log)} was left out: {each.why}")
    return code


class _CopyProgress:
    """Tells on stderr how much was copied, every now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._told = quiet, 0
        self._out = Out(stderr=True)

    def tell(self, counts: CopyCounts) -> None:
        events, blobs = counts.events, counts.blobs
        if not self._quiet and events + blobs >= self._told + _OFTEN:
            self._told = events + blobs
            self._out.line(f"{count_text(events, 'event')}, {count_text(blobs, 'blob')} …")
