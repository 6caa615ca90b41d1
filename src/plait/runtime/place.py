"""Placing a session: `session.to(backend, folder)`.

It records the tree of a folder and the sandbox in which tools run from then on. The folder itself
is only read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from plait.errors import InvalidValue
from plait.event import Json
from plait.event.kinds import Placement, PlacementChanged
from plait.ids import Digest
from plait.runtime.appends import append_events
from plait.runtime.executing import check_held, check_running
from plait.runtime.placement import detail_of, wanted_of
from plait.runtime.registry import run_of
from plait.runtime.sandboxes import make_sandbox
from plait.sandbox import Limits, backend
from plait.session import Session
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.value import position_of
from plait.store import Store
from plait.workspace import EMPTY, EMPTY_BYTES, TreeSnapshot, shown_path
from plait.workspace.folder_snapshot import snapshot_folder
from plait.workspace.masks import secrets_in_heavy
from plait.workspace.rules import heavy_in, rules_for

LOCAL = "local"
_WORDS = (
    "isolation",
    "network",
    "limits",
    "env",
    "heavy",
    "needs_heavy",
    "ignore",
    "in_place",
    "clean",
    "image",
    "template",
    "egress",
)


def place(
    session: Session, name: str, where: str | None, options: Mapping[str, Any], actor: str
) -> Position:
    """Record the placement of a session from here on.

    A resumed run takes the placement from its record: the folder is not read again.
    """
    check_running(session)
    run = run_of(session)
    step = (
        run.journal.next_step(session)
        if run is not None and not run.journal.is_live(session)
        else None
    )
    recorded = step.body if step is not None else None
    if isinstance(recorded, PlacementChanged) and recorded.placement.backend == name:
        body, blobs = recorded, {}
    else:
        check_held(session)  # a machine elsewhere is made before it can be recorded
        body, blobs = _new_placement(session, name, where, options)
    return position_of(append_events(session, [Draft(body, Act(actor, "program"))], blobs)[0])


def _new_placement(
    session: Session, name: str, where: str | None, options: Mapping[str, Any]
) -> tuple[PlacementChanged, dict[Digest, bytes]]:
    chosen, store = backend(name), store_at(session.store)
    asked, further = _check_options({**_options_before(session, name, where), **options})
    if further and name == LOCAL:
        raise InvalidValue(
            next(iter(further)), "no such option is known", f"use one of {', '.join(_WORDS)}"
        )
    folder = _existing_folder(where) if where is not None else None
    before = detail_of(session.files.placement if folder is None else None)
    detail: dict[str, Json] = {
        word: before[word]
        for word in ("folder", "base", "heavy", "heavy_names", "ignore")
        if word in before
    }
    tree, blobs = session.files.tree or EMPTY, {EMPTY: EMPTY_BYTES}
    if folder is not None:
        found = _record_folder(store, folder, asked, detail)
        tree, blobs = found.tree, {**blobs, **found.blobs}
    detail |= _recorded_options(asked, session.seq)
    if further:
        detail["options"] = further
    if asked.get("in_place") and not detail.get("folder"):
        raise InvalidValue(
            "in_place",
            "there is no folder to work on",
            "name one, as in to('local', './repo', in_place=True)",
        )
    if asked.get("needs_heavy") and (name != LOCAL or not detail.get("heavy")):
        why = "there is no heavy folder to mount" if name == LOCAL else f"{name} mounts none"
        step = "leave it out; the folder has to have one, such as .venv or node_modules"
        raise InvalidValue("needs_heavy", why, step)
    image = str(asked.get("image") or asked.get("template") or "")
    placement = Placement(name, image=image, network=asked.get("network", "off"), detail=detail)
    known = chosen.check(wanted_of(store, session.id, tree, placement))
    known_detail = {**detail, **detail_of(known)}
    placement = msgspec.structs.replace(known, detail=known_detail)
    # A sandbox on another machine is made at once, so that an error shows now and not in the first
    # tool.
    if name != LOCAL:
        store.put_blobs(blobs)
        placement = make_sandbox(session, placement, tree)
    return PlacementChanged(placement, tree, fresh=folder is not None), blobs


def _options_before(session: Session, name: str, where: str | None) -> dict[str, Any]:
    """Return the options of the placement before, if the session stays on that backend with the
    files it has. New options come on top of them.
    """
    before, detail = session.files.placement, detail_of(session.files.placement)
    if where is not None or before is None or before.backend != name:
        return {}
    kept = {
        word: detail[word]
        for word in ("isolation", "limits", "env", "egress", "needs_heavy")
        if word in detail
    }
    return {
        **kept,
        "network": before.network,
        **({"image": before.image} if before.image else {}),
        **detail.get("options", {}),
    }


def _record_folder(
    store: Store, folder: Path, asked: Mapping[str, Any], detail: dict[str, Json]
) -> TreeSnapshot:
    """Return the snapshot of a folder, and add its facts to `detail`."""
    rules = rules_for(folder, ignore=asked.get("ignore", ()), store=store.folder)
    if "heavy" in asked:
        rules = msgspec.structs.replace(rules, heavy=tuple(asked["heavy"]))
        detail["heavy_names"] = list(rules.heavy)
    found = snapshot_folder(store, folder, rules)
    heavy = [shown_path(path) for path in heavy_in(folder, rules)]
    detail |= {
        "folder": str(folder),
        "base": found.tree,
        "heavy": heavy,
        "ignore": list(rules.ignore),
    }
    for word, paths in (("withheld", found.withheld), ("skipped", found.skipped)):
        if paths:
            detail[word] = [shown_path(path) for path in paths[:100]]
    detail |= {
        word: cast("Json", paths)
        for word, paths in secrets_in_heavy(str(folder), heavy).items()
        if paths
    }
    return found


def _existing_folder(where: str) -> Path:
    folder = Path(os.path.abspath(os.path.expanduser(where)))
    if not folder.is_dir():
        why = "is not a folder" if folder.exists() else "is not there"
        raise InvalidValue(
            "where", f"{str(folder)!r} {why}", "name the folder whose files the session is to have"
        )
    return folder


def _check_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Json]]:
    """Check the options; return those that every backend understands, and those of this one."""
    asked = {word: value for word, value in options.items() if word in _WORDS}
    if asked.get("network", "off") not in ("on", "off"):
        step = "use 'on' or 'off'; hosts for the http tool go into egress="
        raise InvalidValue("network", f"{asked['network']!r} is neither on nor off", step)
    for word in ("heavy", "ignore", "egress"):
        given = asked.get(word, ())
        if not _is_list_of_texts(given):
            raise InvalidValue(word, f"{given!r} is not a list of texts", f"pass {word}=[…]")
    for word in ("in_place", "clean", "needs_heavy"):
        if not isinstance(asked.get(word, False), bool):
            raise InvalidValue(word, f"{asked[word]!r} is neither True nor False", "say which")
    if asked.get("in_place") and asked.get("clean"):
        raise InvalidValue(
            "clean",
            "a folder that is worked on in place is not fresh",
            "leave in_place= or clean= out",
        )
    asked["limits"] = _checked_limits(asked.get("limits", Limits()))
    asked["env"] = _checked_env(asked.get("env", {}))
    further = {word: value for word, value in options.items() if word not in _WORDS}
    return asked, further


def _is_list_of_texts(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and all(
        isinstance(each, str) for each in cast("Sequence[Any]", given)
    )


def _checked_limits(given: Any) -> Limits:
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


def _checked_env(given: Any) -> Any:
    if isinstance(given, Mapping) and all(
        isinstance(each, str) for pair in cast("Mapping[Any, Any]", given).items() for each in pair
    ):
        return dict(cast("Mapping[str, str]", given))
    if _is_list_of_texts(given):
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


def _recorded_options(asked: Mapping[str, Any], seq: int) -> dict[str, Json]:
    """Return the options as they are recorded: only those that differ from the default."""
    options: dict[str, Json] = {}
    for word in ("isolation", "egress", "in_place", "needs_heavy"):
        if asked.get(word):
            options[word] = list(asked[word]) if word == "egress" else asked[word]
    if asked.get("clean"):
        options["clean"] = f"clean{seq}"
    if asked["env"]:
        options["env"] = asked["env"]
    limits = {
        name: value
        for name, value in msgspec.to_builtins(asked["limits"]).items()
        if value != getattr(Limits(), name)
    }
    if limits:
        options["limits"] = limits
    return options
