"""Deciding about memories: `approve`, `reject`, `forget`, `rollback`; and `ingest`, `rebuild`.

Decisions of people belong to no session: they stand in the house log of the store.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from plait.cli.common import Options, acting_command, command_line, store_option, writing
from plait.cli.consent import YES, read_line
from plait.cli.documents import Document, event_document, print_json, session_document
from plait.cli.exits import FAILED, USAGE, ShellError
from plait.cli.memory_documents import memory_document, plan_document
from plait.cli.memory_reading import SCOPES, STATES, open_memory, owner_text, viewer_in
from plait.cli.render import ACCENT, STRONG, Cell, Out, count_text
from plait.errors import InvalidValue, StalePlan
from plait.event import Event
from plait.event.kinds import (
    MemoryCommitted,
    MemoryProposed,
    MemoryQuarantined,
)
from plait.ids import Digest
from plait.memory.rows import ITEM
from plait.session import Session
from plait.session.ports import store_at
from plait.store import Store

if TYPE_CHECKING:
    from plait.memory.items import MemoryItem
    from plait.memory.rollback import RollbackPlan

reason_option = click.option("--reason", default="", help="Why; it is on record.")
memories_argument = click.argument("memories", metavar="M…", nargs=-1, required=True)


# ── approve, reject, forget ──────────────────────────────────────────────────────────────────


@click.command("approve")
@memories_argument
@reason_option
@writing
def memory_approve(given: Options, memories: Sequence[str], reason: str) -> None:
    """Approve memories that wait: they are active from now on. Their writer may not."""
    face = open_memory(given)
    _decide_each(
        given,
        memories,
        "approved",
        lambda item: face.approve(item, reason=reason, actor=given.actor),
    )


@click.command("reject")
@memories_argument
@reason_option
@writing
def memory_reject(given: Options, memories: Sequence[str], reason: str) -> None:
    """Reject memories that wait, for good: they are never recalled."""
    face = open_memory(given)
    _decide_each(
        given,
        memories,
        "rejected",
        lambda item: face.reject(item, reason=reason, actor=given.actor),
    )


@click.command("forget")
@memories_argument
@reason_option
@writing
def memory_forget(given: Options, memories: Sequence[str], reason: str) -> None:
    """Take memories back, and nothing that rests on them: for that, see `rollback`."""
    from plait.memory.deciding import forget

    store = store_at(given.store)
    _decide_each(
        given,
        memories,
        "forgot",
        lambda item: forget(store, item, reason=reason, actor=given.actor),
    )


def _decide_each(
    given: Options, names: Sequence[str], verb: str, decide: Callable[[MemoryItem], MemoryItem]
) -> None:
    """Decide about each of these memories. All names are looked up first: one that is wrong leaves
    nothing written.
    """
    from plait.memory.items import find_row, item_of

    viewer = viewer_in(given, None)
    store = viewer.store
    rows = [find_row(store, name, viewer) for name in names]
    items = {str(row["id"]): item_of(store, row, viewer) for row in rows}
    done: list[MemoryItem] = []
    try:
        for item in items.values():
            done.append(decide(item))
    finally:  # those before a refusal are decided, and said to be
        _print_decided(given, done, verb)


def _print_decided(given: Options, done: Sequence[MemoryItem], verb: str) -> None:
    out = Out()
    if given.form == "json":
        if done:
            print_json({"memories": [memory_document(item, out.now) for item in done]})
        return
    for item in done:
        out.print_brief(Cell(f"{verb} {item.short}", ACCENT), f"  {owner_text(item)}: {item.text}")
    if done and verb == "forgot":
        step = command_line(given, "memory", "influence", done[0].short)
        out.hint(f"  {step}   shows what came of it")


# ── rollback ─────────────────────────────────────────────────────────────────────────────────


class RollbackTarget(NamedTuple):
    """The one thing that a rollback is about."""

    memory: str | None
    session: str | None
    source: str | None
    author: str | None
    undo: str | None

    def check(self) -> None:
        count = sum(each is not None for each in self)
        if count != 1:
            raise click.UsageError(
                "name one thing to roll back: M, --session S, --source NAME, --author ACTOR or"
                " --undo EVENT."
            )

    @property
    def words(self) -> list[str]:
        """The arguments that name it, as they are typed."""
        if self.memory is not None:
            return [shlex.quote(self.memory)]
        return [
            word
            for name, value in zip(self._fields, self, strict=True)
            if value is not None
            for word in (f"--{name}", shlex.quote(value))
        ]


@click.command("rollback")
@click.argument("memory", metavar="[M]", required=False)
@click.option("--session", metavar="S", help="All memories that S wrote.")
@click.option("--source", metavar="NAME", help="All memories from this document.")
@click.option("--author", metavar="ACTOR", help="All memories by this principal.")
@click.option("--undo", metavar="EVENT", help="Take back the rollback with this event.")
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@click.option("--plan", "digest", metavar="DIGEST", help="Apply it only if it is this very plan.")
@click.option("--yes", is_flag=True, help="Do not ask at the terminal.")
@reason_option
@writing
def memory_rollback(
    given: Options,
    dry_run: bool,
    digest: str | None,
    yes: bool,
    reason: str,
    **target: str | None,
) -> None:
    """Take memories back with all that rests on them.

    The plan is printed first: what falls, what comes back, who relied on it. At a terminal you are
    asked; elsewhere nothing happens without --yes. The event that is printed at the end undoes it.
    """
    about = RollbackTarget(**target)
    about.check()
    if yes and not reason.strip():
        raise click.UsageError("--yes needs --reason TEXT, for those who relied on the memories.")
    plan = _plan_rollback(given, about)
    if digest is not None and not (len(digest) >= 8 and plan.digest.startswith(digest.lower())):
        raise StalePlan(plan.about)
    if given.form == "text":
        _print_plan(Out(), plan)
    if dry_run or plan.is_empty or not (yes or _is_terminal(given)):
        return _end_without_acting(given, about, plan, is_refused=not (dry_run or plan.is_empty))
    if not yes:
        reason = _ask_to_roll_back(reason)
    first, *_ = plan.apply(reason=reason, actor=given.actor)
    _print_rollback(given, plan, first)


def _plan_rollback(given: Options, about: RollbackTarget) -> RollbackPlan:
    return open_memory(given).rollback(
        about.memory,
        session=given.open(about.session) if about.session is not None else None,
        source=about.source,
        author=about.author,
        undo=about.undo,
    )


def _print_plan(out: Out, plan: RollbackPlan) -> None:
    for line in str(plan).split("\n"):
        out.line(line)


def _is_terminal(given: Options) -> bool:
    return given.form == "text" and sys.stdin.isatty() and sys.stderr.isatty()


def _ask_to_roll_back(reason: str) -> str:
    """Ask at the terminal, and for the reason if none was given; go on only after a clear yes."""
    said = read_line("Roll it back? [y]es, anything else is no: ")
    if said is None or said.strip().lower() not in YES:
        raise ShellError(
            InvalidValue("rollback", "it was not allowed", "plan it again"),
            ["nothing was rolled back: you did not say yes."],
            FAILED,
        )
    return reason or (read_line("Why? Those who relied on it are told: ") or "").strip()


def _end_without_acting(
    given: Options, about: RollbackTarget, plan: RollbackPlan, *, is_refused: bool
) -> None:
    step = (
        f"plait memory rollback {' '.join(about.words)}{store_option(given)}"
        f" --plan {plan.digest[:16]} --yes --reason TEXT"
    )
    if given.form == "json":
        print_json({"plan": plan_document(plan), "applied": None})
    if not is_refused:
        if given.form == "text" and not plan.is_empty:
            Out().hint("", "Nothing was rolled back yet. Apply this plan:", f"  {step}")
        return
    raise ShellError(
        InvalidValue("--yes", "there is no terminal to ask at", step),
        ["nothing was rolled back: there is no terminal to ask at. Apply this plan:", f"  {step}"],
        USAGE,
    )


def _print_rollback(given: Options, plan: RollbackPlan, event: Event) -> None:
    if given.form == "json":
        print_json({"plan": plan_document(plan), "applied": event_document(event)})
        return
    out = Out()
    out.line()
    done = "rolled back" if plan.undoes is None else "undone"
    out.line(Cell(done, STRONG), " by event ", Cell(event.id[:16], ACCENT))
    undo = command_line(given, "memory", "rollback", "--undo", event.id[:16])
    out.hint(f"  {undo}   takes it back")


# ── ingest ───────────────────────────────────────────────────────────────────────────────────


@click.command("ingest")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--session", metavar="S", help="Write to S; else a session is opened for it.")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="session",
    help="Of the memories; session if left out.",
)
@click.option(
    "--kind",
    type=click.Choice(["resource", "skill"]),
    default="resource",
    help="A text to look things up in, or one that says how something is done.",
)
@click.option("--user", help="The user of the session that is opened.")
@click.option("--project", help="The project of the session that is opened.")
@writing
def memory_ingest(
    given: Options,
    path: Path,
    session: str | None,
    scope: Any,
    kind: Literal["resource", "skill"],
    user: str | None,
    project: str | None,
) -> None:
    """Remember a text file in pieces, each citing the document.

    You vouch for the document. A piece that reads like an instruction waits all the same:
    `plait memory pending` shows it.
    """
    from plait.memory.ingest import pieces_of_text, read_document

    if session is not None and (user is not None or project is not None):
        raise click.UsageError("--user and --project are of a session that is opened, not of S.")
    pieces = len(pieces_of_text(read_document(path)[0]))
    if not pieces:  # before a session is opened for it
        raise InvalidValue("path", f"{path.name} has no words", "pass a text file")
    before = _session_for(given, path, session, scope, user, project)
    after = open_memory(given).ingest(before, path, scope=scope, kind=kind, actor=given.actor)
    _print_ingested(given, before, after, pieces, is_opened=session is None)


def _session_for(
    given: Options,
    path: Path,
    session: str | None,
    scope: str,
    user: str | None,
    project: str | None,
) -> Session:
    """Open a session, or a new one with the title of the document."""
    if session is not None:
        return given.open_last(session)
    owners = {"session": "", "user": user, "project": project}
    if scope in owners and owners[scope] is None:
        raise click.UsageError(f"--scope {scope} needs an owner: --{scope} NAME, or --session S.")
    if scope not in owners:
        raise click.UsageError(
            f"--scope {scope} needs the run of one: ingest the document in Python, with"
            f" Memory({scope}=NAME)."
        )
    return Session(
        title=path.name, user=user, project=project, store=given.store, actor=given.actor
    )


def _print_ingested(
    given: Options, before: Session, after: Session, pieces: int, *, is_opened: bool
) -> None:
    counts, ids = _ingested_counts(store_at(given.store), before, after, pieces)
    if given.form == "json":
        counted = {**counts, "memories": ids}
        print_json({"session": session_document(after), "opened": is_opened, **counted})
        return
    out = Out()
    if is_opened:
        out.print_brief("opened session ", Cell(after.short, ACCENT), f" for {after.title}")
    said = [f"{counts[name]:,} {text}" for name, text in _COUNTED.items() if counts[name]]
    out.line(
        Cell(f"{after.short}@{after.seq}", ACCENT),
        f"  {count_text(pieces, 'piece')}: {', '.join(said)}",
    )
    if counts["quarantined"]:
        out.hint(f"  {command_line(given, 'memory', 'pending')}   shows what waits for you")


_COUNTED = {
    "active": "active",
    "quarantined": "quarantined",
    "proposed": "proposed, decided when the branch is merged",
    "known": "known already",
}


def _ingested_counts(
    store: Store, before: Session, after: Session, pieces: int
) -> tuple[Document, list[Digest]]:
    kinds = {
        kind.__name__: name
        for kind, name in (
            (MemoryProposed, "proposed"),
            (MemoryCommitted, "active"),
            (MemoryQuarantined, "quarantined"),
        )
    }
    events = list(store.read(after.id, before.seq + 1, after.seq, kinds=kinds))
    count = Counter(kinds[event.kind] for event in events)
    waiting = count["proposed"] - count["active"] - count["quarantined"]
    ids = [event.id for event in events if event.kind == MemoryProposed.__name__]
    return {
        "active": count["active"],
        "quarantined": count["quarantined"],
        "proposed": waiting,
        "known": pieces - count["proposed"],
    }, ids


# ── rebuild ──────────────────────────────────────────────────────────────────────────────────


@click.command("rebuild")
@acting_command
def memory_rebuild(given: Options) -> None:
    """Fold the index of memories again from the events. Nothing on record changes."""
    from plait.memory.scopes import Overseer

    open_memory(given).rebuild()
    store = store_at(given.store)
    viewer = Overseer(store)
    rows = store.rows("memory", ITEM, limit=2**31)
    count = Counter(viewer.standing(row).state for row in rows)
    states = {state: count[state] for state in STATES if state != "all"}
    if given.form == "json":
        print_json({"store": given.store, "memories": len(rows), "states": states})
        return
    said = ", ".join(f"{number:,} {state}" for state, number in states.items() if number)
    total = f"{len(rows):,} memor{'y' if len(rows) == 1 else 'ies'}"
    Out().line(f"rebuilt {total}{f': {said}' if said else ''}")
