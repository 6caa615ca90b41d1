"""Search by words in a PostgreSQL store, and the check of its index."""

from __future__ import annotations

from collections.abc import Sequence

from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.fold_tables import (
    CODE_COLUMN,
    SIZE_COLUMN,
    counts_name,
    groups_name,
    to_rows,
    words_name,
)
from plait.store.postgres.schema import quote_name
from plait.store.projection import Row, Table
from plait.store.search import Query
from plait.store.word_search import ALL_ROWS, Beside, GroupWord, SearchedGroup, sides_of


class PostgresWords:
    """`WordTable` on one connection, inside a transaction with one snapshot."""

    def __init__(self, db: ServerConnection, schema: str, name: str, table: Table) -> None:
        self._db, self._table = db, table
        self._name = f"{schema}.{quote_name(name)}"
        self._words, self._counts, self._groups = (
            f"{schema}.{quote_name(each)}"
            for each in (words_name(name), counts_name(name), groups_name(name))
        )
        self._order = quote_name(table.order or "")
        self._listed = ", ".join(f"t.{quote_name(column)}" for column in table.columns)

    def groups(self, query: Query) -> list[SearchedGroup]:
        if query.groups is None:
            total = self._db.get(f"SELECT coalesce(sum(rows), 0)::int8 FROM {self._groups}")
            return [SearchedGroup(None, total, query.ranges_of(None))]
        asked = [group.encode() for group in query.groups]
        rows = self._db.rows(
            f"SELECT value, code, rows FROM {self._groups} WHERE value = ANY($1::bytea[])"
            " AND rows > 0",
            asked,
        )
        return [
            SearchedGroup(code, count, query.groups[value.decode()]) for value, code, count in rows
        ]

    def places(self, pairs: Sequence[GroupWord]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in pairs]
        words = [(n, each) for n, each in enumerate(pairs) if each[1] != ALL_ROWS]
        sql = (
            "SELECT asked.n, w.place, w.times FROM unnest($1::int4[], $2::bytea[], $3::int4[]) AS"
            f" asked (n, word, code) JOIN {self._words} w ON w.word = asked.word AND"
            " (asked.code IS NULL OR w.code = asked.code)"
        )
        values = (
            [n for n, _ in words],
            [word.encode() for _, (_, word) in words],
            [group.code for _, (group, _) in words],
        )
        for n, place, times in self._db.rows(sql, *values) if words else ():
            found[n] += [place] * times
        for n, (group, word) in enumerate(pairs):
            if word == ALL_ROWS:
                found[n] = self._all_places(group)
        return found

    def _all_places(self, group: SearchedGroup) -> list[int]:
        only = "" if group.code is None else f" AND {CODE_COLUMN} = {group.code}"
        ranges = [
            f"{self._order} BETWEEN {int(first)} AND {int(last)}" for first, last in group.ranges
        ]
        rows = self._db.rows(
            f"SELECT {self._order} FROM {self._name} WHERE {SIZE_COLUMN} > 0{only}"
            f" AND ({' OR '.join(ranges) or 'false'})"
        )
        return [place for (place,) in rows]

    def counts(self, pairs: Sequence[GroupWord]) -> list[int]:
        sql = (
            "SELECT (SELECT coalesce(sum(c.rows), 0)::int8 FROM"
            f" {self._counts} c WHERE c.word = asked.word AND (asked.code IS NULL OR c.code ="
            " asked.code)) FROM unnest($1::bytea[], $2::int4[]) WITH ORDINALITY AS asked (word,"
            " code, n) ORDER BY asked.n"
        )
        words, codes = [word.encode() for _, word in pairs], [group.code for group, _ in pairs]
        return [rows for (rows,) in self._db.rows(sql, words, codes)] if pairs else []

    def lengths(self, places: Sequence[int]) -> dict[int, int]:
        return dict(
            self._db.rows(
                f"SELECT {self._order}, {SIZE_COLUMN} FROM {self._name} WHERE {self._order} ="
                f" ANY($1::int8[]) AND {SIZE_COLUMN} > 0",
                list(places),
            )
        )

    def rows_at(self, places: Sequence[int]) -> dict[int, Row]:
        rows = self._db.rows(
            f"SELECT t.{self._order}, {self._listed} FROM {self._name} t WHERE t.{self._order} ="
            " ANY($1::int8[])",
            list(places),
        )
        return dict(
            zip(
                [row[0] for row in rows],
                to_rows(self._table, [row[1:] for row in rows]),
                strict=True,
            )
        )

    def neighbours(self, near: str, distance: int, hits: Sequence[tuple[int, int, int]]) -> Beside:
        order, column = self._order, quote_name(near)
        group = quote_name(self._table.group) if self._table.group else None
        same = f" AND t.{group} IS NOT DISTINCT FROM x.{group}" if group else ""
        sides = [
            f"(SELECT t.* FROM {self._name} t WHERE t.{column} = x.{column}{same} AND t.{order}"
            f" {beyond} ORDER BY t.{order} {way} LIMIT $4::int8)"
            for beyond, way in (
                (f"< x.{order} AND t.{order} >= hit.first", "DESC"),
                (f"> x.{order} AND t.{order} <= hit.last", "ASC"),
            )
        ]
        rows = self._db.rows(
            f"SELECT t.{order}, x.{order}, {self._listed} FROM unnest($1::int8[], $2::int8[],"
            f" $3::int8[]) AS hit (place, first, last) JOIN {self._name} x ON x.{order} = hit.place"
            f" CROSS JOIN LATERAL ({' UNION ALL '.join(sides)}) AS t",
            *[[hit[n] for hit in hits] for n in range(3)],
            distance,
        )
        found = to_rows(self._table, [row[2:] for row in rows])
        sides = zip([row[0] for row in rows], [row[1] for row in rows], found, strict=True)
        return sides_of(hits, list(sides))

    def fault(self) -> str | None:
        """Compare the index with the rows, and return what is wrong, if anything is."""
        words = quote_name(self._table.words or "")
        group = f"t.{quote_name(self._table.group)}" if self._table.group else "NULL::bytea"
        split = (
            f"SELECT word, {CODE_COLUMN} AS code, {self._order} AS place, count(*)::int4 AS times"
            f" FROM {self._name}, string_to_table(encode({words}, 'escape'), ' ') AS word"
            f" WHERE {words} <> ''::bytea GROUP BY 1, 2, 3"
        )
        kept = f"SELECT encode(word, 'escape'), code, place, times FROM {self._words}"
        if self._db.get(
            f"SELECT 1 FROM ((({split}) EXCEPT ({kept})) UNION ALL (({kept}) EXCEPT ({split})))"
            " AS wrong LIMIT 1"
        ):
            return "a word is not where it should be"
        if self._db.get(
            f"SELECT 1 FROM {self._name} t LEFT JOIN {self._groups} g ON g.code = {CODE_COLUMN}"
            f" WHERE g.value IS DISTINCT FROM {group} AND {CODE_COLUMN} IS DISTINCT FROM"
            f" (CASE WHEN {group} IS NULL THEN 0 END) LIMIT 1"
        ):
            return "a row is in the wrong group"
        counted = f"SELECT word, code, count(*) FROM {self._words} GROUP BY 1, 2"
        said = f"SELECT word, code, rows FROM {self._counts} WHERE rows <> 0"
        sizes = (
            f"SELECT {CODE_COLUMN}, count(*) FROM {self._name} WHERE {SIZE_COLUMN} > 0 GROUP BY 1"
        )
        groups = f"SELECT code, rows FROM {self._groups} WHERE rows <> 0"
        for one, other in ((counted, said), (sizes, groups)):
            if self._db.get(
                f"SELECT 1 FROM ((({one}) EXCEPT ({other})) UNION ALL (({other}) EXCEPT ({one})))"
                " AS wrong LIMIT 1"
            ):
                return "a word or a group has more or fewer rows than it says"
        return None
