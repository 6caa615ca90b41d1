"""Places where tools run: `to`, `sandbox ls`, `sandbox rm`, `sandbox prune`; and `gc`, for blobs
that nothing leads to.

A sandbox on this machine is a cache: the record has the files, and the next tool call makes
another. So it can be thrown away while no process works in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import msgspec

from plait.cli.common import Options, acting_command, listing, names_of, pairs, value_of
from plait.cli.documents import print_json, print_jsonl
from plait.cli.exits import NOT_FOUND, ShellError
from plait.cli.files import placement_detail
from plait.cli.render import ACCENT, BAD, DIM, Cell, Column, Out, count_text
from plait.cli.writing import print_session
from plait.errors import (
    AmbiguousRevision,
    PlaitError,
    SandboxBusy,
    SandboxFailed,
    SandboxGone,
    UnknownPlace,
    UnknownRevision,
)
from plait.event.kinds import Placement
from plait.ids import LogId
from plait.outline.documents import Document
from plait.sandbox import SandboxInfo, Wanted, backend, backends
from plait.session import Session
from plait.session.listing import session_row
from plait.session.ports import store_at
from plait.store import Store
from plait.workspace.gc import collect
from plait.workspace.tree import EMPTY

LOCAL = "local"

# ── to ───────────────────────────────────────────────────────────────────────────────────────


@click.command("to")
@click.argument("session", metavar="S")
@click.argument("name", metavar="BACKEND")
@click.argument("folder", metavar="[DIR]", required=False)
@click.option(
    "--network",
    type=click.Choice(["off", "on"]),
    help="Whether commands reach the network; off if left out.",
)
@click.option(
    "--isolation",
    metavar="RUNG",
    help="How commands are kept apart from this machine; the best there is if left out.",
)
@click.option("--in-place", is_flag=True, help="Work on DIR itself. There is no way back.")
@click.option(
    "--clean", is_flag=True, help="In a fresh sandbox with the same files and nothing else."
)
@click.option("--image", help="Which image or template, for backends that have any.")
@click.option(
    "--ignore",
    metavar="NAME",
    multiple=True,
    help="What is left out of the record; may be repeated.",
)
@click.option(
    "--option",
    "options",
    metavar="K=V",
    multiple=True,
    help="Whatever else the backend understands; may be repeated.",
)
@acting_command
def to_command(
    given: Options,
    session: str,
    name: str,
    folder: str | None,
    ignore: Sequence[str],
    options: Sequence[str],
    **asked: Any,
) -> None:
    """Place a session: where its tools run, and on which files.

    The files of DIR are recorded, and DIR itself is only read; `plait apply` publishes what becomes
    of them. Without DIR it keeps the files it has. `plait doctor` shows what BACKEND can be: local,
    for one.
    """
    further = {key: value_of(value) for key, value in pairs("--option", options).items()}
    wanted = {word: value for word, value in asked.items() if value} | (
        {"ignore": list(ignore)} if ignore else {}
    )
    placed = given.open_last(session).to(name, folder, **further, **wanted)
    print_session(given, placed, f"plait files {placed.short}", "plait sandbox ls")
    if given.form == "text":
        _print_left_out(placed)


def _print_left_out(session: Session) -> None:
    """Print the files of the folder that are not on record, with the reason."""
    out, detail = Out(), placement_detail(session.files.placement)
    for word, why in _LEFT_OUT_REASONS.items():
        for path in detail.get(word) or ():
            out.line(Cell(f"  without {path}: {why}", DIM))


_LEFT_OUT_REASONS = {
    "withheld": "it holds a secret, or its owner locked it, and was withheld",
    "skipped": "it is neither file, link nor folder",
    "heavy": "it is there to read, and not on record",
    "masked": "it is shown without the secret that it holds",
    "not looked at": "files that were not looked through for secrets",
}


# ── sandboxes ────────────────────────────────────────────────────────────────────────────────


@click.group("sandbox", no_args_is_help=False)
def sandbox() -> None:
    """Sandboxes that exist: ls, rm, prune."""


class SandboxListing(NamedTuple):
    """The sandboxes of all backends, and the backends that did not answer."""

    held: list[SandboxInfo]
    silent: dict[str, str]  # backends that did not answer, with the reason


def find_all(store: Store) -> SandboxListing:
    """Ask every backend for its sandboxes, except those without the package or key they need."""
    held, silent = list[SandboxInfo](), dict[str, str]()
    for name in backends():
        try:
            found = backend(name)
            if any(each.offered for each in found.probe().capabilities):
                held += found.list_sandboxes(store)
        except PlaitError as error:
            silent[name] = str(error)
        # a backend of another package must not hide the sandboxes of the others
        except Exception as error:
            silent[name] = f"{type(error).__name__}: {error}"
    return SandboxListing(held, silent)


@sandbox.command("ls")
@listing
def sandbox_ls(given: Options) -> None:
    """List the sandboxes of this store, on every backend that can be asked."""
    store = store_at(given.store)
    found = find_all(store)
    if given.form == "jsonl":
        print_jsonl(held_document(store, each) for each in found.held)
    elif given.form == "json":
        print_json(
            {
                "sandboxes": [held_document(store, each) for each in found.held],
                "silent": found.silent,
            }
        )
    else:
        _print_held(store, found)


def held_document(store: Store, held: SandboxInfo) -> Document:
    session = session_of(store, held)
    return {
        "backend": held.backend,
        "id": held.sandbox,
        "session": session,
        "state": held.state,
        "detail": held.detail,
    }


def session_of(store: Store, held: SandboxInfo) -> LogId | None:
    """Return the session it was made for. The key of a clean sandbox has a word after the id."""
    log = LogId(held.key[:36])
    return log if log and session_row(store, log) else None


def _print_held(store: Store, found: SandboxListing) -> None:
    out = Out()
    sessions = {
        each.sandbox: log for each in found.held if (log := session_of(store, each)) is not None
    }
    names = names_of(store, sessions.values())
    columns = [
        Column("backend"),
        Column("sandbox", flex=True),
        Column("session"),
        Column("state"),
        Column("detail", aside=True),
    ]
    rows = (
        [
            Cell(each.backend),
            Cell(each.sandbox, ACCENT),
            Cell(names[sessions[each.sandbox]] if each.sandbox in sessions else ""),
            Cell(each.state),
            Cell(each.detail, DIM),
        ]
        for each in found.held
    )
    if not out.table(columns, rows, heads=True):
        out.hint("There are none. The first tool call of a placed session makes one.")
    for name, why in found.silent.items():
        out.line(Cell(f"{name} did not answer: {why}", BAD))


@sandbox.command("rm")
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@acting_command
def sandbox_rm(given: Options, ids: Sequence[str]) -> None:
    """End sandboxes: ID, the start of it, or the session they were made for, as in @.

    The files are on record, and the next tool call makes another.
    """
    store = store_at(given.store)
    found = find_all(store)
    chosen = list(
        {each.sandbox: each for id in ids for each in _find_sandboxes(given, found, id)}.values()
    )
    for each in chosen:
        _end_sandbox(store, each)
    if given.form == "json":
        print_json({"removed": [held_document(store, each) for each in chosen]})
        return
    for each in chosen:
        Out().line(f"removed {each.backend} ", Cell(each.sandbox, ACCENT))


def _find_sandboxes(given: Options, found: SandboxListing, id: str) -> list[SandboxInfo]:
    """Return the sandbox with this id, else those of the session with this name, else the one with
    this beginning of an id.
    """
    same = [each for each in found.held if each.sandbox == id] or _sandboxes_of_session(
        given, found, id
    )
    if same:
        return same
    same = [each for each in found.held if id and each.sandbox.startswith(id)]
    if len(same) > 1:
        raise click.BadParameter(
            f"{id!r} could be any of {', '.join(each.sandbox for each in same)}. Write more of it.",
            param_hint="'ID'",
        )
    if not same:
        silent = f" {', '.join(found.silent)} did not answer." if found.silent else ""
        said = f"there is no sandbox {id!r}.{silent} See what there is with: plait sandbox ls"
        raise ShellError(SandboxGone("no backend", id), [said], NOT_FOUND)
    return same


def _sandboxes_of_session(given: Options, found: SandboxListing, name: str) -> list[SandboxInfo]:
    try:
        log = given.open(name).id
    except (UnknownRevision, UnknownPlace, AmbiguousRevision):  # not the name of a session
        return []
    return [each for each in found.held if each.key[:36] == log]


def _end_sandbox(store: Store, held: SandboxInfo) -> None:
    if held.backend != LOCAL:
        backend(held.backend).attach(
            Placement(held.backend, held.sandbox), Wanted(store, held.key, EMPTY)
        ).destroy()
        return
    # A local sandbox whose state is in doubt cannot be attached. Created again, empty, it can be
    # destroyed on any machine.
    backend(LOCAL).create(Wanted(store, held.sandbox, EMPTY, isolation="host")).destroy()


@sandbox.command("prune")
@acting_command
def sandbox_prune(given: Options) -> None:
    """Throw away the local copies of files that no process has open.

    They are caches: the record has it all.
    """
    store = store_at(given.store)
    removed, kept = list[SandboxInfo](), dict[str, str]()
    for each in backend(LOCAL).list_sandboxes(store):
        try:
            _end_sandbox(store, each)
            removed.append(each)
        except SandboxBusy:
            kept[each.sandbox] = "a process works in it"
        except SandboxFailed as error:
            kept[each.sandbox] = error.why
    if given.form == "json":
        print_json({"removed": [held_document(store, each) for each in removed], "kept": kept})
        return
    out = Out()
    out.line(f"removed {count_text(len(removed), 'local copy').replace('copys', 'copies')}")
    for id, why in kept.items():
        out.line("kept ", Cell(id, ACCENT), f": {why}")


# ── gc ───────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.option(
    "--now",
    is_flag=True,
    help="Also what is less than an hour old. Only if no program is working with the store.",
)
@acting_command
def gc(given: Options, now: bool) -> None:
    """Remove blobs that no event leads to.

    They are files of snapshots that were never recorded.
    """
    store = store_at(given.store)
    found = collect(store, before=store.number if now else None)
    if given.form == "json":
        print_json(msgspec.structs.asdict(found))
        return
    out = Out()
    removed, kept = count_text(found.removed, "blob"), count_text(found.kept, "blob")
    out.line(f"removed {removed}; files lead to {kept}")
    for tree in found.missing:
        out.line(Cell(f"tree {tree} is named and not there: plait verify tells more", BAD))
