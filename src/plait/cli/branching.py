"""Branches of a session: `fork`, `rewind`, `merge`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from plait.cli.choices import Choices, act_with_choices, name_of, path_in, side_lines
from plait.cli.common import (
    Negative,
    Options,
    budget_of,
    is_number,
    limits,
    pairs,
    store_of,
    value_of,
    writing,
)
from plait.cli.documents import print_json
from plait.cli.exits import ShellError
from plait.cli.render import ACCENT, Cell, Out, as_json
from plait.cli.writing import print_session
from plait.errors import MergeConflict
from plait.event import Event, Json
from plait.event.kinds import Rewound, ToolRequested
from plait.ids import Digest, short
from plait.outline.documents import session_document
from plait.session import ABSENT, Session
from plait.session.event_text import event_text
from plait.session.safe_text import clean
from plait.workspace.tree import TreeReader


@click.command()
@click.argument("session", metavar="S")
@click.argument("label", required=False)
@limits("budget")
@writing
def fork(given: Options, session: str, label: str | None, **limits: Any) -> None:
    """Branch off from a session, at its last event or at S@k."""
    source = given.open(session)
    made = source.fork(label, budget=budget_of(limits), actor=given.actor_name)
    print_session(
        given,
        made,
        f'plait say {made.short} "…"',
        f"plait diff {source.short} {made.short}",
        f"plait merge {source.short} {made.short}",
    )


@click.command(cls=Negative)
@click.argument("session", metavar="S")
@click.argument("place", metavar="[SEQ]", required=False)
@click.option("--reason", default="", help="Why.")
@writing
def rewind(given: Options, session: str, place: str | None, reason: str) -> None:
    """Go on from the story at an earlier event: SEQ, or S@k.

    The past stays on record, and what was spent stays spent.
    """
    value = given.open(session)
    if place is None:
        now, to = value.reload(), value.seq
    elif is_number(place):
        now, to = value, int(place)
    else:
        raise click.BadParameter(
            f"{place!r} is not a number: a seq counts from 1, or from -1 back.",
            param_hint="'SEQ'",
        )
    after = now.rewind(to, reason=reason, actor=given.actor_name)
    left = _effects_left(after)
    if given.form == "json":
        print_json(
            {
                **session_document(after),
                "not_undone": [_effect_document(*effect) for effect in left],
            }
        )
        return
    print_session(given, after, f"plait log {now.short} --path")
    out = Out()
    for event, request in left:
        said = (
            f"{request.tool} {as_json(request.arguments)}: {event_text(event)}"
            if request
            else event_text(event)
        )
        out.print_brief(
            "  not undone  ", Cell(f"{short(event.log)}@{event.seq}", ACCENT), "  ", said
        )


def _effects_left(session: Session) -> list[tuple[Event, ToolRequested | None]]:
    """Return the outcomes that reached beyond the files and are not undone by the rewind, each with
    its request.
    """
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
        "says": event_text(event),
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
@click.option("--base", metavar="B", help="The event both come from, as S@k, if they share none.")
@writing
def merge(
    given: Options,
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
    known = _MergeKeys.of((into, *branches))
    facts, files = known.choices(resolve, drop)
    root = given.open(base) if base is not None else None

    def act(chosen: Mapping[str, Any]) -> Session:
        return into.merge(
            *branches, resolve={**facts, **chosen} or None, base=root, actor=given.actor_name
        )

    try:
        merged = act_with_choices(act, files)
    except MergeConflict as error:
        raise ShellError(error, _conflict_lines(error, known)) from error
    if merged != into or given.form == "json":
        print_session(given, merged, f"plait log {merged.short} --graph")
    else:
        Out().line(
            Cell(f"{into.short}@{into.seq}", ACCENT),
            "  has all of it already: nothing was written",
        )


class _MergeKeys(NamedTuple):
    """The facts and trees of the branches. They decide if a key on the command line is a fact or a
    file.
    """

    facts: set[str]
    trees: list[tuple[TreeReader, Digest]]

    @classmethod
    def of(cls, sessions: Sequence[Session]) -> _MergeKeys:
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
        """True if the key is a path in some branch and not a fact. With "(workspace)/" before it,
        it is a path even if a fact has that name.
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
            # A key may contain "=": the longest known one is meant.
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


def _conflict_lines(error: MergeConflict, known: _MergeKeys) -> list[str]:
    """Return the values of each side, and the command that chooses between them."""
    said, choices = (
        [f"cannot merge into {error.session}: the branches disagree. Nothing was written.", ""],
        list[str](),
    )
    for key, sides in error.conflicts.items():
        if known.is_file(key):
            said += [f"  {name_of(key)}", *side_lines(sides)]
            choices.append(f"{key}={next(iter(sides))}")
        else:
            said += [f"  {clean(key)}", *_fact_lines(sides)]
            first = next(value for value in sides.values() if value is not ABSENT)
            choices.append(f"{key}={json.dumps(first)}")
    if not any(map(known.is_file, error.conflicts)):
        return [
            *said,
            "",
            "Choose a value for each, as here, or leave it out with --drop KEY:",
            f"  {_merge_command(choices)}",
        ]
    return [
        *said,
        "",
        "See how the files differ:",
        *_diff_commands(),
        (
            "Choose for each, as here, or leave it out with --drop KEY. A file is chosen by the"
            " name of a side, or with @FILE:"
        ),
        f"  {_merge_command(choices)}",
    ]


def _diff_commands() -> list[str]:
    given = click.get_current_context().params
    return [
        f"  {shlex.join(['plait', 'diff', given['session'], other, '--files'])}"
        for other in given["others"]
    ]


def _fact_lines(sides: Mapping[str, Any]) -> list[str]:
    named = {
        clean(side): "(retracted)" if value is ABSENT else json.dumps(value, ensure_ascii=False)
        for side, value in sides.items()
    }
    wide = max(map(len, named))
    return [f"    {side:{wide}}  {value}" for side, value in named.items()]


def _merge_command(choices: Sequence[str]) -> str:
    """Return the command that was typed, with these choices added."""
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
