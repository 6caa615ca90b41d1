"""Tamper, in a database: whatever is changed by raw SQL, `verify` finds it and says where.

The edits are those of SQLite's file. Two are not possible here: the tables take no event a second
time, and do not count the references to a blob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.event import Event
from plait.event.kinds import File, MessageSaid
from plait.runtime.live import Live
from plait.session import SessionRows, verify
from plait.session.graph_rows import GraphRows
from plait.store import Projection
from plait.store.postgres.fold_tables import table_name
from plait.store.postgres.store import PostgresStore
from plait.testing.projections import Tally
from plait.testing.writing import begin, extend, fork, message, wait_until_settled
from tests.laws.test_session_tamper import COLUMNS, history
from tests.laws.test_store_laws import EDITS as FILE_EDITS
from tests.laws.test_store_laws import check_found
from tests.raw import plain_header
from tests.support import count, dose, pooled_store, postgres_server

_FIRST_BLOB = "(SELECT blob FROM attachment ORDER BY event LIMIT 1)"
# %(n)s is the victim's commit number, %(m)s another one's, %(k)s and %(j)s the keys of their logs.
EDITS: dict[str, str] = {
    "header actor": "UPDATE event SET codec = codec & 7, header = %(actor)s WHERE number = %(n)s",
    "header time": "UPDATE event SET codec = codec & 7, header = %(time)s WHERE number = %(n)s",
    "header cut": "UPDATE event SET header = substr(header, 1, 40) WHERE number = %(n)s",
    "header empty": "UPDATE event SET header = '' WHERE number = %(n)s",
    "body": r"UPDATE event SET body = '\x7b7d', codec = 0 WHERE number = %(n)s",
    "body of another": (
        "UPDATE event SET (codec, body) = (SELECT codec, body FROM event WHERE number = %(m)s)"
        " WHERE number = %(n)s"
    ),
    "body gone": "UPDATE event SET body = NULL WHERE number = %(n)s",
    "salt": r"UPDATE event SET salt = decode(repeat('00', 16), 'hex') WHERE number = %(n)s",
    "salt cut": "UPDATE event SET salt = '' WHERE number = %(n)s",
    "codec": "UPDATE event SET codec = 7 WHERE number = %(n)s",
    "kind": "UPDATE event SET kind = kind + 1 WHERE number = %(n)s",
    "kind unknown": "UPDATE event SET kind = 9999 WHERE number = %(n)s",
    "index of ids": "UPDATE event SET short = short + 1 WHERE number = %(n)s",
    "filed elsewhere": "UPDATE event SET seq = seq + 1000 WHERE number = %(n)s",
    "deleted": "DELETE FROM event WHERE number = %(n)s",
    "moved": "UPDATE event SET log = %(j)s WHERE number = %(n)s AND %(j)s <> %(k)s",
    "orphaned": "UPDATE event SET log = 999999 WHERE number = %(n)s",
    "overwritten": (
        "UPDATE event SET (salt, header, body, codec) = (SELECT salt, header, body, codec FROM"
        " event WHERE number = %(m)s) WHERE number = %(n)s AND %(n)s <> %(m)s"
    ),
    "committed at another time": (
        "UPDATE event SET number = (SELECT max(number) + 1 FROM event) WHERE number = %(n)s AND"
        " number < (SELECT max(number) FROM event WHERE log = %(k)s)"
    ),
    "head": "UPDATE log SET head = decode(repeat('00', 32), 'hex') WHERE key = %(k)s",
    "tip up": "UPDATE log SET tip = tip + 1 WHERE key = %(k)s",
    "tip down": "UPDATE log SET tip = tip - 1 WHERE key = %(k)s",
    "place": "UPDATE log SET place = place + 1 WHERE key = %(k)s",
    "parent": "UPDATE log SET parent = %(j)s WHERE key = %(k)s AND parent IS DISTINCT FROM %(j)s",
    "log id": r"UPDATE log SET id = '\x01a1e10af04b7043a8b2178691f8ad09' WHERE key = %(k)s",
    "log row gone": "DELETE FROM log WHERE key = %(k)s",
    "blob": rf"UPDATE blob SET data = '\x00', codec = 0 WHERE digest = {_FIRST_BLOB}",
    "blob gone": f"DELETE FROM blob WHERE digest = {_FIRST_BLOB}",
    "attachment gone": "DELETE FROM attachment WHERE event = (SELECT min(event) FROM attachment)",
}


class Edited:
    """A store whose tables are edited, looked at, and put back."""

    def __init__(self, address: str, *projections: Projection) -> None:
        self.address, self.projections = address, projections
        self.sql = psycopg.connect(address.partition("?")[0], autocommit=True)
        schema = address.rpartition("?schema=")[2]
        # what whoever owns the database can do, too: no foreign key is in the way
        self.sql.execute(
            b"SELECT set_config('session_replication_role', 'replica', false),"
            b" set_config('search_path', %s, false)",
            [schema],
        )
        found = self.sql.execute(
            "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace ="
            " to_regnamespace(%s)",
            [schema],
        )
        for (table,) in found.fetchall():
            self.run(f'CREATE TEMP TABLE "kept_{table}" AS TABLE "{table}"')

    def open(self) -> PostgresStore:
        return PostgresStore(self.address, source=Live(), projections=self.projections)

    def run(self, sql: str, values: Sequence[Any] | Mapping[str, Any] | None = None) -> int:
        return self.sql.execute(sql.encode(), values).rowcount

    def look(self, sql: str, values: Any, see: Callable[[PostgresStore], None]) -> bool:
        """Make an edit, have somebody see the store, and put it back. False: nothing changed."""
        try:
            if not self.run(sql, values):
                return False
        except psycopg.IntegrityError:
            return False
        store = self.open()
        try:
            see(store)
        finally:
            store.close()
            table = sql.removeprefix("DELETE FROM").removeprefix("UPDATE").split()[0]
            self.run(f"DELETE FROM {table}; INSERT INTO {table} TABLE kept_{table}")
        return True

    def close(self) -> None:
        self.sql.close()


def forged_headers(edited: Edited, number: int) -> dict[str, bytes]:
    """The victim's header with another actor, and with another time."""
    found = edited.sql.execute(
        "SELECT codec, header FROM event WHERE number = %s", [number]
    ).fetchall()
    ((codec, header),) = found
    plain = plain_header(codec, bytes(header))
    return {
        "actor": plain.replace(b"human:", b"robot:"),
        "time": plain.replace(b'"time":1', b'"time":2'),
    }


@pytest.fixture(scope="module")
def chain() -> Iterator[tuple[Edited, list[tuple[int, Event]]]]:
    """A history with forks, blobs and a long body, and its events by number."""
    with pooled_store(postgres_server()) as address:
        store = PostgresStore(address, source=Live(), projections=(Tally(),))
        log = begin(store, message("one"), message("two"))
        other = begin(store, message("long " * 2000))
        child = fork(store, log, 2)
        blob = store.put_blob(b"evidence")
        for each in (log, other, child):
            extend(store, each, MessageSaid("user", (File("f", "x/y", blob),)), message("more"))
        wait_until_settled(store)
        feed = list(store.feed())
        store.close()
        edited = Edited(address, Tally())
        yield edited, feed
        edited.close()


def test_the_edits_are_those_of_the_file() -> None:
    assert set(FILE_EDITS) - set(EDITS) == {"repeated", "blob count"}


@pytest.mark.parametrize("edit", sorted(EDITS))
def test_every_edit_is_found_wherever_it_is_made(
    edit: str, chain: tuple[Edited, list[tuple[int, Event]]]
) -> None:
    edited, feed = chain
    keys = dict(edited.sql.execute("SELECT number, log FROM event").fetchall())
    found = 0
    # nearly all of the time is spent on opening the store: a few victims, or all of them. An event
    # is moved to the log of the next one, which is seldom another.
    step = 1 if edit == "moved" else dose("TAMPERED", 5, 1, ci=2)
    for place, (number, event) in list(enumerate(feed))[::step]:
        other = feed[(place + 1) % len(feed)][0]
        values = {"n": number, "m": other, "k": keys[number], "j": keys[other]}
        values |= forged_headers(edited, number)

        def see(store: PostgresStore, event: Event = event) -> None:
            check_found(store, edit, event)
            count("tamper, edits found", store)

        found += edited.look(EDITS[edit], values, see)
    assert found


SESSION, TAG = (table_name(SessionRows(), name) for name in ("session", "tag"))
CAUSE, MERGE = (table_name(GraphRows(), name) for name in ("cause", "merge"))


@pytest.fixture(scope="module")
def family() -> Iterator[Edited]:
    """A family of sessions with everything in it, and its rows."""
    with pooled_store(postgres_server()) as address:
        from plait import open_store

        store = open_store(address)
        history(store)
        assert list(verify(store, state=True)) == []
        store.close()
        edited = Edited(address, SessionRows(), GraphRows())
        yield edited
        edited.close()


def faults_after(edited: Edited, edit: str, *values: Any, state: bool = False) -> list[str]:
    """Return the faults that verify finds after an edit."""
    found: list[str] = []

    def see(store: PostgresStore) -> None:
        count("tamper, session edits", store)
        found.extend(str(fault) for fault in verify(store, state=state))

    assert edited.look(edit, values, see)
    return found


@settings(max_examples=dose("TAMPERED_ROWS", 12, 300, ci=50))
@given(row=st.integers(0, 3), column=st.sampled_from(COLUMNS), junk=st.integers(1000, 9999))
def test_an_edited_session_row_is_named(family: Edited, row: int, column: str, junk: int) -> None:
    value: Any = junk if column in ("number", "place", "opened") else f"x{junk}".encode()
    edit = (
        f'UPDATE {SESSION} SET "{column}" = %s WHERE number = (SELECT number FROM {SESSION}'
        " ORDER BY number LIMIT 1 OFFSET %s)"
    )
    found = faults_after(family, edit, value, row)
    assert found and (column in found[0] or column == "log"), found


@pytest.mark.parametrize(
    ("edit", "state", "says"),
    [
        (f"DELETE FROM {SESSION} WHERE label = 'strict'", False, "session row is missing"),
        (f"DELETE FROM {TAG}", False, "tag row is missing"),
        (
            f"UPDATE {TAG} SET value = 'mobile'",
            False,
            "tag row says value is 'mobile', its events say 'web'",
        ),
        (
            f"UPDATE {SESSION} SET status = 'open' WHERE status = 'closed'",
            False,
            "says status is 'open', its events say 'closed'",
        ),
        (f"DELETE FROM {CAUSE}", True, "cause row is missing"),
        (f"UPDATE {MERGE} SET place = place + 1", True, "merge row says place"),
        (r"UPDATE snapshot SET data = '\x0102'", False, "cannot be read"),
        ("UPDATE snapshot SET seq = seq - 1", True, "the snapshot kept there"),
    ],
)
def test_an_edit_is_found_and_named(family: Edited, edit: str, state: bool, says: str) -> None:
    found = faults_after(family, edit, state=state)
    assert found and says in "\n".join(found), found
