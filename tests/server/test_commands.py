"""`plait serve` and `plait view`: one address, one notice, and an end without traces."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from plait import Session, open_store
from plait.errors import BadAddress
from plait.server.places import running_servers, state_folder
from plait.server.serving import port_of
from plait.store import Store
from plait.view.built import is_page_built
from tests.cli.dialogue import dialogue
from tests.server.clients import LiveServer, feed_events, live_server
from tests.support.processes import child_environment, python, wait_until


def plait(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "plait", *words],
        cwd=folder,
        env=child_environment(**more),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_address_is_printed_once_and_ctrl_c_ends_it(tmp_path: Path, store: Store) -> None:
    server = LiveServer(tmp_path)
    try:
        assert server.base == f"http://127.0.0.1:{port_of(store.id)}"
        events = feed_events(server)
        next(events)  # a listener does not keep the server from ending
        assert server.end() == 0
        assert is_page_built() == (server.errors.read_text() == "")
    finally:
        server.kill()
    assert list(state_folder(store).glob("server-*.json")) == []


def test_the_notice_is_for_its_owner_alone(tmp_path: Path, store: Store) -> None:
    with live_server(tmp_path) as server:
        folder = state_folder(store)
        (notice,) = running_servers(folder)
        assert (notice.base, notice.token) == (server.base, server.token)
        assert notice.pid == server.process.pid
        for path in (folder, *folder.iterdir()):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        server.process.kill()
        server.process.wait()
        assert running_servers(folder) == []  # and the notice of the dead one is gone
        assert list(folder.glob("server-*.json")) == []


def test_a_terminal_is_told_how_it_ends_and_that_the_page_is_not_built(
    tmp_path: Path, store: Store
) -> None:
    address = tmp_path / ".plait"
    with dialogue("serve", "--store", str(address), "--port", "0", width=120) as talk:
        talk.expect("http://127.0.0.1:")
        told = talk.expect("Ctrl-C ends it")
        assert is_page_built() == ("make viewer" not in told)
        talk.interrupt()
        assert talk.end() == 0
    unbuilt = (
        "from pathlib import Path; from plait.view import built; built.BUILT = Path('nowhere'); "
        "from plait.cli import main; main(prog_name='plait')"
    )
    session = Session("a question", store=store)
    with live_server(tmp_path):
        words = ["view", session.short, "--no-open", "--store", str(address)]
        done = subprocess.run(
            [sys.executable, "-c", unbuilt, *words], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0 and done.stdout.startswith("http://127.0.0.1:")
    assert "in a clone, type make viewer" in done.stderr


def test_view_uses_the_server_that_runs(tmp_path: Path, store: Store) -> None:
    session = Session("hello", store=store).say("more")
    with live_server(tmp_path) as server:
        for name, path in (
            ("@", f"/s/{session.short}"),
            (session.short, f"/s/{session.short}"),
            (f"{session.short}@2", f"/s/{session.short}@2"),
        ):
            done = plait(tmp_path, "view", name, "--no-open")
            assert done.stdout.strip() == f"{server.base}{path}#t={server.token}", done.stderr
        missing = plait(tmp_path, "view", "nobody", "--no-open")
        assert missing.returncode == 3 and "nobody" in missing.stderr


def test_view_opens_a_browser_and_serves_until_it_is_told_to_end(
    tmp_path: Path, store: Store
) -> None:
    session = Session("hello", store=store)
    opened = tmp_path / "opened"
    browser = tmp_path / "browser.sh"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    viewing = subprocess.Popen(
        [sys.executable, "-m", "plait", "view", session.short],
        cwd=tmp_path,
        env=child_environment(BROWSER=f"{browser} %s"),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert viewing.stdout is not None
        address = viewing.stdout.readline().strip()
        wait_until(lambda: opened.exists() and opened.read_text().strip() == address)
        page, _, token = address.partition("#t=")
        assert page.endswith(f"/s/{session.short}")
        assert wait_until(lambda: _status(page)) == 200
        base = page.removesuffix(f"/s/{session.short}")
        known = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{base}/api/store", headers=known).status_code == 200
    finally:
        os.kill(viewing.pid, signal.SIGINT)
        assert viewing.wait(60) == 0
        assert viewing.stdout is not None
        viewing.stdout.close()


def _status(address: str) -> int | None:
    try:
        return httpx.get(address).status_code
    except httpx.TransportError:
        return None


def test_a_taken_port_is_told_and_another_is_found(tmp_path: Path, store: Store) -> None:
    with live_server(tmp_path) as first, live_server(tmp_path) as second:
        assert first.base != second.base
        assert len(running_servers(state_folder(store))) == 2
        port = first.base.rpartition(":")[2]
        done = plait(tmp_path, "serve", "--port", port)
        assert done.returncode == 2 and "taken" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["serve", "--host", "0.0.0.0"], 2, "ssh -L"),
        (["serve", "--port", "70000"], 2, "70000"),
        (["serve", "--store", "memory:x"], 3, "plait init"),
        (["serve", "--store", "/nowhere/at/all"], 3, "nowhere"),
        (["view", "--store", "memory:x"], 3, "plait init"),
    ],
)
def test_what_cannot_be_served_is_refused(
    tmp_path: Path, store: Store, words: list[str], code: int, said: str
) -> None:
    done = plait(tmp_path, *words)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr


def test_a_store_in_memory_is_refused() -> None:
    with pytest.raises(BadAddress, match="ends with its process"):
        state_folder(open_store("memory:"))


def test_who_acts_is_named(tmp_path: Path, store: Store) -> None:
    session = Session("hello", store=store)
    with live_server(tmp_path, "--as", "human:zoe") as server:
        assert server.get("/api/store")["actor"] == "human:zoe"
        server.post(f"/api/sessions/{session.id}/acts/note", text="so")
    assert session.reload().events[-1].actor == "human:zoe"


def test_only_these_commands_load_the_server() -> None:
    heavy = {"starlette", "uvicorn", "anyio", "plait.server"}
    for code in (
        "import plait",
        "import plait.cli.main",
        "from plait.cli import main; main(['ls', '--help'], standalone_mode=False)",
    ):
        loaded = set(python(f"{code}\nimport sys; print(*sys.modules)").stdout.split())
        assert heavy & loaded == set(), code


def test_at_rest_a_server_does_nothing(tmp_path: Path, store: Store) -> None:
    """Neither its threads nor its timers wake it up while nobody asks."""
    Session("hello", store=store)
    with live_server(tmp_path) as server:
        events = feed_events(server)
        next(events)
        events.close()  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType]
        wait_until(lambda: len(_switches(server)) <= 3)  # the reader of the feed has ended

        def is_still() -> bool:
            before = _switches(server)
            wait_until(_elapsed(1.0), 10)
            return _switches(server) == before

        wait_until(is_still)


def _switches(server: LiveServer) -> dict[str, int]:
    """Count how often each thread of a server gave the processor up by itself."""
    found = dict[str, int]()
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found[task.name] = int(line.split()[1])
    return found


def _elapsed(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
