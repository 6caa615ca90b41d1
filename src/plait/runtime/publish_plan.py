"""The plan of `apply`: the changes that publishing would make to a folder, computed before any of
them is made.

It is a three-way merge. The base is the tree that folder and session had in common last; the two
sides are the folder as it is now and the session's tree. Some paths are then left out: those of
version control, those that hold a secret, and those that the rules or the hazards of the folder
exclude.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from plait.errors import InvalidValue, MergeConflict, NotApplied
from plait.event.kinds import PlacementChanged, ToolReturned
from plait.ids import Digest, LogId
from plait.runtime.placement import detail_of, rules_of
from plait.session import Session
from plait.session.files import Resolve, choices_for, path_of_key, side_texts
from plait.session.ports import store_at
from plait.session.state import ABSENT
from plait.session.value import counted_logs
from plait.store import Store
from plait.workspace import EMPTY, EMPTY_BYTES, FileChange, NewEntry, Rules, TreeReader, shown_path
from plait.workspace.diff import changes
from plait.workspace.edited import edit_tree, restore_paths
from plait.workspace.executables import executables
from plait.workspace.folder_snapshot import snapshot_folder
from plait.workspace.merge import merge_trees, resolve
from plait.workspace.publish_guard import Guard
from plait.workspace.tree import walk
from plait.workspace.version_control import UnpublishedPath, metadata_root

FOLDER = "the folder"  # the name of that side in a conflict
SECRET = "(withheld: it holds a secret)"  # shown in place of its content


class PublishPlan(msgspec.Struct, frozen=True):
    """The trees of a folder before and after publishing, and the paths to be named."""

    before: Digest  # the folder as it is now
    after: Digest  # the folder as it will be: exactly this is written
    unpublished: Mapping[str, str] = {}  # paths of the session that are left out, and why
    # written paths that the user's own tools run without being asked, and the tool
    executable: Mapping[str, str] = {}


def plan_publish(session: Session, folder: Path, choices: Resolve | None = None) -> PublishPlan:
    """Return the plan for the folder as it is now; raises MergeConflict for files in dispute."""
    store, placement = store_at(session.store), session.files.placement
    if not folder.is_dir():
        raise NotApplied(
            str(folder),
            "it is not there any more",
            "make it again, or check the files out elsewhere with `plait checkout`",
        )
    now = snapshot_folder(store, folder, rules_of(placement))
    store.put_blobs({EMPTY: EMPTY_BYTES, **now.blobs})
    base = _common_tree(session, str(folder))
    tree, metadata = _without_metadata(store, base, session.files.tree or EMPTY)
    sides = store, [base], now.tree, tree, (FOLDER, session.short)
    merged = merge_trees(*sides)
    _check_choices(choices)
    chosen = choices_for(merged.conflicts, choices, {})
    unresolved = {
        path: side_texts(versions)
        for path, versions in merged.conflicts.items()
        if path not in chosen
    }
    if not unresolved and merged.conflicts:
        merged = resolve(*sides, choices=chosen)
    after, chosen_sides, secrets = merged.tree, dict[str, str](), dict[str, dict[str, Any]]()
    if after is not None:
        store.put_blobs(merged.blobs)
        secrets = _overwritten_secrets(store, session, now.tree, after)
        after, chosen_sides = _choose_secrets(store, after, secrets, choices)
        _check_room(store, folder, now.tree, after)
        unresolved = {
            path: versions for path, versions in secrets.items() if path not in chosen_sides
        }
    if unresolved:
        first = next(iter(unresolved))
        step = (
            f"choose with apply(resolve={{{first!r}: text}}), or plait apply --resolve"
            " PATH=session|folder|@FILE in the shell"
        )
        raise MergeConflict(str(folder), unresolved, step)
    if unknown := sorted(_choices_by_path(choices).keys() - chosen.keys() - secrets.keys()):
        raise InvalidValue("resolve", f"{unknown[0]!r} is not in dispute", "leave it out")
    assert after is not None
    unchanged = [path for path, side in chosen_sides.items() if side == "folder"]
    return _leave_out_unpublished(
        store, folder, rules_of(placement), now.tree, after, unchanged, metadata
    )


def _without_metadata(store: Store, base: Digest, tree: Digest) -> tuple[Digest, dict[str, str]]:
    """Return the session's tree without its changes to the files of version control, and those
    paths with the reason. They are taken out before the merge, so that none is in dispute.
    """
    kept = {
        each.path: found
        for each in changes(store, base, tree)
        if (found := metadata_root(each.path)) is not None
    }
    if not kept:
        return tree, {}
    made = restore_paths(store, base, tree, {found.root for found in kept.values()})
    store.put_blobs(made.blobs)
    return made.tree, {path: found.why for path, found in kept.items()}


def _leave_out_unpublished(
    store: Store,
    folder: Path,
    rules: Rules,
    before: Digest,
    after: Digest,
    stays: Sequence[str],
    metadata: Mapping[str, str],
) -> PublishPlan:
    """Return the plan without the paths that are not published.

    The rest is judged again after each removal: without a left-out path others may be harmless.
    """
    reader, away = TreeReader(store), dict(metadata)
    made = restore_paths(store, before, after, stays)
    while True:
        store.put_blobs(made.blobs)
        guard = Guard(reader, folder, before, made.tree)
        todo = changes(reader, before, made.tree)
        found = [
            (each, kept)
            for each in todo
            if (kept := _why_left_out(each, rules) or guard.reason_to_keep(each)) is not None
        ]
        if not found:
            break
        away |= {each.path: kept.why for each, kept in found}
        made = restore_paths(store, before, made.tree, {kept.root for _, kept in found})
    return PublishPlan(
        before, made.tree, dict(sorted(away.items())), executables(reader, folder, made.tree, todo)
    )


def _why_left_out(change: FileChange, rules: Rules) -> UnpublishedPath | None:
    """Return why a change is not published; None: it may be.

    A file that holds a secret has no stored content; a path that the rules leave out belongs to
    the folder.
    """
    if change.after is not None and change.after.kind == "withheld":
        return UnpublishedPath(change.path, "it holds a secret")
    parts, last = change.path.split("/"), change.after or change.before
    for end, name in enumerate(parts, 1):
        is_folder = end < len(parts) or (last is not None and last.kind == "folder")
        if rules.leaves_out("/".join(parts[: end - 1]), name, is_folder=is_folder):
            return UnpublishedPath("/".join(parts[:end]), "the folder's rules leave it out")
    return None


def _common_tree(session: Session, folder: str) -> Digest:
    """Return the tree that folder and session had in common last: the one last published there,
    else the one that was placed.

    A rewind does not take back a publication, so the logs are read (the session's own and those
    merged in), not the story.
    """
    store, found = store_at(session.store), list[tuple[int, Digest]]()
    for log, last in {**counted_logs(session), session.id: session.seq}.items():
        common = _last_common_tree(store, log, last, folder)
        found += [common] if common is not None else []
    return max(found)[1] if found else Digest(detail_of(session.files.placement).get("base", EMPTY))


def _last_common_tree(
    store: Store, log: LogId, last: int, folder: str
) -> tuple[int, Digest] | None:
    """Return the last time at which a log had the folder's files, and their tree."""
    kinds = {kind.__name__ for kind in (PlacementChanged, ToolReturned)}
    for event in store.read(log, 1, last, kinds=kinds, reverse=True):
        body = event.body
        if isinstance(body, PlacementChanged) and body.fresh and body.tree is not None:
            if detail_of(body.placement).get("folder") == folder:
                return event.header.time, body.tree
        elif (
            isinstance(body, ToolReturned)
            and isinstance(body.delta, Mapping)
            and body.delta.get("published") == folder
        ):
            tree = body.delta.get("tree")
            if isinstance(tree, str):
                return event.header.time, Digest(tree)
    return None


def _check_room(store: Store, folder: Path, before: Digest, after: Digest) -> None:
    """Raise NotApplied if a file or link would replace a folder that holds files unknown to the
    session.
    """
    for change in changes(store, before, after):
        place = folder / change.path
        if (
            change.after is None
            or change.after.kind == "folder"
            or place.is_symlink()
            or not place.is_dir()
        ):
            continue
        ours = {path for path, _ in walk(store, before)}
        inside = [
            os.path.relpath(os.path.join(at, name), folder)
            for at, folders, files in os.walk(place)
            for name in (*folders, *files)
        ]
        if foreign := [path for path in inside if path not in ours]:
            why = (
                f"{shown_path(change.path)!r} is a folder there, with files that are no part of the"
                f" session: {shown_path(foreign[0])!r}"
            )
            raise NotApplied(str(folder), why, "Move them away, and apply again")


def _check_choices(choices: Any) -> None:
    if choices is None or callable(choices):
        return
    if not isinstance(choices, Mapping) or not all(
        isinstance(key, str) for key in cast("Mapping[Any, Any]", choices)
    ):
        raise InvalidValue(
            "resolve", "it is neither a mapping of paths nor a function", "pass {'path': 'text'}"
        )


def _overwritten_secrets(
    store: Store, session: Session, before: Digest, after: Digest
) -> dict[str, dict[str, Any]]:
    """Return the files of the folder that hold a secret and would be overwritten, as conflicts.

    Their content is stored nowhere, so the caller has to choose for each.
    """
    lost = [
        each
        for each in changes(store, before, after)
        if each.before is not None and each.before.kind == "withheld"
    ]
    return {
        each.path: {FOLDER: SECRET, session.short: "(another file)" if each.after else ABSENT}
        for each in lost
    }


def _choices_by_path(choices: Resolve | None) -> dict[str, Any]:
    """Return the choices of a mapping by path; {} for a function, which chooses for any path."""
    if choices is None or callable(choices):
        return {}
    return {path_of_key(key): value for key, value in choices.items()}


def _choose_secrets(
    store: Store, tree: Digest, secrets: Mapping[str, Mapping[str, Any]], choices: Resolve | None
) -> tuple[Digest, dict[str, str]]:
    """Return the tree with the content chosen for such files, and for each chosen path the side it
    was taken from ("folder" or "session").
    """
    if callable(choices):
        chosen = {path: choices(path, sides) for path, sides in secrets.items()}
    else:
        chosen = _choices_by_path(choices)
    chosen_sides: dict[str, str] = {}
    nodes: dict[str, NewEntry | None] = {}
    for path, sides in secrets.items():
        if path not in chosen:
            continue
        value = chosen[path]
        is_folders = sides[FOLDER] is value or sides[FOLDER] == value
        chosen_sides[path] = "folder" if is_folders else "session"
        if value not in sides.values() and value is not ABSENT:
            nodes[path] = NewEntry(
                "file", content=value if isinstance(value, bytes) else str(value).encode()
            )
    if nodes:
        changed = edit_tree(store, tree, nodes)
        store.put_blobs(changed.blobs)
        tree = changed.tree
    return tree, chosen_sides
