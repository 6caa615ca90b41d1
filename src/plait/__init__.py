"""Plait: a runtime for agent systems in which the session is the value and the only record.

This is the composition root: the one place where live time, chance and the default projections are bound.
"""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from plait.errors import PlaitError
from plait.event import Event
from plait.runtime.live import Live
from plait.session import SessionRows
from plait.store import Store, locate, open_at

__all__ = ["Event", "PlaitError", "Store", "open_store"]


def open_store(address: str | Path | None = None) -> Store:
    """Open a store, making it if need be: a folder, `sqlite:FOLDER`, `memory:` or `memory:NAME`.

    Without an address: PLAIT_STORE if set, else `.plait` in the nearest folder upward that has one, else here.
    """
    return open_at(locate(Path.cwd(), os.environ) if address is None else str(address), source=Live(), projections=(SessionRows(),))


def __getattr__(name: str) -> str:
    if name == "__version__":
        return metadata.version("plait")
    raise AttributeError(f"module 'plait' has no attribute {name!r}")
