"""Which code started a thread: a thread begins with an empty context, so what binds the code that started it is kept here.

Python tells nobody when a thread is started, so `Thread.start` is wrapped once a run was opened. The wrapper keeps the context of the
caller, and does nothing else. A thread that was there before the run, such as that of an executor, is not known to belong to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any
from weakref import WeakKeyDictionary


class SharedThread(threading.Thread):
    """A thread that works for many, such as that of an event loop: each piece of work brings its own context."""


_contexts: WeakKeyDictionary[threading.Thread, Context] = WeakKeyDictionary()
_start: Callable[..., Any] = threading.Thread.start
_lock = threading.Lock()
_about: list[ContextVar[Any]] = []


def keep_contexts(about: ContextVar[Any]) -> None:
    """Keep, from now on, the contexts of code that starts threads while this variable is set."""
    with _lock:
        if not _about:
            _about.append(about)
            threading.Thread.start = _started


def context_of_starter() -> Context | None:
    """Return the context of the code that started this thread. None: not known, or the variable was not set there."""
    return _contexts.get(threading.current_thread())


def _started(self: threading.Thread) -> None:
    context = copy_context() if _about[0].get() is not None else context_of_starter()
    if context is not None and not isinstance(self, SharedThread):
        _contexts[self] = context
    _start(self)
