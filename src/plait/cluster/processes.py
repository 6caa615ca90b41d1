"""Workers as processes of this machine: started, kept alive, drained.

A worker that ends without being asked to is started again, after a pause that grows while it ends
quickly. A worker whose starter is gone drains: its standard input is a pipe that ends then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from plait.cluster.choosing import ProjectShare
from plait.cluster.programs import served_programs
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
        isolation: str = "",
        shares: Mapping[str, ProjectShare] | None = None,
        others: Sequence[str] = (),
    ) -> None:
        """`others` are the addresses of stores that they serve besides."""
        if isinstance(count, bool) or not 1 <= count <= 256:
            raise InvalidValue("workers", f"{count!r:.40} is not a count", "pass 1 to 256")
        served_programs(modules)
        base = [sys.executable, "-m", "plait", "worker", *modules, "--store", address]
        base += ["--slots", str(slots), "--while-stdin-open"]
        base += ["--isolation", isolation] if isolation else []
        base += [option for each in others for option in ("--store", each)]
        for project, share in (shares or {}).items():
            running = "" if share.running_max is None else f":{share.running_max}"
            base += ["--share", f"{project}={share.weight}{running}"]
        self._line = [*base, "--labels", ",".join(labels)] if labels else base
        self._name = name
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count
        self._began = [0.0] * count
        self._ended: list[float | None] = [None] * count
        self._pauses = [0.0] * count
        self._is_stopping = False
        self._keeper = threading.Thread(target=self._keep_alive, name="plait-workers", daemon=True)

    @property
    def pids(self) -> list[int]:
        """The processes that live."""
        return [each.pid for each in self._processes if each is not None and each.poll() is None]

    def start(self) -> WorkerProcesses:
        """Start the workers; from now on, those that end without being asked to begin again."""
        for place in range(len(self._processes)):
            self._start(place)
        self._keeper.start()
        return self

    def _start(self, place: int) -> None:
        name = ["--name", f"{self._name}.{place}"] if self._name else []
        environment = {**os.environ, "PYTHONPATH": _import_path()}
        # a Ctrl-C in the terminal is for this process, which asks the workers once
        process = subprocess.Popen(
            [*self._line, *name], env=environment, stdin=subprocess.PIPE, start_new_session=True
        )
        self._processes[place] = process
        self._began[place], self._ended[place] = time.monotonic(), None
        if self._is_stopping:  # it was asked while this one began
            process.send_signal(signal.SIGTERM)

    def _keep_alive(self) -> None:
        while not self._is_stopping:
            for place, process in enumerate(self._processes):
                if process is not None and process.poll() is not None:
                    self._start_again(place)
            time.sleep(_LOOK_S)

    def _start_again(self, place: int) -> None:
        """Start a worker that has ended again, once its pause is over."""
        now = time.monotonic()
        ended = self._ended[place]
        if ended is None:
            ended = self._ended[place] = now
            is_quick = now - self._began[place] < _QUICK_S
            grown = min(_PAUSE_S_MAX, max(_PAUSE_S, self._pauses[place] * 2))
            self._pauses[place] = grown if is_quick else 0.0
        if now - ended >= self._pauses[place] and not self._is_stopping:
            _close_pipe(self._processes[place])
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
        """Wait until the workers were asked to stop, and have ended; return the worst exit code."""
        self._keeper.join()
        codes = [each.wait() for each in self._processes if each is not None]
        for process in self._processes:
            _close_pipe(process)
        # a worker that was asked before it had begun has nothing to let go of
        return max([abs(code) for code in codes if code != -signal.SIGTERM], default=0)

    def stop(self, timeout_s: float = 60.0) -> None:
        """Drain the workers, and end those that do not come to their end in time."""
        self.ask_stop()
        if self._keeper.is_alive():
            self._keeper.join()
        until = time.monotonic() + timeout_s
        for process in self._processes:
            if process is None:
                continue
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _close_pipe(process)

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _close_pipe(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.stdin is not None:
        process.stdin.close()


def _import_path() -> str:
    """Return the folders from which a child process is to import what this process can."""
    here = [os.getcwd() if each == "" else each for each in sys.path]
    return os.pathsep.join(dict.fromkeys(here))
