"""Large blobs of a PostgreSQL store, in a bucket."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from plait.errors import (
    DiskFull,
    MissingExtra,
    PlaitError,
    StoreCorrupt,
    StoreDenied,
    StoreFailed,
    StoreUnreachable,
    UnknownBlob,
)
from plait.event.kinds import File, MessageSaid
from plait.ids import Digest
from plait.store import Store, verify_store
from plait.store.blobs import digest_of
from plait.store.postgres.address import PostgresAddress, parse_address
from plait.store.postgres.blobs import PostgresBlobs
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.migrate import migrate
from plait.store.postgres.objects import Bucket
from plait.store.postgres.store import PostgresStore
from plait.testing import Seeded
from plait.testing.store.blobs import BlobContract
from plait.testing.writing import Opened, begin, extend, message, seal_events, wait_until_settled
from tests.support import broken_bucket, postgres_server, python

LARGE = os.urandom(1_200_000) + bytes(400_000)  # it packs to less than it is, and is large still
NOISE = os.urandom(1_200_000)


def made(address: str) -> PostgresStore:
    """Make the store, and open it."""
    migrate(parse_address(address), source=Seeded())
    return PostgresStore(address, source=Seeded())


@pytest.fixture
def store(bucket_address: str) -> Iterator[PostgresStore]:
    opened = made(bucket_address)
    yield opened
    opened.close()


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.store.postgres.blobs.GRACE_S", 0.0)


def parts_of(store: PostgresStore) -> PostgresAddress:
    return parse_address(store.address)


def bucket_of(store: PostgresStore) -> Bucket:
    return Bucket(parts_of(store).blobs, store.id, 5.0)


def names(store: PostgresStore) -> list[str]:
    """The names of the objects of a store."""
    return sorted(name for page in bucket_of(store).names() for name in page)


def sql(store: PostgresStore, text: str) -> list[tuple[object, ...]]:
    return postgres_server().execute(text.replace("{s}", f'"{parts_of(store).schema}"'))


def attach(store: Store, digest: Digest) -> None:
    begin(store, MessageSaid("user", (File("a", "text/plain", digest),)))


class TestBucket(BlobContract):
    """All blobs in a bucket, also empty ones."""

    @pytest.fixture
    def opened(self, bucket_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
        monkeypatch.setattr("plait.store.postgres.large.OBJECT_MIN", 0)
        opened = made(bucket_address)
        yield lambda *projections: opened
        opened.close()


def test_large_blobs_are_in_the_bucket_and_small_ones_in_rows(store: PostgresStore) -> None:
    contents = {digest_of(each): each for each in (b"small", LARGE, NOISE)}
    store.put_blobs(contents)
    assert {digest: store.get_blob(digest) for digest in contents} == contents
    found = sql(store, "SELECT encode(digest, 'hex'), data IS NULL, era FROM {s}.blob ORDER BY 1")
    assert found == [
        (digest, content != b"small", None if content == b"small" else 0)
        for digest, content in sorted(contents.items())
    ]
    assert names(store) == sorted([f"{digest_of(LARGE)}.0.zst", f"{digest_of(NOISE)}.0"])
    assert store.missing_blobs(contents) == set()
    store.put_blob(NOISE)
    attach(store, digest_of(NOISE))
    assert list(verify_store(store)) == []
    assert store.describe()["bucket"] == parts_of(store).blobs


def test_a_large_blob_travels_with_its_event(store: PostgresStore) -> None:
    log = begin(store, message("x" * 5000 + NOISE.hex()))  # its body is a large blob, too
    head, digest = store.log(log).head, digest_of(NOISE)
    said = MessageSaid("user", (File("a", "text/plain", digest),))
    events = seal_events([said], log, store.log(log).tip + 1, (head,))
    for _ in range(2):  # also if its acknowledgement was lost
        store.append(log, events, after=head, blobs={digest: NOISE})
    assert store.get_blob(digest) == NOISE and store.blob_info(digest).refs == 1
    assert len(names(store)) == 2
    assert list(verify_store(store)) == []


def test_objects_of_two_stores_are_apart(store: PostgresStore) -> None:
    other = store.address.replace("schema=", "schema=other_")
    try:
        second = PostgresStore(_migrated(other), source=Seeded(seed=7))
        assert second.id != store.id
        store.put_blob(NOISE)
        second.put_blob(NOISE)
        assert names(store) == names(second) == [f"{digest_of(NOISE)}.0"]
        second.close()
    finally:
        schema = parse_address(other).schema
        postgres_server().execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def _migrated(address: str) -> str:
    migrate(parse_address(address), source=Seeded(seed=7))
    return address


# ── sweeps ───────────────────────────────────────────────────────────────────────────────────


def test_a_sweep_removes_rows_first_and_objects_later(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, unused = store.put_blob(LARGE), store.put_blob(NOISE)
    attach(store, used)
    assert store.sweep_blobs(before=wait_until_settled(store)) == 1
    with pytest.raises(UnknownBlob):
        store.get_blob(unused)
    for _ in range(3):
        store.sweep_blobs(before=0)
    assert len(names(store)) == 2, "the grace time is not over"
    bucket_of(store).replace("notes.txt", b"of somebody else")
    monkeypatch.setattr("plait.store.postgres.blobs.GRACE_S", 0.0)
    for _ in range(2):
        store.sweep_blobs(before=0)
    assert names(store) == [f"{used}.0.zst", "notes.txt"]
    assert store.get_blob(used) == LARGE
    assert list(verify_store(store)) == []


def test_a_put_that_sweeps_overtake_begins_anew(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, no_grace: None
) -> None:
    """The upload is swept between upload and commit, by a sweep that came two eras later."""
    upload, moments = PostgresBlobs._upload_one, [2, 3]  # pyright: ignore[reportPrivateUsage]

    def upload_and_wait(self: PostgresBlobs, *given: object) -> None:
        upload(self, *given)  # type: ignore[arg-type]
        for _ in range(moments.pop() if moments else 0):
            store.sweep_blobs(before=0)

    monkeypatch.setattr(PostgresBlobs, "_upload_one", upload_and_wait)
    digest = store.put_blob(NOISE)
    assert names(store) == [f"{digest}.5"] and not moments
    assert store.get_blob(digest) == NOISE
    moments += [2]
    head = store.log(log := begin(store)).head
    content = NOISE + b"more"
    event = MessageSaid("user", (File("a", "text/plain", digest_of(content)),))
    store.append(
        log,
        seal_events([event], log, 2, (head,)),
        after=head,
        blobs={digest_of(content): content},
    )
    assert names(store) == sorted([f"{digest}.5", f"{digest_of(content)}.7"])
    assert list(verify_store(store)) == []


def test_a_removal_that_arrives_late_removes_nothing_that_is_named(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, no_grace: None
) -> None:
    """A sweep has decided to remove an object; the same blob is put before it does."""
    digest = store.put_blob(NOISE)
    begin(store)
    assert store.sweep_blobs(before=wait_until_settled(store)) == 1
    remove = Bucket.remove

    def put_and_remove(self: Bucket, doomed: list[str]) -> None:
        if doomed:
            assert store.put_blob(NOISE) == digest
        remove(self, doomed)

    monkeypatch.setattr(Bucket, "remove", put_and_remove)
    for _ in range(4):
        store.sweep_blobs(before=0)
    assert store.get_blob(digest) == NOISE and len(names(store)) == 1
    assert list(verify_store(store)) == []


def test_an_era_is_not_raised_while_a_put_relies_on_it(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row's transaction holds the era: a raise waits for it."""
    run_prepared, raised = ServerConnection.run_prepared, list[bool]()

    def run_and_raise_era(db: ServerConnection, name: bytes, *given: Any) -> Any:
        result = run_prepared(db, name, *given)
        if name == b"put":
            raised.append(_raise_era(store))
        return result

    monkeypatch.setattr(ServerConnection, "run_prepared", run_and_raise_era)
    store.put_blob(NOISE)
    assert raised == [False] and _raise_era(store)


def _raise_era(store: PostgresStore) -> bool:
    """Raise the era, and return True, unless a transaction holds it."""
    schema = parts_of(store).schema
    with postgres_server().connect() as other:
        other.execute("SET lock_timeout = '50ms'")
        with suppress(psycopg.errors.LockNotAvailable):
            other.execute(f'UPDATE "{schema}".store SET era = era + 1'.encode())
            return True
    return False


_KILLED = """
import os, signal, sys
from plait.store.postgres.store import PostgresStore
from plait.testing import Seeded
from plait.testing.writing import begin, message
content = os.urandom(1_200_000)
upload = PostgresStore._upload_one
def upload_and_die(self, *given):
    upload(self, *given)
    os.kill(os.getpid(), signal.SIGKILL)
PostgresStore._upload_one = upload_and_die
store = PostgresStore(sys.argv[1], source=Seeded(seed=3))
if sys.argv[2] == "put":
    store.put_blob(content)
begin(store, message(content.hex()))
"""


@pytest.mark.parametrize("how", ["put", "append"])
def test_a_kill_between_upload_and_commit_leaves_an_object_that_is_swept(
    store: PostgresStore, no_grace: None, how: str
) -> None:
    done = python(_KILLED, store.address, how, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(names(store)) == 1
    assert list(store.blobs()) == [] and store.logs() == []
    assert list(verify_store(store)) == []
    for _ in range(2):
        store.sweep_blobs(before=0)
    assert names(store) == []


# ── a bucket that is not as it should be ─────────────────────────────────────────────────────


def test_verify_names_objects_that_are_missing_or_damaged(store: PostgresStore) -> None:
    gone, lies = store.put_blob(LARGE), store.put_blob(NOISE)
    attach(store, gone)
    attach(store, lies)
    bucket_of(store).remove([f"{gone}.0.zst"])
    bucket_of(store).replace(f"{lies}.0", NOISE[:-1] + b"!")
    with pytest.raises(StoreCorrupt, match="not in the bucket s3://"):
        store.get_blob(gone)
    with pytest.raises(StoreCorrupt, match="not what its digest says"):
        store.get_blob(lies)
    faults = [str(fault) for fault in verify_store(store)]
    assert any(gone in each and f"{gone}.0.zst" in each for each in faults), faults
    assert any(lies in each for each in faults), faults


def test_an_object_that_is_damaged_before_its_row_is_there_is_replaced(
    store: PostgresStore,
) -> None:
    digest = digest_of(NOISE)
    for content in (NOISE[:-1] + b"!", NOISE):
        bucket_of(store).replace(f"{digest}.0", content)
        store.put_blob(NOISE)
        assert store.get_blob(digest) == NOISE
        sql(store, "DELETE FROM {s}.blob")


@pytest.mark.parametrize(
    ("status", "code", "error", "text"),
    [
        (403, "AccessDenied", StoreDenied, "may not do it"),
        (403, "InvalidAccessKeyId", StoreDenied, "AWS_ACCESS_KEY_ID"),
        (404, "NoSuchBucket", StoreDenied, "no such bucket"),
        (507, "XMinioStorageFull", DiskFull, "no space left for s3://"),
        (503, "SlowDown", StoreUnreachable, "s3://"),
        (400, "SomethingElse", StoreFailed, "SomethingElse"),
        (0, "", StoreUnreachable, "s3://"),
    ],
)
def test_a_bucket_that_refuses_is_a_typed_error(
    store: PostgresStore,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: str,
    error: type[PlaitError],
    text: str,
) -> None:
    digest = store.put_blob(LARGE)
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "0.5")
    with broken_bucket(status, code) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        again = PostgresStore(store.address, source=Seeded())
        log = begin(again)
        with pytest.raises(error, match=text):
            again.put_blob(NOISE)
        with pytest.raises(error, match=text):
            again.get_blob(digest)
        with pytest.raises(error, match=text):
            extend(again, log, message(NOISE.hex()))
        with pytest.raises(error, match=text):
            again.sweep_blobs(before=0)
        small = again.put_blob(b"small")
        assert again.get_blob(small) == b"small"
        assert len(list(again.read(log))) == 1
        again.close()
    assert store.missing_blobs([digest_of(NOISE)]) == {digest_of(NOISE)}


def test_a_bucket_that_is_away_is_waited_for(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "0.3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    again = PostgresStore(store.address, source=Seeded())
    with pytest.raises(StoreUnreachable, match=r"s3://.* could not be reached for 0.3 s"):
        again.put_blob(NOISE)
    again.close()


def test_an_endpoint_without_tls_is_refused_over_a_network(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "0.3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://192.0.2.1")
    again = PostgresStore(store.address, source=Seeded())
    with pytest.raises(StoreDenied, match="AWS_ALLOW_HTTP"):
        again.put_blob(NOISE)
    again.close()


def test_a_forked_child_is_told_that_it_cannot_use_the_bucket(store: PostgresStore) -> None:
    digest = store.put_blob(NOISE)
    if (child := os.fork()) == 0:
        code = 1
        with suppress(BaseException):
            try:
                store.get_blob(digest)
            except StoreDenied as error:
                code = 0 if "fork" in str(error) else 2
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


# ── addresses and migrations ─────────────────────────────────────────────────────────────────


def test_an_address_without_the_bucket_reads_and_writes_rows_alone(store: PostgresStore) -> None:
    digest = store.put_blob(NOISE)
    plain = PostgresStore(store.address.partition("&blobs")[0], source=Seeded())
    with pytest.raises(StoreDenied, match=f"blobs={parts_of(store).blobs}"):
        plain.get_blob(digest)
    other = plain.put_blob(LARGE)
    assert plain.get_blob(other) == store.get_blob(other) == LARGE
    assert plain.missing_blobs([digest, other]) == set()
    plain.put_blob(NOISE)  # it has the content, and the row takes it
    assert plain.get_blob(digest) == store.get_blob(digest) == NOISE
    plain.close()


def test_all_addresses_of_a_store_agree_on_its_bucket(store: PostgresStore) -> None:
    bucket = parts_of(store).blobs
    with pytest.raises(StoreDenied, match=f"say blobs={bucket}"):
        PostgresStore(f"{store.address}/b", source=Seeded())
    digest = store.put_blob(NOISE)
    moved = parse_address(f"{store.address}/b")
    with pytest.raises(StoreDenied, match="1 of 1 large blobs are not in"):
        migrate(moved, source=Seeded())
    Bucket(moved.blobs, store.id, 5.0).replace(f"{digest}.0", NOISE)
    migrate(moved, source=Seeded())
    again = PostgresStore(moved.text, source=Seeded())
    assert again.get_blob(digest) == NOISE
    again.close()


def test_a_store_gets_its_bucket_by_a_migration(bucket_address: str) -> None:
    plain = bucket_address.partition("&blobs")[0]
    store = made(plain)
    large = store.put_blob(NOISE)
    with pytest.raises(StoreDenied, match="plait migrate"):
        PostgresStore(bucket_address, source=Seeded())
    migrate(parse_address(bucket_address), source=Seeded())
    migrate(parse_address(plain), source=Seeded())  # an upgrade leaves it as it is
    again = PostgresStore(bucket_address, source=Seeded())
    assert again.get_blob(large) == NOISE
    again.close()
    store.close()


def test_the_client_for_buckets_is_an_extra(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(name: str) -> None:
        """Find no package, whatever its name."""

    monkeypatch.setattr("plait.store.postgres.address.find_spec", find_nothing)
    with pytest.raises(MissingExtra, match=r"plait\[s3\]"):
        PostgresStore(store.address, source=Seeded())


def test_a_migration_refuses_a_bucket_that_is_not_there(bucket_address: str) -> None:
    address = parse_address(bucket_address.replace("s3://", "s3://no-"))
    with pytest.raises(StoreDenied, match="no such bucket"):
        migrate(address, source=Seeded())
    assert not postgres_server().execute(
        "SELECT 1 FROM pg_namespace WHERE nspname = %s", address.schema
    )


def test_an_object_is_never_overwritten_by_a_second_put(store: PostgresStore) -> None:
    bucket = bucket_of(store)
    assert bucket.put("a", b"one") and not bucket.put("a", b"two")
    assert bucket.get("a", 3) == b"one" and bucket.get("b", 3) is None
