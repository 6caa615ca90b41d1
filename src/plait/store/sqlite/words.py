"""Words of a projection's rows in SQLite: an FTS5 index over the projection's own table.

The index has no copy of the words: it reads them from the table (external content). So each change
of a row tells the index the words that it had before. A row whose words stay the same does
not touch the index.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from plait.store.projection import Row, Scalar, Table
from plait.store.search import (
    Found,
    FoundRow,
    Query,
    choosing_words,
    score_of,
    weight_of,
)
from plait.store.sqlite.database import Database

# Every word is one token as it stands: the words are plain Latin letters and digits.
_TOKENIZE = "unicode61 remove_diacritics 0"
_SETTINGS = [("version", 4)]  # of an index that was made and never configured
_MORE = 25  # times as many rows as asked for are ranked before it is asked which of them count
_OURS = re.compile(
    r"CREATE VIRTUAL TABLE (p_\w+)__words USING fts5\(\[\w+\], content='\1', content_rowid='\w+',"
    rf" tokenize='{_TOKENIZE}'\)\Z"
)


def index_name(name: str) -> str:
    """Return the name of the index of a table. A double underscore stands in no table's name."""
    return f"{name}__words"


def create_index(name: str, table: Table) -> str:
    return (
        f"CREATE VIRTUAL TABLE {index_name(name)} USING fts5([{table.words}], content='{name}',"
        f" content_rowid='{table.order}', tokenize='{_TOKENIZE}')"
    )


def is_index(sql: str) -> bool:
    """True if this statement makes an index of words as `create_index` has it."""
    return _OURS.match(sql) is not None


def lookup_fault(db: Database, name: str) -> str | None:
    """Look up every word that the index has, and return what is wrong, if anything is.

    FTS5's own check reads the index from end to end. It does not notice that the way to a word is
    lost, and a search would then silently find nothing.
    """
    index = index_name(name)
    if db.rows(f"SELECT k, v FROM {index}_config") != _SETTINGS:
        return "its settings are not those of a new index"
    db.execute(_make_counts(name))
    lost = db.get(
        f"SELECT each.term FROM temp.{index}_counts each WHERE (SELECT found.doc FROM"
        f" temp.{index}_counts found WHERE found.term = each.term) IS NOT each.doc LIMIT 1"
    )
    return None if lost is None else f"the word {lost!r} is there and not found"


def _make_counts(name: str) -> str:
    """Return the statement that makes a table of the words of an index, and of how many rows have
    each. It is the connection's own, and not in the file.
    """
    index = index_name(name)
    return (
        f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{index}_counts"
        f" USING fts5vocab('main', '{index}', 'row')"
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

    old: str  # the order and the words that stand under a key
    insert: str
    update: str | None  # of all but the key and the order; None: there is nothing else
    add: str
    remove: str


def word_statements(name: str, table: Table) -> WordStatements:
    index, by_key = index_name(name), " AND ".join(f"[{column}] = ?" for column in table.key)
    columns = ", ".join(f"[{column}]" for column in table.columns)
    settable = ", ".join(f"[{column}] = ?" for column in settable_columns(table))
    return WordStatements(
        f"SELECT [{table.order}], [{table.words}] FROM {name} WHERE {by_key}",
        f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' * len(table.columns))})",
        f"UPDATE {name} SET {settable} WHERE [{table.order}] = ?" if settable else None,
        f"INSERT INTO {index} (rowid, [{table.words}]) VALUES (?, ?)",
        f"INSERT INTO {index} ({index}, rowid, [{table.words}]) VALUES ('delete', ?, ?)",
    )


def settable_columns(table: Table) -> list[str]:
    fixed = {*table.key, table.order}
    return [column for column in table.columns if column not in fixed]


class WordSearch:
    """Searches of one table, with their SQL made once."""

    def __init__(self, name: str, table: Table) -> None:
        self._name, self._table = name, table
        self._columns = list(table.columns)
        self._order = list(table.columns).index(table.order or "")
        self._statements: dict[tuple[object, ...], tuple[str, str, str]] = {}
        index = index_name(name)
        # It counts the rows that have a word faster than a search for it, by a third at 100,000
        # rows.
        self._make_counts = _make_counts(name)
        self._counts = (
            f"SELECT term, doc FROM temp.{index}_counts WHERE term IN"
            " (SELECT value FROM json_each(?))"
        )
        # The record that FTS5 itself takes both figures from: counting the rows would read them.
        self._totals = f"SELECT block FROM {index}_data WHERE id = 1"

    def run(self, db: Database, query: Query) -> Found:
        """Search, inside a read transaction."""
        db.execute(self._make_counts)
        total, words = _two_numbers(db.get(self._totals) or b"\0\0")
        mean = words / total if total else 0.0
        having = dict(db.rows(self._counts, (_json_list(query.words),)))
        weights = {word: weight_of(having.get(word, 0), total) for word in query.words}
        choosing = choosing_words(query.words, having, total)
        first, all_rows, near = self._sql(query)
        values = [value for some in query.among.values() for value in some if value is not None]
        asked = " OR ".join(choosing), query.upto, query.limit, *values
        best = db.rows(first, asked)
        if query.among and len(best) < query.limit:
            best = db.rows(all_rows, asked)
        columns, order = self._columns, self._order
        # A value more stands behind the columns of each row: what `zip` leaves over.
        hits = [(-row[-1], row[order], dict(zip(columns, row, strict=False))) for row in best]
        if len(choosing) < len(query.words):
            hits = self._ranked(hits, weights, mean)
        beside = self._neighbours(db, near, query, hits, values)
        return Found(
            tuple([FoundRow(row, score, *beside.get(at, ((), ()))) for score, at, row in hits]),
            weights,
            total,
            mean,
        )

    def _ranked(
        self, hits: list[tuple[float, int, Row]], weights: Mapping[str, float], mean: float
    ) -> list[tuple[float, int, Row]]:
        """Rank chosen rows by all words."""
        ranked: list[tuple[float, int, Row]] = []
        for _, at, row in hits:
            words = str(row[self._table.words or ""]).split(" ")
            counts = {word: words.count(word) for word in weights}
            ranked.append((score_of(counts, len(words), weights, mean), at, row))
        return sorted(ranked, key=lambda hit: (-hit[0], hit[1]))

    def _neighbours(
        self,
        db: Database,
        sql: str,
        query: Query,
        hits: Sequence[tuple[float, int, Row]],
        values: Sequence[Scalar],
    ) -> dict[int, tuple[tuple[Row, ...], tuple[Row, ...]]]:
        """Return the rows before and after each row, nearest first."""
        if query.near is None or not query.distance:
            return {}
        places = [at for _, at, row in hits if row[query.near] not in (None, "")]
        before: dict[int, list[Row]] = {at: [] for at in places}
        after: dict[int, list[Row]] = {at: [] for at in places}
        found = db.rows(sql, (str(places), query.upto, query.distance, *values))
        columns, order = self._columns, self._order
        found.sort(key=itemgetter(order))
        for row in found:
            side = before if row[order] < row[-1] else after
            side[row[-1]].append(dict(zip(columns, row, strict=False)))
        return {at: (tuple(before[at][::-1]), tuple(after[at])) for at in places}

    def _sql(self, query: Query) -> tuple[str, str, str]:
        """Return the statements of this shape of query: two for rows, one for neighbours."""
        shape = query.near, *((column, *_kinds(some)) for column, some in query.among.items())
        made = self._statements.get(shape)
        if made is None:
            made = self._first_sql(query), self._all_sql(query), self._near_sql(query)
            self._statements[shape] = made
        return made

    def _first_sql(self, query: Query) -> str:
        """Look for rows among the best of the whole table. They are most often there, and looking
        at every row that has a word costs more than all the rest.
        """
        # FTS5's own `ORDER BY rank` is slower than a plain sort, and says nothing of equal ranks.
        index, among = index_name(self._name), _among_sql("t", query)
        return self._rows_sql(
            f"SELECT rowid AS place, bm25({index}) AS rank FROM {index} WHERE {index} MATCH ?1"
            f" AND rowid <= ?2 ORDER BY rank, place LIMIT ?3{f' * {_MORE}' if among else ''}",
            f" WHERE true{among} LIMIT ?3",
        )

    def _all_sql(self, query: Query) -> str:
        """Look at all rows that have a word, and rank those among the ones asked for."""
        index, order = index_name(self._name), self._table.order
        return self._rows_sql(
            f"SELECT x.[{order}] AS place, bm25({index}) AS rank FROM {index} CROSS JOIN"
            f" {self._name} x ON x.[{order}] = {index}.rowid WHERE {index} MATCH ?1 AND"
            f" {index}.rowid <= ?2{_among_sql('x', query)} ORDER BY rank, place LIMIT ?3",
            "",
        )

    def _rows_sql(self, best: str, only: str) -> str:
        # SQLite keeps a subquery with a LIMIT whole: its rows come in the order of their ranks.
        return (
            f"SELECT {self._listed('t')}, best.rank FROM ({best}) best CROSS JOIN {self._name} t"
            f" ON t.[{self._table.order}] = best.place{only}"
        )

    def _near_sql(self, query: Query) -> str:
        order, near = self._table.order, query.near
        sides = [
            f"SELECT place FROM (SELECT y.[{order}] AS place FROM {self._name} y WHERE y.[{near}] ="
            f" x.[{near}] AND y.[{order}] {beyond} AND y.[{order}] <= ?2{_among_sql('y', query)}"
            f" ORDER BY y.[{order}] {way} LIMIT ?3)"
            for beyond, way in ((f"< x.[{order}]", "DESC"), (f"> x.[{order}]", "ASC"))
        ]
        return (
            f"SELECT {self._listed('t')}, x.[{order}] FROM json_each(?1) hit CROSS JOIN"
            f" {self._name} x ON x.[{order}] = hit.value CROSS JOIN {self._name} t ON t.[{order}]"
            f" IN ({' UNION ALL '.join(sides)})"
        )

    def _listed(self, table: str) -> str:
        return ", ".join(f"{table}.[{column}]" for column in self._columns)


def _among_sql(table: str, query: Query) -> str:
    """Return conditions for the values asked for, which are parameters from the fourth on."""
    sql, number = "", 4
    for column, some in query.among.items():
        count, has_none = _kinds(some)
        marks = ", ".join(f"?{number + i}" for i in range(count))
        # The plus keeps SQLite from walking an index on this column: it would read every row of a
        # scope to find the next one of a source.
        or_null = f" OR +{table}.[{column}] IS NULL" if has_none else ""
        sql += f" AND (+{table}.[{column}] IN ({marks}){or_null})"
        number += count
    return sql


def _kinds(values: Collection[Scalar]) -> tuple[int, bool]:
    """Return how many values there are besides None, and whether None is one."""
    count = sum(value is not None for value in values)
    return count, count < len(values)


def _json_list(words: Sequence[str]) -> str:
    return '["' + '","'.join(words) + '"]'


def _two_numbers(data: bytes) -> tuple[int, int]:
    """Read the two numbers at the start of a record, 7 bits to a byte, the high ones first."""
    found: list[int] = []
    number = 0
    for byte in data:
        number = number << 7 | byte & 127
        if byte < 128:
            found.append(number)
            number = 0
    first, second = found  # raises ValueError if the record is damaged
    return first, second
