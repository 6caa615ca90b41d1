"""Locks between processes: each ends with its process at the latest."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from plait.errors import SandboxBusy
from plait.workspace import disk


class Lock:
    """One process at a time; it ends with the process."""

    def __init__(self, path: Path, name: str) -> None:
        self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise SandboxBusy("local", name) from error

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @staticmethod
    def is_held(path: Path) -> bool:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        with disk.closing_handle(handle):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            return False


@contextmanager
def exclusive_lock(path: Path) -> Generator[None]:
    with disk.closing_handle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
