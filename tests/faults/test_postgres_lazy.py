"""Async sessions on a PostgreSQL server that crashes: what it takes back, nobody rests on.

The last lazy commits are lost with the server, and the ids of their transactions are given away
again. So a log is on disk before others see it (processes keep its key), and a feed gives what is
on disk (a follower goes on from its number). A value of a session that was lost is told so.
`PG_CRASHES` says how often the server crashes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plait import Session, Store, Workflow, open_store, tool
from plait.errors import EventsLost
from plait.runs.replay import replay
from plait.runs.resume import resume
from plait.runtime.live import Live
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from plait.store.postgres.store import PostgresStore
from plait.testing.projections import Tally
from plait.testing.writing import begin, extend, message, texts
from tests.faults.postgres_aftermath import Follower, Told, judge
from tests.support import PostgresServer, dose, private_postgres, report, wait_until

STORE = {"schema": "plait"}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that brings lazy commits to its disk as late as it can."""
    with private_postgres(wal_writer_delay="10s", wal_writer_flush_after="1GB") as server:
        migrate(parse_address(server.address_for(**STORE)), source=Live())
        yield server


def _crash(server: PostgresServer) -> None:
    server.kill()
    server.start()


def _opened(server: PostgresServer) -> Store:
    return open_store(server.address_for(**STORE), projections=[Tally()], durability="async")


def _other(server: PostgresServer, user: str = "postgres") -> Store:
    """Another store of this process: with connections and a memory of its own."""
    return PostgresStore(server.address_for(user, **STORE), source=Live(), durability="async")


def _crashes() -> int:
    return dose("PG_CRASHES", short=1, ci=3, long=20)


def test_a_log_that_others_may_know_is_not_taken_back(server: PostgresServer) -> None:
    """Its key would be given to another log, and who has it in memory would read that one."""
    store, other = _opened(server), _other(server)
    for number in range(_crashes()):
        mine = begin(store)
        assert texts(other, mine) == []  # it knows the key
        extend(store, mine, message("lost"))
        _crash(server)
        theirs = begin(other)
        extend(other, theirs, message(f"theirs {number}"))
        assert texts(store, mine) == texts(other, mine) == []
        assert texts(store, theirs) == [f"theirs {number}"]
        with pytest.raises(EventsLost):  # once: it was told that the event stands
            extend(store, mine, message("again"))
        extend(store, mine, message("again"))
        assert texts(other, mine) == ["again"]
    judge(store, Told())
    other.close()
    store.close()
    report("PostgreSQL, async logs and crashes", f"{_crashes()} crashes, 0 logs lost")


def test_a_follower_is_never_ahead_of_what_a_crash_leaves(server: PostgresServer) -> None:
    """Nothing that the feed gave is lost, and what comes after the crash has larger numbers."""
    store = _opened(server)
    log, lost = begin(store), 0
    follower, told = Follower(store), Told()
    for number in range(_crashes()):
        events = extend(store, log, message(f"seen {number}"))
        last = events[-1].id
        wait_until(lambda last=last: follower.seen and follower.seen[-1][1] == last)
        told.acknowledged.append([event.id for event in events])
        mark = store.number
        assert mark == follower.seen[-1][0]
        extend(store, log, message("perhaps lost"))
        _crash(server)
        if texts(store, log)[-1] != "perhaps lost":
            lost += 1
            with pytest.raises(EventsLost):
                extend(store, log, message("later"))
        extend(store, log, message("later"))
        assert [event.id for _, event in store.feed(mark)] == [
            event.id for event in store.read(log, events[-1].seq + 1)
        ]
    judge(store, told, follower.end())
    store.close()
    report("PostgreSQL, followers of async logs", f"{_crashes()} crashes, {lost} tails lost")


def test_a_reader_that_may_not_write_waits_for_the_disk(server: PostgresServer) -> None:
    store, address = _opened(server), parse_address(server.address_for(**STORE))
    server.execute("CREATE ROLE reader LOGIN")
    migrate(address, source=Live(), grant_read=["reader"])
    log = begin(store)
    reader = _other(server, "reader")
    (event,) = extend(store, log, message("seen"))
    server.execute("ALTER SYSTEM SET wal_writer_delay = '100ms'")
    server.execute("SELECT pg_reload_conf()")
    assert [each.id for _, each in reader.feed(kinds={"MessageSaid"})] == [event.id]
    number = reader.number
    _crash(server)
    assert texts(store, log) == ["seen"] and store.number == number
    reader.close()
    store.close()


# ── values and runs ──────────────────────────────────────────────────────────────────────────


def test_a_value_whose_events_were_taken_back_is_told_so(server: PostgresServer) -> None:
    store = _opened(server)
    session = Session("go", store=store, durability="async")
    later = session.scratch("n", 1).scratch("n", 2)
    _crash(server)
    with pytest.raises(EventsLost, match=r"crash.*reload\(\)"):
        later.scratch("n", 3)
    again = later.reload()
    assert again.seq < later.seq and again.scratch("n", 3).reload().seq == again.seq + 1
    judge(store, Told())
    store.close()


_made: list[str] = []


@tool(effect="idempotent")
def note(text: str) -> str:
    _made.append(text)
    return text


class Crashing(Workflow):
    """Makes two steps; the server crashes between them."""

    def __init__(self, server: PostgresServer | None) -> None:
        self._server = server

    def forward(self, session: Session) -> Session:
        session = session.use(note, text="one")
        if self._server is not None:
            server, self._server = self._server, None
            _crash(server)
        return session.use(note, text="two")


def test_a_run_whose_last_events_were_taken_back_ends_and_is_resumed(
    server: PostgresServer,
) -> None:
    """The request was on disk before the call, its outcome was not: the call is repeated by its
    effect class.
    """
    _made.clear()
    store = _opened(server)
    session = Session("go", store=store, durability="async")
    with pytest.raises(EventsLost, match="crash"):
        Crashing(server)(session)
    assert _made == ["one"]
    ended = resume(session.reload(), Crashing(None))
    assert _made == ["one", "one", "two"] and ended.status == "finished"
    assert replay(ended, Crashing(None)).head == ended.head
    judge(store, Told())
    store.close()
