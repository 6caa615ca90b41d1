"""The server behind the page: how long its answers take, what it needs at rest, and how soon news
are there.

A store with one family of 100,000 events and 60 branches, and a file of 5,000 lines that was edited
many times, is served by `plait serve` in a process of its own. One client asks over loopback, one
question after another, at places drawn by a seed.

With `--page`, Chromium opens the page of the same server (viewer_page.py), and in the same run a
blank page, and Inspect View if it is installed in `.venv-peers` (`pip install inspect_ai`).

    python benchmarks/viewer.py [--events 100000] [--branches 60] [--asks 200] [--seed 1]
        [--page] [--seconds 20] [--peers 10000,100000]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.view_sessions import make_long_store  # noqa: E402

from measure import percentile  # noqa: E402
from plait import Session, open_store  # noqa: E402
from plait.store import Store  # noqa: E402

LINES, EDITS = 5_000, 60
REST_S = 10.0


class Served:
    """A server in a process of its own, and a client of it."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "plait", "serve", "--json"],
            cwd=folder,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        address = json.loads(self.process.stdout.readline())["address"]
        base, _, token = address.partition("/#t=")
        self.base, self.token, self.headers = base, token, {"authorization": f"Bearer {token}"}
        transport = httpx.HTTPTransport(retries=10)
        self.client = httpx.Client(
            base_url=base, headers=self.headers, transport=transport, timeout=120
        )

    def get(self, address: str, /, **params: Any) -> tuple[float, Any]:
        """Ask once; return the milliseconds until the answer was there, and the answer."""
        began = time.perf_counter()
        answer = self.client.get(address, params=params)
        took = (time.perf_counter() - began) * 1e3
        answer.raise_for_status()
        return took, answer.json()

    def status(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise KeyError(name)

    def cpu_ms(self) -> float:
        """Return the time that processors worked for it: on a busy machine it says more."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")

    def switches(self) -> int:
        """Count how often its threads woke up."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
        return total

    def end(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait()


def edited_file(folder: Path, store: Store) -> Session:
    """Return a session with a file of many lines, which a tool edited in many places."""
    from plait.tools.files import edit_file

    shop = folder / "many-lines"
    shop.mkdir()
    (shop / "long.py").write_text("".join(f"line_{at} = {at}\n" for at in range(LINES)))
    session = Session("edit", store=store).to("local", shop)
    for at in range(EDITS):
        line = at * (LINES // EDITS)
        session = session.use(
            edit_file, path="long.py", old=f"line_{line} = {line}\n", new=f"line_{line} = -1\n"
        )
    return session


def measure(
    served: Served, name: str, limit_ms: float, ask: Callable[[], float], asks: int
) -> None:
    first = ask()
    before = served.cpu_ms()
    times = sorted(ask() for _ in range(asks))
    cpu = (served.cpu_ms() - before) / asks
    p50, p95 = percentile(times, 50), percentile(times, 95)
    mark = "" if p95 <= limit_ms else "   MISSED"
    print(
        f"{name:<34} p50 {p50:7.1f} ms   p95 {p95:7.1f} ms   first {first:7.1f} ms"
        f"   CPU of the server {cpu:6.1f} ms each   target {limit_ms:g} ms{mark}"
    )


def ask_all(served: Served, root: str, edited: Session, asks: int, chance: random.Random) -> None:
    took, family = served.get(f"/api/sessions/{root}/family")
    branches = family["branches"]
    again, _ = served.get(f"/api/sessions/{root}/family")
    print(f"family of {len(branches)} sessions: first {took:.0f} ms, again {again:.0f} ms")
    logs = ",".join(branch["log"] for branch in branches)
    took, found = served.get("/api/outlines", logs=logs)
    steps = sum(each["total"] for each in found["outlines"])
    print(f"outlines of all: {steps:,} steps, {took:.0f} ms")

    def place() -> tuple[str, int]:
        branch = chance.choice(branches)
        return branch["log"], chance.randint(max(1, branch["place"]), branch["tip"])

    def state() -> float:
        log, seq = place()
        return served.get(f"/api/sessions/{log}@{seq}")[0]

    def track() -> float:
        log, seq = place()
        return served.get(f"/api/logs/{log}/track", seq=seq)[0]

    def screen() -> float:
        branch = chance.choice(branches)
        first = chance.randint(0, max(0, branch["step_count"] - 50))
        return served.get(f"/api/logs/{branch['log']}/steps", first=first, count=50)[0]

    def why() -> float:
        log, seq = place()
        return served.get(f"/api/sessions/{log}@{seq}/why", about=str(seq))[0]

    measure(served, "state at a place", 15, state, asks)
    measure(served, "piece of a track", 15, track, asks)
    measure(served, "steps of a screen (50)", 15, screen, asks)
    measure(served, "why", 50, why, asks)
    measure(
        served,
        f"blame of {LINES:,} lines",
        500,
        lambda: served.get(f"/api/sessions/{edited.id}/blame", path="long.py")[0],
        min(asks, 20),
    )
    measure(
        served, "sessions (a page of 50)", 50, lambda: served.get("/api/sessions")[0], asks // 4
    )


def news(served: Served, store: Store, seconds: float) -> None:
    """Append for a while, and measure how long it takes until the feed has each event."""
    heard: dict[int, float] = {}
    written: dict[int, float] = {}
    ready, is_over = threading.Event(), threading.Event()

    def listen() -> None:
        address = f"{served.base}/api/feed"
        with httpx.stream("GET", address, headers=served.headers, timeout=60) as answer:
            for line in answer.iter_lines():
                ready.set()
                if is_over.is_set():
                    return
                if line.startswith('data: {"rows":'):
                    now = time.perf_counter()
                    for row in json.loads(line[6:])["rows"]:
                        heard.setdefault(row[0], now)

    listener = threading.Thread(target=listen)
    listener.start()
    ready.wait()
    session = Session("live", store=store, durability="async")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        session = session.say("x")
        written[store.number] = time.perf_counter()
    while max(heard, default=0) < max(written):
        time.sleep(0.01)
    is_over.set()
    session.say("the last one")  # ends the listener
    listener.join()
    waits = sorted(max(0.0, heard[number] - at) * 1e3 for number, at in written.items())
    print(
        f"news on the feed: {len(written) / seconds:,.0f} events/s for {seconds:g} s, p50"
        f" {percentile(waits, 50):.0f} ms, p95 {percentile(waits, 95):.0f} ms, none lost"
    )


def at_rest(served: Served) -> None:
    time.sleep(7)  # until the connections of clients are closed
    before = served.switches()
    time.sleep(REST_S)
    woke = served.switches() - before
    print(
        f"at rest: {woke} wake-ups in {REST_S:g} s (target 0), {served.status('VmRSS') / 1000:.0f}"
        " MB (target 60 when nothing was asked)"
    )


def folders() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="plait-viewer-") as name:
        yield Path(name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--branches", type=int, default=60)
    parser.add_argument("--asks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--peers", default="10000,100000")
    given = parser.parse_args()
    for folder in folders():
        store, root = make_long_store(folder, given.events, given.branches)
        edited = edited_file(folder, store)
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(
            f"{given.events:,} events, {given.branches} branches, seed {given.seed};"
            f" {os.cpu_count()} cores, load {load}",
            flush=True,
        )
        served = Served(folder)
        try:
            served.get("/api/store")
            at_rest(served)
            ask_all(served, root, edited, given.asks, random.Random(given.seed))
            news(served, open_store(store.address), 5)
            at_rest(served)
            if given.page:
                from viewer_page import measure_page

                measure_page(
                    f"{served.base}/#t={served.token}",
                    store,
                    root,
                    folder,
                    events=given.events,
                    asks=min(given.asks, 60),
                    seconds=given.seconds,
                    chance=random.Random(given.seed),
                    peers=[int(each) for each in given.peers.split(",") if each],
                )
        finally:
            served.end()


if __name__ == "__main__":
    main()
