"""The pace of the script, in this process."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

VARIABLE = "DEMO_PACE_S"


@contextmanager
def paced(seconds: str) -> Generator[None]:
    """Let the script wait so long before each reply."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = seconds
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
