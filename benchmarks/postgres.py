"""The PostgreSQL store, measured beside bare statements of the same run.

CPU is that of the client *and* of the server process behind its connection. The server comes from
the tests' own wheel; `--folder` puts its data on a disk, else it is in memory, where an fsync costs
nothing.

    python benchmarks/postgres.py [--quick] [--folder DIR] [--peers PYTHON] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

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
BARE_INSERT = "INSERT INTO bare (log, seq, header, body) VALUES (%s, %s, %s, %s)"


class Bench:
    """A server, and the amount of work."""

    def __init__(self, server: PostgresServer, quick: bool, peers: Path | None) -> None:
        self.server, self.quick, self.peers = server, quick, peers

    def all_server_cpu_s(self) -> float:
        """The CPU time of all processes of the server that are there."""
        parent = self.server.process
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return sum(server_cpu_s(int(child)) for child in children)

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
        connection.execute(BARE_INSERT, (1, 1, header, body))

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
    """Writers at once, each a process with a log and a connection of its own, beside bare inserts.

    A rate is a matter of wall time: on a busy machine it is that of the machine. Both take turns.
    """
    rows: list[Row] = []
    for writers, target in ((8, "≥ 0.8"), (32, "≥ 0.7")):
        bench.store(f"rate{writers}")
        bench.bare().close()
        seconds, rounds = (0.5, 2) if bench.quick else (3.0, 3)
        context = multiprocessing.get_context("fork")
        barrier, counts = context.Barrier(writers), context.SimpleQueue()
        addresses = bench.server.address_for(schema=f"rate{writers}"), bench.server.address_for()
        given = addresses, seconds, rounds, barrier, counts
        crowd = [context.Process(target=write_in_turns, args=given) for _ in range(writers)]
        for process in crowd:
            process.start()
        found = [counts.get() for _ in crowd]
        for process in crowd:
            process.join()
        ours, bare = (sum(each[part] for each in found) / seconds / rounds for part in (0, 1))
        rows.append(
            Row(
                f"appends per second, {writers} processes, wall time",
                f"{ours:.0f}",
                f"{bare:.0f}",
                f"{ours / bare:.2f}",
                target,
            )
        )
    return rows


def write_in_turns(
    addresses: tuple[str, str], seconds: float, rounds: int, barrier: Any, counts: Any
) -> None:
    """Append for a while, insert for a while, and so on, at the same time as all others."""
    store, connection = open_store(addresses[0]), psycopg.connect(addresses[1], autocommit=True)
    writer = Writer(store)
    payload = writer.events[0].raw, writer.events[0].content
    found = [0, 0]

    def append() -> None:
        writer.append()
        writer.prepare()

    def insert() -> None:
        connection.execute(BARE_INSERT, (1, 1, *payload))
        writer.prepare()  # the same work beside the statement

    for _ in range(30):  # prepared, and planned
        append()
        insert()
    for _ in range(rounds):
        for kind, act in enumerate((append, insert)):
            barrier.wait()
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                act()
                found[kind] += 1
    counts.put(found)


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
    """A run of 1,000 effects that failed, resumed: on PostgreSQL and on SQLite, in turn."""
    steps, rounds = (100, 2) if bench.quick else (1000, 7)
    bench.store("resumes")
    address = bench.server.address_for(schema="resumes")
    with counted(address) as counts, tempfile.TemporaryDirectory() as folder:
        stores = {"proxy": open_store(counts.address), "sqlite": open_store(folder)}
        stores["postgres"] = open_store(address)
        spent: dict[str, list[float]] = {name: [] for name in stores}
        statements: list[int] = []
        for _ in range(rounds + 1):
            for name, where in stores.items():
                session = _failed_run(where, steps)
                where.rows("session", "session", limit=1)
                server = server_cpu_s(backend_of(where)) if name != "sqlite" else 0.0
                counts.reset()
                begun = time.thread_time()
                resume(session, Failing(steps, fails=False))
                cpu = time.thread_time() - begun
                cpu += server_cpu_s(backend_of(where)) - server if name != "sqlite" else 0.0
                spent[name].append(cpu)
                if name == "proxy":
                    statements.append(counts.statements)
    ours, sqlite = (percentile(spent[name][1:], 50) for name in ("postgres", "sqlite"))
    return [
        Row(
            f"resume of {steps} effects: CPU of client and server, over SQLite; statements",
            f"{ours * 1e3:.0f} ms; {percentile(statements[1:], 50):.0f}",
            f"{sqlite * 1e3:.0f} ms",
            f"{ours / sqlite:.2f}",
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
    """An append to one of 10 logs with an event each, and to one of many logs with 10 each.

    The large store is filled by the server itself. Autovacuum is on, as it is by default. Both
    stores take turns, and have a connection each.
    """
    logs = 1_000 if bench.quick else 100_000
    small = Crowd(bench.store("growth_small"), bench, "growth_small", 10, 1)
    large = Crowd(bench.store("growth_large"), bench, "growth_large", logs, 10)
    rounds = bench.rounds(2000)
    for crowd in (small, large):
        for _ in range(50):
            crowd.prepare()
            crowd.append()
    begun = [server_cpu_s(backend_of(crowd.store)) for crowd in (small, large)]
    spent: list[list[float]] = [[], []]
    for _ in range(rounds):
        for number, crowd in enumerate((small, large)):
            crowd.prepare()
            started = time.thread_time()
            crowd.append()
            spent[number].append(time.thread_time() - started)
    few, many = (
        percentile(spent[number], 50)
        + (server_cpu_s(backend_of(crowd.store)) - begun[number]) / rounds
        for number, crowd in enumerate((small, large))
    )
    return [
        Row(
            f"growth of an append from 10 to {logs * 10:,} events, {logs:,} logs, CPU",
            f"{many * 1e6:.0f} µs",
            f"{few * 1e6:.0f} µs",
            f"{many / few:.2f}",
            "≤ 1.2",
        )
    ]


class Crowd:
    """Appends of 1 KB to many logs, each time to another one."""

    def __init__(self, store: Store, bench: Bench, schema: str, logs: int, events: int) -> None:
        self.store, self._random = store, Random(logs)
        model = Writer(store).events[0]
        # more than a place apart: the key of a log is the number of its first event
        with bench.server.connect() as db:
            db.execute(
                f"INSERT INTO {schema}.log (key, id, place, head, tip, epoch, lazy)"
                " SELECT n * 100, set_byte(set_byte(id, 6, 128), 8, 128), 0,"
                f" sha256(n::text::bytea), {events}, 0, false FROM generate_series(1, {logs}) AS n,"
                " LATERAL (SELECT uuid_send(gen_random_uuid()) AS id WHERE n > 0) AS made".encode()
            )
            db.execute(
                f"INSERT INTO {schema}.event (number, log, seq, kind, codec, short, salt, header,"
                " body) SELECT n * 100 + at - 1, n * 100, at, e.kind, e.codec,"
                " hashint8extended(n * 100 + at, 7), e.salt, e.header, e.body"
                f" FROM generate_series(1, {logs}) AS n, generate_series(1, {events}) AS at,"
                f" (SELECT * FROM {schema}.event WHERE seq = 1 ORDER BY number DESC LIMIT 1) AS e"
                "".encode()
            )
        assert model
        self.logs = [log for _, log in store.logs(limit=logs + 1)][1:]
        self._random.shuffle(self.logs)
        self._at = 0

    def prepare(self) -> None:
        """Take the next log, and seal an event for it. The store knows where the log is kept."""
        self.log = self.logs[self._at % len(self.logs)].id
        self._at += 1
        self.store.lineage(self.log)
        now = self.store.log(self.log)
        body = MessageSaid("user", (Text(_RANDOM.randbytes(384).hex()),))
        self.events, self.head = seal([body], self.log, now.tip + 1, (now.head,)), now.head

    def append(self) -> None:
        self.store.append(self.log, self.events, after=self.head)


def idle(bench: Bench) -> list[Row]:
    """A process that has had runs, and then does nothing."""
    bench.store("idle").close()
    seconds = 31 if bench.quick else 121
    with counted(bench.server.address_for(schema="idle")) as counts:
        store = open_store(counts.address)
        threads = [threading.Thread(target=run_steps, args=(store,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(32 if not bench.quick else 0)  # connections that were needed are closed
        counts.reset()
        time.sleep(seconds)
        with bench.server.connect() as db:
            row = db.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plait'"
                " AND query LIKE '%idle%'"
            ).fetchone()
        found = f"{counts.statements * 60 / seconds:.0f} / {row[0] if row else 0}"
        store.close()
    return [Row("idle store: statements per minute / connections", found, target="≤ 6 / ≤ 2")]


def run_steps(store: Store, count: int = 3) -> None:
    Steps(count)(Session("hi", store=store))


def steps_beside_peers(bench: Bench) -> list[Row]:
    """A durable step beside one of a peer, each in a database of its own; in turn."""
    if bench.peers is None:
        return []
    store, count = bench.store("peers"), 50 if bench.quick else 200
    crowd = {"DBOS": "dbos", "OpenRath's commit_checkpoint": "openrath"}
    targets = {"DBOS": "≥ 3.5", "OpenRath's commit_checkpoint": "≥ 2"}
    guests = {name: _start_guest(bench, kind) for name, kind in crowd.items()}
    spent: dict[str, list[float]] = {name: [] for name in ("ours", *guests)}
    for _ in range(4 if bench.quick else 11):
        begun, server = time.process_time(), bench.all_server_cpu_s()
        run_steps(store, count)
        middle, server_middle = time.process_time(), bench.all_server_cpu_s()
        run_steps(store, 0)  # the run around the steps
        around = time.process_time() - middle + bench.all_server_cpu_s() - server_middle
        spent["ours"].append((middle - begun + server_middle - server - around) / count)
        for name, guest in guests.items():
            assert guest.stdin is not None and guest.stdout is not None
            server = bench.all_server_cpu_s()
            print(count, file=guest.stdin, flush=True)
            client = float(guest.stdout.readline())
            spent[name].append((client + bench.all_server_cpu_s() - server) / count)
    for guest in guests.values():
        guest.kill()
        guest.wait()
    ours = percentile(spent["ours"][1:], 50)
    return [
        Row(
            f"a durable step beside a step of {name}, CPU of client and server",
            f"{ours * 1e6:.0f} µs",
            f"{percentile(spent[name][1:], 50) * 1e6:.0f} µs",
            f"{percentile(spent[name][1:], 50) / ours:.1f} x less",
            targets[name],
        )
        for name in guests
    ]


def _start_guest(bench: Bench, kind: str) -> subprocess.Popen[str]:
    bench.server.execute(f"CREATE DATABASE {kind}")
    script = Path(__file__).parent / "guests" / "step_postgres.py"
    return subprocess.Popen(
        [str(bench.peers), str(script), kind, bench.server.address_for(database=kind)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


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


ALL = (
    append_1kb,
    wire,
    rate,
    rows_and_folds,
    resumes,
    growth,
    idle,
    steps_beside_peers,
    agent_step,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=Path, help="a folder on the disk for the data")
    parser.add_argument("--peers", type=Path, help="the Python of the peers' environment")
    parser.add_argument("--date", default="")
    given = parser.parse_args()
    rows: list[Row] = []
    with private_postgres(18, parent=given.folder) as server:
        bench = Bench(server, given.quick, given.peers)
        for measure in ALL:
            if given.only in measure.__name__:
                rows += measure(bench)
    print_table(rows)
    write_json(
        RESULTS / "postgres.json", machine(given.folder or Path("/dev/shm"), given.date), rows
    )


if __name__ == "__main__":
    main()
