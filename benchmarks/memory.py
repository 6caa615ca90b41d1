"""Memory, measured: what a recall, a memory, a question about one and a plan to take it back cost.

A recall is measured beside a bare FTS5 match of the same words, over a plain index of the same
texts in the same run, and a memory beside a message with the same text. The large store has 100,000
memories, each read five times; `--quick` makes it a tenth of that.

    python benchmarks/memory.py [--quick] [--only NAME] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import plait
from log import RESULTS, Bench, ms, serve, us
from measure import Row, Timing, interleave, percentile
from plait import Memory, Session
from plait.errors import UnknownMemory
from plait.event.kinds import (
    Ground,
    MemoryCommitted,
    MemoryProposed,
    MemoryRecalled,
    MessageSaid,
    Score,
    Text,
)
from plait.ids import Digest
from plait.memory.rows import ITEM, READ
from plait.memory.words import query_words
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from plait.store import Store
from plait.store.search import choosing_words
from search import COUNT, MATCH, drawn_words, plain_index

FEW, MANY = 1_000, 100_000
USERS, PER_SESSION, READS = 10, 100, 5
K = 5
FUNCTION_WORDS = 30  # the most common words, which a query leaves out
_ALL = 2**31


class Filled:
    """A store with so many memories, of ten users, each read five times."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self.store = plait.open_store(folder / f"{count} memories", durability="async")
        self.memory = Memory(store=self.store)
        self.ids: list[Digest] = []
        started, draw = time.perf_counter(), random.Random(count)
        for number in range(count // PER_SESSION):
            self._fill_session(f"user-{number % USERS}", draw)
        self.built_s = time.perf_counter() - started
        rows = self.store.rows("memory", ITEM, limit=_ALL)
        self.bare = plain_index(folder / f"{count} words.db", rows, PER_SESSION)

    def _fill_session(self, user: str, draw: random.Random) -> None:
        """Write memories, one in ten resting on another, and the recalls that return them."""
        session = Session(user=user, store=self.store)
        act = Act("service:bench", "program")
        texts = [" ".join(drawn_words(draw, draw.randint(8, 20))) for _ in range(PER_SESSION)]
        spoken = [MessageSaid("user", (Text(each),)) for each in texts]
        session = _append(session, [Draft(each, act) for each in spoken])
        said = [event.id for event in session.events][-PER_SESSION:]
        drafts: list[Draft] = []
        for number, text in enumerate(texts):
            rests = (self.ids[-1],) if number % 10 == 9 and self.ids else ()
            ground = Ground(said[number], rests)
            body = MemoryProposed(
                "user", user, "fact", (Text(text),), trust="observed", grounds=(ground,)
            )
            drafts += [
                Draft(body, act._replace(causes=(said[number],))),
                Draft(MemoryCommitted("bench"), act._replace(causes=(len(drafts),))),
            ]
        session = _append(session, drafts)
        own = [event.id for event in session.events if event.kind == MemoryProposed.__name__]
        self.ids += own
        recalls: list[Draft] = []
        for _ in range(READS):
            draw.shuffle(own)
            for first in range(0, PER_SESSION, K):
                hits = tuple([Score(each, 1.0) for each in own[first : first + K]])
                body = MemoryRecalled("which?", ("user",), K, hits=hits)
                causes = tuple([hit.memory for hit in hits])
                recalls.append(Draft(body, act._replace(causes=causes)))
        _append(session, recalls)

    def ask_bare(self, sql: str, words: str) -> list[Any]:
        return self.bare.execute(sql, (words,)).fetchall()


def _append(session: Session, drafts: list[Draft]) -> Session:
    return session_at(writer_of(None).append(position_of(session), drafts))


@cache
def filled(bench: Bench, count: int) -> Filled:
    return Filled(bench.folder, count)


def sizes(bench: Bench) -> list[int]:
    return [FEW, bench.some(MANY)]


# ── recall ───────────────────────────────────────────────────────────────────────────────────


def recall(bench: Bench) -> list[Row]:
    """A recall on record, and a search that leaves none, beside a bare match of its words."""
    targets = {FEW: ("<= 2 ms", "<= 4x"), sizes(bench)[1]: ("<= 10 ms", "<= 1.5x")}
    return [row for count in sizes(bench) for row in _recall(bench, count, *targets[count])]


def _recall(bench: Bench, count: int, target: str, ratio: str) -> list[Row]:
    made = filled(bench, count)
    session = Session("Hi", user="user-1", store=made.store)
    draw, query, choosing = random.Random(3), "", ""

    def prepare() -> None:
        nonlocal query, choosing
        query = " ".join(_asked_words(draw, 6))
        words = list(dict.fromkeys(query_words(query)))
        having = {word: len(made.ask_bare(COUNT, word)) for word in words}
        choosing = " OR ".join(choosing_words(having, count) or words)

    def recall() -> None:
        nonlocal session
        session, _ = made.memory.recall(session, query, k=K)

    took = interleave(
        {
            "bare": lambda: made.ask_bare(MATCH, choosing),
            "recall": recall,
            "search": lambda: made.memory.search(query, session=session, k=K),
        },
        bench.some(400),
        prepare,
    )
    bare = took.pop("bare")
    rows: list[Row] = []
    for name, timing in took.items():
        for part in (50, 95):
            cpu, raw = percentile(timing.cpu, part), percentile(bare.cpu, part)
            facts: dict[str, object] = {"ours": timing.facts(), "bare": bare.facts()}
            wanted = f"{target}, {ratio}" if (name, part) == ("recall", 95) else "-"
            what = f"{name} among {count:,}, CPU p{part}"
            rows.append(Row(what, ms(cpu), ms(raw), _times(cpu, raw), wanted, facts))
    return rows


def _asked_words(draw: random.Random, count: int) -> list[str]:
    """Draw words as a question has them: without those that stand for function words."""
    found: list[str] = []
    while len(found) < count:
        found += [word for word in drawn_words(draw, count) if int(word[1:]) >= FUNCTION_WORDS]
    return found[:count]


# ── remember ─────────────────────────────────────────────────────────────────────────────────


def remember(bench: Bench) -> list[Row]:
    """A memory beside a message with the same text: transactions and CPU."""
    store = plait.open_store(bench.folder / "remember", durability="async")
    memory, draw = Memory(store=store), random.Random(5)
    talk = Session("Hi", user="ann", store=store)
    note = Session("Hi", user="ann", store=store)
    text = ""

    def prepare() -> None:
        nonlocal text
        text = " ".join(drawn_words(draw, 15))

    def say() -> None:
        nonlocal talk
        talk = talk.say(text)

    def write(**how: Any) -> None:
        nonlocal note
        note = memory.remember(note, text, **how)

    ways: dict[str, Callable[[], object]] = {
        "say": say,
        "remember, session": write,
        "remember, user": partial(write, scope="user", evidence=2),
    }
    took = interleave(ways, bench.some(1000), prepare)
    raw = statistics.median(took["say"].cpu)
    rows: list[Row] = []
    for name in ("remember, session", "remember, user"):
        cpu = statistics.median(took[name].cpu)
        prepare()
        with _counted_transactions(store) as counts:
            ways[name]()
        facts: dict[str, object] = {"ours": took[name].facts(), "say": took["say"].facts()}
        rows += [
            Row(
                f"{name}, CPU p50 beside say",
                us(cpu),
                us(raw),
                _times(cpu, raw),
                "<= 2.5x",
                facts,
            ),
            Row(f"{name}, transactions", str(counts.total()), target="1", facts=dict(counts)),
        ]
    return rows


def _times(ours: float, raw: float) -> str:
    return f"{ours / raw:.2f}x"


@contextmanager
def _counted_transactions(store: Store) -> Generator[Counter[str]]:
    counts = Counter[str]()
    names = ("begin", "append", "append_all", "put_blob", "put_blobs", "keep_snapshot")
    verbs = {name: getattr(store, name) for name in names}

    def counted(name: str) -> Callable[..., object]:
        def call(*given: Any, **named: Any) -> object:
            counts[name] += 1
            return verbs[name](*given, **named)

        return call

    for name in names:
        setattr(store, name, counted(name))
    try:
        yield counts
    finally:
        for name in names:
            delattr(store, name)


# ── questions ────────────────────────────────────────────────────────────────────────────────


def questions(bench: Bench) -> list[Row]:
    """`why`, `influence` and a plan of a rollback, in the small store and in the large one."""
    took = {count: _ask(filled(bench, count), bench.some(400)) for count in sizes(bench)}
    few, many = sizes(bench)
    rows: list[Row] = []
    for name in took[few]:
        small, large = (percentile(took[count][name].cpu, 95) for count in (few, many))
        what = f"{name}, {many:,} memories, {many * READS:,} reads, CPU p95"
        beside = f"{ms(small)} (of {few:,})"
        facts: dict[str, object] = {
            str(count): timings[name].facts() for count, timings in took.items()
        }
        target = "<= 2 ms, <= 1.5x"
        rows.append(Row(what, ms(large), beside, _times(large, small), target, facts))
    built = filled(bench, many)
    rows.append(Row(f"building {many:,} memories", f"{built.built_s:.0f} s"))
    return rows


def _ask(made: Filled, rounds: int) -> dict[str, Timing]:
    draw, memory, chosen = random.Random(11), made.memory, made.ids[0]

    def prepare() -> None:
        nonlocal chosen
        chosen = draw.choice(made.ids)

    return interleave(
        {
            "why": lambda: memory.why(chosen),
            "influence": lambda: memory.influence(chosen),
            "plan of a rollback": lambda: memory.rollback(chosen),
        },
        rounds,
        prepare,
    )


# ── counts ───────────────────────────────────────────────────────────────────────────────────


def records(bench: Bench) -> list[Row]:
    """Count writes with evidence, reads on record and leaks, over the public API alone."""
    store, count = plait.open_store(bench.folder / "records"), bench.some(200)
    memory, draw = Memory(store=store), random.Random(17)
    users = [f"user-{number}" for number in range(4)]
    sessions = {user: Session("Hi", user=user, project="shop", store=store) for user in users}
    asked = leaks = 0
    for number in range(count):
        user = users[number % len(users)]
        how: dict[str, Any] = {"scope": draw.choice(["session", "user"]), "evidence": 2}
        actor = draw.choice([None, "agent:a"])
        text = " ".join(["shared", *drawn_words(draw, 6)])
        sessions[user] = memory.remember(sessions[user], text, actor=actor, **how)
        reader = draw.choice(users)
        sessions[reader], hits = memory.recall(sessions[reader], f"shared {text}", k=20)
        asked += 1
        leaks += sum(hit.owner not in (reader, sessions[reader].id) for hit in hits)
        leaks += _leaks_by_name(memory, sessions, user)
    rows = store.rows("memory", ITEM, limit=_ALL)
    proven = [row for row in rows if _has_evidence(store, Digest(str(row["id"])))]
    read = len(store.rows("memory", READ, limit=_ALL))
    looks = f"leaks in {asked:,} recalls, and as many lists and looks by id"
    return [
        Row("writes with evidence", f"{len(proven)} of {len(rows)}", target="100 %"),
        Row("reads on record", f"{read} of {asked}", target="100 %"),
        Row(looks, str(leaks), target="0"),
    ]


def _leaks_by_name(memory: Memory, sessions: dict[str, Session], owner: str) -> int:
    """Count the others who see the newest memory of a user in a list, or by its id."""
    newest = memory.items(sessions[owner], state=None, limit=1)
    found = 0
    for user, session in sessions.items():
        if user == owner or not newest:
            continue
        found += newest[0].id in {item.id for item in memory.items(session, state=None)}
        try:
            memory.get(newest[0].id, session=session)
            found += 1
        except UnknownMemory:
            pass
    return found


def _has_evidence(store: Store, memory: Digest) -> bool:
    event = store.event(memory)
    body: Any = event.body
    return bool(event.header.causes) or body.by_person


PARTS = [recall, remember, questions, records]


def main() -> None:
    serve(__doc__ or "", PARTS, RESULTS / "memory.json")


if __name__ == "__main__":
    main()
