"""Clients of a PostgreSQL store that are disturbed, and a judgement of the store afterwards.

What clients were told stands, once. Chains are whole. Rows are what a fold from the beginning
makes. Whoever followed the feed missed nothing and got nothing twice.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from plait import Store, open_store
from plait.errors import StoreUnreachable
from plait.ids import LogId
from plait.runtime.live import Live
from plait.session import verify
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from plait.testing.projections import Tally
from plait.testing.writing import begin, wait_until_settled
from tests.support import (
    ForkedProgram,
    child_environment,
    import_in_server,
    module_command,
    wait_until,
)

CLIENT = "tests.faults.postgres_client"
IMPORTS = "plait.store.postgres.store", "plait.testing.projections"
PATIENCE_S = 120.0


def made_store(address: str) -> Store:
    """Make the tables of a store, and open it."""
    migrate(parse_address(address), source=Live())
    return open_store(address, projections=[Tally()])


# ── clients ──────────────────────────────────────────────────────────────────────────────────


@dataclass
class Told:
    """What clients said: which acts were acknowledged, and which may stand or not."""

    acknowledged: list[Sequence[str]] = field(default_factory=list[Sequence[str]])
    unsure: list[Sequence[str]] = field(default_factory=list[Sequence[str]])
    refused: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: Told) -> None:
        self.acknowledged += other.acknowledged
        self.unsure += other.unsure
        self.refused += other.refused

    @property
    def counts(self) -> str:
        return (
            f"{len(self.acknowledged):,} acknowledged acts, 0 lost, 0 doubled, 0 chain breaks;"
            f" {len(self.unsure):,} without acknowledgement, each whole or not there"
        )


class Running:
    """A client in a process of its own; a thread takes down what it says."""

    def __init__(
        self, address: str, name: str, seed: int, acts: int, shared: LogId, **environment: str
    ) -> None:
        self.told, self.is_done, self._begun = Told(), False, list[str]()
        self.process = ForkedProgram(
            module_command(CLIENT, address, name, str(seed), str(acts), shared),
            env=child_environment(PGAPPNAME=_client_name(address), **environment),
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
            text=True,
            bufsize=1,
        )
        self._ready = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_ready(self) -> None:
        assert self._ready.wait(PATIENCE_S), "the client did not open the store"

    def go(self) -> None:
        self.wait_ready()
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            verb, _, rest = line.strip().partition(" ")
            if verb == "?":
                self._begun = rest.split()
            elif verb == "!":
                self.told.acknowledged.append(self._begun)
                self._begun = []
            elif verb == "x":
                self.told.refused[rest] += 1
                if self._begun and rest != "StaleHead":
                    self.told.unsure.append(self._begun)
                self._begun = []
            self.is_done |= verb == "done"
            self._ready.set()
        self._ready.set()

    def kill(self) -> Told:
        """Kill it with -9."""
        self.process.kill()
        return self.end()

    def end(self) -> Told:
        """Wait for its end; what it had begun and did not hear of may stand or not."""
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the client hangs") from None
        self._listener.join()
        assert self.process.stderr is not None
        errors = self.process.stderr.read()
        assert not errors, errors
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        if self._begun:
            self.told.unsure.append(self._begun)
        return self.told


@contextmanager
def clients(
    address: str, number: int, seed: int, shared: LogId, acts: int = 0, **environment: str
) -> Generator[list[Running]]:
    """So many clients at work; they are killed in the end, if they are still there."""
    import_in_server(*IMPORTS)
    with ExitStack() as ends:
        running: list[Running] = []
        for i in range(number):
            name = f"c{i}-{seed}"
            running.append(Running(address, name, seed + i, acts, shared, **environment))
            ends.callback(running[-1].process.kill)
        for each in running:
            each.go()
        yield running


def _client_name(address: str) -> str:
    """The name by which the server knows the clients of a store."""
    return f"client-of-{parse_address(address).schema}"


def wait_for_last_acts(store: Store) -> None:
    """Wait until the server has ended what clients asked of it that are gone: it learns of their
    end after their last statement.
    """
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    with psycopg.connect(parse_address(store.address).driver_address, autocommit=True) as server:

        def is_over() -> bool:
            row = server.execute(count, (_client_name(store.address),)).fetchone()
            return row == (0,)

        wait_until(is_over, PATIENCE_S)


# ── who follows ──────────────────────────────────────────────────────────────────────────────


class Follower:
    """Follows the feed from its last number, on a thread, for as long as the faults last."""

    def __init__(self, store: Store) -> None:
        self._store, self.seen = store, list[tuple[int, str]]()
        self._is_over, self._errors = threading.Event(), list[BaseException]()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            while not self._is_over.wait(0.005):
                self._catch_up()
        except BaseException as error:
            self._errors.append(error)

    def _catch_up(self) -> None:
        try:
            after = self.seen[-1][0] if self.seen else 0
            for number, event in self._store.feed(after):
                self.seen.append((number, event.id))
        except StoreUnreachable:
            return

    def end(self) -> list[tuple[int, str]]:
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        assert not self._errors, self._errors
        wait_for_last_acts(self._store)
        wait_until_settled(self._store)
        self._catch_up()
        return self.seen


# ── the judgement ────────────────────────────────────────────────────────────────────────────


def all_rows(store: Store) -> dict[str, list[Any]]:
    """Return the rows of all tables of all projections, in an order."""
    return {
        f"{each.name}.{table.name}": sorted(
            [sorted(row.items()) for row in store.rows(each.name, table.name, limit=10**6)],
            key=repr,
        )
        for each in store.attached()
        for table in each.tables
    }


def judge(store: Store, told: Told, followed: list[tuple[int, str]] | None = None) -> None:
    """Raise unless the store is what its clients were told. They have ended."""
    wait_for_last_acts(store)
    wait_until_settled(store)
    feed = [(number, event.id) for number, event in store.feed()]
    times = Counter(id for _, id in feed)
    assert max(times.values()) == 1, "an event stands twice"
    lost = [id for act in told.acknowledged for id in act if id not in times]
    assert not lost, f"{len(lost)} acknowledged events are lost"
    torn = [act for act in told.unsure if len({id in times for id in act}) > 1]
    assert not torn, f"{len(torn)} acts stand in part"
    _check_numbers(store, feed)
    if followed is not None:
        assert followed == feed, _difference(followed, feed)
    faults = [str(fault) for fault in verify(store, state=True)]
    assert not faults, faults
    rows = all_rows(store)
    for projection in store.attached():
        store.rebuild(projection.name)
    assert all_rows(store) == rows, "rows are not those of a fold from the beginning"


def _check_numbers(store: Store, feed: Iterable[tuple[int, str]]) -> None:
    """Numbers grow along every log, and places have no gap."""
    numbers = {id: number for number, id in feed}
    for _, log in store.logs(limit=10**6):
        own = [event for event in store.read(log.id) if event.log == log.id]
        known = [numbers[event.id] for event in own]
        assert known == sorted(known), f"numbers of {log.id} do not grow"
        assert [event.seq for event in own] == list(range(log.place + 1, log.tip + 1))


def _difference(followed: Sequence[tuple[int, str]], feed: Sequence[tuple[int, str]]) -> str:
    twice = len(followed) - len(set(followed))
    return f"skipped {len(set(feed) - set(followed))}, {twice} twice, of {len(feed)}"


def shared_log(store: Store) -> LogId:
    """Begin a log that all clients write to."""
    return begin(store)


def wait_for_acts(running: Iterable[Running], acts: int) -> None:
    """Wait until clients have so many more acts acknowledged together."""
    every = list(running)
    before = sum(len(each.told.acknowledged) for each in every)
    wait_until(
        lambda: (
            sum(len(each.told.acknowledged) for each in every) >= before + acts
            or any(each.process.poll() is not None for each in every)
        ),
        PATIENCE_S,
    )
