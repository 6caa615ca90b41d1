"""`plait mcp`: sessions as tools, used by the client of the SDK over stdio."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp.client.stdio", reason="the extra [mcp] is not installed")

from mcp.client.stdio import stdio_client

from mcp import ClientSession, StdioServerParameters
from plait import Session
from tests.support import child_environment

READING = {"list_sessions", "read_session", "read_events"}
WRITING = {"say", "fork_session"}


def with_client(store: Path, act: Callable[[ClientSession], Awaitable[Any]], *options: str) -> Any:
    """Return what comes of an act with a client of `plait mcp` on a store."""

    async def main() -> Any:
        args = ["-m", "plait", "mcp", "--store", str(store), "--as", "service:guest", *options]
        command = StdioServerParameters(command=sys.executable, args=args, env=child_environment())
        async with stdio_client(command) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            return await act(client)

    return asyncio.run(main())


async def ask(client: ClientSession, tool: str, **arguments: Any) -> Any:
    found: Any = await client.call_tool(tool, arguments)
    text = found.content[0].text
    return text if found.is_error else json.loads(text)


def test_a_client_lists_reads_says_and_forks(tmp_path: Path) -> None:
    store = tmp_path / ".plait"
    session = Session("Hello.", store=store).fact("colour", "blue")

    async def act(client: ClientSession) -> dict[str, Any]:
        tools = (await client.list_tools()).tools
        hints = {tool.name: tool.annotations for tool in tools}
        reads = {name for name, hint in hints.items() if hint and hint.read_only_hint}
        assert (reads, set(hints) - reads) == (READING, WRITING)
        listed = await ask(client, "list_sessions")
        assert [each["id"] for each in listed] == [session.id]
        shown = await ask(client, "read_session", session=session.short)
        assert shown["messages"][0]["text"] == "Hello."
        events = await ask(client, "read_events", session=session.id, after=1, limit=1)
        assert [(each["seq"], each["kind"]) for each in events] == [(2, "MessageSaid")]
        said = await ask(client, "say", session=session.id, text="From outside.")
        assert said["place"] == session.seq + 1
        return await ask(client, "fork_session", session=f"{session.id}@2", label="other")

    forked = with_client(store, act)
    last = session.reload().messages[-1]
    assert (last.text, last.actor) == ("From outside.", "service:guest")
    assert Session.open("other", store=store).id == forked["id"] and forked["parent"]["place"] == 2


def test_mistakes_are_told_in_words_and_write_nothing(tmp_path: Path) -> None:
    store = tmp_path / ".plait"
    session = Session("Hello.", store=store).close()

    async def act(client: ClientSession) -> list[str]:
        return [
            await ask(client, "read_session", session="nowhere"),
            await ask(client, "say", session=session.id, text="more"),
            await ask(client, "say", session=session.id),
        ]

    unknown, closed, missing = with_client(store, act)
    assert "nowhere" in unknown and "closed" in closed and "text" in missing
    assert session.reload() == session


def test_a_server_that_only_reads_has_no_tools_that_write(tmp_path: Path) -> None:
    store = tmp_path / ".plait"
    Session("Hello.", store=store)

    async def act(client: ClientSession) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    assert with_client(store, act, "--read-only") == READING
