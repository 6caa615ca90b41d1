"""Rows of a projection inside the transaction of a fold: read together, written together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.fold_tables import (
    CODE_COLUMN,
    NO_GROUP,
    SIZE_COLUMN,
    TYPES,
    counts_name,
    groups_name,
    quote_names,
    table_name,
    to_column,
    to_rows,
    words_name,
)
from plait.store.postgres.schema import quote_name
from plait.store.projection import Projection, Row, Scalar, Table
from plait.store.rows import checked_row

_Key = tuple[Scalar, ...]


class RowWriter:
    """`Rows` that are loaded before a page of events is applied, and flushed after it."""

    def __init__(self, db: ServerConnection, schema: str, projection: Projection) -> None:
        self._tables = {
            table.name: _TableWriter(db, schema, table_name(projection, table.name), table)
            for table in projection.tables
        }

    def load(self, wanted: Mapping[str, set[_Key]]) -> None:
        for table, keys in wanted.items():
            self._tables[table].load(keys)

    def get(self, table: str, *key: Scalar) -> Row | None:
        row = self._tables[table].get(key)
        return None if row is None else dict(row)

    def put(self, table: str, row: Row) -> None:
        writer = self._tables[table]
        kept = checked_row(writer.shape, row)
        writer.changed[tuple([kept[column] for column in writer.shape.key])] = kept

    def delete(self, table: str, *key: Scalar) -> None:
        self._tables[table].changed[key] = None

    def flush(self) -> None:
        for writer in self._tables.values():
            writer.flush()


class _TableWriter:
    """One table: rows as they stand, and as they will."""

    def __init__(self, db: ServerConnection, schema: str, name: str, table: Table) -> None:
        self._db, self.shape = db, table
        self._name = f"{schema}.{quote_name(name)}"
        self._words = None if table.words is None else _WordWriter(db, schema, name)
        self._there: dict[_Key, Row | None] = {}
        self.changed: dict[_Key, Row | None] = {}

    def get(self, key: _Key) -> Row | None:
        if key in self.changed:
            return self.changed[key]
        if key not in self._there:
            self.load({key})
        return self._there[key]

    def load(self, keys: Iterable[_Key]) -> None:
        """Read rows by their keys, in one statement."""
        missing = [key for key in keys if key not in self._there and self._can_be_key(key)]
        for key in keys:
            self._there.setdefault(key, None)
        if not missing:
            return
        columns = self.shape.columns
        asked = _unnest([columns[each] for each in self.shape.key])
        joined = " AND ".join(
            f"t.{quote_name(each)} = k.c{number}" for number, each in enumerate(self.shape.key)
        )
        listed = ", ".join(f"t.{quote_name(each)}" for each in columns)
        names = ", ".join(f"c{number}" for number in range(len(self.shape.key)))
        rows = self._db.rows(
            f"SELECT {listed} FROM {asked} AS k ({names}) JOIN {self._name} t ON {joined}",
            *self._key_columns(missing),
        )
        for row in to_rows(self.shape, rows):
            self._there[tuple([row[each] for each in self.shape.key])] = row

    def flush(self) -> None:
        """Write the changes: rows that go, rows that come, and their words."""
        if not self.changed:
            return
        if self._words is not None:
            self.load([key for key in self.changed if key not in self._there])
            self._words.change(self.shape, self._there, self.changed)
        gone = [key for key, row in self.changed.items() if row is None]
        kept = [row for row in self.changed.values() if row is not None]
        if gone:
            self._remove(gone)
        if kept:
            self._put(kept)
        self._there = {**self._there, **self.changed} if len(self._there) < 100_000 else {}
        self.changed = {}

    def _remove(self, keys: list[_Key]) -> None:
        columns = self.shape.columns
        asked = _unnest([columns[each] for each in self.shape.key])
        names = ", ".join(f"c{number}" for number in range(len(self.shape.key)))
        joined = " AND ".join(
            f"t.{quote_name(each)} = k.c{number}" for number, each in enumerate(self.shape.key)
        )
        self._db.run(
            f"DELETE FROM {self._name} t USING {asked} AS k ({names}) WHERE {joined}",
            *self._key_columns(keys),
        )

    def _put(self, rows: list[Row]) -> None:
        kinds = dict(self.shape.columns)
        values = [[to_column(kind, row[column]) for row in rows] for column, kind in kinds.items()]
        names = [*kinds]
        if self._words is not None:
            kinds |= {SIZE_COLUMN: "integer", CODE_COLUMN: "integer"}
            values += self._words.columns(self.shape, rows)
            names += [SIZE_COLUMN, CODE_COLUMN]
        settable = [each for each in names if each not in self.shape.key]
        update = ", ".join(f"{quote_name(each)} = excluded.{quote_name(each)}" for each in settable)
        act = f"UPDATE SET {update}" if settable else "NOTHING"
        self._db.run(
            f"INSERT INTO {self._name} ({quote_names(names)}) SELECT * FROM"
            f" {_unnest(kinds.values())} ON CONFLICT ({quote_names(self.shape.key)}) DO {act}",
            *values,
        )

    def _key_columns(self, keys: list[_Key]) -> list[list[Scalar]]:
        kinds = [self.shape.columns[each] for each in self.shape.key]
        return [[to_column(kind, key[number]) for key in keys] for number, kind in enumerate(kinds)]

    def _can_be_key(self, key: _Key) -> bool:
        """True if the columns of the key can hold these values: else no row has it."""
        kinds = [self.shape.columns[each] for each in self.shape.key]
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
        self, table: Table, there: Mapping[_Key, Row | None], changed: Mapping[_Key, Row | None]
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


def _unnest(kinds: Iterable[str]) -> str:
    arrays = [f"${number}::{TYPES[kind]}[]" for number, kind in enumerate(kinds, 1)]
    return f"unnest({', '.join(arrays)})"


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
