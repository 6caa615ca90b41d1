"""Steps of a family of sessions as they come, each with its lanes in the margin.

`plait log --steps` draws a family when it is known. Here steps are drawn in the order in which they
were made, while it grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from plait.ids import LogId
from plait.outline.family import family_records
from plait.outline.outlines import Outlines
from plait.outline.records import STATES, LogRecord
from plait.outline.shapes import StepShape, StepState
from plait.outline.steps import step_shapes
from plait.store import Store

LANES = 3  # columns of the margin: the session, and two branches at the same time
_UNSETTLED = ("open", "waiting")


class LiveRow(NamedTuple):
    """A line of the picture: a step, or a bend on which a lane begins or ends."""

    margin: str  # a cell for each lane, and one between two; `•` stands for the mark of the step
    color: int
    lane_colors: tuple[int, ...]  # of each lane
    name: str = ""  # of the step's session
    step: StepShape | None = None  # None: a bend


class LiveFamily:
    """The steps of a session and its branches that were not shown yet."""

    def __init__(self, store: Store, root: LogId) -> None:
        self.outlines, self.root = Outlines(store), root
        self._number = -1
        self._shown: dict[LogId, int] = {}  # steps shown so far
        self._open: list[tuple[LogId, int]] = []  # steps shown before they were settled
        self._lanes, self._colors = {root: 0}, {root: 0}
        self._active, self._lane_colors = {0}, [0] * LANES

    def new_rows(self, *, also_open: bool = False) -> Iterator[LiveRow]:
        """Yield the rows of steps that are settled since; `also_open`: also those that are not,
        which come again when they are.
        """
        number = self.outlines.store.number
        if number == self._number and not also_open:
            return
        self._number = number
        ordered = list[tuple[int, StepShape]]()
        for record in family_records(self.outlines, self.root).values():
            last = 0  # the steps of one log keep their order
            for step in step_shapes(self.outlines, record, self._new_indexes(record, also_open)):
                last = max(last, step.time + (step.took_us or 0))
                ordered.append((last, step))
        for _, step in sorted(ordered, key=itemgetter(0)):
            yield from self._rows_of(step)

    def _new_indexes(self, record: LogRecord, also_open: bool) -> list[int]:
        first = self._shown.get(record.log, 0)
        again = [
            index
            for log, index in self._open
            if log == record.log and _state_of(record, index) not in _UNSETTLED
        ]
        last = first
        while last < record.step_count and (also_open or _state_of(record, last) not in _UNSETTLED):
            last += 1
        self._shown[record.log] = last
        self._open = [each for each in self._open if each not in [(record.log, i) for i in again]]
        self._open += [
            (record.log, index)
            for index in range(first, last)
            if _state_of(record, index) in _UNSETTLED
        ]
        return sorted([*again, *range(first, last)], key=lambda index: record.lasts[index])

    def _rows_of(self, step: StepShape) -> Iterator[LiveRow]:
        if step.log not in self._lanes:
            free = [lane for lane in range(1, LANES) if lane not in self._active]
            self._lanes[step.log] = free[0] if free else LANES - 1
            self._colors[step.log] = len(self._colors)
        lane, color = self._lanes[step.log], self._colors[step.log]
        if step.type == "fork" and step.links:
            self._lane_colors[lane] = color
            bend = self._bend(self._lanes.get(step.links[0].log, 0), lane, "╮")
            yield LiveRow(bend, color, tuple(self._lane_colors))
            self._active.add(lane)
        if step.type == "merge":
            for link in step.links:
                other = self._lanes.get(link.log, lane)
                bend = self._bend(lane, other, "╯")
                yield LiveRow(bend, self._lane_colors[other], tuple(self._lane_colors))
                self._active.discard(other)
            # a branch that is not merged ends with its last step
            self._active &= {0}
        name = self.outlines.name_of(step.log)
        yield LiveRow(self._margin(lane), color, tuple(self._lane_colors), name, step)

    def _margin(self, lane: int) -> str:
        cells = [self._stroke(each) for each in range(LANES)]
        cells[lane] = "•"
        return " ".join(cells)

    def _bend(self, trunk: int, lane: int, end: str) -> str:
        cells = [self._stroke(each) for each in range(LANES)]
        for between in range(trunk + 1, lane):
            cells[between] = "┼" if between in self._active else "─"
        cells[trunk], cells[lane] = "├", end
        return "".join(
            [
                cell + (" " if not trunk <= at < lane else "─") if at < LANES - 1 else cell
                for at, cell in enumerate(cells)
            ]
        )

    def _stroke(self, lane: int) -> str:
        return "│" if lane in self._active else " "


def _state_of(record: LogRecord, index: int) -> StepState:
    return STATES[record.states[index]]
