"""Words of a projection's rows in SQLite: an FTS5 index over the projection's own table.

Every word stands in the index together with its group, as `word_7`, where 7 is the code of the
group. So a search reads the rows of the groups that it asks for and no others, and the index knows
how many rows of a group have a word. `_7` stands for all rows with words of a group. Two further
columns of the table hold the code of the group and these terms; `__groups` has the codes, and how
many rows with words each group has.

The index has no copy of the terms: it reads them from the table (external content). So each change
of a row tells the index the terms that it had before. A row whose words stay the same does
not touch the index. Scores are computed by search.py, and not by FTS5: FTS5 counts all rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import msgspec

from plait.errors import StoreCorrupt
from plait.store.projection import Row, Scalar, Table
from plait.store.search import (
    WHOLE,
    Found,
    FoundRow,
    Query,
    Range,
    best_places,
    choosing_words,
    has_common_words,
    places_within,
    ranked_by_all,
    weight_of,
)
from plait.store.sqlite.database import Database

# Every term is one token as it stands: plain Latin letters, digits and the sign before the code.
_TOKENIZE = "unicode61 remove_diacritics 0 tokenchars _"
_SETTINGS = [("version", 4)]  # of an index that was made and never configured
NO_GROUP = 0  # the code of rows that are of no group
# Among so few rows it costs less to read the places of a common word than to count them first.
_FEW_ROWS = 20_000
_OURS = re.compile(
    r"CREATE VIRTUAL TABLE (p_\w+)__words USING fts5\(\[\w+\], content='\1', content_rowid='\w+',"
    rf" tokenize='{_TOKENIZE}'\)\Z"
)


def index_name(name: str) -> str:
    """Return the name of the index of a table. A double underscore stands in no table's name."""
    return f"{name}__words"


def groups_name(name: str) -> str:
    """Return the name of the table that has the codes of groups."""
    return f"{name}__groups"


def terms_column(table: Table) -> str:
    return f"{table.words}__terms"


def code_column(table: Table) -> str:
    return f"{table.words}__group"


def word_columns(table: Table) -> list[str]:
    """Return the two further columns of a table with words, as SQL."""
    words, code = f"[{table.words}]", f"[{code_column(table)}]"
    terms = f"'_' || {code} || ' ' || replace({words}, ' ', '_' || {code} || ' ') || '_' || {code}"
    return [
        f"{code} INTEGER NOT NULL",
        f"[{terms_column(table)}] TEXT AS (CASE WHEN {words} <> '' THEN {terms} END)",
    ]


def terms_of(words: Scalar, code: int) -> str | None:
    """Return the terms of a row, as its column has them. None: the row has no words."""
    if not words:
        return None
    end = f"_{code}"
    return f"{end} {str(words).replace(' ', f'{end} ')}{end}"


def create_groups(name: str) -> list[str]:
    return [
        f"CREATE TABLE {groups_name(name)} (code INTEGER PRIMARY KEY, value TEXT UNIQUE,"
        " rows INTEGER NOT NULL) STRICT",
        f"INSERT INTO {groups_name(name)} VALUES ({NO_GROUP}, NULL, 0)",
    ]


def create_index(name: str, table: Table) -> str:
    return (
        f"CREATE VIRTUAL TABLE {index_name(name)} USING fts5([{terms_column(table)}],"
        f" content='{name}', content_rowid='{table.order}', tokenize='{_TOKENIZE}')"
    )


def is_index(sql: str) -> bool:
    """True if this statement makes an index of words as `create_index` has it."""
    return _OURS.match(sql) is not None


def lookup_fault(db: Database, name: str, table: Table) -> str | None:
    """Look up every word that the index has, and return what is wrong, if anything is.

    FTS5's own check reads the index from end to end. It does not notice that the way to a word is
    lost, and a search would then silently find nothing.
    """
    index = index_name(name)
    if db.rows(f"SELECT k, v FROM {index}_config") != _SETTINGS:
        return "its settings are not those of a new index"
    group = f"t.[{table.group}]" if table.group else "NULL"
    code = f"t.[{code_column(table)}]"
    if db.rows(
        f"SELECT 1 FROM {name} t LEFT JOIN {groups_name(name)} g ON g.code = {code} WHERE g.code IS"
        f" NULL OR g.value IS NOT {group} LIMIT 1"
    ):
        return "a row is in the wrong group"
    counted = f"SELECT {code}, count(*) FROM {name} t WHERE t.[{table.words}] <> '' GROUP BY 1"
    if dict(db.rows(f"SELECT code, rows FROM {groups_name(name)} WHERE rows <> 0")) != dict(
        db.rows(counted)
    ):
        return "a group has more or fewer rows than it says"
    db.execute(_make_vocabulary(name, "row"))
    lost = db.get(
        f"SELECT each.term FROM temp.{index}_row each WHERE (SELECT found.doc FROM"
        f" temp.{index}_row found WHERE found.term = each.term) IS NOT each.doc LIMIT 1"
    )
    return None if lost is None else f"the word {lost!r} is there and not found"


def _make_vocabulary(name: str, kind: str) -> str:
    """Return the statement that makes a table of the terms of an index: how many rows have each
    (`row`), or each place where one stands (`instance`). It is the connection's own, and not in the
    file.
    """
    index = index_name(name)
    return (
        f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{index}_{kind}"
        f" USING fts5vocab('main', '{index}', '{kind}')"
    )


def look_at_indexes(db: Database) -> None:
    """Have this connection read the structure of each index of words anew.

    A connection keeps it in memory, and a search looks if another connection has written since.
    SQLite's own check of a file does not look, and takes an index that has moved on for damaged.
    """
    for (name,) in db.rows(_INDEXES):
        quoted = name.replace('"', '""')  # from the file, which may be hostile
        db.rows(f'SELECT rowid FROM "{quoted}" WHERE "{quoted}" MATCH ? LIMIT 1', ("a",))


_INDEXES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'p_*'"
    " AND sql LIKE 'CREATE VIRTUAL TABLE % USING fts5(%'"
)


def check_index(db: Database, name: str) -> None:
    """Have FTS5 compare the index with the words in the table; raises if they differ.

    It writes nothing, but FTS5 takes it for a write.
    """
    index = index_name(name)
    db.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")


class WordStatements(NamedTuple):
    """SQL of one table with words, made once."""

    old: str  # the order, the words, the group and its code that stand under a key
    insert: str
    update: str
    add: str
    remove: str
    join: str  # counts a row in its group, and returns the code
    leave: str  # changes the number of rows of a group


def word_statements(name: str, table: Table) -> WordStatements:
    index, by_key = index_name(name), " AND ".join(f"[{column}] = ?" for column in table.key)
    code, terms = code_column(table), terms_column(table)
    columns = ", ".join(f"[{column}]" for column in (*table.columns, code))
    settable = ", ".join(f"[{column}] = ?" for column in (*settable_columns(table), code))
    groups, group = groups_name(name), f"[{table.group}]" if table.group else "NULL"
    return WordStatements(
        f"SELECT [{table.order}], [{table.words}], {group}, [{code}] FROM {name} WHERE {by_key}",
        f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' * (len(table.columns) + 1))})",
        f"UPDATE {name} SET {settable} WHERE [{table.order}] = ?",
        f"INSERT INTO {index} (rowid, [{terms}]) VALUES (?, ?)",
        f"INSERT INTO {index} ({index}, rowid, [{terms}]) VALUES ('delete', ?, ?)",
        f"INSERT INTO {groups} (value, rows) VALUES (?1, ?2) ON CONFLICT (value) DO UPDATE SET rows"
        " = rows + ?2 RETURNING code",
        f"UPDATE {groups} SET rows = rows + ? WHERE code = ?",
    )


def settable_columns(table: Table) -> list[str]:
    fixed = {*table.key, table.order}
    return [column for column in table.columns if column not in fixed]


class _Group(NamedTuple):
    """A group in which a search looks, or all groups together."""

    code: int | None  # None: all
    rows: int  # with words
    ranges: Sequence[Range]

    @property
    def is_whole(self) -> bool:
        return len(self.ranges) == 1 and self.ranges[0] == WHOLE

    def terms(self, word: str) -> tuple[str, str]:
        """Return the first and the last term that stand for a word."""
        if self.code is None:
            return f"{word}_", f"{word}_:"  # a colon comes after all digits
        return f"{word}_{self.code}", f"{word}_{self.code}"


_ALL_ROWS = ""  # the word before the sign and the code, in the term of all rows of a group
_encode = msgspec.json.Encoder().encode
_decode_places = msgspec.json.Decoder(list[int]).decode


class WordSearch:
    """Searches of one table, with their SQL made once."""

    def __init__(self, name: str, table: Table) -> None:
        index, order, near_group = index_name(name), table.order, ""
        self._name = name
        self._columns = list(table.columns)
        self._order, self._words = self._columns.index(order or ""), table.words or ""
        self._group = table.group
        self._vocabularies = [_make_vocabulary(name, kind) for kind in ("row", "instance")]
        self._groups = (
            f"SELECT g.value, g.code, g.rows FROM json_each(?) asked CROSS JOIN"
            f" {groups_name(name)} g ON g.value = asked.value"
        )
        self._total = f"SELECT sum(rows) FROM {groups_name(name)}"
        between = "WHERE term >= asked.value ->> 0 AND term <= asked.value ->> 1"
        self._counts = (
            f"SELECT (SELECT sum(doc) FROM temp.{index}_row {between}) FROM json_each(?) asked"
        )
        self._places = (
            f"SELECT (SELECT json_group_array(doc) FROM temp.{index}_instance {between})"
            " FROM json_each(?) asked"
        )
        # FTS5 keeps the number of terms of each row.
        self._sizes = (
            f"SELECT id, sz FROM {index}_docsize WHERE id IN (SELECT value FROM json_each(?))"
        )
        listed = ", ".join(f"t.[{column}]" for column in self._columns)
        self._rows = (
            f"SELECT {listed} FROM json_each(?) hit CROSS JOIN {name} t ON t.[{order}] = hit.value"
        )
        if table.group is not None:
            near_group = f" AND y.[{table.group}] IS x.[{table.group}]"
        self._near = {
            index[0]: _near_sql(name, listed, order or "", index[0], near_group)
            for index in table.indexes
        }

    def run(self, db: Database, query: Query) -> Found:
        """Search, inside a read transaction."""
        for statement in self._vocabularies:
            db.run(statement)
        groups = self._groups_of(db, query)
        if sum(group.rows for group in groups) <= _FEW_ROWS:
            counts, total = self._read(db, query.words, groups)
            having = {word: len(places) for word, places in counts.items()}
        else:
            counts, having, total = self._read_choosing(db, query, groups)
        weights = {word: weight_of(having[word], total) for word in query.words}
        chosen = {word: counts[word] for word in choosing_words(having, total)}
        lengths = self._lengths(db, chosen)
        mean = sum(lengths.values()) / len(lengths) if lengths else 0.0
        best = best_places(chosen, lengths, weights, mean, query.limit)
        rows = self._rows_at(db, [place for _, place in best])
        if has_common_words(having, chosen):
            texts = {place: str(row[self._words]) for place, row in rows.items()}
            best = ranked_by_all(best, texts, weights, mean)
        beside = self._neighbours(db, query, rows)
        found = [FoundRow(rows[at], score, *beside.get(at, ((), ()))) for score, at in best]
        return Found(tuple(found), weights, total, mean)

    def _groups_of(self, db: Database, query: Query) -> list[_Group]:
        if query.groups is None:
            return [_Group(None, db.get(self._total), query.ranges_of(None))]
        asked = db.rows(self._groups, (_encode([*query.groups]),))
        return [_Group(code, rows, query.groups[value]) for value, code, rows in asked if rows]

    def _read(
        self, db: Database, words: Sequence[str], groups: Sequence[_Group]
    ) -> tuple[dict[str, Counter[int]], int]:
        """Return how often the rows at their places have each word, and how many rows there are."""
        cut = [group for group in groups if not group.is_whole]
        pairs = [(group, word) for group in groups for word in words]
        pairs += [(group, _ALL_ROWS) for group in cut]
        asked = _encode([group.terms(word) for group, word in pairs])
        counts: dict[str, Counter[int]] = {word: Counter() for word in (*words, _ALL_ROWS)}
        for (group, word), (found,) in zip(pairs, db.rows(self._places, (asked,)), strict=True):
            places: Sequence[int] = _decode_places(found)
            if not group.is_whole:
                places = places_within(sorted(places), group.ranges)
            counts[word].update(places)
        total = sum(group.rows for group in groups if group.is_whole) + len(counts.pop(_ALL_ROWS))
        return counts, total

    def _read_choosing(
        self, db: Database, query: Query, groups: Sequence[_Group]
    ) -> tuple[dict[str, Counter[int]], dict[str, int], int]:
        """As `_read`, but common words of whole groups are only counted: the second value says how
        many rows have each word.
        """
        whole = [group for group in groups if group.is_whole]
        counts, total = self._read(db, query.words, [each for each in groups if not each.is_whole])
        total += sum(group.rows for group in whole)
        pairs = [(word, group) for word in query.words for group in whole]
        asked = _encode([group.terms(word) for word, group in pairs])
        having = {word: len(places) for word, places in counts.items()}
        for (word, _), (rows,) in zip(pairs, db.rows(self._counts, (asked,)), strict=True):
            having[word] += rows or 0
        read, _ = self._read(db, choosing_words(having, total), whole)
        return {word: counts[word] + places for word, places in read.items()}, having, total

    def _lengths(self, db: Database, counts: Mapping[str, Mapping[int, int]]) -> dict[int, int]:
        """Return the numbers of words of rows."""
        places = [*{*chain.from_iterable(counts.values())}]
        if not places:
            return {}
        sizes = db.rows(self._sizes, (_encode(places),))
        if len(sizes) < len(places):
            raise StoreCorrupt(f"the words of {self._name}", "a row has words and no length")
        known = {size: _number(size) - 1 for size in {size for _, size in sizes}}
        return {place: known[size] for place, size in sizes}

    def _rows_at(self, db: Database, places: Sequence[int]) -> dict[int, Row]:
        columns, order = self._columns, self._order
        found = db.rows(self._rows, (_encode(places),)) if places else ()
        if len(found) < len(places):
            raise StoreCorrupt(f"the words of {self._name}", "a row is found that is not there")
        return {row[order]: dict(zip(columns, row, strict=True)) for row in found}

    def _neighbours(
        self, db: Database, query: Query, rows: Mapping[int, Row]
    ) -> dict[int, tuple[tuple[Row, ...], tuple[Row, ...]]]:
        """Return the rows before and after each row, nearest first."""
        near = query.near
        if near is None or not query.distance:
            return {}
        hits = [
            (at, *self._range_of(query, at, row))
            for at, row in rows.items()
            if row[near] not in (None, "")
        ]
        if not hits:
            return {}
        before: dict[int, list[Row]] = {at: [] for at, _, _ in hits}
        after: dict[int, list[Row]] = {at: [] for at, _, _ in hits}
        found = db.rows(self._near[near], (_encode(hits), query.distance))
        columns, order = self._columns, self._order
        found.sort(key=itemgetter(order))
        for row in found:
            side = before if row[order] < row[-1] else after
            # A value more stands behind the columns of each row: what `zip` leaves over.
            side[row[-1]].append(dict(zip(columns, row, strict=False)))
        return {at: (tuple(before[at][::-1]), tuple(after[at])) for at in before}

    def _range_of(self, query: Query, place: int, row: Row) -> Range:
        group = row[self._group] if self._group else None
        ranges = query.ranges_of(group if isinstance(group, str) else None)
        return next(each for each in ranges if each[0] <= place <= each[1])


def _near_sql(name: str, listed: str, order: str, near: str, group: str) -> str:
    sides = [
        f"SELECT place FROM (SELECT y.[{order}] AS place FROM {name} y WHERE y.[{near}] ="
        f" x.[{near}]{group} AND y.[{order}] {beyond} ORDER BY y.[{order}] {way} LIMIT ?2)"
        for beyond, way in (
            (f"< x.[{order}] AND y.[{order}] >= hit.value ->> 1", "DESC"),
            (f"> x.[{order}] AND y.[{order}] <= hit.value ->> 2", "ASC"),
        )
    ]
    return (
        f"SELECT {listed}, x.[{order}] FROM json_each(?1) hit CROSS JOIN {name} x"
        f" ON x.[{order}] = hit.value ->> 0 CROSS JOIN {name} t ON t.[{order}]"
        f" IN ({' UNION ALL '.join(sides)})"
    )


def _number(data: bytes) -> int:
    """Read the number at the start of a record, 7 bits to a byte, the high ones first."""
    number = 0
    for byte in data:
        number = number << 7 | byte & 127
        if byte < 128:
            break
    return number
