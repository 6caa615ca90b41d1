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
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from plait.store.projection import Row, Scalar, Table
from plait.store.search import Found, Query
from plait.store.sqlite.database import Database
from plait.store.word_search import Beside, GroupWord, SearchedGroup, search_words, sides_of

# Every term is one token as it stands: plain Latin letters, digits and the sign before the code.
_TOKENIZE = "unicode61 remove_diacritics 0 tokenchars _"
_SETTINGS = [("version", 4)]  # of an index that was made and never configured
NO_GROUP = 0  # the code of rows that are of no group
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


_encode = msgspec.json.Encoder().encode
_decode_places = msgspec.json.Decoder(list[int]).decode


def _terms(group: SearchedGroup, word: str) -> tuple[str, str]:
    """Return the first and the last term that stand for a word of a group."""
    if group.code is None:
        return f"{word}_", f"{word}_:"  # a colon comes after all digits
    return f"{word}_{group.code}", f"{word}_{group.code}"


class WordSearch:
    """Searches of one table, with their SQL made once."""

    def __init__(self, name: str, table: Table) -> None:
        index, order, near_group = index_name(name), table.order, ""
        self.name, self.shape = name, table
        self.columns = list(table.columns)
        self.order = self.columns.index(order or "")
        self.vocabularies = [_make_vocabulary(name, kind) for kind in ("row", "instance")]
        self.groups = (
            f"SELECT g.value, g.code, g.rows FROM json_each(?) asked CROSS JOIN"
            f" {groups_name(name)} g ON g.value = asked.value"
        )
        self.total = f"SELECT sum(rows) FROM {groups_name(name)}"
        between = "WHERE term >= asked.value ->> 0 AND term <= asked.value ->> 1"
        self.counts = (
            f"SELECT (SELECT sum(doc) FROM temp.{index}_row {between}) FROM json_each(?) asked"
        )
        self.places = (
            f"SELECT (SELECT json_group_array(doc) FROM temp.{index}_instance {between})"
            " FROM json_each(?) asked"
        )
        # FTS5 keeps the number of terms of each row.
        self.sizes = (
            f"SELECT id, sz FROM {index}_docsize WHERE id IN (SELECT value FROM json_each(?))"
        )
        listed = ", ".join(f"t.[{column}]" for column in self.columns)
        self.rows = (
            f"SELECT {listed} FROM json_each(?) hit CROSS JOIN {name} t ON t.[{order}] = hit.value"
        )
        if table.group is not None:
            near_group = f" AND y.[{table.group}] IS x.[{table.group}]"
        self.near = {
            index[0]: _near_sql(name, listed, order or "", index[0], near_group)
            for index in table.indexes
        }

    def run(self, db: Database, query: Query) -> Found:
        """Search, inside a read transaction."""
        for statement in self.vocabularies:
            db.run(statement)
        return search_words(self.name, self.shape, _SqliteWords(db, self), query)


class _SqliteWords:
    """`WordTable` by the statements of a search, on one connection."""

    def __init__(self, db: Database, sql: WordSearch) -> None:
        self._db, self._sql = db, sql

    def groups(self, query: Query) -> list[SearchedGroup]:
        if query.groups is None:
            total = self._db.get(self._sql.total)
            return [SearchedGroup(None, total, query.ranges_of(None))]
        asked = self._db.rows(self._sql.groups, (_encode([*query.groups]),))
        return [
            SearchedGroup(code, rows, query.groups[value]) for value, code, rows in asked if rows
        ]

    def places(self, pairs: Sequence[GroupWord]) -> list[list[int]]:
        asked = _encode([_terms(group, word) for group, word in pairs])
        return [_decode_places(found) for (found,) in self._db.rows(self._sql.places, (asked,))]

    def counts(self, pairs: Sequence[GroupWord]) -> list[int]:
        asked = _encode([_terms(group, word) for group, word in pairs])
        return [rows or 0 for (rows,) in self._db.rows(self._sql.counts, (asked,))]

    def lengths(self, places: Sequence[int]) -> dict[int, int]:
        sizes = self._db.rows(self._sql.sizes, (_encode(places),))
        known = {size: _number(size) - 1 for size in {size for _, size in sizes}}
        return {place: known[size] for place, size in sizes}

    def rows_at(self, places: Sequence[int]) -> dict[int, Row]:
        columns, order = self._sql.columns, self._sql.order
        found = self._db.rows(self._sql.rows, (_encode(places),))
        return {row[order]: dict(zip(columns, row, strict=True)) for row in found}

    def neighbours(self, near: str, distance: int, hits: Sequence[tuple[int, int, int]]) -> Beside:
        found = self._db.rows(self._sql.near[near], (_encode(hits), distance))
        columns, order = self._sql.columns, self._sql.order
        # A value more stands behind the columns of each row: what `zip` leaves over.
        rows = [(row[order], row[-1], dict(zip(columns, row, strict=False))) for row in found]
        return sides_of(hits, rows)


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
