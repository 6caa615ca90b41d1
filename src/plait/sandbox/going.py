"""The check that commands ask while they run: it raises if the run that started them has lost its
right to go on in this process.

Whoever calls a tool sets it in the tool's context. A command that it ends takes all processes along
that it started.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

# None: nothing ends a command but its limits
going_check: ContextVar[Callable[[], object] | None] = ContextVar("plait_going", default=None)
