"""Commands that append to a session: opening, messages, facts, gates, status.

Each command opens the session as it is now, does one thing, and prints the new state. If another
writer was first, nothing is written, and the exit code says to try again.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

from plait import open_store
from plait.cli.common import (
    Options,
    address_of,
    budget_of,
    limits,
    pairs,
    parse_budget,
    text_of,
    value_of,
    writing,
)
from plait.cli.documents import print_json
from plait.cli.inbox import print_posted
from plait.cli.render import ACCENT, BAD, Cell, Out
from plait.errors import InvalidValue
from plait.outline.documents import session_document
from plait.session import Session
from plait.session.event_text import event_text
from plait.session.gates import is_counted
from plait.session.ports import store_at
from plait.session.safe_text import clean
from plait.session.value import open_run_of
from plait.store import FOLDER, check_folder, store_exists


def print_session(given: Options, session: Session, *hints: str) -> None:
    """Print the place of a session, and its last event."""
    if given.form == "json":
        print_json(session_document(session))
        return
    out = Out()
    out.print_brief(
        Cell(f"{session.short}@{session.seq}", ACCENT), "  ", event_text(session.events[-1])
    )
    out.hint(*(f"  {hint}" for hint in hints))


def print_written(given: Options, before: Session, after: Session, *hints: str) -> None:
    """Print the event that was appended; while a run is open, the event in the inbox instead."""
    if after == before:
        print_posted(given, after, *hints)
    else:
        print_session(given, after, *hints)


# ── beginning ────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("folder", metavar="[DIR]", required=False)
@click.option(
    "--store",
    "address",
    metavar="ADDRESS",
    help="Make it at this address instead. Else in DIR, PLAIT_STORE, or here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs.")
def init(folder: str | None, address: str | None, as_json: bool) -> None:
    """Make a store: the folder .plait in DIR, or here. Doing it again changes nothing."""
    if folder is not None and address is not None:
        raise click.UsageError("DIR and --store say the same thing: give one of them.")
    where = _new_address(folder, address)
    made = not store_exists(where)
    open_store(where)  # of a server's, an error names `plait migrate` if there is none
    if as_json:
        print_json({"store": where, "made": made})
        return
    out = Out()
    out.line(f"made a store at {where}" if made else f"there is a store already at {where}")
    if made:
        out.hint('  plait new "what it is about"')


def _new_address(folder: str | None, address: str | None) -> str:
    """Return the address of a new store: as for `git init`, right here, even below a folder that
    has one.
    """
    if address is not None:
        return address_of(address)
    if folder is None and os.environ.get("PLAIT_STORE"):
        return address_of(None)
    if os.path.isdir(folder or "."):  # one that would not be found again is not made
        check_folder(Path(os.path.realpath(folder or ".")), FOLDER, os.environ)
    return address_of(os.path.join(folder or ".", FOLDER))


@click.command()
@click.argument("text", required=False)
@click.option("--title", default="", help="What it is about.")
@click.option("--user", help="For whom.")
@click.option("--project", help="For what.")
@click.option("--tag", "tags", metavar="K=V", multiple=True, help="A tag; may be repeated.")
@click.option(
    "--durability",
    type=click.Choice(["full", "async"]),
    help="How it is written: on disk at once (full), or at the next boundary (async).",
)
@limits()
@writing
def new(
    given: Options,
    text: str | None,
    title: str,
    user: str | None,
    project: str | None,
    tags: Sequence[str],
    durability: Literal["full", "async"] | None,
    **limits: Any,
) -> None:
    """Open a session, and say TEXT in it.

    As TEXT, - reads standard input. If there is no store, it is made.
    """
    said = [] if text is None else [_nonempty(text_of(text))]
    session = Session(
        *said,
        title=title,
        user=user,
        project=project,
        tags=pairs("--tag", tags),
        budget=budget_of(limits),
        durability=durability,
        store=given.new_store,
        actor=given.actor_name,
    )
    print_session(given, session, f'plait say {session.short} "…"', f"plait show {session.short}")


def _nonempty(text: str) -> str:
    if not text:
        raise InvalidValue("text", "nothing is said", "pass a text")
    return text


# ── messages and facts ───────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("session", metavar="S")
@click.argument("text", required=False)
@click.option(
    "--role",
    type=click.Choice(["user", "assistant", "system"]),
    default="user",
    show_default=True,
    help="In which role.",
)
@click.option("--name", default="", help="Under which name.")
@click.option(
    "--file",
    "files",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="An image or a file; may be repeated.",
)
@writing
def say(
    given: Options, session: str, text: str | None, role: Any, name: str, files: Sequence[Path]
) -> None:
    """Add a message. As TEXT, - reads standard input.

    While a run is open it goes to the session's inbox, and is heard at the next safe point.
    """
    said = [_nonempty(text_of(text))] if text is not None else []
    if not said and not files:
        raise click.UsageError("Nothing to say: give TEXT, - or --file.")
    before = given.open_last(session)
    if open_run_of(before) is not None and (role != "user" or name):
        raise click.UsageError(
            f"{before.short} has an open run: only a user's message can be sent to it, without"
            " --role and --name."
        )
    print_written(
        given, before, before.say(*said, *files, role=role, name=name, actor=given.actor_name)
    )


@click.command()
@click.argument("session", metavar="S")
@click.argument("text")
@writing
def note(given: Options, session: str, text: str) -> None:
    """Record a finding. As TEXT, - reads standard input."""
    before = given.open_last(session)
    print_written(given, before, before.note(text_of(text), actor=given.actor_name))


@click.command()
@click.argument("session", metavar="S")
@click.argument("key")
@click.argument("value")
@writing
def fact(given: Options, session: str, key: str, value: str) -> None:
    """Record a fact under a key. VALUE is JSON if it is that, else a text."""
    before = given.open_last(session)
    print_written(given, before, before.fact(key, value_of(value), actor=given.actor_name))


@click.command()
@click.argument("session", metavar="S")
@click.argument("key")
@click.argument("value")
@click.option("--reason", default="", help="Why.")
@writing
def decide(given: Options, session: str, key: str, value: str, reason: str) -> None:
    """Record a decision under a key. VALUE is JSON if it is that, else a text."""
    before = given.open_last(session)
    print_written(
        given, before, before.decide(key, value_of(value), reason=reason, actor=given.actor_name)
    )


@click.command()
@click.argument("session", metavar="S")
@click.argument("key")
@click.option("--reason", default="", help="Why.")
@writing
def retract(given: Options, session: str, key: str, reason: str) -> None:
    """Take a fact, a decision or a finding back."""
    before = given.open_last(session)
    print_written(given, before, before.retract(key, reason=reason, actor=given.actor_name))


@click.command()
@click.argument("session", metavar="S")
@click.argument("name")
@click.option(
    "--by",
    default="",
    help="Who is to judge: human:ana, service:ci, or a workflow. Nobody else's verdict counts.",
)
@writing
def require(given: Options, session: str, name: str, by: str) -> None:
    """Require a verdict before a session is merged or closed."""
    before = given.open_last(session)
    value = before.checks.require(name, by=by, actor=given.actor_name)
    print_written(
        given, before, value, shlex.join(["plait", "validate", value.short, name, "passed"])
    )


@click.command()
@click.argument("session", metavar="S")
@click.argument("name")
@click.argument("verdict", type=click.Choice(["passed", "failed"]))
@click.option("--detail", help="More about it: JSON, or a text.")
@writing
def validate(given: Options, session: str, name: str, verdict: str, detail: str | None) -> None:
    """Record a verdict on a session as it is now.

    While a run is open it goes to the session's inbox: a run that waits for it is due.
    """
    more = value_of(detail) if detail is not None else None
    before = given.open_last(session)
    after = before.checks.record(name, verdict == "passed", detail=more, actor=given.actor_name)
    print_written(given, before, after)
    gate, event = (
        before.checks.gates.get(name),
        after.inbox.events[-1] if after == before else after.events[-1],
    )
    if gate is not None and not is_counted(gate.by, event) and given.form == "text":
        Out().line(
            Cell(
                f"  it does not count: gate {clean(name)} asks for the verdict of {clean(gate.by)}",
                BAD,
            )
        )


@click.command()
@click.argument("session", metavar="S")
@click.argument("text")
@click.option(
    "--kind",
    type=click.Choice(["step", "question", "hypothesis"]),
    default="step",
    show_default=True,
    help="What it is.",
)
@writing
def todo(given: Options, session: str, text: str, kind: Any) -> None:
    """Add pending work: a next step, an open question, a hypothesis."""
    before = given.open_last(session)
    value = before.todo(text, kind=kind, actor=given.actor_name)
    print_written(given, before, value, shlex.join(["plait", "settle", value.short, text]))


@click.command()
@click.argument("session", metavar="S")
@click.argument("key")
@click.argument("outcome", default="")
@writing
def settle(given: Options, session: str, key: str, outcome: str) -> None:
    """Settle pending work, named by its key or by what it says."""
    before = given.open_last(session)
    print_written(given, before, before.settle(key, outcome, actor=given.actor_name))


# ── status ───────────────────────────────────────────────────────────────────────────────────


def _life_command(name: str, help: str) -> click.Command:
    @click.command(name, help=help)
    @click.argument("session", metavar="S")
    @click.option("--reason", default="", help="Why.")
    @writing
    def command(given: Options, session: str, reason: str) -> None:
        before = given.open_last(session)
        after: Session = getattr(before, name)(reason=reason, actor=given.actor_name)
        if after == before and given.form == "text":  # the word stands in the inbox
            run = open_run_of(after)
            is_held = run is not None and store_at(after.store).is_locked(run)
            wish = f"is asked to {name}: it is heard before the next effect"
            click.echo(f"{before.short}  {wish if is_held else after.status}")
            return
        print_session(given, after)

    return command


@click.command()
@click.argument("session", metavar="S")
@click.argument("limits", metavar="LIMITS")
@writing
def grant(given: Options, session: str, limits: str) -> None:
    """Grant a session a budget from here on.

    LIMITS as in tokens=200000,cost_usd=1.5,wall_s=600,steps=40,tool_calls=100: instead of what was
    left of the one before.
    """
    budget = parse_budget(limits, "LIMITS")
    assert budget is not None
    before = given.open_last(session)
    print_written(given, before, before.budget.grant(budget, actor=given.actor_name))


pause = _life_command("pause", "Let a session rest.")
unpause = _life_command("unpause", "Take a paused session up again.")
close = _life_command(
    "close", "End a session: nothing is appended any more. Required verdicts must be there."
)
archive = _life_command("archive", "Put a closed session away.")
