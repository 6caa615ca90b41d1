"""A dialogue with `plait` on a terminal: lines are typed, and what is shown is waited for."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Thread

from tests.cli.shell import COMMAND
from tests.support import ForkedProgram, wait_until

# what moves the cursor, and the line that is redrawn
_CURSOR = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]|\r")
_REDRAWN = re.compile(r"\d+ steps? · [^\n]*\n?")


class Dialogue:
    """A process of `plait` whose terminal this is."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process, self._terminal = process, terminal
        self._got, self._from = b"", 0
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # Linux says so when the other end is closed
            while chunk := os.read(self._terminal, 65536):
                self._got += chunk

    @property
    def text(self) -> str:
        """All that was shown and is left there."""
        return _REDRAWN.sub("", _CURSOR.sub("", self._got.decode(errors="replace")))

    def expect(self, text: str) -> str:
        """Wait until a text is shown after the one expected before; return all up to it."""
        at = wait_until(
            lambda: found + 1 if (found := self.text.find(text, self._from)) >= 0 else 0,
            evidence=lambda: f"expected {text!r} in {self.text[self._from :]!r}",
        )
        before, self._from = self.text[self._from : at - 1], at - 1 + len(text)
        return before

    def type(self, line: str) -> None:
        os.write(self._terminal, line.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for its end, and return the exit code."""
        code = self.process.wait(60)
        self._reader.join(60)
        return code


@contextmanager
def dialogue(*arguments: str, width: int = 80, **environ: str) -> Generator[Dialogue]:
    """Start `plait` on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1", "PAGER": "cat", **environ}
    process = ForkedProgram(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    try:
        yield Dialogue(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
