"""The steps of a log as shapes: a page with words, and all of them in short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plait.errors import InvalidValue
from plait.event import Event
from plait.ids import LogId
from plait.outline.outlines import Outlines
from plait.outline.records import STATES, TYPES, LogRecord, marks_of
from plait.outline.shapes import OutlineShape, StepPage, StepShape
from plait.outline.step_words import StepWords

PAGE_MAX = 500
_GAP = 16  # events of other steps that are read along, rather than asked around


def step_page(
    outlines: Outlines,
    log: LogId,
    first: int = 0,
    count: int = PAGE_MAX,
) -> StepPage:
    """Return the steps from the index `first` on, with their words."""
    if first < 0 or not 0 <= count <= PAGE_MAX:
        raise InvalidValue(
            "steps", f"{first} and {count} are no page", f"ask for at most {PAGE_MAX} from 0 on"
        )
    record = outlines.record(log)
    indexes = range(first, min(first + count, record.step_count))
    steps = step_shapes(outlines, record, indexes)
    return StepPage(log, first, record.step_count, tuple(steps))


def step_shapes(
    outlines: Outlines,
    record: LogRecord,
    indexes: Sequence[int],
) -> list[StepShape]:
    """Return these steps of a log with their words."""
    seqs = {index: record.events_of(index) for index in indexes}
    found = read_events(outlines, record, [seq for each in seqs.values() for seq in each])
    words, spans = StepWords(outlines.store, outlines.name_of), record.rewound_spans()
    return [
        words.shape(
            record,
            index,
            [found[seq] for seq in seqs[index]],
            any(first <= record.lasts[index] <= last for first, last in spans),
        )
        for index in indexes
    ]


def read_events(outlines: Outlines, record: LogRecord, seqs: Iterable[int]) -> dict[int, Event]:
    """Return these events of a log, in as few reads as that takes."""
    found = dict[int, Event]()
    for first, last in _spans(sorted(seqs)):
        found.update({event.seq: event for event in outlines.store.read(record.log, first, last)})
    return found


def _spans(seqs: Sequence[int]) -> list[tuple[int, int]]:
    spans = list[tuple[int, int]]()
    for seq in seqs:
        if spans and seq - spans[-1][1] <= _GAP:
            spans[-1] = (spans[-1][0], seq)
        else:
            spans.append((seq, seq))
    return spans


def outline_shape(outlines: Outlines, log: LogId, from_index: int = 0) -> OutlineShape:
    """Return the steps of a log in short, from an index on."""
    number = outlines.store.number
    record = outlines.record(log)
    start = min(max(from_index, 0), record.step_count)
    marked = [(index, bits) for index, bits in enumerate(record.marks[start:], start) if bits]
    return OutlineShape(
        log=log,
        from_index=start,
        total=record.step_count,
        firsts=tuple(record.firsts[start:]),
        seqs=tuple(record.lasts[start:]),
        times_ms=tuple(record.times_ms[start:]),
        types=tuple([TYPES[code] for code in record.types[start:]]),
        states=tuple([STATES[code] for code in record.states[start:]]),
        marks={index: marks_of(bits) for index, bits in marked},
        rewound=tuple(record.rewound_spans()),
        number=number,
    )
