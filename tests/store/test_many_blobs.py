"""Many blobs at once in a PostgreSQL store: few statements, and no second copy in memory."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from plait.errors import StoreFailed
from plait.event.kinds import File, MessageSaid
from plait.ids import Digest
from plait.store import verify_store
from plait.store.blobs import digest_of
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from plait.store.postgres.store import PostgresStore
from plait.testing import Seeded
from plait.testing.writing import begin, wait_until_settled
from tests.support import WireCounts, counted, postgres_server


@pytest.fixture
def counts(postgres_address: str) -> Iterator[WireCounts]:
    migrate(parse_address(postgres_address), source=Seeded())
    with counted(postgres_address) as found:
        yield found


@pytest.fixture
def store(counts: WireCounts) -> Iterator[PostgresStore]:
    opened = PostgresStore(counts.address, source=Seeded())
    yield opened
    opened.close()


def files(count: int, size: int = 300) -> dict[Digest, bytes]:
    contents = [b"%d " % number * (size // 10) + os.urandom(size) for number in range(count)]
    return {digest_of(content): content for content in contents}


def sql(store: PostgresStore, text: str) -> list[tuple[Any, ...]]:
    schema = parse_address(store.address).schema
    return postgres_server().execute(text.replace("{s}", f'"{schema}"'))


def test_many_blobs_take_few_statements(store: PostgresStore, counts: WireCounts) -> None:
    many = files(20_000)
    counts.reset()
    store.put_blobs(many)
    # the question for those that are missing; BEGIN, the number, COPY, COMMIT
    assert counts.statements <= 5 and counts.round_trips <= 7
    counts.reset()
    assert store.missing_blobs([*many, digest_of(b"no")]) == {digest_of(b"no")}
    assert counts.statements == 1
    for digest in list(many)[::997]:
        assert store.get_blob(digest) == many[digest]
    assert list(verify_store(store)) == []


def test_asking_rewrites_no_row_that_need_not_be_renewed(store: PostgresStore) -> None:
    many = files(300)

    def places() -> dict[Digest, object]:
        found = dict(sql(store, "SELECT encode(digest, 'hex'), ctid::text FROM {s}.blob"))
        return {digest: found[digest] for digest in many}

    store.put_blobs(many)
    before = places()
    store.put_blobs(many)
    assert store.missing_blobs(many) == set()
    assert places() == before, "no event came after they were put"
    used = sorted(many)[:100]
    begin(store, MessageSaid("user", tuple(File("a", "text/plain", each) for each in used)))
    assert store.missing_blobs(many) == set()
    after = places()
    kept = sorted(digest for digest in many if after[digest] == before[digest])
    assert kept == used, "an event leads to them"
    assert store.sweep_blobs(before=wait_until_settled(store)) == 0
    store.missing_blobs(many)
    assert places() == after


def test_blobs_that_are_there_in_part_or_damaged_are_put_all_the_same(
    store: PostgresStore,
) -> None:
    many = files(300)
    some = dict(list(many.items())[:7])
    store.put_blobs(some)
    sql(store, "UPDATE {s}.blob SET size = 1")
    store.put_blobs(many)  # COPY would find them there
    assert {digest: store.get_blob(digest) for digest in many} == many


def test_many_blobs_are_put_all_or_none(store: PostgresStore) -> None:
    many = files(300)
    last = max(many)
    sql(store, f"ALTER TABLE {{s}}.blob ADD CHECK (digest <> decode('{last}', 'hex'))")
    with pytest.raises(StoreFailed):
        store.put_blobs(many)
    assert store.missing_blobs(many) == set(many)
    assert store.get_blob(store.put_blob(b"goes on")) == b"goes on"


def test_many_blobs_go_through_a_pooler(pgbouncer_address: str) -> None:
    migrate(parse_address(pgbouncer_address), source=Seeded())
    store, many = PostgresStore(pgbouncer_address, source=Seeded()), files(300)
    for _ in range(2):
        store.put_blobs(many)
        assert store.missing_blobs(many) == set()
    some = list(many)[:9]
    assert [store.get_blob(digest) for digest in some] == [many[digest] for digest in some]
    store.close()


def test_contents_are_not_copied_as_a_whole(store: PostgresStore) -> None:
    many = files(400, size=100_000)
    size = sum(map(len, many.values()))
    tracemalloc.start()
    try:
        store.put_blobs(many)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 2, f"{peak:,} bytes for {size:,}"
