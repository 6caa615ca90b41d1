"""The feed: each event once, in order, however it is cut; nothing is done while none listens."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.types import Message

from plait import Session, open_store
from plait.errors import StoreUnreachable
from plait.server.feed import BATCH, KEPT, Feed, FeedListener
from plait.server.stream import EventStream, WaitingCount
from plait.store import Store
from tests.server.clients import FeedEvent, LiveServer, feed_events, live_server, parse_events
from tests.support import dose, report
from tests.support.processes import wait_until


@pytest.fixture
def server(tmp_path: Path, store: Store) -> Iterator[LiveServer]:
    with live_server(tmp_path) as server:
        yield server


def known_rows(store: Store, after: int = 0) -> list[list[object]]:
    return [[number, event.log, event.seq, event.kind] for number, event in store.feed(after)]


def test_a_listener_hears_what_is_committed_after_it_came(server: LiveServer, store: Store) -> None:
    session = Session("before", store=store)
    events = feed_events(server)
    first = next(each for each in events if each.get("event") == "news")
    assert (int(first["id"]), first.rows) == (store.number, [])
    session = session.say("after")
    heard = next(each for each in events if each.rows)
    assert heard.rows == [[store.number, session.id, session.seq, "MessageSaid", session.id]]
    assert heard["id"] == str(store.number)


def test_inboxes_are_told_with_their_sessions(server: LiveServer, store: Store) -> None:
    session = Session("hello", store=store)
    events = feed_events(server, last=str(store.number))
    session.inbox.send("to the inbox")
    (row,) = next(each for each in events if each.rows).rows
    assert row[1] != session.id and row[4] == session.id


def test_the_count_of_asks_is_told(server: LiveServer, store: Store) -> None:
    from tests.server.test_acts import waiting_payment

    events = feed_events(server)
    assert json.loads(next(e for e in events if e.get("event") == "waiting")["data"])["count"] == 0
    session = waiting_payment(store)
    told = next(e for e in events if e.get("event") == "waiting")
    assert json.loads(told["data"])["count"] == 1
    session.inbox.deny(session.inbox.waiting[0], actor="human:ana")
    told = next(e for e in events if e.get("event") == "waiting")
    assert json.loads(told["data"])["count"] == 0


def test_each_event_comes_once_and_in_order_however_it_is_cut(
    server: LiveServer, store: Store
) -> None:
    """The connection is cut at random bytes; the next one begins after the last whole event."""
    cuts = dose("FEED_CUTS", short=25, ci=120, long=1000)
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    begun = Session("begin", store=store)
    start, ended = store.number, threading.Event()
    wanted = threading.Semaphore(0)

    def write() -> None:
        session = begun
        while not ended.is_set():
            for _ in range(chance.choice((1, 2, 5))):
                session = session.say("x" * chance.choice((1, 50)))
            wanted.acquire(timeout=1)

    writer = threading.Thread(target=write)
    writer.start()
    heard, last = list[list[object]](), str(start)
    try:
        for _ in range(cuts):
            wanted.release()
            for event in feed_events(server, last, cut_after=chance.randrange(1, 900)):
                if event.get("event") == "news":
                    heard += [row[:4] for row in event.rows]
                    last = event["id"]
    finally:
        ended.set()
        writer.join()
    for event in feed_events(server, last):
        if event.get("event") == "news":
            heard += [row[:4] for row in event.rows]
        if heard and heard[-1][0] == store.number:
            break
    assert heard == known_rows(store, start), f"seed {seed}"
    report("feed cut", f"{cuts:,} cuts, {len(heard):,} events, seed {seed}")


def test_a_slow_listener_holds_nobody_up_and_catches_up_by_number(
    server: LiveServer, store: Store
) -> None:
    session = Session("begin", store=store)
    start = store.number
    host, _, port = server.base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = (
            f"GET /api/feed?after={start} HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Authorization: Bearer {server.token}\r\n\r\n"
        )
        slow.sendall(request.encode())  # and reads nothing
        for _ in range(40):
            session = session.say("word " * 10)
        quick = feed_events(server, last=str(start))
        heard = list[list[object]]()
        while not heard or heard[-1][0] != store.number:
            heard += [row[:4] for row in next(quick).rows]
        assert heard == known_rows(store, start)
        # it goes on reading at last: nothing is lost
        slow.settimeout(30)
        data, late = slow.recv(65_536), list[list[object]]()
        while not late or late[-1][0] != store.number:
            body = data.partition(b"\r\n\r\n")[2]
            late = [row[:4] for event in _chunked_events(body) for row in event.rows]
            if len(late) < len(heard):
                data += slow.recv(65_536)
        assert late == heard


def _chunked_events(body: bytes) -> list[FeedEvent]:
    """Return the events of a body in chunks."""
    text, at = b"", 0
    while (end := body.find(b"\r\n", at)) >= 0:
        size = int(body[at:end], 16)
        if len(body) < end + 2 + size + 2:
            break
        text += body[end + 2 : end + 2 + size]
        at = end + 2 + size + 2
    return parse_events(text)[0]


def test_one_reader_looks_only_while_there_are_listeners(store: Store) -> None:
    import asyncio

    feed = Feed(store)
    session = Session("hello", store=store)

    def reading() -> bool:
        return any(thread.name == "plait-feed" for thread in threading.enumerate())

    async def follow() -> int:
        listeners = [feed.listen(0) for _ in range(5)]
        threads = [each for each in threading.enumerate() if each.name == "plait-feed"]
        assert len(threads) == 1
        for listener in listeners:
            while listener.number < store.number:
                await asyncio.to_thread(listener.take_rows)
        session.say("more")
        for listener in listeners:
            while not listener.take_rows():
                await listener.wait(10)
            assert listener.number == store.number
        for listener in listeners:
            listener.close()
        return feed.looks

    asyncio.run(follow())
    wait_until(lambda: not reading())
    looked = feed.looks
    session.reload().say("nobody listens")
    assert feed.looks == looked and not reading()


def test_a_listener_from_long_ago_is_given_everything(store: Store) -> None:
    """More rows than are kept: the store is read from its number on."""
    import asyncio

    session = Session("hello", store=store)
    for _ in range(3):
        drafts = [f"message {at}" for at in range(BATCH)]
        for text in drafts[: BATCH // 2]:
            session = session.say(text)

    async def follow() -> list[int]:
        feed = Feed(store)
        listener, numbers = feed.listen(0), list[int]()
        while len(numbers) < len(known_rows(store)):
            numbers += [row.number for row in listener.take_rows()]
        listener.close()
        return numbers

    numbers = asyncio.run(follow())
    assert numbers == [row[0] for row in known_rows(store)] and KEPT >= BATCH


def test_a_store_that_is_away_is_looked_at_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    session = Session("hello", store=store)
    feed = Feed(store)
    real, failures = feed._read_rows, [3]  # pyright: ignore[reportPrivateUsage]

    def failing(after: int) -> object:
        if failures[0]:
            failures[0] -= 1
            raise StoreUnreachable("postgresql://nowhere", "it is away", 1)
        return real(after)

    monkeypatch.setattr("plait.server.feed.RETRY_S", 0.01)
    monkeypatch.setattr(feed, "_read_rows", failing)
    woken, seen = FeedListener.call, list[str]()

    def call(listener: FeedListener, do: Callable[[], object]) -> None:
        seen.append(feed.error)  # what a listener finds that is woken
        woken(listener, do)

    monkeypatch.setattr(FeedListener, "call", call)

    async def follow() -> None:
        listener = feed.listen(None)
        session.say("while it is away")
        while listener.number < store.number:
            await listener.wait(5)
            listener.take_rows()
        listener.close()

    asyncio.run(follow())
    assert failures == [0] and seen == [""]


def test_a_listener_that_heard_more_than_the_store_has_begins_again(store: Store) -> None:
    """The store was restored from a backup: its numbers are given anew, and nobody falls silent."""
    import asyncio

    session = Session("hello", store=store)
    number = store.number

    async def follow() -> list[FeedEvent]:
        feed, sent, said = Feed(store), list[bytes](), asyncio.Event()
        waiting = WaitingCount(store, feed)

        async def send(message: Message) -> None:
            sent.append(message.get("body", b""))
            if b"event: reset" in sent[-1]:
                await asyncio.to_thread(session.say, "after the restore")
            if b"MessageSaid" in sent[-1]:
                said.set()

        async def receive() -> Message:
            await said.wait()
            return {"type": "http.disconnect"}

        stream = EventStream(feed, number + 1_000, waiting)
        await asyncio.wait_for(stream({"type": "http"}, receive, send), 30)
        return parse_events(b"".join(sent))[0]

    events = asyncio.run(follow())
    reset = next(each for each in events if each.get("event") == "reset")
    assert (reset["id"], json.loads(reset["data"])) == (str(number), {"number": number})
    assert [row[3] for each in events for row in each.rows] == ["MessageSaid"]


def test_a_store_that_is_set_back_while_somebody_listens_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    session = Session("hello", store=store)
    feed = Feed(store)

    async def follow() -> None:
        listener = feed.listen(None)
        before = session.say("will be lost")
        while not listener.take_rows():
            await listener.wait(10)
        monkeypatch.setattr(feed, "_store", open_store("memory:"))  # as a restore would have it
        Session("another", store=feed._store)  # pyright: ignore[reportPrivateUsage]
        while (reset := listener.take_reset()) is None:
            await listener.wait(10)
        assert 0 < reset.number == listener.number < store.number and before.seq
        listener.close()

    asyncio.run(follow())
