"""`plait` alone: where you are, what runs, what waits for you, and what to type next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from plait.cli.ask_lines import ask_headline
from plait.cli.common import Options, command_line
from plait.cli.documents import print_json
from plait.cli.listing import first_words, status_cell
from plait.cli.render import ACCENT, DIM, STRONG, Cell, Column, Out
from plait.errors import NoStore, PlaitError
from plait.ids import LogId, short
from plait.outline.documents import Document, session_document
from plait.session import Session, Waiting
from plait.session.event_text import event_text
from plait.session.inbox import all_waiting
from plait.session.listing import list_rows
from plait.session.ports import store_at
from plait.session.run_rows import INBOX
from plait.session.status import StatusReader, sessions_with_left_turns
from plait.store import Store

SHOWN = 5  # lines of each part
_FIRST = (
    ("plait new TEXT", "opens a session here"),
    ("plait run FILE.py:NAME -i TEXT", "runs a workflow"),
    ("plait chat --model NAME", "talks to a model, on record"),
    ("plait --help", "lists the commands"),
)


class NextStep(NamedTuple):
    """A command that may be typed next."""

    command: str
    what: str


class Home(NamedTuple):
    """The state of a store, in short."""

    running: list[Session]
    interrupted: list[Session]
    asks: list[Waiting]
    latest: list[Session]


def print_home(given: Options) -> None:
    try:
        address = given.store
    except NoStore:
        _print_nowhere(given)
        return
    home = _read_home(store_at(address))
    steps = list(_next_steps(given, home))
    if given.form == "json":
        print_json(_home_document(address, home, steps))
    else:
        _print_text(address, home, steps)


def _read_home(store: Store) -> Home:
    reader, found = StatusReader(store), dict[str, list[LogId]]()
    open_runs = store.rows(
        INBOX, "run", {"status": "open"}, order="number", descending=True, limit=200
    )
    for run in open_runs:
        found.setdefault(reader.of_run(run), []).append(LogId(str(run["log"])))
    left = [*found.get("interrupted", []), *sessions_with_left_turns(store)]
    return Home(
        list(_open_all(store, found.get("running", []))),
        list(_open_all(store, left)),
        [ask for ask in all_waiting(store) if ask.kind != "timer"],
        list(_open_all(store, _latest_logs(store))),
    )


def _latest_logs(store: Store) -> list[LogId]:
    """Return the session that was written to last, then the roots that were opened last."""
    rows = list_rows(store, {"parent": None}, None, None, SHOWN)
    opened = [LogId(str(row["log"])) for row, _ in zip(rows, range(SHOWN), strict=False)]
    try:
        last = [Session.open("@", store=store).id]
    except PlaitError:  # there is none
        last = []
    return list(dict.fromkeys([*last, *opened]))[:SHOWN]


def _open_all(store: Store, logs: list[LogId]) -> Iterator[Session]:
    for log in dict.fromkeys(logs):
        yield Session.open(log, store=store)


def _next_steps(given: Options, home: Home) -> Iterator[NextStep]:
    """Yield what may be typed next, the most urgent first."""
    if home.asks:
        yield NextStep(
            command_line(given, "inbox"), "shows what waits for you, and how to answer it"
        )
    if len(home.interrupted) == 1:
        name = home.interrupted[0].short
        yield NextStep(command_line(given, "resume", name), "goes on where its process ended")
    elif home.interrupted:
        yield NextStep(
            command_line(given, "resume", "--interrupted"), "goes on with all that was interrupted"
        )
    if home.running:
        yield NextStep(command_line(given, "tail", home.running[0].short, "-f"), "follows it")
    if home.latest:
        last = home.latest[0]
        if last.status == "failed":
            yield NextStep(command_line(given, "resume", last.short), "tries the failed step again")
        yield NextStep(command_line(given, "log", last.short), "tells what happened in it")
        yield NextStep(command_line(given, "view", last.short), "shows it in a browser")
    else:
        yield NextStep(command_line(given, "new", "TEXT"), "opens a session")
        yield NextStep(command_line(given, "run", "FILE.py:NAME", "-i", "TEXT"), "runs a workflow")
    yield NextStep("plait --help", "lists the commands")


# ── printing ─────────────────────────────────────────────────────────────────────────────────


def _home_document(address: str, home: Home, steps: list[NextStep]) -> Document:
    from plait.cli.asks import recorded_ask, waiting_document

    store = store_at(address)
    return {
        "store": address,
        "running": [session_document(each) for each in home.running],
        "waiting": [waiting_document(store, recorded_ask(store, ask)) for ask in home.asks],
        "interrupted": [session_document(each) for each in home.interrupted],
        "latest": [session_document(each) for each in home.latest],
        "next": [step._asdict() for step in steps],
    }


def _print_nowhere(given: Options) -> None:
    if given.form == "json":
        steps = [{"command": command, "what": what} for command, what in _FIRST]
        print_json({"store": None, "next": steps})
        return
    out = Out()
    where = given.address if given.address is not None else "this folder, or above it"
    out.line(f"There are no sessions in {where}.")
    _print_steps(out, [NextStep(*each) for each in _FIRST])


def _print_text(address: str, home: Home, steps: list[NextStep]) -> None:
    store, out = store_at(address), Out()
    out.print_brief(Cell("store  ", DIM), Cell(_place_text(address), STRONG))
    if home.running:
        out.heading("Running")
        _print_sessions(out, store, home.running, is_doing=True)
    if home.asks:
        out.heading("Waits for you")
        rows = [_ask_row(out, store, ask) for ask in home.asks[:SHOWN]]
        columns = [Column(whole=True), Column(flex=True, least=40), *[Column(aside=True)] * 2]
        out.table(columns, rows, indent="  ")
        _print_more(out, len(home.asks), "plait inbox")
    if home.interrupted:
        out.heading("Interrupted", "no process is at it")
        _print_sessions(out, store, home.interrupted[:SHOWN], is_doing=True)
        _print_more(out, len(home.interrupted), "plait ls --interrupted")
    if home.latest:
        out.heading("Latest")
        _print_sessions(out, store, home.latest)
    else:
        out.line("There are no sessions in it yet.")
    _print_steps(out, steps)


def _print_more(out: Out, count: int, command: str) -> None:
    if count > SHOWN:
        out.line(Cell(f"  … and {count - SHOWN:,} more: {command}", DIM))


def _print_sessions(
    out: Out, store: Store, sessions: list[Session], *, is_doing: bool = False
) -> None:
    """Print a line for each session. `is_doing`: with its last event in place of the status."""

    def row(session: Session) -> list[Cell]:
        last = store.event(session.head)
        title = session.title or first_words(store, session) or "(untitled)"
        told = Cell(event_text(last)) if is_doing else status_cell(session.status)
        return [
            Cell(session.short, ACCENT),
            Cell(session.lineage.label or ""),
            Cell(title),
            told,
            Cell(out.time(last.time), DIM),
        ]

    columns = [Column(whole=True), Column(aside=True), Column(flex=True), Column(), Column()]
    out.table(columns, map(row, sessions), indent="  ")


def _ask_row(out: Out, store: Store, ask: Waiting) -> list[Cell]:
    return [
        Cell(ask.event[:8], ACCENT),
        Cell(ask_headline(store, ask)),
        Cell(f"in {short(ask.log)}", DIM),
        Cell(out.time(ask.since), DIM),
    ]


def _print_steps(out: Out, steps: list[NextStep]) -> None:
    out.heading("Next")
    width = max(len(step.command) for step in steps)
    for command, what in steps:
        out.print_brief("  ", Cell(command.ljust(width), ACCENT), Cell(f"  {what}", DIM))


def _place_text(address: str) -> str:
    """Return the folder of a store, else its address."""
    scheme, _, place = address.partition(":")
    if scheme != "sqlite":
        return address
    home = os.path.expanduser("~")
    is_inside = place.startswith(f"{home}/") and home != "/"
    return shlex.quote(place) if not is_inside else f"~{place.removeprefix(home)}"
