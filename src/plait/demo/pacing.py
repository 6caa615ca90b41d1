"""The environment of the demo: its store, and the pace of the script."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from plait.demo.folder import DemoFolder

PACE = "DEMO_PACE_S"
STORE = "PLAIT_STORE"
DEMO = "service:demo"  # decides where no person was asked


@contextmanager
def demo_environment(folder: DemoFolder, pace_s: float) -> Generator[None]:
    """Let this process, and those that it starts, use the store of the demo at this pace."""
    wanted = {PACE: str(pace_s), STORE: str(folder.store)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
