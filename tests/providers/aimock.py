"""The npm package @copilotkit/aimock as a real server on loopback: OpenAI Chat and Responses,
Anthropic Messages, by fixtures.

    def test_it(aimock: AIMock) -> None:
        aimock.play({"match": {"userMessage": "hello"}, "response": {"content": "Hi"}})
        …                            # ask at f"{aimock.url}/v1"
        aimock.requests("/v1/responses")[0]["body"]

The package is pinned in package.json and installed beside it when first wanted.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread, Timer
from typing import Any, NoReturn

import pytest

HERE = Path(__file__).parent
PACKAGE = "@copilotkit/aimock"
INSTALL_S, START_S, STOP_S = 180, 30, 3
_LISTENING = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")


class AIMock:
    """A running server.

    Its fixtures are its own format: a list of {"match": …, "response": …}, the first match wins.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def play(self, *fixtures: dict[str, Any]) -> None:
        """Forget all, and serve these."""
        self._control("POST", "/reset")
        self._control("POST", "/fixtures", {"fixtures": fixtures})

    def requests(self, path: str = "") -> list[dict[str, Any]]:
        """Return the requests since `play`, with method, path, headers and body."""
        return [entry for entry in self._control("GET", "/journal") if path in entry["path"]]

    def _control(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/__aimock{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            return json.load(answer)


@contextmanager
def running() -> Generator[AIMock]:
    """Start one; without node or npm the test is skipped, or fails where PLAIT_REQUIRE_AIMOCK is
    set.
    """
    try:
        command = _command()
    except (OSError, subprocess.SubprocessError, LookupError) as error:
        _unavailable(f"{PACKAGE} cannot be had: {error}")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield AIMock(_address(process))
    finally:
        _end(process)


@pytest.fixture(scope="session")
def aimock() -> Iterator[AIMock]:
    with running() as server:
        yield server


def _unavailable(why: str) -> NoReturn:
    if os.environ.get("PLAIT_REQUIRE_AIMOCK"):
        pytest.fail(why)
    pytest.skip(why)


def _command() -> list[str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise LookupError("node and npm are not on the PATH")
    # Workers of one test run must not install side by side. The lock file is locked itself: it is
    # there, and nobody writes to it.
    with open(HERE / "package-lock.json") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _installed():
            arguments = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(
                arguments, cwd=HERE, capture_output=True, text=True, timeout=INSTALL_S
            )
            if done.returncode:
                raise LookupError(f"npm ci failed: {done.stderr.strip()[-500:]}")
    return [
        node,
        str(HERE / "node_modules" / PACKAGE / "dist" / "cli.js"),
        "--port",
        "0",
        "--fixtures",
        str(HERE / "package.json"),
    ]


def _installed() -> bool:
    """npm writes its hidden lock file last, so one of the wanted version means that
    all is there.
    """
    try:
        found = json.loads((HERE / "node_modules" / ".package-lock.json").read_text())["packages"][
            f"node_modules/{PACKAGE}"
        ]["version"]
    except (OSError, ValueError, KeyError):
        return False
    return found == json.loads((HERE / "package.json").read_text())["dependencies"][PACKAGE]


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said: list[str] = []
    alarm = Timer(START_S, process.kill)
    alarm.start()
    try:
        for line in process.stdout:
            said.append(line)
            if found := _LISTENING.search(line):
                # Its log is read on: a full pipe would stop it.
                Thread(target=process.stdout.read, daemon=True).start()
                return found[1]
    finally:
        alarm.cancel()
    raise AssertionError(f"aimock did not start: {''.join(said)}")


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:  # it waits for connections that are kept alive
        process.kill()
        process.wait(STOP_S)
    if process.stdout is not None:
        process.stdout.close()
