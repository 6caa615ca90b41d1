"""The store's laws as state machines: durable, linear, and tamper at the level of the chain.

One machine drives a store at random beside a model that is plain lists, and compares everything
after each step. The same machine runs against every store. What only some can show (a second
writer, a crash, edits behind our back by raw SQL) is added in machines of their own.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from plait.errors import LogExists, StaleHead
from plait.event import Event, seal_all
from plait.event.kinds import File, ForkedFrom, MessageSaid, ScratchSet, SessionOpened
from plait.ids import Digest, LogId, derive_id
from plait.store import MemoryStore, SqliteStore, Store, verify_store
from plait.testing import Seeded
from plait.testing.projections import Tally
from plait.testing.writing import begin, extend, fork, message, wait_until_settled
from tests.support import RawSql, count, pooled_store, postgres_server

LONG = st.sampled_from(["", "short", "\u2028\x85\0", "long " * 300, "漢" * 5000])


class StoreMachine(RuleBasedStateMachine):
    """A store, and beside it what it should hold."""

    law = "linear"
    logs = Bundle("logs")
    appended = Bundle("appended")

    def __init__(self) -> None:
        super().__init__()
        self.source = Seeded(0)
        self.salt = 0
        self.paths: dict[LogId, list[Event]] = {}  # each log as read through its lineage
        self.feed: list[Event] = []
        self.kept: dict[tuple[LogId, int], bytes] = {}
        self.store: Store = self.open()
        count(self.law, self.store)

    def open(self) -> Store:
        return MemoryStore(source=Seeded(), projections=(Tally(),))

    def seal(
        self, bodies: list[Any], log: LogId, seq: int, parents: tuple[Digest, ...]
    ) -> list[Event]:
        self.salt += 1  # every submission is an act of its own, even with equal content
        return seal_all(
            bodies,
            log=log,
            seq=seq,
            parents=parents,
            source=Seeded(self.salt),
            actor="human:machine",
        )

    def new_log(self) -> LogId:
        return derive_id("machine", len(self.paths))

    def note(self, log: LogId, events: list[Event]) -> None:
        self.paths[log] += events
        self.feed += events

    @initialize(target=logs)
    def begin_first(self) -> LogId:
        return self.begin_log()

    @rule(target=logs)
    def begin(self) -> LogId:
        return self.begin_log()

    def begin_log(self) -> LogId:
        log = self.new_log()
        events = self.seal([SessionOpened()], log, 1, ())
        assert self.store.begin(log, events) == events[-1].id
        self.paths[log] = []
        self.note(log, events)
        return log

    @rule(target=logs, log=logs, data=st.data())
    def fork(self, log: LogId, data: st.DataObject) -> LogId:
        child, path = self.new_log(), self.paths[log]
        place = data.draw(st.integers(1, len(path)))
        events = self.seal([ForkedFrom(log, place)], child, place + 1, (path[place - 1].id,))
        self.store.begin(child, events, parent=log)
        self.paths[child] = path[:place]
        self.note(child, events)
        return child

    @rule(target=appended, log=logs, text=LONG, more=st.integers(0, 3))
    def append(self, log: LogId, text: str, more: int) -> tuple[LogId, Digest, tuple[Event, ...]]:
        path = self.paths[log]
        bodies = [message(text), *(ScratchSet(f"k{i}", i) for i in range(more))]
        events = self.seal(bodies, log, len(path) + 1, (path[-1].id,))
        after = path[-1].id
        assert self.store.append(log, events, after=after) == events[-1].id
        self.note(log, events)
        return log, after, tuple(events)

    @rule(log=logs, content=st.binary(max_size=40))
    def append_with_blob(self, log: LogId, content: bytes) -> None:
        path = self.paths[log]
        blob = self.store.put_blob(content)
        events = self.seal(
            [MessageSaid("user", (File("f", "x/y", blob),))], log, len(path) + 1, (path[-1].id,)
        )
        self.store.append(log, events, after=path[-1].id)
        self.note(log, events)
        assert self.store.get_blob(blob) == content

    @rule(log=logs, data=st.data())
    def append_through_a_stale_head(self, log: LogId, data: st.DataObject) -> None:
        path = self.paths[log]
        own = self.store.log(log).place + 1
        seq = data.draw(st.integers(own, len(path)))
        if seq == len(path):
            return
        events = self.seal([message("stale")], log, seq + 1, (path[seq - 1].id,))
        with pytest.raises(StaleHead):
            self.store.append(log, events, after=path[seq - 1].id)

    @rule(made=appended)
    def append_the_very_same_again(self, made: tuple[LogId, Digest, tuple[Event, ...]]) -> None:
        log, after, events = made
        assert self.store.append(log, events, after=after) == events[-1].id

    @rule(log=logs)
    def begin_under_a_taken_id(self, log: LogId) -> None:
        with pytest.raises(LogExists):
            self.store.begin(log, self.seal([SessionOpened(title="usurper")], log, 1, ()))

    @rule(log=logs, content=st.binary(max_size=200) | st.none(), data=st.data())
    def keep_or_forget(self, log: LogId, content: bytes | None, data: st.DataObject) -> None:
        if content is None:
            gone = [at for at in self.kept if at[0] == log]
            assert self.store.drop_snapshots(log) == len(gone)
            for at in gone:
                del self.kept[at]
        else:
            seq = data.draw(st.integers(self.store.log(log).place + 1, len(self.paths[log])))
            self.store.keep_snapshot(log, seq, content)
            self.kept[log, seq] = content

    @rule(log=consumes(logs))
    def leave_alone(self, log: LogId) -> None:
        """From here on nobody appends to it, but it stays what it is."""

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        for log, path in self.paths.items():
            assert [event.id for event in self.store.read(log)] == [event.id for event in path]
            assert (self.store.log(log).head, self.store.log(log).tip) == (path[-1].id, len(path))
        assert self.store.heads(list(self.paths)) == {
            log: self.store.log(log) for log in self.paths
        }
        for log, path in self.paths.items():
            for upto in (len(path), len(path) // 2):
                nearest = next(
                    ((e.log, e.seq) for e in reversed(path[:upto]) if (e.log, e.seq) in self.kept),
                    None,
                )
                assert self.store.nearest_snapshot(log, upto) == (
                    None if nearest is None else (*nearest, self.kept[nearest])
                )
        wait_until_settled(self.store)
        feed = [(number, event.id) for number, event in self.store.feed()]
        numbers = [number for number, _ in feed]
        assert [id for _, id in feed] == [event.id for event in self.feed]
        assert numbers == sorted(set(numbers))
        assert not self.store.dense or numbers == list(range(1, len(feed) + 1))
        assert [(number, event.id) for number, event in self.store.feed(reverse=True)] == feed[::-1]

    def teardown(self) -> None:
        assert [str(fault) for fault in verify_store(self.store)] == []
        for path in self.paths.values():
            log = path[-1].log
            assert [event.body for event in self.store.read(log)] == [event.body for event in path]
            own = [(seq, data) for (owner, seq), data in self.kept.items() if owner == log]
            assert self.store.snapshots(log) == sorted(own)
        assert self.store.drop_snapshots() == len(self.kept)
        rows = self.store.rows("tally", "count", order="number", limit=10_000)
        self.store.rebuild("tally")
        assert self.store.rows("tally", "count", order="number", limit=10_000) == rows
        self.store.close()


class DurableMachine(StoreMachine):
    """The same, and: the store is reopened, a second writer comes."""

    law = "durable and linear"

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    @rule(log=StoreMachine.logs)
    def another_writer_wins(self, log: LogId) -> None:
        path = self.paths[log]
        theirs = self.seal([message("theirs")], log, len(path) + 1, (path[-1].id,))
        ours = self.seal([message("ours")], log, len(path) + 1, (path[-1].id,))
        other = self.open()
        other.append(log, theirs, after=path[-1].id)
        other.close()
        with pytest.raises(StaleHead):
            self.store.append(log, ours, after=path[-1].id)
        self.note(log, theirs)


class PostgresMachine(DurableMachine):
    """The same, in a database."""

    def __init__(self) -> None:
        self.schema = ExitStack()
        self.address = self.schema.enter_context(pooled_store(postgres_server()))
        super().__init__()

    def open(self) -> Store:
        from plait.store.postgres.store import PostgresStore

        return PostgresStore(self.address, source=Seeded(), projections=(Tally(),))

    def teardown(self) -> None:
        with self.schema:
            super().teardown()


class SqliteMachine(DurableMachine):
    """The same, and: the process dies."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "0"
        super().__init__()

    def open(self) -> Store:
        return SqliteStore(self.folder, source=Seeded(), projections=(Tally(),))

    @rule()
    def crash(self) -> None:
        """Go on with the files as they are on disk at this moment, nothing flushed,
        nothing closed.
        """
        old, self.folder = self.folder, self.root / str(int(self.folder.name) + 1)
        self.folder.mkdir()
        for name in ("store.db", "store.db-wal"):
            if (old / name).exists():
                shutil.copy(old / name, self.folder / name)
        left, self.store = self.store, self.open()
        left.close()

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


# ── tamper ───────────────────────────────────────────────────────────────────────────────────

# Each edit is raw SQL on a copy of the file. :n is the victim's commit number, :m another one's, :k
# and :j the keys of their logs. They are what a person with a database browser, or a bug, would do.
EDITS: dict[str, str] = {
    "header actor": (
        "UPDATE event SET codec = codec & 7, header = CAST(replace(CAST(plain(codec, header) AS"
        " TEXT), 'human:', 'robot:') AS BLOB) WHERE number = :n"
    ),
    "header time": (
        "UPDATE event SET codec = codec & 7, header = CAST(replace(CAST(plain(codec, header) AS"
        " TEXT), '\"time\":1', '\"time\":2') AS BLOB) WHERE number = :n"
    ),
    "header cut": "UPDATE event SET header = substr(header, 1, 40) WHERE number = :n",
    "header empty": "UPDATE event SET header = x'' WHERE number = :n",
    "body": "UPDATE event SET body = x'7b7d', codec = 0 WHERE number = :n",
    "body of another": (
        "UPDATE event SET (codec, body) = (SELECT codec, body FROM event WHERE number = :m) WHERE"
        " number = :n"
    ),
    "body gone": "UPDATE event SET body = NULL WHERE number = :n",
    "salt": "UPDATE event SET salt = zeroblob(16) WHERE number = :n",
    "salt cut": "UPDATE event SET salt = x'' WHERE number = :n",
    "codec": "UPDATE event SET codec = 7 WHERE number = :n",
    "kind": "UPDATE event SET kind = kind + 1 WHERE number = :n",
    "kind unknown": "UPDATE event SET kind = 9999 WHERE number = :n",
    "index of ids": "UPDATE event SET short = short + 1 WHERE number = :n",
    "filed elsewhere": "UPDATE event SET seq = seq + 1000 WHERE number = :n",
    "deleted": "DELETE FROM event WHERE number = :n",
    "repeated": (
        "INSERT INTO event SELECT 1000000, log, seq, kind, short, codec, salt, header, body FROM"
        " event WHERE number = :n"
    ),
    "moved": "UPDATE event SET log = :j WHERE number = :n AND :j != :k",
    "orphaned": "UPDATE event SET log = 999999 WHERE number = :n",
    "overwritten": (
        "UPDATE event SET (salt, header, body, codec) = (SELECT salt, header, body, codec FROM"
        " event WHERE number = :m) WHERE number = :n AND :n != :m"
    ),
    "committed at another time": (
        "UPDATE event SET number = 1000000 "
        "WHERE number = :n AND number < (SELECT max(number) FROM event WHERE log = :k)"
    ),
    "head": "UPDATE log SET head = zeroblob(32) WHERE key = :k",
    "tip up": "UPDATE log SET tip = tip + 1 WHERE key = :k",
    "tip down": "UPDATE log SET tip = tip - 1 WHERE key = :k",
    "place": "UPDATE log SET place = place + 1 WHERE key = :k",
    "parent": "UPDATE log SET parent = :j WHERE key = :k AND parent IS NOT :j",
    "log id": "UPDATE log SET id = x'01a1e10af04b7043a8b2178691f8ad09' WHERE key = :k",
    "log row gone": "DELETE FROM log WHERE key = :k",
    "blob": (
        "UPDATE blob SET data = x'00', codec = 0 WHERE key = (SELECT min(blob) FROM attachment)"
    ),
    "blob gone": "DELETE FROM blob WHERE key = (SELECT min(blob) FROM attachment)",
    "blob count": "UPDATE blob SET refs = 0 WHERE key = (SELECT min(blob) FROM attachment)",
    "attachment gone": "DELETE FROM attachment WHERE event = (SELECT min(event) FROM attachment)",
}
AT_THE_VICTIM = {
    *(
        "header actor",
        "header time",
        "header cut",
        "header empty",
        "body",
        "body of another",
        "body gone",
        "salt",
        "salt cut",
        "codec",
    ),
    *(
        "kind",
        "kind unknown",
        "index of ids",
        "filed elsewhere",
        "deleted",
        "moved",
        "orphaned",
        "overwritten",
    ),
}


class TamperMachine(SqliteMachine):
    """After every edit behind our back, `verify` finds it, and names the event where that is one
    event's matter.
    """

    law = "tamper"

    @rule(edit=st.sampled_from(sorted(EDITS)), data=st.data())
    def tamper(self, edit: str, data: st.DataObject) -> None:
        victim = data.draw(st.integers(1, len(self.feed)), label="victim")
        other = data.draw(st.integers(1, len(self.feed)), label="other")
        copy = self.root / f"tampered-{self.salt}-{edit.replace(' ', '-')}-{victim}-{other}"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        db = RawSql(self.folder / "store.db")
        db("VACUUM INTO ?", (str(copy / "store.db"),))
        db.close()
        if edit_file(copy / "store.db", EDITS[edit], victim, other):
            store = SqliteStore(copy, source=Seeded())
            check_found(store, edit, self.feed[victim - 1])
            store.close()
            count("tamper, edits found", self.store)
        shutil.rmtree(copy)


def edit_file(path: Path, sql: str, victim: int, other: int) -> bool:
    """Make the edit by raw SQL; whether it really changed something."""
    db = RawSql(path)
    keys: list[int] = [
        db("SELECT log FROM event WHERE number = ?", (n,))[0][0] for n in (victim, other)
    ]
    bound: dict[str, int] = {"n": victim, "m": other, "k": keys[0], "j": keys[1]}
    before = dump(db)
    db(sql, {name: value for name, value in bound.items() if f":{name}" in sql})
    changed = dump(db) != before
    db.close()
    return changed


def check_found(store: Store, edit: str, victim: Event) -> None:
    faults = list(verify_store(store))
    assert faults, f"{edit} of {victim} was not found"
    if edit in AT_THE_VICTIM:
        assert victim.seq in [fault.seq for fault in faults if fault.log == victim.log], (
            f"{edit} of {victim}: {faults}"
        )


def dump(db: RawSql) -> list[Any]:
    return [
        db(f"SELECT * FROM {table} ORDER BY 1") for table in ("event", "log", "blob", "attachment")
    ]


class MemoryTamperMachine(StoreMachine):
    """The memory store cannot be edited from outside; its lists can."""

    law = "tamper"

    @rule(
        edit=st.sampled_from(["deleted", "swapped", "repeated", "header", "body"]), data=st.data()
    )
    def tamper(self, edit: str, data: st.DataObject) -> None:
        assert isinstance(self.store, MemoryStore)
        logs: Any = self.store._logs  # pyright: ignore[reportPrivateUsage]
        log = data.draw(st.sampled_from(list(logs)))
        kept, numbers = list(logs[log].events), list(logs[log].numbers)
        i = data.draw(st.integers(0, len(kept) - 1))
        events = logs[log].events
        if edit == "deleted":
            del events[i], logs[log].numbers[i]
        elif edit == "swapped" and i:
            events[i], events[i - 1] = events[i - 1], events[i]
        elif edit == "repeated":
            events.insert(i, events[i])
            logs[log].numbers.insert(i, numbers[i])
        elif edit == "header":
            events[i] = Event(
                kept[i].raw.replace(b'"actor":"', b'"actor":"x'), kept[i].salt, kept[i].content
            )
        elif edit == "body":
            events[i] = Event(kept[i].raw, kept[i].salt, b'{"v":1,"title":"forged"}')
        else:
            return
        try:
            assert list(verify_store(self.store)), f"{edit} of {kept[i]} was not found"
        finally:
            logs[log].events, logs[log].numbers = kept, numbers


@pytest.mark.parametrize(
    "machine", [StoreMachine, SqliteMachine, PostgresMachine, TamperMachine, MemoryTamperMachine]
)
def test_law(machine: type[StoreMachine]) -> None:
    # More histories rather than longer ones; where each step is an fsync, half as long.
    steps = 25 if issubclass(machine, DurableMachine) else 50
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=steps))


@pytest.mark.parametrize("edit", sorted(EDITS))
def test_every_edit_is_found_wherever_it_is_made(edit: str, tmp_path: Path) -> None:
    """The same edits as the machine's, each tried on every event of one history with forks, blobs
    and a long body.
    """
    store = SqliteStore(tmp_path / "good", source=Seeded())
    log, other = begin(store, message("one"), message("two")), begin(store, message("long " * 2000))
    child = fork(store, log, 2)
    blob = store.put_blob(b"evidence")
    for each in (log, other, child):
        extend(store, each, MessageSaid("user", (File("f", "x/y", blob),)), message("more"))
    feed = [event for _, event in store.feed()]
    store.close()
    found = 0
    for victim in range(1, len(feed) + 1):
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        if edit_file(tmp_path / "bad" / "store.db", EDITS[edit], victim, victim % len(feed) + 1):
            store = SqliteStore(tmp_path / "bad", source=Seeded())
            check_found(store, edit, feed[victim - 1])
            store.close()
            found += 1
        shutil.rmtree(tmp_path / "bad")
    assert found
