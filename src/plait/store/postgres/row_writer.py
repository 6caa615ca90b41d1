"""Rows of a projection inside the transaction of a fold: read together, written together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from psycopg import pq

from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.fold_tables import NO_GROUP, counts_name, groups_name, words_name
from plait.store.postgres.pipeline import SqlStatement, ask_together
from plait.store.postgres.row_statements import Key, TableStatements
from plait.store.postgres.schema import quote_name
from plait.store.projection import Row, Scalar, Table
from plait.store.rows import checked_row


class RowWriter:
    """`Rows` that are loaded before a page of events is applied, and flushed after it."""

    def __init__(
        self, db: ServerConnection, schema: str, statements: Mapping[str, TableStatements]
    ) -> None:
        self._db = db
        self._tables = {name: _TableWriter(db, schema, each) for name, each in statements.items()}

    def load(self, wanted: Mapping[str, set[Key]]) -> None:
        """Read rows by their keys, of all tables together."""
        asked = [(self._tables[table], keys) for table, keys in wanted.items()]
        missing = [(writer, found) for writer, keys in asked if (found := writer.missing(keys))]
        asked_for = [writer.statements.load(keys) for writer, keys in missing]
        if not asked_for:
            return
        for (writer, _), result in zip(missing, ask_together(self._db, asked_for), strict=True):
            writer.take(result)

    def has_loaded(self, table: str, key: Key) -> bool:
        return self._tables[table].has(key)

    def get(self, table: str, *key: Scalar) -> Row | None:
        writer = self._tables[table]
        if not writer.has(key):
            self.load({table: {key}})
        row = writer.get(key)
        return None if row is None else dict(row)

    def put(self, table: str, row: Row) -> None:
        writer = self._tables[table]
        kept = checked_row(writer.statements.shape, row)
        writer.changed[tuple([kept[column] for column in writer.statements.shape.key])] = kept

    def delete(self, table: str, *key: Scalar) -> None:
        self._tables[table].changed[key] = None

    def flush(self) -> list[SqlStatement]:
        """Return the statements that write all changes, for the caller to run."""
        self.load({name: writer.unread_words() for name, writer in self._tables.items()})
        return [each for writer in self._tables.values() for each in writer.flush()]


class _TableWriter:
    """One table: rows as they stand, and as they will."""

    def __init__(self, db: ServerConnection, schema: str, statements: TableStatements) -> None:
        self._db, self.statements, self._shape = db, statements, statements.shape
        has_words = self._shape.words is not None
        self._words = _WordWriter(db, schema, statements.name) if has_words else None
        self._there: dict[Key, Row | None] = {}
        self.changed: dict[Key, Row | None] = {}

    def has(self, key: Key) -> bool:
        return key in self.changed or key in self._there

    def get(self, key: Key) -> Row | None:
        return self.changed[key] if key in self.changed else self._there[key]

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Return the keys that have to be asked for; from now on none of these is missing."""
        missing = [key for key in keys if key not in self._there]
        for key in missing:
            self._there[key] = None
        return [key for key in missing if self._can_be_key(key)]

    def take(self, result: pq.abc.PGresult) -> None:
        for row in self.statements.rows_in(self._db, result):
            self._there[tuple([row[each] for each in self._shape.key])] = row

    def unread_words(self) -> set[Key]:
        """Return the keys of changed rows whose words have to be known."""
        if self._words is None:
            return set()
        return {key for key in self.changed if key not in self._there}

    def flush(self) -> list[SqlStatement]:
        """Return the statements that write the changes: rows that go, and rows that come. Their
        words are written.
        """
        if not self.changed:
            return []
        gone = [key for key, row in self.changed.items() if row is None]
        kept = [row for row in self.changed.values() if row is not None]
        more: list[list[Scalar]] = []
        if self._words is not None:
            self._words.change(self._shape, self._there, self.changed)
            more = self._words.columns(self._shape, kept)
        self._there = {**self._there, **self.changed} if len(self._there) < 100_000 else {}
        self.changed = {}
        removes = [self.statements.remove(gone)] if gone else []
        return [*removes, self.statements.put(kept, more)] if kept else removes

    def _can_be_key(self, key: Key) -> bool:
        """True if the columns of the key can hold these values: else no row has it."""
        kinds = [self._shape.columns[each] for each in self._shape.key]
        return all(_fits(kind, value) for kind, value in zip(kinds, key, strict=True))


class _WordWriter:
    """The index of words of one table."""

    def __init__(self, db: ServerConnection, schema: str, name: str) -> None:
        self._db = db
        self._words, self._counts, self._groups = (
            f"{schema}.{quote_name(each)}"
            for each in (words_name(name), counts_name(name), groups_name(name))
        )
        self._codes: dict[Scalar, int] = {}

    def change(
        self, table: Table, there: Mapping[Key, Row | None], changed: Mapping[Key, Row | None]
    ) -> None:
        """Bring the index from the rows that are there to those that will be."""
        self._load_codes(table, changed.values())
        self._load_codes(table, [there.get(key) for key in changed])
        removed: list[tuple[bytes, int, int]] = []
        added: list[tuple[bytes, int, int, int]] = []
        counts: Counter[tuple[bytes, int]] = Counter()
        groups: Counter[int] = Counter()
        for key, new in changed.items():
            old = there.get(key)
            before, after = self._terms(table, old), self._terms(table, new)
            if before == after:
                continue
            for sign, terms in ((-1, before), (1, after)):
                if terms is None:
                    continue
                code, place, words = terms
                groups[code] += sign
                for word, times in words.items():
                    counts[word, code] += sign
                    if sign < 0:
                        removed.append((word, code, place))
                    else:
                        added.append((word, code, place, times))
        self._write(removed, added, counts, groups)

    def columns(self, table: Table, rows: list[Row]) -> list[list[Scalar]]:
        """Return the sizes and the codes of the groups of rows, as columns."""
        sizes: list[Scalar] = [_count_words(row[table.words or ""]) for row in rows]
        codes: list[Scalar] = [self._code(table, row) for row in rows]
        return [sizes, codes]

    def _terms(self, table: Table, row: Row | None) -> tuple[int, int, Counter[bytes]] | None:
        """Return the code of the group, the place and the words of a row that has words."""
        words = row[table.words or ""] if row is not None else None
        if row is None or not words:
            return None
        place = row[table.order or ""]
        assert isinstance(place, int)
        return self._code(table, row), place, Counter(str(words).encode().split(b" "))

    def _code(self, table: Table, row: Row) -> int:
        group = row[table.group] if table.group else None
        return NO_GROUP if group is None else self._codes[group]

    def _load_codes(self, table: Table, rows: Iterable[Row | None]) -> None:
        if table.group is None:
            return
        groups = {row[table.group] for row in rows if row is not None} - {None}
        missing = sorted([str(group).encode() for group in groups if group not in self._codes])
        if not missing:
            return
        self._db.run(
            f"INSERT INTO {self._groups} (code, value, rows) SELECT (SELECT coalesce(max(code), 0)"
            f" FROM {self._groups}) + n, value, 0 FROM unnest($1::bytea[]) WITH ORDINALITY AS new"
            f" (value, n) WHERE NOT EXISTS (SELECT 1 FROM {self._groups} g WHERE g.value ="
            " new.value)",
            missing,
        )
        rows_found = self._db.rows(
            f"SELECT value, code FROM {self._groups} WHERE value = ANY($1::bytea[])", missing
        )
        self._codes.update((value.decode(), code) for value, code in rows_found)

    def _write(
        self,
        removed: list[tuple[bytes, int, int]],
        added: list[tuple[bytes, int, int, int]],
        counts: Mapping[tuple[bytes, int], int],
        groups: Mapping[int, int],
    ) -> None:
        if removed:
            self._db.run(
                f"DELETE FROM {self._words} t USING unnest($1::bytea[], $2::int4[], $3::int8[]) AS"
                " k (word, code, place) WHERE t.word = k.word AND t.code = k.code AND t.place ="
                " k.place",
                *_columns(removed, 3),
            )
        if added:
            self._db.run(
                f"INSERT INTO {self._words} (word, code, place, times) SELECT * FROM"
                " unnest($1::bytea[], $2::int4[], $3::int8[], $4::int4[])",
                *_columns(added, 4),
            )
        moved = [(word, code, change) for (word, code), change in counts.items() if change]
        if moved:
            self._db.run(
                f"INSERT INTO {self._counts} AS old (word, code, rows) SELECT * FROM"
                " unnest($1::bytea[], $2::int4[], $3::int8[]) ON CONFLICT (word, code) DO UPDATE"
                " SET rows = old.rows + excluded.rows",
                *_columns(moved, 3),
            )
        sizes = [(code, change) for code, change in groups.items() if change]
        if sizes:
            self._db.run(
                f"INSERT INTO {self._groups} AS old (code, rows) SELECT * FROM unnest($1::int4[],"
                " $2::int8[]) ON CONFLICT (code) DO UPDATE SET rows = old.rows + excluded.rows",
                *_columns(sizes, 2),
            )


def _columns(rows: list[Any], width: int) -> list[list[Any]]:
    return [[row[number] for row in rows] for number in range(width)]


def _count_words(words: Scalar) -> int | None:
    return str(words).count(" ") + 1 if words else None


def _fits(kind: str, value: Scalar) -> bool:
    if value is None:
        return False
    if kind == "text":
        return isinstance(value, str)
    if kind == "blob":
        return isinstance(value, bytes)
    if kind == "integer":
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, (int, float))
