"""Workers as processes of this machine: started, kept alive, drained.

A worker that ends without being asked to is started again, after a pause that grows while it ends
quickly.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from plait.errors import InvalidValue

_PAUSE_S, _PAUSE_S_MAX = 0.2, 30.0
_QUICK_S = 5.0  # a process that ended sooner is not started again at once
_LOOK_S = 0.1


class WorkerProcesses:
    """So many workers, each in a process of its own."""

    def __init__(
        self,
        address: str,
        modules: Sequence[str],
        count: int,
        *,
        name: str = "",
        labels: Sequence[str] = (),
        slots: int = 1,
        more: Sequence[str] = (),
    ) -> None:
        if isinstance(count, bool) or not 1 <= count <= 256:
            raise InvalidValue("workers", f"{count!r:.40} is not a count", "pass 1 to 256")
        base = [sys.executable, "-m", "plait", "worker", *modules, "--store", address]
        base += ["--slots", str(slots), *more]
        self._line = [*base, "--labels", ",".join(labels)] if labels else base
        self._name = name
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count
        self._began = [0.0] * count
        self._pauses = [0.0] * count
        self._is_stopping = False

    @property
    def pids(self) -> list[int]:
        """The processes that live."""
        return [each.pid for each in self._processes if each is not None and each.poll() is None]

    def start(self) -> None:
        for place in range(len(self._processes)):
            self._start(place)

    def _start(self, place: int) -> None:
        name = ["--name", f"{self._name}.{place}"] if self._name else []
        environment = {**os.environ, "PYTHONPATH": _import_path()}
        self._processes[place] = subprocess.Popen([*self._line, *name], env=environment)
        self._began[place] = time.monotonic()

    def keep_alive(self) -> None:
        """Start those again that ended without being asked to."""
        now = time.monotonic()
        for place, process in enumerate(self._processes):
            if self._is_stopping or process is None or process.poll() is None:
                continue
            is_quick = now - self._began[place] < _QUICK_S
            pause = min(_PAUSE_S_MAX, max(_PAUSE_S, self._pauses[place] * 2)) if is_quick else 0.0
            if now - self._began[place] >= pause:
                self._pauses[place] = pause
                self._start(place)

    def ask_stop(self) -> None:
        """Ask the workers to drain. A signal handler may call this."""
        self._is_stopping = True
        for process in self._processes:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the workers at once. Nothing is lost: others take their runs over."""
        self._is_stopping = True
        for process in self._processes:
            if process is not None and process.poll() is None:
                process.kill()

    def wait(self) -> int:
        """Keep the workers alive until they are asked to stop; return the worst exit code."""
        while not self._is_stopping:
            self.keep_alive()
            time.sleep(_LOOK_S)
        codes = [each.wait() for each in self._processes if each is not None]
        return max([abs(code) for code in codes], default=0)

    def stop(self, timeout_s: float = 60.0) -> None:
        """Drain the workers, and end those that do not come to their end in time."""
        self.ask_stop()
        until = time.monotonic() + timeout_s
        for process in self._processes:
            if process is None:
                continue
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _import_path() -> str:
    """Return the folders from which a child process is to import what this process can."""
    here = [os.getcwd() if each == "" else each for each in sys.path]
    return os.pathsep.join(dict.fromkeys(here))
