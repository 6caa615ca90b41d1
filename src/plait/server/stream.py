"""The feed as server-sent events: one response that does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from contextlib import suppress

import msgspec
from starlette.types import Receive, Scope, Send

from plait.errors import PlaitError
from plait.server.feed import Feed, FeedListener
from plait.server.live_shapes import NewsShape, WaitingShape
from plait.server.threads import in_thread
from plait.session.asks import ANSWERS, LIFE_OF_ASKS
from plait.session.inbox import all_waiting
from plait.store import Store

BEAT_S = 15.0  # of silence, after which a comment is sent, so that a lost connection is noticed
SEND_S = 20.0  # until a listener that takes nothing is let go: it comes back by its number
_encode = msgspec.json.encode


class EventStream:
    """A response of server-sent events, for one listener of a feed."""

    def __init__(self, feed: Feed, after: int | None, waiting: WaitingCount) -> None:
        self._feed, self._after, self._waiting = feed, after, waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        listener = self._feed.listen(self._after)
        sending = asyncio.create_task(self._send_all(listener, send))
        leaving = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            listener.close()
            for task in (sending, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError, TimeoutError, OSError):
                    await task

    async def _send_all(self, listener: FeedListener, send: Send) -> None:
        await _put(send, b"retry: 1000\n\n" + _event("news", NewsShape(()), listener.number))
        await _put(send, _event("waiting", await in_thread(self._waiting.now)))
        while not self._feed.is_over:
            if (reset := listener.take_reset()) is not None:
                await _put(send, _event("reset", reset, reset.number))
            await self._send_news(listener, send)
            for name, data in listener.take_messages():
                await _put(send, b"event: %b\ndata: %b\n\n" % (name.encode(), data))
            if not await listener.wait(BEAT_S):
                await _put(send, b": still here\n\n")

    async def _send_news(self, listener: FeedListener, send: Send) -> None:
        while True:
            try:
                rows = await in_thread(listener.take_rows)
            except PlaitError as error:  # the store is away: the reader looks again, and wakes us
                await _put(send, f": {type(error).__name__}\n\n".encode())
                return
            if not rows:
                return
            await _put(send, _event("news", NewsShape(tuple(rows)), listener.number))


class WaitingCount:
    """A source of the feed: how many asks wait for people."""

    def __init__(self, store: Store, feed: Feed) -> None:
        self._store, self._feed = store, feed
        self._count = -1  # as it was told last

    def now(self) -> WaitingShape:
        number = self._store.number
        asks = [ask for ask in all_waiting(self._store) if ask.kind != "timer"]
        return WaitingShape(len(asks), number)

    def look(self, kinds: Set[str]) -> bool:
        if not kinds & (LIFE_OF_ASKS | ANSWERS):
            return False
        try:
            found = self.now()
        except PlaitError:  # the store is away: the next event brings the count
            return False
        if found.count == self._count:
            return False
        self._count = found.count
        self._feed.tell("waiting", _encode(found))
        return True


def _event(name: str, data: msgspec.Struct, id: int | None = None) -> bytes:
    """Return one event. JSON of msgspec has no line break."""
    number = b"id: %d\n" % id if id is not None else b""
    return b"%bevent: %b\ndata: %b\n\n" % (number, name.encode(), _encode(data))


async def _put(send: Send, data: bytes) -> None:
    async with asyncio.timeout(SEND_S):
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
