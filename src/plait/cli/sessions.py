"""Looking at sessions: `ls`, `show`, `verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from plait.cli.common import Given, listing, pairs, store_of
from plait.cli.documents import (
    changed_by,
    fault_document,
    listed_document,
    print_json,
    print_jsonl,
    show_document,
    unchecked_document,
)
from plait.cli.exits import UNVERIFIED
from plait.cli.files import detail_in, print_changes
from plait.cli.prompts import show_prompt
from plait.cli.render import ACCENT, BAD, DIM, STRONG, Cell, Column, Out, as_json, counted
from plait.errors import SchemaAltered, StoreCorrupt
from plait.event.kinds import Budget, MessageSaid, Placement
from plait.ids import LogId, short
from plait.session import Facts, Message, Session
from plait.session.audit import Audit, logs_behind
from plait.session.life import STATUSES
from plait.session.listing import session_row
from plait.session.ports import store_at
from plait.session.saying import saying, short_sandbox
from plait.session.state import Spent
from plait.store import Fault, Row, Store, Unchecked
from plait.workspace.diff import Changes

PAGE = 200
LISTED = 50
MESSAGES = 6  # that `show` shows
MESSAGE_LINES = 12  # of one message, on a terminal

# ── ls ───────────────────────────────────────────────────────────────────────────────────────


@click.command("ls")
@click.option("--status", type=click.Choice(STATUSES), help="Only those.")
@click.option("--user", help="Of this user.")
@click.option("--project", help="Of this project.")
@click.option("--tag", "tags", metavar="K=V", multiple=True, help="With this tag; may be repeated.")
@click.option("--label", help="Forked under this label.")
@click.option("--parent", metavar="S", help="Forked from this session.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"At most so many; else {LISTED} on a terminal, and all elsewhere.",
)
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@listing
def ls(
    given: Given,
    parent: str | None,
    tags: Sequence[str],
    limit: int | None,
    everything: bool,
    **where: Any,
) -> None:
    """List sessions, the latest opened first."""
    if limit is None and given.form == "text" and Out().tty:
        limit = LISTED
    where |= {
        "tag": pairs("--tag", tags),
        "parent": given.open(parent) if parent is not None else None,
        "store": given.store,
    }
    store = store_at(given.store)
    found = _listed(store, where, None if everything else limit)
    if given.form == "jsonl":
        print_jsonl(listed_document(session, row) for session, row in found)
    elif given.form == "json":
        print_json(
            {
                "store": given.store,
                "sessions": [listed_document(session, row) for session, row in found],
            }
        )
    else:
        _print_list(store, found, None if everything else limit)


def _listed(
    store: Store, where: dict[str, Any], limit: int | None
) -> Iterator[tuple[Session, Row]]:
    left, before = limit, None
    while left is None or left > 0:
        page = Session.list(**where, before=before, limit=PAGE if left is None else min(PAGE, left))
        for session in page:
            yield session, session_row(store, session.id)
        if len(page) < PAGE:
            return
        before, left = page[-1], None if left is None else left - len(page)


def _print_list(store: Store, found: Iterator[tuple[Session, Row]], limit: int | None) -> None:
    out = Out()
    columns = [
        Column("session"),
        Column("label"),
        Column("title", flex=True),
        Column("status", aside=True),
        Column("events", right=True, aside=True),
        Column("opened", aside=True),
    ]
    count = out.table(
        columns, (_list_row(out, store, session, row) for session, row in found), heads=True
    )
    if not count:
        out.hint('No such sessions. Open one with: plait new "what it is about"')
    elif count == limit:
        out.hint(f"The latest {limit}. All of them: plait ls --all")


def _list_row(out: Out, store: Store, session: Session, row: Row) -> list[Cell]:
    title = str(row["title"])
    opened = row["opened"]
    return [
        Cell(session.short, ACCENT),
        Cell(str(row["label"] or "")),
        Cell(title) if title else Cell(first_words(store, session), DIM),
        Cell(str(row["status"]), "" if row["status"] in ("active", "waiting") else DIM),
        Cell(f"{session.seq:,}"),
        Cell(out.time(opened if isinstance(opened, int) else 0), DIM),
    ]


def first_words(store: Store, session: Session) -> str:
    """What was said first, in place of a title."""
    first = next(store.read(session.id, 1, session.seq, kinds={MessageSaid.__name__}), None)
    return saying(first).partition(": ")[2] if first else ""


# ── show ─────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("session", metavar="[S]", default="@")
@click.option(
    "--messages",
    "-n",
    type=click.IntRange(min=0),
    help=f"So many of the last messages; else {MESSAGES}, or all with --json.",
)
@click.option(
    "--prompt",
    is_flag=True,
    help="What the model was sent at this place, or the nearest before it, exactly.",
)
@click.option("--why", is_flag=True, help="With --prompt: also what was left out of it, and why.")
@listing
@click.pass_context
def show(
    context: click.Context,
    given: Given,
    session: str,
    messages: int | None,
    prompt: bool,
    why: bool,
) -> None:
    """Show a session at a place.

    What it knows, what is open, what it cost, how it was judged and what was said. With --prompt:
    what the model was sent there, rebuilt from the log; the exit code is 6 if that is not what the
    log says was sent.
    """
    if (why and not prompt) or (prompt and messages is not None):
        raise click.UsageError("--why goes with --prompt, and --messages without it.")
    value = given.open(session)
    if prompt:
        context.exit(show_prompt(given, value, why=why))
    if given.form == "json":
        print_json(show_document(value, messages))
    elif given.form == "jsonl":
        print_jsonl([show_document(value, messages)])
    else:
        _Shown(value).print(MESSAGES if messages is None else messages)


class _Shown:
    """One session for people."""

    def __init__(self, session: Session) -> None:
        self.session, self.out = session, Out()

    def print(self, messages: int) -> None:
        session, out = self.session, self.out
        title = session.title
        out.brief(
            Cell(
                title or first_words(store_of(session), session) or "(untitled)",
                STRONG if title else DIM,
            )
        )
        self._about()
        self._facts("Facts", session.facts.only("fact"))
        self._facts("Decisions", session.facts.decisions)
        self._facts("Findings", session.facts.findings)
        self._pending()
        self._verdicts()
        self._changed()
        self._messages(messages)

    def _about(self) -> None:
        session, first = self.session, self.session.lineage.statuses[0]
        tags = " ".join(f"{key}={value}" for key, value in session.tags.items())
        rows = [
            ("session", f"{session.short}@{session.seq}", ACCENT),
            ("label", session.lineage.label, ""),
            ("id", session.id, DIM),
            ("status", session.status, ""),
            ("last run", *_last_run(session)),
            ("opened", f"{self.out.time(first.time)} by {first.actor}", ""),
            ("lineage", _lineage(session), ""),
            (
                "continues",
                str(session.lineage.continues) if session.lineage.continues else None,
                "",
            ),
            ("user", session.user, ""),
            ("project", session.project, ""),
            ("tags", tags or None, ""),
            ("durability", session.durability if session.durability != "full" else None, ""),
            ("placement", placement_told(session.files.placement), ""),
            ("files", f"tree {session.files.tree[:12]}" if session.files.tree else None, DIM),
            ("budget", _budget(session.budget.limits, session.budget.left_now), ""),
            ("used", _spent(session.budget.used), ""),
        ]
        columns = [Column(), Column(flex=True)]
        self.out.table(
            columns,
            (
                [Cell(name, DIM), Cell(value, style)]
                for name, value, style in rows
                if value is not None
            ),
            indent="  ",
        )

    def _facts(self, title: str, facts: Facts) -> None:
        if facts:
            self.out.heading(title)
            rows = (
                [Cell(key), Cell(as_json(facts[key])), self._where(facts.of(key).at)]
                for key in facts
            )
            self.out.table([Column(), Column(flex=True), Column()], rows, indent="  ")

    def _pending(self) -> None:
        if pending := self.session.pending:
            self.out.heading("Pending")
            rows = (
                [Cell(each.kind), Cell(each.what), Cell(each.key, DIM), self._where(each.at)]
                for each in pending.values()
            )
            self.out.table([Column(), Column(flex=True), Column(), Column()], rows, indent="  ")

    def _verdicts(self) -> None:
        session, last = self.session, {each.name: each for each in self.session.checks.verdicts}
        rows = [
            [
                Cell(name),
                Cell("passed" if each.passed else "failed", "" if each.passed else BAD),
                _required(session, name),
                self._where(each),
            ]
            for name, each in last.items()
        ]
        rows += [
            [Cell(name), Cell("no verdict", BAD), _required(session, name), self._where(gate.at)]
            for name, gate in session.checks.gates.items()
            if name not in last
        ]
        if rows:
            self.out.heading("Verdicts")
            self.out.table([Column(), Column(), Column(), Column()], rows, indent="  ")

    def _changed(self) -> None:
        """What the last event did to the files, if it is the outcome of a tool."""
        trees = changed_by(self.session.events[-1])
        if trees is None:
            return
        self.out.heading(
            "Changed here",
            (
                f"tree {trees.before[:12]} to {trees.after[:12]}"
                if trees.before != trees.after
                else "no file"
            ),
        )
        if trees.before != trees.after:
            print_changes(
                self.out, Changes(store_of(self.session), trees.before, trees.after), "  "
            )

    def _messages(self, count: int) -> None:
        said = self.session.messages
        last = said[len(said) - count :] if count < len(said) else said
        if not last:
            return
        self.out.heading(
            "Messages", f"the last {len(last):,} of {len(said):,}" if len(last) < len(said) else ""
        )
        branch = None
        for message in last:
            if message.branch != branch:
                branch = message.branch
                self.out.brief(Cell(f"  ┌ merged from {branch}" if branch else "  └", ACCENT))
            self._message(message, "  │ " if branch else "  ")
        if branch:
            self.out.line(Cell("  └", ACCENT))

    def _message(self, message: Message, margin: str) -> None:
        name = f"{message.name} " if message.name and message.name != message.role else ""
        said = self.out.wrapped(
            message.text or saying(message.event).removeprefix("reply: "),
            self.out.width - 6,
            MESSAGE_LINES,
        )
        place = Cell(f"{message.seq}  {self.out.time(message.time)}  {message.actor}", DIM)
        if self.out.tty:
            self.out.line(Cell(margin, ACCENT), Cell(f"{name}{message.role}", STRONG), "  ", place)
            for line in said:
                self.out.line(Cell(margin, ACCENT), "  ", line)
        else:
            self.out.line(margin, f"{message.seq}  {name}{message.role}  {said[0]}")

    def _where(self, at: Any) -> Cell:
        """The place of something; with its session, if that is another one."""
        own = any(each.id == at.log for each in self.session.lineage.sessions)
        return Cell(f"@{at.seq}" if own else f"{short(at.log)}@{at.seq}", DIM)


def placement_told(placement: Placement | None) -> str | None:
    if placement is None:
        return None
    folder = detail_in(placement).get("folder")
    parts = [
        placement.backend,
        placement.rung,
        f"network {placement.network}" if placement.network else "",
        (
            f"{'in place in' if detail_in(placement).get('in_place') else 'from'} {folder}"
            if folder
            else ""
        ),
        placement.image,
        f"sandbox {short_sandbox(placement.sandbox)}" if placement.sandbox else "",
    ]
    return ", ".join(filter(None, parts))


def _required(session: Session, name: str) -> Cell:
    if name not in session.checks.gates:
        return Cell("")
    unmet = session.checks.unmet.get(name)
    return Cell(f"required, not met: {unmet}", BAD) if unmet else Cell("required", DIM)


def _last_run(session: Session) -> tuple[str | None, str]:
    runs = session.runs
    if not runs:
        return None, ""
    last = runs[-1]
    times = f" (of {len(runs)})" if len(runs) > 1 else ""
    told = (
        f"{last.workflow.rpartition(':')[2]}"
        f" {last.status}{': ' + last.why if last.why else ''}{times}"
    )
    return told, BAD if last.status in ("failed", "open") else ""


def _lineage(session: Session) -> str | None:
    line = session.lineage.sessions
    return (
        " › ".join(f"{each.label or each.short}@{each.seq}" for each in line)
        if len(line) > 1
        else None
    )


def _budget(budget: Budget | None, left: Budget | None) -> str | None:
    if budget is None or left is None:
        return None
    names = {
        "tokens_max": "tokens",
        "cost_usd_max": "US dollars",
        "wall_s_max": "seconds",
        "steps_max": "steps",
        "tool_calls_max": "tool calls",
    }
    granted = [(getattr(budget, name), getattr(left, name), what) for name, what in names.items()]
    return (
        ", ".join(
            f"{rest:,} of {limit:,} {what} left"
            for limit, rest, what in granted
            if limit is not None
        )
        or None
    )


def _spent(spent: Spent) -> str | None:
    if spent == Spent():
        return None
    tokens = f"{'~' if spent.usage.estimated_tokens else ''}{counted(spent.tokens, 'token')}"
    cost = "cost unknown" if spent.cost.dollars is None else str(spent.cost)
    return ", ".join(
        [
            tokens,
            cost,
            counted(spent.model_calls, "model call"),
            counted(spent.tool_calls, "tool call"),
        ]
    )


# ── verify ───────────────────────────────────────────────────────────────────────────────────


@click.command("verify")
@click.argument("session", metavar="[S]", required=False)
@click.option(
    "--state", is_flag=True, help="Also fold everything again, and compare with what is kept."
)
@listing
@click.pass_context
def verify_command(context: click.Context, given: Given, session: str | None, state: bool) -> None:
    """Check every event against its hash and its neighbours.

    Without S the whole store is checked; with S, all that it is made of, merged branches too. The
    last line names what was not checked, and why. The exit code is 6 if something is wrong.
    """
    sessions = events = 0
    try:
        store = store_at(given.store)
        logs = None if session is None else logs_behind(store, [given.open(session).id])
        sessions, events = _extent(store, logs)
        audit = Audit(store, logs, state=state)
        faults = list(audit.faults())
        unchecked = audit.unchecked()
    except (StoreCorrupt, SchemaAltered) as error:  # so badly that it cannot even be looked through
        faults, unchecked = (
            [Fault(None, 0, str(error))],
            [Unchecked("everything else", "the store cannot be opened")],
        )
    skipped = {"not_checked": [unchecked_document(each) for each in unchecked]}
    if given.form == "jsonl":
        print_jsonl([*map(fault_document, faults), skipped])
    elif given.form == "json":
        checked = {"sessions": sessions, "events": events, "state": state}
        print_json(
            {
                "ok": not faults,
                **checked,
                "faults": [fault_document(fault) for fault in faults],
                **skipped,
            }
        )
    else:
        _print_faults(f"{counted(sessions, 'session')}, {counted(events, 'event')}", faults)
        Out().line(f"not checked: {'; '.join(map(str, unchecked))}")
    context.exit(UNVERIFIED if faults else 0)


def _extent(store: Store, logs: Sequence[LogId] | None) -> tuple[int, int]:
    """How many sessions and events are looked at."""
    if logs is None:
        there = store.describe()
        return int(str(there["logs"])), int(str(there["events"]))
    return len(logs), sum(log.tip - log.place for log in map(store.log, logs))


def _print_faults(extent: str, faults: Sequence[Fault]) -> None:
    out = Out()
    if not faults:
        out.line(f"{extent}: nothing is wrong")
        return
    for fault in faults:
        where = f"{short(fault.log)}@{fault.seq}" if fault.log else "the store"
        first, *more = out.wrapped(fault.what, out.width - len(where) - 2, 20)
        out.line(Cell(where, BAD), "  ", first)
        for line in more:
            out.line(" " * (len(where) + 2), line)
    out.line(f"{extent}: {counted(len(faults), 'fault')}")
    out.hint(
        "Keep a copy of the store, and restore it from a backup. Each session is named at its first"
        " broken event."
    )
