"""The checks that the doctor makes of every store, whatever keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.cli.render import count_text
from plait.cli.report import Check
from plait.errors import PlaitError


def count_check(store: Mapping[str, Any]) -> Check:
    counts = ", ".join(count_text(store[f"{what}s"], what) for what in ("log", "event", "blob"))
    return Check("store", "ok", f"{store['address']}: {counts}, {size_text(store['bytes'])}")


def failed_check(name: str, error: PlaitError, steps: Mapping[Any, str]) -> Check:
    """Make a failed check of an error. An error's text ends with the next step, in a sentence of
    its own; errors that send people to the doctor have another one in `steps`.
    """
    detail, _, step = str(error).rpartition(". ")
    if not detail:
        return Check(name, "fail", step, steps.get(type(error)))
    return Check(name, "fail", detail, steps.get(type(error), step))


def size_text(size: int) -> str:
    """Return a size in decimal units, as disks are sold."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
