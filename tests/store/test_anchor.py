"""The store's id is anchored in its house log; blobs and packed values are what they say; the
schema is ours alone.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
import zstandard

from plait import Session, open_store
from plait.errors import RowsTooNew, SchemaAltered, StoreCorrupt
from plait.event.kinds import HouseOpened, MessageSaid, Text
from plait.ids import Digest, LogId, house_of, inbox_of
from plait.session import SessionRows, verify
from plait.session.audit import Audit
from plait.store import SqliteStore, packing, verify_store
from plait.store.sqlite.schema import MIGRATIONS
from plait.testing import Seeded
from plait.testing.projections import Tally
from plait.testing.writing import begin, message, run_threads, seal_events
from tests.faults.folders import old_store
from tests.support import RawSql, python


def opened(folder: Path) -> SqliteStore:
    return SqliteStore(folder, source=Seeded())


def edited(folder: Path, *statements: str) -> list[str]:
    """Return the faults that verify finds after these statements, in the store opened anew."""
    sql = RawSql(folder / "store.db")
    for statement in statements:
        sql(statement)
    sql.close()
    store = opened(folder)
    try:
        return [str(fault) for fault in verify_store(store)]
    finally:
        store.close()


# ── the house log ────────────────────────────────────────────────────────────────────────────

OTHER_ID = "UPDATE store SET id = x'0123456789ab7abc8abc0123456789ab'"
NO_HOUSE = ("DELETE FROM event WHERE number = 0", "DELETE FROM log WHERE key = 0")


@pytest.mark.parametrize(
    "edit", [(OTHER_ID,), NO_HOUSE, (OTHER_ID, *NO_HOUSE)], ids=["id", "house", "both"]
)
def test_another_id_of_the_store_or_no_house_log_is_found(
    tmp_path: Path, edit: tuple[str, ...]
) -> None:
    store = opened(tmp_path)
    begin(store, message("hello"))
    store.close()
    assert edited(tmp_path) == []
    assert any("house log" in fault for fault in edited(tmp_path, *edit))
    assert any("house log" in fault for fault in edited(tmp_path)), (
        "opening it again does not heal it"
    )


def test_another_id_is_found_in_a_store_that_is_open(tmp_path: Path) -> None:
    store = opened(tmp_path)
    sql = RawSql(tmp_path / "store.db")
    sql(OTHER_ID)
    sql.close()
    assert any(store.id in str(fault) for fault in verify_store(store))
    store.close()


@pytest.mark.parametrize("schema", range(1, len(MIGRATIONS)))
def test_a_store_made_before_house_logs_gets_one_when_it_is_opened(
    tmp_path: Path, schema: int
) -> None:
    old_store(tmp_path, schema)
    store = opened(tmp_path)
    before = [(number, event.id) for number, event in store.feed()]
    (first,) = store.read(house_of(store.id))
    assert first.body == HouseOpened(store.id) and store.number_of(first.id) == 0
    assert [number for number, _ in before] == list(range(1, len(before) + 1))
    assert list(verify_store(store)) == []
    store.close()
    assert any("house log" in fault for fault in edited(tmp_path, OTHER_ID))


def test_the_house_log_is_no_session(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    assert Session.list(store=store) == [] and store.rows("session", "session") == []
    session = Session("hello", store=store)
    assert [each.id for each in Session.list(store=store)] == [session.id]
    assert Session.open("@", store=store).id == session.id
    store.close()


def test_a_store_is_made_once_by_threads_and_processes_at_the_same_moment(tmp_path: Path) -> None:
    stores: list[SqliteStore] = []
    run_threads([lambda: stores.append(opened(tmp_path / "threads"))] * 6)
    assert len({store.id for store in stores}) == 1
    for store in stores:
        assert list(verify_store(store)) == []
        store.close()
    code = (
        "import contextlib, os, sys\n"
        "from plait import open_store\n"
        "for _ in range(3): os.fork()\n"
        "store = open_store(sys.argv[1])\n"
        "os.write(1, f'{store.id}\\n'.encode())\n"
        "with contextlib.suppress(ChildProcessError):\n"
        "    while True: os.wait()\n"
    )
    told = python(code, tmp_path / "processes").stdout.split()
    assert len(told) == 8 and len(set(told)) == 1
    store = open_store(tmp_path / "processes")
    assert store.id == told[0] and list(verify(store, state=True)) == []
    store.close()


# ── packed values ────────────────────────────────────────────────────────────────────────────

SKIPPED = b"\x50\x2a\x4d\x18\x04\0\0\0hide"


@pytest.mark.parametrize("content", [b"", b"x" * 500], ids=["empty", "long"])
def test_a_packed_value_is_one_frame_and_nothing_else(content: bytes) -> None:
    frame = packing.frame(content)
    assert packing.unpack(packing.ZSTD, frame) == content
    for other in (
        frame + b"\0",
        frame + frame,
        frame + SKIPPED,
        SKIPPED + frame,
        SKIPPED,
        frame[:-1],
        b"",
    ):
        with pytest.raises(StoreCorrupt):
            packing.unpack(packing.ZSTD, other)


def test_a_packed_header_and_body_are_one_frame_and_nothing_else() -> None:
    codec, header, body = packing.pack_event(b'{"kind":"MessageSaid"}' * 9, b'{"role":"user"}' * 9)
    assert packing.unpack_header(codec, header) and packing.unpack_body(body)
    for extra in (b"\0", zstandard.compress(b"more"), SKIPPED):
        with pytest.raises(StoreCorrupt):
            packing.unpack_header(codec, header + extra)
        with pytest.raises(StoreCorrupt):
            packing.unpack_body(body + extra)


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


def plant(folder: Path, content: bytes, put: bytes) -> Digest:
    """Another content under the digest of this one, before anybody has put it."""
    digest = sha256(content)
    sql = RawSql(folder / "store.db")
    sql(
        "INSERT INTO blob (digest, size, codec, refs, born, data) VALUES (?, ?, 0, 0, 0, ?)",
        (digest.digest(), len(put), put),
    )
    sql.close()
    return Digest(digest.hexdigest())


@pytest.mark.parametrize(
    "put", [b"planted", b"", b"tnetnoc eht"], ids=["other length", "empty", "same length"]
)
def test_a_planted_blob_is_found_and_does_not_keep_the_true_content_out(
    tmp_path: Path, put: bytes
) -> None:
    store = opened(tmp_path)
    content = b"the content"
    digest = plant(tmp_path, content, put)
    assert [digest in str(fault) for fault in verify_store(store)] == [True]
    assert store.put_blob(content) == digest and store.get_blob(digest) == content
    assert list(verify_store(store)) == []
    store.close()


def test_content_that_comes_with_an_event_replaces_a_planted_one(tmp_path: Path) -> None:
    store = opened(tmp_path)
    content = b"the content " * 100
    digest = plant(tmp_path, content, b"planted")
    log = begin(store)
    head = store.log(log).head
    store.append(
        log,
        seal_events([MessageSaid("user", (Text(blob=digest),))], log, 2, (head,)),
        after=head,
        blobs={digest: content},
    )
    assert store.get_blob(digest) == content and list(verify_store(store)) == []
    store.close()


def test_many_blobs_at_once_replace_planted_ones_of_another_length(tmp_path: Path) -> None:
    store = opened(tmp_path)
    contents = {Digest(sha256(each).hexdigest()): each for each in (b"one", b"two", b"three" * 100)}
    for content in contents.values():
        plant(tmp_path, content, b"planted")
    store.put_blobs(contents)
    assert [store.get_blob(digest) for digest in contents] == list(contents.values())
    store.close()


# ── the schema and the projections ───────────────────────────────────────────────────────────


def test_a_projection_of_the_program_is_allowed_and_one_of_others_is_named(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", projections=[Tally()])
    Session("hello", store=store).scratch("a", 1)
    assert list(verify(store, state=True)) == []
    store.close()
    store = open_store(tmp_path / "store")
    audit = Audit(store, state=True)
    assert list(audit.faults()) == []
    assert any("projection tally" in str(each) for each in audit.unchecked_parts())
    store.close()
    sql = RawSql(tmp_path / "store" / "store.db")
    sql("CREATE UNIQUE INDEX p_tally__count_9 ON p_tally__count (times)")
    sql(
        "CREATE TRIGGER p_tally__silent AFTER INSERT ON event BEGIN DELETE FROM p_tally__count; END"
    )
    sql.close()
    store = open_store(tmp_path / "store")
    assert [each.what for each in verify(store)] == [
        "the index p_tally__count_9 on p_tally__count is not one of ours",
        "the trigger p_tally__silent on event is not one of ours",
    ]
    store.close()


NAMED_AS_SQLITE_NAMES_ITS_OWN = {
    "trigger": "CREATE TRIGGER {} BEFORE INSERT ON blob BEGIN SELECT RAISE(IGNORE); END",
    "index": "CREATE UNIQUE INDEX {} ON log (tip, id)",
    "table": "CREATE TABLE {}(tbl,idx,stat,note)",
    "view": "CREATE VIEW {} AS SELECT 1 AS tbl",
}


@pytest.mark.parametrize(
    "name", ["sqlite_stat1", "sqlite_stat4", "sqlite_stat0", "sqlite_sequence"]
)
@pytest.mark.parametrize("type", NAMED_AS_SQLITE_NAMES_ITS_OWN)
def test_what_has_only_the_name_of_a_table_of_sqlite_is_found(
    tmp_path: Path, type: str, name: str
) -> None:
    opened(tmp_path).close()
    assert edited(tmp_path, "ANALYZE") == []
    faults = edited(
        tmp_path,
        "PRAGMA writable_schema = ON",
        "DROP TABLE IF EXISTS sqlite_stat1",
        "DROP TABLE IF EXISTS sqlite_stat4",
        NAMED_AS_SQLITE_NAMES_ITS_OWN[type].format("planted"),
        f"UPDATE sqlite_schema SET name = '{name}', tbl_name = replace(tbl_name, 'planted',"
        f" '{name}'), sql = replace(sql, 'planted', '{name}') WHERE name = 'planted'",
    )
    assert any(name in fault for fault in faults)


@pytest.mark.parametrize("name", ["session", "graph", "inbox"])
def test_a_raised_version_of_our_own_projections_is_a_fault(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / "store")
    Session("hello", store=store)
    store.close()
    sql = RawSql(tmp_path / "store" / "store.db")
    sql("UPDATE projection SET version = version + 1 WHERE name = ?", (name,))
    sql.close()
    store = open_store(tmp_path / "store")
    faults = [fault.what for fault in verify(store)]
    assert len(faults) == 1 and f"projection {name}" in faults[0] and "version" in faults[0]
    store.close()


def test_rows_of_a_newer_version_say_which_versions(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.close()
    sql = RawSql(tmp_path / "store" / "store.db")
    sql("UPDATE projection SET version = 77 WHERE name = 'session'")
    sql.close()
    store = open_store(tmp_path / "store")
    with pytest.raises(RowsTooNew) as caught:
        store.rows("session", "session")
    assert (caught.value.found, caught.value.known) == (77, SessionRows.version)
    store.close()


def test_a_schema_number_that_is_not_that_of_the_tables_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    sql = RawSql(tmp_path / "store.db")
    sql(f"PRAGMA user_version = {len(MIGRATIONS) - 1}")
    sql.close()
    with pytest.raises(SchemaAltered, match="altered"):
        opened(tmp_path)


@pytest.mark.parametrize("where", ["house", "inbox"])
def test_a_snapshot_of_a_log_that_is_no_session_is_found(tmp_path: Path, where: str) -> None:
    store = opened(tmp_path)
    session = Session("hello", store=store)
    inbox = inbox_of(session.id)
    store.begin(inbox, seal_events([message("heard")], inbox))
    store.keep_snapshot(session.id, session.seq, b"a state")
    fork = session.fork("a").say("b")
    store.keep_snapshot(fork.id, fork.seq, b"a state")
    store.close()
    assert edited(tmp_path) == []
    id = inbox if where == "inbox" else house_of(store.id)
    key = f"(SELECT key FROM log WHERE id = x'{id.replace('-', '')}')"
    assert any(
        "no session" in fault
        for fault in edited(tmp_path, f"UPDATE snapshot SET log = {key}, seq = 1 WHERE key = 1")
    )


# ── the order of commits ─────────────────────────────────────────────────────────────────────


def put_first(folder: Path, log: LogId) -> None:
    """A log is numbered before all others, with its ordinal and all that refers to it: each log
    alone is still in order.
    """
    sql = RawSql(folder / "store.db")
    ((key,),) = sql("SELECT key FROM log WHERE id = ?", (bytes.fromhex(log.replace("-", "")),))
    numbers = [
        number
        for (number,) in sql(
            "SELECT number FROM event WHERE number > 0 ORDER BY log != ?, number", (key,)
        )
    ]
    keys = [
        each for (each,) in sql("SELECT key FROM log WHERE key > 0 ORDER BY key != ?, key", (key,))
    ]
    numbered, ordinals = (
        (("event", "number"), ("attachment", "event")),
        (("log", "key"), ("log", "parent"), ("event", "log")),
    )
    for order, columns in ((numbers, numbered), (keys, ordinals)):
        for table, column in columns:
            for place, value in enumerate(order, 1):
                sql(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (-place, value))
            sql(f"UPDATE {table} SET {column} = -{column} WHERE {column} < 0")
    sql("DELETE FROM projection")
    sql.close()


@pytest.mark.parametrize("how", ["successor", "detached", "inbox"])
def test_what_follows_a_session_is_committed_after_it(tmp_path: Path, how: str) -> None:
    store = opened(tmp_path)
    Session("another", store=store)
    session = Session("hello", store=store)
    if how == "inbox":
        later = inbox_of(session.id)
        store.begin(later, seal_events([message("heard")], later))
    else:
        later = (session.successor("go on") if how == "successor" else session.detach()).id
    store.close()
    assert edited(tmp_path) == []
    put_first(tmp_path, later)
    assert any(later in fault and "commit number" in fault for fault in edited(tmp_path))


# ── durability ───────────────────────────────────────────────────────────────────────────────


def test_an_edited_root_is_named_not_its_forks(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    root = Session("hello", store=store)
    root.fork("a").say("x")
    store.close()
    sql = RawSql(tmp_path / "store" / "store.db")
    sql("UPDATE log SET lazy = 1 WHERE parent IS NULL AND key > 0")
    sql.close()
    store = open_store(tmp_path / "store")
    (fault,) = verify(store)
    assert (fault.log, fault.seq) == (LogId(root.id), 1) and "written async" in fault.what
    store.close()
