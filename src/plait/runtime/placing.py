"""Placing a session and publishing its files.

`to` records the tree of a folder and where tools run from then on; the folder itself is only read.
`apply` brings the files back: a merge of the tree that was placed, the session's own and the folder
as it is now, written file by file, each in one step. An apply that was interrupted is made again:
what was written already is the same on both sides by then.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from plait import secrets
from plait.errors import (
    InvalidValue,
    MergeConflict,
    NoSuchFile,
    NotApplied,
    NotPlaced,
    PlaitError,
    StoreCorrupt,
    UnknownBlob,
    WorkspaceError,
)
from plait.event import Json
from plait.event.kinds import (
    ApprovalRequested,
    Placement,
    PlacementChanged,
    ToolRequested,
    ToolReturned,
)
from plait.ids import Digest, LogId
from plait.runtime.places import detail_of, make_now, wanted_of
from plait.runtime.run import append_events, check_held, check_running, run_of
from plait.runtime.using import User, use_tool
from plait.runtime.waits import Wait
from plait.sandbox import Limits, backend
from plait.session import Session
from plait.session.files import Resolve, chosen_in, path_of, told
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.state import ABSENT
from plait.session.value import counted_logs, position_of
from plait.store import Store
from plait.tool import Result, Tool
from plait.workspace import (
    EMPTY,
    EMPTY_BYTES,
    HEAVY,
    Change,
    Node,
    Rules,
    Snapshot,
    TreeReader,
    shown,
)
from plait.workspace.copies import snapshot_folder
from plait.workspace.diff import Changes, changes, patch_parts
from plait.workspace.edited import edited, restored
from plait.workspace.files import LocalFiles, Old
from plait.workspace.hazards import Guard, Kept, executables, metadata_root
from plait.workspace.masks import secrets_in_heavy
from plait.workspace.merge import merge_trees, resolve
from plait.workspace.rules import heavy_in, rules_for
from plait.workspace.tree import walk

LOCAL = "local"
_WORDS = (
    "isolation",
    "network",
    "limits",
    "env",
    "heavy",
    "ignore",
    "in_place",
    "clean",
    "image",
    "template",
    "egress",
)


# ── to ───────────────────────────────────────────────────────────────────────────────────────


def place(
    session: Session, name: str, where: str | None, options: Mapping[str, Any], actor: str
) -> Position:
    """Record where it is placed from here on.

    In a run that is taken up again, what is on record is not looked for anew.
    """
    check_running(session)
    run = run_of(session)
    step = run.peek(session) if run is not None and run.follows(session) else None
    recorded = step.body if step is not None else None
    if isinstance(recorded, PlacementChanged) and recorded.placement.backend == name:
        body, blobs = recorded, {}
    else:
        check_held(session)  # a machine elsewhere is made before it can be recorded
        body, blobs = _placed(session, name, where, options)
    return position_of(append_events(session, [Draft(body, Act(actor, "program"))], blobs)[0])


def _placed(
    session: Session, name: str, where: str | None, options: Mapping[str, Any]
) -> tuple[PlacementChanged, dict[Digest, bytes]]:
    chosen, store = backend(name), store_at(session.store)
    asked, further = _checked({**_inherited(session, name, where), **options})
    if further and name == LOCAL:
        raise InvalidValue(
            next(iter(further)), "no such option is known", f"use one of {', '.join(_WORDS)}"
        )
    folder = _folder(where) if where is not None else None
    before = detail_of(session.files.placement if folder is None else None)
    detail: dict[str, Json] = {
        word: before[word]
        for word in ("folder", "base", "heavy", "heavy_names", "ignore")
        if word in before
    }
    tree, blobs = session.files.tree or EMPTY, {EMPTY: EMPTY_BYTES}
    if folder is not None:
        found = _recorded(store, folder, asked, detail)
        tree, blobs = found.tree, {**blobs, **found.blobs}
    detail |= _said(asked, session.seq)
    if further:
        detail["options"] = further
    if asked.get("in_place") and not detail.get("folder"):
        raise InvalidValue(
            "in_place",
            "there is no folder to work on",
            "name one, as in to('local', './repo', in_place=True)",
        )
    image = str(asked.get("image") or asked.get("template") or "")
    placement = Placement(name, image=image, network=asked.get("network", "off"), detail=detail)
    known = chosen.check(wanted_of(store, session.id, tree, placement))
    told = {**detail, **detail_of(known)}
    placement = msgspec.structs.replace(known, detail=told)
    # on another machine it is made at once: what is wrong with it is found out now, and not by the
    # first tool
    if name != LOCAL:
        store.put_blobs(blobs)
        placement = make_now(session, placement, tree)
    return PlacementChanged(placement, tree, fresh=folder is not None), blobs


def _inherited(session: Session, name: str, where: str | None) -> dict[str, Any]:
    """Placed on the same backend again, with the files it has, it goes on as it was: what is said
    now comes on top.
    """
    before, detail = session.files.placement, detail_of(session.files.placement)
    if where is not None or before is None or before.backend != name:
        return {}
    kept = {
        word: detail[word] for word in ("isolation", "limits", "env", "egress") if word in detail
    }
    return {
        **kept,
        "network": before.network,
        **({"image": before.image} if before.image else {}),
        **detail.get("options", {}),
    }


def _recorded(
    store: Store, folder: Path, asked: Mapping[str, Any], detail: dict[str, Json]
) -> Snapshot:
    """The tree of a folder, and what is to be said of it."""
    kept = store.address.partition(":")[2] if store.address.startswith("sqlite:") else None
    rules = rules_for(folder, ignore=asked.get("ignore", ()), store=kept)
    if "heavy" in asked:
        rules = msgspec.structs.replace(rules, heavy=tuple(asked["heavy"]))
        detail["heavy_names"] = list(rules.heavy)
    found = snapshot_folder(store, folder, rules)
    heavy = [shown(path) for path in heavy_in(folder, rules)]
    detail |= {
        "folder": str(folder),
        "base": found.tree,
        "heavy": heavy,
        "ignore": list(rules.ignore),
    }
    for word, paths in (("withheld", found.withheld), ("skipped", found.skipped)):
        if paths:
            detail[word] = [shown(path) for path in paths[:100]]
    detail |= {
        word: cast("Json", paths)
        for word, paths in secrets_in_heavy(str(folder), heavy).items()
        if paths
    }
    return found


def rules_of(placement: Placement | None) -> Rules:
    """What is left out of this session's trees."""
    detail = detail_of(placement)
    return Rules(
        heavy=tuple(detail.get("heavy_names", HEAVY)), ignore=tuple(detail.get("ignore", ()))
    )


def _folder(where: str) -> Path:
    folder = Path(os.path.abspath(os.path.expanduser(where)))
    if not folder.is_dir():
        why = "is not a folder" if folder.exists() else "is not there"
        raise InvalidValue(
            "where", f"{str(folder)!r} {why}", "name the folder whose files the session is to have"
        )
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
    if asked.get("in_place") and asked.get("clean"):
        raise InvalidValue(
            "clean",
            "a folder that is worked on in place is not fresh",
            "leave in_place= or clean= out",
        )
    asked["limits"] = _limits(asked.get("limits", Limits()))
    asked["env"] = _env(asked.get("env", {}))
    further = {word: value for word, value in options.items() if word not in _WORDS}
    return asked, further


def _is_list(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and all(
        isinstance(each, str) for each in cast("Sequence[Any]", given)
    )


def _limits(given: Any) -> Limits:
    step = "pass limits=Limits(time_s=60, memory_mb=512)"
    try:
        if isinstance(given, Mapping) and (
            unknown := cast("Mapping[str, Any]", given).keys() - set(Limits.__struct_fields__)
        ):
            raise InvalidValue("limits", f"there is no limit called {sorted(unknown)[0]!r}", step)
        found = msgspec.convert(msgspec.to_builtins(given), Limits)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidValue("limits", str(error), step) from error
    for name in Limits.__struct_fields__:
        most = getattr(found, name)
        if most is not None and not most > 0:
            raise InvalidValue(
                "limits",
                f"{name}={most} leaves nothing",
                "pass a number above 0, or None for no limit",
            )
    return found


def _env(given: Any) -> Any:
    if isinstance(given, Mapping) and all(
        isinstance(each, str) for pair in cast("Mapping[Any, Any]", given).items() for each in pair
    ):
        return dict(cast("Mapping[str, str]", given))
    if _is_list(given):
        names = list(cast("Sequence[str]", given))
        if missing := [name for name in names if name not in os.environ]:
            raise InvalidValue(
                "env",
                f"{missing[0]} is not set in this process",
                "set it, or give its value: {'NAME': 'value'}",
            )
        return names
    raise InvalidValue(
        "env",
        f"{given!r} is neither names nor a mapping",
        "pass {'CI': '1'}, or ['CI'] for this process's own value",
    )


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
    limits = {
        name: value
        for name, value in msgspec.to_builtins(asked["limits"]).items()
        if value != getattr(Limits(), name)
    }
    if limits:
        said["limits"] = limits
    return said


# ── apply ────────────────────────────────────────────────────────────────────────────────────


def publish(session: Session, choices: Resolve | None, user: User) -> Generator[Wait, Any, Session]:
    """Bring its files to the folder they came from, as an effect of its own: requested, made,
    recorded.
    """
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
    if run is None:
        # what is in dispute is told before anything is recorded
        plan_of(session, Path(folder), choices)

    return (yield from use_tool(session, Publishing(session, choices), {"folder": folder}, user))


class Publishing(Tool[..., Result]):
    """The effect of publishing.

    A person who is asked about it is shown the patch, and what of it the user's own tools run.
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
            plan = plan_of(self._session, Path(str(folder)), self._choices)
            return shown_of(store_at(self._session.store), plan, str(folder), self._session.short)
        # it is told, and nothing is published under a consent that did not see it
        except (PlaitError, OSError) as error:
            return {
                PUBLISHES: {"folder": folder},
                "cannot tell": f"what would be published: {error}",
            }


APPLY = "apply"
PUBLISHES = "publishes"  # in what a person is shown: from which tree to which
# characters of the patch that are shown with an ask; what the user's own tools run is shown whole
PATCH_MAX = 20_000
RUN_MAX = 2_000_000  # characters of that: of more than this nothing is published by consent


def shown_of(store: Store, plan: Plan, folder: str, name: str) -> dict[str, Json]:
    """What a person is shown of a plan. `name`: what to call the session in a command."""
    told = Changes(store, plan.before, plan.after)
    first, rest = map(secrets.hide_text, patch_parts(store, told, plan.executable))
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
            "paths": len(told),
            **run_lines,
        },
        "changes": cast("Json", told.lines()),
    }
    found |= {
        what: {shown(path): why for path, why in paths.items()}
        for what, paths in _named(plan).items()
        if paths
    }
    most = max(PATCH_MAX - len(first), 0)
    found["patch"] = first + rest[:most]
    if len(rest) > most:
        more = f"{len(rest) - most:,} characters more are not shown here"
        found["patch is cut"] = f"{more}: plait apply {name} --dry-run prints all of it"
    return found


class Plan(msgspec.Struct, frozen=True):
    """What is to become of a folder."""

    before: Digest  # what it is now
    after: Digest  # what it is then: exactly what is written
    unpublished: Mapping[str, str] = {}  # paths of the session that stay away, and why
    # paths that are written and that the user's own tools run by themselves, and which tool
    executable: Mapping[str, str] = {}


def plan_of(session: Session, folder: Path, choices: Resolve | None = None) -> Plan:
    """What applying would do to the folder as it is now; files in dispute raise MergeConflict."""
    store, placement = store_at(session.store), session.files.placement
    if not folder.is_dir():
        raise NotApplied(
            str(folder),
            "it is not there any more",
            "make it again, or check the files out elsewhere with `plait checkout`",
        )
    now = snapshot_folder(store, folder, rules_of(placement))
    store.put_blobs({EMPTY: EMPTY_BYTES, **now.blobs})
    base = _published(session, str(folder))
    tree, metadata = _without_metadata(store, folder, base, session.files.tree or EMPTY)
    met = store, [base], now.tree, tree, (FOLDER, session.short)
    found = merge_trees(*met)
    _check_choices(choices)
    chosen = chosen_in(found.conflicts, choices, {})
    left = {path: told(sides) for path, sides in found.conflicts.items() if path not in chosen}
    if not left and found.conflicts:
        found = resolve(*met, choices=chosen)
    after, kept, secret = found.tree, dict[str, str](), dict[str, dict[str, Any]]()
    if after is not None:
        store.put_blobs(found.blobs)
        secret = _lost(store, session, now.tree, after)
        after, kept = _settled(store, after, secret, choices)
        _check_room(store, folder, now.tree, after)
        left = {path: sides for path, sides in secret.items() if path not in kept}
    if left:
        step = (
            f"choose with apply(resolve={{{next(iter(left))!r}: text}}), or plait apply --resolve"
            " PATH=session|folder|@FILE in the shell"
        )
        raise MergeConflict(str(folder), left, step)
    given = (
        set[str]() if choices is None or callable(choices) else {path_of(key) for key in choices}
    )
    if strangers := sorted(given - chosen.keys() - secret.keys()):
        raise InvalidValue("resolve", f"{strangers[0]!r} is not in dispute", "leave it out")
    assert after is not None
    stays = [path for path, how in kept.items() if how == "folder"]
    return _narrowed(store, folder, rules_of(placement), now.tree, after, stays, metadata)


def _without_metadata(
    store: Store, folder: Path, base: Digest, tree: Digest
) -> tuple[Digest, dict[str, str]]:
    """The session's tree without what it changed of version control's own, and what that is:
    nothing of it can be in dispute.
    """
    kept = {
        each.path: found
        for each in changes(store, base, tree)
        if (found := metadata_root(each.path)) is not None
    }
    if not kept:
        return tree, {}
    made = restored(store, base, tree, {found.root for found in kept.values()})
    store.put_blobs(made.blobs)
    return made.tree, {path: found.why for path, found in kept.items()}


def _narrowed(
    store: Store,
    folder: Path,
    rules: Rules,
    before: Digest,
    after: Digest,
    stays: Sequence[str],
    metadata: Mapping[str, str],
) -> Plan:
    """The plan without what is not published.

    What is left out is looked at again: without it, other things may be harmless.
    """
    reader, away = TreeReader(store), dict(metadata)
    made = restored(store, before, after, stays)
    while True:
        store.put_blobs(made.blobs)
        guard = Guard(reader, folder, before, made.tree)
        todo = changes(reader, before, made.tree)
        found = [
            (each, kept)
            for each in todo
            if (kept := _left_out(each, rules) or guard.kept(each)) is not None
        ]
        if not found:
            break
        away |= {each.path: kept.why for each, kept in found}
        made = restored(store, before, made.tree, {kept.root for _, kept in found})
    return Plan(
        before, made.tree, dict(sorted(away.items())), executables(reader, folder, made.tree, todo)
    )


def _left_out(change: Change, rules: Rules) -> Kept | None:
    """Not what holds a secret, whose content is nowhere; nor what the rules leave out, which is the
    folder's own if it is there.
    """
    if change.after is not None and change.after.kind == "withheld":
        return Kept(change.path, "it holds a secret")
    parts, last = change.path.split("/"), change.after or change.before
    for end, name in enumerate(parts, 1):
        is_folder = end < len(parts) or (last is not None and last.kind == "folder")
        if rules.leaves_out("/".join(parts[: end - 1]), name, is_folder=is_folder):
            return Kept("/".join(parts[:end]), "the folder's rules leave it out")
    return None


def _published(session: Session, folder: str) -> Digest:
    """What the folder and the session have in common: what was last published there, else the tree
    that was placed.

    A rewind does not take back what was published, so this goes by the logs, its own and those
    merged in, and not by the story.
    """
    store, found = store_at(session.store), list[tuple[int, Digest]]()
    for log, last in {**counted_logs(session), session.id: session.seq}.items():
        common = _published_in(store, log, last, folder)
        found += [common] if common is not None else []
    return max(found)[1] if found else Digest(detail_of(session.files.placement).get("base", EMPTY))


def _published_in(store: Store, log: LogId, last: int, folder: str) -> tuple[int, Digest] | None:
    """When a log last had the folder's files, and which."""
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
    """A file or a link that comes where a folder is: that has to go, and may hold what was never
    ours.
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
        if strange := [path for path in inside if path not in ours]:
            why = (
                f"{shown(change.path)!r} is a folder there, with files that are no part of the"
                f" session: {shown(strange[0])!r}"
            )
            raise NotApplied(str(folder), why, "Move them away, and apply again")


FOLDER = "the folder"  # what it is called where files are in dispute


SECRET = "(withheld: it holds a secret)"  # what is shown of such a file


def _check_choices(choices: Any) -> None:
    if choices is None or callable(choices):
        return
    if not isinstance(choices, Mapping) or not all(
        isinstance(key, str) for key in cast("Mapping[Any, Any]", choices)
    ):
        raise InvalidValue(
            "resolve", "it is neither a mapping of paths nor a function", "pass {'path': 'text'}"
        )


def _lost(
    store: Store, session: Session, before: Digest, after: Digest
) -> dict[str, dict[str, Any]]:
    """Files of the folder that hold a secret and would be overwritten: nobody has what is in them,
    so somebody has to say so.
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


def _settled(
    store: Store, tree: Digest, secret: Mapping[str, Mapping[str, Any]], choices: Resolve | None
) -> tuple[Digest, dict[str, str]]:
    """The tree with what was chosen for such files, and whose each of them is by that; those nobody
    chose for are left out.
    """
    given = (
        {}
        if choices is None or callable(choices)
        else {path_of(key): value for key, value in choices.items()}
    )
    if callable(choices):
        given = {path: choices(path, sides) for path, sides in secret.items()}
    whose: dict[str, str] = {}
    nodes: dict[str, Node | None] = {}
    for path, sides in secret.items():
        if path not in given:
            continue
        value = given[path]
        whose[path] = next(
            (side for side, said in sides.items() if said is value or said == value), "new"
        )
        whose[path] = "folder" if whose[path] == FOLDER else "session"
        if value not in sides.values() and value is not ABSENT:
            nodes[path] = Node(
                "file", content=value if isinstance(value, bytes) else str(value).encode()
            )
    if nodes:
        made = edited(store, tree, nodes)
        store.put_blobs(made.blobs)
        tree = made.tree
    return tree, whose


def _check_consent(
    session: Session, folder: Path, reader: TreeReader, todo: Sequence[Change]
) -> None:
    """Where a person was asked, nothing is written that was not shown: the folder may have changed
    since.
    """
    asked = _asked_of(session)
    trees = (
        cast("Mapping[str, Any]", asked.get(PUBLISHES))
        if asked is not None and PUBLISHES in asked
        else None
    )
    if trees is None or trees.get("folder") != str(folder):
        # nobody was asked, or by a Plait that showed no patch, or the person named another folder
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
                f"{shown(each.path)!r} would not become what was shown when consent was asked for",
                step,
            )


def _asked_of(session: Session) -> Mapping[str, Any] | None:
    """What a person was shown of the call that publishes this value.

    None: nobody was asked, or it was allowed since.
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
    with _alone(folder):
        return _applied(session, folder, choices)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """One at a time publishes to a folder, in this process and in others."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _applied(session: Session, folder: Path, choices: Resolve | None) -> Result:
    store, plan = store_at(session.store), plan_of(session, folder, choices)
    reader, files = TreeReader(store), LocalFiles(folder, ours=False)
    todo = changes(reader, plan.before, plan.after)
    _check_consent(session, folder, reader, todo)
    done: list[str] = []
    for change in _in_order(todo):
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
            raise NotApplied(str(folder), f"{shown(change.path)!r}: {error}", step) from error
        done.append(shown(change.path))
    _settle_folders(reader, files, plan, todo)
    count = f"{len(done)} path{'s' if len(done) != 1 else ''}"
    said = f"{count} written to {folder}" if done else f"{folder} has all of it already"
    return Result(["\n".join([said, *said_of(plan)])], delta=_delta(session, folder, plan, done))


LISTED = 20  # paths of a kind that are named in a sentence; the record has all


def said_of(plan: Plan) -> list[str]:
    """What people are told of a plan besides what changes."""
    lines: list[str] = []
    for what, paths in (
        ("run by your own tools", plan.executable),
        ("not published", plan.unpublished),
    ):
        lines += [f"{what}: {shown(path)} ({why})" for path, why in list(paths.items())[:LISTED]]
        if len(paths) > LISTED:
            lines.append(f"{what}: {len(paths) - LISTED} more")
    return lines


def _delta(session: Session, folder: Path, plan: Plan, done: Sequence[str]) -> Json:
    published: dict[str, Json] = {"published": str(folder), "tree": session.files.tree}
    told = {
        name: {shown(path): why for path, why in paths.items()}
        for name, paths in _named(plan).items()
        if paths
    }
    return {
        **published,
        "before": plan.before,
        "after": plan.after,
        "changed": list(done[:1000]),
        **told,
    }


def _named(plan: Plan) -> dict[str, Mapping[str, str]]:
    return {"executable": plan.executable, "unpublished": plan.unpublished}


def _settle_folders(
    reader: TreeReader, files: LocalFiles, plan: Plan, todo: Sequence[Change]
) -> None:
    """Folders come and go with what is in them: those that are gone are removed, those that came
    get their modes.
    """
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


def _in_order(todo: Sequence[Change]) -> list[Change]:
    """What goes first makes room: removals from the deepest up, then what comes."""
    gone = sorted(
        (each for each in todo if each.after is None), key=lambda each: each.path, reverse=True
    )
    return [*gone, *(each for each in todo if each.after is not None)]
