"""`plait apply`: the files of a session, written to the folder they came from."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from plait.cli.choices import Choices, act_with_choices, name_of, path_in, side_lines
from plait.cli.common import Options, acting_command, pairs, store_of
from plait.cli.consent import YES, read_line
from plait.cli.documents import print_json
from plait.cli.exits import ShellError
from plait.cli.files import SessionPath, patch_style, placement_detail, print_patch
from plait.cli.render import ACCENT, BAD, DIM, Cell, Out, count_text
from plait.errors import MergeConflict, NotApplied
from plait.event.kinds import ToolReturned
from plait.ids import Digest
from plait.outline.documents import Document, files_document, session_document
from plait.session import Session
from plait.session.safe_text import clean, visible
from plait.workspace.changes import Changes
from plait.workspace.git_patch import patch_parts, quoted_path
from plait.workspace.tree import shown_path


@click.command()
@click.argument("session", metavar="S")
@click.option(
    "--resolve",
    metavar="PATH=CHOICE",
    multiple=True,
    help=(
        "What is right where both changed a file: session, folder, or @FILE for the content of a"
        " file; may be repeated."
    ),
)
@click.option(
    "--drop",
    metavar="PATH",
    multiple=True,
    help="Where both changed a file, it goes; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only print the patch that would be written.")
@click.option(
    "--yes", is_flag=True, help="Do not ask at the terminal about files that your own tools run."
)
@acting_command
def apply(
    given: Options,
    session: str,
    resolve: Sequence[str],
    drop: Sequence[str],
    dry_run: bool,
    yes: bool,
) -> None:
    """Publish the files of a session to the folder they came from.

    They are merged with what that folder is now. Where both changed the same lines, nothing is
    written until you choose; the exit code is 8 then. Nothing of version control is published.
    Files that your own tools run by themselves are named, and at a terminal you are asked about
    them.
    """
    named = SessionPath(given.open_last(session), "", session)
    choices = Choices.of(
        pairs("--resolve", resolve), drop, {"session": named.session.short, "folder": "the folder"}
    )
    with named.shell_errors():
        try:
            if dry_run:
                return _print_plan(
                    given,
                    act_with_choices(lambda chosen: _plan_publication(named, chosen), choices),
                )
            if given.form == "text" and not yes and sys.stdin.isatty() and sys.stderr.isatty():
                _ask_to_publish(
                    named,
                    act_with_choices(lambda chosen: _plan_publication(named, chosen), choices),
                )
            after = act_with_choices(
                lambda chosen: named.session.files.apply(resolve=chosen or None), choices
            )
        except MergeConflict as error:
            raise ShellError(error, _conflict_lines(named, error, resolve, drop)) from error
    _print_publication(given, named.session, after)


class PublicationPlan(NamedTuple):
    """The changes that would be written, and the remarks about them."""

    changes: Changes
    executable: Mapping[str, str] = {}
    unpublished: Mapping[str, str] = {}


def _plan_publication(named: SessionPath, chosen: Mapping[str, Any]) -> PublicationPlan:
    """Return the changes that would be written.

    Contents that only the merge has made are put into the store, to be compared; no event leads to
    them.
    """
    detail, store, tree = (
        placement_detail(named.session.files.placement),
        store_of(named.session),
        named.tree,
    )
    if detail.get("in_place"):
        return PublicationPlan(Changes(store, tree, tree))
    if not detail.get("folder"):
        raise NotApplied(
            "(nowhere)",
            "the files did not come from a folder",
            f"Write them to one with: plait checkout {named.name} DIR",
        )
    from plait.runtime.publish_plan import plan_publish  # heavy: loaded only by commands that act

    plan = plan_publish(named.session, Path(detail["folder"]), chosen or None)
    return PublicationPlan(
        Changes(store, plan.before, plan.after), plan.executable, plan.unpublished
    )


def _print_plan(given: Options, planned: PublicationPlan) -> None:
    changes = planned.changes
    if given.form == "json":
        print_json(
            {
                "files": files_document(changes),
                "patch": changes.patch(),
                **_remarks_document(planned.executable, planned.unpublished),
            }
        )
    else:  # tools that apply a patch skip lines that begin with #
        print_patch(
            changes.patch()
            + "".join(
                f"# {line}\n" for line in _remark_lines(planned.executable, planned.unpublished)
            )
        )


def _remarks_document(executable: Mapping[str, str], unpublished: Mapping[str, str]) -> Document:
    both = {"executable": executable, "unpublished": unpublished}
    return {
        name: {shown_path(path): why for path, why in paths.items()} for name, paths in both.items()
    }


def _remark_lines(executable: Mapping[str, str], unpublished: Mapping[str, str]) -> list[str]:
    return [
        *(
            f"run by your own tools: {quoted_path(path)} ({why})"
            for path, why in executable.items()
        ),
        *(f"not published: {quoted_path(path)} ({why})" for path, why in unpublished.items()),
    ]


def _ask_to_publish(named: SessionPath, planned: PublicationPlan) -> None:
    """Show the files that the user's own tools would run, and the patch; go on only after a clear
    yes.
    """
    if not planned.executable:
        return
    out = Out(stderr=True)
    first, rest = patch_parts(store_of(named.session), planned.changes, planned.executable)
    lines = f"{first}{rest}".removesuffix("\n").split("\n")
    most = max(first.count("\n"), PATCH_LINES)  # files that are run are shown whole
    for line in lines[:most]:
        out.line(Cell(visible(f"{line[:1]}{line[1:].expandtabs(8)}"), patch_style(line)))
    if len(lines) > most:
        more = count_text(len(lines) - most, "line")
        out.line(Cell(f"… {more} more: plait apply {named.name} --dry-run", DIM))
    out.line()
    for line in _remark_lines(planned.executable, planned.unpublished):
        out.line(Cell(line, BAD if line.startswith("run") else DIM))
    said = read_line("Publish it? [y]es, anything else is no: ")
    if said is None or said.strip().lower() not in YES:
        raise ShellError(
            NotApplied(named.name, "it was not allowed", "Apply again"),
            ["nothing was published: you did not say yes."],
        )


PATCH_LINES = 200  # of a patch, shown before the question


def _conflict_lines(
    named: SessionPath, error: MergeConflict, resolve: Sequence[str], drop: Sequence[str]
) -> list[str]:
    """Return the lines of each side, and the command that chooses between them."""
    said = [
        f"cannot publish to {clean(error.session)}: it changed there, too. Nothing was written.",
        "",
    ]
    for key, sides in error.conflicts.items():
        said += [
            f"  {name_of(key)}",
            *side_lines({_SIDES.get(side, "session"): value for side, value in sides.items()}),
        ]
    words = ["plait", "apply", named.name]
    for option, values in (
        ("--resolve", [*resolve, *(f"{key}=session" for key in error.conflicts)]),
        ("--drop", drop),
    ):
        words += [word for value in values for word in (option, value)]
    path = path_in(next(iter(error.conflicts)))
    return [
        *said,
        "",
        "See what the session changed, and how a file differs from the folder's:",
        f"  {shlex.join(['plait', 'diff', named.name, '--files'])}",
        (
            f"  {shlex.join(['plait', 'cat', f'{named.name}:{path}'])} |"
            f" {shlex.join(['diff', os.path.join(error.session, path), '-'])}"
        ),
        (
            "Choose for each, as here: session, folder, or @FILE for another content. --drop PATH"
            " leaves it out."
        ),
        f"  {shlex.join(words)}",
    ]


_SIDES = {"the folder": "folder"}


class Publication(NamedTuple):
    """The effect of an apply on a folder."""

    folder: str
    before: Digest
    after: Digest
    executable: Mapping[str, str] = {}
    unpublished: Mapping[str, str] = {}


def find_publication(before: Session, after: Session) -> Publication | None:
    """Return the effect of the apply; None if there was none because the session works in place."""
    for event in reversed(after.events[before.seq :]):
        body = event.body
        if isinstance(body, ToolReturned) and isinstance(body.delta, dict):
            trees = cast("Mapping[str, Any]", body.delta)
            folder = str(placement_detail(after.files.placement).get("folder", ""))
            named = trees.get("executable", {}), trees.get("unpublished", {})
            return Publication(folder, Digest(trees["before"]), Digest(trees["after"]), *named)
    return None


def _print_publication(given: Options, before: Session, after: Session) -> None:
    done = find_publication(before, after)
    changes = Changes(store_of(after), done.before, done.after) if done else None
    if given.form == "json":
        written = [shown_path(path) for path in changes.paths] if changes else []
        named = _remarks_document(done.executable, done.unpublished) if done else {}
        print_json(
            {
                **session_document(after),
                "folder": done.folder if done else None,
                "written": written,
                **named,
            }
        )
        return
    out = Out()
    if done is None or changes is None:
        out.line(
            Cell(f"{after.short}@{after.seq}", ACCENT),
            "  works in place: its files are there already",
        )
        return
    said = (
        f"wrote {count_text(len(changes), 'path')} to {quoted_path(done.folder)}"
        if changes
        else f"{quoted_path(done.folder)} has all of it already"
    )
    out.line(Cell(f"{after.short}@{after.seq}", ACCENT), "  ", said)
    for line in changes.lines():
        out.line("  ", line)
    for line in _remark_lines(done.executable, done.unpublished):
        out.line("  ", Cell(line, BAD if line.startswith("run") else DIM))
