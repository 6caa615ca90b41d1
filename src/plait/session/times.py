"""Moments as people write them: `10m` back from the last event, a date, a datetime."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from plait.errors import InvalidValue
from plait.ids import Micros

When = str | datetime | timedelta

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|sec|m|min|h|d|w)\Z")
_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 10**6,
    "sec": 10**6,
    "m": 60 * 10**6,
    "min": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
}
_UNITS["w"] = 7 * _UNITS["d"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_when(when: When, last: Micros, where: str) -> Micros:
    """The moment meant, in microseconds.

    A span counts back from `last`; a time without a zone is UTC.
    """
    if isinstance(when, timedelta):
        return last - when // timedelta(microseconds=1)
    if isinstance(when, datetime):
        return _micros(when)
    if isinstance(when, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        if span := _SPAN.match(when.strip()):
            return last - int(float(span[1]) * _UNITS[span[2]])
        try:
            return _micros(datetime.fromisoformat(when.strip()))
        except (ValueError, OverflowError):
            pass
    raise InvalidValue(
        where,
        f"{when!r} is not a moment",
        "write a span such as 10m, 2h or 3d, or a time such as 2026-11-15T20:30",
    )


def _micros(moment: datetime) -> Micros:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, (aware - _EPOCH) // timedelta(microseconds=1))
