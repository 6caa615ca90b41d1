"""The two servers that the adapters are tried against."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.providers.aimock import aimock
from tests.providers.wire import Wire

__all__ = ["aimock", "wire"]


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as server:
        yield server


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    """True if the answer comes in pieces."""
    return request.param


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every client loads the system's certificates, which is most of what a test would take; on
    loopback they are not needed.
    """
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a store on disk, for the sessions of this test."""
    folder = tmp_path / ".plait"
    monkeypatch.setenv("PLAIT_STORE", str(folder))
    return folder
