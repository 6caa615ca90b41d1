"""Plait: a runtime for agent systems in which the session is the value and the only record.

This is the composition root: the one place where live time, chance and the default projections are bound.
"""

from __future__ import annotations

import os as _os
from collections.abc import Sequence as _Sequence
from pathlib import Path as _Path
from typing import Literal as _Literal

from plait.agent import Agent
from plait.errors import PlaitError
from plait.event import Event
from plait.event.kinds import Budget
from plait.model.base import ToolCall
from plait.model.scripted import ScriptedModel
from plait.runtime.host import LocalHost as _LocalHost
from plait.runtime.live import Live as _Live
from plait.runtime.prompt import View
from plait.runtime.write import DirectWriter as _DirectWriter
from plait.selector import Choice, Selector
from plait.session import GraphRows as _GraphRows
from plait.session import Session, file, image
from plait.session import SessionRows as _SessionRows
from plait.session.ports import bind_host as _bind_host
from plait.session.ports import bind_writer as _bind_writer
from plait.store import Projection as _Projection
from plait.store import Store
from plait.store import locate as _locate
from plait.store import open_at as _open_at
from plait.store import opened as _opened
from plait.tool import tool
from plait.workflow import Parallel, Sequential, Workflow

__all__ = [
    "Agent",
    "Budget",
    "Choice",
    "Event",
    "Parallel",
    "PlaitError",
    "ScriptedModel",
    "Selector",
    "Sequential",
    "Session",
    "Store",
    "ToolCall",
    "View",
    "Workflow",
    "file",
    "image",
    "open_store",
    "tool",
]


def open_store(
    address: str | _Path | None = None,
    *,
    projections: _Sequence[_Projection] = (),
    durability: _Literal["full", "async"] | None = None,
) -> Store:
    """Open a store, making it if need be: a folder, `sqlite:FOLDER`, `memory:` or `memory:NAME`.

    Without an address: PLAIT_STORE if set, else `.plait` in the nearest folder upward that has one, else here.

    A process has one store per address: asking again gives the same one, and `close()` closes it for everybody.

    `durability="async"` is for sessions opened from now on that do not say otherwise: their commits are synced at boundaries
    (docs/durability.md), not one by one.
    """
    place = _default_address() if address is None else str(address) if isinstance(address, _Path) else address
    return _open_at(place, source=_Live(), projections=(*_PROJECTIONS, *projections), durability=durability)


def _default_address() -> str:
    return _locate(_Path.cwd(), _os.environ)


_PROJECTIONS = (_SessionRows(), _GraphRows())
_bind_writer(_DirectWriter(_Live(), lambda address: _opened(address) or open_store(address), _default_address))
_bind_host(_LocalHost())


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib import metadata  # reads the installation: not at every import

        return metadata.version("plait")
    raise AttributeError(f"module 'plait' has no attribute {name!r}")
