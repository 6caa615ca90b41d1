"""Publishing a session's files: `session.files.apply()`.

It brings the files back to the folder that they came from: a merge of the tree that was placed, the
session's own and the folder as it is now, written file by file, each in one step. An interrupted
apply is made again: the paths written already are the same on both sides by then.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from plait import secrets
from plait.errors import (
    NoSuchFile,
    NotApplied,
    NotPlaced,
    PlaitError,
    StoreCorrupt,
    UnknownBlob,
    WorkspaceError,
)
from plait.event import Json
from plait.event.kinds import ApprovalRequested, ToolRequested
from plait.ids import Digest
from plait.journal.stops import NeedsHost
from plait.runtime.consent import User
from plait.runtime.placement import detail_of
from plait.runtime.publish_plan import PublishPlan, plan_publish
from plait.runtime.registry import run_of
from plait.runtime.settle import use_tool
from plait.runtime.waits import Wait
from plait.sandbox.local import host_name
from plait.session import Session
from plait.session.files import Resolve
from plait.session.ports import store_at
from plait.store import Store
from plait.tool import Result, Tool
from plait.workspace import FileChange, TreeReader, shown_path
from plait.workspace.changes import Changes
from plait.workspace.diff import changes
from plait.workspace.files import LocalFiles, Old
from plait.workspace.git_patch import patch_parts

APPLY = "apply"
PUBLISHES = "publishes"  # in a request for consent: the folder and the trees before and after
# characters of the patch in a request for consent; files that the user's own tools run are shown
# whole
PATCH_MAX = 20_000
RUN_MAX = 2_000_000  # characters of those files; beyond this consent cannot be asked for
LISTED = 20  # paths of a kind that are named in a sentence; the record has all


def publish(session: Session, choices: Resolve | None, user: User) -> Generator[Wait, Any, Session]:
    """Bring a session's files to the folder they came from, as a recorded tool call."""
    placement, tree = session.files.placement, session.files.tree
    detail = detail_of(placement)
    if placement is None or tree is None:
        raise NotPlaced(session.short)
    folder = detail.get("folder")
    if folder is None:
        step = (
            "check its files out with session.files.workspace.checkout(folder), or `plait checkout`"
        )
        raise NotApplied("(nowhere)", "the session's files did not come from a folder", step)
    if detail.get("in_place"):
        return session  # they are there already
    run = run_of(session)
    if run is not None and run.is_claimed and run.journal.is_live(session):
        _check_host(str(folder), str(detail.get("host") or ""))
    if run is None:
        # conflicts are raised before anything is recorded
        plan_publish(session, Path(folder), choices)

    return (yield from use_tool(session, PublishTool(session, choices), {"folder": folder}, user))


def _check_host(folder: str, host: str) -> None:
    """Leave a run of a worker to those on the machine that has the folder."""
    if host and host != host_name():
        raise NeedsHost(host, f"the folder {folder} is on {host}, and this is {host_name()}")


class PublishTool(Tool[..., Result]):
    """Publishing as a tool, so that policy and consent apply.

    A request for consent shows the patch, and the parts of it that the user's own tools run.
    """

    def __init__(self, session: Session, choices: Resolve | None) -> None:
        def apply(folder: str) -> Result:
            return _apply(session, Path(folder), choices)

        self._session, self._choices = session, choices
        schema: Json = {"type": "object", "properties": {"folder": {"type": "string"}}}
        about = "Publish the session's files."
        super().__init__(
            apply,
            name=APPLY,
            description=about,
            schema=cast("Mapping[str, Json]", schema),
            effect="idempotent",
            version="1",
        )

    def consent_details(self, arguments: Json) -> Mapping[str, Json]:
        folder = arguments.get("folder") if isinstance(arguments, Mapping) else None
        try:
            plan = plan_publish(self._session, Path(str(folder)), self._choices)
            return consent_request(
                store_at(self._session.store), plan, str(folder), self._session.short
            )
        # shown instead of the trees, without which `_check_consent` refuses to publish
        except (PlaitError, OSError) as error:
            return {
                PUBLISHES: {"folder": folder},
                "cannot tell": f"what would be published: {error}",
            }


def consent_request(store: Store, plan: PublishPlan, folder: str, name: str) -> dict[str, Json]:
    """Return the request for consent to a plan. `name`: the session's, in commands."""
    diff = Changes(store, plan.before, plan.after)
    first, rest = map(secrets.hide_text, patch_parts(store, diff, plan.executable))
    if len(first) > RUN_MAX:
        why = (
            f"the patch of what your own tools would run has {len(first):,} characters, too many to"
            " be shown"
        )
        raise NotApplied(
            folder,
            why,
            f"Read and publish it in the shell, with plait apply {name}, or leave it out with"
            " ignore=",
        )
    run_lines: dict[str, Json] = {"run lines": first.count("\n")} if first else {}
    found: dict[str, Json] = {
        PUBLISHES: {
            "folder": folder,
            "before": plan.before,
            "after": plan.after,
            "paths": len(diff),
            **run_lines,
        },
        "changes": cast("Json", diff.lines()),
    }
    found |= {
        what: {shown_path(path): why for path, why in paths.items()}
        for what, paths in _paths_with_reasons(plan).items()
        if paths
    }
    most = max(PATCH_MAX - len(first), 0)
    found["patch"] = first + rest[:most]
    if len(rest) > most:
        more = f"{len(rest) - most:,} characters more are not shown here"
        found["patch is cut"] = f"{more}: plait apply {name} --dry-run prints all of it"
    return found


def _check_consent(
    session: Session, folder: Path, reader: TreeReader, todo: Sequence[FileChange]
) -> None:
    """Raise NotApplied if a change differs from the one shown when consent was asked for: the
    folder may have changed since.
    """
    asked = _shown_at_consent(session)
    trees = (
        cast("Mapping[str, Any]", asked.get(PUBLISHES))
        if asked is not None and PUBLISHES in asked
        else None
    )
    if trees is None or trees.get("folder") != str(folder):
        # no consent was asked for, or without a patch (an older Plait), or for another folder
        return
    before, after = trees.get("before"), trees.get("after")
    step = "Apply again: it is asked anew, with what would be written now"
    if not isinstance(before, str) or not isinstance(after, str):
        raise NotApplied(
            str(folder),
            "what would be published could not be shown when consent was asked for",
            step,
        )
    try:
        seen = {each.path: each.after for each in changes(reader, Digest(before), Digest(after))}
    except (UnknownBlob, StoreCorrupt) as error:
        raise NotApplied(
            str(folder),
            "what was shown when consent was asked for is not in the store any more",
            step,
        ) from error
    for each in todo:
        if each.path not in seen or seen[each.path] != each.after:
            raise NotApplied(
                str(folder),
                f"{shown_path(each.path)!r} would not become what was shown when consent was"
                " asked for",
                step,
            )


def _shown_at_consent(session: Session) -> Mapping[str, Any] | None:
    """Return the request for consent to the call that publishes this value.

    None: no consent was asked for, or the tool was requested again since, without asking.
    """
    kinds = {kind.__name__ for kind in (ApprovalRequested, ToolRequested)}
    for event in store_at(session.store).read(
        session.id, session.seq + 1, kinds=kinds, reverse=True
    ):
        body = event.body
        if isinstance(body, ToolRequested) and body.tool == APPLY:
            return None
        if (
            isinstance(body, ApprovalRequested)
            and isinstance(body.shown, Mapping)
            and body.shown.get("tool") == APPLY
        ):
            return cast("Mapping[str, Any]", body.shown)
    return None


def _apply(session: Session, folder: Path, choices: Resolve | None) -> Result:
    with _folder_lock(folder):
        return _write_changes(session, folder, choices)


@contextmanager
def _folder_lock(folder: Path) -> Generator[None]:
    """Lock a folder against other publishers, in this process and in others."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write_changes(session: Session, folder: Path, choices: Resolve | None) -> Result:
    store, plan = store_at(session.store), plan_publish(session, folder, choices)
    reader, files = TreeReader(store), LocalFiles(folder, ours=False)
    todo = changes(reader, plan.before, plan.after)
    _check_consent(session, folder, reader, todo)
    done: list[str] = []
    for change in _writing_order(todo):
        before, after = change.before, change.after
        try:
            old = Old(before, partial(reader.content, before)) if before is not None else Old(None)
            files.replace(
                old,
                change.path,
                after,
                reader.content(after) if after is not None and after.kind == "file" else b"",
            )
        except (WorkspaceError, OSError) as error:
            step = f"{len(done)} of {len(todo)} paths are written; correct it and apply again"
            raise NotApplied(str(folder), f"{shown_path(change.path)!r}: {error}", step) from error
        done.append(shown_path(change.path))
    _update_folders(reader, files, plan, todo)
    count = f"{len(done)} path{'s' if len(done) != 1 else ''}"
    summary = f"{count} written to {folder}" if done else f"{folder} has all of it already"
    return Result(
        ["\n".join([summary, *plan_notes(plan)])], delta=_delta(session, folder, plan, done)
    )


def plan_notes(plan: PublishPlan) -> list[str]:
    """Return lines about a plan: paths that the user's own tools run, and paths left out."""
    lines: list[str] = []
    for what, paths in (
        ("run by your own tools", plan.executable),
        ("not published", plan.unpublished),
    ):
        lines += [
            f"{what}: {shown_path(path)} ({why})" for path, why in list(paths.items())[:LISTED]
        ]
        if len(paths) > LISTED:
            lines.append(f"{what}: {len(paths) - LISTED} more")
    return lines


def _delta(session: Session, folder: Path, plan: PublishPlan, done: Sequence[str]) -> Json:
    published: dict[str, Json] = {"published": str(folder), "tree": session.files.tree}
    reasons = {
        name: {shown_path(path): why for path, why in paths.items()}
        for name, paths in _paths_with_reasons(plan).items()
        if paths
    }
    return {
        **published,
        "before": plan.before,
        "after": plan.after,
        "changed": list(done[:1000]),
        **reasons,
    }


def _paths_with_reasons(plan: PublishPlan) -> dict[str, Mapping[str, str]]:
    return {"executable": plan.executable, "unpublished": plan.unpublished}


def _update_folders(
    reader: TreeReader, files: LocalFiles, plan: PublishPlan, todo: Sequence[FileChange]
) -> None:
    """Remove the folders that are gone, and set the modes of new ones."""
    above = {
        "/".join(parts[:size])
        for each in todo
        for parts in [each.path.split("/")]
        for size in range(1, len(parts))
    }
    for path in sorted(above, key=lambda path: path.count("/"), reverse=True):
        before, after = reader.find(plan.before, path), reader.find(plan.after, path)
        if after is None:
            with suppress(NoSuchFile):
                files.replace(Old(None), path, None)
        elif after.kind == "folder" and before is None:
            files.replace(Old(None), path, after)


def _writing_order(todo: Sequence[FileChange]) -> list[FileChange]:
    """Sort the changes: removals first, from the deepest up, to make room for the rest."""
    gone = sorted(
        (each for each in todo if each.after is None), key=lambda each: each.path, reverse=True
    )
    return [*gone, *(each for each in todo if each.after is not None)]
