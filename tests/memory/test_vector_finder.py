"""Memories by words and by meaning: the contract of recalls, and vectors beside the store."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from plait import Memory, Session, migrate_store
from plait.errors import InvalidValue
from plait.memory.index import Index
from plait.memory.plain_index import PlainIndex
from plait.memory.vectors import FOLDER, StaticEmbedder
from plait.store.postgres.address import parse_address
from plait.testing.memory import RecallContract
from plait.testing.memory.case import hits_of, recall, remember
from tests.support import PostgresServer, wait_until

PUPPY = "Ann has adopted a puppy."
BILL = "The invoice was paid on Monday."
EMBEDDER = StaticEmbedder()


class TestVectors(RecallContract):
    @pytest.fixture
    def index(self) -> None:
        return None

    def new_memory(self, index: Index | None, **options: Any) -> Memory:
        return Memory(embedder=EMBEDDER, **options)


def session_at(folder: Path, user: str = "ann") -> Session:
    return Session("Begin.", user=user, store=folder / "store")


def test_a_memory_is_found_without_a_common_word(tmp_path: Path) -> None:
    memory = Memory(embedder=EMBEDDER)
    session = remember(memory, session_at(tmp_path), PUPPY, BILL, "It rained all day.")
    (hit, *_) = hits_of(memory, session, "dogs?")
    assert hit.text == PUPPY and hit.parts["vector"] > 0
    assert recall(Memory(), session, "dogs?") == []
    assert recall(memory, session_at(tmp_path, "bob"), "dogs?") == []


def test_vectors_are_a_cache_beside_the_store(tmp_path: Path) -> None:
    memory = Memory(embedder=EMBEDDER, store=tmp_path / "store")
    session = remember(memory, session_at(tmp_path), PUPPY, BILL)
    before = hits_of(memory, session, "dogs?")
    (file,) = (tmp_path / "store" / FOLDER).glob("*.vectors")
    kept = file.read_bytes()
    assert hits_of(Memory(embedder=EMBEDDER), session, "dogs?") == before
    assert file.read_bytes() == kept, "they are read, and not made again"
    memory.rebuild()
    assert not file.exists()
    assert hits_of(memory, session, "dogs?") == before
    assert recall(Memory(), session, "puppy")[0] == PUPPY, "without vectors nothing is lost"


LATE = """
CREATE FUNCTION "{schema}".wait() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock({lock}); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON "{schema}".event DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.log = {log}) EXECUTE FUNCTION "{schema}".wait()"""
"""Lets the transactions of one log commit only while nobody has a lock."""
WAITING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"


def test_a_memory_that_is_committed_late_is_found(
    postgres_address: str, shared_postgres: PostgresServer
) -> None:
    migrate_store(postgres_address)
    schema, lock = parse_address(postgres_address).schema, os.getpid()
    late, early = (Session("Begin.", user="ann", store=postgres_address) for _ in range(2))
    key = f'SELECT key FROM "{schema}".log WHERE id = %s'
    ((log,),) = shared_postgres.execute(key, UUID(late.id).bytes)
    shared_postgres.execute(LATE.format(schema=schema, lock=lock, log=log))
    memory = Memory(embedder=EMBEDDER)
    with ThreadPoolExecutor() as pool, shared_postgres.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [lock])
        written = pool.submit(remember, Memory(), late, PUPPY)
        wait_until(lambda: shared_postgres.execute(WAITING, lock))
        early = remember(memory, early, BILL, "It rained all day.")  # with larger numbers
        assert PUPPY not in recall(memory, early, "dogs?")
        holder.execute("SELECT pg_advisory_unlock(%s)", [lock])
        written.result()
    assert recall(memory, early, "dogs?")[0] == PUPPY


def test_a_memory_that_was_rolled_back_is_not_found_by_meaning(tmp_path: Path) -> None:
    memory = Memory(embedder=EMBEDDER)
    session = remember(memory, session_at(tmp_path), PUPPY, BILL)
    (hit, *_) = hits_of(memory, session, "dogs?")
    memory.rollback(hit).apply(reason="a cat")
    assert PUPPY not in recall(memory, session, "dogs?")


def test_an_index_has_a_ranking_of_its_own() -> None:
    with pytest.raises(InvalidValue, match="pass one of them"):
        Memory(index=PlainIndex(), embedder=EMBEDDER)
