"""Where tools run.

Backends are found by name: ours by the place of their module, which is imported only then, anybody
else's by an entry point of the group `plait.sandboxes` that names a class or a function which
returns a `Backend`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from plait.errors import UnknownBackend
from plait.sandbox.base import (
    VIEW_MAX,
    Backend,
    Capability,
    Held,
    Limits,
    Network,
    OnOutput,
    Output,
    Probe,
    Ran,
    Sandbox,
    Wanted,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "VIEW_MAX",
    "Backend",
    "Capability",
    "Held",
    "Limits",
    "Network",
    "OnOutput",
    "Output",
    "Probe",
    "Ran",
    "Sandbox",
    "Wanted",
    "backend",
    "backends",
]

GROUP = "plait.sandboxes"

_OURS = {
    "local": ("plait.sandbox.local", "LocalBackend"),
    "e2b": ("plait.sandbox.e2b", "E2B"),
    "opensandbox": ("plait.sandbox.opensandbox", "OpenSandbox"),
    "cube": ("plait.sandbox.cube", "Cube"),
}
_lock = threading.Lock()  # a backend is made once, also if two threads ask for it


def backends() -> list[str]:
    """The names of all that can be asked for, ours first."""
    return list(dict.fromkeys([*_OURS, *sorted(point.name for point in _points())]))


def _points() -> Iterable[EntryPoint]:
    # it reads the installation, and takes as long to load as half of Plait
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def backend(name: str) -> Backend:
    """The backend of this name, made once per process; raises UnknownBackend."""
    with _lock:
        return _make(name)


@functools.cache
def _make(name: str) -> Backend:
    if name in _OURS:
        module, factory = _OURS[name]
        return cast("Backend", getattr(import_module(module), factory)())
    for point in _points():
        if point.name == name:
            return cast("Backend", point.load()())
    raise UnknownBackend(name, tuple(backends()))
