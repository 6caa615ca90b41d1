"""The disk's bad days: full, failing, torn, or holding something that is not ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import Session, open_store
from plait.errors import (
    BadAddress,
    DiskFull,
    NotAStore,
    OutcomeUnknown,
    PlaitError,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreUnsafe,
)
from plait.store import SqliteStore, verify_store
from plait.store.sqlite import database as database_module
from plait.store.sqlite.database import Database
from plait.store.sqlite.schema import MIGRATIONS
from plait.testing import Seeded
from plait.testing.writing import begin, extend, message, texts
from tests.faults.acts import UPKEEP, WRITING
from tests.faults.nursery import ask
from tests.faults.scenes import add_colour
from tests.support import RawSql, dose, needs_strace, report, seed


def opened(folder: Path, **options: object) -> SqliteStore:
    return SqliteStore(folder, source=Seeded(), **options)  # type: ignore[arg-type]


# ── full ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_loses_nothing_and_recovers(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    store = opened(small_disk / "store")
    log, written = begin(store), 0
    with pytest.raises(DiskFull, match="free some space"):
        for written in range(10_000):
            extend(store, log, message(f"{written} " + os.urandom(1500).hex()))
    assert written > 3
    # Reading goes on, and nothing is half there.
    assert [text.split()[0] for text in texts(store, log)] == [str(i) for i in range(written)]
    assert list(verify_store(store)) == []
    for _ in range(3):
        with pytest.raises(DiskFull):
            extend(store, log, message(os.urandom(200_000).hex()))
    with pytest.raises(DiskFull):
        store.put_blob(os.urandom(2_000_000))
    other = opened(small_disk / "store")  # reopening works as well
    assert len(texts(other, log)) == written
    other.close()
    ballast.unlink()
    extend(store, log, message("space again"))
    assert texts(store, log)[-1] == "space again"
    assert list(verify_store(store)) == []
    store.close()


def test_a_new_store_on_a_full_disk_says_so(small_disk: Path) -> None:
    """SQLite calls this an I/O error."""
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_frsize))
    with pytest.raises(DiskFull):
        opened(small_disk / "store")
    (small_disk / "ballast").unlink()
    store = opened(small_disk / "store")
    begin(store, message("fits"))
    store.close()


# ── failing ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("acts", [WRITING, UPKEEP], ids=["writing", "upkeep"])
def test_a_disk_that_fails_anywhere_is_a_typed_error_and_no_loss(
    tmp_path: Path, acts: tuple[str, ...]
) -> None:
    """EIO or no space at every call that could give it, once or from then on.

    The caller hears it as one of our errors, nothing is half-written, reading goes on in the same
    process, and so does writing as soon as the disk works again; after a disk that failed for good,
    once the store is opened again. `DISK_EVERY` says how many of the calls, errors and durations
    are taken (1: all of them).
    """
    needs_strace()
    every, start = dose("DISK_EVERY", short=250, long=16), seed()
    found = ask("errors", tmp_path, start, acts, every=every)
    assert all(found[f"in {act}"] for act in acts), f"SEED={start}: some act was never hit: {found}"
    report(f"disk failing in {', '.join(acts)}, one in {every}", _counts(found), start)
    if every <= 4:
        assert all(found[kind] for kind in ("DiskFull", "StoreFailed", "OutcomeUnknown")), (
            f"SEED={start}: {found}"
        )


def test_a_disk_that_fills_up_in_any_act_loses_nothing_and_recovers(
    tmp_path: Path, small_disk: Path
) -> None:
    """Each act with no space at all, with a little more, and so on until it is enough; space
    returns after the first error.
    """
    every, start = dose("SPACE_EVERY", short=50, long=3), seed()
    found = ask("full", tmp_path, start, (*WRITING, *UPKEEP), disk=small_disk, every=every)
    assert found["DiskFull"] == found["errors"] > 0, f"SEED={start}: {found}"
    report(f"disk full, every {every} pages", _counts(found), start)


@pytest.mark.parametrize("stands", [True, False])
def test_a_session_settles_an_unknown_outcome_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stands: bool
) -> None:
    """The disk refused at the commit, and whether that stands nobody can know: the same events
    again, and it stands once.
    """
    session, commit, refusals = Session("before", store=tmp_path), Database.commit, iter([True])

    def refuse_once(db: Database, pieces: int) -> None:
        if not next(refusals, False):
            commit(db, pieces)
            return
        if stands:
            commit(db, pieces)
        raise OutcomeUnknown(db.path, "fdatasync failed")

    monkeypatch.setattr(Database, "commit", refuse_once)
    session.say("once")
    assert next(refusals, "used up") == "used up"
    store = open_store(tmp_path)
    assert texts(store, session.id) == ["before", "once"]
    assert list(verify_store(store)) == []
    store.close()


def _counts(found: dict[str, int]) -> str:
    kinds = ("DiskFull", "StoreFailed", "OutcomeUnknown", "BadAddress", "StoreCorrupt")
    said = ", ".join(f"{found[kind]:,} {kind}" for kind in kinds if found[kind])
    return (
        f"{found['faults']:,} faults, heard as {said}; 0 of another type, 0 half-written, all"
        " recovered"
    )


# ── torn ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9, 0.999])
def test_a_torn_tail_costs_only_the_tail(tmp_path: Path, keep: float) -> None:
    """The write-ahead log ends in the middle of a record: what came before it stands, and writing
    goes on.
    """
    store = opened(tmp_path / "store")
    log = begin(store, *(message(str(i)) for i in range(5)))
    for i in range(5, 40):
        extend(store, log, message(str(i)))
    torn = tmp_path / "torn"
    torn.mkdir()
    for name in ("store.db", "store.db-wal"):
        shutil.copy(tmp_path / "store" / name, torn / name)
    store.close()
    wal = torn / "store.db-wal"
    os.truncate(wal, int(wal.stat().st_size * keep))
    with wal.open("ab") as file:
        file.write(os.urandom(5000))
    store = opened(torn)
    if store.number:
        there = texts(store, log)
        assert there == [str(i) for i in range(len(there))]
        extend(store, log, message("on"))
        assert texts(store, log)[-1] == "on"
    assert list(verify_store(store)) == []
    store.close()


def test_an_emptied_file_beside_its_log_is_not_taken_for_a_new_store(tmp_path: Path) -> None:
    store = opened(tmp_path)
    begin(store, message("precious"))
    wal = (tmp_path / "store.db-wal").read_bytes()
    os.truncate(tmp_path / "store.db", 0)
    with pytest.raises(StoreCorrupt, match="backup"):
        opened(tmp_path)
    assert (tmp_path / "store.db-wal").read_bytes() == wal


@pytest.mark.parametrize("offset", [0, 100, 8192, 20_000, 60_000])
def test_a_damaged_file_is_never_more_than_a_typed_error(tmp_path: Path, offset: int) -> None:
    store = opened(tmp_path)
    log = begin(store, *(message(f"{i} " * 200) for i in range(200)))
    store.close()
    with (tmp_path / "store.db").open("r+b") as file:
        file.seek(offset)
        file.write(os.urandom(4096))
    try:
        store = opened(tmp_path)
        faults = list(verify_store(store))
        list(store.read(log))
        store.close()
        assert faults or offset
    except PlaitError:
        pass


# ── not ours ─────────────────────────────────────────────────────────────────────────────────


def foreign_database(path: Path) -> None:
    db = RawSql(path)
    db("CREATE TABLE theirs (x)")
    db("INSERT INTO theirs VALUES ('precious')")
    db.close()


@pytest.mark.parametrize(
    "what", ["text", "noise", "another database", "a folder", "a link", "a fifo"]
)
def test_what_is_not_a_store_is_refused_and_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "store" / "store.db"
    path.parent.mkdir()
    if what == "text":
        path.write_text("a diary " * 1000)
    elif what == "noise":
        path.write_bytes(os.urandom(20_000))
    elif what == "another database":
        foreign_database(path)
    elif what == "a folder":
        path.mkdir()
    elif what == "a link":
        foreign_database(tmp_path / "target.db")
        path.symlink_to(tmp_path / "target.db")
    else:
        os.mkfifo(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(NotAStore, match="left untouched"):
        opened(tmp_path / "store")
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize("address", ["a file in the way", "\0", "x" * 5000])
def test_a_folder_that_cannot_be_made_is_a_typed_error(tmp_path: Path, address: str) -> None:
    (tmp_path / "a file in the way").write_text("")
    with pytest.raises((BadAddress, ValueError)):
        opened(tmp_path / address)


# ── schemas ──────────────────────────────────────────────────────────────────────────────────


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = begin(store, message("kept"))
    store.close()
    raw = RawSql(tmp_path / "store.db")
    raw("PRAGMA user_version = 99")
    raw.close()
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(SchemaTooNew, match="upgrade"):
        opened(tmp_path)
    assert (tmp_path / "store.db").read_bytes() == before
    raw = RawSql(tmp_path / "store.db")
    raw(f"PRAGMA user_version = {len(MIGRATIONS)}")
    raw.close()
    store = opened(tmp_path)
    assert texts(store, log) == ["kept"]
    store.close()


def test_an_old_store_is_brought_up_to_date(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = begin(store, message("kept"))
    store.close()
    store = opened(tmp_path, migrations=(*MIGRATIONS, add_colour))
    assert texts(store, log) == ["kept"]
    store.close()
    raw = RawSql(tmp_path / "store.db")
    assert raw("SELECT DISTINCT colour FROM log") == [("blue",)]
    raw.close()
    with pytest.raises(SchemaTooNew):
        opened(tmp_path)


def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: Path) -> None:
    def broken(db: Database) -> None:
        add_colour(db)
        raise RuntimeError("half-way")

    store = opened(tmp_path)
    log = begin(store, message("kept"))
    store.close()
    with pytest.raises(RuntimeError, match="half-way"):
        opened(tmp_path, migrations=(*MIGRATIONS, broken))
    store = opened(tmp_path)
    assert texts(store, log) == ["kept"]
    assert "colour" not in str(RawSql(tmp_path / "store.db")("SELECT sql FROM sqlite_schema"))
    store.close()


# ── settings that must hold ──────────────────────────────────────────────────────────────────


def test_a_setting_that_does_not_take_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database_module.PRAGMAS, "synchronous", 7)
    with pytest.raises(StoreUnsafe, match="local disk"):
        opened(tmp_path)


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "SQLITE_MIN", (99, 0, 0))
    with pytest.raises(StoreUnsafe):
        opened(tmp_path)


def test_the_settings_in_force(tmp_path: Path) -> None:
    store = opened(tmp_path)
    pragmas = store.describe()["pragmas"]
    assert isinstance(pragmas, dict)
    assert (pragmas["journal_mode"], pragmas["synchronous"], pragmas["page_size"]) == (
        "wal",
        2,
        4096,
    )
    store.close()


def test_errors_tell_what_they_are() -> None:
    """Every error of the tree has a text that ends in a next step."""
    for error in (
        DiskFull("/x"),
        StoreFailed("/x", "why"),
        OutcomeUnknown("/x", "why"),
        StoreCorrupt("/x", "why"),
    ):
        assert isinstance(error, StoreError)
        assert str(error).endswith(".")
        assert "/x" in str(error)
    assert "same events again" in str(OutcomeUnknown("/x", "why"))


def test_a_schema_that_is_not_text_any_more_is_a_typed_error(tmp_path: Path) -> None:
    store = opened(tmp_path)
    begin(store)
    store.close()
    path = tmp_path / "store.db"
    data = path.read_bytes()
    at = data.index(b"CREATE TABLE projection") + 20
    path.write_bytes(data[:at] + b"\xa0" + data[at + 1 :])
    with pytest.raises((StoreCorrupt, NotAStore)):
        opened(tmp_path)
