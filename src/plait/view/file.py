"""Write the page of a family of sessions as one file."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from plait import __version__
from plait.errors import FileUnwritten, InvalidValue, PlaitError
from plait.ids import LogId, Micros
from plait.outline.comparing import KnownSteps, comparison_shape
from plait.outline.family import family_shape
from plait.outline.shapes import FamilyShape, StepDetail, StepShape
from plait.outline.steps import outline_shape
from plait.server.asking import read_inbox
from plait.server.costing import read_costs_by, read_flame
from plait.server.desk import ServerDesk
from plait.server.feed import Feed
from plait.server.params import InboxParams, SessionParams
from plait.server.reading import read_session, read_store, verify_session
from plait.server.recalling import read_memory
from plait.session import Session
from plait.session.arguments import check_choice
from plait.session.ports import store_at
from plait.view.chunks import Chunks
from plait.view.contents import Contents
from plait.view.history import FamilyHistory
from plait.view.html import BuiltPage

FORMAT = 1  # of the data; the page that stands beside it knows it
LARGE = 50 << 20  # bytes; beyond it a person is told what takes the space
PAIRS_MAX = 15  # comparisons of branches
SUBJECTS = ("files", "prompts", "blobs")  # that may be left out
_COSTS = ("", "agent", "model", "session", "day", "project,session,model")


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that was written, the bytes that each subject takes, and what is not in it."""

    path: str
    size: int
    sizes: dict[str, int]
    left_out: tuple[str, ...]


def write_file(
    session: Session,
    path: Path,
    *,
    made: Micros,
    other: Session | None = None,
    without: Collection[str] = (),
    page: BuiltPage | None = None,
) -> WrittenFile:
    """Write a session, with all that it is connected with by forks and merges, as they stand now.

    It opens at the session's place; with `other`, at the comparison of the two.
    """
    for name in without:
        check_choice("without", name, SUBJECTS)
    _check_target(path)
    built = page or BuiltPage.read()
    store = store_at(session.store)
    desk = ServerDesk(store, "", Feed(store), None, read_only=True)
    family, chunks = family_shape(desk.outlines, session.id), Chunks()
    if other is not None and other.id not in {branch.log for branch in family.branches}:
        why = f"{other.short} and {session.short} are not connected by forks or merges"
        raise InvalidValue("session", why, "write a file for each of them")
    history, contents = FamilyHistory(desk.outlines, family, chunks), Contents(desk, family, chunks)
    steps = dict[tuple[LogId, int], StepDetail]()
    for detail in history.add_steps():
        steps[detail.step.log, detail.step.index] = detail
        contents.take(detail)
    history.add_tracks()
    history.add_events()
    chunks.add("outlines/0", [outline_shape(desk.outlines, each.log) for each in family.branches])
    if "files" not in without:
        contents.add_versions()
        contents.add_files()
    if "prompts" not in without:
        contents.add_prompts()
    if "blobs" not in without:
        contents.add_blobs()
    chunks.add("comparisons/0", _comparisons(desk, family, session, other, steps))
    left_out = [*[f"all {name}" for name in SUBJECTS if name in without], *contents.left_out]
    chunks.add("head/0", _head(desk, family, session, other, made, left_out))
    about = f"This file shows the session {session.short}, opened at event {session.seq}."
    document = built.document(family.title or session.short, about, list(chunks.elements()))
    size = _write(path, document)
    return WrittenFile(str(path), size, dict(chunks.sizes), tuple(left_out))


def _head(
    desk: ServerDesk,
    family: FamilyShape,
    session: Session,
    other: Session | None,
    made: Micros,
    left_out: list[str],
) -> dict[str, Any]:
    asked = SessionParams(session=session.id)
    return {
        "format": FORMAT,
        "version": __version__,
        "made": made,
        "place": [session.id, session.seq],
        "other": [other.id, other.seq] if other is not None else None,
        "tip": session.reload().seq,
        "head": session.reload().head,
        "left_out": left_out,
        "store": read_store(desk),
        "family": family,
        "sessions": [
            read_session(desk, SessionParams(session=branch.log)) for branch in family.branches
        ],
        "inbox": read_inbox(desk, InboxParams(session=session.id, all=True)),
        "verify": verify_session(desk, asked),
        "memory": read_memory(desk, asked),
        "flame": read_flame(desk, asked),
        "costs": read_costs_by(desk, desk.open(session.id), *_COSTS),
    }


def _comparisons(
    desk: ServerDesk,
    family: FamilyShape,
    session: Session,
    other: Session | None,
    steps: KnownSteps,
) -> dict[str, Any]:
    """Return comparisons of branches with each other, by their logs; first the one asked for."""
    tips = [desk.open(branch.log) for branch in family.branches]
    pairs = [(session, other)] if other is not None else []
    pairs += list(combinations(tips, 2))[:PAIRS_MAX]
    logs = {branch.log: at for at, branch in enumerate(family.branches)}
    found = dict[str, Any]()
    for left, right in pairs:
        try:
            shape = comparison_shape(desk.outlines, left, right, steps)
        except PlaitError:
            continue
        document = msgspec.to_builtins(shape)
        document["rows"] = [
            [_step_ref(row.left, logs), _step_ref(row.right, logs), row.is_same]
            for row in shape.rows
        ]
        found[f"{left.id}@{left.seq}..{right.id}@{right.seq}"] = document
    return found


def _step_ref(step: StepShape | None, logs: dict[LogId, int]) -> tuple[int, int] | None:
    """Return a step by its log and its index: its words are in the pieces of steps."""
    return (logs[step.log], step.index) if step is not None and step.log in logs else None


def _write(path: Path, document: str) -> int:
    """Write the file whole, or not at all. A link is followed; devices and pipes are refused."""
    data = document.encode()
    target = _check_target(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(data)
        os.replace(partial, target)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise FileUnwritten(str(path), error.strerror or str(error)) from error
    return len(data)


def _check_target(path: Path) -> Path:
    """Return the file that a path leads to. It need not be there, and must be no other thing."""
    try:
        target = path.resolve()
        is_other = target.exists() and not target.is_file()
    except (OSError, RuntimeError) as error:  # a circle of links, no right to look
        raise FileUnwritten(str(path), str(error)) from error
    if is_other or not target.name:
        raise FileUnwritten(str(path), "it is not a file")
    return target
