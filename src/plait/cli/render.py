"""The look of answers: lines of styled cells, the same on a terminal and in a pipe.

On a terminal a line is cut to its width and secondary cells are dim; in a pipe nothing is cut or
coloured, times are printed in full, and the heads of columns and hints are left out, so that a line
is an item. Every cell is cleaned when it is printed, so that no command can forget it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from plait.cli.terminal import (
    age,
    cut_text,
    has_colors,
    screen_width,
    styled,
    text_stream,
    when,
    wrap_text,
)
from plait.event import Json
from plait.ids import LogId, Micros
from plait.runtime.live import Live
from plait.session.safe_text import clean

ACCENT, DIM, STRONG, BAD = "cyan", "dim", "bold", "red"

GAP = "  "
COLUMN_MAX = 28  # cells of a column on a terminal, except the flexible one
FLEX_MIN = 24  # cells of the flexible one, unless it says otherwise
# cells to which the flexible one is padded in a pipe: one long text must not push the columns after
# it far to the right in every line
PAD_MAX = 60
BATCH = 500  # rows that are measured together: a long list begins to show at once


class Cell(NamedTuple):
    text: str
    style: str = ""


class Column(NamedTuple):
    head: str = ""
    right: bool = False  # figures
    flex: bool = False  # takes the room that is left, and is cut to it
    least: int = FLEX_MIN  # cells for a flexible one; below, columns are left out
    whole: bool = False  # never cut
    aside: bool = False  # left out where there is no room, the last one first


class Out:
    """Prints the output for people, to stdout or stderr."""

    def __init__(self, stderr: bool = False) -> None:
        self._stream = text_stream(stderr)
        self._has_colors = has_colors(self._stream)
        self.tty = self._stream.isatty()
        self.width = screen_width(self._stream)

    def line(self, *cells: Cell | str) -> None:
        known = [Cell(clean(cell.text), cell.style) for cell in map(_cell, cells)]
        while known and not known[-1].text.strip():
            known.pop()
        if known:
            known[-1] = Cell(known[-1].text.rstrip(), known[-1].style)
        told = [styled(*cell) if self._has_colors else cell.text for cell in known]
        print("".join(told), file=self._stream)

    @property
    def now(self) -> Micros:
        """The time. A run may go on for long, so it is not that of the command's start."""
        return Live().now(LogId(""), 0)

    def print_brief(self, *cells: Cell | str) -> None:
        """Print one line that fits: the last cell is cut if need be."""
        *first, last = [Cell(clean(cell.text), cell.style) for cell in map(_cell, cells)]
        if self.tty:
            last = Cell(
                cut_text(last.text, self.width - sum(cell_width(cell.text) for cell in first)),
                last.style,
            )
        self.line(*first, last)

    def hint(self, *texts: str) -> None:
        """Print the next steps, on a terminal only."""
        if self.tty:
            for text in texts:
                self.line(Cell(text, DIM))

    def heading(self, text: str, aside: str = "") -> None:
        self.line()
        self.line(Cell(text, STRONG), Cell(f"{GAP}{aside}" if aside else "", DIM))

    def table(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Cell]],
        *,
        indent: str = "",
        heads: bool = False,
    ) -> int:
        """Print rows in aligned columns, and return how many there were."""
        source, widths, count = iter(rows), [0] * len(columns), 0
        while batch := [
            [Cell(clean(cell.text), cell.style) for cell in row] for row in islice(source, BATCH)
        ]:
            widths = [
                max(width, *(cell_width(row[at].text) for row in batch))
                for at, width in enumerate(widths)
            ]
            shown = batch
            if heads and self.tty and not count:
                shown = [[Cell(column.head, DIM) for column in columns], *batch]
                widths = [
                    width and max(width, len(column.head))
                    for column, width in zip(columns, widths, strict=True)
                ]
            fitted = self._fit(columns, widths, cell_width(indent))
            for row in shown:
                self.line(indent, *_layout_row(columns, row, fitted, self.tty))
            count += len(batch)
        return count

    def _fit(self, columns: Sequence[Column], widths: Sequence[int], indent: int) -> list[int]:
        """Return the widths there is room for. An empty column takes none."""
        if not self.tty:
            return [
                min(width, PAD_MAX) if column.flex else width
                for column, width in zip(columns, widths, strict=True)
            ]
        rooms = [
            width if column.whole else min(width, COLUMN_MAX)
            for column, width in zip(columns, widths, strict=True)
        ]
        least = max((column.least for column in columns if column.flex), default=FLEX_MIN)
        asides = [at for at, column in enumerate(columns) if column.aside]
        while True:
            taken = [
                room
                for column, room in zip(columns, rooms, strict=True)
                if room and not column.flex
            ]
            left = self.width - indent - sum(taken) - len(GAP) * len(taken)
            if left >= least or not asides:
                return [
                    min(width, max(left, 8)) if column.flex else room
                    for column, width, room in zip(columns, widths, rooms, strict=True)
                ]
            rooms[asides.pop()] = 0

    def time(self, time: Micros) -> str:
        return age(time, self.now) if self.tty else when(time)

    def wrap_lines(self, text: str, width: int, lines_max: int) -> list[str]:
        """Return a text in lines of this width, at most `lines_max` of them; in a pipe one line,
        whole.
        """
        if not self.tty:
            return [clean(text)]
        lines = wrap_text(clean(text, lines=True), max(width, 20))
        if len(lines) <= lines_max:
            return lines
        return [*lines[: lines_max - 1], f"… {len(lines) - lines_max + 1:,} more lines"]


def _cell(cell: Cell | str) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def _layout_row(
    columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int], cutting: bool
) -> list[Cell]:
    found = list[Cell]()
    for column, cell, width in zip(columns, row, widths, strict=True):
        if width:
            text = cut_text(cell.text, width) if cutting else cell.text
            space = " " * (width - cell_width(text))
            found.append(Cell(f"{space}{text}" if column.right else f"{text}{space}", cell.style))
            found.append(Cell(GAP))
    return found[:-1]


def cell_width(text: str) -> int:
    """Return how many cells a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def as_json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def count_text(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
