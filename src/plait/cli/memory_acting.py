"""Deciding about memories: `approve`, `reject`, `forget`, `rollback`; and `rebuild`.

Decisions of people belong to no session: they stand in the house log of the store.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from plait.cli.common import Options, acting_command, command_line, store_option, writing
from plait.cli.consent import YES, read_line
from plait.cli.documents import print_json
from plait.cli.exits import FAILED, USAGE, ShellError
from plait.cli.memory_documents import memory_document, plan_document
from plait.cli.memory_reading import STATES, open_memory, viewer_in
from plait.cli.memory_text import (
    TEXT_LINES,
    WAITING,
    check_name,
    check_person,
    line_text,
    owner_text,
)
from plait.cli.render import ACCENT, DIM, GAP, STRONG, Cell, Out
from plait.errors import InvalidValue, MayNotDecide, StalePlan, UnknownMemory
from plait.event import Event
from plait.memory.rows import ITEM
from plait.outline.documents import event_document
from plait.session.ports import store_at

if TYPE_CHECKING:
    from plait.memory.items import MemoryItem
    from plait.memory.rollback import RollbackPlan

# a decision on other states would be refused: this is known before the first one is written
APPROVABLE = (*WAITING, "rejected")
FORGETTABLE = (*WAITING, "active", "superseded")

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
        APPROVABLE,
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
        WAITING,
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
        FORGETTABLE,
        lambda item: forget(store, item, reason=reason, actor=given.actor),
    )


def _decide_each(
    given: Options,
    names: Sequence[str],
    verb: str,
    states: Sequence[str],
    decide: Callable[[MemoryItem], MemoryItem],
) -> None:
    """Decide about each of these memories. All are looked at first: one that is wrong leaves
    nothing written.
    """
    from plait.memory.items import find_row, item_of

    check_person(given)
    viewer = viewer_in(given, None)
    store = viewer.store
    for name in names:
        check_name(given, name)
    rows = [find_row(store, name, viewer) for name in names]
    items = {str(row["id"]): item_of(store, row, viewer) for row in rows}
    for item in items.values():
        _check_decidable(given, item, verb, states)
    done: list[MemoryItem] = []
    try:
        for item in items.values():
            done.append(decide(item))
    finally:  # another person may have decided meanwhile: those before are said to be decided
        _print_decided(given, done, verb)


def _check_decidable(given: Options, item: MemoryItem, verb: str, states: Sequence[str]) -> None:
    if item.state not in states:
        show = command_line(given, "memory", "show", item.short)
        done = "forgotten" if verb == "forgot" else verb
        why = f"{item.short} is {item.state}, and cannot be {done}"
        raise InvalidValue("memory", why, f"see {show}")
    is_writer = item.actor == given.actor_name and item.actor.startswith("human:")
    if verb == "approved" and is_writer:
        raise MayNotDecide(item.short, item.actor, "it wrote that memory itself")


def _print_decided(given: Options, done: Sequence[MemoryItem], verb: str) -> None:
    out = Out()
    if given.form == "json":
        if done:
            print_json({"memories": [memory_document(item, out.now) for item in done]})
        return
    for item in done:
        text = f"{owner_text(item)}: {line_text(item.text)}"
        out.print_brief(Cell(f"{verb} {item.short}", ACCENT), GAP, text)
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
    if not dry_run:
        check_person(given)
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
    if about.memory is not None:
        check_name(given, about.memory)
    session = given.open(about.session) if about.session is not None else None
    try:
        return open_memory(given).rollback(
            about.memory, session=session, source=about.source, author=about.author, undo=about.undo
        )
    except UnknownMemory as error:
        if about.memory is not None or about.undo is not None:
            raise
        raise ShellError(error, _nothing_found_lines(given, about)) from error


def _nothing_found_lines(given: Options, about: RollbackTarget) -> list[str]:
    """Return that nothing comes from there, and the next step."""
    show = f"  {command_line(given, 'memory', 'show', 'M')}"
    if about.author is not None:
        return [f"no memory was written by {about.author}.", f"{show}   tells who wrote M"]
    if about.source is not None:
        return [f"no memory came from {about.source}.", f"{show}   tells the source of M"]
    ls = command_line(given, "memory", "ls")
    return [f"no memory was written in session {about.session}.", f"  {ls} --state all"]


def _print_plan(out: Out, plan: RollbackPlan) -> None:
    for line in str(plan).split("\n"):
        first, *rest = out.wrap_lines(line, out.width - 4, TEXT_LINES)
        out.line(first)
        for more in rest:
            out.line("    ", more)


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
            # in a pipe, too: the digest stands nowhere else
            out = Out()
            for line in ("", "Nothing was rolled back yet. Apply this plan:", f"  {step}"):
                out.line(Cell(line, DIM))
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
