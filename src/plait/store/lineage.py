"""Lineage: the spans of its ancestors that a fork is read through."""

from __future__ import annotations

import msgspec

from plait.ids import LogId


class LineageSpan(msgspec.Struct, frozen=True):
    """The events of one log, from first to last, that belong to a lineage."""

    log: LogId
    first: int
    last: int


Lineage = tuple[LineageSpan, ...]


def extend_lineage(inherited: Lineage, place: int, log: LogId) -> Lineage:
    """The lineage of a fork: its parent's up to the fork place, then itself, open-ended."""
    spans = tuple(
        span if span.last <= place else LineageSpan(span.log, span.first, place)
        for span in inherited
        if span.first <= place
    )
    return (*spans, LineageSpan(log, place + 1, 2**62))


def cut_lineage(lineage: Lineage, first: int, last: int) -> list[LineageSpan]:
    """The spans that cover first to last."""
    return [
        LineageSpan(span.log, max(span.first, first), min(span.last, last))
        for span in lineage
        if span.last >= first and span.first <= last
    ]
