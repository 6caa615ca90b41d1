"""One command, from its start to the end of everything it started.

The protocol is the same on every rung: bubblewrap or the launcher writes the id of the process that
will become the command to a status pipe, and waits for a byte; that process is then put under its
limits, and only then goes on. The end is the end of that process: bubblewrap's is the first of a
process namespace, which takes all others with it; the launcher's ends when nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

from plait.errors import SandboxFailed
from plait.sandbox.base import MB, Limits, OnOutput, Ran
from plait.sandbox.confine import restrict_sockets
from plait.sandbox.disk_usage import changed_bytes, unlisted_bytes
from plait.sandbox.going import going_check
from plait.sandbox.limits import ProcessFamily, ResourceCounter, confine, open_counter
from plait.sandbox.mounts import Overlay, ThreadProcess
from plait.sandbox.output import Spool

_CHUNK = 1 << 16
_LOOK_S = 0.05  # between two looks at memory and processes
_BURY_S = 10.0  # time for the launcher to end its processes
_START_S = 20.0  # time for a sandbox to begin
_ABSENT = re.compile(rb"(?:bwrap|plait): execvp .*: (.*)\n\Z")


class Start(NamedTuple):
    """A command line that starts a command, and the pipes to talk to it."""

    argv: Sequence[str]
    status_fd: int  # read here
    go_fd: int  # written here
    given: tuple[int, ...]  # descriptors for the child; closed here once it has them
    own_users: bool = False  # True: it has a user namespace of its own
    overlay: Overlay | None = None  # to be mounted by the thread that starts it
    scoped: bool = False  # True: abstract sockets of the host are put out of reach


def is_ready(handle: int, within_s: float) -> bool:
    """Wait until there is something to read from a handle, or its process has ended; return True if
    that came in time.

    It uses poll, because select takes no handle above 1,023, and a server has more.
    """
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    return bool(waiting.poll(max(0.0, within_s) * 1000))


class Status:
    """The status pipe: the id of the process, and its exit code."""

    def __init__(self, fd: int) -> None:
        self._fd, self._text = fd, ""

    def pid(self, within_s: float) -> int | None:
        """Return the id of the command's process; None: the start failed, or took too long."""
        end = time.monotonic() + within_s
        while (found := self._value("child-pid")) is None:
            if not is_ready(self._fd, end - time.monotonic()) or not self._more():
                return None
        return found

    def exit_code(self) -> int | None:
        while self._more():
            pass
        return self._value("exit-code")

    def _more(self) -> bool:
        data = os.read(self._fd, 4096)
        self._text += data.decode()
        return bool(data)

    def _value(self, name: str) -> int | None:
        found = re.search(rf'"{name}": *(\d+)\b', self._text)
        return int(found[1]) if found else None


class Bounds(NamedTuple):
    """The limits of one command, and the folders that count for its disk."""

    limits: Limits
    grows: tuple[str, ...] = ()  # folders that hold only files written by commands
    changes: tuple[str, ...] = ()  # folders in which only changes from now on count


def run_command(
    start: Start, bounds: Bounds, stdin: bytes, spool: Spool, on_output: OnOutput | None = None
) -> Ran:
    """Run it to its end."""
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, start.status_fd)
        reader, writer = os.pipe()
        stack.callback(os.close, reader)
        os.set_blocking(reader, False)
        process = _start_process(start, stdin, writer, stack)
        command = _Command(process, start, bounds, reader, spool, on_output)
        try:
            command.begin()
            command.wait()
        finally:
            command.end()
    return Ran(command.exit_code(), spool, int((time.perf_counter() - begun) * 1e6), command.killed)


def _start_process(
    start: Start, stdin: bytes, writer: int, stack: contextlib.ExitStack
) -> subprocess.Popen[bytes]:
    source = _stdin_file(stdin)
    try:
        if start.overlay is None and not start.scoped:
            return _popen(start, source, writer)
        started = ThreadProcess(start.overlay, lambda: _popen(start, source, writer))
        process = started.begin()
        stack.callback(started.end)
        return process
    except (OSError, ValueError) as error:
        os.close(start.go_fd)
        raise SandboxFailed(
            "local", f"start {start.argv[0]}", str(error), "look at `plait doctor`"
        ) from error
    finally:
        for fd in (source, writer, *start.given):
            os.close(fd)


def _popen(start: Start, source: int, writer: int) -> subprocess.Popen[bytes]:
    if start.scoped:
        restrict_sockets()
    return subprocess.Popen(
        list(start.argv),
        stdin=source,
        stdout=writer,
        stderr=writer,
        pass_fds=start.given,
        env={},
        cwd="/",
        start_new_session=True,
    )


def _stdin_file(stdin: bytes) -> int:
    if not stdin:
        return os.open(os.devnull, os.O_RDONLY)
    fd = memory_file(stdin)
    return fd


def memory_file(data: bytes) -> int:
    """Return the handle of a file in memory with this content, at its beginning."""
    fd = os.memfd_create("plait")
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class _Command:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        start: Start,
        bounds: Bounds,
        reader: int,
        spool: Spool,
        on_output: OnOutput | None,
    ) -> None:
        self._process, self._start, self._bounds, self._reader = process, start, bounds, reader
        self._spool, self._on_output = spool, on_output
        self._status = Status(start.status_fd)
        self._counter: ResourceCounter | None = None
        self._pidfd: int | None = None
        self._go: int | None = start.go_fd
        self._code: int | None = None
        self._since = spool.begun
        self._deadline = _deadline_after(bounds.limits.time_s)
        self._look_disk = time.monotonic() + 0.2
        self.killed = ""

    def begin(self) -> None:
        """Put it under its limits, and let it go."""
        limits = self._bounds.limits
        # joining a group takes milliseconds, during which a sandbox can be set up
        if self._start.own_users:
            self._counter = open_counter(
                self._process.pid, limits, self._process.pid, self._folders
            )
        pid = self._status.pid(_START_S)
        if pid is None:
            return
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:  # it ended before it began, and says why by its output
            return
        self._counter = self._counter or open_counter(pid, limits, self._process.pid, self._folders)
        if not self._counter.has(pid):
            self._counter.join(pid)
        confine(pid, self._bounds.limits, own_users=self._start.own_users)
        assert self._go is not None
        os.write(self._go, b"1")

    def wait(self) -> None:
        """Wait until the command is over, or has to be ended. Raises what the check raises by which
        its run goes on.
        """
        if self._pidfd is None:
            return
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.register(self._pidfd, select.POLLIN)
        look, check = time.monotonic() + _LOOK_S, going_check.get()
        while True:
            ready = dict(poll.poll(max(0, 1000 * (min(look, self._deadline) - time.monotonic()))))
            if self._reader in ready and not self._take():
                poll.unregister(self._reader)
            now = time.monotonic()
            if now >= look:
                if check is not None:
                    check()
                self.killed, look = self._exceeded_limit(now), time.monotonic() + _LOOK_S
            self.killed = self.killed or self._exceeded_time_or_output(now)
            if self.killed or self._pidfd in ready:
                return

    def end(self) -> None:
        """End all processes that are left, and wait until none is."""
        self._close_go()
        if self._pidfd is not None:
            self._end_all(self._pidfd)
            os.close(self._pidfd)
        else:
            self._process.kill()
        self._end_group()
        self._code = self._status.exit_code()
        self._drain()
        self.killed = self.killed or self._exceeded_disk_at_end()
        if self._counter is not None:
            self.killed = (
                self.killed or self._counter.exceeded_limit()
                if not isinstance(self._counter, ProcessFamily)
                else self.killed
            )
            self._counter.close()

    def exit_code(self) -> int:
        if self.killed:
            return 128 + signal.SIGKILL
        if self._code in (None, 1) and (refused := self._refusal_code()):
            return refused
        if self._code is None:
            raise SandboxFailed(
                "local",
                "start the command",
                self._spool.view(400).strip() or "it ended before it began",
                "see `plait doctor`",
            )
        if self._code == 128 + signal.SIGXFSZ and self._bounds.limits.disk_mb is not None:
            self.killed = "disk"
        return self._code

    def _refusal_code(self) -> int:
        """Return the exit code of a shell: 127 if there is no such program, 126 if it cannot be
        run, 0 otherwise.
        """
        if self._spool.size > 4096:
            return 0
        found = _ABSENT.match(b"".join(self._spool.pieces()))
        return 0 if not found else 127 if found[1] == b"No such file or directory" else 126

    def _end_all(self, pidfd: int) -> None:
        """End the command: the launcher ends its processes when the pipe is closed, a namespace
        ends with its first process.
        """
        if self._start.own_users:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        end = time.monotonic() + 5.0
        while not is_ready(pidfd, 0.5) and time.monotonic() < end:
            if self._counter is not None:
                self._counter.kill()

    def _end_group(self) -> None:
        """Wait for the process that was started here, then kill the rest of its process group.

        Only then is the process reaped: until that, the number of its group is not given away.
        """
        until = time.monotonic() + _BURY_S
        with contextlib.ExitStack() as stack:
            handle = os.pidfd_open(self._process.pid)
            stack.callback(os.close, handle)
            while not is_ready(handle, 0.5):
                if self._counter is not None:
                    self._counter.kill()
                if time.monotonic() > until:
                    self._process.kill()
        if self._counter is not None:
            self._counter.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _close_go(self) -> None:
        if self._go is not None:
            os.close(self._go)
            self._go = None

    def _take(self) -> bool:
        """Read the available output; return False if no more will come."""
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return True
        if data:
            self._spool.write(data)
            if self._on_output is not None:
                self._on_output(data)
        return bool(data)

    def _drain(self) -> None:
        while self._has_room() and is_ready(self._reader, 0) and self._take():
            pass

    def _has_room(self) -> bool:
        most = self._bounds.limits.output_mb
        return most is None or self._spool.size <= most * MB

    def _exceeded_time_or_output(self, now: float) -> str:
        return "time" if now >= self._deadline else "" if self._has_room() else "output"

    def _exceeded_limit(self, now: float) -> str:
        found = self._counter.exceeded_limit() if self._counter is not None else ""
        return found or self._exceeded_disk(now)

    def _exceeded_disk(self, now: float) -> str:
        """Return "disk" if that limit was passed.

        Counting many files takes time, so it is done rarely enough to take a tenth of it at most.
        """
        most = self._bounds.limits.disk_mb
        if most is None or now < self._look_disk:
            return ""
        size = self._bytes_written() + (
            unlisted_bytes(self._counter.pids()) if self._counter is not None else 0
        )
        self._look_disk = now + max(0.2, 10 * (time.monotonic() - now))
        return "disk" if size > most * MB else ""

    @property
    def _folders(self) -> tuple[str, ...]:
        return (*self._bounds.grows, *self._bounds.changes)

    def _bytes_written(self) -> int:
        return changed_bytes(self._bounds.grows, 0) + changed_bytes(
            self._bounds.changes, self._since
        )

    def _exceeded_disk_at_end(self) -> str:
        """Return "disk" if that limit was passed in the end: a quick command is over before the
        first look.

        A command that wrote nothing is not blamed for files from before.
        """
        most = self._bounds.limits.disk_mb
        if most is None or self._pidfd is None or self._bytes_written() <= most * MB:
            return ""
        return "disk" if changed_bytes(self._folders, self._since) else ""


def _deadline_after(seconds: float | None) -> float:
    return time.monotonic() + seconds if seconds is not None else float("inf")
