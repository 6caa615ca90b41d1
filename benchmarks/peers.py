"""The log beside its peers: what an append, a fork, a reading and a listing cost others, measured
in the same run.

Every contestant is a process of its own (`guests/`), because their environments differ and none
shall pay for what another imports. They take turns: one operation of each per round, in an order
drawn anew. Each times itself; here they are only asked. A contestant that is missing, has no such
operation or fails is a cell that says so.

    python benchmarks/peers.py [--quick] [--patient] [--only NAME] [--date YYYY-MM-DD] [--peers PYTHON]
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec

from measure import WARM_UP, Timing, folder_size, machine, percentile
from samples import random_text

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PATIENCE_S = 3600  # for one answer; filling a long session is one
SYNCS = "fsync,fdatasync,sync_file_range,msync"
WIDTH = 160
BURST = 10  # appends in memory at a time


class Contestant(msgspec.Struct, frozen=True):
    name: str
    script: str
    option: str = ""
    ours: bool = False  # runs in this environment, not in that of the peers
    imports: str = ""  # what a program has to import to use it
    # messages in the longest session it is given, unless asked for more: what it fills in a minute
    # or two
    longest: int = 10_000


CONTESTANTS = (
    Contestant("Plait", "plait_log.py", ours=True, imports="import plait"),
    Contestant("raw", "raw_log.py", ours=True, imports="pass"),
    Contestant(
        "LangGraph",
        "langgraph_log.py",
        "messages",
        imports="import langgraph.graph, langgraph.checkpoint.sqlite",
        longest=1000,
    ),
    Contestant("LangGraph plain", "langgraph_log.py", "plain", longest=1000),
    Contestant("LangGraph delta", "langgraph_log.py", "delta", longest=1000),
    Contestant("DBOS", "dbos_log.py", "default", imports="import dbos", longest=1000),
    Contestant("DBOS WAL", "dbos_log.py", "wal", longest=1000),
    Contestant("OpenAI", "openai_log.py", imports="import agents"),
    Contestant("OpenRath", "openrath_log.py", "session", imports="import rath.session"),
    Contestant("OpenRath runs", "openrath_log.py", "runs", longest=1000),
)


class Failed(Exception):
    """A contestant could not do what it was asked, and why."""


class Cell(msgspec.Struct):
    """One figure of one contestant. Without a value it says why there is none."""

    value: float | None = None
    says: str = ""
    ratio: float | None = None  # to the raw limit of the same run
    facts: dict[str, Any] = {}


class Line(msgspec.Struct):
    what: str
    unit: str  # ms, us, B, MB, or nothing for a count
    cells: dict[str, Cell]


# ── talking to a contestant ──────────────────────────────────────────────────────────────────


class Worker:
    """A contestant's process, and the line to it."""

    def __init__(
        self, contestant: Contestant, python: str, folder: Path, trace: Path | None = None
    ) -> None:
        self.folder = folder
        home = folder.with_name(f"{folder.name} home")
        home.mkdir(parents=True)
        self.errors = home / "errors"
        command = [python, str(HERE / "guests" / contestant.script), str(folder), contestant.option]
        if trace:
            command = [
                "strace",
                "-f",
                "-qq",
                "--seccomp-bpf",
                "-e",
                f"trace={SYNCS}",
                "-o",
                str(trace),
                *command,
            ]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(home, contestant.ours),
            )

    def ask(self, do: str, **what: object) -> dict[str, Any]:
        line, answers = self.process.stdin, self.process.stdout
        assert line is not None and answers is not None
        try:
            line.write(json.dumps({"do": do, **what}).encode() + b"\n")
            line.flush()
        except BrokenPipeError:
            raise Failed(self._last_words()) from None
        if not select.select([answers], [], [], PATIENCE_S)[0]:
            raise Failed(f"no answer to {do} in {PATIENCE_S} s")
        answer = answers.readline()
        if not answer:
            raise Failed(self._last_words())
        return _checked(json.loads(answer))

    def end(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _last_words(self) -> str:
        lines = self.errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ended without a word (exit code {self.process.poll()})"


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise Failed(answer["error"])
    if "none" in answer:
        raise Failed("none")
    return answer


def environment(home: Path, ours: bool) -> dict[str, str]:
    """Nothing of ours but the path: no keys, no telemetry, no home with settings in it."""
    quiet = {
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "OTEL_SDK_DISABLED": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network when it is imported
        "DO_NOT_TRACK": "1",
        "NO_PROXY": "*",
    }
    place = {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONWARNINGS": "ignore",
    }
    return quiet | place | ({"PYTHONPATH": str(HERE), "PLAIT_ACTOR": "human:bench"} if ours else {})


class Bench:
    """The folder to work in, the amount of work, and the contestants."""

    def __init__(self, folder: Path, peers: str, quick: bool, patient: bool) -> None:
        self.folder, self.quick, self.patient = folder, quick, patient
        self.pythons = {True: sys.executable, False: peers}
        self.sample = random_text()
        self.main: dict[str, Worker] = {}
        self.long: dict[tuple[str, int], str] = {}
        self.bytes: dict[tuple[str, int], float] = {}
        self.about: dict[str, dict[str, str]] = {}
        self.absent: dict[str, str] = {}
        self._made = 0

    def some(self, full: int) -> int:
        return max(full // 10, 5) if self.quick else full

    def text(self) -> str:
        return self.sample().parts[0].text  # type: ignore[union-attr]

    def texts(self, count: int) -> list[str]:
        return [self.text() for _ in range(count)]

    def start(self, contestant: Contestant, trace: Path | None = None) -> Worker:
        if contestant.name in self.absent:
            raise Failed(self.absent[contestant.name])
        self._made += 1
        try:
            worker = Worker(
                contestant, self.pythons[contestant.ours], self.folder / str(self._made), trace
            )
        except OSError as error:
            raise Failed(str(error)) from None
        try:
            self.about[contestant.name] = worker.ask("about")["value"]
        # broken off too: nobody may be left behind to write into a folder that is gone
        except BaseException as why:
            worker.end()
            if isinstance(why, Failed):
                self.absent[contestant.name] = str(why)
            raise
        return worker

    @contextmanager
    def everybody(self) -> Iterator[dict[str, Worker]]:
        """A fresh process and an empty store for each, for one part."""
        workers: dict[str, Worker] = {}
        try:
            for contestant in CONTESTANTS:
                try:
                    workers[contestant.name] = self.start(contestant)
                except Failed:
                    continue
            yield workers
        finally:
            for worker in workers.values():
                worker.end()

    def at_hand(self, contestant: Contestant) -> Worker:
        """The process that keeps the long sessions, for the parts that share them."""
        if contestant.name not in self.main:
            worker = self.main[contestant.name] = self.start(contestant)
            worker.ask("settle")
        return self.main[contestant.name]

    def check_length(self, contestant: Contestant, length: int) -> None:
        if length > max(100, self.some(contestant.longest)) and not self.patient:
            raise Failed("too slow to fill")

    def session(self, contestant: Contestant, length: int) -> str:
        """A session of this length, filled when first asked for. What it takes on disk is noted."""
        self.check_length(contestant, length)
        key = contestant.name, length
        if key not in self.long:
            worker = self.at_hand(contestant)
            before = size_of(worker.folder)
            name = worker.ask("begin")["value"]
            worker.ask("fill", session=name, texts=self.texts(length))
            self.bytes[key] = (size_of(worker.folder) - before) / length
            self.long[key] = name
        return self.long[key]

    def close(self) -> None:
        for worker in self.main.values():
            worker.end()


def size_of(folder: Path) -> int:
    """Return the bytes on disk once every write-ahead log is back in its file."""
    for file in folder.rglob("*"):
        if file.is_file() and file.open("rb").read(15) == b"SQLite format 3":
            connection = apsw.Connection(str(file))
            connection.set_busy_timeout(10_000)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.close()
    return folder_size(folder)


# ── rounds and rows ──────────────────────────────────────────────────────────────────────────

Ask = Callable[[], dict[str, Any]]


class Heat:
    """Contestants taking turns: what each took, and why some dropped out."""

    def __init__(self) -> None:
        self.asks: dict[Any, Ask] = {}
        self.took: dict[Any, Timing] = {}
        self.out: dict[Any, str] = {}

    def enter(self, key: Any, prepare: Callable[[], Ask]) -> None:
        try:
            self.asks[key], self.took[key] = prepare(), Timing()
        except Failed as why:
            self.out[key] = str(why)

    def run(self, rounds: int) -> Heat:
        draw = random.Random(7)
        order = list(self.asks)
        for i in range(-max(1, int(rounds * WARM_UP)), rounds):
            draw.shuffle(order)
            for key in [key for key in order if key not in self.out]:
                self._turn(key, counted=i >= 0)
        return self

    def cells(self, keys: Mapping[str, Any], clock: str, scale: float) -> dict[str, Cell]:
        """By contestant; the ratios are to the raw limit."""
        return _with_ratios({name: self._cell(key, clock, scale) for name, key in keys.items()})

    def _turn(self, key: Any, counted: bool) -> None:
        try:
            answer = self.asks[key]()
        except Failed as why:
            self.out[key] = str(why)
            return
        if counted:
            self.took[key].wall.append(answer["wall"])
            self.took[key].cpu.append(answer["cpu"])

    def _cell(self, key: Any, clock: str, scale: float) -> Cell:
        if key in self.out or key not in self.took:
            return Cell(says=self.out.get(key, "absent"))
        timing = self.took[key]
        return Cell(
            percentile(getattr(timing, clock), 50) * scale,
            facts=timing.facts() | {"rounds": len(timing.wall)},
        )


def _with_ratios(cells: dict[str, Cell]) -> dict[str, Cell]:
    raw = cells.get("raw", Cell()).value
    for cell in cells.values():
        if raw and cell.value is not None:
            cell.ratio = cell.value / raw
    return cells


def each(bench: Bench, figure: Callable[[Contestant], float]) -> dict[str, Cell]:
    """One figure of every contestant."""
    cells: dict[str, Cell] = {}
    for contestant in CONTESTANTS:
        try:
            cells[contestant.name] = Cell(figure(contestant))
        except Failed as why:
            cells[contestant.name] = Cell(says=str(why))
    return _with_ratios(cells)


# ── the parts ────────────────────────────────────────────────────────────────────────────────


def append(bench: Bench) -> list[Line]:
    """A durable append of 1 KB to sessions of several lengths, all lengths of all contestants in
    each round.
    """
    rounds, heat = bench.some(300), Heat()
    lengths = [10, 100, bench.some(1000), bench.some(10_000)]
    lengths = sorted(set(lengths))
    for length in lengths:
        for contestant in CONTESTANTS:
            heat.enter(
                (contestant.name, length), partial(_appending, bench, contestant, length, rounds)
            )
    heat.run(rounds)
    lines: list[Line] = []
    for clock in ("wall", "cpu"):
        for length in lengths:
            keys = {contestant.name: (contestant.name, length) for contestant in CONTESTANTS}
            word = "wall" if clock == "wall" else "CPU"
            lines.append(
                Line(f"append after {length:,}, {word}", "ms", heat.cells(keys, clock, 1e3))
            )
    return lines


def _appending(bench: Bench, contestant: Contestant, length: int, rounds: int) -> Ask:
    """Short sessions are left after a few appends, so that they stay as short as the row says."""
    worker = bench.at_hand(contestant)
    names = [bench.session(contestant, length)]
    each_takes = max(10, length // 2)
    for _ in range((rounds + int(rounds * WARM_UP)) // each_takes):
        if length < 1000:
            names.append(worker.ask("begin")["value"])
            worker.ask("fill", session=names[-1], texts=bench.texts(length))
    turns = iter(range(10**9))

    def ask() -> dict[str, Any]:
        name = names[min(next(turns) // each_takes, len(names) - 1)]
        return worker.ask("append", session=name, text=bench.text())

    return ask


def fsyncs(bench: Bench) -> list[Line]:
    """Calls that wait for the disk, counted from outside while each appends; checkpoints are among
    them.
    """
    if shutil.which("strace") is None:
        return [
            Line(
                "fsyncs per append",
                "",
                {contestant.name: Cell(says="no strace") for contestant in CONTESTANTS},
            )
        ]
    return [Line("fsyncs per append", "", each(bench, partial(_syncs, bench, bench.some(500))))]


def _syncs(bench: Bench, appends: int, contestant: Contestant) -> float:
    trace = bench.folder / f"{contestant.name}.trace"
    worker = bench.start(contestant, trace)
    try:
        worker.ask("settle")
        name = worker.ask("begin")["value"]
        worker.ask("append", session=name, text=bench.text())
        before = calls_in(trace)
        for _ in range(appends):
            worker.ask("append", session=name, text=bench.text())
        return (calls_in(trace) - before) / appends
    finally:
        worker.end()


def calls_in(trace: Path) -> int:
    """A call that another thread interrupts takes two lines; only the first has a bracket after its
    name.
    """
    return sum(
        f"{name}(" in line for line in trace.read_text().splitlines() for name in SYNCS.split(",")
    )


def size(bench: Bench) -> list[Line]:
    """Bytes on disk per message of 1 KB that hardly compresses; what stood there before is not
    counted.
    """
    lines: list[Line] = []
    for length in (bench.some(1000), bench.some(10_000)):

        def bytes_each(contestant: Contestant, length: int = length) -> float:
            bench.session(contestant, length)
            return bench.bytes[contestant.name, length]

        lines.append(Line(f"bytes per message at {length:,}", "B", each(bench, bytes_each)))
    return lines


def state(bench: Bench) -> list[Line]:
    """Opening the store anew and bringing back every message."""
    lines: list[Line] = []
    for length in (bench.some(1000), bench.some(10_000)):
        heat = Heat()
        for contestant in CONTESTANTS:
            heat.enter(contestant.name, partial(_reading, bench, contestant, length))
        heat.run(10)
        keys = {contestant.name: contestant.name for contestant in CONTESTANTS}
        lines.append(Line(f"open and read {length:,}, CPU", "ms", heat.cells(keys, "cpu", 1e3)))
    return lines


def _reading(bench: Bench, contestant: Contestant, length: int) -> Ask:
    worker, name = bench.at_hand(contestant), bench.session(contestant, length)

    def ask() -> dict[str, Any]:
        answer = worker.ask("state", session=name)
        if answer["value"] < length:
            raise Failed(f"{answer['value']} of {length} came back")
        return answer

    return ask


def fork(bench: Bench) -> list[Line]:
    """Forks at random places of a session of a thousand, in time and bytes.

    After the others: some move their session by it.
    """
    length, rounds, heat, draw = bench.some(1000), bench.some(100), Heat(), random.Random(3)
    before: dict[str, int] = {}

    def forking(contestant: Contestant) -> Ask:
        worker = bench.at_hand(contestant)
        name = worker.ask("parent", session=bench.session(contestant, length))["value"]
        worker.ask("fork", session=name, place=length // 2)
        before[contestant.name] = size_of(worker.folder)
        return lambda: worker.ask("fork", session=name, place=draw.randint(1, length - 1))

    for contestant in CONTESTANTS:
        heat.enter(contestant.name, partial(forking, contestant))
    heat.run(rounds)
    keys = {contestant.name: contestant.name for contestant in CONTESTANTS}
    made = rounds + max(1, int(rounds * WARM_UP))

    def grown(contestant: Contestant) -> float:
        if contestant.name in heat.out:
            raise Failed(heat.out[contestant.name])
        return (size_of(bench.main[contestant.name].folder) - before[contestant.name]) / made

    return [
        Line(f"fork of {length:,}, wall", "ms", heat.cells(keys, "wall", 1e3)),
        Line("bytes per fork", "B", each(bench, grown)),
    ]


def listing(bench: Bench) -> list[Line]:
    """A page of a hundred out of many sessions."""
    count, heat = bench.some(10_000), Heat()
    with bench.everybody() as workers:
        for name, worker in workers.items():
            heat.enter(name, partial(_listing, worker, count))
        heat.run(bench.some(50))
    keys = {contestant.name: contestant.name for contestant in CONTESTANTS}
    what = f"page of 100 of {count:,}"
    return [
        Line(f"{what}, wall", "ms", heat.cells(keys, "wall", 1e3)),
        Line(f"{what}, CPU", "ms", heat.cells(keys, "cpu", 1e3)),
    ]


def _listing(worker: Worker, count: int) -> Ask:
    worker.ask("crowd", count=count)
    found = worker.ask("page")["value"]
    if found != 100:
        raise Failed(f"a page of {found}")
    return lambda: worker.ask("page")


def memory(bench: Bench) -> list[Line]:
    """An append to a session in memory, for those who have such a thing; ten at a time, a tenth of
    it counted.
    """
    heat, lengths = Heat(), (bench.some(1000), bench.some(10_000))
    with bench.everybody() as workers:
        for contestant in CONTESTANTS:
            for length in lengths:
                if contestant.name in workers:
                    heat.enter(
                        (contestant.name, length),
                        partial(_remembering, bench, contestant, workers[contestant.name], length),
                    )
        heat.run(bench.some(50))
    lines: list[Line] = []
    for length in lengths:
        keys = {contestant.name: (contestant.name, length) for contestant in CONTESTANTS}
        lines.append(
            Line(f"in memory after {length:,}, CPU", "us", heat.cells(keys, "cpu", 1e6 / BURST))
        )
    return lines


def _remembering(bench: Bench, contestant: Contestant, worker: Worker, length: int) -> Ask:
    worker.ask("hold", texts=[])  # who has none says so before who is slow
    bench.check_length(contestant, length)
    name = worker.ask("hold", texts=bench.texts(length))["value"]
    return lambda: worker.ask("remember", session=name, texts=bench.texts(BURST))


def branches(bench: Bench) -> list[Line]:
    """A thousand branches of one session that have each gone their own way, as values at hand."""
    count, length = bench.some(1000), bench.some(10_000)

    def ram(contestant: Contestant) -> float:
        worker = bench.start(contestant)
        try:
            return (
                worker.ask("branches", texts=bench.texts(length), count=count, text="mine")["value"]
                / 1e6
            )
        finally:
            worker.end()

    return [Line(f"RAM of {count:,} forks of {length:,}", "MB", each(bench, ram))]


def importing(bench: Bench) -> list[Line]:
    """CPU of a fresh process that imports what is needed, beside one that imports nothing; and how
    many modules that loads.
    """
    took: dict[str, list[float]] = {
        contestant.name: [] for contestant in CONTESTANTS if contestant.imports
    }
    order = [contestant for contestant in CONTESTANTS if contestant.imports]
    modules: dict[str, float] = {}
    draw = random.Random(5)
    for _ in range(3 if bench.quick else 10):
        draw.shuffle(order)
        for contestant in order:
            try:
                cpu, modules[contestant.name] = _imported(bench, contestant)
            except Failed as why:
                bench.absent[contestant.name] = str(why)
                continue
            took[contestant.name].append(cpu)

    def cpu_of(contestant: Contestant) -> float:
        return statistics.median(_known(took.get(contestant.name), contestant, bench)) * 1e3

    def modules_of(contestant: Contestant) -> float:
        return _known(modules.get(contestant.name), contestant, bench)

    return [
        Line("import, CPU", "ms", each(bench, cpu_of)),
        Line("modules imported", "", each(bench, modules_of)),
    ]


def _known(figure: Any, contestant: Contestant, bench: Bench) -> Any:
    if figure:
        return figure
    raise Failed(
        bench.absent.get(contestant.name, "same" if not contestant.imports else "no figure")
    )


def _imported(bench: Bench, contestant: Contestant) -> tuple[float, int]:
    home = bench.folder / "import home"
    home.mkdir(exist_ok=True)
    code = f"{contestant.imports}\nimport sys, time\nprint(time.process_time(), len(sys.modules))"
    command = [bench.pythons[contestant.ours], "-c", code]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(home, False), timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1])
    cpu, modules = done.stdout.split()
    return float(cpu), int(modules)


# ── the report ───────────────────────────────────────────────────────────────────────────────

PARTS: tuple[Callable[[Bench], list[Line]], ...] = (
    append,
    fsyncs,
    size,
    state,
    fork,
    listing,
    memory,
    branches,
    importing,
)
DIGITS = 3  # that mean anything


def print_table(lines: list[Line]) -> None:
    """Two lines a row: the figure, and its ratio to the raw limit below it."""
    names = [contestant.name for contestant in CONTESTANTS]
    first = max(len(line.what) for line in lines) + 2
    width = (WIDTH - first) // len(names)
    heads = [name.partition(" ") for name in names]
    print(_row("", [head for head, _, _ in heads], first, width))
    print(_row("", [tail for _, _, tail in heads], first, width))
    for line in lines:
        cells = [line.cells.get(name, Cell(says="absent")) for name in names]
        print(_row(line.what, [shown(cell, line.unit) for cell in cells], first, width))
        ratios = [f"{significant(cell.ratio)}x" if cell.ratio is not None else "" for cell in cells]
        if any(ratios):
            print(_row("", ratios, first, width))


def _row(what: str, cells: list[str], first: int, width: int) -> str:
    return (what.ljust(first) + "".join(cell[: width - 1].rjust(width) for cell in cells)).rstrip()


def shown(cell: Cell, unit: str) -> str:
    if cell.value is None:
        return {"none": "none", "same": "same", "too slow to fill": "-", "absent": "absent"}.get(
            cell.says, "failed"
        )
    if unit == "B" and cell.value >= 10_000:
        return f"{significant(cell.value / 1000)} KB"
    return f"{significant(cell.value)} {unit}".rstrip()


def significant(value: float) -> str:
    """Three digits, without an exponent."""
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, DIGITS - whole)}f}"


def reasons(lines: list[Line]) -> list[str]:
    """Return the reasons why cells have no figure, for which the table has no room."""
    known = {"", "none", "same", "too slow to fill"}
    said = {
        f"{name}: {cell.says}"
        for line in lines
        for name, cell in line.cells.items()
        if cell.says not in known
    }
    return sorted(said)


def run(bench: Bench, only: str | None, lines: list[Line]) -> None:
    """Into a list that is handed in, so that a run that is broken off can still
    tell what it knows.
    """
    for part in PARTS:
        if only in (None, part.__name__):
            start = time.perf_counter()
            lines += part(bench)
            print(f"{part.__name__}: {time.perf_counter() - start:.1f} s", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about a tenth of everything")
    parser.add_argument(
        "--patient",
        action="store_true",
        help="long sessions also for those who take long to fill them",
    )
    parser.add_argument(
        "--only",
        choices=[part.__name__ for part in PARTS],
        help="one part alone; nothing is written",
    )
    parser.add_argument(
        "--date", default="", help="the date to write into the results; today if not given"
    )
    parser.add_argument(
        "--peers",
        default=str(HERE.parent / ".venv-peers" / "bin" / "python"),
        help="the interpreter of the peers",
    )
    asked = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=RESULTS))
    bench, lines = Bench(scratch, asked.peers, asked.quick, asked.patient), []
    facts = machine(RESULTS, asked.date) | {"quick": asked.quick}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("broken off"))
    try:
        run(bench, asked.only, lines)
    finally:
        bench.close()
        shutil.rmtree(scratch, ignore_errors=True)
        report(lines, bench.about, facts)
    if asked.only is None:
        document = {
            "machine": facts,
            "contestants": bench.about,
            "absent": bench.absent,
            "rows": msgspec.to_builtins(lines),
        }
        (RESULTS / "peers.json").write_text(json.dumps(document, indent=2) + "\n")


def report(lines: list[Line], about: dict[str, dict[str, str]], facts: dict[str, object]) -> None:
    if lines:
        print_table(lines)
    print(
        "\nnone: it has no such operation. -: too slow to fill. The second figure is the ratio to"
        " raw in the same run."
    )
    for name, said in about.items():
        print(f"{name}: {said['version']}; {said['settings']}")
    for reason in reasons(lines):
        print(reason)
    print(", ".join(f"{name} {value}" for name, value in facts.items()))


if __name__ == "__main__":
    main()
