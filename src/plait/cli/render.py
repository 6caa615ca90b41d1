"""How answers look: lines of styled cells, the same on a terminal and in a pipe.

On a terminal a line is cut to its width and secondary things are dim; in a pipe nothing is cut or coloured, times are told
in full, and headings and hints are left out, so that a line is an item. Every cell is cleaned on its way out, here and
nowhere else, so that no command can forget it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from plait.cli.terminal import age, clean, console, cut, when
from plait.event import Json
from plait.ids import LogId, Micros
from plait.runtime.live import Live

ACCENT, DIM, STRONG, BAD = "cyan", "dim", "bold", "red"

GAP = "  "
COLUMN_MAX = 28  # cells on a terminal, apart from the column that takes what is left
BATCH = 500  # rows that are measured together: a long list begins to show at once


class Cell(NamedTuple):
    text: str
    style: str = ""


class Column(NamedTuple):
    head: str = ""
    right: bool = False  # figures
    flex: bool = False  # takes the room that is left, and is cut to it


class Out:
    """Where a command prints what is for people."""

    def __init__(self) -> None:
        self._console = console()
        self.tty = sys.stdout.isatty()
        self.width = self._console.width
        self.now = Live().now(LogId(""), 0)

    def line(self, *cells: Cell | str) -> None:
        from rich.text import Text

        known = [cell if isinstance(cell, Cell) else Cell(cell) for cell in cells]
        if self._console.color_system is None:
            print("".join(clean(cell.text) for cell in known).rstrip(), file=self._console.file)
        else:
            text = Text.assemble(*((clean(cell.text), cell.style) for cell in known))
            text.rstrip()
            self._console.print(text)

    def hint(self, *texts: str) -> None:
        """What to do next; only a person wants to know."""
        if self.tty:
            for text in texts:
                self.line(Cell(text, DIM))

    def heading(self, text: str, aside: str = "") -> None:
        self.line()
        self.line(Cell(text, STRONG), Cell(f"{GAP}{aside}" if aside else "", DIM))

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], *, indent: str = "", heads: bool = False) -> int:
        """Rows in aligned columns; returns how many there were."""
        source, widths, count = iter(rows), [0] * len(columns), 0
        while batch := [[Cell(clean(cell.text), cell.style) for cell in row] for row in islice(source, BATCH)]:
            head = heads and self.tty and not count
            shown = [[Cell(column.head, DIM) for column in columns], *batch] if head else batch
            widths = [max(width, *(cells(row[at].text) for row in shown)) for at, width in enumerate(widths)]
            fitted = self._fit(columns, widths, cells(indent))
            for row in shown:
                self.line(indent, *_laid_out(columns, row, fitted))
            count += len(batch)
        return count

    def _fit(self, columns: Sequence[Column], widths: Sequence[int], indent: int) -> list[int]:
        """The widths there is room for. An empty column takes none."""
        if not self.tty:
            return list(widths)
        fixed = [0 if column.flex else min(width, COLUMN_MAX) for column, width in zip(columns, widths, strict=True)]
        gaps = len(GAP) * (sum(width > 0 for width in widths) - 1)
        left = max(20, self.width - indent - gaps - sum(fixed))
        return [min(width, left) if column.flex else room for column, width, room in zip(columns, widths, fixed, strict=True)]

    def time(self, time: Micros) -> str:
        return age(time, self.now) if self.tty else when(time)

    def wrapped(self, text: str, width: int, lines_max: int) -> list[str]:
        """A text from outside in lines of this width, not too many of them; in a pipe one line, whole."""
        if not self.tty:
            return [clean(text)]
        from rich.text import Text

        lines = [line.plain for line in Text(clean(text, lines=True)).wrap(self._console, max(width, 20), no_wrap=False, overflow="fold")]
        if len(lines) <= lines_max:
            return lines
        return [*lines[: lines_max - 1], f"… {len(lines) - lines_max + 1:,} more lines"]


def _laid_out(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int]) -> list[Cell]:
    found = list[Cell]()
    for column, cell, width in zip(columns, row, widths, strict=True):
        if width:
            text = cut(cell.text, width)
            space = " " * (width - cells(text))
            found.append(Cell(f"{space}{text}" if column.right else f"{text}{space}", cell.style))
            found.append(Cell(GAP))
    return found[:-1]


def cells(text: str) -> int:
    """How wide a text is on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def as_json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
