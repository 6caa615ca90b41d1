"""A history with branches and merges, drawn in the left margin.

    ●      merged
    ├─╮
    │ ●    lenient 6
    │ ●    lenient 5
    ● │    strict 7
    ● │    strict 6
    ├─╯
    ●      4
    ●      3

A lane is a column that runs down to the dot it waits for. Between two dots no lane is empty and no
two wait for the same dot, so the picture is as narrow as it can be. The lines below a dot restore
that at once, with three kinds of bends:

    ├─┬─╮   a fork: one lane becomes several, one for each parent
    ├───╯   a join: two lanes that wait for the same dot become one
    ╭───╯   a move: the last lane takes a column that fell free

A bend begins at its left end and has a stretch of the line for itself; `┼` is a lane that passes
straight through it. So the lines downward from a dot lead to all its parents, and to nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8

_Glyphs = dict[int, str]
_LINES: _Glyphs = {
    0: " ",
    _UP | _DOWN: "│",
    _LEFT | _RIGHT: "─",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
    _UP | _DOWN | _RIGHT: "├",
    _LEFT | _DOWN: "╮",
    _LEFT | _DOWN | _RIGHT: "┬",
    _UP | _LEFT: "╯",
    _DOWN | _RIGHT: "╭",
}
_PLAIN: _Glyphs = {
    strokes: line.translate(str.maketrans("│─┼├╮┬╯╭", r"|-+|\\//"))
    for strokes, line in _LINES.items()
}

_Lanes = list[str | None]  # the id that each waits for; None: free


class Dot(NamedTuple):
    """One event of the history.

    Ids are unique; parents that are not among the dots are not drawn.
    """

    id: str
    parents: tuple[str, ...]
    mark: str = "●"  # one cell wide


class _Bend(NamedTuple):
    """A part of a line in which lanes change columns, from `above` to `below`."""

    above: tuple[int, ...]
    below: tuple[int, ...]

    @property
    def first(self) -> int:
        return min(self.above[0], self.below[0])

    @property
    def last(self) -> int:
        return max(self.above[-1], self.below[-1])

    def is_clear_of(self, others: Iterable[_Bend]) -> bool:
        return all(self.last < other.first or other.last < self.first for other in others)


def order(dots: Sequence[Dot]) -> list[Dot]:
    """Sort the dots: children before parents, the dots of a branch together, and the last parent's
    branch first, as git's --topo-order.
    """
    known = {dot.id: dot for dot in dots}
    parents = {
        dot.id: [known[id] for id in dict.fromkeys(dot.parents) if id in known] for dot in dots
    }
    waiting = dict.fromkeys(known, 0)  # the children that are still to come
    for of_one in parents.values():
        for parent in of_one:
            waiting[parent.id] += 1
    ready = [dot for dot in reversed(dots) if not waiting[dot.id]]
    ordered = list[Dot]()
    while ready:
        dot = ready.pop()
        ordered.append(dot)
        for parent in parents[dot.id]:
            waiting[parent.id] -= 1
            if not waiting[parent.id]:
                ready.append(parent)
    # Those of a loop are left. Hashes do not allow one; a history that has it nevertheless is
    # shown, not shortened.
    return ordered + [dot for dot in dots if waiting[dot.id] > 0]


def draw(dots: Sequence[Dot], *, plain: bool = False) -> Iterator[tuple[str, str | None]]:
    """Yield the margin of each line, without spaces at its end, and the id of its dot; None in the
    lines between. Children come before parents.

    `plain` draws in ASCII.
    """
    glyphs = _PLAIN if plain else _LINES
    ahead = {dot.id for dot in dots}
    lanes: _Lanes = []
    ended = False  # True if the line above is a dot in the last column from which no lane goes on
    for dot in dots:
        ahead.discard(dot.id)
        if dot.id not in lanes:
            if ended:  # a dot right below would look like its parent
                yield _line(lanes, [], glyphs), None
            lanes.append(dot.id)
        column = lanes.index(dot.id)
        row = [glyphs[_UP | _DOWN]] * len(lanes)
        row[column] = _mark(dot, plain)
        yield " ".join(row), dot.id
        parents = [id for id in dict.fromkeys(dot.parents) if id in ahead]
        ended = not parents and column == len(lanes) - 1
        for line in _lines_below(lanes, column, parents, glyphs):
            yield line, None


def _lines_below(lanes: _Lanes, column: int, parents: list[str], glyphs: _Glyphs) -> Iterator[str]:
    """Yield the lines below a dot, while its lane becomes the lanes of its parents."""
    # A parent that has a lane already will leave its new one soon; the dot's own is for one that
    # stays.
    parents = sorted(parents, key=lambda id: id in lanes)
    lanes[column] = parents[0] if parents else None
    if len(parents) > 1:
        new = range(len(lanes), len(lanes) + len(parents) - 1)
        lanes += [None] * len(new)
        yield _line(lanes, [_Bend((column,), (column, *new))], glyphs)
        lanes[new.start :] = parents[1:]
    while bends := _next_bends(lanes):
        yield _line(lanes, bends, glyphs)
        _apply(lanes, bends)


def _next_bends(lanes: _Lanes) -> list[_Bend]:
    """Return the bends of the next line: as many joins as find room in it, then moves.

    None are left when the lanes are dense and distinct.
    """
    while lanes and lanes[-1] is None:
        lanes.pop()
    columns: dict[str, list[int]] = {}
    for column, id in enumerate(lanes):
        if id is not None:
            columns.setdefault(id, []).append(column)
    bends = list[_Bend]()
    for same in columns.values():
        if len(same) > 1 and (join := _Bend(tuple(same), (same[0],))).is_clear_of(bends):
            bends.append(join)
    alone = [same[0] for same in columns.values() if len(same) == 1]
    for free in (column for column, id in enumerate(lanes) if id is None):
        move = _Bend((max(alone, default=0),), (free,))
        if move.above > move.below and move.is_clear_of(bends):
            bends.append(move)
    return bends


def _apply(lanes: _Lanes, bends: Iterable[_Bend]) -> None:
    for bend in bends:
        id = lanes[bend.above[0]]
        for column in bend.above:
            lanes[column] = None
        for column in bend.below:
            lanes[column] = id


def _line(lanes: _Lanes, bends: Iterable[_Bend], glyphs: _Glyphs) -> str:
    strokes = [0] * (2 * len(lanes))
    for column, id in enumerate(lanes):
        if id is not None:
            strokes[2 * column] = _UP | _DOWN
    for bend in bends:
        for column in {*bend.above, *bend.below}:
            strokes[2 * column] = _UP * (column in bend.above) | _DOWN * (column in bend.below)
        for cell in range(2 * bend.first, 2 * bend.last):
            strokes[cell] |= _RIGHT
            strokes[cell + 1] |= _LEFT
    return "".join(glyphs[stroke] for stroke in strokes).rstrip()


def _mark(dot: Dot, plain: bool) -> str:
    return dot.mark if not plain or dot.mark.isascii() else "*"
