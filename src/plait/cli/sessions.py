"""One session: `show`."""

from __future__ import annotations

from typing import Any

import click

from plait.cli.common import Options, listing, store_of
from plait.cli.documents import print_json, print_jsonl
from plait.cli.files import placement_detail, print_changes
from plait.cli.listing import first_words
from plait.cli.memory_reading import memories_lost
from plait.cli.prompts import show_prompt
from plait.cli.render import ACCENT, BAD, DIM, STRONG, Cell, Column, Out, as_json, count_text
from plait.event.kinds import Budget, Placement
from plait.ids import short
from plait.outline.documents import changed_by, show_document
from plait.session import Facts, Message, Session
from plait.session.accessors.checks import FEEDBACK
from plait.session.branching import durability_of
from plait.session.event_text import event_text, short_sandbox
from plait.session.ledger import spent_in_branches
from plait.session.moves import new_address
from plait.session.ports import store_at
from plait.session.state import Spent
from plait.session.value import open_run_of
from plait.session.views import Validation
from plait.workspace.changes import Changes

MESSAGES = 6  # that `show` shows


MESSAGE_LINES = 12  # of one message, on a terminal


LOST = 3  # memories that `show` names


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
    help="What the model was sent at this event, or the nearest before it, exactly.",
)
@click.option("--why", is_flag=True, help="With --prompt: also what was left out of it, and why.")
@listing
@click.pass_context
def show(
    context: click.Context,
    given: Options,
    session: str,
    messages: int | None,
    prompt: bool,
    why: bool,
) -> None:
    """Show a session, at its last event or at S@k.

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
        _SessionPage(value).print(MESSAGES if messages is None else messages)


class _SessionPage:
    """One session for people."""

    def __init__(self, session: Session) -> None:
        self.session, self.out = session, Out()

    def print(self, messages: int) -> None:
        session, out = self.session, self.out
        title = session.title
        out.print_brief(
            Cell(
                title or first_words(store_of(session), session) or "(untitled)",
                STRONG if title else DIM,
            )
        )
        self._print_details()
        self._facts("Facts", session.facts.only("fact"))
        self._facts("Decisions", session.facts.decisions)
        self._facts("Findings", session.facts.findings)
        self._pending()
        self._verdicts()
        self._file_changes()
        self._messages(messages)
        self._queue()

    def _print_details(self) -> None:
        session, first = self.session, self.session.lineage.statuses[0]
        not_merged = spent_in_branches(session)
        tags = " ".join(f"{key}={value}" for key, value in session.tags.items())
        rows = [
            ("session", f"{session.short}@{session.seq}", ACCENT),
            ("label", session.lineage.label, ""),
            ("id", session.id, DIM),
            ("status", *_status_text(session)),
            ("last run", *_last_run_text(session)),
            ("opened", f"{self.out.time(first.time)} by {first.actor}", ""),
            ("lineage", _lineage_text(session), ""),
            (
                "continues",
                str(session.lineage.continues) if session.lineage.continues else None,
                "",
            ),
            ("user", session.user, ""),
            ("project", session.project, ""),
            ("tags", tags or None, ""),
            ("durability", _unusual_durability(session), ""),
            ("placement", _placement_text(session.files.placement), ""),
            ("files", f"tree {session.files.tree[:12]}" if session.files.tree else None, DIM),
            ("budget", _budget_text(session.budget.limits, session.budget.left_now), ""),
            ("used", _usage_text(session.budget.used + not_merged), ""),
            ("of it", _not_merged_text(not_merged), ""),
            ("memories", _lost_text(session), BAD),
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
                [Cell(key), Cell(as_json(facts[key])), self._place_cell(facts.of(key).at)]
                for key in facts
            )
            self.out.table([Column(), Column(flex=True), Column()], rows, indent="  ")

    def _pending(self) -> None:
        if pending := self.session.pending:
            self.out.heading("Pending")
            rows = (
                [Cell(each.kind), Cell(each.what), Cell(each.key, DIM), self._place_cell(each.at)]
                for each in pending.values()
            )
            self.out.table([Column(), Column(flex=True), Column(), Column()], rows, indent="  ")

    def _verdicts(self) -> None:
        session, last = self.session, {each.name: each for each in self.session.checks.verdicts}
        rows = [
            [
                Cell(name),
                Cell(_verdict_text(each), "" if each.passed else BAD),
                _requirement_cell(session, name),
                self._place_cell(each),
            ]
            for name, each in last.items()
        ]
        rows += [
            [
                Cell(name),
                Cell("no verdict", BAD),
                _requirement_cell(session, name),
                self._place_cell(gate.at),
            ]
            for name, gate in session.checks.gates.items()
            if name not in last
        ]
        if rows:
            self.out.heading("Verdicts")
            columns = [Column(), Column(flex=True), Column(), Column()]
            self.out.table(columns, rows, indent="  ")

    def _file_changes(self) -> None:
        """Print the changes that the last event made to the files, if it is the outcome
        of a tool.
        """
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
                self.out.print_brief(Cell(f"  ┌ merged from {branch}" if branch else "  └", ACCENT))
            self._message(message, "  │ " if branch else "  ")
        if branch:
            self.out.line(Cell("  └", ACCENT))

    def _queue(self) -> None:
        if not (queued := self.session.inbox.queued):
            return
        waits = "waits" if len(queued) == 1 else "wait"
        self.out.heading(f"{count_text(len(queued), 'message')} {waits} for an answer")
        rows = (
            [
                Cell(self.out.time(turn.time), DIM),
                Cell(turn.actor, DIM),
                Cell(turn.text),
                Cell(f"key {turn.key}" if turn.key else "", DIM),
                Cell("" if turn.is_attended else "its client is gone", BAD),
            ]
            for turn in queued
        )
        columns = [Column(aside=True), Column(), Column(flex=True), *[Column(aside=True)] * 2]
        self.out.table(columns, rows, indent="  ")

    def _message(self, message: Message, margin: str) -> None:
        name = f"{message.name} " if message.name and message.name != message.role else ""
        said = self.out.wrap_lines(
            message.text or event_text(message.event).removeprefix("reply: "),
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

    def _place_cell(self, at: Any) -> Cell:
        """Return the place of something; with its session, if that is another one."""
        own = any(each.id == at.log for each in self.session.lineage.sessions)
        return Cell(f"@{at.seq}" if own else f"{short(at.log)}@{at.seq}", DIM)


def _placement_text(placement: Placement | None) -> str | None:
    if placement is None:
        return None
    folder = placement_detail(placement).get("folder")
    parts = [
        placement.backend,
        placement.rung,
        f"network {placement.network}" if placement.network else "",
        (
            f"{'in place in' if placement_detail(placement).get('in_place') else 'from'} {folder}"
            if folder
            else ""
        ),
        placement.image,
        f"sandbox {short_sandbox(placement.sandbox)}" if placement.sandbox else "",
    ]
    return ", ".join(filter(None, parts))


def _verdict_text(verdict: Validation) -> str:
    if verdict.name != FEEDBACK:
        return "passed" if verdict.passed else "failed"
    said = f": {verdict.detail}" if verdict.detail else ""
    return f"{'good' if verdict.passed else 'bad'}{said}, by {verdict.actor}"


def _requirement_cell(session: Session, name: str) -> Cell:
    if name not in session.checks.gates:
        return Cell("")
    unmet = session.checks.unmet.get(name)
    return Cell(f"required, not met: {unmet}", BAD) if unmet else Cell("required", DIM)


def _status_text(session: Session) -> tuple[str, str]:
    status = session.status
    if status == "moved":
        store = store_at(session.store)
        return f"moved to {new_address(store, store.log(session.id)) or 'another store'}", ""
    if status != "interrupted":
        return status, BAD if status == "failed" else ""
    why = "a message waits for a process"
    if open_run_of(session) is not None:
        why = "no process has its run"
    return f"interrupted: {why} (plait resume {session.short})", BAD


def _last_run_text(session: Session) -> tuple[str | None, str]:
    runs = session.runs
    if not runs:
        return None, ""
    last = runs[-1]
    times = f" (of {len(runs)})" if len(runs) > 1 else ""
    told = (
        f"{last.workflow.rpartition(':')[2]}"
        f" {last.status}{': ' + last.why if last.why else ''}{times}"
    )
    return told, BAD if last.status in ("failed", "interrupted") else ""


def _unusual_durability(session: Session) -> str | None:
    found = durability_of(session)
    return found if found != "full" else None


def _lineage_text(session: Session) -> str | None:
    line = session.lineage.sessions
    return (
        " › ".join(f"{each.lineage.label or each.short}@{each.seq}" for each in line)
        if len(line) > 1
        else None
    )


def _budget_text(budget: Budget | None, left: Budget | None) -> str | None:
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


def _lost_text(session: Session) -> str | None:
    """Tell the memories that were replaced or taken back after the session had recalled them."""
    lost = memories_lost(session)
    if not lost:
        return None
    more = f" and {len(lost) - LOST:,} more" if len(lost) > LOST else ""
    names = " ".join(memory[:8] for memory in lost[:LOST])
    return f"no longer hold: {names}{more} (plait memory used {session.short})"


def _not_merged_text(spent: Spent) -> str | None:
    used = _usage_text(spent)
    return None if used is None else f"{used}, in branches of runs that were not merged"


def _usage_text(spent: Spent) -> str | None:
    if spent == Spent():
        return None
    tokens = f"{'~' if spent.usage.estimated_tokens else ''}{count_text(spent.tokens, 'token')}"
    cost = "cost unknown" if spent.cost.dollars is None else str(spent.cost)
    return ", ".join(
        [
            tokens,
            cost,
            count_text(spent.model_calls, "model call"),
            count_text(spent.tool_calls, "tool call"),
        ]
    )
