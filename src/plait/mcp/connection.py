"""One connection to a server, from its start to its end.

It lives in one task: anyio wants its scopes closed by the task that opened them. Calls are tasks of
their own beside it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, cast

from plait import secrets
from plait.errors import CallFailed, MissingExtra, ServerLost, ServerSilent, ServerUnreachable
from plait.event import Json
from plait.mcp import loop

if TYPE_CHECKING:
    from anyio import CancelScope
    from mcp.types import CallToolResult, Tool

    from mcp import Client

STDERR_MAX = 2000  # characters kept of the end of a server's stderr
_PAGES_MAX = 100
_INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "TMPDIR",
    "TMP",
    "TEMP",
    "TZ",
)
# of a server that has no session of this id, in its own words or those of the SDK
_FORGOTTEN = ("Session terminated", "Session not found")
_GONE = ("Connection closed", "SSE stream")  # the SDK's words for a lost server


class ServerTarget(Protocol):
    """The address of a server, and the way to connect to it."""

    def transport(self, connection: Connection) -> AbstractAsyncContextManager[Any]: ...


class Stdio:
    """A child process, spoken to through its pipes."""

    def __init__(
        self, command: str, args: tuple[str, ...], env: Mapping[str, str], cwd: str | None
    ) -> None:
        secrets.learn_all(env)
        self.command, self.args, self.env, self.cwd = command, args, env, cwd

    @asynccontextmanager
    async def transport(self, connection: Connection) -> AsyncGenerator[Any]:
        from mcp.client.stdio import StdioServerParameters, stdio_client

        env = {**_environment(), **self.env}
        if os.sep not in self.command and shutil.which(self.command, path=env.get("PATH")) is None:
            raise FileNotFoundError(f"no program is called {self.command!r}")
        command, *args = [*_lifetime_prefix(), self.command, *self.args]
        parameters = StdioServerParameters(command=command, args=args, env=env, cwd=self.cwd)
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        running = asyncio.get_running_loop()
        running.add_reader(reader, connection.keep_stderr, reader)
        try:
            with os.fdopen(writer, "w") as stderr:
                async with stdio_client(parameters, stderr) as (read, write):
                    stderr.close()  # the child has its own end
                    yield _WatchedStream(read, connection), write
        finally:
            running.remove_reader(reader)
            connection.keep_stderr(reader)
            os.close(reader)


class Http:
    """A server elsewhere, spoken to by streamable HTTP."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        secrets.learn_all(headers)
        self.url, self.headers, self.timeout_s = url, headers, timeout_s

    @asynccontextmanager
    async def transport(self, connection: Connection) -> AsyncGenerator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # A stream may be silent for long; the call itself has the time limit.
        timeout = httpx2.Timeout(min(self.timeout_s, 30), read=max(self.timeout_s, 300))
        async with httpx2.AsyncClient(headers=dict(self.headers), timeout=timeout) as http:
            async with streamable_http_client(self.url, http_client=http) as (read, write):
                yield _WatchedStream(read, connection), write


class SessionForgotten(Exception):
    """An HTTP server refused a request since it does not know its session: it was started anew."""


class Connection:
    """A connection that is made, used and closed on the loop."""

    def __init__(self, server: str, target: ServerTarget, timeout_s: float) -> None:
        self._server, self._target, self._timeout_s = server, target, timeout_s
        self.stale = True  # the tools are to be listed (again) before the next call
        self.lost = False
        self._why = "it closed the connection"
        self._stderr = b""
        self._client: Client | None = None  # None: not connected yet
        self._scope: CancelScope | None = None  # None: not begun yet
        self._stopped = asyncio.Event()
        running = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = running.create_future()
        self._ready.add_done_callback(lambda ready: ready.exception())  # nothing may wait any more
        self._task = running.create_task(self._live())
        loop.at_end(self.close)

    async def ready(self) -> None:
        """Wait until the server has greeted, or raise ServerUnreachable."""
        try:
            await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            self.stop()
            raise

    @property
    def stderr(self) -> str:
        """The end of the server's stderr."""
        return self._stderr.decode(errors="replace").strip()[-STDERR_MAX:]

    def stop(self) -> None:
        """Begin to close."""
        self.hung_up()
        # not connected yet: there is no server to close properly
        if self._scope and not self._ready.done():
            self._scope.cancel()

    def hung_up(self) -> None:
        """Note that the other side is gone."""
        self.lost = True
        self._stopped.set()

    async def close(self) -> None:
        """Close, and wait until the process is gone."""
        self.stop()
        await asyncio.wait([self._task])

    async def listing(self) -> list[Tool]:
        """Return all tools that the server offers now."""
        self.stale = False  # before asking: a change while we read asks again
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._pages()
        except TimeoutError:
            why = f"it did not list its tools within {self._timeout_s:g} s"
        except Exception as error:
            why = f"it did not list its tools: {_reason(error)}"
        self.stale = True
        raise ServerUnreachable(self._server, why, self.stderr)

    async def _pages(self) -> list[Tool]:
        assert self._client is not None
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(_PAGES_MAX):
            page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise ValueError(f"there is no end after {_PAGES_MAX} pages")

    async def call(self, tool: str, arguments: Mapping[str, Json]) -> CallToolResult:
        """Call once. After ServerLost or ServerSilent the outcome is unknown; after
        SessionForgotten no tool was called.
        """
        import anyio

        assert self._client is not None
        # not the client itself: that one may list anew and send again, past the pins
        session = self._client.session
        try:
            with anyio.move_on_after(self._timeout_s):
                return await session.call_tool(tool, dict(arguments))
        except Exception as error:
            # Also when the answer breaks the tool's own output schema, or asks for something that
            # we do not give (a sample, a form).
            self.stale = True  # it may be another tool than we think
            if self.lost or str(error).startswith(_GONE):
                raise await self._post_mortem(tool) from error
            if str(error) in _FORGOTTEN:
                self.stop()
                if isinstance(self._target, Http):
                    raise SessionForgotten(str(error)) from error
            raise CallFailed(self._server, tool, _reason(error)) from error
        raise ServerSilent(self._server, tool, self._timeout_s, self.stderr)

    async def _post_mortem(self, tool: str) -> ServerLost:
        """Wait for the end, so that its last words are in."""
        await self.close()
        return ServerLost(self._server, tool, self._why, self.stderr)

    # ── the one task ─────────────────────────────────────────────────────────────────────────

    async def _live(self) -> None:
        import anyio

        with anyio.CancelScope(deadline=anyio.current_time() + self._timeout_s) as self._scope:
            if self._stopped.is_set():
                self._scope.cancel()
            try:
                await self._greet_and_stay(self._scope)
            except Exception as error:
                self._fail(_reason(error), error)
        if not self._ready.done():
            self._fail(
                "it was closed"
                if self._stopped.is_set()
                else f"it did not greet within {self._timeout_s:g} s"
            )
        self.hung_up()
        loop.not_at_end(self.close)

    async def _greet_and_stay(self, scope: CancelScope) -> None:
        # The time limit is on the scope around all: one around the greeting would be left before
        # those opened within it.
        async with _sdk()(
            self._target.transport(self), message_handler=self._on_message, cache=None
        ) as client:
            scope.deadline = math.inf
            self._client = client
            self._ready.set_result(None)
            listener = asyncio.create_task(self._listen(client))
            try:
                await self._stopped.wait()
            finally:
                listener.cancel()

    def _fail(self, why: str, error: Exception | None = None) -> None:
        self._why = why
        if not self._ready.done():
            failure = (
                error
                if isinstance(error, MissingExtra)
                else ServerUnreachable(self._server, why, self.stderr)
            )
            failure.__cause__ = None if error is failure else error
            self._ready.set_exception(failure)

    async def _on_message(self, message: object) -> None:
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self.stale = True

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tools: servers of 2026 announce them to subscribers only."""
        # older servers, and those without announcements: changes are seen after a reconnect
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.stale = True

    def keep_stderr(self, reader: int) -> None:
        """Keep the end of the server's stderr.

        A bit at a time: it may write without end.
        """
        with suppress(BlockingIOError):
            for _ in range(4):
                if not (data := os.read(reader, 65536)):
                    # at its end a pipe is always readable
                    asyncio.get_running_loop().remove_reader(reader)
                    return
                self._stderr = (self._stderr + data)[-4 * STDERR_MAX :]


class _WatchedStream:
    """A stream of messages that tells the connection of its end: a server that dies between calls
    is not noticed otherwise.
    """

    def __init__(self, stream: Any, connection: Connection) -> None:
        self._stream, self._connection = stream, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._connection.hung_up()
            raise

    async def __aenter__(self) -> _WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, traceback)


def _sdk() -> type[Client]:
    try:
        from mcp import Client
    except ImportError as error:  # an older SDK
        raise MissingExtra("MCPServer", "mcp", str(error)) from error
    # A server that prints to its stdout is logged, with a traceback per line, where logging is set
    # up.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    return Client


def _environment() -> dict[str, str]:
    """Return the variables that a child needs to run at all, without keys and tokens."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.startswith("LC_")
    }


def _lifetime_prefix() -> list[str]:
    """Return a prefix of the command that ends the child with this process, also after a crash.

    Most servers end when their stdin does; this is for the others.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _reason(error: BaseException) -> str:
    """Return the first real error in a group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return " ".join(str(error).split())[:500] or type(error).__name__
