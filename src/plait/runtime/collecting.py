"""Finds out if code is called by the garbage collector.

The collector runs in any thread, at any allocation: while it calls a finalizer, the thread may hold
a lock. So a finalizer must not wait there for another thread.
"""

from __future__ import annotations

import gc
from threading import get_ident

from plait.runtime.process import THIS_PROCESS


def is_collecting_here() -> bool:
    """True if the garbage collector called this code."""
    return THIS_PROCESS.collecting_thread == get_ident()


def _note_collection(phase: str, _: object) -> None:
    # there is one collection at a time
    THIS_PROCESS.collecting_thread = get_ident() if phase == "start" else 0


gc.callbacks.append(_note_collection)
