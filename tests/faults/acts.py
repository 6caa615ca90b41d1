"""The acts during which things go wrong: each act of a store's life, as steps that are acknowledged
one by one.

Ids, times and salts are told, not drawn, so an act makes the same bytes whenever it is done. What
stands after each step of an undisturbed run is therefore known to the byte, and doing a step over
again submits the very same events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from plait.event import Event
from plait.event.kinds import MessageSaid, Text
from plait.ids import Digest, LogId, Micros, derive_id, house_of, inbox_of
from plait.journal.writer import DirectWriter, bind_direct_writer
from plait.memory.memory import Memory
from plait.memory.rows import MemoryRows
from plait.session import EffectRows, GraphRows, InboxRows, Session, SessionRows, TurnRows
from plait.session.fold import SNAPSHOT_EVERY
from plait.store import LogAppend, Projection, SqliteStore
from plait.store.sqlite import database as database_module
from plait.store.sqlite.database import Migration
from plait.store.sqlite.schema import MIGRATIONS
from plait.testing import Seeded
from plait.testing.projections import Notes, Tally
from plait.testing.writing import message, seal_events
from tests.faults.folders import old_store
from tests.faults.scenes import add_colour

# a session or a digest that it returns is acknowledged: it has to stand
Step = Callable[[], object]

OURS: tuple[Projection, ...] = (SessionRows(), GraphRows())
ALL: tuple[Projection, ...] = (*OURS, InboxRows(), TurnRows(), EffectRows(), MemoryRows())
USER = "u-17"


class Told(Seeded):
    """A seeded source whose fresh ids are counted: set the count back, and the same ids are given
    again.
    """

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__()
        self.ordinal = ordinal

    def now(self, log: LogId, seq: int) -> Micros:
        return self.start + seq

    def fresh(self, *about: str | int) -> LogId:
        if about == ("store",):
            return nth(0)
        self.ordinal += 1
        return nth(self.ordinal)


def nth(ordinal: int) -> LogId:
    """The id that a told source gives as its n-th."""
    return derive_id("plait/faults/1", ordinal)


class Held:
    """A session that moves on: `becomes` makes a step of a verb, which may be tried again after it
    failed.
    """

    def __init__(self, value: Session | None = None) -> None:
        self._value = value

    @property
    def it(self) -> Session:
        assert self._value is not None, "it was not made yet"
        return self._value

    def becomes(self, verb: Callable[[], Session]) -> Step:
        def step() -> Session:
            self._value = verb()
            return self._value

        return step


class Stage:
    """One folder, the store in it and the sessions that write there. Every store of these tests is
    opened here.

    `options` go to the store as they are: whatever is said of stores is to hold for each of them.
    """

    def __init__(self, folder: Path, options: dict[str, Any], act: Act, ordinal: int = 100) -> None:
        self.folder, self.options, self.act = folder, options, act
        self.source = Told(ordinal)
        self._store: SqliteStore | None = None
        bind_direct_writer(DirectWriter(self.source, lambda _: self.store, lambda: str(folder)))

    @property
    def store(self) -> SqliteStore:
        assert self._store is not None, "the store is not open"
        return self._store

    @property
    def is_open(self) -> bool:
        return self._store is not None

    def open(
        self,
        *,
        migrations: Sequence[Migration] | None = None,
        projections: Sequence[Projection] | None = None,
    ) -> SqliteStore:
        steps = self.act.migrations if migrations is None else migrations
        kept = self.act.projections if projections is None else projections
        self._store = SqliteStore(
            self.folder, source=self.source, migrations=steps, projections=kept, **self.options
        )
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def session(self, ordinal: int) -> Session:
        return Session.open(nth(ordinal), store=self.folder)


class Act(NamedTuple):
    name: str
    before: Callable[[Stage], None]  # makes what is there already
    steps: Callable[[Stage], list[Step]]  # what is done while things go wrong
    migrations: Sequence[Migration] = MIGRATIONS
    projections: Sequence[Projection] = OURS


def noise(size: int, *about: object) -> bytes:
    """Bytes that do not compress, the same every time."""
    pieces = (sha256(f"{about}/{i}".encode()).digest() for i in range(size // 32 + 1))
    return b"".join(pieces)[:size]


# ── what is there before ─────────────────────────────────────────────────────────────────────


def nothing(stage: Stage) -> None:
    pass


def one_session(stage: Stage) -> None:
    """The first id: a session of a few events, one of them long."""
    stage.open()
    session = Session("What is wrong?", title="cart", user=USER, store=stage.folder)
    session.say("long " * 2000).fact("db", "postgres 15").say("And now?")
    stage.close()


def two_branches(stage: Stage) -> None:
    """The second and third id are branches of the first, which disagree on one thing."""
    one_session(stage)
    stage.open()
    session = stage.session(1)
    session.fork("left").fact("verdict", "reject").note("left was here").scratch("left", 1)
    session.fork("right").fact("verdict", "clamp").say("right was here")
    stage.close()


def almost_a_snapshot(stage: Stage) -> None:
    stage.open()
    session = Session("first", user=USER, store=stage.folder)
    texts = [message(f"{i}") for i in range(session.seq + 1, SNAPSHOT_EVERY)]
    stage.store.append(
        session.id,
        seal_events(texts, session.id, session.seq + 1, (session.head,)),
        after=session.head,
    )
    stage.close()


def an_old_store(stage: Stage) -> None:
    """Schema 1, with logs, a fork and blobs in it."""
    old_store(stage.folder, 1)


def much_unused(stage: Stage) -> None:
    """Blobs that nobody points to, among some that are pointed to."""
    one_session(stage)
    stage.open()
    session = stage.session(1)
    for i in range(6):
        stage.store.put_blob(noise(30_000, "unused", i))
        session = session.attach(f"file {i}", noise(5000, "used", i))
    stage.close()


def behind_its_back(stage: Stage) -> None:
    """Somebody without our projections wrote: the rows are stale."""
    two_branches(stage)
    store = stage.open(projections=())
    now = store.log(nth(1))
    store.append(
        nth(1),
        seal_events([message("behind your back")], nth(1), now.tip + 1, (now.head,)),
        after=now.head,
    )
    stage.close()


def some_memories(stage: Stage) -> None:
    """Two memories of one key, one that rests on the later one, and a branch, the second id."""
    one_session(stage)
    stage.open()
    memory, session = Memory(), stage.session(1)
    for text in ("The host is a.", "The host is b."):
        session = memory.remember(session, text, scope="user", key="host")
    base = session.events[-3]
    session = memory.remember(session, "The host b is far.", evidence=base, actor="agent:a")
    session = memory.recall(session, "which host?")[0]
    session.fork("side")
    stage.close()


# ── what is done ─────────────────────────────────────────────────────────────────────────────


def make(stage: Stage) -> list[Step]:
    main = Held()
    return [
        stage.open,
        main.becomes(lambda: Session("first words", title="new", user=USER, store=stage.folder)),
        main.becomes(lambda: main.it.say("second words")),
        stage.close,
    ]


def append(stage: Stage) -> list[Step]:
    stage.open()
    main = Held(stage.session(1))
    return [
        main.becomes(lambda: main.it.say("short")),
        main.becomes(lambda: main.it.say("longer " * 3000)),
        main.becomes(lambda: _say_several(stage, main.it, 5)),
        main.becomes(lambda: main.it.fact("db", "postgres 16")),
        main.becomes(lambda: Session("another", title="second", user=USER, store=stage.folder)),
        stage.close,
    ]


def _say_several(stage: Stage, session: Session, count: int) -> Session:
    """Several events in one append, each long enough for a page of its own: the store's own door,
    no verb does this.
    """
    bodies = [MessageSaid("user", (Text(noise(1500, i).hex()),)) for i in range(count)]
    events = seal_events(bodies, session.id, session.seq + 1, (session.head,))
    stage.store.append(session.id, events, after=session.head)
    return stage.session(1)


def several(stage: Stage) -> list[Step]:
    """Acts over the house log and an inbox, each of them one: the first begins the inbox."""
    stage.open()
    house, inbox = house_of(nth(0)), inbox_of(nth(1))
    ends: dict[LogId, Digest | None] = {house: next(stage.store.read(house, 1, 1)).id, inbox: None}
    steps: list[Step] = []
    for number in range(4):
        text = noise(1500 * number, number).hex()  # one is long enough for pages of its own
        parts: list[LogAppend] = []
        for log, after in ends.items():
            seq = number + (2 if log == house else 1)
            events = seal_events([message(text)], log, seq, (after,) if after else ())
            parts.append(LogAppend(log, events, after))
            ends[log] = events[-1].id
        steps.append(lambda parts=parts: stage.store.append_all(parts))
    return [*steps, stage.close]


def fork(stage: Stage) -> list[Step]:
    stage.open()
    main, left, right = Held(stage.session(1)), Held(), Held()
    return [
        left.becomes(lambda: main.it.fork("left")),
        right.becomes(lambda: main.it.fork("right", at=3)),
        right.becomes(lambda: right.it.say("in the branch")),
        right.becomes(lambda: right.it.fork("deeper")),
        right.becomes(lambda: right.it.successor("go on from here")),
        right.becomes(lambda: right.it.detach(title="on its own")),
        left.becomes(lambda: left.it.say("in the other")),
        stage.close,
    ]


def merge(stage: Stage) -> list[Step]:
    stage.open()
    main, left, right = (Held(stage.session(ordinal)) for ordinal in (1, 2, 3))
    return [
        main.becomes(lambda: main.it.merge(left.it)),
        main.becomes(lambda: main.it.merge(right.it, resolve={"verdict": "clamp"})),
        right.becomes(lambda: right.it.merge(main.it)),
        stage.close,
    ]


def rewind(stage: Stage) -> list[Step]:
    stage.open()
    main = Held(stage.session(1))
    return [
        main.becomes(lambda: main.it.rewind(2, reason="wrong way")),
        main.becomes(lambda: main.it.say("another way")),
        main.becomes(lambda: main.it.rewind(-1)),
        main.becomes(lambda: main.it.close(reason="done")),
        main.becomes(lambda: main.it.archive()),
        stage.close,
    ]


def snapshot(stage: Stage) -> list[Step]:
    stage.open()
    main = Held(stage.session(1))
    return [
        main.becomes(lambda: main.it.say("the one that makes a snapshot")),
        main.becomes(lambda: main.it.say("the next")),
        lambda: stage.store.keep_snapshot(nth(1), 100, noise(20_000, "kept")),
        lambda: stage.store.keep_snapshot(nth(1), 100, noise(9000, "kept instead")),
        lambda: stage.store.drop_snapshots(nth(1)),
        stage.close,
    ]


def migrate(stage: Stage) -> list[Step]:
    return [stage.open, stage.close]


def blobs(stage: Stage) -> list[Step]:
    stage.open()
    main = Held(stage.session(1))
    return [
        lambda: stage.store.put_blob(noise(60_000, "large")),
        lambda: stage.store.put_blob(b"small"),
        main.becomes(lambda: main.it.attach("large", noise(60_000, "large"))),
        main.becomes(lambda: main.it.attach("another", noise(20_000, "another"))),
        main.becomes(lambda: main.it.say("a long body " * 300, "in two parts " * 300)),
        stage.close,
    ]


def sweep(stage: Stage) -> list[Step]:
    stage.open()
    return [
        lambda: stage.store.sweep_blobs(before=stage.store.number - 2),
        lambda: stage.store.sweep_blobs(before=stage.store.number),
        stage.close,
    ]


def rebuild(stage: Stage) -> list[Step]:
    return [
        stage.open,
        lambda: stage.store.rebuild("session"),
        lambda: stage.store.rebuild("graph"),
        lambda: stage.store.rebuild("tally"),
        lambda: stage.store.rebuild("notes"),
        stage.close,
    ]


_KEYED = "The host is d."


def remember(stage: Stage) -> list[Step]:
    """Memories that supersede by a key, one of an agent that waits and that checks confirm and take
    back, and one that a branch proposes and a merge brings, with the decision about it.
    """
    stage.open()
    main, branch, memory = Held(stage.session(1)), Held(stage.session(2)), Memory()
    agent: dict[str, Any] = {"evidence": 2, "actor": "agent:a"}
    keyed: dict[str, Any] = {"scope": "user", "key": "host", **agent}

    def judge(passed: bool) -> Session:
        item = next(each for each in memory.items(main.it, state=None) if each.text == _KEYED)
        return main.it.checks.record("probe", passed, because=stage.store.event(item.id))

    return [
        main.becomes(lambda: memory.remember(main.it, "The host is c.", scope="user", key="host")),
        main.becomes(lambda: memory.remember(main.it, "The host is slow.", **agent)),
        main.becomes(lambda: memory.remember(main.it, _KEYED, **keyed)),
        main.becomes(lambda: judge(True)),
        main.becomes(lambda: judge(False)),
        branch.becomes(lambda: memory.remember(branch.it, "The disk is full.", scope="user")),
        main.becomes(lambda: main.it.merge(branch.it)),
        stage.close,
    ]


def roll_back(stage: Stage) -> list[Step]:
    """A rollback that fells two memories and brings a third back, and its inverse."""
    stage.open()
    memory = Memory(store=stage.folder)
    done: list[Event] = []

    def fell() -> None:
        item = next(each for each in memory.items() if each.text == "The host is b.")
        done[:] = memory.rollback(item).apply(reason="wrong", actor="human:ann")

    def undo() -> None:
        memory.rollback(undo=done[0]).apply(reason="right", actor="human:ann")

    return [fell, undo, fell, stage.close]


def checkpoint(stage: Stage) -> list[Step]:
    """The write-ahead log is brought in after every few pages, and begun again."""
    database_module.PRAGMAS["wal_autocheckpoint"] = 12
    stage.open()
    database_module.PRAGMAS["wal_autocheckpoint"] = 2000
    main = Held(stage.session(1))
    return [
        *[main.becomes(lambda: main.it.say(noise(1200, main.it.seq).hex())) for _ in range(6)],
        stage.close,
    ]


def life(stage: Stage) -> list[Step]:
    """All of it in one store, one thing after another, closed and opened again in between."""
    main, left, right = Held(), Held(), Held()
    return [
        stage.open,
        main.becomes(lambda: Session("hello", title="a life", user=USER, store=stage.folder)),
        main.becomes(lambda: main.it.fact("db", "postgres 15")),
        left.becomes(lambda: main.it.fork("left")),
        right.becomes(lambda: main.it.fork("right")),
        left.becomes(lambda: left.it.fact("verdict", "reject")),
        lambda: stage.store.put_blob(noise(40_000, "unused")),
        right.becomes(lambda: right.it.say("long " * 3000)),
        main.becomes(lambda: main.it.merge(left.it)),
        stage.close,
        stage.open,
        main.becomes(lambda: main.it.merge(right.it)),
        main.becomes(lambda: main.it.rewind(2)),
        main.becomes(lambda: main.it.attach("file", noise(15_000, "file"))),
        lambda: stage.store.sweep_blobs(before=stage.store.number),
        lambda: stage.store.rebuild("session"),
        main.becomes(lambda: main.it.successor("go on")),
        main.becomes(lambda: main.it.close()),
        stage.close,
    ]


ACTS = {
    act.name: act
    for act in (
        Act("make", nothing, make),
        Act("append", one_session, append),
        Act("several", one_session, several),
        Act("fork", one_session, fork),
        Act("merge", two_branches, merge),
        Act("rewind", one_session, rewind),
        Act("snapshot", almost_a_snapshot, snapshot),
        Act("migrate", an_old_store, migrate),
        Act("migrate more", an_old_store, migrate, migrations=(*MIGRATIONS, add_colour)),
        Act("blobs", one_session, blobs),
        Act("sweep", much_unused, sweep),
        Act("rebuild", behind_its_back, rebuild, projections=(*OURS, Tally(), Notes())),
        Act("remember", some_memories, remember, projections=ALL),
        Act("roll back", some_memories, roll_back, projections=ALL),
        Act("checkpoint", one_session, checkpoint),
        Act("life", nothing, life),
    )
}


# In two parts, for two processors. "life" repeats what the others do, so it is for random moments
# only.
WRITING = ("make", "append", "several", "fork", "merge", "rewind", "remember", "checkpoint")
UPKEEP = ("snapshot", "migrate", "migrate more", "blobs", "sweep", "rebuild", "roll back")
