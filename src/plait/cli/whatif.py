"""`plait whatif`: a run made again from an event on, with something changed, in a branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import click

from plait.cli.attending import RunAttendant, act_as
from plait.cli.common import (
    Options,
    approve_option,
    is_number,
    pairs,
    parse_budget,
    quiet_option,
    running,
    text_or_file,
    workflow_option,
)
from plait.cli.consent import Mode, mode_of
from plait.cli.loading import import_from_here, load_workflow
from plait.cli.render import ACCENT, DIM, Cell, Out
from plait.cli.run_totals import totals_of_last_run
from plait.cli.tracing import print_diff
from plait.errors import InvalidInput, InvalidValue
from plait.event.strict import parse
from plait.outline.documents import diff_document, session_document
from plait.session import Session


@click.command("whatif")
@click.argument("name", metavar="S@K")
@click.option("--model", metavar="NAME", help="Ask this model from there on.")
@click.option(
    "--instruction", metavar="TEXT|@FILE", help="Give the agents this instruction from there on."
)
@click.option(
    "--replace",
    "replaced",
    metavar="SEQ=TEXT|@FILE",
    multiple=True,
    help="Let the event of this seq say something else.",
)
@click.option(
    "--tools",
    metavar="[AGENT=]NAMES",
    multiple=True,
    help="Let the agents, or one of them, have only these of their tools, as in read_file,grep.",
)
@click.option("--label", metavar="LABEL", help="Call the branch this.")
@click.option(
    "--effects",
    type=click.Choice(["ask", "live"]),
    default="ask",
    help="Whether tools that act ask first (as a rule), or run.",
)
@click.option(
    "--budget",
    metavar="LIMITS",
    help="Grant it a budget of its own, as in steps=40; without, it draws on that of S.",
)
@workflow_option
@approve_option
@quiet_option
@running
def whatif_command(
    given: Options,
    name: str,
    model: str | None,
    instruction: str | None,
    replaced: Sequence[str],
    tools: Sequence[str],
    label: str | None,
    effects: Literal["ask", "live"],
    budget: str | None,
    target: str | None,
    approve: Mode | None,
    quiet: bool,
) -> None:
    """Run again from an event on, with something changed.

    It runs in a branch: up to S@K by the record, beyond that live. The session itself is not
    touched.
    """
    from plait.runs.whatif import whatif

    mode = mode_of(approve)
    act_as(given)
    import_from_here()
    at = given.open(name)
    session = at.reload()
    program = load_workflow(target) if target is not None else None
    changed: dict[str, Any] = {
        "at": at.seq if at != session or "@" in name.removeprefix("@") else None,
        "model": model,
        "instruction": (
            text_or_file("--instruction", instruction) if instruction is not None else None
        ),
        "tools": _parse_tools(tools),
        "replace": _replacement_values(session, _parse_replacements(replaced)) or None,
        "effects": effects,
        "label": label,
        "budget": parse_budget(budget),
    }
    attendant, before = RunAttendant(given, mode, quiet), _latest_branch(session)

    def now() -> Session:
        branch = _latest_branch(session)
        return (
            branch
            if branch is not None and (before is None or branch.id != before.id)
            else session.reload()
        )

    def do(watch: Mapping[str, Any]) -> Session:
        return whatif(session, program, **changed, **watch)

    attendant.attend_run(
        session, do, show=lambda made: _print_comparison(attendant, session, made), now=now
    )


def _latest_branch(session: Session) -> Session | None:
    """Return the branch of the session that was opened last."""
    return next(iter(Session.list(parent=session, store=session.store, limit=1)), None)


def _print_comparison(attendant: RunAttendant, session: Session, made: Session) -> None:
    found = session.diff(made)
    if attendant.given.form != "text":
        attendant.print_end(
            {
                "session": session_document(made),
                "diff": diff_document(found, session, made),
                "used": totals_of_last_run(made).document(),
            }
        )
        return
    out = Out()
    out.line(Cell(made.short, ACCENT), f"  {made.id}")
    print_diff(found)
    attendant.sum_up(made)
    if found.is_same_story and not attendant.mute:
        out = attendant.progress.out
        out.line("nothing differs: the branch says, calls and leaves the same as the session.")
        out.line(Cell("  change something: --model, --instruction, --tools or --replace", DIM))


def _parse_tools(given: Sequence[str]) -> list[str] | dict[str, list[str]] | None:
    """Return the names of the tools that are kept: of all agents, or by agent. None: all are."""
    if not given:
        return None
    if all("=" in each for each in given):
        return {agent: _names_in(names) for agent, names in pairs("--tools", given).items()}
    if len(given) > 1:
        raise click.UsageError("several --tools are for one agent each: --tools AGENT=NAMES.")
    return _names_in(given[0])


def _names_in(text: str) -> list[str]:
    return [name for name in (each.strip() for each in text.split(",")) if name]


def _parse_replacements(given: Sequence[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for place, text in pairs("--replace", given).items():
        if not is_number(place) or int(place) < 1:
            raise InvalidValue(
                "--replace", f"{place!r} is not a seq", "write SEQ=TEXT, as in 7=yes"
            )
        found[int(place)] = text_or_file("--replace", text)
    return found


def _replacement_values(session: Session, replaced: Mapping[int, str]) -> dict[int, Any]:
    """Return the replacements: as JSON where the event is a fact or an answer and the text is JSON,
    else as texts.
    """
    found: dict[int, Any] = dict(replaced)
    for place, text in replaced.items():
        if 1 <= place <= session.seq and session.events[place - 1].kind in (
            "FactRecorded",
            "QuestionAnswered",
        ):
            with suppress(InvalidInput):
                found[place] = parse(text.encode())
    return found
