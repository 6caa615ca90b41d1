"""The session, measured: what its value, its branches, its state and its questions cost.

python benchmarks/session.py [--quick] [--only NAME] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import gc
import statistics
import tracemalloc
from collections.abc import Callable
from functools import partial

import plait
from log import RESULTS, Bench, ms, serve, settle, us
from measure import Raw, Row, Timing, interleave
from plait import Session
from plait.event import VOCABULARY
from plait.event.kinds import (
    FactRecorded,
    MessageSaid,
    ModelReplied,
    Text,
    ToolRequested,
    ToolReturned,
    Usage,
)
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from samples import prose


def said(session: Session, count: int) -> Session:
    """A conversation with an agent: of every ten events four are messages, two replies, three a
    tool's, and one is a fact.
    """
    act, sample = Act("agent:bench", "model"), prose()
    done = 0
    while done < count:
        batch = min(1000, count - done)
        bodies = [_body(done + i, sample) for i in range(batch)]
        session = session_at(
            writer_of(None).append(position_of(session), [Draft(body, act) for body in bodies])
        )
        done += batch
    return session


def _body(
    i: int, sample: Callable[[], MessageSaid]
) -> MessageSaid | ModelReplied | ToolRequested | ToolReturned | FactRecorded:
    kind = i % 10
    if kind in (4, 8):
        return ModelReplied(sample().parts, Usage(900, 100), "end")
    if kind == 5:
        return ToolRequested("search", {"query": "two-item carts"}, "pure")
    if kind == 6:
        return ToolReturned((Text("found 3 rows"),))
    if kind == 9:
        return FactRecorded(f"k{i % 70}", i, "fact")
    return sample()


def append(bench: Bench) -> list[Row]:
    """`say` through the public API beside raw SQLite, one operation each per round: durable, and at
    the next boundary.
    """
    sample, raw = prose(), Raw(bench.folder / "say raw")
    raw.settle()
    sessions = {
        mode: Session(
            "x", store=settle(plait.open_store(bench.folder / f"say {mode}")), durability=mode
        )
        for mode in ("full", "async")
    }
    header, content, text = next(iter(sessions["full"].events)).raw, b"", ""

    def prepare() -> None:
        nonlocal content, text
        body = sample()
        content, part = VOCABULARY.encode(body), body.parts[0]
        assert isinstance(part, Text)
        text = part.text

    def say(mode: str) -> None:
        sessions[mode] = sessions[mode].say(text)

    contestants = {mode: partial(say, mode) for mode in sessions} | {
        "raw": lambda: raw.insert(header, content)
    }
    took = interleave(contestants, bench.some(1500), prepare)
    raw.close()
    return [row for mode in sessions for row in _say_rows(mode, took[mode], took["raw"])]


def _say_rows(mode: str, ours: Timing, raw: Timing) -> list[Row]:
    wall, cpu, raw_wall, raw_cpu = (
        statistics.median(each) for each in (ours.wall, ours.cpu, raw.wall, raw.cpu)
    )
    facts: dict[str, object] = {"ours": ours.facts(), "raw": raw.facts()}
    targets = ("<= 1.5x", "+50 us") if mode == "full" else ("-", "-")
    return [
        Row(
            f"session.say of 1 KB prose, {mode}, wall",
            us(wall),
            us(raw_wall),
            f"{wall / raw_wall:.2f}x",
            targets[0],
            facts,
        ),
        Row(
            f"session.say of 1 KB prose, {mode}, CPU",
            us(cpu),
            us(raw_cpu),
            f"{(cpu - raw_cpu) * 1e6:+.0f} us",
            targets[1],
            facts,
        ),
    ]


def memory(bench: Bench) -> list[Row]:
    """A value in memory: flat, however long the session is."""
    lengths = [10, bench.some(100_000)]
    sessions = {
        str(length): said(Session("x", store=f"memory:bench-{length}"), length)
        for length in lengths
    }
    for session in sessions.values():
        assert session.status == "open"

    def say(name: str) -> None:
        sessions[name] = sessions[name].say("hello")

    def fork(name: str) -> None:
        sessions[name].fork()

    took = interleave(
        {
            f"{verb.__name__} {name}": lambda verb=verb, name=name: verb(name)
            for verb in (say, fork)
            for name in sessions
        },
        2000,
    )
    rows: list[Row] = []
    for verb in ("say", "fork"):
        short, long = (statistics.median(took[f"{verb} {length}"].cpu) for length in lengths)
        what = f"{verb} in memory, after {lengths[1]:,} events"
        rows.append(
            Row(
                what,
                us(long),
                f"{us(short)} (after 10)",
                f"{long / short:.2f}x",
                "flat",
                {"cpu_us": long * 1e6},
            )
        )
    return rows


def forks(bench: Bench) -> list[Row]:
    """A thousand branches that have each gone their own way, as values at hand."""
    count, length = bench.some(1000), bench.some(10_000)
    store = plait.open_store(bench.folder / "forks")
    session = said(Session("x", store=store), length)
    assert session.facts
    gc.collect()
    tracemalloc.start()
    branches = [session.fork().say("mine") for _ in range(count)]
    gc.collect()
    held = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(False, "*/store/*"), tracemalloc.Filter(False, tracemalloc.__file__)]
    )
    values = sum(stat.size for stat in held.statistics("filename"))
    total = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len({branch.head for branch in branches}) == count
    what = f"{count:,} diverged forks of {length:,} events, RAM"
    facts: dict[str, object] = {"values_bytes": values, "with_the_store_bytes": total}
    return [
        Row(
            what,
            f"{total / 1e6:.2f} MB",
            f"{values / 1e6:.2f} MB (without the store's caches)",
            "-",
            "< 2 MB",
            facts,
        )
    ]


def state(bench: Bench) -> list[Row]:
    """Opening a session and asking for all it knows: from its events alone, and from a snapshot and
    what came after.
    """
    length = bench.some(10_000)
    folder, raw = bench.folder / "state", Raw(bench.folder / "state raw")
    store = plait.open_store(folder)
    session = said(Session("x", store=store), length)
    raw.insert_all((event.raw, event.content) for event in session.events)
    kept = Session.open(session.id, store=store)
    for i in range(600):  # crosses a multiple of 256, so a snapshot stands
        kept = kept.fact("last", i)
    snapshots = store.all_kept(session.id)
    assert snapshots

    def whole() -> None:
        store.forget_kept()
        known = Session.open(session.id, store=store)
        assert known.facts["last"] == 599 and known.budget.usage.input_tokens

    def from_snapshot() -> None:
        for seq, data in snapshots:
            store.keep(session.id, seq, data)
        took["snapshot"].run(_know)

    def _know() -> None:
        known = Session.open(session.id, store=store)
        assert known.facts["last"] == 599 and known.budget.usage.input_tokens

    took = {"snapshot": Timing(), "whole": Timing(), "select": Timing(), "messages": Timing()}
    for _ in range(bench.some(50)):
        from_snapshot()
        took["whole"].run(whole)
        took["select"].run(lambda: list(raw.db.execute("SELECT header, body FROM event")))
        took["messages"].run(lambda: Session.open(session.id, store=store).messages)
    raw.close()
    cpu = {name: statistics.median(timing.cpu) for name, timing in took.items()}
    facts: dict[str, object] = {f"{name}_cpu_ms": value * 1e3 for name, value in cpu.items()}
    select = f"{ms(cpu['select'])} (select)"
    return [
        Row(
            f"open and state of {length:,} events, CPU",
            ms(cpu["whole"]),
            select,
            f"{cpu['whole'] / cpu['select']:.1f}x",
            "<= 50 ms",
            facts,
        ),
        Row(
            "the same from a snapshot and its tail", ms(cpu["snapshot"]), "-", "-", "<= 2 ms", facts
        ),
        Row(
            f"transcript of {length:,} events, CPU",
            ms(cpu["messages"]),
            select,
            f"{cpu['messages'] / cpu['select']:.1f}x",
            "-",
            facts,
        ),
    ]


def listing(bench: Bench) -> list[Row]:
    """A page of sessions as values."""
    store = plait.open_store(bench.folder / "list")
    for i in range(bench.some(10_000)):
        Session(
            title=f"session {i}",
            user=f"u-{i % 7}",
            tags={"team": "web" if i % 2 else "app"},
            store=store,
        )
    took = interleave(
        {
            "all": lambda: Session.list(limit=100, store=store),
            "user": lambda: Session.list(limit=100, user="u-3", status="open", store=store),
            "tag": lambda: Session.list(limit=100, tag={"team": "web"}, store=store),
        },
        300,
    )
    names = {
        "all": "a page of 100 sessions",
        "user": "the same by user and status",
        "tag": "the same by tag",
    }
    cpu = {name: statistics.median(took[name].cpu) for name in names}
    return [
        Row(f"{what}, as values, CPU", ms(cpu[name]), target="<= 0.5 ms")
        for name, what in names.items()
    ]


def questions(bench: Bench) -> list[Row]:
    """`why` and `influence` in a long session with branches."""
    length = bench.some(100_000)
    store = plait.open_store(bench.folder / "questions")
    start = said(Session("x", store=store), 10).fact("cause", 1)
    session = said(start, length)
    # a snapshot stands, as it would if the session had said all of that itself
    for _ in range(300):
        session = session.say("x")
    session = session.decide("verdict", "reject", because=start)
    for i in range(20):
        session = session.merge(session.fork(f"b{i}").say("x"))
    opened = Session.open(session.id, store=store)
    assert opened.facts["verdict"] == "reject"
    took = interleave(
        {
            "why": lambda: Session.open(session.id, store=store).why("verdict"),
            "why a message": lambda: opened.why(opened.seq - 50),
            "influence": lambda: opened.lineage.influence("cause"),
        },
        bench.some(30),
    )
    return [
        Row(
            f"{name}, {length:,} events, wall p50",
            ms(statistics.median(timing.wall)),
            target="< 1 s",
            facts={"wall": timing.facts()},
        )
        for name, timing in took.items()
    ]


PARTS = [append, memory, forks, state, listing, questions]


def main() -> None:
    serve(__doc__ or "", PARTS, RESULTS / "session.json")


if __name__ == "__main__":
    main()
