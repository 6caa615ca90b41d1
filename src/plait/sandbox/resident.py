"""A resident: a process that stays in a sandbox between calls, because what it holds cannot be written down: an open page, a desktop.

A command that a sandbox runs ends with the call, and whatever it started ends with it. A resident is started once and talked to in
lines, one asked and one answered, until the sandbox is let go of. It is never part of the record: after a crash it is gone, and whoever
wants it says so and starts another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import IO, Protocol, runtime_checkable

LINE_MAX = 64 << 20  # bytes of one answer; a picture of a screen has some hundred thousand
WORDS_MAX = 2000  # bytes of what it complained about that are shown


class Resident(Protocol):
    """A live process. Its methods are called by one thread at a time."""

    @property
    def pid(self) -> int:
        """On the machine where the sandbox is, seen from outside; 0: nobody can tell."""
        ...

    @property
    def alive(self) -> bool: ...

    def send(self, line: bytes) -> None:
        """Say a line; one who is gone does not hear it."""
        ...

    def receive(self, timeout_s: float) -> bytes:
        """The next line it says, without its end; b"": it said nothing in that time, or is gone."""
        ...

    def complaint(self) -> str:
        """The end of what it wrote to its standard error."""
        ...

    def end(self) -> None:
        """End it and all that it started."""
        ...


@runtime_checkable
class Hosts(Protocol):
    """A sandbox in which a process can stay. It ends with the sandbox: when that is closed, destroyed, or its owner dies."""

    def start(self, command: Sequence[str], *, cwd: str = "", env: Mapping[str, str] | None = None) -> Resident: ...


class LocalResident:
    """A process on this machine, given as the whole command that puts it into its sandbox."""

    def __init__(self, command: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> None:
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._words: IO[bytes] = tempfile.TemporaryFile()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: Exception | None = None
        started = Event()
        # A child that dies with its parent dies with the thread that started it: so this thread stays for as long as the child does.
        Thread(target=self._keep, args=(command, cwd, env, started), name="plait-resident", daemon=True).start()
        started.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, line: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(OSError, ValueError):  # gone: the answer that does not come says so
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def receive(self, timeout_s: float) -> bytes:
        try:
            return self._lines.get(timeout=timeout_s)
        except Empty:
            return b""

    def complaint(self) -> str:
        size = os.fstat(self._words.fileno()).st_size
        return os.pread(self._words.fileno(), WORDS_MAX, max(0, size - WORDS_MAX)).decode("utf-8", "replace").strip()

    def end(self) -> None:
        process = self._process
        assert process is not None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _keep(self, command: Sequence[str], cwd: str | None, env: Mapping[str, str] | None, started: Event) -> None:
        try:
            self._process = process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            self._failure = error
            return
        finally:
            started.set()
        assert process.stdout is not None
        while line := process.stdout.readline(LINE_MAX):
            self._lines.put(line.rstrip(b"\n"))
        process.wait()
        self._lines.put(b"")  # whoever waits need not wait longer
