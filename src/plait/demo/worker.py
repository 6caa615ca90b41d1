"""Processes of the demo: each runs a command of `plait` in the demo's folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import IO

from plait.demo.folder import DemoFolder

GRACE_S = 3.0  # seconds that a process gets to end by itself


class DemoProcess:
    """A process that works on the run. It is in a group of its own, so that Ctrl-C reaches it only
    through the demo.
    """

    def __init__(self, folder: DemoFolder, words: list[str], settings: Mapping[str, str]) -> None:
        # files, not pipes: nobody reads while the process works
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "plait", *words],
            cwd=folder.path,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; minus the signal that ended it; None while it works."""
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most so long. True: it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> int | None:
        """End it as `kill -9` does, and return the signal that ended it; None: it had ended."""
        self._process.send_signal(signal.SIGKILL)
        code = self._process.wait()
        return -code if code < 0 else None

    def stop(self, *, gently: bool = False) -> None:
        """End it and all that it started. A run needs no time for that: its log is as it was, and
        sandboxes end with their process. `gently`: it may end by itself, as a server does.
        """
        if self.exit_code is None:
            if gently:
                self._process.send_signal(signal.SIGINT)
            if not gently or not self.wait(GRACE_S):
                self.kill()
        self._out.close()
        self._err.close()

    def output_lines(self) -> list[str]:
        """Return what it wrote to stdout so far."""
        return _lines_of(self._out)

    def error_lines(self) -> list[str]:
        """Return what it wrote to stderr so far."""
        return _lines_of(self._err)


def _lines_of(file: IO[bytes]) -> list[str]:
    # the process has the same place in the file: it is not moved
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode("utf-8", "replace").strip().splitlines()
