"""Placing a session and publishing its files.

`to` records the tree of a folder and where tools run from then on; the folder itself is only read. `apply` brings the files back: a merge
of the tree that was placed, the session's own and the folder as it is now, written file by file, each in one step. An apply that was
interrupted is made again: what was written already is the same on both sides by then.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from plait.errors import InvalidValue, MergeConflict, NoSuchFile, NotApplied, NotPlaced, WorkspaceError
from plait.event import Json
from plait.event.kinds import Placement, PlacementChanged
from plait.ids import Digest
from plait.runtime.places import detail_of, make_now, wanted_of
from plait.runtime.run import check_running, record, run_of
from plait.runtime.using import User, use_tool
from plait.runtime.waits import Wait
from plait.sandbox import Limits, backend
from plait.session import Session
from plait.session.files import Resolve, chosen_in, told
from plait.session.ports import Act, Draft, Spot, store_at
from plait.store import Store
from plait.tool import Result, Tool
from plait.workspace import EMPTY, EMPTY_BYTES, HEAVY, Change, Rules, Snapshot, TreeReader, shown
from plait.workspace.copies import snapshot_folder
from plait.workspace.diff import changes
from plait.workspace.files import LocalFiles
from plait.workspace.merge import merge_trees, resolve
from plait.workspace.rules import heavy_in, rules_for

LOCAL = "local"
_WORDS = ("isolation", "network", "limits", "env", "heavy", "ignore", "in_place", "clean", "image", "template", "egress")


# ── to ───────────────────────────────────────────────────────────────────────────────────────


def place(session: Session, name: str, where: str | None, options: Mapping[str, Any], actor: str) -> Spot:
    """Record where it is placed from here on. In a run that is taken up again, what is on record is not looked for anew."""
    check_running(session)
    run = run_of(session)
    step = run.peek(session) if run is not None and run.follows(session) else None
    recorded = step.body if step is not None else None
    if isinstance(recorded, PlacementChanged) and recorded.placement.backend == name:
        body, blobs = recorded, {}
    else:
        body, blobs = _placed(session, name, where, options)
    return record(session, [Draft(body, Act(actor, "program"))], blobs)[0].spot


def _placed(session: Session, name: str, where: str | None, options: Mapping[str, Any]) -> tuple[PlacementChanged, dict[Digest, bytes]]:
    chosen, store = backend(name), store_at(session.store)
    asked, further = _checked(options)
    folder = _folder(where) if where is not None else None
    before = detail_of(session.placement if folder is None else None)
    detail: dict[str, Json] = {word: before[word] for word in ("folder", "base", "heavy", "heavy_names", "ignore") if word in before}
    tree, blobs = session.tree or EMPTY, {EMPTY: EMPTY_BYTES}
    if folder is not None:
        found = _recorded(store, folder, asked, detail)
        tree, blobs = found.tree, {**blobs, **found.blobs}
    detail |= _said(asked, session.place)
    if further:
        detail["options"] = further
    if asked.get("in_place") and not detail.get("folder"):
        raise InvalidValue("in_place", "there is no folder to work on", "name one, as in to('local', './repo', in_place=True)")
    image = str(asked.get("image") or asked.get("template") or "")
    placement = Placement(name, image=image, network=asked.get("network", "off"), detail=detail)
    known = chosen.check(wanted_of(store, session.id, tree, placement))
    told = {**detail, **detail_of(known)}
    placement = msgspec.structs.replace(known, detail=told)
    if name != LOCAL:  # on another machine it is made at once: what is wrong with it is found out now, and not by the first tool
        store.put_blobs(blobs)
        placement = make_now(session, placement, tree)
    return PlacementChanged(placement, tree), blobs


def _recorded(store: Store, folder: Path, asked: Mapping[str, Any], detail: dict[str, Json]) -> Snapshot:
    """The tree of a folder, and what is to be said of it."""
    kept = store.address.partition(":")[2] if store.address.startswith("sqlite:") else None
    rules = rules_for(folder, ignore=asked.get("ignore", ()), store=kept)
    if "heavy" in asked:
        rules = msgspec.structs.replace(rules, heavy=tuple(asked["heavy"]))
        detail["heavy_names"] = list(rules.heavy)
    found = snapshot_folder(store, folder, rules)
    heavy = [shown(path) for path in heavy_in(folder, rules)]
    detail |= {"folder": str(folder), "base": found.tree, "heavy": heavy, "ignore": list(rules.ignore)}
    for word, paths in (("withheld", found.withheld), ("skipped", found.skipped)):
        if paths:
            detail[word] = [shown(path) for path in paths[:100]]
    return found


def rules_of(placement: Placement | None) -> Rules:
    """What is left out of this session's trees."""
    detail = detail_of(placement)
    return Rules(heavy=tuple(detail.get("heavy_names", HEAVY)), ignore=tuple(detail.get("ignore", ())))


def _folder(where: str) -> Path:
    folder = Path(os.path.abspath(os.path.expanduser(where)))
    if not folder.is_dir():
        why = "is not a folder" if folder.exists() else "is not there"
        raise InvalidValue("where", f"{str(folder)!r} {why}", "name the folder whose files the session is to have")
    return folder


def _checked(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Json]]:
    """What every backend understands, and what is for this one alone."""
    asked = {word: value for word, value in options.items() if word in _WORDS}
    if asked.get("network", "off") not in ("on", "off"):
        step = "use 'on' or 'off'; hosts for the http tool go into egress="
        raise InvalidValue("network", f"{asked['network']!r} is neither on nor off", step)
    for word in ("heavy", "ignore", "egress"):
        given = asked.get(word, ())
        if not _is_list(given):
            raise InvalidValue(word, f"{given!r} is not a list of texts", f"pass {word}=[…]")
    for word in ("in_place", "clean"):
        if not isinstance(asked.get(word, False), bool):
            raise InvalidValue(word, f"{asked[word]!r} is neither True nor False", "say which")
    asked["limits"] = _limits(asked.get("limits", Limits()))
    asked["env"] = _env(asked.get("env", {}))
    further = {word: value for word, value in options.items() if word not in _WORDS}
    return asked, further


def _is_list(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and all(isinstance(each, str) for each in cast("Sequence[Any]", given))


def _limits(given: Any) -> Limits:
    try:
        return given if isinstance(given, Limits) else msgspec.convert(given, Limits)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidValue("limits", str(error), "pass limits=Limits(time_s=60, memory_mb=512)") from error


def _env(given: Any) -> Any:
    if isinstance(given, Mapping) and all(isinstance(each, str) for pair in cast("Mapping[Any, Any]", given).items() for each in pair):
        return dict(cast("Mapping[str, str]", given))
    if _is_list(given):
        return list(cast("Sequence[str]", given))
    raise InvalidValue("env", f"{given!r} is neither names nor a mapping", "pass {'CI': '1'}, or ['CI'] for this process's own value")


def _said(asked: Mapping[str, Any], place: int) -> dict[str, Json]:
    """What was asked for, as it is recorded: only what is not as always."""
    said: dict[str, Json] = {}
    for word in ("isolation", "egress", "in_place"):
        if asked.get(word):
            said[word] = list(asked[word]) if word == "egress" else asked[word]
    if asked.get("clean"):
        said["clean"] = f"clean{place}"
    if asked["env"]:
        said["env"] = asked["env"]
    limits = {name: value for name, value in msgspec.to_builtins(asked["limits"]).items() if value != getattr(Limits(), name)}
    if limits:
        said["limits"] = limits
    return said


# ── apply ────────────────────────────────────────────────────────────────────────────────────


def publish(session: Session, choices: Resolve | None, user: User) -> Generator[Wait, Any, Session]:
    """Bring its files to the folder they came from, as an effect of its own: requested, made, recorded."""
    placement, tree = session.placement, session.tree
    detail = detail_of(placement)
    if placement is None or tree is None:
        raise NotPlaced(session.short)
    folder = detail.get("folder")
    if folder is None:
        step = "check its files out with session.workspace.checkout(folder), or `plait checkout`"
        raise NotApplied("(nowhere)", "the session's files did not come from a folder", step)
    if detail.get("in_place"):
        return session  # they are there already
    run = run_of(session)
    if run is None:
        plan_of(session, Path(folder), choices)  # what is in dispute is told before anything is recorded

    def apply(folder: str) -> Result:
        return _apply(session, Path(folder), choices)

    applied = Tool(
        apply,
        name="apply",
        description="Publish the session's files.",
        schema={"type": "object", "properties": {"folder": {"type": "string"}}},
        effect="idempotent",
        version="1",
    )
    session = yield from use_tool(session, applied, {"folder": folder}, user)
    # What is there now is what the next one starts from.
    placed = msgspec.structs.replace(session.placement or placement, detail={**detail, "base": tree})
    return record(session, [Draft(PlacementChanged(placed, tree), Act(user.actor, "program"))])[0]


class Plan(msgspec.Struct, frozen=True):
    """What is to become of a folder."""

    before: Digest  # what it is now
    after: Digest
    blobs: Mapping[Digest, bytes]


def plan_of(session: Session, folder: Path, choices: Resolve | None = None) -> Plan:
    """What applying would do to the folder as it is now; files in dispute raise MergeConflict."""
    store, placement = store_at(session.store), session.placement
    if not folder.is_dir():
        raise NotApplied(str(folder), "it is not there any more", "make it again, or check the files out elsewhere with `plait checkout`")
    now = snapshot_folder(store, folder, rules_of(placement))
    store.put_blobs({EMPTY: EMPTY_BYTES, **now.blobs})
    base, tree = Digest(detail_of(placement).get("base", EMPTY)), session.tree or EMPTY
    met = store, [base], now.tree, tree, ("the folder", session.short)
    found = merge_trees(*met)
    if found.conflicts:
        chosen = chosen_in(found.conflicts, choices, {})
        left = {path: told(sides) for path, sides in found.conflicts.items() if path not in chosen}
        if left:
            raise MergeConflict(str(folder), left)
        found = resolve(*met, choices=chosen)
    assert found.tree is not None
    return Plan(now.tree, found.tree, found.blobs)


def _apply(session: Session, folder: Path, choices: Resolve | None) -> Result:
    store, plan = store_at(session.store), plan_of(session, folder, choices)
    store.put_blobs(plan.blobs)
    reader, files = TreeReader(store), LocalFiles(folder)
    todo = changes(reader, plan.before, plan.after)
    done: list[str] = []
    for change in _in_order(todo):
        try:
            _write(reader, files, change)
        except (WorkspaceError, OSError) as error:
            step = f"{len(done)} of {len(todo)} paths are written; correct it and apply again"
            raise NotApplied(str(folder), f"{shown(change.path)!r}: {error}", step) from error
        done.append(shown(change.path))
    said = f"{len(done)} paths written to {folder}" if done else f"{folder} has all of it already"
    return Result([said], delta={"before": plan.before, "after": plan.after, "changed": done[:1000]})


def _write(reader: TreeReader, files: LocalFiles, change: Change) -> None:
    """One path. A file is replaced in one step; what stands in its way and is no file goes first."""
    path, before, after = change.path, change.before, change.after
    if after is None or (before is not None and before.kind != after.kind):
        with suppress(NoSuchFile):
            files.remove(path)
    if after is None or after.kind == "withheld":
        return
    if after.kind == "folder":
        files.make_folder(path)
        files.chmod(path, after.mode)
    elif after.kind == "link":
        with suppress(NoSuchFile):
            files.remove(path)
        files.link(path, after.target)
    else:
        files.write(path, reader.content(after), mode=after.mode)


def _in_order(todo: Sequence[Change]) -> list[Change]:
    """What goes first makes room: removals from the deepest up, then what comes."""
    gone = sorted((each for each in todo if each.after is None), key=lambda each: each.path, reverse=True)
    return [*gone, *(each for each in todo if each.after is not None)]
