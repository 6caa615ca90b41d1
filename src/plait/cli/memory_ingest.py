"""`plait memory ingest`: a document remembered in pieces."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from plait.cli.common import Options, command_line, writing
from plait.cli.documents import print_json
from plait.cli.memory_reading import SCOPES, open_memory
from plait.cli.render import ACCENT, Cell, Out, count_text
from plait.errors import InvalidValue
from plait.event.kinds import (
    MemoryCommitted,
    MemoryProposed,
    MemoryQuarantined,
    MemoryRetracted,
)
from plait.ids import Digest
from plait.memory.rows import ITEM
from plait.outline.documents import Document, session_document
from plait.session import Session
from plait.session.ports import store_at
from plait.store import Row, Store

if TYPE_CHECKING:
    from plait.memory.scopes import Viewer

_ALL = 2**31


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
    if session is not None and (user is not None or project is not None):
        raise click.UsageError("--user and --project are of a session that is opened, not of S.")
    if os.path.isdir(path):  # a folder as . has no name of its own
        raise InvalidValue("path", f"{path} is a folder", "pass the path of a text file")
    pieces = _pieces_of(path)
    if not pieces:  # before a session is opened for it
        raise InvalidValue("path", f"{path.name} has no words", "pass a text file")
    if session is None:
        _check_owner(scope, user, project)
        owner = f"{scope}:{project if scope == 'project' else user}"
        if scope != "session" and _is_known(store_at(given.store), path, pieces, owner):
            return _print_known(given, path, len(pieces))
    before = (
        given.open_last(session)
        if session is not None
        else Session(
            title=path.name, user=user, project=project, store=given.store, actor=given.actor
        )
    )
    after = open_memory(given).ingest(before, path, scope=scope, kind=kind, actor=given.actor)
    _print_ingested(given, before, after, len(pieces), is_opened=session is None)


def _check_owner(scope: str, user: str | None, project: str | None) -> None:
    """Raise if a session that is opened would have no owner of the scope."""
    owners = {"session": "", "user": user, "project": project}
    if scope in owners and owners[scope] is None:
        raise click.UsageError(f"--scope {scope} needs an owner: --{scope} NAME, or --session S.")
    if scope not in owners:
        raise click.UsageError(
            f"--scope {scope} needs the run of one: ingest the document in Python, with"
            f" Memory({scope}=NAME)."
        )


# ── known already ────────────────────────────────────────────────────────────────────────────


def _pieces_of(path: Path) -> list[str]:
    """Return the pieces in which a document is remembered."""
    from plait.memory.ingest import pieces_of_document, read_document

    return pieces_of_document(read_document(path)[0])


def _is_known(store: Store, path: Path, pieces: Sequence[str], owner: str) -> bool:
    """True if an owner has every piece of a document, and no other piece of it: nothing would be
    written, and no session needs to be opened for it.
    """
    from plait.memory.remember import rows_with
    from plait.memory.scopes import Viewer
    from plait.memory.words import text_digest

    viewer = Viewer(store, (owner,), ())
    here = {text_digest(piece) for piece in pieces}
    if not all(any(_is_held(viewer, row) for row in rows_with(viewer, "same", s)) for s in here):
        return False
    wanted = {"source": path.as_posix(), "owner": owner}
    rows = store.rows("memory", ITEM, wanted, order="number", limit=_ALL)
    return all(row["same"] in here for row in rows if _is_held(viewer, row))


def _is_held(viewer: Viewer, row: Row) -> bool:
    return viewer.standing(row).state in ("active", "quarantined", "proposed")


def _print_known(given: Options, path: Path, pieces: int) -> None:
    if given.form == "json":
        counts = dict.fromkeys(_COUNTED, 0) | {"known": pieces}
        print_json({"session": None, "opened": False, **counts, "memories": []})
        return
    Out().print_brief(
        f"{count_text(pieces, 'piece')}: all known already, and no session was opened for ",
        path.name,
    )


# ── output ───────────────────────────────────────────────────────────────────────────────────


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
        out.print_brief("opened session ", Cell(after.short, ACCENT), " for ", str(after.title))
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
    "retracted": "gone, and taken back",
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
            (MemoryRetracted, "retracted"),
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
        "known": max(pieces - count["proposed"], 0),
        "retracted": count["retracted"],
    }, ids
