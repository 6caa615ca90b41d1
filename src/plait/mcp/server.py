"""MCPServer: tools of one server, pinned."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import weakref
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec

from plait.errors import (
    CallFailed,
    InvalidInput,
    InvalidValue,
    MissingExtra,
    ServerClosed,
    ToolChanged,
    ToolGone,
)
from plait.event import Json
from plait.event.kinds import EffectClass
from plait.mcp import loop
from plait.mcp.connection import Connection, Http, ServerTarget, SessionForgotten, Stdio
from plait.mcp.content import Value, value_of
from plait.mcp.definition import Definition, read_definition
from plait.mcp.pins import Pins
from plait.tool import Tool

T = TypeVar("T")
_UNFIT = re.compile(r"[^a-z0-9_.:/-]+")  # characters that an origin cannot have
_OFFERED_MAX = 64  # characters of a name that providers take


class ToolChange(msgspec.Struct, frozen=True):
    """The difference between a tool and its accepted definition."""

    tool: str
    kind: Literal["new", "changed", "gone"]
    accepted: Definition | None  # None: it is new
    found: Definition | None  # None: it is gone


class MCPServer:
    """A source of tools.

    It connects when first needed, again after it was lost, and closes at the latest when the
    program ends.
    """

    def __init__(
        self,
        target: ServerTarget,
        *,
        name: str,
        prefix: str = "",
        effect: EffectClass | Mapping[str, EffectClass] = "at_most_once",
        timeout_s: float = 60,
        pins: Path | str | None = None,
    ) -> None:
        if not _is_installed():
            raise MissingExtra("MCPServer", "mcp")
        if timeout_s <= 0:
            raise InvalidValue(
                "timeout_s", f"{timeout_s} is not a time to wait", "pass seconds above 0"
            )
        self.name, self.prefix, self.timeout_s = name, prefix, timeout_s
        self._target = target
        self._effects: Mapping[str, EffectClass] = {} if isinstance(effect, str) else dict(effect)
        self._effect: EffectClass = effect if isinstance(effect, str) else "at_most_once"
        _check_effects({self._effect, *self._effects.values()})
        self._pins = Pins(name, Path(pins) if pins is not None else None)
        self._found: dict[str, Definition] = {}
        self._warnings: tuple[str, ...] = ()
        # by the server's name; the same objects for good, so that an agent's tools follow
        self._tools: dict[str, Tool[..., Any]] = {}
        self._closed = False
        self._begin()

    @classmethod
    def stdio(
        cls,
        command: str | Path,
        *args: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        name: str | None = None,
        prefix: str = "",
        effect: EffectClass | Mapping[str, EffectClass] = "at_most_once",
        timeout_s: float = 60,
        pins: Path | str | None = None,
    ) -> MCPServer:
        """Make a server that is started as a child process.

        Of our environment it gets PATH, HOME, LANG and the like, and `env`.
        """
        words = tuple(map(str, args))
        target = Stdio(str(command), words, dict(env or {}), str(cwd) if cwd is not None else None)
        return cls(
            target,
            name=name or _default_name(str(command), words),
            prefix=prefix,
            effect=effect,
            timeout_s=timeout_s,
            pins=pins,
        )

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        prefix: str = "",
        effect: EffectClass | Mapping[str, EffectClass] = "at_most_once",
        timeout_s: float = 60,
        pins: Path | str | None = None,
    ) -> MCPServer:
        """Make a server that speaks streamable HTTP."""
        where = urlsplit(url)
        if where.scheme not in ("http", "https") or not where.hostname:
            raise InvalidValue(
                "url", "it is not the address of an HTTP server", "pass http://host:port/path"
            )
        # nothing that may be a secret
        host = where.hostname if where.port is None else f"{where.hostname}:{where.port}"
        target = Http(url, dict(headers or {}), timeout_s)
        return cls(
            target, name=name or host, prefix=prefix, effect=effect, timeout_s=timeout_s, pins=pins
        )

    # ── tools ────────────────────────────────────────────────────────────────────────────────

    def tools(self, *, fresh: bool = False) -> list[Tool[..., Any]]:
        """Return the tools that were accepted, as they were accepted: the same in every turn and,
        with `pins=`, in every process.

        The server is asked only if nothing was accepted yet, and all that it offers is accepted
        then. With `fresh` it is asked again, and new tools are accepted too; changed and missing
        ones stay as they were until `accept`.
        """
        return self._run_on_loop(self._list(fresh))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the tools as they were last listed: hidden characters, refused names."""
        return self._warnings

    def changes(self) -> list[ToolChange]:
        """Return the differences between the server's tools and the accepted ones."""
        return self._run_on_loop(self._compare())

    def accept(self, *tools: str) -> None:
        """Take these tools as they are now, or all."""
        self._run_on_loop(self._accept(tools))

    def close(self) -> None:
        """Close the connection and end the process; the server is not used after it."""
        self._closed = True
        if self._used and self._pid == os.getpid():
            loop.wait(self._disconnect())

    def __enter__(self) -> MCPServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self._held.open() else "not connected"
        return f"<MCPServer {self.name}: {len(self._tools)} tools, {state}>"

    # ── on the loop ──────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        """Begin without a connection, in this process."""
        self._pid = os.getpid()
        self._used = False
        self._gate = asyncio.Lock()
        self._held = _ConnectionHolder()
        # at exit the loop closes open connections
        weakref.finalize(self, self._held.let_go).atexit = False

    def _run_on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        self._mind_forks()
        return loop.wait(work)

    def _mind_forks(self) -> None:
        if self._pid != os.getpid():
            self._begin()
        self._used = True

    async def _call(self, tool: str, arguments: Mapping[str, Json], again: bool = False) -> Value:
        connection = await self._connect()
        accepted, found = self._pins.get(tool), self._found.get(tool)
        if accepted is None or found is None:
            raise ToolGone(self.name, tool)
        if accepted.digest != found.digest:
            raise ToolChanged(self.name, tool, accepted.digest, found.digest)
        try:
            result = await connection.call(tool, arguments)
        except SessionForgotten:  # it is another process: its tools are looked at first
            if again:
                raise CallFailed(self.name, tool, "it forgets its sessions") from None
            return await self._call(tool, arguments, again=True)
        return value_of(result, self.name, tool)

    async def _list(self, fresh: bool) -> list[Tool[..., Any]]:
        self._pins.load()
        if fresh or not self._pins.all():
            await self._connect(stale=fresh)
            self._pins.accept(
                {name: found for name, found in self._found.items() if self._pins.get(name) is None}
            )
        self._renew()
        return [self._tools[name] for name in sorted(self._pins.all()) if name in self._tools]

    async def _compare(self) -> list[ToolChange]:
        await self._connect()
        changes: list[ToolChange] = []
        for name in sorted({*self._found, *self._pins.all()}):
            accepted, found = self._pins.get(name), self._found.get(name)
            if accepted is None or found is None:
                changes.append(
                    ToolChange(name, "new" if accepted is None else "gone", accepted, found)
                )
            elif accepted.digest != found.digest:
                changes.append(ToolChange(name, "changed", accepted, found))
        return changes

    async def _accept(self, tools: tuple[str, ...]) -> None:
        await self._connect()
        known = {*self._found, *self._pins.all()}
        if unknown := set(tools) - known:
            raise ToolGone(self.name, min(unknown))
        self._pins.accept({name: self._found.get(name) for name in tools or sorted(known)})
        self._renew()

    async def _connect(self, stale: bool = False) -> Connection:
        """Return a live connection, with its tools listed."""
        async with self._gate:
            if self._closed:
                raise ServerClosed(self.name)
            connection = self._held.connection
            if connection is None or connection.lost:
                connection = self._held.connection = Connection(
                    self.name, self._target, self.timeout_s
                )
            await connection.ready()
            if connection.stale or stale:
                self._note(await connection.listing())
            return connection

    async def _disconnect(self) -> None:
        # without the gate: a call that waits there for a greeting gets an error
        if self._held.connection is not None:
            await self._held.connection.close()

    def _note(self, listed: list[Any]) -> None:
        """Take in the tools that the server lists now."""
        found: list[Definition] = []
        refused: list[str] = []
        for item in listed:
            try:
                found.append(read_definition(item))
            except InvalidInput as error:
                refused.append(f"a tool is refused: {error}")
        self._pins.load()  # another process may have accepted something
        self._found, warnings = self._screen(found)
        self._warnings = (*refused, *warnings)

    def _screen(
        self, definitions: Iterable[Definition]
    ) -> tuple[dict[str, Definition], tuple[str, ...]]:
        """Return the definitions that can be offered, and warnings about these and the others."""
        good: dict[str, Definition] = {}
        warnings: list[str] = []
        offered: dict[str, str] = {}
        for definition in definitions:
            if refusal := definition.refusal() or self._clash_text(definition.name, offered):
                warnings.append(f"{refusal}: the tool is refused")
                continue
            offered[self._offered_name(definition.name)] = definition.name
            good[definition.name] = definition
            warnings += definition.hidden_characters()
        warnings += [
            f"effect= names {name!r}, which the server does not offer"
            for name in sorted(set(self._effects) - set(good))
        ]
        return good, tuple(warnings)

    def _clash_text(self, tool: str, offered: Mapping[str, str]) -> str:
        name = self._offered_name(tool)
        if name in offered:
            return f"name of {tool}: {offered[name]!r} is offered as {name!r} already"
        return (
            f"name of {tool}: with its prefix it is longer than {_OFFERED_MAX}"
            if len(name) > _OFFERED_MAX
            else ""
        )

    def _offered_name(self, tool: str) -> str:
        """Return the name for the model; providers take no dots."""
        return f"{self.prefix}_{tool}".replace(".", "_") if self.prefix else tool.replace(".", "_")

    def _renew(self) -> None:
        """Bring the tools up to date with the accepted definitions."""
        good, warnings = self._screen(self._pins.all().values())
        self._warnings = self._warnings if self._found else warnings
        for name, accepted in good.items():
            if (tool := self._tools.get(name)) is None:
                self._tools[name] = self._make_tool(accepted)
            elif tool.version != accepted.digest:
                tool.description, tool.schema, tool.version = (
                    accepted.shown_description,
                    accepted.shown_schema,
                    accepted.digest,
                )

    def _make_tool(self, accepted: Definition) -> Tool[..., Any]:
        tool = accepted.name

        async def call(**arguments: Json) -> Value:
            self._mind_forks()
            return await asyncio.wrap_future(loop.submit(self._call(tool, arguments)))

        call.__doc__ = accepted.shown_description
        return Tool(
            call,
            name=self._offered_name(tool),
            description=accepted.shown_description,
            schema=accepted.shown_schema,
            effect=self._effects.get(tool, self._effect),
            origin=f"mcp:{self.name}",
            version=accepted.digest,
            taints=f"mcp:{_UNFIT.sub('-', self.name.lower())[:90]}",
        )


class _ConnectionHolder:
    """Holds the connection apart from the server object: when that one is collected, the
    connection is closed.
    """

    connection: Connection | None = None

    def __init__(self) -> None:
        self._pid = os.getpid()

    def open(self) -> bool:
        return self.connection is not None and not self.connection.lost and self._pid == os.getpid()

    def let_go(self) -> None:
        if self.connection is not None and self._pid == os.getpid():
            loop.call_soon(self.connection.stop)


def _is_installed() -> bool:
    """Return True if the SDK is installed, without loading it, which takes a second.

    A mere folder of that name has no origin.
    """
    try:
        spec = importlib.util.find_spec("mcp")
    except ValueError:
        return False
    return spec is not None and spec.origin is not None


def _default_name(command: str, args: tuple[str, ...]) -> str:
    """Return the name of a server by its command: `python -m mcp_server_git` is mcp_server_git,
    `python server.py` is server, anything else its own name.
    """
    program = Path(command).name
    first, second = (*args, "", "")[:2]
    if program.startswith("python") and first:
        return second or program if first == "-m" else Path(first).stem or program
    return program


def _check_effects(effects: set[EffectClass]) -> None:
    if unknown := effects - set(get_args(EffectClass)):
        raise InvalidValue(
            "effect",
            f"{min(unknown)!r} is not an effect class",
            f"use one of {', '.join(get_args(EffectClass))}",
        )
