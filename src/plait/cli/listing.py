"""Sessions and runs in lists: `ls`, `runs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import click

from plait.cli.common import Options, listing, pairs
from plait.cli.cost import dollars_figure
from plait.cli.documents import print_json, print_jsonl
from plait.cli.render import ACCENT, BAD, DIM, Cell, Column, Out
from plait.event import Event
from plait.event.kinds import MessageSaid, RunFailed
from plait.ids import LogId, short
from plait.outline.documents import Document, listed_document
from plait.outline.standing import StandingReader
from plait.session import Session
from plait.session.event_text import event_text
from plait.session.life import OPEN_RUN_STATUSES, RUN_STATUS, STATUSES, Status
from plait.session.listing import list_rows
from plait.session.ports import Position, store_at
from plait.session.run_rows import INBOX
from plait.session.status import StatusReader, rows_with_status
from plait.session.value import value_at
from plait.store import Row, Store

PAGE = 200
LISTED = 50
TITLE_MIN = 14  # cells of a title: in 80 cells there is room for the age and the events, too
ENDS = tuple(RUN_STATUS.values())
_STYLES: dict[str, str] = {"running": "", "waiting": "", "failed": BAD, "interrupted": BAD}


# ── ls ───────────────────────────────────────────────────────────────────────────────────────


@click.command("ls")
@click.option("--status", type=click.Choice(STATUSES), help="Only those.")
@click.option(
    "--interrupted",
    is_flag=True,
    help="Only those whose run is open, or in which messages wait, and no process is at it.",
)
@click.option("--user", help="Of this user.")
@click.option("--project", help="Of this project.")
@click.option("--tag", "tags", metavar="K=V", multiple=True, help="With this tag; may be repeated.")
@click.option("--label", help="Forked under this label.")
@click.option("--parent", metavar="S", help="Forked from this session.")
@click.option(
    "--revision", metavar="R", help="With a run that was started with this revision of its program."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"At most so many; else {LISTED} on a terminal, and all elsewhere.",
)
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@listing
def ls(
    given: Options,
    status: Status | None,
    interrupted: bool,
    parent: str | None,
    revision: str | None,
    tags: Sequence[str],
    limit: int | None,
    everything: bool,
    **where: Any,
) -> None:
    """List sessions, the latest opened first.

    On a terminal each branch stands below the session it was forked from. In a pipe, and with
    options that choose, branches come after the sessions that are none.
    """
    if interrupted and status is not None:
        raise click.UsageError("--interrupted is --status interrupted: leave out one of them.")
    if limit is None and given.form == "text" and Out().tty:
        limit = LISTED
    limit = None if everything else limit
    columns = {name: value for name, value in where.items() if value is not None}
    if parent is not None:
        columns["parent"] = given.open(parent).id
    store = store_at(given.store)
    wanted: Status | None = "interrupted" if interrupted else status
    is_chosen = bool(columns or tags or wanted or revision)
    if given.form == "text" and Out().tty and not is_chosen:
        rows = _rows_in_families(store, limit)
    else:
        rows = _list_rows(store, columns, pairs("--tag", tags), wanted)
    if revision is not None:
        logs = {run["log"] for run in _run_rows(store, {}) if _has_revision(run, revision)}
        rows = (row for row in rows if row["log"] in logs)
    found = islice(rows, limit)
    reader = StandingReader(store)

    def with_status(row: Row) -> Row:
        now, queued = reader.of_session(row), reader.statuses.queued_count(row)
        words: Row = {"status": now.status, "standing": now.text, "due": now.is_due}
        return {**row, **words, "queued": queued}

    sessions = ((session, with_status(row)) for session, row in _open_rows(store, found))
    if given.form == "jsonl":
        print_jsonl(listed_document(session, row) for session, row in sessions)
    elif given.form == "json":
        documents = [listed_document(session, row) for session, row in sessions]
        print_json({"store": given.store, "sessions": documents})
    else:
        _print_list(store, sessions, limit)


def _list_rows(
    store: Store, where: dict[str, Any], tags: dict[str, str], status: Status | None
) -> Iterator[Row]:
    """Yield rows of roots, then of branches."""

    def rows(more: dict[str, Any]) -> Iterator[Row]:
        if status is not None:
            return rows_with_status(store, status, {**where, **more}, tags)
        return list_rows(store, {**where, **more}, tags, None, PAGE)

    if "parent" in where:
        return rows({})
    branches = (row for row in rows({}) if row["parent"] is not None)
    return chain(rows({"parent": None}), branches)


def _rows_in_families(store: Store, limit: int | None) -> Iterator[Row]:
    """Yield rows of roots, each followed by its branches. `depth` is 0 for a root."""
    for root in islice(list_rows(store, {"parent": None}, None, None, PAGE), limit):
        left: list[tuple[Row, int]] = [(root, 0)]
        while left:
            row, depth = left.pop()
            yield {**row, "depth": depth}
            branches = list(list_rows(store, {"parent": row["log"]}, None, None, PAGE))
            left += [(branch, depth + 1) for branch in branches]


def _open_rows(store: Store, rows: Iterator[Row]) -> Iterator[tuple[Session, Row]]:
    while page := list(islice(rows, PAGE)):
        heads = store.heads([LogId(str(row["log"])) for row in page])
        for row in page:
            log = heads[LogId(str(row["log"]))]
            yield value_at(Session, Position(store.address, log.id, log.tip, log.head)), row


def _print_list(store: Store, found: Iterator[tuple[Session, Row]], limit: int | None) -> None:
    out = Out()
    columns = [
        Column("session"),
        Column("label"),
        Column("title", flex=True, least=TITLE_MIN),
        Column("status"),
        Column("last", aside=True),
        Column("events", right=True, aside=True),
        Column("dollars", right=True, aside=True),
    ]
    labels = _Labels(store)
    count = out.table(
        columns,
        (_list_row(out, store, labels, session, row) for session, row in found),
        heads=True,
    )
    if not count:
        out.hint('No such sessions. Open one with: plait new "what it is about"')
    elif count == limit:
        out.hint(f"The first {limit}. All of them: plait ls --all")


class _Labels:
    """Labels of branches. One that several branches have is followed by the session it is of."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_shared: dict[str, bool] = {}

    def text(self, row: Row) -> str:
        if row["label"] is None:
            return ""
        label = str(row["label"])
        if label not in self._is_shared:
            same = self._store.rows("session", "session", {"label": label}, limit=2)
            self._is_shared[label] = len(same) > 1
        is_below = bool(row.get("depth"))  # its line stands below that session
        is_told = self._is_shared[label] and not is_below
        of = f" of {short(LogId(str(row['parent'])))}" if is_told else ""
        return f"{label}{of}"


def _list_row(out: Out, store: Store, labels: _Labels, session: Session, row: Row) -> list[Cell]:
    title, depth = str(row["title"]), int(str(row.get("depth", 0)))
    return [
        Cell(f"{'  ' * (depth - 1)}└ {session.short}" if depth else session.short, ACCENT),
        Cell(labels.text(row)),
        Cell(title) if title else Cell(first_words(store, session), DIM),
        status_cell(str(row["status"]), int(str(row["queued"])), str(row["standing"])),
        Cell(out.time(store.event(session.head).time), DIM),
        Cell(f"{session.seq:,}"),
        Cell(dollars_figure(session.budget.used)),
    ]


def status_cell(status: str, queued: int = 0, standing: str = "") -> Cell:
    """Return a status in its words for people, with the number of messages that wait."""
    text = ", ".join([standing or status, *([f"{queued} queued"] * bool(queued))])
    return Cell(text, _STYLES.get(status, DIM))


def first_words(store: Store, session: Session) -> str:
    """Return the beginning of the first message, in place of a title."""
    first = next(store.read(session.id, 1, session.seq, kinds={MessageSaid.__name__}), None)
    return event_text(first).partition(": ")[2] if first else ""


# ── runs ─────────────────────────────────────────────────────────────────────────────────────


@click.command("runs")
@click.argument("session", metavar="[S]", required=False)
@click.option("--status", type=click.Choice([*OPEN_RUN_STATUSES, *ENDS]), help="Only those.")
@click.option("--revision", metavar="R", help="Started with this revision of their program.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"At most so many; else {LISTED} on a terminal, and all elsewhere.",
)
@listing
def runs(
    given: Options, session: str | None, status: str | None, revision: str | None, limit: int | None
) -> None:
    """List runs, the latest begun first.

    Of all sessions, or those that began on S.
    `plait check` compares the revisions of open runs with the code at hand.
    """
    if limit is None and given.form == "text" and Out().tty:
        limit = LISTED
    store = store_at(given.store)
    where = {"log": given.open(session).id} if session is not None else {}
    found = islice(_run_documents(store, where, status, revision or ""), limit)
    if given.form == "jsonl":
        print_jsonl(found)
    elif given.form == "json":
        print_json({"store": given.store, "runs": list(found)})
    else:
        _print_runs(found, limit)


def _run_documents(
    store: Store, where: Mapping[str, str], status: str | None, revision: str
) -> Iterator[Document]:
    reader = StatusReader(store)
    if status is not None:
        where = {**where, "status": status if status in ENDS else "open"}
    for row in _run_rows(store, where):
        now = reader.of_run(row)
        if status in (None, now) and _has_revision(row, revision):
            yield _run_document(store, row, now)


def _run_rows(store: Store, where: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of runs, the latest begun first."""
    after = None
    while page := store.rows(
        INBOX, "run", where, order="number", descending=True, before=after, limit=PAGE
    ):
        yield from page
        after = page[-1]["number"]


def _has_revision(row: Row, revision: str) -> bool:
    return str(row["revision"] or "").startswith(revision)


def _run_document(store: Store, row: Row, status: str) -> Document:
    log = LogId(str(row["log"]))
    return {
        "run": row["run"],
        "session": log,
        "short": short(log),
        "seq": row["seq"],
        "workflow": row["workflow"],
        "revision": row["revision"],
        "began": row["began"],
        "status": status,
        "why": _why_ended(store, row) if status in ("failed", "cancelled") else "",
    }


def _why_ended(store: Store, row: Row) -> str:
    """Return the reason that the last end of a run gives."""
    ends: Iterator[Event] = store.read(
        LogId(str(row["log"])), int(str(row["seq"])), kinds=RUN_STATUS.keys(), reverse=True
    )
    body = next((event.body for event in ends if event.header.run == row["run"]), None)
    if isinstance(body, RunFailed):
        return f"{body.failure.kind}: {body.failure.message}"
    return str(getattr(body, "reason", ""))


def _print_runs(found: Iterator[Document], limit: int | None) -> None:
    out = Out()
    columns = [
        Column("run"),
        Column("workflow"),
        Column("status"),
        Column("began", aside=True),
        Column("revision", aside=True),
        Column("why", flex=True),
    ]
    count = out.table(
        columns,
        (
            [
                Cell(f"{each['short']}@{each['seq']}", ACCENT),
                Cell(str(each["workflow"])),
                status_cell(str(each["status"])),
                Cell(out.time(each["began"]), DIM),
                Cell(str(each["revision"] or "")[:8], DIM),
                Cell(str(each["why"])),
            ]
            for each in found
        ),
        heads=True,
    )
    if not count:
        out.hint("No such runs. Start one with: plait run FILE.py:NAME -i TEXT")
    elif count == limit:
        out.hint(f"The latest {limit}. More: plait runs --limit 1000")
