"""The columns of a log's record while its events are folded: steps are added, and events join
them.
"""

from __future__ import annotations

from plait.event import Event
from plait.outline.records import MARK_BITS, STATE_CODES, TYPE_CODES, LogRecord

DONE, OPEN, WAITING, FAILED, DENIED, UNKNOWN = (
    STATE_CODES[name] for name in ("done", "open", "waiting", "failed", "denied", "unknown")
)
TOOL, REPLY, FAILURE, ROUTE, MESSAGE, LIFE = (
    TYPE_CODES[name] for name in ("tool", "reply", "failure", "route", "message", "life")
)
FILES, PASS, FAIL, APPROVAL, KILL, MERGE, COMPACTION, FORK, REWIND, MEMORY = (
    MARK_BITS[name]
    for name in (
        "files",
        "passed",
        "failed",
        "approval",
        "kill",
        "merge",
        "compaction",
        "fork",
        "rewind",
        "memory",
    )
)


class StepRows:
    """The steps of one log in the making.

    `changed` has the indexes of the steps that are new or got another event or state since it was
    last emptied.
    """

    def __init__(self, record: LogRecord) -> None:
        self.record = record
        self.changed: set[int] = set()

    def add(self, event: Event, type: int, state: int = DONE, marks: int = 0) -> int:
        """Add a step that begins with this event, and return its index."""
        record = self.record
        index = len(record.firsts)
        record.firsts.append(record.tip)
        record.lasts.append(record.tip)
        record.times_ms.append(event.time // 1000)
        record.types.append(type)
        record.states.append(state)
        record.marks.append(marks)
        record.owners.append(index)
        self.changed.add(index)
        return index

    def join(self, index: int, state: int | None = None, marks: int = 0) -> None:
        """Add the event to a step."""
        record = self.record
        record.lasts[index] = record.tip
        record.owners.append(index)
        if state is not None:
            record.states[index] = state
        if marks:
            record.marks[index] |= marks
        self.changed.add(index)

    def open_step(self, event: Event) -> int | None:
        """Return the open step of the event's call."""
        call = event.header.call
        return self.record.open.get(call) if call is not None else None
