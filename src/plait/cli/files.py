"""The files of a session: `cat`, `files`, `checkout`, `blame`.

Files and their names were written by agents. On a terminal both are shown cleaned; a name that
could be misread stands in quotes, as git writes it. Only `cat` into a pipe gives the exact bytes.
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

from plait.cli.common import Options, listing, names_of, store_of
from plait.cli.documents import print_json, print_jsonl
from plait.cli.exits import ShellError
from plait.cli.pager import paging
from plait.cli.render import ACCENT, DIM, STRONG, Cell, Column, Out, count_text
from plait.errors import NoSuchFile, NotAFile, NotPlaced, PlaitError
from plait.event.kinds import Placement
from plait.ids import Digest
from plait.outline.documents import (
    Document,
    blame_document,
    entry_document,
    line_document,
    place_document,
)
from plait.session import Session
from plait.session.blame import Blame, Line
from plait.session.safe_text import clean
from plait.workspace import TreeEntry
from plait.workspace.changes import LISTED_MAX, Changes
from plait.workspace.git_patch import quoted_path
from plait.workspace.lines import as_text
from plait.workspace.tree import EMPTY, TreeReader, parts_of, shown_path
from plait_shell.groups import nearest_text

SHOWN = 200  # files on a terminal
_BITS = {
    "file": stat.S_IFREG,
    "withheld": stat.S_IFREG,
    "link": stat.S_IFLNK,
    "folder": stat.S_IFDIR,
}


class SessionPath(NamedTuple):
    """A path in a session, as it was typed."""

    session: Session
    path: str
    name: str  # the name of the session in a command

    @classmethod
    def of(cls, given: Options, named: str, path: str | None = None) -> SessionPath:
        """Parse S:PATH, or S and PATH. No label has a colon in it."""
        name, colon, inside = named.partition(":")
        if colon and path is not None:
            raise click.UsageError("The path is given twice: write S:PATH, or S PATH.")
        name = name or "@"
        return cls(given.open(name), inside if colon else path or "", name)

    @property
    def shown_name(self) -> str:
        """The name as it was typed; the short id for the whole one, which other commands pass."""
        return self.session.short if self.name == self.session.id else self.name

    @property
    def tree(self) -> Digest:
        if self.session.files.tree is None:
            raise NotPlaced(self.session.short)
        return self.session.files.tree

    def _known_paths(self) -> list[str]:
        """Return the paths of the files; [] if there are none to read."""
        try:
            return [clean(path) for path in self.session.files.paths()]
        except PlaitError:
            return []

    @contextmanager
    def shell_errors(self) -> Generator[None]:
        """Raise errors about files with the next step as a command."""
        try:
            yield
        except NotPlaced as error:
            raise ShellError(
                error,
                [
                    f"{self.shown_name} has no files: it was not placed. Place it: plait to"
                    f" {error.session} local FOLDER"
                ],
            ) from error
        except NoSuchFile as error:
            near = nearest_text(error.path, self._known_paths())
            told = f"there is no {quoted_path(error.path)!r} in {self.name}.{near}"
            look = f"See what there is with: plait files {self.name}"
            raise ShellError(error, [f"{told} {look}"]) from error
        except NotAFile as error:
            raise ShellError(
                error,
                [
                    f"{quoted_path(error.path)!r} in {self.name} is {error.what}, not a file."
                    " Name a file."
                ],
            ) from error


# ── cat and files ────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("file", metavar="S:PATH")
@click.argument("path", metavar="[PATH]", required=False)
@listing
def cat(given: Options, file: str, path: str | None) -> None:
    """Print a file as it was: S@7:src/cart.py. A folder is listed.

    Into a pipe goes every byte as it is; on a terminal control characters are left out. With --json
    a file that is no text comes in base64.
    """
    named = SessionPath.of(given, file, path)
    with named.shell_errors():
        found = _read_path(named)
    if given.form != "text":
        _print_document(
            given,
            {
                "session": place_document(named.session),
                "path": shown_path(named.path),
                **_content_document(found),
            },
        )
    elif isinstance(found, bytes):
        _print_content(found)
    else:
        _print_names(found)


def _read_path(named: SessionPath) -> bytes | Sequence[TreeEntry]:
    """Return a file's content, or the entries of a folder."""
    workspace = named.session.files.workspace
    if not parts_of(named.path):
        return workspace.list()
    try:
        return workspace.read(named.path)
    except NotAFile:
        return workspace.list(named.path)  # raises it again, if it is no folder either


def _content_document(found: bytes | Sequence[TreeEntry]) -> Document:
    if not isinstance(found, bytes):
        return {"entries": [entry_document(entry.name, entry) for entry in found]}
    text = as_text(found)
    return {
        "size": len(found),
        "text": text,
        "base64": None if text is not None else b64encode(found).decode(),
    }


def _print_names(entries: Iterable[TreeEntry]) -> None:
    out = Out()
    for entry in entries:
        out.line(_path_text(entry.name, entry))


def _print_content(content: bytes) -> None:
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    out = Out()
    if b"\0" in content:
        out.line(
            Cell(
                f"(no text: {count_text(len(content), 'byte')}; send it into a file, with > FILE)",
                DIM,
            )
        )
        return
    print_text(out, content.decode("utf-8", "replace"))


def print_text(out: Out, text: str) -> None:
    """Print a text of many lines, each cleaned by itself: nothing in one can reach the next."""
    for line in text.removesuffix("\n").split("\n") if text else ():
        out.line(expand_tabs(line))


def expand_tabs(line: str) -> str:
    """Expand tabs as a terminal would; cleaning makes a single blank of a tab."""
    return line.removesuffix("\r").expandtabs(8) if "\t" in line else line.removesuffix("\r")


@click.command("files")
@click.argument("session", metavar="S[:PATH]")
@click.argument("path", metavar="[PATH]", required=False)
@listing
def files_command(given: Options, session: str, path: str | None) -> None:
    """List the files of a session, with mode and size.

    At its last event, or at S@k.
    """
    named = SessionPath.of(given, session, path)
    with named.shell_errors():
        found = _entries_below(TreeReader(store_of(named.session)), named.tree, named.path)
        if given.form == "jsonl":
            print_jsonl(entry_document(path, entry) for path, entry in found)
        elif given.form == "json":
            document = {"session": place_document(named.session), "tree": named.tree}
            print_json(
                {**document, "files": [entry_document(path, entry) for path, entry in found]}
            )
        else:
            _print_files(named, found)


def _entries_below(reader: TreeReader, tree: Digest, path: str) -> Iterator[tuple[str, TreeEntry]]:
    """Return the entries at a path and below it: files, links, and empty folders."""
    entry = reader.find(tree, path)
    if entry is None:
        raise NoSuchFile(shown_path(path))
    start = "/".join(parts_of(path))
    if entry.kind != "folder":
        return iter([(start, entry)])
    walked = reader.walk(entry.blobs[0], start)
    return (
        (path, entry) for path, entry in walked if entry.kind != "folder" or entry.blobs[0] == EMPTY
    )


def _print_files(named: SessionPath, found: Iterator[tuple[str, TreeEntry]]) -> None:
    out = Out()
    limit = SHOWN if out.tty else None
    columns = [Column(whole=True), Column(right=True), Column(flex=True)]
    rows = (
        [
            Cell(_mode_text(entry), DIM),
            Cell(f"{entry.size:,}" if out.tty else str(entry.size)),
            Cell(_path_text(path, entry)),
        ]
        for path, entry in islice(found, limit)
    )
    if not out.table(columns, rows):
        out.hint("There are no files.")
    left = sum(1 for _ in found)
    if left:
        out.hint(f"… and {left:,} more: plait files {named.name} PATH, or | less")


def _mode_text(entry: TreeEntry) -> str:
    return stat.filemode(_BITS[entry.kind] | entry.mode)


def _path_text(path: str, entry: TreeEntry) -> str:
    if entry.kind == "folder":
        return quoted_path(f"{path}/")
    if entry.kind == "link":
        return f"{quoted_path(path)} → {quoted_path(entry.target)}"
    return (
        f"{quoted_path(path)}  (withheld: it holds a secret)"
        if entry.kind == "withheld"
        else quoted_path(path)
    )


# ── changes ──────────────────────────────────────────────────────────────────────────────────


def print_patch(patch: str) -> None:
    """Print a patch: exactly into a pipe, so that it can be applied; cleaned line by line on a
    terminal.
    """
    out = Out()
    if not out.tty:
        sys.stdout.flush()
        sys.stdout.buffer.write(patch.encode())
        return
    for line in patch.removesuffix("\n").split("\n") if patch else ():
        # the first character is the sign
        out.line(Cell(f"{line[:1]}{expand_tabs(line[1:])}", patch_style(line)))


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
def checkout(given: Options, session: str, folder: Path) -> None:
    """Write the files of a session into an empty folder.

    S@k: as they were then. The folder may be missing: it is made.
    """
    named = SessionPath.of(given, session)
    if named.path:
        raise click.UsageError(
            f"A session is checked out whole. For one file: plait cat {shlex.quote(session)} > FILE"
        )
    with named.shell_errors():
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
            {
                **document,
                "files": len(written),
                "withheld": [shown_path(path) for path in withheld],
            },
        )
        return
    out = Out()
    out.line(
        f"wrote {count_text(len(written), 'file')} of ",
        Cell(f"{named.session.short}@{named.session.seq}", ACCENT),
        f" to {quoted_path(str(folder))}",
    )
    for path in withheld:
        out.line(Cell(f"  without {quoted_path(path)}: it holds a secret and was withheld", DIM))


def _print_document(given: Options, document: Document) -> None:
    if given.form == "json":
        print_json(document)
    else:
        print_jsonl([document])


# ── blame ────────────────────────────────────────────────────────────────────────────────────


@click.command("blame")
@click.argument("file", metavar="S:PATH")
@click.argument("path", metavar="[PATH]", required=False)
@paging
@listing
def blame_command(given: Options, file: str, path: str | None) -> None:
    """Tell which event wrote each line of a file."""
    named = SessionPath.of(given, file, path)
    with named.shell_errors():
        found = named.session.files.blame("/".join(parts_of(named.path)))
    if given.form == "jsonl":
        print_jsonl(map(line_document, found))
    elif given.form == "json":
        print_json({"session": place_document(named.session), **blame_document(found)})
    else:
        _print_blame(named.session, found)


def _print_blame(session: Session, blame: Blame) -> None:
    out, names = Out(), names_of(store_of(session), [line.log for line in blame])
    # where there is no room, the time is left out first, then the actor, then the tool
    asides = [Column(aside=True)] * 3
    columns = [Column(), *asides, Column(right=True), Column(flex=True, least=out.width // 2)]
    out.table(columns, (_blame_row(out, names[line.log], line) for line in blame))


def _blame_row(out: Out, name: str, line: Line) -> list[Cell]:
    return [
        Cell(f"{name}@{line.seq}", ACCENT),
        Cell(line.tool or _WRITERS.get(line.kind, line.kind)),
        Cell(line.actor, DIM),
        Cell(out.time(line.time), DIM),
        Cell(str(line.number), DIM),
        Cell(expand_tabs(line.text)),
    ]


_WRITERS = {"PlacementChanged": "(placed)", "Merged": "(merged)"}


# ── the folder a session came from ───────────────────────────────────────────────────────────


def placement_detail(placement: Placement | None) -> Mapping[str, Any]:
    found = placement.detail if placement is not None else None
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
