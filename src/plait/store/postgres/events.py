"""Reading logs and events of a PostgreSQL store.

A read is one statement for each page, and pages grow: a long log takes few round trips. No
connection is lent while a caller looks at a page.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import chain, repeat, zip_longest
from typing import Any, NamedTuple

from plait.errors import PlaitError, StoreBusy, StoreCorrupt, UnknownEvent, UnknownLog
from plait.event import Event
from plait.event.codec import EVENT_TAG
from plait.ids import Digest, LogId, parse_digest, parse_log_id
from plait.store import packing
from plait.store.arguments import check_kinds, check_limit, check_number, check_prefix, check_read
from plait.store.base import Log, StoredRecord
from plait.store.lineage import Lineage, LineageSpan, cut_lineage, extend_lineage
from plait.store.postgres.ahead import EventWindow
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.core import SEQ_MAX, LogFacts
from plait.store.postgres.heads import HEADS, heads_in, to_log
from plait.store.postgres.pipeline import SqlStatement, ask_together
from plait.store.postgres.wire import pack_byteas, pack_int8
from plait.store.postgres.writing import PostgresWriting
from plait.store.records import COLUMNS, content_of, short_of, to_bytes, to_event, to_id

_PAGES = (512, 2048, 8192)  # events fetched at a time: a first page, and later ones
_SAFE_S = 60.0  # the server brings lazy commits to its disk much sooner
_E_COLUMNS = "e.seq, e.codec, e.salt, e.header, e.body"
_LOG = """
SELECT p.id, l.place, l.head, l.tip, l.lazy, l.epoch
FROM {s}.log l LEFT JOIN {s}.log p ON p.key = l.parent WHERE l.id = $1::bytea"""
_LOGS = """
SELECT l.key, l.id, p.id, l.place, l.head, l.tip, l.lazy, l.epoch
FROM {s}.log l LEFT JOIN {s}.log p ON p.key = l.parent
WHERE l.key < $1::int8 AND l.key != 0 ORDER BY l.key DESC LIMIT $2::int8"""
# A page may go over several logs of a lineage. The limit inside keeps the server from joining whole
# tables.
_PAGE = f"""
SELECT e.* FROM unnest($1::int8[], $2::int4[], $3::int4[]) AS span (log, first, last)
CROSS JOIN LATERAL (
    SELECT {_E_COLUMNS}, e.kind FROM {{s}}.event e
    WHERE e.log = span.log AND e.seq BETWEEN span.first AND span.last{{only}}
    ORDER BY e.seq {{order}} LIMIT $4::int8
) e ORDER BY e.seq {{order}} LIMIT $4::int8"""
_OWN = f"""
SELECT l.key, l.lazy, e.* FROM {{s}}.log l LEFT JOIN LATERAL (
    SELECT {_E_COLUMNS}, e.kind FROM {{s}}.event e WHERE e.log = l.key
        AND e.seq BETWEEN l.place + 1 AND l.tip AND l.tip - l.place <= $2::int8 ORDER BY e.seq
) e ON true WHERE l.id = $1::bytea"""
_OWN_OIDS = (20, 16, 23, 21, 17, 17, 17, 21)  # the types of its columns
_PLACES = f"""
SELECT {_E_COLUMNS}, e.kind
FROM unnest($1::bytea[], $2::int4[]) WITH ORDINALITY AS asked (id, seq, n)
    JOIN {{s}}.log l ON l.id = asked.id JOIN {{s}}.event e ON e.log = l.key AND e.seq = asked.seq
ORDER BY asked.n"""
# The tip of the log and the first page are read in one state of the store.
_FIRST_PAGE = f"""
SELECT l.tip, e.* FROM {{s}}.log l LEFT JOIN LATERAL ({_PAGE}
) e ON true WHERE l.key = $5::int8"""
# True for an event that a crash of the server may take back: its log is written lazily, and the
# disk, or a standby that commits wait for, is behind. What a standby shows is on its own disk.
_IS_VOLATILE = """
CASE WHEN (SELECT CASE WHEN pg_is_in_recovery() THEN false
        WHEN current_setting('synchronous_standby_names') <> '' THEN true
        ELSE pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn() END)
    THEN (SELECT l.lazy FROM {s}.log l WHERE l.key = e.log) ELSE false END"""
_FEED = f"""
SELECT {_E_COLUMNS}, e.number, e.kind, {{volatile}} FROM {{s}}.event e
WHERE e.number > $1::int8 AND e.number < least($2::int8, {{bound}}){{only}}
ORDER BY e.number {{order}} LIMIT $3::int8"""
_NUMBER = f"""
SELECT e.number, {_IS_VOLATILE} FROM {{s}}.event e WHERE e.number < {{settled}}
ORDER BY e.number DESC LIMIT 1"""
_RECORDS = f"""
SELECT {_E_COLUMNS}, e.number, e.kind, e.short,
    ARRAY(SELECT a.blob FROM {{s}}.attachment a WHERE a.event = e.number ORDER BY a.blob)
FROM {{s}}.event e WHERE e.log = $1::int8 AND (e.seq, e.number) > ($2::int4, $3::int8)
ORDER BY e.seq, e.number LIMIT $4::int8"""


class _LogPage(NamedTuple):
    """The next events of a lineage to be read, from one seq to another, so many at a time."""

    lineage: Lineage
    first: int
    last: int
    is_whole: bool  # events of all kinds are wanted: none may be missing
    reverse: bool
    size: int

    def spans(self) -> list[LineageSpan]:
        """Return the spans that the page can be in; only those if no event is left out."""
        first, last = self.first, self.last
        if self.is_whole and self.reverse:
            first = max(first, last - self.size + 1)
        elif self.is_whole:
            last = min(last, first + self.size - 1)
        return cut_lineage(self.lineage, first, last)

    def check(self, rows: Sequence[Any]) -> None:
        """Raise if an event is missing from a page."""
        if not self.is_whole:
            return
        count = min(self.size, self.last - self.first + 1)
        start, step = (self.last, -1) if self.reverse else (self.first, 1)
        due, seqs = range(start, start + step * count, step), [row[0] for row in rows]
        if seqs != list(due):
            missing = next((seq for seq, found in zip_longest(due, seqs) if seq != found), None)
            log = self.lineage[-1].log
            raise StoreCorrupt(f"log {log}", f"event {missing} is missing, or stands twice")

    def after(self, seq: int) -> _LogPage:
        """Return the page that begins behind an event."""
        return self._replace(last=seq - 1) if self.reverse else self._replace(first=seq + 1)


class PostgresEvents(PostgresWriting):
    """Logs and their events, read."""

    def log(self, log: LogId) -> Log:
        name = to_bytes(parse_log_id(log))
        row = self._run(lambda db: db.row(self._sql(_LOG), name))
        if row is None:
            raise UnknownLog(log)
        return to_log(log, *row)

    def heads(self, logs: Sequence[LogId]) -> dict[LogId, Log]:
        names = pack_byteas([to_bytes(log) for log in dict.fromkeys(logs)])
        sql = self._bytes_of(b"heads", HEADS)
        result = self._run(lambda db: db.run_prepared(b"heads", sql, [names]))
        return heads_in(result)

    def lineage(self, log: LogId) -> Lineage:
        return self._find(log).lineage

    def logs(self, *, before: int | None = None, limit: int = 100) -> list[tuple[int, Log]]:
        check_limit(limit)
        check_number("before", 0 if before is None else before)
        until = 2**62 if before is None else before
        rows = self._run(lambda db: db.rows(self._sql(_LOGS), until, limit))
        return [(row[0], to_log(to_id(row[1]), *row[2:])) for row in rows]

    def match(self, text: str, limit: int = 20) -> list[LogId]:
        check_prefix(text)
        check_limit(limit)
        digits = text.replace("-", "").lower()
        if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
            return []
        whole = self._sql(
            "SELECT id FROM {s}.log WHERE id BETWEEN $1::bytea AND $2::bytea ORDER BY id"
            " LIMIT $3::int8"
        )
        tail = self._sql(
            "SELECT id FROM {s}.log WHERE substr(id, 11) BETWEEN $1::bytea AND $2::bytea"
            " ORDER BY substr(id, 11) LIMIT $3::int8"
        )
        found = self._run(lambda db: db.rows(whole, *_span(digits, 16), limit))
        if len(digits) <= 12:
            found += self._run(lambda db: db.rows(tail, *_span(digits, 6), limit))
        return list(dict.fromkeys([to_id(id) for (id,) in found]))[:limit]

    def read(
        self,
        log: LogId,
        first: int = 1,
        last: int | None = None,
        *,
        kinds: Collection[str] | None = None,
        reverse: bool = False,
    ) -> Iterator[Event]:
        check_read(first, last, kinds, self._codes)
        known = self._find(log)
        first, last = max(first, 1), SEQ_MAX if last is None else min(last, SEQ_MAX)
        if first > last:
            return iter(())
        if (window := self._windows.find(log, first, last)) is not None:
            return window.select(first, last, kinds, reverse)
        page = _LogPage(known.lineage, first, last, kinds is None, reverse, _PAGES[0])
        if reverse and last == SEQ_MAX:
            # The tip is not known yet, so the page ends at the beginning of the log itself.
            own = known.lineage[-1:]
            tip, rows = self._first_page(
                known.key, page._replace(lineage=own, is_whole=False), kinds
            )
            head = page._replace(lineage=own, first=max(first, own[0].first), last=tip)
            rest = page._replace(last=min(tip, own[0].first - 1))
            return chain(self._pages(head, kinds, rows), self._pages(rest, kinds, None))
        tip, rows = self._first_page(known.key, page, kinds)
        return self._pages(page._replace(last=min(last, tip)), kinds, rows)

    @contextmanager
    def read_ahead(self, log: LogId, first: int, last: int) -> Generator[None]:
        check_read(first, last, None, self._codes)
        page = _LogPage(self._find(log).lineage, first, last, True, False, _PAGES[-1])
        window: EventWindow | None = None
        with suppress(StoreCorrupt):  # those who read the events say so
            events = list(self._pages(page, None, None, repeat(_PAGES[-1])))
            window = EventWindow(log, first, events)
            self._windows.add(window)
        try:
            yield
        finally:
            if window is not None:
                self._windows.remove(window)

    @contextmanager
    def look_ahead(self, logs: Sequence[LogId], limit: int) -> Generator[Mapping[LogId, Log]]:
        log = parse_log_id(logs[0])
        names = pack_byteas([to_bytes(each) for each in dict.fromkeys(logs)])
        asked = [
            SqlStatement(self._bytes_of(b"heads", HEADS), [names], b"heads"),
            SqlStatement(self._bytes_of(b"own", _OWN), [to_bytes(log), pack_int8(limit)], b"own"),
        ]

        def look(db: ServerConnection) -> tuple[dict[LogId, Log], list[Any]]:
            ends, own = ask_together(db, asked)
            return heads_in(ends), db.load(own, _OWN_OIDS, tuple)

        heads, rows = self._run(look)
        if rows and heads[log].parent is None:  # so its lineage is known
            key, lazy = rows[0][:2]
            self._remember(log, LogFacts(key, extend_lineage((), 0, log), lazy))
        window: EventWindow | None = None
        found = [row[2:] for row in rows if row[2] is not None]
        if found and heads[log].place + len(found) == found[-1][0]:  # else one is missing
            with suppress(StoreCorrupt):  # those who read the events say so
                events = [to_event(row, self.get_blob, self._names.get(row[5])) for row in found]
                window = EventWindow(log, events[0].seq, events)
                self._windows.add(window)
        try:
            yield heads
        finally:
            if window is not None:
                self._windows.remove(window)

    def events_at(self, places: Sequence[tuple[LogId, int]]) -> list[Event]:
        names = [to_bytes(log) for log, _ in places]
        seqs = [seq for _, seq in places]
        rows = self._run(lambda db: db.rows(self._sql(_PLACES), names, seqs))
        return [to_event(row, self.get_blob, self._names.get(row[5])) for row in rows]

    def event(self, id: Digest) -> Event:
        sql = self._sql(f"SELECT {COLUMNS} FROM {{s}}.event WHERE short = $1::int8")
        rows = self._run(lambda db: db.rows(sql, short_of(parse_digest(id))))
        for row in rows:
            if (event := to_event(row, self.get_blob)).id == id:
                return event
        raise UnknownEvent(id)

    def number_of(self, id: Digest) -> int | None:
        wanted = bytes.fromhex(parse_digest(id))
        sql = self._sql("SELECT number, codec, header FROM {s}.event WHERE short = $1::int8")
        for number, codec, header in self._run(lambda db: db.rows(sql, short_of(id))):
            if sha256(EVENT_TAG + packing.unpack_header(codec, header)).digest() == wanted:
                return number
        return None

    def feed(
        self,
        after: int = 0,
        *,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        check_limit(limit)
        check_number("after", after)
        check_kinds(kinds, self._codes)
        bound = str(2**63 - 1) if reverse else "{settled}"
        only, codes = self._only(kinds, 4)
        sql = self._sql(
            _FEED.replace("{bound}", bound)
            .replace("{only}", only)
            .replace("{order}", "DESC" if reverse else "ASC")
            .replace("{volatile}", "false" if reverse else _IS_VOLATILE)
        )
        return self._feed_pages(sql, after, codes, 2**62 if limit is None else limit, reverse)

    def _feed_pages(
        self, sql: str, after: int, codes: list[Any], left: int, reverse: bool
    ) -> Iterator[tuple[int, Event]]:
        before = 2**63 - 1
        for size in _page_sizes():
            page = min(left, size)
            if page <= 0:
                return
            asked = after, before, page, *codes
            rows = self._run(lambda db, asked=asked: self._safe_rows(db, sql, *asked))
            for row in rows:
                yield row[5], to_event(row, self.get_blob, self._names.get(row[6]))
            if len(rows) < page:
                return
            after, before = (after, rows[-1][5]) if reverse else (rows[-1][5], before)
            left -= len(rows)

    @property
    def number(self) -> int:
        rows = self._run(lambda db: self._safe_rows(db, self._sql(_NUMBER)))
        return rows[0][0] if rows else 0

    def _safe_rows(self, db: ServerConnection, sql: str, *values: Any) -> list[Any]:
        """Return rows whose last column says if they are volatile, when all of them are on disk. A
        follower goes on from the last number it got; a crash that took it back would give that
        number away again.
        """
        rows = db.rows(sql, *values)
        if any(row[-1] for row in rows):
            # in one transaction: after a crash in between, the rows are read again
            with db.transaction():
                rows = db.rows(sql, *values)
                self._make_safe(db)
        return rows

    def _make_safe(self, db: ServerConnection) -> None:
        """Return when all that can be seen is on disk, or will be with this transaction."""
        if self._may_write(db):
            return self._sync(db)
        # The server brings lazy commits to the disk by itself, within moments.
        end, until = db.get("SELECT pg_current_wal_insert_lsn()::text"), time.monotonic() + _SAFE_S
        while not db.get("SELECT pg_current_wal_flush_lsn() >= $1::text::pg_lsn", end):
            if time.monotonic() > until:
                raise StoreBusy(self._connections.address, _SAFE_S, "does not write to its disk")
            time.sleep(0.02)

    def event_count(self, upto: int) -> int:
        check_number("upto", upto)
        sql = self._sql("SELECT count(*) FROM {s}.event WHERE number BETWEEN 1 AND $1::int8")
        return self._run(lambda db: db.get(sql, upto))

    def records(self, log: LogId) -> Iterator[StoredRecord]:
        name = to_bytes(parse_log_id(log))
        key_sql = self._sql("SELECT key FROM {s}.log WHERE id = $1::bytea")
        key = self._run(lambda db: db.get(key_sql, name))  # its lineage may be broken
        if key is None:
            raise UnknownLog(log)
        after, sql = (-(2**31), 0), self._sql(_RECORDS)
        for size in _page_sizes():
            asked = key, *after, size
            rows = self._run(lambda db, asked=asked: db.rows(sql, *asked))
            for row in rows:
                yield self._to_record(log, row)
            if len(rows) < size:
                return
            after = rows[-1][0], rows[-1][5]

    def _only(self, kinds: Collection[str] | None, at: int) -> tuple[str, list[Any]]:
        """Return a condition that keeps only these kinds, and its value, the `at`-th one."""
        if kinds is None:
            return "", []
        self._know_kinds(kinds)
        return f" AND e.kind = ANY(${at}::int2[])", [self._codes_of(kinds)]

    def _first_page(
        self, key: int, page: _LogPage, kinds: Collection[str] | None
    ) -> tuple[int, list[Any]]:
        """Return the tip of a log, and a page of its lineage, as of the same moment."""
        sql, codes = self._page_sql(_FIRST_PAGE, kinds, 6, page.reverse)
        spans = self._span_columns(page)
        rows = self._run(lambda db: db.rows(sql, *spans, page.size, key, *codes))
        if not rows:
            raise StoreCorrupt(f"the log with key {key}", "its row is gone")
        return rows[0][0], [row[1:] for row in rows if row[1] is not None]

    def _pages(
        self,
        page: _LogPage,
        kinds: Collection[str] | None,
        rows: list[Any] | None,
        sizes: Iterator[int] | None = None,
    ) -> Iterator[Event]:
        """Yield the events of a lineage from one seq to another; `rows` are those of the first
        page.
        """
        sql, codes = self._page_sql(_PAGE, kinds, 5, page.reverse)
        sizes = sizes or _page_sizes()
        while page.first <= page.last:
            page = page._replace(size=next(sizes))
            if rows is None:
                asked = *self._span_columns(page), page.size, *codes
                rows = self._run(lambda db, asked=asked: db.rows(sql, *asked))
            page.check(rows)
            for row in rows:
                yield to_event(row, self.get_blob, self._names.get(row[5]))
            if len(rows) < page.size:
                return
            page, rows = page.after(rows[-1][0]), None

    def _page_sql(
        self, text: str, kinds: Collection[str] | None, at: int, reverse: bool
    ) -> tuple[str, list[Any]]:
        only, codes = self._only(kinds, at)
        order = "DESC" if reverse else "ASC"
        return self._sql(text.replace("{only}", only).replace("{order}", order)), codes

    def _span_columns(self, page: _LogPage) -> tuple[list[int], list[int], list[int]]:
        spans = page.spans()
        return (
            [self._find(span.log).key for span in spans],
            [span.first for span in spans],
            [min(span.last, SEQ_MAX) for span in spans],
        )

    def _to_record(self, log: LogId, row: Any) -> StoredRecord:
        seq, codec, salt, header, body, number, kind, short, refs = row
        try:
            raw = packing.unpack_header(codec, header)
        except PlaitError:
            raw = b""  # for verify to find
        try:
            content = content_of(codec, body, self.get_blob)
        except PlaitError:
            content = None
        apart = None
        if codec & ~packing.HEADER_1 == packing.IN_BLOB and body is not None:
            apart = Digest(body.hex())
        name = self._names.get(kind) or self._load_kinds().get(kind, f"#{kind}")
        id = short.to_bytes(8, "big", signed=True).hex()
        digests = tuple([Digest(ref.hex()) for ref in refs])
        return StoredRecord(number, log, seq, name, id, raw, salt, content, digests, apart)


def _page_sizes() -> Iterator[int]:
    yield from _PAGES
    while True:
        yield _PAGES[-1]


def _span(digits: str, size: int) -> tuple[bytes, bytes]:
    """The lowest and the highest value of `size` bytes that starts with these hex digits."""
    low, high = digits.ljust(size * 2, "0"), digits.ljust(size * 2, "f")
    return bytes.fromhex(low[: size * 2]), bytes.fromhex(high[: size * 2])
