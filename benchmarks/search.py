"""Search by words, measured: what a search of a store's rows costs beside a bare FTS5 match.

The bare match asks a plain index of the same words, in the same run, for the same choosing words.
`--quick` does a tenth of the rounds, and of the rows.

    python benchmarks/search.py [--quick] [--only NAME] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import apsw

import plait
from log import RESULTS, Bench, Writer, ms, serve
from measure import Row, Timing, interleave, percentile
from plait.event import Event
from plait.event.kinds import ScratchSet
from plait.store import Region, Rows, Store, Table
from plait.store.search import choosing_words

_WORDS = 30_000
_WEIGHTS = list(accumulate(1 / (rank + 3) for rank in range(_WORDS)))  # as in a language
_SCOPES, _SOURCE_LENGTH = 10, 40


class Items:
    """A projection that makes as many rows as its event says."""

    name, version, kinds = "items", 1, frozenset({"ScratchSet"})
    tables = (
        Table(
            "item",
            key=("id",),
            columns={
                "number": "integer",
                "id": "text",
                "scope": "text",
                "source": "text",
                "status": "text",
                "text": "text",
                "words": "text",
            },
            order="number",
            indexes=(("source", "scope", "number"), ("scope", "number")),
            words="words",
            group="scope",
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body: Any = event.body
        if body.key == "status":
            row = rows.get("item", f"{body.value:064x}")
            assert row is not None
            rows.put("item", row | {"status": f"status {number}"})
            return
        draw = random.Random(number)
        for i in range(1, body.value + 1):
            words = " ".join(drawn_words(draw, draw.randint(5, 25)))
            rows.put(
                "item",
                {
                    "number": (number << 20) + i,
                    "id": f"{i:064x}",
                    "scope": f"user {draw.randrange(_SCOPES)}",
                    "source": f"source {i // (_SOURCE_LENGTH * _SCOPES)}",
                    "status": "active",
                    "text": f"{words}, as a person would say it",
                    "words": words,
                },
            )


def drawn_words(draw: random.Random, count: int) -> list[str]:
    return [f"w{rank}" for rank in draw.choices(range(_WORDS), cum_weights=_WEIGHTS, k=count)]


def few(bench: Bench) -> list[Row]:
    return _search(bench, 1_000, "<= 2 ms")


def many(bench: Bench) -> list[Row]:
    return _search(bench, bench.some(100_000), "<= 10 ms")


def _search(bench: Bench, count: int, target: str) -> list[Row]:
    store, bare = _filled(bench, count)
    scopes = [Region("user 1"), Region("user 2")]
    asked: list[str] = []
    choosing = ""
    draw = random.Random(3)

    def prepare() -> None:
        nonlocal asked, choosing
        asked = list(dict.fromkeys(drawn_words(draw, 6)))
        having = {word: len(bare(COUNT, (word,))) for word in asked}
        choosing = " OR ".join(choosing_words(having, count) or asked)

    def search(**options: Any) -> None:
        store.search("items", "item", asked, **options)

    took = interleave(
        {
            "bare": lambda: bare(MATCH, (choosing,)),
            "rows": search,
            "rows, 3 neighbours": partial(search, near=("source", 3)),
            "rows in 2 of 10 scopes, 3 neighbours": partial(
                search, near=("source", 3), within=scopes
            ),
            "rows in 1 scope of 10, 3 neighbours": partial(
                search, near=("source", 3), within=scopes[:1]
            ),
        },
        bench.some(600),
        prepare,
    )
    raw = took.pop("bare")
    return [_row(f"20 {name}, of {count:,}", timing, raw, target) for name, timing in took.items()]


COUNT = "SELECT rowid FROM plain WHERE plain MATCH ?"
MATCH = "SELECT rowid, rank FROM plain WHERE plain MATCH ? ORDER BY rank LIMIT 20"


def plain_index(path: Path, rows: Iterable[Mapping[str, Any]], batch: int) -> Any:
    """Return a connection to a new file with an FTS5 table `plain` of the words of these rows.

    So many of them are written in one transaction: it should be as many as in the store, since an
    index that was made in many steps is slower.
    """
    bare: Any = apsw.Connection(str(path))
    bare.execute("PRAGMA cache_size = -16384")  # as a store's
    bare.execute("CREATE VIRTUAL TABLE plain USING fts5(words, tokenize='unicode61')")
    words = [(row["number"], row["words"]) for row in rows]
    for first in range(0, len(words), batch):
        with bare:
            some = words[first : first + batch]
            bare.executemany("INSERT INTO plain (rowid, words) VALUES (?, ?)", some)
    return bare


def _filled(bench: Bench, count: int) -> tuple[Store, Callable[..., list[Any]]]:
    folder = bench.folder / f"{count} rows"
    store = plait.open_store(folder, projections=[Items()])
    Writer(store).append(ScratchSet("items", count))
    rows = store.rows("items", "item", limit=2**31)
    bare = plain_index(bench.folder / f"{count} words.db", rows, count)

    def ask(sql: str, values: tuple[str, ...]) -> list[Any]:
        return bare.execute(sql, values).fetchall()

    return store, ask


def _row(name: str, ours: Timing, raw: Timing, target: str) -> Row:
    cpu, bare = percentile(ours.cpu, 95), percentile(raw.cpu, 95)
    facts: dict[str, object] = {"ours": ours.facts(), "bare": raw.facts()}
    return Row(f"{name}, CPU p95", ms(cpu), ms(bare), f"{cpu / bare:.2f}x", target, facts)


def changing(bench: Bench) -> list[Row]:
    """A change of a row's status beside a change of nothing: the words are not touched."""
    store, _ = _filled(bench, bench.some(10_000))
    writer, draw = Writer(store), random.Random(5)
    count = bench.some(10_000)
    took = interleave(
        {
            "no row": lambda: writer.append(ScratchSet("items", 0)),
            "status": lambda: writer.append(ScratchSet("status", draw.randint(1, count))),
        },
        bench.some(300),
    )
    ours, raw = (percentile(took[name].cpu, 50) for name in ("status", "no row"))
    facts: dict[str, object] = {name: timing.facts() for name, timing in took.items()}
    return [
        Row(
            "append that changes a row, not its words, CPU p50",
            ms(ours),
            ms(raw),
            f"{ours / raw:.2f}x",
            "-",
            facts,
        )
    ]


PARTS = [few, many, changing]


def main() -> None:
    serve(__doc__ or "", PARTS, RESULTS / "search.json")


if __name__ == "__main__":
    main()
