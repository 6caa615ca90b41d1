"""The steps of a run while it works: each is told when it is settled, with its lane."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Lock
from typing import NamedTuple

from plait.cli.render import DIM, Cell, cell_width
from plait.cli.steps import color_of, figures_text, mark_of, step_text, style_of
from plait.cli.terminal import cut_text
from plait.errors import PlaitError
from plait.event import Event
from plait.ids import LogId
from plait.outline.lanes import GrowingMargin
from plait.outline.outlines import Outlines
from plait.outline.records import LogRecord
from plait.outline.shapes import StepShape
from plait.outline.step_fold import BRACKETS
from plait.outline.step_rows import OPEN, WAITING
from plait.outline.steps import step_shapes
from plait.session import Session
from plait.session.ports import store_at
from plait.session.safe_text import clean

NAME_MIN = 12  # cells of S@k, so that the words of most steps stand below each other


class LiveLine(NamedTuple):
    """A line of a run: that of a step, or one on which lanes fork or meet."""

    margin: Cell
    name: Cell = Cell("")
    text: Cell = Cell("")
    figures: str = ""
    step: StepShape | None = None


class _LogSeen(NamedTuple):
    """The part of a log that is on the screen already."""

    pending: set[int]  # steps that are not settled yet
    next: list[int]  # the index of the first step that was not looked at, as its only item


class LiveSteps:
    """Tells the steps of one run after another. It may be shared by threads."""

    def __init__(self) -> None:
        self._plain = not (sys.stderr.encoding or "").lower().startswith("utf")
        self._outlines: Outlines | None = None
        self._margin = GrowingMargin(plain=self._plain)
        self._seen: dict[LogId, _LogSeen] = {}
        self._lock = Lock()

    def begin(self, session: Session) -> None:
        """Note what stands in a session before its run goes on. Its last message is told with the
        run.
        """
        with self._lock:
            self._outlines = Outlines(store_at(session.store))
            self._margin, self._seen = GrowingMargin(plain=self._plain), {}
            record = self._outlines.record(session.id)
            last = record.step_count - 1
            is_message = last >= 0 and record.lasts[last] == record.last_words == record.tip
            self._know(record, record.step_count - is_message)

    def take(self, event: Event) -> list[LiveLine]:
        """Return the lines that an event adds."""
        if event.kind in BRACKETS or self._outlines is None:
            return []
        with self._lock:
            try:
                return list(self._lines(self._outlines, event.log, event.seq))
            except PlaitError:  # it stands in the log all the same
                return []

    def _know(self, record: LogRecord, count: int) -> _LogSeen:
        """Note the first `count` steps of a log as told, apart from those that are not settled."""
        pending = {index for index in range(count) if _is_open(record, index)}
        seen = self._seen[record.log] = _LogSeen(pending, [count])
        return seen

    def _lines(self, outlines: Outlines, log: LogId, seq: int) -> Iterator[LiveLine]:
        record = outlines.record(log)
        seen = self._seen.get(log)
        if seen is None:
            seen = self._know(record, 0 if seq == record.place + 1 else record.step_of(seq))
        new = [*sorted(seen.pending), *range(seen.next[0], record.step_count)]
        settled = [index for index in new if not _is_open(record, index)]
        seen.next[0] = record.step_count
        seen.pending.clear()
        seen.pending.update(set(new) - set(settled))
        for step in step_shapes(outlines, record, settled):
            yield from self._bend_lines(step)
            yield self._step_line(outlines, step)

    def _bend_lines(self, step: StepShape) -> Iterator[LiveLine]:
        margin = self._margin
        links = [link.log for link in step.links]
        if step.log not in margin and step.type == "fork" and links:
            bend = margin.fork(step.log, links[0])
        elif step.log not in margin:
            margin.begin(step.log)
            bend = ""
        else:
            bend = margin.merge(step.log, links) if step.type == "merge" else ""
        if bend:
            yield LiveLine(Cell(bend, color_of(margin.color(step.log))))

    def _step_line(self, outlines: Outlines, step: StepShape) -> LiveLine:
        color = color_of(self._margin.color(step.log))
        row = self._margin.row(step.log, mark_of(step, self._plain))
        name = f"{outlines.name_of(step.log)}@{step.seq}"
        return LiveLine(
            Cell(row, color),
            Cell(f"{name:<{NAME_MIN}}", color),
            Cell(step_text(step), style_of(step)),
            figures_text(step),
            step,
        )


def line_cells(line: LiveLine, width: int | None) -> list[Cell]:
    """Return the cells of a line, cut to the width; None: whole."""
    if line.step is None:
        return [line.margin]
    head = [Cell(f"{line.margin.text:<3}  ", line.margin.style), line.name, Cell("  ")]
    text, figures = clean(line.text.text), line.figures
    if width is None:
        return [*head, Cell(text, line.text.style), Cell(f"  {figures}" if figures else "", DIM)]
    left = width - sum(cell_width(clean(cell.text)) for cell in head)
    room = left - len(figures) - 2 if figures else left
    if room < 24:
        figures, room = "", left
    text = cut_text(text, max(room, 8))
    space = " " * (left - cell_width(text) - len(figures)) if figures else ""
    return [*head, Cell(text, line.text.style), Cell(f"{space}{figures}", DIM)]


def _is_open(record: LogRecord, index: int) -> bool:
    return record.states[index] in (OPEN, WAITING)
