"""A proxy before a PostgreSQL server that counts what passes, and that fails when it is told to.

It runs on a thread of its own and can be told from any other. Clients in other processes use it by
its address. It refuses TLS, so that it can read what passes.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tests.support.wire import Conversation, Messages, WireCounts

_TLS, _GSS = 80877103, 80877104
_CHUNK_BYTES = 1 << 20
_LINK_ERRORS = (OSError, EOFError)

Outcome = TypeVar("Outcome")


class CutMoment(Enum):
    """The place of a cut in the life of a statement."""

    BEFORE = "the server never sees the statement"
    DURING = "the server has got the statement; nobody waits for the answer"
    AFTER = "the server has finished the statement; the client never gets the answer"


@dataclass
class Cut:
    """A cut that waits for its statement. `done` is set when it has happened."""

    moment: CutMoment
    nth: int
    pattern: re.Pattern[str]
    done: threading.Event
    act: Callable[[], object] | None = None
    """Called at the moment itself, on the thread of the proxy."""

    def is_due(self, text: str) -> bool:
        """Count a statement; True if it is the one."""
        if self.done.is_set() or not self.pattern.search(text):
            return False
        self.nth -= 1
        return self.nth == 0


@dataclass
class LateStatement(Cut):
    """A statement that is on its way for as long as the test likes: `done` is set when it has
    left the client, and the server gets it after `arrive()`.
    """

    arrived: threading.Event = field(default_factory=threading.Event)

    def arrive(self) -> None:
        self.arrived.set()


class _Link:
    """A client's connection and its counterpart to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.is_closed = False
        self.withheld: Cut | None = None
        # ReadyForQuery messages until the statement of the withheld answer is finished
        self.awaited = 0

    def close(self) -> None:
        """End both sides, also if another process has copies of the sockets."""
        self.is_closed = True
        for side in (self.client, self.server):
            with suppress(OSError):
                side.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            side.transport.abort()


class Proxy:
    """Leads clients to a server. Use it by `proxied` or `counted`."""

    def __init__(self, address: str) -> None:
        self.counts = WireCounts()
        self.delay_s = 0.0
        """Time that every chunk takes in each direction."""
        self.is_refusing = False
        """True: new connections are closed at once, as by a server that is down."""
        self._target = self._host_of(address)
        self._cuts: list[Cut] = []
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._flowing = asyncio.Event()
        self._server = self._on_loop(self._listen())
        port = self._server.sockets[0].getsockname()[1]
        old = "{}:{}".format(*self._target)
        self.address = address.replace(f"@{old}", f"@127.0.0.1:{port}", 1)
        self.counts.address = self.address

    @staticmethod
    def _host_of(address: str) -> tuple[str, int]:
        parts = urlsplit(address)
        assert parts.hostname and parts.port, f"a host and a port are needed: {address}"
        return parts.hostname, parts.port

    # ── what tests say ──

    def cut(
        self,
        moment: CutMoment,
        *,
        nth: int = 1,
        text: str = "",
        act: Callable[[], object] | None = None,
    ) -> Cut:
        """Cut the connection at the nth statement from now whose SQL matches the pattern."""
        planned = Cut(moment, nth, re.compile(text, re.IGNORECASE), threading.Event(), act)
        self._on_loop(self._run(lambda: self._cuts.append(planned)))
        return planned

    def delay(
        self, *, nth: int = 1, text: str = "", act: Callable[[], object] | None = None
    ) -> LateStatement:
        """Let the nth statement from now whose SQL matches the pattern arrive late."""
        pattern = re.compile(text, re.IGNORECASE)
        planned = LateStatement(CutMoment.BEFORE, nth, pattern, threading.Event(), act)
        self._on_loop(self._run(lambda: self._cuts.append(planned)))
        return planned

    def cut_all(self) -> int:
        """Cut every connection now; return their number."""
        return self._on_loop(self._run(self._close_links))

    @contextmanager
    def partition(self) -> Generator[None]:
        """Let nothing pass in either direction. Connections stay open and get no answer."""
        self._on_loop(self._run(self._flowing.clear))
        try:
            yield
        finally:
            self._on_loop(self._run(self._flowing.set))

    def lead_to(self, address: str) -> None:
        """Lead new connections to another server."""
        self._target = self._host_of(address)

    def close(self) -> None:
        """End everything."""
        self._on_loop(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ── on the thread of the proxy ──

    def _on_loop(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _run(self, act: Callable[[], Outcome]) -> Outcome:
        return act()

    async def _listen(self) -> asyncio.Server:
        self._flowing.set()
        return await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_CHUNK_BYTES)

    def _close_links(self) -> int:
        number = len(self._links)
        for link in list(self._links):
            link.close()
        return number

    async def _end(self) -> None:
        self._server.close()
        self._close_links()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # transports close in the next round of the loop
        await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self.is_refusing:
                with suppress(*_LINK_ERRORS):
                    await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        startup = await self._startup(reader, writer)
        await self._flowing.wait()
        server_reader, server = await asyncio.open_connection(*self._target, limit=_CHUNK_BYTES)
        link = _Link(writer, server)
        self._links.add(link)
        try:
            for side in (writer, server):
                side.transport.set_write_buffer_limits(0)
            server.write(startup)
            conversation = Conversation(self.counts)
            pumps = [
                asyncio.ensure_future(self._pump_questions(reader, link, conversation)),
                asyncio.ensure_future(self._pump_answers(server_reader, link, conversation)),
            ]
            await self._until_one_ends(pumps)
            # In a partition neither side learns that the other has gone.
            if not link.is_closed:
                await self._flowing.wait()
        finally:
            self._links.discard(link)
            link.close()

    @staticmethod
    async def _until_one_ends(pumps: Sequence[asyncio.Future[None]]) -> None:
        """A side that closes its connection ends the other one, too."""
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    @staticmethod
    async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """The client's first message, after questions for encryption were denied."""
        while True:
            head = await reader.readexactly(8)
            length, code = struct.unpack("!II", head)
            if code not in (_TLS, _GSS):
                return head + await reader.readexactly(length - 8)
            writer.write(b"N")

    async def _pass_on(self, data: bytes | bytearray, side: asyncio.StreamWriter) -> None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        await self._flowing.wait()
        side.write(data)
        await side.drain()

    async def _pump_questions(
        self, reader: asyncio.StreamReader, link: _Link, conversation: Conversation
    ) -> None:
        messages = Messages()
        due: Cut | None = None
        while chunk := await reader.read(_CHUNK_BYTES):
            passing = bytearray()
            for message in messages.split(chunk):
                text = conversation.ask(message)
                if text is not None and due is None:
                    due = next((cut for cut in self._cuts if cut.is_due(text)), None)
                if isinstance(due, LateStatement):  # what belongs to it is late, too
                    await self._wait_for_arrival(due)
                    due = None
                if due is not None and due.moment is CutMoment.BEFORE:
                    await self._pass_on(passing, link.server)
                    return self._finish_cut(due, link)
                passing += message
                if due is not None and message[:1] in b"QFS":
                    if due.moment is CutMoment.AFTER:
                        link.withheld, link.awaited = due, conversation.pending
                    await self._pass_on(passing, link.server)
                    if due.moment is CutMoment.DURING:
                        return self._finish_cut(due, link)
                    due, passing = None, bytearray()
            if passing:
                await self._pass_on(passing, link.server)

    async def _pump_answers(
        self, reader: asyncio.StreamReader, link: _Link, conversation: Conversation
    ) -> None:
        messages = Messages()
        while chunk := await reader.read(_CHUNK_BYTES):
            finished = sum(conversation.answer(message) for message in messages.split(chunk))
            if link.withheld is None:
                await self._pass_on(chunk, link.client)
                continue
            link.awaited -= finished
            if link.awaited <= 0:
                return self._finish_cut(link.withheld, link)

    async def _wait_for_arrival(self, late: LateStatement) -> None:
        self._cuts.remove(late)
        if late.act is not None:
            late.act()
        late.done.set()
        await asyncio.to_thread(late.arrived.wait)

    def _finish_cut(self, cut: Cut, link: _Link) -> None:
        self._cuts.remove(cut)
        if cut.act is not None:
            cut.act()
        link.close()
        cut.done.set()


@contextmanager
def proxied(address: str) -> Generator[Proxy]:
    """A proxy before the server of an address; clients use the proxy's `address`."""
    proxy = Proxy(address)
    try:
        yield proxy
    finally:
        proxy.close()


@contextmanager
def counted(address: str) -> Generator[WireCounts]:
    """Count what clients of the yielded `address` ask of a server."""
    with proxied(address) as proxy:
        yield proxy.counts
