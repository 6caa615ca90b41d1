"""The cost of a session, by one rule: what it spent itself, what was spent in sessions merged into
it, and in the branches of its runs; with the part in such branches that was not merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plait.event import Event
from plait.event.kinds import ToolRequested
from plait.ids import LogId
from plait.outline.outlines import Outlines
from plait.outline.records import LogRecord
from plait.outline.spent import SpentCount, count_of
from plait.session.grants import SPENDING, spent_by
from plait.store import Store


class SessionSpending:
    """Adds up amounts over the records of logs."""

    def __init__(self, outlines: Outlines) -> None:
        self._outlines, self._store = outlines, outlines.store

    def of(self, record: LogRecord, branches: Sequence[LogId]) -> tuple[SpentCount, SpentCount]:
        """Return the cost of a session whose runs have these branches, and the part of it that is
        not merged.
        """
        total, unmerged = SpentCount(), SpentCount()
        total.add(record.spent)
        covers = self._covers(record)
        for log, branch in self._outlines.records(branches).items():
            total.add(branch.spent)
            unmerged.add(self._spent_after(branch, covers.pop(log, 0)))
        for log, merged in self._outlines.records(list(covers)).items():
            total.add(merged.spent)
            total.subtract(self._spent_after(merged, covers[log]))
        return total, unmerged

    def _covers(self, record: LogRecord) -> dict[LogId, int]:
        """Return the logs that were merged into a session, each with its last place that counts.
        Those that it was forked from are not its own.
        """
        found = dict[LogId, int]()
        for merge in record.merges:
            for log, place in merge.covers.items():
                found[LogId(log)] = max(place, found.get(LogId(log), 0))
        for span in self._store.lineage(record.log):
            found.pop(span.log, None)
        return found

    def _spent_after(self, record: LogRecord, place: int) -> SpentCount:
        """Return the amounts that a log spent after a place."""
        if place >= record.last_spending:
            return SpentCount()
        if place <= record.place:
            return record.spent
        spent = SpentCount()
        for event in self._store.read(record.log, place + 1, record.tip, kinds=SPENDING):
            if not _is_refused(event):
                spent.add(count_of(spent_by(event.body)))
        return spent


def run_branches(store: Store, members: Mapping[LogId, LogRecord], root: LogId) -> list[LogId]:
    """Return the branches among a family that the runs of a session forked, and those that they
    forked.
    """
    found = {root}
    for log, record in members.items():  # each after the one it was forked from
        if record.is_of_run and store.log(log).parent in found:
            found.add(log)
    return [log for log in members if log in found and log != root]


def _is_refused(event: Event) -> bool:
    if event.kind != ToolRequested.__name__:
        return False
    body = event.body
    return isinstance(body, ToolRequested) and body.decision == "refuse"
