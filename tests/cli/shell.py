"""The command line as tests use it: in this process, in one of its own, and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner, Result

from plait.cli import main
from plait.session import Session
from plait.store import canonical_address, find_open
from plait.store.postgres.address import is_postgres
from tests.support import ForkedProgram, run_forked

COMMAND = [sys.executable, "-c", "from plait.cli import main; main(prog_name='plait')"]


class Shell:
    """A store, and `plait` run on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = canonical_address(str(folder))

    def run(self, *arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=input, catch_exceptions=False)

    def __call__(self, *arguments: str, input: str | bytes | None = None, code: int = 0) -> str:
        """Return its output; the exit code must be this one."""
        result = self.run(*arguments, input=input)
        assert result.exit_code == code, result.output
        return result.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        found = self(*arguments, "--json", code=code)
        assert found.isascii()
        return json.loads(found)

    def jsonl(self, *arguments: str, code: int = 0) -> list[Any]:
        return [json.loads(line) for line in self(*arguments, "--jsonl", code=code).splitlines()]

    def error(self, code: int, *arguments: str) -> str:
        """Return its text on stderr; stdout must be empty."""
        result = self.run(*arguments)
        assert (result.exit_code, result.stdout) == (code, ""), result.output
        assert "Traceback" not in result.stderr
        return result.stderr

    def new(self, *arguments: str) -> str:
        """The short id of a new session."""
        return self.json("new", *arguments)["short"]

    def open(self, name: str) -> Session:
        return Session.open(name, store=self.address)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    folder = tmp_path / ".plait"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLAIT_STORE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # no store is looked for above it
    monkeypatch.setenv("PLAIT_ACTOR", "human:ana")
    made = Shell(folder.resolve())
    if is_postgres(made.address):  # it is not found by a folder
        monkeypatch.setenv("PLAIT_STORE", made.address)
    yield made
    if (store := find_open(made.address)) is not None:
        store.close()


@contextmanager
def program_folder(
    folder: Path, module: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> Generator[Path]:
    """A folder with a program of one module, which `plait` imports and the next
    test does not find.
    """
    (folder / f"{module}.py").write_text(source)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield folder
    sys.modules.pop(module, None)


def harmless(text: str) -> str:
    """The text, in which nothing is left that a terminal obeys."""
    assert all(char.isprintable() or char == "\n" for char in text), ascii(text)
    return text


def process(
    *arguments: str, stdout: IO[Any] | int = subprocess.PIPE, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`plait` in a process of its own."""
    return run_forked([*COMMAND, *arguments], stdout=stdout, env=env)


def on_a_terminal(*arguments: str, width: int = 100, **environ: str) -> str:
    """Return the output of `plait` on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    gone = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE")
    env = {name: value for name, value in os.environ.items() if name not in gone}
    env |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "PAGER": "cat", **environ}
    with ForkedProgram(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    ) as running:
        os.close(theirs)
        got = b""
        try:
            while chunk := os.read(ours, 65536):
                got += chunk
        except OSError:  # Linux says so when the other end is closed
            pass
        running.wait()
    os.close(ours)
    return got.decode().replace("\r\n", "\n")
