"""Lanes: which column of a picture a log has, and the picture in the margin of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from plait.ids import LogId
from plait.outline.shapes import FamilyShape


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


# ── in a margin ──────────────────────────────────────────────────────────────────────────────

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = {
    0: " ",
    _UP: "╵",
    _DOWN: "╷",
    _LEFT: "╴",
    _RIGHT: "╶",
    _UP | _DOWN: "│",
    _LEFT | _RIGHT: "─",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
    _UP | _DOWN | _RIGHT: "├",
    _UP | _DOWN | _LEFT: "┤",
    _LEFT | _DOWN: "╮",
    _LEFT | _UP: "╯",
    _RIGHT | _DOWN: "╭",
    _RIGHT | _UP: "╰",
    _LEFT | _RIGHT | _DOWN: "┬",
    _LEFT | _RIGHT | _UP: "┴",
}
_PLAIN = str.maketrans("│─┼├┤╮╯╭╰┬┴╵╷╴╶", "|-+||\\//\\++||--")


class MarginLine(NamedTuple):
    """A line of the picture: that of a step, or one on which lanes fork or meet."""

    margin: str
    stretch: int
    step: int | None  # index among the steps of its log; None: there is none on this line


class _LaneBend(NamedTuple):
    """A line between two rows on which lanes fork from one, or meet in one."""

    trunk: int
    others: tuple[int, ...]
    is_fork: bool


def margins(family: FamilyShape, *, plain: bool = False) -> Iterator[MarginLine]:
    """Draw the lanes of a family from top to bottom, a line for each step, and one more where
    branches begin or are merged. `{}` stands where the mark of the step belongs.

    `plain` draws in ASCII.
    """
    drawing = _Margin(family)
    for at, stretch in enumerate(family.stretches):
        for line in drawing.bend_lines(at):
            yield MarginLine(line.translate(_PLAIN) if plain else line, at, None)
        row = drawing.row(at)
        for step in range(stretch.first_step, stretch.first_step + stretch.step_count):
            yield MarginLine(row.translate(_PLAIN) if plain else row, at, step)


class LaneRow(NamedTuple):
    """A row of a picture: the steps of a stretch, or a bend above them."""

    stretch: int
    lanes: dict[int, int]  # branch by lane, of the lines that pass beside it
    # of a bend: the branches by lane that fork from the trunk, or meet in it. {}: it is no bend
    bend: dict[int, int] = {}
    trunk: int = 0
    is_fork: bool = False


def lane_rows(family: FamilyShape) -> Iterator[LaneRow]:
    """Yield the rows of a picture from top to bottom: each stretch, after the bends above it."""
    drawing = _Margin(family)
    for at in range(len(family.stretches)):
        yield from drawing.bend_rows(at)
        yield LaneRow(at, drawing.branches_beside(at))


class _Margin:
    """The lanes of a family, beside each of its stretches."""

    def __init__(self, family: FamilyShape) -> None:
        self._stretches, self._lane_count = family.stretches, family.lane_count
        self._lane = {stretch.branch: stretch.lane for stretch in family.stretches}
        self._first, self._last = dict[int, int](), dict[int, int]()
        for at, stretch in enumerate(family.stretches):
            self._first.setdefault(stretch.branch, at)
            self._last[stretch.branch] = at
        self._begin = {
            branch: self._stretches[first].parents[0] + 1 if self._stretches[first].parents else 0
            for branch, first in self._first.items()
        }
        self._end = {**self._last}  # the merge that took it in, if that is later
        for at in range(len(family.stretches)):
            for branch in self._merged_in(at):
                self._end[branch] = max(self._end[branch], at)

    def _merged_in(self, at: int) -> list[int]:
        """Return the branches whose lines lead into a stretch by a merge."""
        stretch = self._stretches[at]
        sources = [self._stretches[parent].branch for parent in stretch.parents[1:]]
        return [branch for branch in dict.fromkeys(sources) if branch != stretch.branch]

    def _lanes_beside(self, at: int) -> set[int]:
        """Return the lanes that have a line beside the steps of a stretch. A branch that a merge
        took in, and that has no step after it, has none beside the merge.
        """
        return {*self.branches_beside(at)}

    def branches_beside(self, at: int) -> dict[int, int]:
        """Return the same lanes, with the branch that has each."""
        return {
            lane: branch
            for branch, lane in self._lane.items()
            if self._begin[branch] <= at and (at < self._end[branch] or at <= self._last[branch])
        }

    def bend_rows(self, at: int) -> Iterator[LaneRow]:
        """Yield the bends above a stretch, each with the lines that pass it straight."""
        beside, bends = self.branches_beside(at), self._bends(at)
        merged = {self._lane[branch]: branch for branch in self._merged_in(at)}
        begun = {lane for bend in bends if bend.is_fork for lane in bend.others}
        passing = {lane: branch for lane, branch in beside.items() if lane not in begun} | merged
        for bend in bends:
            if bend.is_fork:
                others = {lane: self._begun_in(lane, at) for lane in bend.others}
                yield LaneRow(at, dict(passing), others, bend.trunk, True)
                passing |= others
            else:
                straight = {lane: each for lane, each in passing.items() if lane in beside}
                yield LaneRow(at, straight, merged, bend.trunk, False)

    def _begun_in(self, lane: int, at: int) -> int:
        """Return the branch whose line begins in a lane above a stretch."""
        return next(
            branch
            for branch, begin in self._begin.items()
            if begin == at and self._lane[branch] == lane
        )

    def row(self, at: int) -> str:
        """Return the margin of the steps of a stretch."""
        strokes = self._strokes(self._lanes_beside(at))
        cells = [_LINES[stroke] for stroke in strokes]
        cells[2 * self._stretches[at].lane] = "{}"
        return "".join(cells).rstrip()

    def bend_lines(self, at: int) -> Iterator[str]:
        """Yield the lines above a stretch on which branches begin, and those it merges end."""
        bends, beside = self._bends(at), self._lanes_beside(at)
        begun = {lane for bend in bends if bend.is_fork for lane in bend.others}
        ended = {lane for bend in bends if not bend.is_fork for lane in bend.others}
        lanes = (beside - begun) | ended
        for bend in bends:
            gone = set[int]() if bend.is_fork else set(bend.others) - beside
            yield self._bend_line(bend, lanes, gone)
            lanes = lanes | set(bend.others) if bend.is_fork else lanes - gone

    def _bends(self, at: int) -> list[_LaneBend]:
        lanes, forks = self._lane, dict[int, list[int]]()
        for branch, begin in self._begin.items():
            parents = self._stretches[self._first[branch]].parents
            if begin == at and parents:
                trunk = lanes[self._stretches[parents[0]].branch]
                forks.setdefault(trunk, []).append(lanes[branch])
        bends = [_LaneBend(trunk, tuple(others), True) for trunk, others in forks.items()]
        merged = tuple([lanes[branch] for branch in self._merged_in(at)])
        own = self._stretches[at].lane
        return [*bends, _LaneBend(own, merged, False)] if merged else bends

    def _bend_line(self, bend: _LaneBend, lanes: set[int], gone: set[int]) -> str:
        return _bend_text(bend, lanes, gone, self._lane_count)

    def _strokes(self, lanes: set[int]) -> list[int]:
        return _strokes_of(lanes, self._lane_count)


def _bend_text(bend: _LaneBend, lanes: set[int], gone: set[int], lane_count: int) -> str:
    """Return the margin of a bend. Lanes that it crosses pass straight through it."""
    strokes = _strokes_of(lanes, lane_count)
    # a fork may be all that follows a step of its log
    ends_here = bend.is_fork and bend.trunk not in lanes
    strokes[2 * bend.trunk] = _UP if ends_here else _UP | _DOWN
    for lane in bend.others:
        strokes[2 * lane] = _DOWN if bend.is_fork else _UP if lane in gone else _UP | _DOWN
    ends = [2 * lane for lane in (bend.trunk, *bend.others)]
    for cell in range(min(ends), max(ends)):
        strokes[cell] |= _RIGHT
        strokes[cell + 1] |= _LEFT
    return "".join([_LINES[stroke] for stroke in strokes]).rstrip()


def _strokes_of(lanes: set[int], lane_count: int) -> list[int]:
    strokes = [0] * (2 * lane_count - 1)
    for lane in lanes:
        strokes[2 * lane] = _UP | _DOWN
    return strokes


# ── in a margin that grows ───────────────────────────────────────────────────────────────────

LANES_MAX = 8  # of a margin that grows; the logs beyond share the last one


class GrowingMargin:
    """The lanes of logs that begin and end while they are looked at.

    A log has the leftmost lane that no other has, from its first step until it is merged.
    """

    def __init__(self, *, plain: bool = False) -> None:
        self._plain = plain
        self._lanes: dict[LogId, int] = {}
        self._colors: dict[LogId, int] = {}  # by the order in which logs were seen

    def __contains__(self, log: LogId) -> bool:
        return log in self._lanes

    def begin(self, log: LogId) -> None:
        """Give a log its lane."""
        taken = set(self._lanes.values())
        free = next(lane for lane in range(len(taken) + 1) if lane not in taken)
        self._lanes[log] = min(free, LANES_MAX - 1)
        self._colors.setdefault(log, len(self._colors))

    def color(self, log: LogId) -> int:
        return self._colors.get(log, 0)

    def row(self, log: LogId, mark: str) -> str:
        """Return the margin of a step, with its mark."""
        cells = [_LINES[stroke] for stroke in self._strokes()]
        cells[2 * self._lanes[log]] = mark
        return self._text("".join(cells))

    def fork(self, log: LogId, parent: LogId) -> str:
        """Begin a log that was forked from another one, and return the line of the bend.

        "": the parent has no lane.
        """
        lanes = set(self._lanes.values())
        self.begin(log)
        trunk, own = self._lanes.get(parent), self._lanes[log]
        if trunk is None or trunk == own:
            return ""
        bend = _LaneBend(trunk, (own,), True)
        return self._text(_bend_text(bend, lanes - {own}, set(), self._lane_count))

    def merge(self, log: LogId, merged: Iterable[LogId]) -> str:
        """End the logs that a log has merged, and return the line of the bend; "" if none of them
        has a lane.
        """
        count, before = self._lane_count, set(self._lanes.values())
        own = self._lanes[log]
        ended = [self._lanes.pop(each) for each in merged if each in self._lanes and each != log]
        others = tuple(lane for lane in dict.fromkeys(ended) if lane != own)
        if not others:
            return ""
        gone = set(others) - set(self._lanes.values())
        return self._text(_bend_text(_LaneBend(own, others, False), before, gone, count))

    @property
    def _lane_count(self) -> int:
        return max(self._lanes.values(), default=0) + 1

    def _strokes(self) -> list[int]:
        return _strokes_of(set(self._lanes.values()), self._lane_count)

    def _text(self, margin: str) -> str:
        return (margin.translate(_PLAIN) if self._plain else margin).rstrip()
