"""Files, callers and neighbours that mean harm, or merely do it."""

from __future__ import annotations

import shutil
import signal
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from plait.errors import (
    CommitmentBroken,
    InvalidInput,
    NotAStore,
    PlaitError,
    StoreClosed,
    StoreCorrupt,
    StoreReentered,
    UnknownBlob,
    UnknownEvent,
    UnknownRows,
)
from plait.event import Event, seal
from plait.event.kinds import (
    Budget,
    BudgetRefused,
    Merged,
    MessageSaid,
    Score,
    ScratchSet,
    SessionOpened,
    Text,
)
from plait.ids import Digest, derive_id
from plait.session import SessionRows
from plait.store import MemoryStore, Rows, SqliteStore, Store, verify_store
from plait.store.records import short_of
from plait.store.sqlite import database as database_module
from plait.testing import Seeded
from plait.testing.projections import Tally
from plait.testing.writing import begin, extend, message, new_log, seal_events, texts
from tests.support import RawSql, python


def opened(folder: Path, *projections: Any) -> SqliteStore:
    return SqliteStore(folder, source=Seeded(), projections=projections)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore(source=Seeded()) if request.param == "memory" else opened(tmp_path)


# ── a file somebody prepared ─────────────────────────────────────────────────────────────────


def test_table_names_in_the_file_are_not_sql(tmp_path: Path) -> None:
    store = opened(tmp_path, SessionRows())
    log = begin(store, message("kept"))
    store.close()
    raw = RawSql(tmp_path / "store.db")
    raw(
        f"""CREATE TABLE "p_session__a; COMMIT; VACUUM INTO '{tmp_path}/stolen'; DELETE FROM event; --" (x)"""  # noqa: E501
    )
    raw("UPDATE projection SET stale = 1")
    raw.close()
    store = opened(tmp_path, SessionRows())
    assert texts(store, log) == ["kept"]
    assert not (tmp_path / "stolen").exists()
    store.close()


def test_triggers_in_the_file_do_not_run(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = begin(store)
    store.close()
    raw = RawSql(tmp_path / "store.db")
    raw(
        "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM event WHERE number ="
        " new.number; END"
    )
    raw.close()
    store = opened(tmp_path)
    extend(store, log, message("kept"))
    assert texts(store, log) == ["kept"]
    store.close()


def test_altered_tables_are_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    raw = RawSql(tmp_path / "store.db")
    raw("ALTER TABLE event RENAME TO other")
    raw("CREATE VIEW event AS SELECT * FROM other")
    raw.close()
    with pytest.raises(NotAStore, match="altered"):
        opened(tmp_path)


def test_a_blob_cannot_claim_a_terabyte(tmp_path: Path) -> None:
    store = opened(tmp_path)
    blob = store.put_blob(b"hello" * 100)
    begin(store, MessageSaid("user", (Text(blob=blob),)))
    raw = RawSql(tmp_path / "store.db")
    frame = struct.pack("<I", 0xFD2FB528) + b"\xe0" + struct.pack("<Q", 2**40) + b"\x01\0\0"
    raw("UPDATE blob SET size = ?, codec = 1, data = ?", (2**40, frame))
    raw.close()
    with pytest.raises(StoreCorrupt):
        store.get_blob(blob)
    assert list(verify_store(store))
    store.close()


def test_planted_logs_are_found(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = begin(store, message("honest"))
    store.close()
    shutil.copytree(tmp_path, tmp_path / "empty")
    raw = RawSql(tmp_path / "store.db")
    raw(
        "INSERT INTO log SELECT 77, id, parent, place, head, tip, lazy, epoch FROM log WHERE"
        " key = 1"
    )
    for event in seal_events([SessionOpened(title="FAKE"), message("false")], log):
        code = raw("SELECT code FROM kind WHERE name = ?", (event.kind,))[0][0]
        raw(
            "INSERT INTO event (log, seq, kind, short, codec, salt, header, body) VALUES (77, ?, ?,"
            " ?, 0, ?, ?, ?)",
            (event.seq, code, short_of(event.id), event.salt, event.raw, event.content),
        )
    raw.close()
    raw = RawSql(tmp_path / "empty" / "store.db")
    raw(
        "INSERT INTO log SELECT 77, x'0123456789ab7abc8abc0123456789ab', key, tip, head, tip, lazy,"
        " epoch FROM log WHERE key = 1"
    )
    raw.close()
    for folder in (tmp_path, tmp_path / "empty"):
        store = opened(folder)
        assert list(verify_store(store))
        store.close()


# ── callers ──────────────────────────────────────────────────────────────────────────────────


def test_equal_numbers_have_equal_bytes(store: Store) -> None:
    """5 == 5.0, so whichever the caller wrote, the log holds the same fact in the same bytes."""
    five: Any = 5
    begin(store, SessionOpened(budget=Budget(cost_usd_max=five)), BudgetRefused("x", 1, 0))
    assert list(verify_store(store)) == []
    one, two = (seal(SessionOpened(budget=Budget(cost_usd_max=n)), **_fields()) for n in (5, 5.0))
    assert one.id == two.id
    assert Score(Digest("m"), 1, {"a": 2}) == Score(Digest("m"), 1.0, {"a": 2.0})


def _fields() -> dict[str, Any]:
    return {
        "log": derive_id("x"),
        "seq": 1,
        "parents": (),
        "time": 1,
        "salt": bytes(16),
        "actor": "human:u",
    }


def test_an_event_that_was_not_sealed_is_checked(store: Store) -> None:
    log = new_log()
    (event,) = seal_events([SessionOpened(title="a")], log)
    with pytest.raises(CommitmentBroken):
        store.begin(log, [Event(event.raw, event.salt, b'{"v":1,"title":"EVIL"}')])
    with pytest.raises(InvalidInput):
        store.begin(log, [Event(event.raw + b" ", event.salt, event.content)])
    with pytest.raises(InvalidInput):
        store.begin(log, [Event(event.raw, b"short", event.content)])
    assert store.number == 0
    # an honest one, as an import brings it
    store.begin(log, [Event(event.raw, event.salt, event.content)])
    assert list(verify_store(store)) == []


def test_what_an_event_points_to_must_be_there(store: Store) -> None:
    log = begin(store, message("one"))
    head = store.log(log).head
    with pytest.raises(UnknownEvent):
        store.append(log, seal_events([Merged(())], log, 3, (head, Digest("f" * 64))), after=head)
    for blob in ("F" * 64, "zz", "f" * 63 + " "):
        with pytest.raises(InvalidInput):
            extend(store, log, MessageSaid("user", (Text(blob=Digest(blob)),)))
    with pytest.raises(UnknownBlob):
        extend(store, log, MessageSaid("user", (Text(blob=Digest("f" * 64)),)))
    other = begin(store, message("two"))
    store.append(log, seal_events([Merged(())], log, 3, (head, store.log(other).head)), after=head)
    assert list(verify_store(store)) == []


@pytest.mark.parametrize("odd", [None, "x", b"x", -1, 2**70, 1.5])
def test_odd_arguments_are_typed_errors(store: Store, odd: Any) -> None:
    log = begin(store)
    events = seal_events([message("x")], log, 2, (store.log(log).head,))
    for ask in (
        lambda: store.append(log, events, after=odd),
        lambda: store.read(odd),
        lambda: store.event(odd),
        lambda: store.get_blob(odd),
        lambda: store.sweep_blobs(before=odd),
        lambda: list(store.feed(odd)),
        lambda: seal(SessionOpened(), **{**_fields(), "salt": odd}),
        lambda: seal(SessionOpened(), **{**_fields(), "time": odd}),
        lambda: seal(SessionOpened(), **{**_fields(), "actor": odd}),
    ):
        with pytest.raises(PlaitError):
            ask()
    assert store.number == 1


def test_a_write_inside_a_write_is_a_typed_error(tmp_path: Path) -> None:
    class Greedy(Tally):
        def apply(self, rows: Rows, number: int, event: Event) -> None:
            begin(stores[0])

    stores: list[Store] = [opened(tmp_path, Greedy())]
    with pytest.raises(StoreReentered):
        begin(stores[0], ScratchSet("a", 1))
    stores[0].close()


def test_a_signal_handler_that_writes_does_not_hang() -> None:
    code = """
import signal, sys, tempfile
from plait.errors import StoreReentered
from plait.store import SqliteStore
from plait.testing import Seeded
from plait.testing.writing import begin, extend, message
store = SqliteStore(tempfile.mkdtemp(), source=Seeded())
mine, theirs, refused = begin(store), begin(store), 0
def ring(*_):
    global refused
    try: extend(store, theirs, message("x"))
    except StoreReentered: refused += 1
signal.signal(signal.SIGALRM, ring)
for _ in range(300):
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
    extend(store, mine, message("y"))
print(refused, "ok")
"""
    done = python(code, check=False)
    assert done.stdout.endswith("ok\n"), done.stderr
    assert signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, None)


# ── neighbours ───────────────────────────────────────────────────────────────────────────────


def test_a_projection_made_meanwhile_misses_nothing(tmp_path: Path) -> None:
    early = opened(tmp_path)
    late = opened(tmp_path, Tally())
    log = begin(late, ScratchSet("a", 1))
    extend(early, log, ScratchSet("a", 2))
    assert [row["times"] for row in late.rows("tally", "count")] == [2]
    early.close()
    late.close()


def test_a_newer_projection_does_not_break_who_has_the_older(tmp_path: Path) -> None:
    class Newer(Tally):
        version = 2

        def apply(self, rows: Rows, number: int, event: Event) -> None:
            Tally.apply(self, rows, number, event)

    older = opened(tmp_path, Tally())
    log = begin(older, ScratchSet("a", 1))
    newer = opened(tmp_path, Newer())
    extend(older, log, ScratchSet("a", 2))
    with pytest.raises(UnknownRows, match="newer"):
        older.rows("tally", "count")
    assert [row["times"] for row in newer.rows("tally", "count")] == [2]
    older.close()
    newer.close()


def test_a_store_made_by_another_process_at_this_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = database_module.Database.get, list[int]()

    def get(self: Any, sql: str, values: Any = ()) -> Any:
        found = real(self, sql, values)
        if not made and "user_version" in sql:
            made.append(1)
            opened(tmp_path).close()
        return found

    monkeypatch.setattr(database_module.Database, "get", get)
    store = opened(tmp_path)
    begin(store, message("x"))
    store.close()


def test_closing_waits_for_those_inside(tmp_path: Path) -> None:
    for round in range(8):
        store = opened(tmp_path / str(round))
        logs, errors = [begin(store) for _ in range(4)], list[Exception]()
        started = threading.Barrier(len(logs) + 1)

        def write(
            log: Any,
            store: Store = store,
            started: threading.Barrier = started,
            errors: list[Exception] = errors,
        ) -> None:
            started.wait()
            try:
                while True:
                    extend(store, log, message("x"))
                    list(store.read(log))
            except Exception as caught:
                errors.append(caught)

        threads = [threading.Thread(target=write, args=(log,)) for log in logs]
        for thread in threads:
            thread.start()
        started.wait()
        store.close()
        for thread in threads:
            thread.join()
        assert [type(each) for each in errors] == [StoreClosed] * len(logs), errors
        store = opened(tmp_path / str(round))
        assert list(verify_store(store)) == []
        store.close()
