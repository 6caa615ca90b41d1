"""Rows for people: sessions by their last activity, with their cost, their waits, and how their
runs really stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from plait.errors import InvalidValue, PlaitError, UnknownLog
from plait.event.kinds import MessageSaid, ModelReplied
from plait.ids import LogId, short
from plait.outline.activity import Activities, latest_first
from plait.outline.filters import SessionFilter
from plait.outline.outlines import Outlines
from plait.outline.records import LogRecord
from plait.outline.shapes import SeqRef, SessionSummary, SummaryPage
from plait.outline.spending import SessionSpending
from plait.outline.standing import StandingReader
from plait.outline.texts import parts_text
from plait.session.listing import session_row
from plait.session.run_rows import INBOX, find_run_row
from plait.store import Row, Store

TEXT_MAX = 200  # characters of the last words
_ALL = 2**31
_tags = msgspec.json.Decoder(dict[str, str]).decode


class Summaries:
    """The sessions of a store as rows for people."""

    def __init__(self, outlines: Outlines) -> None:
        self._outlines, self._store = outlines, outlines.store
        self.activities = Activities(outlines.store)
        self._spending = SessionSpending(outlines)
        self._first_words: dict[LogId, str] = {}

    def page(
        self,
        wanted: SessionFilter | None = None,
        *,
        before: str | None = None,
        limit: int = 50,
    ) -> SummaryPage:
        """Return a page of sessions, the latest active first. `before` is the `next` of the page
        before it.
        """
        wanted = wanted or SessionFilter()
        number = self.activities.catch_up()
        order = latest_first(self.activities, self.activities.logs())
        if before is not None:
            mark = _parse_mark(before)
            order = [each for each in order if each < mark]
        reading = _PageReading(self._store)
        found = list[SessionSummary]()
        mark = None
        for updated, log in order:
            summary = self._choose(log, wanted, reading)
            if summary is None:
                continue
            if len(found) == limit:
                return SummaryPage(tuple(found), mark, number)
            found.append(summary)
            mark = f"{updated}:{log}"
        return SummaryPage(tuple(found), None, number)

    def summary(self, log: LogId) -> SessionSummary:
        """Return the row of one session."""
        self.activities.catch_up()
        row = session_row(self._store, log)
        if not row or self.activities.of(log) is None:
            raise UnknownLog(log)
        return self._summary(log, row, _PageReading(self._store))

    def _choose(
        self, log: LogId, wanted: SessionFilter, reading: _PageReading
    ) -> SessionSummary | None:
        """Return the row of a session if it is wanted. What its columns rule out is not folded."""
        row = session_row(self._store, log)
        if not row or not _may_be(row, wanted):
            return None
        if wanted.status and reading.status.of_session(row) not in wanted.status:
            return None
        if wanted.cost or wanted.tokens or wanted.events:
            record = self._outlines.record(log)
            spent, _ = self._spending.of(record, list(self.activities.branches_of_run(log)))
            if not wanted.allows(spent.shape(), len(record.owners)):
                return None
        summary = self._summary(log, row, reading)
        first = self._first(log) if wanted.words else ""
        return summary if wanted.chooses(summary, first) else None

    def _summary(self, log: LogId, row: Row, reading: _PageReading) -> SessionSummary:
        record = self._outlines.record(log)
        activity = self.activities.of(log)
        assert activity is not None
        branches = list(self.activities.branches_of_run(log))
        spent, unmerged = self._spending.of(record, branches)
        parent = activity.parent
        title, label = str(row["title"] or ""), row["label"]
        standing = reading.standings.of_session(row)
        return SessionSummary(
            log=log,
            short=short(log),
            name=str(label or title or self._first(log) or short(log)),
            title=title,
            label=str(label) if label is not None else None,
            status=standing.status,
            standing=standing.text,
            is_due=standing.is_due,
            workflow=record.workflow or self._workflow(row),
            user=_text(row["user"]),
            project=_text(row["project"]),
            tags=_tags(str(session_row(self._store, self.activities.root_of(log))["tags"])),
            parent=SeqRef(parent, activity.place) if parent is not None else None,
            is_branch_of_run=activity.is_of_run,
            branch_count=self.activities.count_below(log),
            opened=record.opened,
            updated=self.activities.updated(log),
            tip=record.tip,
            event_count=len(record.owners),
            spent=spent.shape(),
            spent_unmerged=unmerged.shape(),
            waiting=reading.waiting[log],
            queued=reading.status.queued_count(row),
            last_text=self._last_text(record),
        )

    # ── words ────────────────────────────────────────────────────────────────────────────────

    def _last_text(self, record: LogRecord) -> str:
        if not record.last_words:
            return ""
        return self._text_at(record.log, record.last_words)

    def _text_at(self, log: LogId, seq: int) -> str:
        try:
            body = next(self._store.read(log, seq, seq)).body
        except PlaitError:  # erased or damaged
            return ""
        if not isinstance(body, (MessageSaid, ModelReplied)):
            return ""
        text = parts_text(body.parts, self._store).strip()
        return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"

    def _first(self, log: LogId) -> str:
        """Return the first words that were said in a session."""
        if log not in self._first_words:
            said = self._store.read(log, 1, kinds={MessageSaid.__name__})
            first = next(said, None)
            if first is None:
                return ""
            self._first_words[log] = self._text_at(log, first.seq)
        return self._first_words[log]

    def _workflow(self, row: Row) -> str:
        """Return the program of the run that a branch was forked in."""
        run = find_run_row(self._store, str(row["run"])) if row["run"] is not None else None
        return str(run["workflow"]) if run is not None else ""


class _PageReading:
    """The reads that a page needs once: how runs stand, and what waits."""

    def __init__(self, store: Store) -> None:
        self.standings = StandingReader(store)
        self.status = self.standings.statuses
        self.waiting = Counter[str]()
        for asks in _waiting_rows(store):
            self.waiting.update(asks)


def _waiting_rows(store: Store) -> Iterator[set[str]]:
    """Yield for each ask that waits for a person, or at a gate, the logs that it counts for: its
    own, and the one that its run began on.
    """
    roots = dict[str, str]()
    open_asks = {"answered": 0, "over": 0}
    for row in store.rows(INBOX, "ask", open_asks, order="number", limit=_ALL):
        if row["kind"] == "timer":  # no person answers it
            continue
        run = str(row["run"] or "")
        if run and run not in roots:
            found = find_run_row(store, run)
            roots[run] = str(found["log"]) if found is not None else str(row["log"])
        yield {str(row["log"]), roots.get(run, str(row["log"]))}


def _may_be(row: Row, wanted: SessionFilter) -> bool:
    """True if the columns of a row do not rule a session out."""
    columns = (("user", wanted.user), ("project", wanted.project), ("label", wanted.label))
    if any(values and row[name] not in values for name, values in columns):
        return False
    is_root = row["parent"] is None
    return not (("root" in wanted.kind and not is_root) or ("branch" in wanted.kind and is_root))


def _text(value: object) -> str | None:
    return str(value) if value is not None else None


def _parse_mark(before: str) -> tuple[int, LogId]:
    updated, _, log = before.partition(":")
    if not updated.isdecimal():
        raise InvalidValue("before", f"{before!r} is no page", "pass the `next` of a page")
    return int(updated), LogId(log)
