"""Shared by the tests of sandboxes: a sandbox with a few files, on a rung of the ladder."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from plait.sandbox import Limits, Ran, Wanted
from plait.sandbox.local import LocalBackend, LocalSandbox
from plait.sandbox.rungs import RUNGS, find
from plait.store import SqliteStore
from plait.testing import Seeded
from plait.workspace.folder_snapshot import snapshot_folder
from tests.support import filled_folder

ISOLATED = RUNGS[:3]
NAMESPACED = RUNGS[:2]

on_isolated = pytest.mark.parametrize("rung", ISOLATED)
on_namespaced = pytest.mark.parametrize("rung", NAMESPACED)
on_every = pytest.mark.parametrize("rung", RUNGS)


class Room(NamedTuple):
    box: LocalSandbox
    store: SqliteStore
    folder: Path  # where the files came from

    def sh(self, script: str, **more: Any) -> Ran:
        return self.box.exec(["sh", "-c", script], **more)

    def said(self, script: str, **more: Any) -> str:
        return self.sh(script, **more).output.view().strip()

    def python(self, script: str, **more: Any) -> str:
        return self.box.exec(["python3", "-S", "-c", script], **more).output.view().strip()


def needs(rung: str, folder: Path) -> None:
    found = find(rung, str(folder))
    if not found.offered:
        assert not os.environ.get("PLAIT_REQUIRE_RUNGS"), f"{rung} is required here: {found.why}"
        pytest.skip(f"{rung}: {found.why}")


@contextmanager
def room(
    path: Path, rung: str, files: Mapping[str, str] | None = None, **more: Any
) -> Generator[Room]:
    needs(rung, path)
    folder = filled_folder(path / "repo", files or {"a.txt": "hello\n"})
    store = SqliteStore(folder / ".plait", source=Seeded(0))
    tree = snapshot_folder(store, folder).tree
    box = LocalBackend().create(
        Wanted(store, more.pop("key", "one"), tree, isolation=rung, folder=str(folder), **more)
    )
    try:
        yield Room(box, store, folder)
    finally:
        box.close()
        store.close()


def processes(mark: str) -> list[int]:
    """Those of this machine that carry a mark in their command line."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                line = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            found += [int(name)] if mark.encode() in line else []
    return found


def groups() -> list[str]:
    """Control groups that this process made and did not remove."""
    return [str(path) for path in Path("/sys/fs/cgroup").rglob(f"plait-{os.getpid()}-*")]


SMALL = Limits(time_s=10, memory_mb=256, processes=64, output_mb=8, disk_mb=32)
