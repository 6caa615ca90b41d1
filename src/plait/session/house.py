"""The house log: acts that belong to no session."""

from __future__ import annotations

from typing import Any


def append_to_house(store_address: str, drafts: Any, *, check: Any = None) -> Any:
    raise NotImplementedError
