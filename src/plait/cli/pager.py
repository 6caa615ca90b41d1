"""Long output through a pager, on a terminal only: PLAIT_PAGER, else PAGER, else less.

An empty PAGER, `cat`, `--no-pager`, or a pager that is not there or fails: the output is printed as
it is.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import IO, Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class _PagerStream(io.TextIOWrapper):
    """The way into a pager, which stands for the terminal that it shows its input on."""

    def isatty(self) -> bool:
        return True


class _PagerInput(io.BufferedIOBase):
    """The input of a pager. If the pager fails, it is written to the screen instead.

    The first megabyte is kept for that: a pager that fails later has shown something.
    """

    KEPT_MAX = 1 << 20

    def __init__(
        self, words: list[str], process: subprocess.Popen[bytes], screen: IO[bytes]
    ) -> None:
        assert process.stdin is not None
        self._words, self._process, self._screen = words, process, screen
        self._pipe: IO[bytes] | None = process.stdin  # None: the pager failed
        self._start = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        written = bytes(data)
        if self._pipe is None:
            return self._screen.write(written)
        self._start += written[: self.KEPT_MAX - len(self._start)]
        try:
            self._pipe.write(written)
            self._pipe.flush()
        except BrokenPipeError:
            self._take_back()
        return len(written)

    def close(self) -> None:
        if self._pipe is not None and not self.closed:
            with suppress(BrokenPipeError):
                self._pipe.close()
            if _wait(self._process) != 0:
                self._take_back()
        super().close()

    def _take_back(self) -> None:
        """Write to the screen what the pager has not shown. It raises if the pager was left."""
        if _wait(self._process) == 0:
            raise BrokenPipeError
        self._pipe = None
        self._screen.write(self._start)
        self._screen.flush()
        click.echo(f"The pager failed: {shlex.join(self._words)}", err=True)


def paging(command: Command) -> Command:
    """Decorate a command whose output may be long."""

    @wraps(command)
    def call(*arguments: Any, no_pager: bool, **rest: Any) -> Any:
        with paged_output(is_wanted=not no_pager):
            return command(*arguments, **rest)

    option = click.option("--no-pager", is_flag=True, help="Print it all at once on a terminal.")
    decorated: Any = option(call)
    return decorated


@contextmanager
def paged_output(*, is_wanted: bool = True) -> Generator[None]:
    """Send stdout through a pager while the block runs, if stdout is a terminal."""
    words = _pager_words() if is_wanted and sys.stdin.isatty() and sys.stdout.isatty() else []
    if not words:
        yield
        return
    # less: leave if it fits on the screen, show colours, and keep the text afterwards
    environ = {"LESS": "FRX", "LV": "-c", **os.environ}
    sys.stdout.flush()
    process = subprocess.Popen(words, stdin=subprocess.PIPE, env=environ)
    way = _PagerInput(words, process, sys.stdout.buffer)
    into: Any = way
    screen, sys.stdout = sys.stdout, _PagerStream(into, encoding="utf-8", newline="\n")
    try:
        yield
    except BrokenPipeError:  # the reader has seen enough
        pass
    finally:
        stream, sys.stdout = sys.stdout, screen
        with suppress(BrokenPipeError):
            stream.close()


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait until the pager is left, and return its exit code. Ctrl-C is for the pager."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _pager_words() -> list[str]:
    """Return the command of the pager; [] if there is none."""
    chosen = os.environ.get("PLAIT_PAGER", os.environ.get("PAGER", "less"))
    try:
        words = shlex.split(chosen)
    except ValueError:
        return []
    is_there = bool(words) and shutil.which(words[0]) is not None
    return words if is_there and os.path.basename(words[0]) != "cat" else []
