"""A server in this process: bound to loopback, with a notice by which others find it.

At rest it does nothing at all: the loop that wakes up ten times a second in uvicorn is replaced by
one that waits for the signal to end.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from secrets import token_urlsafe
from types import FrameType

import uvicorn

from plait import __version__
from plait.errors import InvalidValue
from plait.ids import LogId, digest
from plait.runtime.live import Live
from plait.server.app import make_app
from plait.server.guard import LocalGuard
from plait.server.places import PostedNotice, ServerNotice, cookie_key, state_folder
from plait.server.runner import ProcessRunner
from plait.store import Store

HOST = "127.0.0.1"
_PORTS = (20_000, 12_000)  # the first one, and how many


class QuietServer(uvicorn.Server):
    """uvicorn's server without its tick: it wakes up for connections and signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    async def main_loop(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        if not self.should_exit:
            await self._ended.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.force_exit = True  # no answer is worth waiting for: feeds do not end by themselves
        if self._loop is not None and self._ended is not None:
            self._loop.call_soon_threadsafe(self._ended.set)


def serve(
    store: Store,
    *,
    actor: str,
    folder: Path,
    port: int | None = None,
    read_only: bool = False,
    page: Path | None = None,
    ready: Callable[[ServerNotice], object] = lambda notice: None,
) -> None:
    """Serve a store until the process is told to end. Runs that were started from here go on.

    `port` is None: the one that belongs to the store, or any other if that is taken. `ready` is
    called with the notice when the server can be reached.
    """
    state = state_folder(store)
    bound = _bind(port if port is not None else port_of(store.id), is_wish=port is None)
    number = int(bound.getsockname()[1])
    token = token_urlsafe(24)
    guard = LocalGuard(number, token, cookie_key(state), _now_s, read_only=read_only)
    runner = None if read_only else ProcessRunner(store, state, folder)
    app = make_app(store, guard, runner, actor=actor, page=page)
    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        date_header=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=65_536,
    )
    notice = ServerNotice(os.getpid(), number, token, store.id, actor, read_only, __version__)
    posted = PostedNotice(state, notice)
    try:
        ready(notice)
        QuietServer(config).run(sockets=[bound])
    finally:
        posted.remove()
        bound.close()


def check_host(host: str) -> None:
    """Refuse addresses that other machines could reach: there is no TLS and no login here."""
    if host not in (HOST, "localhost"):
        raise InvalidValue(
            "--host",
            f"other machines could reach {host}, and this server has neither TLS nor logins",
            f"leave it out, and forward the port: ssh -L PORT:{HOST}:PORT THIS_MACHINE",
        )


def port_of(store: LogId) -> int:
    """Return the port that belongs to a store: an open page finds it again after a restart."""
    first, count = _PORTS
    return first + int(digest(b"plait/port/1", store.encode())[:8], 16) % count


def _bind(port: int, *, is_wish: bool) -> socket.socket:
    """Return a socket that listens on loopback. `is_wish`: another port will do."""
    # with its protocol named, asyncio sends each piece at once
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(128)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE and is_wish:
            return _bind(0, is_wish=False)
        why = "it is taken" if error.errno == errno.EADDRINUSE else str(error.strerror)
        raise InvalidValue("--port", f"{port}: {why}", "choose another, or leave it out") from error
    return found


def _now_s() -> float:
    return Live().now(LogId(""), 0) / 1e6
