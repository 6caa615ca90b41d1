"""The log, measured: what an append, a fork, a listing and a reading cost beside raw SQLite in the
same run.

One function per row of the table. Each makes the stores it needs in a scratch folder on the disk of
the repository, because a file system in memory has no fsync to speak of. `--quick` does everything
at about a tenth.

    python benchmarks/log.py [--quick] [--only NAME] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import plait
from measure import (
    SETTLE_SIZE,
    Raw,
    Row,
    Timing,
    folder_size,
    interleave,
    machine,
    percentile,
    print_table,
    write_json,
)
from plait.event import Body, Event, seal_all
from plait.event.kinds import ForkedFrom, SessionOpened
from plait.ids import Digest, LogId
from plait.runtime.live import Live
from plait.store import Store, verify_store
from samples import SAMPLES, Sample, prose, random_text

RESULTS = Path(__file__).parent / "results"
VENDORS = ("rich", "openai", "anthropic", "mcp", "starlette")
SOURCE = Live()
_BATCH = 1000  # events per append while a log is only being filled


class Bench:
    """The folder to work in, and the amount of work."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder = folder
        self.quick = quick

    def some(self, full: int) -> int:
        return max(full // 10, 5) if self.quick else full


class Writer:
    """A log and its head: seals what it is given and appends it, through the public API alone."""

    def __init__(self, store: Store, first: Sequence[Body] = (SessionOpened(),)) -> None:
        self.store, self.log = store, SOURCE.fresh()
        self.head: Digest | None = None
        self.seq = 0
        events = self.seal(*first)
        store.begin(self.log, events)
        self._move_to(events[-1])

    def seal(self, *bodies: Body) -> list[Event]:
        parents = (self.head,) if self.head else ()
        return seal_all(
            bodies,
            log=self.log,
            seq=self.seq + 1,
            parents=parents,
            source=SOURCE,
            actor="human:bench",
            origin="human",
        )

    def write(self, events: list[Event]) -> None:
        assert self.head is not None
        self.store.append(self.log, events, after=self.head)
        self._move_to(events[-1])

    def append(self, *bodies: Body) -> None:
        self.write(self.seal(*bodies))

    def grow(self, sample: Sample, upto: int) -> None:
        while self.seq < upto:
            self.append(*(sample() for _ in range(min(_BATCH, upto - self.seq))))

    def _move_to(self, last: Event) -> None:
        self.head, self.seq, self.last = last.id, last.seq, last


Part = Callable[[Bench], list[Row]]


def filled(store: Store, sample: Sample, count: int) -> Writer:
    writer = Writer(store)
    writer.grow(sample, count)
    return writer


def stored(writer: Writer) -> Iterator[tuple[bytes, bytes]]:
    """The same bytes, for the raw database."""
    return ((event.raw, event.content) for event in writer.store.read(writer.log))


def settle(store: Store) -> Store:
    """Past the first checkpoint: see `Raw.settle`."""
    store.put_blob(random.Random(0).randbytes(SETTLE_SIZE))
    return store


# ── one append ───────────────────────────────────────────────────────────────────────────────


def append(bench: Bench) -> list[Row]:
    """A durable append of a 1 KB event, sealed and written, beside raw insert and commit of the
    same bytes.
    """
    return [row for name, make in SAMPLES.items() for row in _append(bench, name, make())]


def _append(bench: Bench, name: str, sample: Sample) -> list[Row]:
    store, raw = (
        settle(plait.open_store(bench.folder / f"append {name}")),
        Raw(bench.folder / f"append {name} raw"),
    )
    raw.settle()
    writer, body = Writer(store), sample()

    def prepare() -> None:
        nonlocal body
        body = sample()

    took = interleave(
        {
            "plait": lambda: writer.append(body),
            "raw": lambda: raw.insert(writer.last.raw, writer.last.content),
        },
        bench.some(1500),
        prepare,
    )
    store.close()
    raw.close()
    return _append_rows(name, took["plait"], took["raw"])


def _append_rows(name: str, ours: Timing, raw: Timing) -> list[Row]:
    facts: dict[str, object] = {"plait": ours.facts(), "raw": raw.facts(), "rounds": len(ours.wall)}
    rows: list[Row] = []
    for part, target in ((50, "<= 1.5"), (95, "-")):
        mine, theirs = percentile(ours.wall, part), percentile(raw.wall, part)
        rows.append(
            Row(
                f"append 1 KB, {name}, wall p{part}",
                us(mine),
                us(theirs),
                f"{mine / theirs:.2f}x",
                target,
                facts,
            )
        )
    for part, target in ((50, "<= raw + 50 us"), (95, "-")):
        mine, theirs = percentile(ours.cpu, part), percentile(raw.cpu, part)
        rows.append(
            Row(
                f"append 1 KB, {name}, CPU p{part}",
                us(mine),
                us(theirs),
                f"+{us(mine - theirs)}",
                target,
                facts,
            )
        )
    return rows


def growth(bench: Bench) -> list[Row]:
    """An append to a long session beside one to a session of ten events, in the same store and in a
    new one.
    """
    count, sample = bench.some(100_000), random_text()
    big, small = (
        settle(plait.open_store(bench.folder / "grown")),
        settle(plait.open_store(bench.folder / "new")),
    )
    writers, body = {"long": filled(big, sample, count)}, sample()

    def prepare() -> None:
        nonlocal body
        for name, store in (("ten", big), ("new", small)):
            writers[name] = Writer(store, [SessionOpened(), *(sample() for _ in range(8))])
            # the first append also looks the log up; that is not growth
            writers[name].append(sample())
        body = sample()

    took = interleave(
        {name: lambda name=name: writers[name].append(body) for name in ("long", "ten", "new")},
        bench.some(500),
        prepare,
    )
    for store in (big, small):
        store.close()
    return [
        _growth_row(
            f"append at {count:,} events / at 10, same store", took["long"], took["ten"], "<= 1.1"
        ),
        _growth_row(
            f"append at {count:,} events / at 10, new store", took["long"], took["new"], "-"
        ),
    ]


def _growth_row(what: str, long: Timing, ten: Timing, target: str) -> Row:
    wall, cpu = (
        percentile(a, 50) / percentile(b, 50)
        for a, b in ((long.wall, ten.wall), (long.cpu, ten.cpu))
    )
    facts: dict[str, object] = {
        "long": long.facts(),
        "ten": ten.facts(),
        "wall_ratio": wall,
        "cpu_ratio": cpu,
    }
    measured, beside = (
        f"{us(percentile(t.wall, 50))}, CPU {us(percentile(t.cpu, 50))}" for t in (long, ten)
    )
    return Row(what, measured, beside + " (at 10)", f"{wall:.2f}x, CPU {cpu:.2f}x", target, facts)


def memory(bench: Bench) -> list[Row]:
    """An append in memory at three lengths: sealed and appended, and the append alone."""
    lengths = (10, 1000, bench.some(100_000))
    stores = [plait.open_store(f"memory:bench-{length}") for length in lengths]
    writers = [
        filled(store, random_text(), length) for store, length in zip(stores, lengths, strict=True)
    ]
    rows = [
        _memory_rounds(
            bench,
            "sealing included",
            lengths,
            writers,
            lambda writer, body: partial(writer.append, body),
        ),
        _memory_rounds(
            bench,
            "sealed before",
            lengths,
            writers,
            lambda writer, body: partial(writer.write, writer.seal(body)),
        ),
    ]
    for store in stores:
        store.close()
    return rows


Ready = Callable[[Writer, Body], Callable[[], None]]


def _memory_rounds(
    bench: Bench, what: str, lengths: Sequence[int], writers: list[Writer], make: Ready
) -> Row:
    sample, names = random_text(), [f"{length:,}" for length in lengths]
    ready: dict[str, Callable[[], None]] = {}

    def prepare() -> None:
        writers[0] = Writer(
            writers[0].store, [SessionOpened(), *(sample() for _ in range(lengths[0] - 1))]
        )
        body = sample()
        for name, writer in zip(names, writers, strict=True):
            ready[name] = make(writer, body)

    took = interleave(
        {name: lambda name=name: ready[name]() for name in names}, bench.some(2000), prepare
    )
    return _memory_row(f"append in memory at {' / '.join(names)}, {what}", took)


def _memory_row(what: str, took: dict[str, Timing]) -> Row:
    marks = [percentile(timing.wall, 50) for timing in took.values()]
    facts: dict[str, object] = {name: timing.facts() for name, timing in took.items()}
    return Row(
        what,
        " / ".join(f"{mark * 1e6:.1f}" for mark in marks) + " us",
        ratio=f"{marks[-1] / marks[0]:.2f}x",
        target="flat",
        facts=facts,
    )


# ── what reaches the disk ────────────────────────────────────────────────────────────────────


def fsyncs(bench: Bench) -> list[Row]:
    """Calls of fsync and fdatasync of a process that appends, counted from outside, less those of
    one that only opens and closes.
    """
    if shutil.which("strace") is None:
        return [Row("fsyncs per append", "skipped: strace is not installed")]
    rows: list[Row] = []
    raw = _count_syncs(bench.folder / "syncs raw", 0, bench.some(500))
    opening, raw_opening = (
        _count_syncs(bench.folder / "syncs opening", 1, 0),
        _count_syncs(bench.folder / "syncs raw opening", 0, 0),
    )
    for threads, each, target in ((1, bench.some(500), "1"), (16, bench.some(200), "< 0.2")):
        calls = _count_syncs(bench.folder / f"syncs {threads}", threads, each)
        if calls is None or raw is None or opening is None or raw_opening is None:
            return [Row("fsyncs per append", "skipped: strace may not trace here")]
        calls, total = calls - opening, threads * each
        facts: dict[str, object] = {
            "calls": calls,
            "appends": total,
            "raw_calls": raw,
            "raw_inserts": bench.some(500),
        }
        what = f"fsyncs per append, {threads} thread{'s' * (threads > 1)} x {each}"
        mine, theirs = calls / total, (raw - raw_opening) / bench.some(500)
        rows.append(
            Row(
                what,
                f"{mine:.3f}",
                f"{theirs:.3f} (1 thread)",
                f"{mine / theirs:.2f}x",
                target,
                facts,
            )
        )
    return rows


def _count_syncs(folder: Path, threads: int, each: int) -> int | None:
    trace = folder.with_suffix(".trace")
    command = [
        "strace",
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-e",
        "trace=fsync,fdatasync",
        "-o",
        str(trace),
        sys.executable,
        __file__,
    ]
    done = subprocess.run(
        [*command, "--append-to", str(folder), str(threads), str(each)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(f"strace: {done.stderr.strip()}", file=sys.stderr)
        return None
    return len(re.findall(r"\bf(?:data)?sync\(", trace.read_text()))


def append_to(folder: Path, threads: int, each: int) -> None:
    """The process that is traced. No threads at all: the raw database."""
    body = random_text()()
    if threads == 0:
        raw = Raw(folder)
        for _ in range(each):
            raw.insert(b"h" * 350, b"b" * 1024)
        return raw.close()
    writers = [Writer(plait.open_store(folder)) for _ in range(threads)]
    gate = threading.Barrier(threads)

    def work(writer: Writer) -> None:
        gate.wait()
        for _ in range(each):
            writer.append(body)

    running = [threading.Thread(target=work, args=(writer,)) for writer in writers]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    writers[0].store.close()


def size(bench: Bench) -> list[Row]:
    """Bytes on disk per event, once the write-ahead log is back in the file; the empty store is not
    counted.
    """
    empty, count = bench.folder / "size empty", bench.some(10_000)
    plait.open_store(empty).close()
    rows: list[Row] = []
    for (name, make), target in zip(SAMPLES.items(), ("<= 1536 B", "<= 1024 B"), strict=True):
        folder, raw = bench.folder / f"size {name}", Raw(bench.folder / f"size {name} raw")
        writer = filled(plait.open_store(folder), make(), count)
        raw.insert_all(stored(writer))
        writer.store.close()
        raw.close()
        ours, theirs = (
            (folder_size(folder) - folder_size(empty)) / count,
            folder_size(raw.folder) / count,
        )
        facts: dict[str, object] = {
            "plait": ours,
            "raw": theirs,
            "events": count,
            "empty": folder_size(empty),
        }
        rows.append(
            Row(
                f"bytes per 1 KB event at {count:,}, {name}",
                f"{ours:.0f} B",
                f"{theirs:.0f} B",
                f"{ours / theirs:.2f}x",
                target,
                facts,
            )
        )
    return rows


# ── forks, listings, readings ────────────────────────────────────────────────────────────────


def fork(bench: Bench) -> list[Row]:
    """Forks at random places of a long session, in bytes, and in time beside one raw insert and
    commit.
    """
    folder, count = bench.folder / "fork", bench.some(10_000)
    parent = filled(plait.open_store(folder), prose(), count)
    places = [(event.seq, event.id) for event in parent.store.read(parent.log)]
    parent.store.close()
    return [
        *_fork_times(bench, folder, parent, places),
        _fork_bytes(folder, parent.log, places, bench.some(1000)),
    ]


def _fork_times(
    bench: Bench, folder: Path, parent: Writer, places: list[tuple[int, Digest]]
) -> list[Row]:
    store, raw, draw = (
        settle(plait.open_store(folder)),
        Raw(bench.folder / "fork raw"),
        random.Random(3),
    )
    raw.settle()

    def look_up() -> None:
        place = draw.randint(1, len(places))
        begin_fork(store, parent.log, place, next(store.read(parent.log, place, place)).id)

    took = interleave(
        {
            "fork": lambda: begin_fork(store, parent.log, *draw.choice(places)),
            "looked up": look_up,
            "raw": lambda: raw.insert(parent.last.raw, parent.last.content),
        },
        bench.some(1000),
    )
    store.close()
    raw.close()
    return [
        _fork_row("fork at any place, wall p50", took["fork"], took["raw"], "<= 1.5"),
        _fork_row("fork, its point looked up first, wall p50", took["looked up"], took["raw"], "-"),
    ]


def _fork_bytes(folder: Path, parent: LogId, places: list[tuple[int, Digest]], forks: int) -> Row:
    before, store, draw = folder_size(folder), plait.open_store(folder), random.Random(4)
    for _ in range(forks):
        begin_fork(store, parent, *draw.choice(places))
    store.close()
    grown = (folder_size(folder) - before) / forks
    return Row(
        f"bytes per fork, over {forks:,}",
        f"{grown:.0f} B",
        target="<= 1024 B",
        facts={"bytes": grown, "forks": forks},
    )


def begin_fork(store: Store, parent: LogId, place: int, point: Digest) -> None:
    child, body = SOURCE.fresh(), ForkedFrom(parent, place, "branch")
    store.begin(
        child,
        seal_all(
            [body], log=child, seq=place + 1, parents=(point,), source=SOURCE, actor="human:bench"
        ),
        parent=parent,
    )


def _fork_row(what: str, ours: Timing, raw: Timing, target: str) -> Row:
    mine, theirs = percentile(ours.wall, 50), percentile(raw.wall, 50)
    return Row(
        what,
        us(mine),
        us(theirs),
        f"{mine / theirs:.2f}x",
        target,
        {"fork": ours.facts(), "raw": raw.facts()},
    )


def listing(bench: Bench) -> list[Row]:
    """A page of a hundred out of many sessions, beside the same page of a plain table with the same
    index.
    """
    store, raw, count = (
        plait.open_store(bench.folder / "list"),
        Raw(bench.folder / "list raw"),
        bench.some(10_000),
    )
    for i in range(count):
        Writer(
            store,
            [
                SessionOpened(
                    title=f"session {i}", user=f"user-{i % 50}", project=f"project-{i % 7}"
                )
            ],
        )
    query = _plain_rows(raw, store.rows("session", "session", order="number", limit=count))
    newest = {"order": "number", "descending": True, "limit": 100}
    took = interleave(
        {
            "rows": lambda: store.rows("session", "session", {"status": "open"}, **newest),
            "logs": lambda: store.logs(limit=100),
            "raw": lambda: raw.db.execute(query, ("open",)).fetchall(),
        },
        bench.some(1000),
    )
    pages = (
        len(store.rows("session", "session", {"status": "open"}, **newest)),
        len(store.logs(limit=100)),
    )
    assert pages == (min(100, count),) * 2, pages
    store.close()
    raw.close()
    return [
        _list_row(f"a page of 100 of {count:,} sessions, {name}", took[name], took["raw"])
        for name in ("rows", "logs")
    ]


def _plain_rows(raw: Raw, rows: list[dict[str, Any]]) -> str:
    """The sessions' rows in a table without a framework; returns the query for a page."""
    columns = ", ".join(f'"{name}"' for name in rows[0])
    raw.db.execute(
        f"CREATE TABLE session ({columns}); CREATE INDEX by_status ON session (status, number)"
    )
    with raw.db:
        raw.db.executemany(
            f"INSERT INTO session VALUES ({', '.join('?' * len(rows[0]))})",
            [tuple(row.values()) for row in rows],
        )
    return f"SELECT {columns} FROM session WHERE status = ? ORDER BY number DESC LIMIT 100"


def _list_row(what: str, ours: Timing, raw: Timing) -> Row:
    mine, theirs = percentile(ours.wall, 50), percentile(raw.wall, 50)
    facts: dict[str, object] = {"plait": ours.facts(), "raw": raw.facts()}
    return Row(what, ms(mine), ms(theirs), f"{mine / theirs:.2f}x", "<= 0.5 ms", facts)


def reading(bench: Bench) -> list[Row]:
    """Opening a store and decoding every event of a session; then checking every hash of it."""
    folder, raw, count = bench.folder / "read", Raw(bench.folder / "read raw"), bench.some(10_000)
    writer = filled(plait.open_store(folder), prose(), count)
    raw.insert_all(stored(writer))
    writer.store.close()
    took = interleave(
        {
            "read": lambda: _read(folder, writer.log, count),
            "select": lambda: list(_select(raw)),
            "verify": lambda: _verify(folder),
            "hash": lambda: [
                (sha256(header).digest(), sha256(body).digest()) for header, body in _select(raw)
            ],
        },
        5,
    )
    raw.close()
    cpu = {name: statistics.median(timing.cpu) for name, timing in took.items()}
    facts: dict[str, object] = {f"{name}_cpu_ms": value * 1e3 for name, value in cpu.items()}
    rate, raw_rate = count / cpu["verify"], count / cpu["hash"]
    what = f"open, read and decode {count:,} events, CPU"
    return [
        Row(
            what,
            ms(cpu["read"]),
            f"{ms(cpu['select'])} (select)",
            f"{cpu['read'] / cpu['select']:.1f}x",
            "<= 50 ms",
            facts,
        ),
        Row(
            "verify, events/s/core",
            f"{rate:,.0f}",
            f"{raw_rate:,.0f} (select, hash)",
            f"{rate / raw_rate:.2f}x",
            ">= 50,000",
            facts,
        ),
    ]


def _read(folder: Path, log: LogId, count: int) -> None:
    store = plait.open_store(folder)
    seen = 0
    for event in store.read(log):
        seen += event.header.seq > 0 and isinstance(event.body, Body)
    assert seen == count, seen
    store.close()


def _verify(folder: Path) -> None:
    store = plait.open_store(folder)
    faults = list(verify_store(store))
    assert not faults, faults
    store.close()


def _select(raw: Raw) -> Iterator[tuple[bytes, bytes]]:
    return raw.db.execute("SELECT header, body FROM event")


# ── starting up ──────────────────────────────────────────────────────────────────────────────

_LOADED = (
    "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})),"
    " file=sys.stderr)"
)


def importing(bench: Bench) -> list[Row]:
    """CPU of a fresh process that imports the package, and of one that prints its help, beside one
    that does nothing.
    """
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import plait": [sys.executable, "-c", "import plait"],
        "plait --help": [str(Path(sys.executable).with_name("plait")), "--help"],
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    order = list(commands)
    draw = random.Random(5)
    for _ in range(3 if bench.quick else 15):
        draw.shuffle(order)
        for name in order:
            took[name].append(_cpu_of(commands[name]))
    bare = statistics.median(took["python"])
    rows = [
        _import_row(name, statistics.median(took[name]), bare, took)
        for name in order
        if name != "python"
    ]
    return [*sorted(rows, key=lambda row: row.what), _vendors()]


def _import_row(name: str, mine: float, bare: float, took: dict[str, list[float]]) -> Row:
    facts: dict[str, object] = {
        "cpu_ms": [value * 1e3 for value in took[name]],
        "bare_cpu_ms": [value * 1e3 for value in took["python"]],
    }
    return Row(
        f"{name}, CPU", ms(mine), f"{ms(bare)} (python)", f"+{ms(mine - bare)}", "<= 150 ms", facts
    )


def _cpu_of(command: list[str]) -> float:
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(command[0], command, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime


def _vendors() -> Row:
    """List the packages of others that the import and the help load."""
    helping = (
        "import sys; sys.argv = ['plait', '--help']\nfrom plait.cli import main\ntry:"
        " main()\nexcept SystemExit: pass\n"
    )
    loaded = {
        name: _modules_of(code) for name, code in (("import", "import plait\n"), ("help", helping))
    }
    ours = _modules_of("")
    vendors = sorted({name for names in loaded.values() for name in names if name in VENDORS})
    others = sorted(set().union(*loaded.values()) - ours - set(sys.stdlib_module_names))
    facts: dict[str, object] = {"vendors": vendors, "others": others}
    return Row(
        "vendor modules loaded by either", ", ".join(vendors) or "none", target="none", facts=facts
    )


def _modules_of(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code + _LOADED], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


# ── running it ───────────────────────────────────────────────────────────────────────────────

PARTS: tuple[Callable[[Bench], list[Row]], ...] = (
    append,
    growth,
    memory,
    fsyncs,
    size,
    fork,
    listing,
    reading,
    importing,
)


def us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us"


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def run(bench: Bench, parts: Sequence[Part], only: str | None) -> list[Row]:
    rows: list[Row] = []
    for part in parts:
        if only in (None, part.__name__):
            start = time.perf_counter()
            rows += part(bench)
            print(f"{part.__name__}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return rows


def serve(about: str, parts: Sequence[Part], results: Path) -> None:
    """The command line of a script: run its parts, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about a tenth of everything")
    parser.add_argument(
        "--only",
        choices=[part.__name__ for part in parts],
        help="one part alone; nothing is written",
    )
    parser.add_argument(
        "--date", default="", help="the date to write into the results; today if not given"
    )
    parser.add_argument("--append-to", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.append_to:
        return append_to(Path(asked.append_to[0]), int(asked.append_to[1]), int(asked.append_to[2]))
    RESULTS.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=RESULTS))
    try:
        rows = run(Bench(scratch, asked.quick), parts, asked.only)
    finally:
        shutil.rmtree(scratch)
    facts = machine(RESULTS, asked.date) | {"quick": asked.quick}
    print_table(rows)
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    if asked.only is None:
        write_json(results, facts, rows)


def main() -> None:
    serve(__doc__ or "", PARTS, RESULTS / "log.json")


if __name__ == "__main__":
    main()
