"""Every test of the runtime has a store of its own, on disk or in memory, as it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import secrets
from plait.runtime.sandboxes import close_sandboxes
from plait.store import canonical_address, find_open


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store for the sessions of this test: on disk, or where they are redirected to."""
    address = canonical_address(str(tmp_path / ".plait"))
    monkeypatch.setenv("PLAIT_STORE", address)
    monkeypatch.delenv("PLAIT_MODEL", raising=False)
    yield address
    if (opened := find_open(address)) is not None:
        opened.close()
    close_sandboxes()  # a sandbox that is kept for the next call keeps handles
    secrets.forget()
