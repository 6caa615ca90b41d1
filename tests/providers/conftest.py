"""The two servers that the adapters are tried against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aimock import aimock
from wire import Wire

__all__ = ["aimock", "wire"]


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as server:
        yield server
