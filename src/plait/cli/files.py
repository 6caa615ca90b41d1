"""The files of a session: `cat`, `files`, `checkout`, `blame`, `apply`.

What is in them was written by agents, and so were their names. On a terminal both are shown
cleaned; a name that could be misread stands in quotes, as git writes it. Only `cat` into a pipe
gives the bytes as they are: whoever asks for a file wants that file.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from base64 import b64encode
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from plait.cli.choices import Choices, name_of, path_in, settled, sides_told
from plait.cli.common import Given, acting, listing, names_of, pairs, store_of
from plait.cli.consent import YES, typed
from plait.cli.documents import (
    Document,
    blame_document,
    entry_document,
    files_document,
    line_document,
    place_document,
    print_json,
    print_jsonl,
    session_document,
)
from plait.cli.exits import Told
from plait.cli.render import ACCENT, BAD, DIM, STRONG, Cell, Column, Out, counted
from plait.cli.terminal import clean, visible
from plait.errors import MergeConflict, NoSuchFile, NotAFile, NotApplied, NotPlaced
from plait.event.kinds import Placement, ToolReturned
from plait.ids import Digest
from plait.session import Session
from plait.session.blame import Blame, Line
from plait.workspace import Entry
from plait.workspace.diff import LISTED_MAX, Changes, patch_parts, quoted
from plait.workspace.lines import as_text
from plait.workspace.tree import EMPTY, TreeReader, parts_of, shown

SHOWN = 200  # files on a terminal
_BITS = {
    "file": stat.S_IFREG,
    "withheld": stat.S_IFREG,
    "link": stat.S_IFLNK,
    "folder": stat.S_IFDIR,
}


class Named(NamedTuple):
    """A path in a session, as it was typed."""

    session: Session
    path: str
    name: str  # what to call the session in a command

    @classmethod
    def of(cls, given: Given, named: str, path: str | None = None) -> Named:
        """S:PATH, or S and PATH. No label has a colon in it."""
        name, colon, inside = named.partition(":")
        if colon and path is not None:
            raise click.UsageError("The path is given twice: write S:PATH, or S PATH.")
        name = name or "@"
        return cls(given.open(name), inside if colon else path or "", name)

    @property
    def tree(self) -> Digest:
        if self.session.files.tree is None:
            raise NotPlaced(self.session.short)
        return self.session.files.tree

    @contextmanager
    def telling(self) -> Generator[None]:
        """Errors with the next step as the shell knows it."""
        try:
            yield
        except NotPlaced as error:
            raise Told(
                error,
                [
                    f"{self.name} has no files: it was not placed there. Place it with: plait to"
                    f" {error.session} local FOLDER"
                ],
            ) from error
        except NoSuchFile as error:
            raise Told(
                error,
                [
                    f"there is no {quoted(error.path)!r} in {self.name}. See what there is with:"
                    f" plait files {self.name}"
                ],
            ) from error
        except NotAFile as error:
            raise Told(
                error,
                [
                    f"{quoted(error.path)!r} in {self.name} is {error.what}, not a file. Name a"
                    " file."
                ],
            ) from error


# ── cat and files ────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("file", metavar="S:PATH")
@click.argument("path", metavar="[PATH]", required=False)
@listing
def cat(given: Given, file: str, path: str | None) -> None:
    """Print a file as it was: S@7:src/cart.py. A folder is listed.

    Into a pipe goes every byte as it is; on a terminal control characters are left out. With --json
    a file that is no text comes in base64.
    """
    named = Named.of(given, file, path)
    with named.telling():
        found = _read(named)
    if given.form != "text":
        _print_document(
            given,
            {
                "session": place_document(named.session),
                "path": shown(named.path),
                **_found_document(found),
            },
        )
    elif isinstance(found, bytes):
        _print_content(found)
    else:
        _print_names(found)


def _read(named: Named) -> bytes | Sequence[Entry]:
    """A file's content, or what is in a folder."""
    workspace = named.session.files.workspace
    if not parts_of(named.path):
        return workspace.list()
    try:
        return workspace.read(named.path)
    except NotAFile:
        return workspace.list(named.path)  # raises it again, if it is no folder either


def _found_document(found: bytes | Sequence[Entry]) -> Document:
    if not isinstance(found, bytes):
        return {"entries": [entry_document(entry.name, entry) for entry in found]}
    text = as_text(found)
    return {
        "size": len(found),
        "text": text,
        "base64": None if text is not None else b64encode(found).decode(),
    }


def _print_names(entries: Iterable[Entry]) -> None:
    out = Out()
    for entry in entries:
        out.line(_path_told(entry.name, entry))


def _print_content(content: bytes) -> None:
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    out = Out()
    if b"\0" in content:
        out.line(
            Cell(
                f"(no text: {counted(len(content), 'byte')}; send it into a file, with > FILE)", DIM
            )
        )
        return
    print_text(out, content.decode("utf-8", "replace"))


def print_text(out: Out, text: str) -> None:
    """A text of many lines, each cleaned by itself: nothing in one can reach the next."""
    for line in text.removesuffix("\n").split("\n") if text else ():
        out.line(untabbed(line))


def untabbed(line: str) -> str:
    """Tabs as a terminal would show them: to what cleans it they are one blank."""
    return line.removesuffix("\r").expandtabs(8) if "\t" in line else line.removesuffix("\r")


@click.command("files")
@click.argument("session", metavar="S[:PATH]")
@click.argument("path", metavar="[PATH]", required=False)
@listing
def files_command(given: Given, session: str, path: str | None) -> None:
    """List the files of a session, with mode and size, at its last place or at S@k."""
    named = Named.of(given, session, path)
    with named.telling():
        found = _below(TreeReader(store_of(named.session)), named.tree, named.path)
        if given.form == "jsonl":
            print_jsonl(entry_document(path, entry) for path, entry in found)
        elif given.form == "json":
            document = {"session": place_document(named.session), "tree": named.tree}
            print_json(
                {**document, "files": [entry_document(path, entry) for path, entry in found]}
            )
        else:
            _print_files(named, found)


def _below(reader: TreeReader, tree: Digest, path: str) -> Iterator[tuple[str, Entry]]:
    """What stands at a path and below it: files, links, and folders that are empty."""
    entry = reader.find(tree, path)
    if entry is None:
        raise NoSuchFile(shown(path))
    start = "/".join(parts_of(path))
    if entry.kind != "folder":
        return iter([(start, entry)])
    walked = reader.walk(entry.blobs[0], start)
    return (
        (path, entry) for path, entry in walked if entry.kind != "folder" or entry.blobs[0] == EMPTY
    )


def _print_files(named: Named, found: Iterator[tuple[str, Entry]]) -> None:
    out = Out()
    limit = SHOWN if out.tty else None
    columns = [Column(whole=True), Column(right=True), Column(flex=True)]
    rows = (
        [
            Cell(_mode(entry), DIM),
            Cell(f"{entry.size:,}" if out.tty else str(entry.size)),
            Cell(_path_told(path, entry)),
        ]
        for path, entry in islice(found, limit)
    )
    if not out.table(columns, rows):
        out.hint("There are no files.")
    left = sum(1 for _ in found)
    if left:
        out.hint(f"… and {left:,} more: plait files {named.name} PATH, or | less")


def _mode(entry: Entry) -> str:
    return stat.filemode(_BITS[entry.kind] | entry.mode)


def _path_told(path: str, entry: Entry) -> str:
    if entry.kind == "folder":
        return quoted(f"{path}/")
    if entry.kind == "link":
        return f"{quoted(path)} → {quoted(entry.target)}"
    return (
        f"{quoted(path)}  (withheld: it holds a secret)"
        if entry.kind == "withheld"
        else quoted(path)
    )


# ── what changed ─────────────────────────────────────────────────────────────────────────────


def print_patch(patch: str) -> None:
    """Into a pipe exactly, so that it can be applied; on a terminal cleaned, line by line."""
    out = Out()
    if not out.tty:
        sys.stdout.flush()
        sys.stdout.buffer.write(patch.encode())
        return
    for line in patch.removesuffix("\n").split("\n") if patch else ():
        # the first character is the sign
        out.line(Cell(f"{line[:1]}{untabbed(line[1:])}", patch_style(line)))


def patch_style(line: str) -> str:
    return next((style for sign, style in _PATCH.items() if line.startswith(sign)), "")


# The first that fits: the heads of a file before its lines.
_PATCH = {
    "diff ": STRONG,
    "--- ": STRONG,
    "+++ ": STRONG,
    "@@ ": ACCENT,
    "+": "green",
    "-": "red",
    "#": DIM,
}


def print_changes(out: Out, changes: Changes, indent: str = "") -> None:
    for line in changes.lines(LISTED_MAX if out.tty else sys.maxsize):
        out.line(indent, line)


# ── checkout ─────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("session", metavar="S")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@listing
def checkout(given: Given, session: str, folder: Path) -> None:
    """Write the files of a session, or of S@k, into a folder that is empty or not there yet."""
    named = Named.of(given, session)
    if named.path:
        raise click.UsageError(
            f"A session is checked out whole. For one file: plait cat {shlex.quote(session)} > FILE"
        )
    with named.telling():
        named.session.files.workspace.checkout(folder)
        entries = dict(TreeReader(store_of(named.session)).walk(named.tree))
    written = [path for path, entry in entries.items() if entry.kind in ("file", "link")]
    withheld = [path for path, entry in entries.items() if entry.kind == "withheld"]
    if given.form != "text":
        document = {
            "session": place_document(named.session),
            "tree": named.tree,
            "folder": os.path.abspath(folder),
        }
        _print_document(
            given,
            {**document, "files": len(written), "withheld": [shown(path) for path in withheld]},
        )
        return
    out = Out()
    out.line(
        f"wrote {counted(len(written), 'file')} of ",
        Cell(f"{named.session.short}@{named.session.seq}", ACCENT),
        f" to {quoted(str(folder))}",
    )
    for path in withheld:
        out.line(Cell(f"  without {quoted(path)}: it holds a secret and was withheld", DIM))


def _print_document(given: Given, document: Document) -> None:
    if given.form == "json":
        print_json(document)
    else:
        print_jsonl([document])


# ── blame ────────────────────────────────────────────────────────────────────────────────────


@click.command("blame")
@click.argument("file", metavar="S:PATH")
@click.argument("path", metavar="[PATH]", required=False)
@listing
def blame_command(given: Given, file: str, path: str | None) -> None:
    """Tell which event wrote each line of a file."""
    named = Named.of(given, file, path)
    with named.telling():
        found = named.session.files.blame("/".join(parts_of(named.path)))
    if given.form == "jsonl":
        print_jsonl(map(line_document, found))
    elif given.form == "json":
        print_json({"session": place_document(named.session), **blame_document(found)})
    else:
        _print_blame(named.session, found)


def _print_blame(session: Session, blame: Blame) -> None:
    out, names = Out(), names_of(store_of(session), [line.log for line in blame])
    # the time goes first, then the actor, then the tool: what is asked about is the text
    asides = [Column(aside=True)] * 3
    columns = [Column(), *asides, Column(right=True), Column(flex=True, least=out.width // 2)]
    out.table(columns, (_blame_row(out, names[line.log], line) for line in blame))


def _blame_row(out: Out, name: str, line: Line) -> list[Cell]:
    return [
        Cell(f"{name}@{line.seq}", ACCENT),
        Cell(line.tool or _KINDS.get(line.kind, line.kind)),
        Cell(line.actor, DIM),
        Cell(out.time(line.time), DIM),
        Cell(str(line.number), DIM),
        Cell(untabbed(line.text)),
    ]


_KINDS = {"PlacementChanged": "(placed)", "Merged": "(merged)"}


# ── apply ────────────────────────────────────────────────────────────────────────────────────


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
@acting
def apply(
    given: Given,
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
    named = Named(given.open_last(session), "", session)
    choices = Choices.of(
        pairs("--resolve", resolve), drop, {"session": named.session.short, "folder": "the folder"}
    )
    with named.telling():
        try:
            if dry_run:
                return _print_plan(given, settled(lambda chosen: _planned(named, chosen), choices))
            if given.form == "text" and not yes and sys.stdin.isatty() and sys.stderr.isatty():
                _ask(named, settled(lambda chosen: _planned(named, chosen), choices))
            after = settled(
                lambda chosen: named.session.files.apply(resolve=chosen or None), choices
            )
        except MergeConflict as error:
            raise Told(error, _in_dispute(named, error, resolve, drop)) from error
    _print_applied(given, named.session, after)


class Planned(NamedTuple):
    """What would be written, and what is to be said of it."""

    changes: Changes
    executable: Mapping[str, str] = {}
    unpublished: Mapping[str, str] = {}


def _planned(named: Named, chosen: Mapping[str, Any]) -> Planned:
    """What would be written.

    Contents that only a merge has made go into the store, to be compared; no event leads to them.
    """
    detail, store, tree = (
        detail_in(named.session.files.placement),
        store_of(named.session),
        named.tree,
    )
    if detail.get("in_place"):
        return Planned(Changes(store, tree, tree))
    if not detail.get("folder"):
        raise NotApplied(
            "(nowhere)",
            "the files did not come from a folder",
            f"Write them to one with: plait checkout {named.name} DIR",
        )
    from plait.runtime.placing import plan_of  # what acts is loaded by commands that act

    plan = plan_of(named.session, Path(detail["folder"]), chosen or None)
    return Planned(Changes(store, plan.before, plan.after), plan.executable, plan.unpublished)


def _print_plan(given: Given, planned: Planned) -> None:
    changes = planned.changes
    if given.form == "json":
        print_json(
            {
                "files": files_document(changes),
                "patch": changes.patch(),
                **_named_document(planned.executable, planned.unpublished),
            }
        )
    else:  # what begins with # is passed over by whatever applies a patch
        print_patch(
            changes.patch()
            + "".join(
                f"# {line}\n" for line in _named_lines(planned.executable, planned.unpublished)
            )
        )


def _named_document(executable: Mapping[str, str], unpublished: Mapping[str, str]) -> Document:
    both = {"executable": executable, "unpublished": unpublished}
    return {name: {shown(path): why for path, why in paths.items()} for name, paths in both.items()}


def _named_lines(executable: Mapping[str, str], unpublished: Mapping[str, str]) -> list[str]:
    return [
        *(f"run by your own tools: {quoted(path)} ({why})" for path, why in executable.items()),
        *(f"not published: {quoted(path)} ({why})" for path, why in unpublished.items()),
    ]


def _ask(named: Named, planned: Planned) -> None:
    """Show what the user's own tools would run, and the patch; go on only after a clear yes."""
    if not planned.executable:
        return
    out = Out(stderr=True)
    first, rest = patch_parts(store_of(named.session), planned.changes, planned.executable)
    lines = f"{first}{rest}".removesuffix("\n").split("\n")
    most = max(first.count("\n"), PATCH_LINES)  # what is run is shown whole
    for line in lines[:most]:
        out.line(Cell(visible(f"{line[:1]}{line[1:].expandtabs(8)}"), patch_style(line)))
    if len(lines) > most:
        out.line(
            Cell(
                f"… {counted(len(lines) - most, 'line')} more: plait apply {named.name} --dry-run",
                DIM,
            )
        )
    out.line()
    for line in _named_lines(planned.executable, planned.unpublished):
        out.line(Cell(line, BAD if line.startswith("run") else DIM))
    said = typed("Publish it? [y]es, anything else is no: ")
    if said is None or said.strip().lower() not in YES:
        raise Told(
            NotApplied(named.name, "it was not allowed", "Apply again"),
            ["nothing was published: you did not say yes."],
        )


PATCH_LINES = 200  # of a patch that are shown before one is asked


def _in_dispute(
    named: Named, error: MergeConflict, resolve: Sequence[str], drop: Sequence[str]
) -> list[str]:
    """What each side has, and the command that chooses."""
    said = [
        f"cannot publish to {clean(error.session)}: it changed there, too. Nothing was written.",
        "",
    ]
    for key, sides in error.conflicts.items():
        said += [
            f"  {name_of(key)}",
            *sides_told({_WORDS.get(side, "session"): value for side, value in sides.items()}),
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


_WORDS = {"the folder": "folder"}


def detail_in(placement: Placement | None) -> Mapping[str, Any]:
    found = placement.detail if placement is not None else None
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


class Published(NamedTuple):
    """What an apply did to a folder."""

    folder: str
    before: Digest
    after: Digest
    executable: Mapping[str, str] = {}
    unpublished: Mapping[str, str] = {}


def published(before: Session, after: Session) -> Published | None:
    """None: nothing was done, because it works in place."""
    for event in reversed(after.events[before.seq :]):
        body = event.body
        if isinstance(body, ToolReturned) and isinstance(body.delta, dict):
            trees = cast("Mapping[str, Any]", body.delta)
            folder = str(detail_in(after.files.placement).get("folder", ""))
            named = trees.get("executable", {}), trees.get("unpublished", {})
            return Published(folder, Digest(trees["before"]), Digest(trees["after"]), *named)
    return None


def _print_applied(given: Given, before: Session, after: Session) -> None:
    done = published(before, after)
    changes = Changes(store_of(after), done.before, done.after) if done else None
    if given.form == "json":
        written = [shown(path) for path in changes.paths] if changes else []
        named = _named_document(done.executable, done.unpublished) if done else {}
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
        f"wrote {counted(len(changes), 'path')} to {quoted(done.folder)}"
        if changes
        else f"{quoted(done.folder)} has all of it already"
    )
    out.line(Cell(f"{after.short}@{after.seq}", ACCENT), "  ", said)
    for line in changes.lines():
        out.line("  ", line)
    for line in _named_lines(done.executable, done.unpublished):
        out.line("  ", Cell(line, BAD if line.startswith("run") else DIM))
