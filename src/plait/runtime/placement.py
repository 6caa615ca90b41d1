"""Reads a recorded `Placement`: the sandbox that it asks for, and the rules of its trees."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from plait.event.kinds import Placement
from plait.ids import Digest, LogId, digest
from plait.sandbox import Limits, Wanted
from plait.store import Store
from plait.workspace import HEAVY, Rules


def detail_of(placement: Placement | None) -> Mapping[str, Any]:
    found = placement.detail if placement is not None else None
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def wanted_of(store: Store, key: str, tree: Digest, placement: Placement) -> Wanted:
    detail = detail_of(placement)
    return Wanted(
        store=store,
        key=key,
        tree=tree,
        isolation=detail.get("isolation", ""),
        network="on" if placement.network == "on" else "off",
        limits=msgspec.convert(detail.get("limits", {}), Limits),
        env=environment_of(detail.get("env", {})),
        base=detail.get("base"),
        folder=detail.get("folder"),
        heavy=tuple(detail.get("heavy", ())),
        heavy_names=tuple(detail.get("heavy_names", HEAVY)),
        ignore=tuple(detail.get("ignore", ())),
        in_place=bool(detail.get("in_place")),
        clean=bool(detail.get("clean")),
        image=placement.image,
        options=detail.get("options", {}),
    )


def environment_of(given: Any) -> dict[str, str]:
    """Return the variables of a command. A list names variables of this process: their values are
    not recorded.
    """
    if isinstance(given, Mapping):
        return {str(name): str(value) for name, value in cast("Mapping[str, Any]", given).items()}
    return {name: os.environ[name] for name in cast("Sequence[str]", given) if name in os.environ}


def sandbox_key(log: LogId, placement: Placement) -> str:
    """Return the name of the sandbox of this session. A clean placement has a sandbox of its own;
    sessions that work in place share one for each folder.
    """
    detail = detail_of(placement)
    if detail.get("in_place"):
        folder = str(detail.get("folder")).encode("utf-8", "surrogateescape")
        return f"in-place-{digest(b'plait/folder/1', folder)[:16]}"
    clean = detail.get("clean")
    return f"{log}-{clean}" if clean else log


def rules_of(placement: Placement | None) -> Rules:
    """Return the rules by which paths are left out of this session's trees."""
    detail = detail_of(placement)
    return Rules(
        heavy=tuple(detail.get("heavy_names", HEAVY)), ignore=tuple(detail.get("ignore", ()))
    )
