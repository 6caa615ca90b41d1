"""The end of a session, and the events that follow: `tail`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click

from plait.cli.common import Options, listing, store_of
from plait.cli.documents import print_json, print_jsonl
from plait.cli.render import ACCENT, DIM, GAP, Cell, Out, cell_width
from plait.cli.terminal import cut_text, when
from plait.event import Event
from plait.event.kinds import RunCancelled, RunFailed, RunFinished
from plait.outline.documents import event_document, session_document
from plait.session import Session
from plait.session.event_text import event_text
from plait.session.value import open_run_of
from plait.store import Store

SHOWN = 20
POLL_S = 0.1
ENDS = frozenset({kind.__name__ for kind in (RunFinished, RunFailed, RunCancelled)})
_ACTOR = 16  # cells: lines come one by one, so the width of the next is not known


@click.command()
@click.argument("session", metavar="[S]", default="@")
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Go on with what is written from now on, by whichever process; Ctrl-C ends it.",
)
@click.option(
    "-n",
    "--limit",
    "number",
    type=click.IntRange(min=0),
    default=SHOWN,
    help=f"So many of the last events; else {SHOWN}.",
)
@click.option("--until-end", is_flag=True, help="Follow until the run that is open has ended.")
@listing
def tail(given: Options, session: str, follow: bool, number: int, until_end: bool) -> None:
    """Show the last events, the newest last.

    With --follow, also those that are still to come. S@7 begins at event 7.
    """
    if given.form == "json" and (follow or until_end):
        raise click.UsageError("--json is one document, and this has no end: use --jsonl.")
    value = given.open(session)
    last = (
        list(store_of(value).read(value.id, max(1, value.seq - number + 1), value.seq))
        if number
        else []
    )
    coming = _follow_events(value, until_end=until_end) if follow or until_end else iter(())
    if given.form == "json":
        print_json(
            {
                "session": session_document(value),
                "events": [event_document(event) for event in last],
            }
        )
    elif given.form == "jsonl":
        print_jsonl(map(event_document, last))
        for event in coming:
            print_jsonl([event_document(event)])
            sys.stdout.flush()
    else:
        _print(last, coming)


def _follow_events(session: Session, *, until_end: bool) -> Iterator[Event]:
    """Yield the events written after this place, as they come."""
    store, place = store_of(session), session.seq
    if until_end and open_run_of(session) is None and session.reload() == session:
        return
    while True:
        for event in _events_since(store, session, place):
            yield event
            place = event.seq
            if until_end and event.kind in ENDS:
                return
        time.sleep(POLL_S)


def _events_since(store: Store, session: Session, place: int) -> list[Event]:
    """Return the new events. Most calls find none, so only the tip is read first."""
    tip = store.log(session.id).tip
    return list(store.read(session.id, place + 1, tip)) if tip > place else []


def _print(last: list[Event], coming: Iterator[Event]) -> None:
    out = Out()
    width = max([_ACTOR, *(cell_width(event.actor) for event in last)])
    for event in last:
        _print_line(out, event, width)
    sys.stdout.flush()
    for event in coming:
        _print_line(out, event, width)
        sys.stdout.flush()  # in a pipe, too, it has to arrive now


def _print_line(out: Out, event: Event, width: int) -> None:
    """Print a line as `log` does, but with the time instead of an age, which would be wrong a
    minute later.
    """
    actor = cut_text(event.actor, width) if out.tty else event.actor
    head = [
        Cell(f"{event.seq:>5}", ACCENT),
        GAP,
        Cell(when(event.time).rpartition(" ")[2] if out.tty else when(event.time), DIM),
        GAP,
        Cell(actor + " " * (width - cell_width(actor)), DIM),
        GAP,
    ]
    out.print_brief(*head, Cell(event_text(event)))
