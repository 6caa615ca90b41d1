"""Lanes: which column of a picture a log has, and the picture in the margin of a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from plait.ids import LogId


class LaneSpan(NamedTuple):
    """The stretches beside which a log has a line."""

    log: LogId
    begin: int  # the first one after the one that it was forked from
    first: int  # its own first one
    end: int  # its own last one, or the one that merged it


def lanes_of(spans: Iterable[LaneSpan]) -> dict[LogId, int]:
    """Give each log a lane: the leftmost that no other log has in its span. The first log's is 0,
    and its alone.
    """
    lanes, taken = dict[LogId, int](), list[list[LaneSpan]]()
    root, *others = spans
    lanes[root.log] = 0
    for span in sorted(others, key=lambda span: (span.first, span.begin)):
        for lane, in_lane in enumerate(taken):
            if all(span.begin > each.end or each.begin > span.end for each in in_lane):
                in_lane.append(span)
                lanes[span.log] = lane + 1
                break
        else:
            taken.append([span])
            lanes[span.log] = len(taken)
    return lanes
