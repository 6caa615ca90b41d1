"""Folders for tests that are not about the disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = "/dev/shm"  # a file system in memory, on Linux: an fsync there costs nothing


@contextmanager
def quick_folder() -> Generator[Path]:
    """A folder in memory where the system has one."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)
