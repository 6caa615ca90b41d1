"""Orders in which a store that folds behind may fold its events, and the rows that come of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from plait.event import Event
from plait.memory.rows import MemoryRows
from plait.session.ask_rows import InboxRows
from plait.session.copy_rows import CopyRows
from plait.session.effect_rows import EffectRows
from plait.session.graph_rows import GraphRows
from plait.session.job_rows import JobRows
from plait.session.rows import SessionRows
from plait.session.turn_rows import TurnRows
from plait.store import Projection, Store
from plait.store.plain_rows import RowsInMemory

BUILT_IN: tuple[Projection, ...] = (
    SessionRows(),
    GraphRows(),
    InboxRows(),
    TurnRows(),
    EffectRows(),
    MemoryRows(),
    CopyRows(),
    JobRows(),
)
_ALL = 2**31
_NAMED = re.compile(rb"[0-9a-f]{64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_STRIDE = 2**40  # numbers need not be dense

Numbered = tuple[int, Event]


def history_of(store: Store) -> list[Numbered]:
    """Return all events with numbers that grow as theirs do, and are far apart."""
    return [(number * _STRIDE + number % 7, event) for number, event in store.feed()]


def befores_of(history: Sequence[Numbered]) -> list[set[int]]:
    """Return, for each event, the places of events that come before it in any order: those before
    it in its log, and those that it names: by their ids, as the first of a log, as the start of a
    run. Its writer has seen them.
    """
    last: dict[str, int] = {}
    named: dict[str, int] = {}  # the places of events, and of the first ones of logs and of runs
    found: list[set[int]] = []
    for place, (_, event) in enumerate(history):
        names = {each.decode() for each in _NAMED.findall(event.raw + (event.content or b""))}
        befores = {named[name] for name in names if name in named}
        if event.log in last:
            befores.add(last[event.log])
        found.append(befores)
        last[event.log] = place
        named[event.id] = place
        named.setdefault(event.log, place)
        if event.header.run is not None:
            named.setdefault(event.header.run, place)
    return found


def any_order(history: Sequence[Numbered], random: Random) -> Iterator[Numbered]:
    """Yield a history in a random order that respects logs and causes.

    Sometimes it stays with a log as long as it can, so that others come very late.
    """
    befores = befores_of(history)
    after: list[list[int]] = [[] for _ in history]
    left = [len(each) for each in befores]
    for place, each in enumerate(befores):
        for before in each:
            after[before].append(place)
    ready = [place for place, count in enumerate(left) if not count]
    stays, log = random.choice([0.0, 0.5, 0.95]), None
    while ready:
        same = [place for place in ready if history[place][1].log == log]
        chosen = random.choice(same if same and random.random() < stays else ready)
        ready.remove(chosen)
        log = history[chosen][1].log
        yield history[chosen]
        for place in after[chosen]:
            left[place] -= 1
            if not left[place]:
                ready.append(place)


def rows_of(projection: Projection, events: Iterator[Numbered] | Sequence[Numbered]) -> Any:
    """Return the tables of a projection after these events, in this order."""
    rows = RowsInMemory(projection)
    for number, event in events:
        if event.kind in projection.kinds:
            projection.apply(rows, number, event)
    return {
        table.name: sorted(map(repr, rows.scan(table.name, {}, None, False, None, _ALL)))
        for table in projection.tables
    }


def check_orders(history: Sequence[Numbered], times: int, random: Random) -> int:
    """Fold a history in so many orders, and compare the rows. Returns how many orders differed from
    that of the numbers.
    """
    due = {each.name: rows_of(each, history) for each in BUILT_IN}
    differing = 0
    for _ in range(times):
        order = list(any_order(history, random))
        assert len(order) == len(history)
        differing += order != list(history)
        for projection in BUILT_IN:
            found = rows_of(projection, order)
            for table, rows in due[projection.name].items():
                assert found[table] == rows, (
                    f"{projection.name}.{table}",
                    [each for each in rows if each not in found[table]],
                    [each for each in found[table] if each not in rows],
                )
    return differing
