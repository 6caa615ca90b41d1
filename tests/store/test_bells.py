"""Bells and notices beyond the contract: dead listeners, hostile files, servers that go away."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from plait import migrate_store, open_store
from plait.errors import NotMigrated, StoreDenied, StoreFailed
from plait.store import MemoryStore, SqliteStore, Store
from plait.store.postgres.bells import RING_S
from plait.store.postgres.store import PostgresStore
from plait.store.sqlite.bells import name_of
from plait.testing import Seeded
from plait.testing.store.processes import fork_process
from plait.testing.writing import verify
from tests.support import PostgresServer, pooled_store, wait_until

_PATIENCE_S = 20.0
_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="counts handles in /proc")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    store = SqliteStore(folder, source=Seeded())
    yield store
    store.close()


def pipes(folder: Path) -> list[Path]:
    return list((folder / "bells").glob("*/*"))


def pipe_handles() -> list[str]:
    """The handles of this process on pipes of bells."""
    found = list[str]()
    for path in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(path)
        except OSError:  # that of the listing itself
            continue
        if "/bells/" in target:
            found.append(target)
    return found


# ── folders ──────────────────────────────────────────────────────────────────────────────────


def test_a_pipe_goes_with_its_bell(store: Store, folder: Path) -> None:
    first, second = store.listen("work"), store.listen("work")
    assert len(pipes(folder)) == 2
    assert {oct(path.stat().st_mode & 0o777) for path in pipes(folder)} == {"0o600"}
    assert oct((folder / "bells").stat().st_mode & 0o777) == "0o700"
    first.close()
    assert len(pipes(folder)) == 1
    second.close()
    assert list((folder / "bells").iterdir()) == []
    third = store.listen("work")
    store.close()
    assert list((folder / "bells").iterdir()) == []
    assert not third.wait(600)


def test_the_pipe_of_a_killed_process_is_removed_by_a_ring(store: Store, folder: Path) -> None:
    def listen() -> str:
        store.listen("work")
        return str(len(pipes(folder)))

    with fork_process(listen) as (process, text):
        assert text == "1"
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: _is_zombie(process))
        assert len(pipes(folder)) == 1
        store.ring("work")
        assert list((folder / "bells").iterdir()) == []


def _is_zombie(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@_LINUX
def test_no_handle_is_left(store: Store, folder: Path) -> None:
    bells = [store.listen(f"topic {i}") for i in range(5)]
    assert len(pipe_handles()) == 5
    for i in range(5):
        store.ring(f"topic {i}")
        store.put_notice("workers", str(i), b"1")
    assert len(pipe_handles()) == 5

    def count_handles() -> str:
        before = len(pipe_handles())
        bells[0].close()
        store.close()
        return f"{before} {len(pipe_handles())}"

    with fork_process(count_handles) as (_, text):
        assert text == "0 0"
    assert len(pipes(folder)) == 5, "a child removes nothing of its parent's"
    for bell in bells:
        bell.close()
    assert pipe_handles() == []


def test_a_pipe_that_is_full_rings_once(store: Store) -> None:
    bell = store.listen("work")
    for _ in range(70_000):  # more than a pipe holds
        store.ring("work")
    assert bell.wait(_PATIENCE_S)
    assert not bell.wait(0.05) or not bell.wait(0.05)


def test_hostile_files_beside_pipes_are_left_alone(store: Store, folder: Path) -> None:
    bell = store.listen("work")
    place = folder / "bells" / name_of("work")
    target = folder / "target"
    target.write_bytes(b"content")
    (place / "file").write_bytes(b"")
    (place / "link").symlink_to(target)
    (place / "folder").mkdir()
    os.mkfifo(place / ".1-1")  # in the making
    store.ring("work")
    assert bell.wait(_PATIENCE_S)
    assert target.read_bytes() == b"content" and (place / "file").read_bytes() == b""
    assert (place / ".1-1").exists()
    bell.close()


def test_where_no_pipe_can_be_made_a_bell_is_silent(store: Store, folder: Path) -> None:
    (folder / "bells").write_text("a file, where the folder should be")
    bell = store.listen("work")
    store.ring("work")
    assert not bell.wait(0.05)
    bell.close()
    (folder / "notices").write_text("a file, where the folder should be")
    with pytest.raises(StoreFailed):
        store.put_notice("workers", "a", b"1")


def test_files_that_are_no_whole_notices_are_passed_over(store: Store, folder: Path) -> None:
    for key in ("a", "b", "c", "d"):
        store.put_notice("workers", key, b"data of " + key.encode())
    board = folder / "notices" / name_of("workers")
    assert {oct(path.stat().st_mode & 0o777) for path in board.iterdir()} == {"0o600"}
    whole = (board / name_of("a")).read_bytes()
    (board / name_of("a")).write_bytes(whole[:-3])
    (board / name_of("b")).write_bytes(b"")
    (board / name_of("c")).unlink()
    (board / name_of("c")).symlink_to(board / name_of("d"))
    (board / name_of("x")).write_bytes(whole)  # under another name
    (board / name_of("y")).write_bytes(bytes(200_000))
    (board / "folder").mkdir()
    os.mkfifo(board / name_of("z"))  # to read it would block
    assert list(store.notices("workers")) == ["d"]
    store.put_notice("other", "a", b"1")
    (folder / "notices" / name_of("other") / name_of("a")).write_bytes(whole)  # of another board
    assert store.notices("other") == {}


def test_a_file_left_in_the_making_is_removed_later(store: Store, folder: Path) -> None:
    store.put_notice("workers", "a", b"1")
    board = folder / "notices" / name_of("workers")
    new, old = board / ".new-1", board / ".new-2"
    new.write_bytes(b"half")
    old.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert list(store.notices("workers")) == ["a"]
    assert new.exists() and not old.exists()


def test_bells_and_notices_disturb_nothing(store: Store, folder: Path) -> None:
    bell = store.listen("work")
    store.put_notice("workers", "a", b"1")
    assert verify(store) == []
    again = open_store(folder)
    assert again.id == store.id and list(again.notices("workers")) == ["a"]
    again.ring("work")
    assert bell.wait(_PATIENCE_S)
    bell.close()


def test_files_that_are_no_allowances_are_full_ones(store: Store, folder: Path) -> None:
    def draw(name: str) -> float:
        return store.draw(name, 4, per_s=1e-6, size=4).amount

    assert draw("a") == 4 and draw("a") == 0
    files = folder / "allowances"
    whole = (files / name_of("a")).read_bytes()
    for content in (b"", b"\xff\xfe", whole[:-3], whole * 9):
        (files / name_of("a")).write_bytes(content)
        assert draw("a") == 4 and draw("a") == 0, content
    (files / name_of("b")).write_bytes(whole)  # of another name
    (files / "unknown").write_bytes(b"1")
    assert list(store.allowances()) == ["a"]
    assert draw("b") == 4
    for each in files.iterdir():
        each.unlink()
    files.rmdir()
    assert draw("a") == 4
    (files / name_of("c")).symlink_to(folder / "elsewhere")
    with pytest.raises(StoreFailed):
        draw("c")
    assert not (folder / "elsewhere").exists()


def test_a_memory_store_keeps_its_notices_to_itself() -> None:
    store, other = MemoryStore(source=Seeded()), MemoryStore(source=Seeded())
    bell = other.listen("work")
    store.put_notice("workers", "a", b"1")
    store.ring("work")
    assert not bell.wait(0) and other.notices("workers") == {}


# ── servers ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def address(shared_postgres: PostgresServer) -> Iterator[str]:
    with pooled_store(shared_postgres) as address:
        yield address


@pytest.fixture
def served(address: str) -> Iterator[PostgresStore]:
    store = PostgresStore(address, source=Seeded())
    yield store
    store.close()


def channel_of(store: PostgresStore, topic: str) -> str:
    return store._bells._channel(topic)  # pyright: ignore[reportPrivateUsage]


def listeners(address: str, store: PostgresStore, topic: str) -> list[int]:
    with psycopg.connect(address.partition("?")[0], autocommit=True) as db:
        rows = db.execute(
            "SELECT pid FROM pg_stat_activity WHERE query = %s",
            [f"LISTEN {channel_of(store, topic)}"],
        ).fetchall()
    return [pid for (pid,) in rows]


def test_one_connection_listens_and_goes_with_the_last_bell(
    address: str, served: PostgresStore
) -> None:
    first, second = served.listen("work"), served.listen("work")
    assert len(listeners(address, served, "work")) == 1
    first.close()
    served.ring("work")
    assert second.wait(_PATIENCE_S)
    assert len(listeners(address, served, "work")) == 1
    second.close()
    wait_until(lambda: not listeners(address, served, "work"))
    third = served.listen("work")
    served.ring("work")
    assert third.wait(_PATIENCE_S)


def test_a_lost_connection_is_made_anew_and_counts_as_a_ring(
    address: str, served: PostgresStore, shared_postgres: PostgresServer
) -> None:
    bell = served.listen("work")
    (process,) = listeners(address, served, "work")
    shared_postgres.execute(f"SELECT pg_terminate_backend({process})")
    assert bell.wait(_PATIENCE_S)
    wait_until(lambda: listeners(address, served, "work") not in ([], [process]))
    while bell.wait(0.05):
        pass
    served.ring("work")
    assert bell.wait(_PATIENCE_S)


def test_many_rings_are_few_notifications(address: str, served: PostgresStore) -> None:
    with psycopg.connect(address.partition("?")[0], autocommit=True) as db:
        db.execute(f"LISTEN {channel_of(served, 'work')}".encode())
        begun = time.monotonic()
        for _ in range(2000):
            served.ring("work")
        took_s = time.monotonic() - begun
        served.ring("end")
        got = list(db.notifies(timeout=1))
    assert 1 <= len(got) <= took_s / RING_S + 2


def test_a_ring_reaches_the_server_before_the_store_is_closed(
    address: str, served: PostgresStore
) -> None:
    bell = served.listen("work")
    for _ in range(5):
        other = PostgresStore(address, source=Seeded())
        other.ring("work")
        other.close()
        assert bell.wait(_PATIENCE_S)


def test_a_store_of_the_first_version_is_migrated(
    address: str, shared_postgres: PostgresServer
) -> None:
    schema = address.rpartition("schema=")[2]
    shared_postgres.execute(f'DROP TABLE "{schema}".notice, "{schema}".allowance')
    shared_postgres.execute(f'UPDATE "{schema}".store SET migration = 1')
    with pytest.raises(NotMigrated):
        PostgresStore(address, source=Seeded())
    migrate_store(address)
    store = PostgresStore(address, source=Seeded())
    store.put_notice("workers", "a", b"1")
    assert store.draw("mails", 1, per_s=1.0, size=1.0).amount == 1
    assert verify(store) == []
    store.close()


def test_a_user_that_reads_puts_no_notice(address: str, shared_postgres: PostgresServer) -> None:
    guest = f"guest_{os.getpid()}"
    shared_postgres.execute(f"CREATE ROLE {guest} LOGIN")
    try:
        migrate_store(address, grant_read=[guest])
        store = PostgresStore(address.replace("postgres@", f"{guest}@"), source=Seeded())
        assert store.notices("workers") == {}
        with pytest.raises(StoreDenied):
            store.put_notice("workers", "a", b"1")
        with pytest.raises(StoreDenied):
            store.draw("mails", 1, per_s=1.0, size=1.0)
        bell = store.listen("work")  # any user of the database may
        store.ring("work")
        assert bell.wait(_PATIENCE_S)
        store.close()
    finally:
        shared_postgres.execute(f"DROP OWNED BY {guest} CASCADE")
        shared_postgres.execute(f"DROP ROLE {guest}")
