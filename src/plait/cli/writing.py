"""Everything that appends: opening, branching, saying, knowing, living.

Each command opens the session as it is now, does one thing, and prints where it then stands. If
somebody else was first, nothing is written and the exit code says to try again.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from plait import open_store
from plait.cli.choices import Choices, name_of, path_in, settled, sides_told
from plait.cli.common import (
    Given,
    Negative,
    address_of,
    budget_of,
    is_number,
    limits,
    pairs,
    store_of,
    text_of,
    value_of,
    writing,
)
from plait.cli.documents import print_json, session_document
from plait.cli.exits import Told
from plait.cli.inbox import print_posted
from plait.cli.render import ACCENT, BAD, Cell, Out, as_json
from plait.cli.running import parse_budget
from plait.cli.terminal import clean
from plait.errors import InvalidValue, MergeConflict
from plait.event import Event, Json
from plait.event.kinds import Rewound, ToolRequested
from plait.ids import Digest, short
from plait.session import ABSENT, Session
from plait.session.gates import is_counted
from plait.session.saying import saying
from plait.session.value import open_run_of
from plait.store import FOLDER, check_folder, exists
from plait.workspace.tree import TreeReader


def done(given: Given, session: Session, *hints: str) -> None:
    """Print where a session stands now, and what its last event says."""
    if given.form == "json":
        print_json(session_document(session))
        return
    out = Out()
    out.brief(Cell(f"{session.short}@{session.seq}", ACCENT), "  ", saying(session.events[-1]))
    out.hint(*(f"  {hint}" for hint in hints))


def wrote(given: Given, before: Session, after: Session, *hints: str) -> None:
    """Print what was appended; while a run is open, what was put into the inbox instead."""
    if after == before:
        print_posted(given, after, *hints)
    else:
        done(given, after, *hints)


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
    made = not exists(where)
    open_store(where)
    if as_json:
        print_json({"store": where, "made": made})
        return
    out = Out()
    out.line(f"made a store at {where}" if made else f"there is a store already at {where}")
    if made:
        out.hint('  plait new "what it is about"')


def _new_address(folder: str | None, address: str | None) -> str:
    """As `git init`: right here, even below a folder that has one."""
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
    given: Given,
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
        store=address_of(given.address),
        actor=given.who,
    )
    done(given, session, f'plait say {session.short} "…"', f"plait show {session.short}")


def _nonempty(text: str) -> str:
    if not text:
        raise InvalidValue("text", "nothing is said", "pass a text")
    return text


# ── branching ────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("session", metavar="S")
@click.argument("label", required=False)
@limits("budget")
@writing
def fork(given: Given, session: str, label: str | None, **limits: Any) -> None:
    """Branch off from a session, at its last place or at S@k."""
    source = given.open(session)
    made = source.fork(label, budget=budget_of(limits), actor=given.who)
    done(
        given,
        made,
        f'plait say {made.short} "…"',
        f"plait diff {source.short} {made.short}",
        f"plait merge {source.short} {made.short}",
    )


@click.command(cls=Negative)
@click.argument("session", metavar="S")
@click.argument("place", required=False)
@click.option("--reason", default="", help="Why.")
@writing
def rewind(given: Given, session: str, place: str | None, reason: str) -> None:
    """Go on from the story at an earlier place: PLACE, or S@k.

    The past stays on record, and what was spent stays spent.
    """
    value = given.open(session)
    if place is None:
        now, to = value.reload(), value.seq
    elif is_number(place):
        now, to = value, int(place)
    else:
        raise click.BadParameter(
            f"{place!r} is not a number: places count from 1, or from -1 back.",
            param_hint="'PLACE'",
        )
    after = now.rewind(to, reason=reason, actor=given.who)
    left = _not_undone(after)
    if given.form == "json":
        print_json(
            {
                **session_document(after),
                "not_undone": [_effect_document(*effect) for effect in left],
            }
        )
        return
    done(given, after, f"plait log {now.short} --path")
    out = Out()
    for event, request in left:
        said = (
            f"{request.tool} {as_json(request.arguments)}: {saying(event)}"
            if request
            else saying(event)
        )
        out.brief("  not undone  ", Cell(f"{short(event.log)}@{event.seq}", ACCENT), "  ", said)


def _not_undone(session: Session) -> list[tuple[Event, ToolRequested | None]]:
    """What reached beyond the files and stays in the world, with what was asked for."""
    body, store = session.events[-1].body, store_of(session)
    assert isinstance(body, Rewound)
    outcomes = [store.event(id) for id in body.not_undone]
    asked: dict[str | None, ToolRequested] = {}
    for log in dict.fromkeys(event.log for event in outcomes):
        for request in store.read(log, kinds={ToolRequested.__name__}):
            if isinstance(request.body, ToolRequested):
                asked[request.header.call] = request.body
    return [(event, asked.get(event.header.call)) for event in outcomes]


def _effect_document(event: Event, request: ToolRequested | None) -> dict[str, Any]:
    asked = (
        {"tool": request.tool, "arguments": request.arguments}
        if request
        else {"tool": None, "arguments": None}
    )
    return {
        "event": event.id,
        "session": event.log,
        "seq": event.seq,
        **asked,
        "says": saying(event),
    }


@click.command()
@click.argument("session", metavar="S")
@click.argument("others", metavar="OTHER…", nargs=-1, required=True)
@click.option(
    "--resolve",
    metavar="KEY=VALUE",
    multiple=True,
    help=(
        "What holds where branches disagree: of a fact JSON or a text, of a file a branch, or @FILE"
        " for its content; may be repeated."
    ),
)
@click.option(
    "--drop",
    metavar="KEY",
    multiple=True,
    help="Where branches disagree, the fact or the file is gone; may be repeated.",
)
@click.option("--base", metavar="B", help="The place both come from, if they share none.")
@writing
def merge(
    given: Given,
    session: str,
    others: Sequence[str],
    resolve: Sequence[str],
    drop: Sequence[str],
    base: str | None,
) -> None:
    """Take the results of other branches in: facts and files.

    Where they disagree, nothing is written until you choose.
    """
    into, branches = given.open_last(session), [given.open(other) for other in others]
    known = _Known.of((into, *branches))
    facts, files = known.choices(resolve, drop)
    root = given.open(base) if base is not None else None

    def act(chosen: Mapping[str, Any]) -> Session:
        return into.merge(
            *branches, resolve={**facts, **chosen} or None, base=root, actor=given.who
        )

    try:
        merged = settled(act, files)
    except MergeConflict as error:
        raise Told(error, _conflict(error, known)) from error
    if merged != into or given.form == "json":
        done(given, merged, f"plait log {merged.short} --graph")
    else:
        Out().line(
            Cell(f"{into.short}@{into.seq}", ACCENT),
            "  has all of it already: nothing was written",
        )


class _Known(NamedTuple):
    """What the branches have, so that a key on the command line is understood."""

    facts: set[str]
    trees: list[tuple[TreeReader, Digest]]

    @classmethod
    def of(cls, sessions: Sequence[Session]) -> _Known:
        reader = TreeReader(store_of(sessions[0]))
        facts = {key for session in sessions for key in session.facts}
        return cls(
            facts,
            [
                (reader, session.files.tree)
                for session in sessions
                if session.files.tree is not None
            ],
        )

    def is_file(self, key: str) -> bool:
        """A path that some branch has, and no fact; with the word before it, whatever else is
        called that.
        """
        path = path_in(key)
        return (path != key or key not in self.facts) and any(
            reader.find(tree, path) is not None for reader, tree in self.trees
        )

    def choices(
        self, resolve: Sequence[str], drop: Sequence[str]
    ) -> tuple[dict[str, Json], Choices]:
        pairs("--resolve", resolve)
        facts: dict[str, Json] = {}
        files: dict[str, str] = {}
        for text in resolve:
            # A key may have a = in it: the longest one that somebody knows is meant.
            keys = [text[:at] for at, char in enumerate(text) if char == "="]
            key = max(
                (key for key in keys if key in self.facts or self.is_file(key)),
                key=len,
                default=keys[0],
            )
            if self.is_file(key):
                files[key] = text[len(key) + 1 :]
            else:
                facts[key] = value_of(text[len(key) + 1 :])
        return {**facts, **dict.fromkeys(drop, ABSENT)}, Choices.of(files)


def _conflict(error: MergeConflict, known: _Known) -> list[str]:
    """What each side says, and the command that chooses."""
    said, choices = (
        [f"cannot merge into {error.session}: the branches disagree. Nothing was written.", ""],
        list[str](),
    )
    for key, sides in error.conflicts.items():
        if known.is_file(key):
            said += [f"  {name_of(key)}", *sides_told(sides)]
            choices.append(f"{key}={next(iter(sides))}")
        else:
            said += [f"  {clean(key)}", *_facts_told(sides)]
            choices.append(
                f"{key}={json.dumps(next(value for value in sides.values() if value is not ABSENT))}"  # noqa: E501
            )
    if not any(map(known.is_file, error.conflicts)):
        return [
            *said,
            "",
            "Choose a value for each, as here, or leave it out with --drop KEY:",
            f"  {_again(choices)}",
        ]
    return [
        *said,
        "",
        "See how the files differ:",
        *_compared(),
        (
            "Choose for each, as here, or leave it out with --drop KEY. A file is chosen by the"
            " name of a side, or with @FILE:"
        ),
        f"  {_again(choices)}",
    ]


def _compared() -> list[str]:
    given = click.get_current_context().params
    return [
        f"  {shlex.join(['plait', 'diff', given['session'], other, '--files'])}"
        for other in given["others"]
    ]


def _facts_told(sides: Mapping[str, Any]) -> list[str]:
    named = {
        clean(side): "(retracted)" if value is ABSENT else json.dumps(value, ensure_ascii=False)
        for side, value in sides.items()
    }
    wide = max(map(len, named))
    return [f"    {side:{wide}}  {value}" for side, value in named.items()]


def _again(choices: Sequence[str]) -> str:
    """The command that was typed, with these choices added."""
    context = click.get_current_context()
    given = context.params
    words = ["plait", "merge", given["session"], *given["others"]]
    for option, values in (("--resolve", [*given["resolve"], *choices]), ("--drop", given["drop"])):
        words += [word for value in values for word in (option, value)]
    for option, value in (
        ("--base", given["base"]),
        ("--as", given["actor"]),
        ("--store", given["address"]),
    ):
        words += [option, value] if value is not None else []
    return shlex.join(words)


# ── saying and knowing ───────────────────────────────────────────────────────────────────────


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
    given: Given, session: str, text: str | None, role: Any, name: str, files: Sequence[Path]
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
    wrote(given, before, before.say(*said, *files, role=role, name=name, actor=given.who))


@click.command()
@click.argument("session", metavar="S")
@click.argument("text")
@writing
def note(given: Given, session: str, text: str) -> None:
    """Record a finding. As TEXT, - reads standard input."""
    before = given.open_last(session)
    wrote(given, before, before.note(text_of(text), actor=given.who))


@click.command()
@click.argument("session", metavar="S")
@click.argument("key")
@click.argument("value")
@writing
def fact(given: Given, session: str, key: str, value: str) -> None:
    """Record a fact under a key. VALUE is JSON if it is that, else a text."""
    before = given.open_last(session)
    wrote(given, before, before.fact(key, value_of(value), actor=given.who))


@click.command()
@click.argument("session", metavar="S")
@click.argument("key")
@click.argument("value")
@click.option("--reason", default="", help="Why.")
@writing
def decide(given: Given, session: str, key: str, value: str, reason: str) -> None:
    """Record a decision under a key. VALUE is JSON if it is that, else a text."""
    before = given.open_last(session)
    wrote(given, before, before.decide(key, value_of(value), reason=reason, actor=given.who))


@click.command()
@click.argument("session", metavar="S")
@click.argument("key")
@click.option("--reason", default="", help="Why.")
@writing
def retract(given: Given, session: str, key: str, reason: str) -> None:
    """Take a fact, a decision or a finding back."""
    before = given.open_last(session)
    wrote(given, before, before.retract(key, reason=reason, actor=given.who))


@click.command()
@click.argument("session", metavar="S")
@click.argument("name")
@click.option(
    "--by",
    default="",
    help="Who is to judge: human:ana, service:ci, or a workflow. Nobody else's verdict counts.",
)
@writing
def require(given: Given, session: str, name: str, by: str) -> None:
    """Require a verdict of this name before the session is merged or closed."""
    before = given.open_last(session)
    value = before.checks.require(name, by=by, actor=given.who)
    wrote(given, before, value, shlex.join(["plait", "validate", value.short, name, "passed"]))


@click.command()
@click.argument("session", metavar="S")
@click.argument("name")
@click.argument("verdict", type=click.Choice(["passed", "failed"]))
@click.option("--detail", help="More about it: JSON, or a text.")
@writing
def validate(given: Given, session: str, name: str, verdict: str, detail: str | None) -> None:
    """Record a verdict on a session as it is now.

    While a run is open it goes to the session's inbox: a run that waits for it is due.
    """
    more = value_of(detail) if detail is not None else None
    before = given.open_last(session)
    after = before.checks.record(name, verdict == "passed", detail=more, actor=given.who)
    wrote(given, before, after)
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
def todo(given: Given, session: str, text: str, kind: Any) -> None:
    """Add pending work: a next step, an open question, a hypothesis."""
    before = given.open_last(session)
    value = before.todo(text, kind=kind, actor=given.who)
    wrote(given, before, value, shlex.join(["plait", "settle", value.short, text]))


@click.command()
@click.argument("session", metavar="S")
@click.argument("key")
@click.argument("outcome", default="")
@writing
def settle(given: Given, session: str, key: str, outcome: str) -> None:
    """Settle pending work, named by its key or by what it says."""
    before = given.open_last(session)
    wrote(given, before, before.settle(key, outcome, actor=given.who))


# ── living ───────────────────────────────────────────────────────────────────────────────────


def _life(name: str, help: str) -> click.Command:
    @click.command(name, help=help)
    @click.argument("session", metavar="S")
    @click.option("--reason", default="", help="Why.")
    @writing
    def command(given: Given, session: str, reason: str) -> None:
        before = given.open_last(session)
        after: Session = getattr(before, name)(reason=reason, actor=given.who)
        if after == before and given.form == "text":  # a run is open: the wish stands in its inbox
            click.echo(f"{before.short}  is asked to {name}: it is heard before the next effect")
            return
        done(given, after)

    return command


@click.command()
@click.argument("session", metavar="S")
@click.argument("limits", metavar="LIMITS")
@writing
def grant(given: Given, session: str, limits: str) -> None:
    """Grant a session a budget from here on.

    LIMITS as in tokens=200000,cost_usd=1.5,wall_s=600,steps=40,tool_calls=100: instead of what was
    left of the one before.
    """
    budget = parse_budget(limits)
    assert budget is not None
    before = given.open_last(session)
    wrote(given, before, before.budget.grant(budget, actor=given.who))


pause = _life("pause", "Let a session rest.")
unpause = _life("unpause", "Take a paused session up again.")
close = _life(
    "close", "End a session: nothing is appended any more. Required verdicts must be there."
)
archive = _life("archive", "Put a closed session away.")
