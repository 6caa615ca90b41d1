"""Shared by the tests of screens: a sandbox with files in it, and what has to be
on the machine.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from plait.sandbox import Network, Sandbox, Wanted
from plait.sandbox.local import LocalBackend
from plait.store.sqlite import SqliteStore
from plait.testing import Seeded
from plait.tools.browser import CHROMIUM
from plait.workspace.folder_snapshot import snapshot_folder
from tests.support import filled_folder

PNG = b"\x89PNG\r\n\x1a\n"
GONE_S = 10.0
ISOLATION = os.environ.get("PLAIT_TEST_RUNG", "")  # a rung by name; "": the best there is


@contextmanager
def placed(
    folder: Path, files: Mapping[str, str | bytes], network: Network = "off"
) -> Generator[Sandbox]:
    """A sandbox of the best rung with these files."""
    source = filled_folder(folder / "source", files)
    store = SqliteStore(folder / "store", source=Seeded())
    snapshot = snapshot_folder(store, source)
    sandbox = LocalBackend().create(
        Wanted(store, "screen", snapshot.tree, isolation=ISOLATION, network=network)
    )
    try:
        yield sandbox
    finally:
        sandbox.close()
        store.close()


def require(there: object, step: str) -> None:
    """Skip without it, or fail where guests are required."""
    if not there:
        assert not os.environ.get("PLAIT_REQUIRE_GUESTS"), f"required here: {step}"
        pytest.skip(step)


def require_browser() -> None:
    require(find_spec("playwright") is not None, "pip install 'plait[browser]'")
    require(
        any(map(shutil.which, (os.environ.get("PLAIT_CHROMIUM", ""), *CHROMIUM))),
        "apt-get install chromium",
    )


def require_desktop(*programs: str) -> None:
    for program in ("Xvfb", "xdotool", "import", "xmodmap", *programs):
        require(
            shutil.which(program) is not None,
            "apt-get install xvfb xdotool imagemagick x11-xserver-utils mousepad",
        )


def gone(process: int) -> None:
    """Wait until there is no such process; one that nobody has waited for yet is
    gone all the same.
    """
    until = time.monotonic() + GONE_S
    while (state := _state(process)) not in ("", "Z") and time.monotonic() < until:
        time.sleep(0.01)
    assert state in ("", "Z"), f"process {process} is still there"


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
