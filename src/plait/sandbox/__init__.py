"""Sandboxes, in which tools run, and the backends that make them.

Backends are found by name. Ours are in the table below, and their modules are imported only when
asked for; others come by an entry point of the group `plait.sandboxes` that names a class or a
function which returns a `Backend`.
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
    Limits,
    Network,
    OnOutput,
    Output,
    Probe,
    Ran,
    Sandbox,
    SandboxInfo,
    Wanted,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "VIEW_MAX",
    "Backend",
    "Capability",
    "SandboxInfo",
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
    """Return the names of all backends, ours first."""
    return list(dict.fromkeys([*_OURS, *sorted(point.name for point in _points())]))


def _points() -> Iterable[EntryPoint]:
    # imported late: it reads the installation, and takes as long to load as half of Plait
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def backend(name: str) -> Backend:
    """Return the backend of this name, made once per process; raises UnknownBackend."""
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
