"""The page in a browser: from a click to the first steps, what it weighs, how it scrubs, how soon
news are on it, and the same history as one file.

`viewer.py` calls this for a store that it has made. Times are taken in the page: from the input
event to the frame in which the page has answered.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from measure import percentile
from plait import Session
from plait.server.page import BUILT
from plait.store import Store

WAIT_MS = 180_000
STEPS = ".step-row .step-words"
QUIET_MS = 400

# Notes when something was clicked, when rows were first painted, and which tasks took long.
_NOTES = """
window.bench = {begun: 0, rows: 0, long: [], moved: [], counts: []};
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) bench.long.push(each.duration);
}).observe({type: "longtask", buffered: true});
bench.painted = (then) => requestAnimationFrame(() => {
  const {port1, port2} = new MessageChannel();
  port1.onmessage = () => then(performance.now());
  port2.postMessage(0);
});
bench.watch = (selector) => {
  const look = () => document.querySelector(selector)
    ? bench.painted((now) => (bench.rows = now)) : requestAnimationFrame(look);
  look();
};
addEventListener("click", (event) => { if (!bench.begun) bench.begun = event.timeStamp; }, true);
"""
# From an input to the paint in which the cursor stands elsewhere, and to the last change.
_SCRUB = """
() => {
  const slider = document.querySelector("[role=slider]");
  let input = 0, now = slider.getAttribute("aria-valuenow");
  const note = (event) => { input = event.timeStamp; };
  addEventListener("keydown", note, true);
  addEventListener("pointerdown", note, true);
  new MutationObserver(() => {
    const value = slider.getAttribute("aria-valuenow");
    if (input && value !== now) {
      const begun = input;
      now = value;
      bench.painted((at) => bench.moved.push(at - begun));
    }
    if (!input) return;
    const begun = input;
    bench.painted((at) => (bench.last = at - begun));
  }).observe(document.body, {
    subtree: true, childList: true, attributes: true, characterData: true,
  });
}
"""
_COUNT = """
() => {
  const list = document.querySelector(".steps-list");
  let known = -1;
  const look = () => {
    const count = Number((list.getAttribute("aria-label") || "").replace(/[^0-9]/g, ""));
    if (count !== known) {
      known = count;
      bench.counts.push([performance.timeOrigin + performance.now(), count]);
    }
    requestAnimationFrame(look);
  };
  look();
}
"""
_WRITER = """
import json, sys, time
from plait import Session, open_store
address, log, rate, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
session = Session.open(log, store=open_store(address))
written, began = [], time.time()
while (now := time.time()) < began + seconds:
    if len(written) < (now - began) * rate:
        session = session.say(f"news {len(written)}")
        written.append(time.time() * 1e3)
    else:
        time.sleep(0.0005)
print(json.dumps(written))
"""


def row(what: str, figure: str, target: str, is_met: bool | None = None) -> None:
    mark = "   MISSED" if is_met is False else ""
    print(f"{what:<58} {figure:<44} target {target}{mark}", flush=True)


@contextmanager
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--enable-precise-memory-info"],
        )
        yield started
        started.close()


class BenchPage:
    """One window, with notes on what it does."""

    def __init__(self, started: Browser) -> None:
        context = started.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(WAIT_MS)
        self.page: Page = context.new_page()
        self.page.add_init_script(_NOTES)
        self._tools: Any = context.new_cdp_session(self.page)
        self._tools.send("Performance.enable")

    def weight(self) -> tuple[float, int, int]:
        """Return the heap in MB after a collection, all nodes, and the elements of the document."""
        self._tools.send("HeapProfiler.collectGarbage")
        found = self._tools.send("Performance.getMetrics")["metrics"]
        metrics = {each["name"]: each["value"] for each in found}
        elements = self.page.evaluate("document.getElementsByTagName('*').length")
        return metrics["JSHeapUsedSize"] / 1e6, int(metrics["Nodes"]), elements

    def note(self, name: str) -> Any:
        return self.page.evaluate(f"bench.{name}")

    def forget(self) -> None:
        self.page.evaluate("void Object.assign(bench, {long: [], moved: [], last: 0})")

    def wait_rows(self, selector: str) -> float:
        """Wait until rows are painted; return the milliseconds since the click, or since the
        beginning of the document."""
        self.page.evaluate(f"bench.watch({json.dumps(selector)})")
        while not self.note("rows"):
            time.sleep(0.02)
        return self.note("rows - bench.begun")

    def close(self) -> None:
        self.page.context.close()


def blank_page(started: Browser) -> None:
    window = BenchPage(started)
    window.page.goto("about:blank")
    heap, nodes, elements = window.weight()
    row("a blank page", f"heap {heap:.1f} MB, {elements} elements ({nodes} nodes)", "-")
    window.close()


def open_family(window: BenchPage, address: str) -> None:
    """Click the session of the long family in the list of sessions."""
    window.page.goto(address)
    link = window.page.get_by_text("a long repair", exact=True).first
    link.wait_for()
    window.page.evaluate("void (bench.begun = 0, bench.rows = 0)")
    window.page.evaluate(f"""
        addEventListener("click", () => bench.watch({json.dumps(STEPS)}), {{once: true}})""")
    link.click()
    took = window.wait_rows(STEPS)
    row("click to first steps", f"{took:,.0f} ms", "2,000 ms", took <= 2000)
    window.page.wait_for_timeout(3000)
    heap, nodes, elements = window.weight()
    figure = f"heap {heap:.1f} MB, {elements} elements ({nodes} nodes)"
    row("  at rest", figure, "80 MB, 700", heap <= 80 and elements <= 700)


def scrub(window: BenchPage, asks: int, chance: random.Random, tab: str) -> None:
    page = window.page
    if not tab:
        page.evaluate(_SCRUB)
    slider = page.get_by_role("slider")
    box = slider.bounding_box()
    assert box is not None
    name = f"scrub{tab}"
    fresh, whole = list[float](), list[float]()
    window.forget()
    for _ in range(asks):
        x = box["x"] + chance.random() * box["width"]
        page.mouse.click(x, box["y"] + box["height"] / 2)
        page.wait_for_timeout(QUIET_MS)
        whole.append(window.note("last"))
    fresh = sorted(window.note("moved"))
    _scrub_row(f"{name}: to places not seen before", fresh, 120, window.note("long"))
    row("  until the last change on the page", _spread(sorted(whole)), "-")
    slider.focus()
    for key in ("ArrowLeft", "ArrowRight"):
        window.forget()
        for _ in range(asks):
            page.keyboard.press(key)
            page.wait_for_timeout(25)
    _scrub_row(
        f"{name}: back over places seen before",
        sorted(window.note("moved")),
        50,
        window.note("long"),
    )


def _spread(times: list[float]) -> str:
    return f"p50 {percentile(times, 50):.0f} ms, p95 {percentile(times, 95):.0f} ms"


def _scrub_row(name: str, times: list[float], limit: float, long: list[float]) -> None:
    over = [each for each in long if each > 100]
    figure = f"{_spread(times)}, {len(over)} tasks > 100 ms of {len(times)}"
    row(name, figure, f"{limit:g} ms, 0", percentile(times, 95) <= limit and not over)


def live(window: BenchPage, base: str, store: Store, log: str, rate: int, seconds: float) -> None:
    """Let another process append to the session in sight, and see when its steps are there."""
    page = window.page
    page.goto(f"{base}/s/{log}")
    page.locator(STEPS).first.wait_for()
    page.wait_for_timeout(2000)
    page.evaluate(_COUNT)
    page.wait_for_timeout(200)
    before = window.note("counts")[-1][1]
    heap = window.weight()[0]
    window.forget()
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, store.address, log, str(rate), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(writer.stdout.read)
        while not told.done():  # the browser's own reports are to be read, or it waits for us
            page.wait_for_timeout(100)
    if writer.wait() != 0:
        raise RuntimeError("the writer failed")
    written: list[float] = json.loads(told.result())
    end = time.monotonic() + 60
    while window.note("counts")[-1][1] < before + len(written) and time.monotonic() < end:
        page.wait_for_timeout(100)
    counts: list[tuple[float, int]] = window.note("counts")
    waits, at = list[float](), 0
    for number, moment in enumerate(written, 1):
        while at < len(counts) and counts[at][1] < before + number:
            at += 1
        if at < len(counts):
            waits.append(counts[at][0] - moment)
    page.wait_for_timeout(1500)
    is_once = counts[-1][1] == before + len(written)
    last = page.locator(STEPS).last.inner_text()
    after = window.weight()[0]
    row(
        f"news: {len(written) / seconds:,.0f} events/s for {seconds:g} s",
        f"{_spread(sorted(waits))}, {counts[-1][1] - before:,} of {len(written):,}, last: {last!r}",
        "300 ms, each once",
        is_once and percentile(sorted(waits), 95) <= 300,
    )
    row("  heap before and after", f"{heap:.1f} and {after:.1f} MB", "flat")


def one_file(started: Browser, session: Session, folder: Path, events: int) -> None:
    from plait.view.file import write_file
    from plait.view.html import BuiltPage

    path, began = folder / "run.html", time.perf_counter()
    found = write_file(session, path, made=session.events[-1].header.time)
    took = time.perf_counter() - began
    page = len(BuiltPage.read().document("", "", []).encode())
    per = (found.size - page) / events
    row("one file", f"{found.size / 1e6:.1f} MB written in {took:.0f} s", "-")
    row("  per 1,000 events, without the page", f"{per:.1f} KB", "130 KB", per <= 130)
    parts = sorted(found.sizes.items(), key=lambda each: -each[1])
    print("   ", ", ".join(f"{name} {size / events:.1f}" for name, size in parts), "KB")
    window = BenchPage(started)
    window.page.goto(path.as_uri(), wait_until="commit")
    took = window.wait_rows(STEPS)
    heap, _, elements = window.weight()
    row(
        "  from file:// to first steps",
        f"{took:,.0f} ms, heap {heap:.1f} MB, {elements} elements",
        "-",
    )
    window.close()


def bundle() -> None:
    names = [path for path in BUILT.rglob("*") if path.suffix in (".js", ".css", ".html")]
    sizes = {path.suffix[1:]: len(gzip.compress(path.read_bytes(), 9)) / 1e3 for path in names}
    total = sum(sizes.values())
    told = ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())
    row("bundle, gzipped", f"{total:.0f} KB ({told})", "120 KB", total <= 120)


def open_address(started: Browser, name: str, address: str, selector: str, target: str) -> None:
    """Open an address in a new window, and wait for its first rows."""
    window = BenchPage(started)
    window.page.goto(address, wait_until="commit")
    took = window.wait_rows(selector)
    window.page.wait_for_timeout(3000)
    heap, nodes, elements = window.weight()
    figure = f"{took:,.0f} ms, heap {heap:.1f} MB, {elements} elements ({nodes} nodes)"
    row(name, figure, target)
    window.close()


def inspect_view(started: Browser, folder: Path, events: int) -> None:
    """Measure Inspect View, if it is installed in `.venv-peers`: one sample of so many events."""
    programs = Path(__file__).parents[1] / ".venv-peers" / "bin"
    if not (programs / "inspect").exists():
        row("Inspect View", "not installed in .venv-peers", "-")
        return
    logs = folder / f"inspect-{events}"
    logs.mkdir()
    made = [programs / "python", Path(__file__).with_name("viewer_peer_log.py"), logs, str(events)]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    view = [programs / "inspect", "view", "start", "--log-dir", logs, "--port", str(port)]
    served = subprocess.Popen(view, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        base = f"http://127.0.0.1:{port}/"
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with suppress(httpx.TransportError):
                httpx.get(base)
                break
            time.sleep(0.2)
        name = f"Inspect View, {events:,} events: address to first events"
        open_address(started, name, base, "i.bi-tools", "-")
    finally:
        served.terminate()
        served.wait()


def measure_page(
    address: str,
    store: Store,
    root: str,
    folder: Path,
    *,
    events: int,
    asks: int,
    seconds: float,
    chance: random.Random,
    peers: list[int],
) -> None:
    """Measure all of it in one browser, and Inspect View with these numbers of events."""
    base = address.partition("/#")[0]
    bundle()
    with browser() as started:
        blank_page(started)
        window = BenchPage(started)
        open_family(window, address)
        scrub(window, asks, chance, "")
        window.page.keyboard.press("b")
        window.page.wait_for_timeout(1500)
        scrub(window, asks, chance, ", files in sight")
        heap, nodes, elements = window.weight()
        row(
            "  after scrubbing", f"heap {heap:.1f} MB, {elements} elements ({nodes} nodes)", "80 MB"
        )
        session = Session("live", store=store, durability="async")
        live(window, base, store, session.id, 1000, seconds)
        place = f"{base}/s/{root}#{address.partition('#')[2]}"
        open_address(started, "address to first steps, in a new window", place, STEPS, "-")
        window.close()
        for count in peers:
            inspect_view(started, folder, count)
        one_file(started, Session.open(root, store=store), folder, events)
