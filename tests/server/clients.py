"""Clients of servers in tests: of an application in this process, and of a server in another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from starlette.testclient import TestClient

from plait.ids import LogId
from plait.runtime.live import Live
from plait.server.app import make_app
from plait.server.guard import LocalGuard
from plait.server.runner import Runner
from plait.store import Store
from tests.support.processes import child_environment, wait_until

PORT, TOKEN, KEY = 21_000, "token-of-a-test", b"k" * 32
BASE = f"http://127.0.0.1:{PORT}"
KNOWN = {"authorization": f"Bearer {TOKEN}"}


def now_s() -> float:
    return Live().now(LogId(""), 0) / 1e6


def local_guard(*, read_only: bool = False) -> LocalGuard:
    return LocalGuard(PORT, TOKEN, KEY, now_s, read_only=read_only)


def app_client(
    store: Store,
    *,
    actor: str = "human:ana",
    read_only: bool = False,
    runner: Runner | None = None,
    headers: Mapping[str, str] = KNOWN,
    page: Path | None = None,
) -> TestClient:
    """Return a client of an application in this process, which knows the token."""
    guard = local_guard(read_only=read_only)
    app = make_app(store, guard, runner, actor=actor, page=page)
    return TestClient(app, base_url=BASE, headers=dict(headers))


class LiveServer:
    """`plait serve` in a process of its own."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.errors = folder / "serve.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "plait", "serve", "--json", *arguments],
                cwd=folder,
                env=child_environment(**environment),
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        self.address = str(json.loads(line)["address"])
        self.base, _, token = self.address.partition("/#t=")
        self.token = token
        self.headers = {"authorization": f"Bearer {token}"}
        wait_until(self._answers, evidence=self.errors.read_text)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.errors.read_text()
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.base}/api/store", headers=self.headers).status_code == 200
        return False

    def get(self, path: str, **params: Any) -> Any:
        answer = httpx.get(f"{self.base}{path}", params=params, headers=self.headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.base}{path}", json=body, headers=self.headers, timeout=60)

    def end(self, sig: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(sig)
        code = self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def kill(self) -> None:
        """End the server, if it is not over. Runs have process groups of their own."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def live_server(folder: Path, *arguments: str, **environment: str) -> Generator[LiveServer]:
    """Run `plait serve` in a folder, and end it."""
    server = LiveServer(folder, *arguments, **environment)
    try:
        yield server
    finally:
        server.kill()


class FeedEvent(dict[str, str]):
    """One event of a feed: id, event, data."""

    @property
    def rows(self) -> list[list[Any]]:
        return json.loads(self["data"])["rows"] if self.get("event") == "news" else []


def parse_events(data: bytes) -> tuple[list[FeedEvent], bytes]:
    """Return the whole events of a piece of a feed, and the rest."""
    *blocks, rest = data.split(b"\n\n")
    events = list[FeedEvent]()
    for block in blocks:
        fields = FeedEvent()
        for line in block.decode().split("\n"):
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
        events.append(fields)
    return events, rest


def feed_events(
    server: LiveServer, last: str | None = None, cut_after: int | None = None
) -> Iterator[FeedEvent]:
    """Follow a feed, and yield its events; the connection is cut after so many bytes."""
    headers = {**server.headers, **({"last-event-id": last} if last is not None else {})}
    seen, rest = 0, b""
    with httpx.stream(
        "GET", f"{server.base}/api/feed", headers=headers, timeout=httpx.Timeout(60)
    ) as answer:
        assert answer.status_code == 200
        for piece in answer.iter_raw(1):
            left = len(piece) if cut_after is None else cut_after - seen
            seen += len(piece)
            events, rest = parse_events(rest + piece[:left])
            yield from events
            if cut_after is not None and seen >= cut_after:
                return
