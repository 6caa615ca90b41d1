"""Work that reads or writes the store, off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

THREADS = 8  # at work at once; more requests wait for one
Result = TypeVar("Result")


def limit_threads() -> None:
    """Let no more threads work for this event loop: each has its connection to the store."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS


async def in_thread(do: Callable[[], Result]) -> Result:
    """Call a function in a thread, and return its result."""
    return await anyio.to_thread.run_sync(do)
