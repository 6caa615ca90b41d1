"""The PostgreSQL store, measured beside bare statements of the same run.

CPU is that of the client *and* of the server process behind its connection. The server comes from
the tests' own wheel; `--folder` puts its data on a disk, else it is in memory, where an fsync costs
nothing.

    python benchmarks/postgres.py [--quick] [--folder DIR] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

import psycopg
from tests.support import PostgresServer, counted, private_postgres

from measure import Row, Timing, interleave, machine, percentile, print_table, write_json
from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, open_store, resume, tool
from plait.event import Body, Event, seal_all
from plait.event.kinds import MessageSaid, SessionOpened, Text
from plait.ids import Digest, LogId
from plait.runtime.live import Live
from plait.store import Store
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate

RESULTS = Path(__file__).parent / "results"
SOURCE = Live()
_RANDOM = Random(7)


class Bench:
    """A server, and the amount of work."""

    def __init__(self, server: PostgresServer, quick: bool) -> None:
        self.server, self.quick = server, quick

    def rounds(self, many: int) -> int:
        return max(20, many // 10) if self.quick else many

    def store(self, schema: str) -> Store:
        address = self.server.address_for(schema=schema)
        migrate(parse_address(address), source=SOURCE)
        return open_store(address)

    def bare(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection with a table as plain as it can be: a number, and the bytes."""
        connection = self.server.connect()
        connection.execute(
            "CREATE TABLE IF NOT EXISTS bare (number bigserial PRIMARY KEY, log int8, seq int4,"
            " header bytea, body bytea)"
        )
        return connection


class Writer:
    """Appends of 1 KB to one log."""

    def __init__(self, store: Store) -> None:
        self.store, self.log, self.seq = store, SOURCE.fresh(), 1
        self.head = store.begin(self.log, seal([SessionOpened()], self.log, 1, ()))
        self.prepare()

    def prepare(self) -> None:
        text = _RANDOM.randbytes(384).hex()
        body = MessageSaid("user", (Text(text),))
        self.events = seal([body], self.log, self.seq + 1, (self.head,))

    def append(self) -> None:
        self.head = self.store.append(self.log, self.events, after=self.head)
        self.seq += 1


def seal(bodies: Sequence[Body], log: LogId, seq: int, parents: tuple[Digest, ...]) -> list[Event]:
    return seal_all(
        bodies, log=log, seq=seq, parents=parents, source=SOURCE, actor="human:a", origin="human"
    )


def server_cpu_s(pid: int) -> float:
    """The CPU time of a process of the server."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def backend_of(store: Store) -> int:
    """The process of the server behind the store's idle connection."""
    idle = store._connections._idle  # type: ignore[attr-defined]  no other way to know it
    return idle[-1].pgconn.backend_pid


def ratio_row(
    what: str, target: str, ours: Timing, raw: Timing, ours_server: float, raw_server: float
) -> Row:
    """A row that compares CPU of client and server together."""
    mine = percentile(ours.cpu, 50) + ours_server
    bare = percentile(raw.cpu, 50) + raw_server
    return Row(
        what,
        f"{mine * 1e6:.0f} µs",
        f"{bare * 1e6:.0f} µs",
        f"{mine / bare:.2f}",
        target,
        {"client": ours.facts(), "server_us": ours_server * 1e6, "raw": raw.facts()},
    )


def beside_bare(
    bench: Bench,
    store: Store,
    rounds: int,
    act: Callable[[], object],
    bare: Callable[[], object],
    connection: psycopg.Connection[tuple[object, ...]],
    before: Callable[[], object] = lambda: None,
) -> tuple[Timing, Timing, float, float]:
    before()
    act()
    pids = backend_of(store), connection.info.backend_pid
    start = [server_cpu_s(pid) for pid in pids]
    timings = interleave({"ours": act, "bare": bare}, rounds, before)
    count = rounds + max(1, rounds // 10)
    spent = [(server_cpu_s(pid) - begun) / count for pid, begun in zip(pids, start, strict=True)]
    return timings["ours"], timings["bare"], spent[0], spent[1]


def append_1kb(bench: Bench) -> list[Row]:
    store, connection = bench.store("appends"), bench.bare()
    writer = Writer(store)
    header, body = writer.events[0].raw, writer.events[0].content

    def insert() -> None:
        connection.execute(
            "INSERT INTO bare (log, seq, header, body) VALUES (%s, %s, %s, %s)",
            (1, 1, header, body),
        )

    found = beside_bare(
        bench, store, bench.rounds(1000), writer.append, insert, connection, writer.prepare
    )
    return [ratio_row("append of 1 KB, CPU of client and server", "≤ 1.6", *found)]


def wire(bench: Bench) -> list[Row]:
    bench.store("wire")
    with counted(bench.server.address_for(schema="wire")) as counts:
        store = open_store(counts.address)
        writer = Writer(store)
        writer.append()
        counts.reset()
        for _ in range(10):
            writer.prepare()
            writer.append()
        found = counts.statements / 10, counts.round_trips / 10, counts.commits / 10
        rows = [
            Row(
                "statements, round trips, commits per append",
                ", ".join(f"{each:g}" for each in found),
                target="1, 1, 1",
            )
        ]
        session = Session("hi", store=store)
        Steps(10)(session.fork())  # caches are filled
        counts.reset()
        Steps(10)(session.fork())
        few = counts.round_trips
        counts.reset()
        Steps(30)(session.fork())
        per_step = (counts.round_trips - few) / 20
        rows.append(Row("round trips of a durable step (session.use)", f"{per_step:g}", target="2"))
        store.close()
    return rows


@tool(effect="idempotent")
def note(text: str, idempotency_key: str) -> str:
    """Note a text."""
    return text


class Steps(Workflow):
    """A run of so many durable steps."""

    def __init__(self, count: int) -> None:
        self.count = count

    def forward(self, session: Session) -> Session:
        for number in range(self.count):
            session = session.use(note, text=str(number))
        return session


def rate(bench: Bench) -> list[Row]:
    """Writers at once, each with a log and a connection of its own, beside bare inserts."""
    rows: list[Row] = []
    for writers, target in ((8, "≥ 0.8"), (32, "≥ 0.7")):
        os.environ["PLAIT_STORE_CONNECTIONS"] = str(writers)
        store = bench.store(f"rate{writers}")
        connections = [bench.bare() for _ in range(writers)]
        own = [Writer(store) for _ in range(writers)]
        payload = own[0].events[0].raw, own[0].events[0].content
        seconds = 0.5 if bench.quick else 2.0
        ours, bare = 0.0, 0.0

        def append(writer: Writer) -> None:
            writer.prepare()
            writer.append()

        def insert(
            connection: psycopg.Connection[tuple[object, ...]],
            payload: tuple[bytes, bytes] = payload,
        ) -> None:
            seal_like = _RANDOM.randbytes(384).hex()  # the same work beside the statement
            assert seal_like
            connection.execute(
                "INSERT INTO bare (log, seq, header, body) VALUES (%s, %s, %s, %s)",
                (1, 1, *payload),
            )

        for _ in range(3):  # in turn, so that a slow machine slows both
            ours += per_second([lambda w=w: append(w) for w in own], seconds)
            bare += per_second([lambda c=c: insert(c) for c in connections], seconds)
        rows.append(
            Row(
                f"appends per second, {writers} threads of one process",
                f"{ours / 3:.0f}",
                f"{bare / 3:.0f}",
                f"{ours / bare:.2f}",
                target,
            )
        )
        store.close()
        for connection in connections:
            connection.close()
    os.environ.pop("PLAIT_STORE_CONNECTIONS", None)
    return rows


def per_second(acts: Sequence[Callable[[], object]], seconds: float) -> float:
    counts = [0] * len(acts)
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < until:
            acts[number]()
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def rows_and_folds(bench: Bench) -> list[Row]:
    store, connection = bench.store("folds"), bench.bare()
    count = 20 if bench.quick else 100
    for number in range(count):
        session = Session(f"hello {number}", store=store)
        for _ in range(20):
            session = session.say("again")
    events = count * 22
    rows: list[Row] = []
    for projection in ("session", "graph"):
        store.rows(
            projection, next(p for p in store.attached() if p.name == projection).tables[0].name
        )
        begun, server = time.thread_time(), server_cpu_s(backend_of(store))
        store.rebuild(projection)
        spent = time.thread_time() - begun + server_cpu_s(backend_of(store)) - server
        rows.append(
            Row(
                f"fold of {projection} rows per event, CPU",
                f"{spent / events * 1e6:.0f} µs",
                target="≤ 40 µs",
            )
        )
    version = next(each.version for each in store.attached() if each.name == "session")
    table = f'folds."p_session_{version}__session"'
    columns = list(store.rows("session", "session", limit=1)[0])

    def bare() -> object:
        found = connection.execute(
            f"SELECT * FROM {table} ORDER BY number DESC LIMIT 20".encode(),
            prepare=True,
            binary=True,
        )
        return [dict(zip(columns, row, strict=False)) for row in found.fetchall()]

    def ask() -> object:
        return store.rows("session", "session", order="number", descending=True, limit=20)

    found = beside_bare(bench, store, bench.rounds(400), ask, bare, connection)
    rows.append(ratio_row("rows() with nothing new, over the bare query, CPU", "≤ 1.5", *found))
    return rows


def resumes(bench: Bench) -> list[Row]:
    """A run of 1,000 effects that waits, resumed: on PostgreSQL and on SQLite."""
    steps = 100 if bench.quick else 1000
    bench.store("resumes")
    with counted(bench.server.address_for(schema="resumes")) as counts:
        store, folder = open_store(counts.address), open_store("memory:resumes")
        spent: dict[str, float] = {}
        statements = 0
        for name, where in (("postgres", store), ("memory", folder)):
            session = _failed_run(where, steps)
            begun = time.thread_time()
            counts.reset()
            resume(session, Failing(steps, fails=False))
            spent[name] = time.thread_time() - begun
            statements = counts.statements if name == "postgres" else statements
    return [
        Row(
            f"resume of {steps} effects: CPU of the client, over the store in memory; statements",
            f"{spent['postgres'] * 1e3:.0f} ms; {statements}",
            f"{spent['memory'] * 1e3:.0f} ms",
            f"{spent['postgres'] / spent['memory']:.2f}",
            "≤ 1.3; ≤ 10",
        )
    ]


class Failing(Workflow):
    """A run that fails after its steps, and goes on when it is resumed."""

    def __init__(self, count: int, *, fails: bool) -> None:
        self.count, self.fails = count, fails

    def forward(self, session: Session) -> Session:
        for number in range(self.count):
            session = session.use(note, text=str(number))
        if self.fails:
            raise RuntimeError("the lights went out")
        return session


def _failed_run(store: Store, steps: int) -> Session:
    session = Session("hi", store=store)
    try:
        return Failing(steps, fails=True)(session)
    except RuntimeError:
        return session.reload()


def growth(bench: Bench) -> list[Row]:
    store = bench.store("growth")
    writer = Writer(store)
    few = _append_cpu(bench, store, writer)
    size = 2_000 if bench.quick else 100_000
    while writer.seq < size:
        bodies = [MessageSaid("user", (Text(f"message {number}"),)) for number in range(1000)]
        events = seal(bodies, writer.log, writer.seq + 1, (writer.head,))
        writer.head = store.append(writer.log, events, after=writer.head)
        writer.seq += 1000
    many = _append_cpu(bench, store, writer)
    return [
        Row(
            f"growth of an append from 10 to {size:,} events, CPU",
            f"{many * 1e6:.0f} µs",
            f"{few * 1e6:.0f} µs",
            f"{many / few:.2f}",
            "≤ 1.2",
        )
    ]


def _append_cpu(bench: Bench, store: Store, writer: Writer) -> float:
    for _ in range(20):
        writer.prepare()
        writer.append()
    rounds, server = bench.rounds(400), server_cpu_s(backend_of(store))
    spent: list[float] = []
    for _ in range(rounds):
        writer.prepare()
        begun = time.thread_time()
        writer.append()
        spent.append(time.thread_time() - begun)
    return percentile(spent, 50) + (server_cpu_s(backend_of(store)) - server) / rounds


def agent_step(bench: Bench) -> list[Row]:
    store = bench.store("steps")
    script = [each for number in range(20) for each in (ToolCall("note", text=str(number)),)]
    agent = Agent("Note.", model=ScriptedModel([*script, "done"]), tools=[note])
    begun, rate_of = time.perf_counter(), 0
    while time.perf_counter() - begun < (1 if bench.quick else 4):
        agent(Session("go", store=store))
        rate_of += 20
    return [
        Row(
            "durable agent steps per second (model and tool)",
            f"{rate_of / (time.perf_counter() - begun):.0f}",
        )
    ]


ALL = (append_1kb, wire, rate, rows_and_folds, resumes, growth, agent_step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=Path, help="a folder on the disk for the data")
    parser.add_argument("--date", default="")
    given = parser.parse_args()
    rows: list[Row] = []
    with private_postgres(18, parent=given.folder) as server:
        bench = Bench(server, given.quick)
        for measure in ALL:
            if given.only in measure.__name__:
                rows += measure(bench)
    print_table(rows)
    write_json(
        RESULTS / "postgres.json", machine(given.folder or Path("/dev/shm"), given.date), rows
    )


if __name__ == "__main__":
    main()
