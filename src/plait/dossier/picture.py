"""The session graph: lanes as the page and the terminal have them, a small drawing in each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from plait.outline.lanes import LaneRow, lane_rows
from plait.outline.shapes import FamilyShape

WIDTH, LEFT, ROW, BEND = 14, 9, 26, 14  # between lanes; of the first one; heights of rows
COLORS = 7  # of branches; the next one begins again, dashed


class PictureRow(NamedTuple):
    """A row: a bend, or a step or all steps of a stretch."""

    drawing: str  # SVG
    stretch: int
    step: int | None  # among the steps of its log. None: a bend, or a whole stretch
    is_bend: bool


def color_class(color: int) -> str:
    """Return the class of a branch's colour. The root's is 0."""
    return "l0" if not color else f"l{(color - 1) % COLORS + 1}{' dash' if color > COLORS else ''}"


def picture_rows(family: FamilyShape, *, by_step: bool) -> Iterator[PictureRow]:
    """Yield the rows of the picture, one for each step, or one for each stretch."""
    rows = list(_rows(family, by_step=by_step))
    width = LEFT * 2 + WIDTH * (family.lane_count - 1)
    for at, (row, step) in enumerate(rows):
        above = rows[at - 1][0] if at else None
        below = rows[at + 1][0] if at + 1 < len(rows) else None
        height = BEND if row.bend else ROW
        lines = _bend_lines(family, row) if row.bend else _row_lines(family, row, above, below)
        drawing = (
            f'<svg width="{width}" height="{height}" aria-hidden="true" focusable="false">'
            f"{''.join(lines)}</svg>"
        )
        yield PictureRow(drawing, row.stretch, step, bool(row.bend))


def _rows(family: FamilyShape, *, by_step: bool) -> Iterator[tuple[LaneRow, int | None]]:
    for row in lane_rows(family):
        stretch = family.stretches[row.stretch]
        if row.bend or not by_step:
            yield row, None
        else:
            for step in range(stretch.first_step, stretch.first_step + stretch.step_count):
                yield row, step


def _x(lane: int) -> int:
    return LEFT + WIDTH * lane


def _path(family: FamilyShape, branch: int, line: str) -> str:
    return f'<path class="{color_class(family.branches[branch].color)}" d="{line}"/>'


def _row_lines(
    family: FamilyShape, row: LaneRow, above: LaneRow | None, below: LaneRow | None
) -> Sequence[str]:
    """Return the lines beside a step, and its dot. A line ends at the dot of its last step."""
    stretch = family.stretches[row.stretch]
    found = list[str]()
    for lane, branch in row.lanes.items():
        is_own = lane == stretch.lane
        first = 0 if not is_own or (above and _touches(above, lane, branch)) else ROW // 2
        last = ROW if not is_own or (below and _touches(below, lane, branch)) else ROW // 2
        if first < last:
            found.append(_path(family, branch, f"M{_x(lane)} {first}V{last}"))
    color = color_class(family.branches[stretch.branch].color)
    found.append(f'<circle class="{color}" cx="{_x(stretch.lane)}" cy="{ROW // 2}" r="4"/>')
    return found


def _touches(row: LaneRow, lane: int, branch: int) -> bool:
    """True if a line goes on into a neighbouring row."""
    return row.lanes.get(lane) == branch or (bool(row.bend) and lane in (row.trunk, *row.bend))


def _bend_lines(family: FamilyShape, row: LaneRow) -> Sequence[str]:
    """Return the lines that pass a bend, and those that fork from its trunk, or meet in it."""
    found = [_path(family, branch, f"M{_x(lane)} 0V{BEND}") for lane, branch in row.lanes.items()]
    for lane, branch in row.bend.items():
        start, end = (row.trunk, lane) if row.is_fork else (lane, row.trunk)
        middle = BEND // 2
        curve = f"M{_x(start)} 0C{_x(start)} {middle} {_x(end)} {middle} {_x(end)} {BEND}"
        found.append(_path(family, branch, curve))
    return found
