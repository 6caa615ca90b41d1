"""Listeners: functions that hear every event and every delta of a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock

from plait import inside, secrets
from plait.event import Event
from plait.event.hidden import without_secrets
from plait.model.base import Delta

OnEvent = Callable[[Event | Delta], object]


class Listeners:
    """The listeners of a run. One that raises is not called any more, and disturbs nothing."""

    def __init__(self, on_event: OnEvent | None = None) -> None:
        self._lock = Lock()
        self._listeners: list[OnEvent] = [on_event] if on_event else []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: OnEvent) -> None:
        with self._lock:
            self._listeners = [*self._listeners, listener]

    def remove(self, listener: OnEvent) -> bool:
        """Return True if it was still listening."""
        with self._lock:
            before = len(self._listeners)
            self._listeners = [each for each in self._listeners if each is not listener]
            return len(self._listeners) < before

    def tell(self, item: Event | Delta) -> None:
        if not isinstance(item, Event) and secrets.is_armed():
            item = without_secrets(item)
        for listener in self._listeners:
            try:
                listener(item)
            except BaseException as error:
                if inside.ends_run(error):
                    raise
                if self.remove(listener):
                    with suppress(Warning):  # where warnings are errors, too
                        why = f"on_event raised {type(error).__name__}; it is not called any more"
                        warnings.warn(why, RuntimeWarning, stacklevel=2)

    def tell_all(self, events: Sequence[Event]) -> None:
        if self._listeners:
            for event in events:
                self.tell(event)
