"""A resident: a process that stays in a sandbox between calls, because its state cannot be stored:
an open page, a desktop.

A command that a sandbox runs ends with the call, and so do all processes that it started. A
resident is started once and talked to in lines, one asked and one answered, until the sandbox is
closed. It is never part of the record: after a crash it is gone, and a tool that needs it starts
another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import IO, Protocol, runtime_checkable

from plait.errors import SandboxFailed
from plait.sandbox.base import Limits
from plait.sandbox.confine import restrict_sockets
from plait.sandbox.limits import ResourceCounter, confine, open_counter
from plait.sandbox.process import Start, Status, is_ready

LINE_MAX = 64 << 20  # bytes of one answer; a picture of a screen has some hundred thousand
START_S, BURY_S = 20.0, 5.0
WORDS_MAX = 2000  # bytes of its standard error that are shown


class Resident(Protocol):
    """A live process. Its methods are called by one thread at a time."""

    @property
    def pid(self) -> int:
        """Its process id on the machine of the sandbox, seen from outside; 0: not known."""
        ...

    @property
    def is_alive(self) -> bool: ...

    def send(self, line: bytes) -> None:
        """Write a line to it. If it is gone, the line is lost without an error."""
        ...

    def receive(self, timeout_s: float) -> bytes:
        """Return its next line, without its end; b"": none came in that time, or it is gone."""
        ...

    def complaint(self) -> str:
        """Return the end of its standard error."""
        ...

    def end(self) -> None:
        """End it and all that it started."""
        ...


@runtime_checkable
class ResidentHost(Protocol):
    """A sandbox in which processes can stay, each by a name.

    They end when it is closed, destroyed, restored, or its owner dies.
    """

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Resident:
        """Start one; an earlier one of that name is ended."""
        ...

    def resident(self, name: str) -> Resident | None:
        """Return the living one of that name, or None."""
        ...


class LocalResident:
    """A process on this machine, started as commands are, and under the same limits, those on time
    and output aside.
    """

    def __init__(self, start: Start, most: Limits) -> None:
        self._start, self._status = start, Status(start.status_fd)
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._words: IO[bytes] = tempfile.TemporaryFile()
        self._last = ""
        self._counter: ResourceCounter | None = None
        self._pidfd: int | None = None
        self._lock = Lock()
        started: Future[subprocess.Popen[bytes]] = Future()
        # A child that dies with its parent dies with the thread that started it: so this thread
        # stays for as long as the child does.
        self._keeper = Thread(
            target=self._keep, args=(started,), name="sandbox-resident", daemon=True
        )
        self._keeper.start()
        self._process = started.result()
        self._begin(most)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # gone: the answer that does not come says so
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def receive(self, timeout_s: float) -> bytes:
        try:
            return self._lines.get(timeout=timeout_s)
        except Empty:
            return b""

    def complaint(self) -> str:
        with self._lock:
            return self._last if self._words.closed else self._error_tail()

    def _error_tail(self) -> str:
        size = os.fstat(self._words.fileno()).st_size
        return (
            os.pread(self._words.fileno(), WORDS_MAX, max(0, size - WORDS_MAX))
            .decode("utf-8", "replace")
            .strip()
        )

    def end(self) -> None:
        with self._lock:
            if self._pidfd is None:
                return
            os.close(self._start.go_fd)  # the launcher ends its processes when this is closed
            if self._start.own_users:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._wait_for_end(self._pidfd)
            self._pidfd = None

    def _begin(self, most: Limits) -> None:
        """Put it under its limits, and let it go."""
        pid = self._status.pid(START_S)
        if pid is None:
            self._give_up()
            raise SandboxFailed(
                "local", "start it", self._last or "it ended before it began", "see `plait doctor`"
            )
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError as error:
            self._give_up()
            raise SandboxFailed(
                "local", "start it", self._last or "it ended before it began", "see `plait doctor`"
            ) from error
        self._counter = open_counter(pid, most, pid if self._start.own_users else self._process.pid)
        confine(pid, most, own_users=self._start.own_users)
        os.write(self._start.go_fd, b"1")

    def _give_up(self) -> None:
        self._process.kill()
        os.close(self._start.go_fd)
        os.close(self._start.status_fd)
        self._close()

    def _keep(self, started: Future[subprocess.Popen[bytes]]) -> None:
        try:
            process = self._popen()
        except OSError as error:
            os.close(self._start.go_fd)
            os.close(self._start.status_fd)
            started.set_exception(
                SandboxFailed(
                    "local", f"start {self._start.argv[0]}", str(error), "look at `plait doctor`"
                )
            )
            return
        finally:
            for fd in self._start.given:
                os.close(fd)
        started.set_result(process)
        assert process.stdout is not None
        while line := process.stdout.readline(LINE_MAX):
            self._lines.put(line.rstrip(b"\n"))
        process.wait()
        self._lines.put(b"")  # wakes a waiting `receive`

    def _popen(self) -> subprocess.Popen[bytes]:
        if self._start.scoped:
            restrict_sockets()
        return subprocess.Popen(
            list(self._start.argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            pass_fds=self._start.given,
            env={},
            cwd="/",
            start_new_session=True,
        )

    def _wait_for_end(self, pidfd: int) -> None:
        """Wait until nothing is left of it."""
        until = monotonic() + BURY_S
        while not is_ready(pidfd, 0.2) and monotonic() < until:
            if self._counter is not None:
                self._counter.kill()
        self._process.wait()
        if self._counter is not None:
            self._counter.close()
        os.close(pidfd)
        os.close(self._start.status_fd)
        self._close()

    def _close(self) -> None:
        self._keeper.join()
        self._last = self._error_tail()
        self._words.close()
        for each in (self._process.stdin, self._process.stdout):
            assert each is not None
            with suppress(OSError):  # some input was not written in time
                each.close()
