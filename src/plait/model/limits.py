"""Limits per model, kept on this side: requests and tokens per minute, and asks at a time.

All threads and event loops of a process share them. An ask takes a place in the line of its model
(`Limiter.enter`), waits until the place is free, then for as long as the limits per minute say
(`QueuePlace.wait_s`), and gives it back at its end. In any 60 seconds no more begin than the limits
allow. Time is handed in. Limits that are shared between processes are those of `shared_limits.py`;
asks at a time are counted here.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future
from threading import Lock

import msgspec

from plait.errors import InvalidValue
from plait.model.base import Model
from plait.model.settings import ModelSettings, settings_of
from plait.model.shared_limits import SharedLimiter, allowance_name
from plait.store import Store

WINDOW_S = 60.0


class ModelLimits(msgspec.Struct, frozen=True):
    """The limits of one model. None: there is none."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None  # of questions and answers
    concurrency: int | None = None
    shared: bool = False  # True: those per minute are for all processes of a store together

    def __bool__(self) -> bool:
        numbers = self.requests_per_minute, self.tokens_per_minute, self.concurrency
        return self.shared or any(value is not None for value in numbers)


class QueuePlace:
    """A place of one ask in the line of its model."""

    def __init__(self, limiter: Limiter, tokens: int) -> None:
        self._limiter = limiter
        self.tokens = tokens  # as estimated; as counted, once that is known
        self.starts_s = 0.0
        self.is_free: Future[None] = Future()  # done when one of the asks at a time may be this

    def wait_s(self, now_s: float) -> float:
        """Return the seconds for which this ask has to wait for the limits per minute."""
        return self._limiter.start(self, now_s)

    def leave(self, tokens: int | None = None) -> None:
        """Give the place back, at the end of the ask or of the wait for it. `tokens`: as the
        provider counted. None: nothing was sent.
        """
        self._limiter.leave(self, tokens)


class Limiter:
    """The line of one model."""

    def __init__(self, limits: ModelLimits) -> None:
        self.limits = limits
        self._lock = Lock()
        self._inside: set[QueuePlace] = set()
        self._line: deque[QueuePlace] = deque()  # waits for one of the asks at a time
        self._begun: deque[QueuePlace] = deque()  # in the order of their beginnings, this minute

    def enter(self, tokens: int) -> QueuePlace:
        """Take the last place in the line."""
        place = QueuePlace(self, tokens)
        with self._lock:
            self._line.append(place)
            self._let_in()
        return place

    def start(self, place: QueuePlace, now_s: float) -> float:
        """Return the seconds until this ask may begin, and set that time aside for it."""
        with self._lock:
            while self._begun and self._begun[0].starts_s <= now_s - WINDOW_S:
                self._begun.popleft()
            place.starts_s = self._first_time(place, now_s)
            self._begun.append(place)
            return place.starts_s - now_s

    def _first_time(self, place: QueuePlace, now_s: float) -> float:
        """Return the first time from now at which the limits per minute allow it, and not before
        an ask that came earlier.
        """
        begun, requests, most = (
            self._begun,
            self.limits.requests_per_minute,
            self._tokens_max(place),
        )
        at = max(now_s, begun[-1].starts_s if begun else now_s)
        if requests is not None and len(begun) >= requests:
            at = max(at, begun[-requests].starts_s + WINDOW_S)
        if most is None:
            return at
        used = sum(each.tokens for each in begun)
        for each in begun:  # the oldest ones have to be a minute old
            if used + place.tokens <= most:
                break
            used -= each.tokens
            at = max(at, each.starts_s + WINDOW_S)
        return at

    def _tokens_max(self, place: QueuePlace) -> int | None:
        most = self.limits.tokens_per_minute
        # an ask that is larger than the limit is made alone in its minute
        return max(most, place.tokens) if most is not None else None

    def leave(self, place: QueuePlace, tokens: int | None) -> None:
        with self._lock:
            place.is_free.cancel()
            if place in self._inside:
                self._inside.remove(place)
            elif place in self._line:
                self._line.remove(place)
            if tokens is not None:
                place.tokens = tokens
            elif place in self._begun:
                self._begun.remove(place)
            self._let_in()

    def _let_in(self) -> None:
        most = self.limits.concurrency
        while self._line and (most is None or len(self._inside) < most):
            place = self._line.popleft()
            if place.is_free.set_running_or_notify_cancel():  # its ask was not given up meanwhile
                self._inside.add(place)
                place.is_free.set_result(None)


class _Limiters:
    """One table for the process, by the names of models. The limits of a child process count for
    themselves.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._given: dict[str, ModelLimits] = {}  # by the program
        self._by_name: dict[str, Limiter] = {}
        self._shared: dict[tuple[str, str], SharedLimiter] = {}  # by store and allowance

    def give(self, name: str, limits: ModelLimits) -> None:
        with self._lock:
            self._given.pop(name, None)
            if limits:
                self._given[name] = limits

    def of(self, name: str) -> Limiter | None:
        """Return the limiter of a model. None: it has no limits."""
        limits = self._limits_of(name)
        if limits.shared:
            limits = ModelLimits(concurrency=limits.concurrency)
        if not limits:
            return None
        with self._lock:
            found = self._by_name.get(name)
            if found is None or found.limits != limits:
                found = self._by_name[name] = Limiter(limits)
            return found

    def shared(self, model: Model, store: Store) -> SharedLimiter | None:
        """Return the limits of a model that processes of a store share. None: there are none."""
        limits = self._limits_of(model.name)
        if not limits.shared:
            return None
        numbers = limits.requests_per_minute, limits.tokens_per_minute
        key = store.address, allowance_name(store, model)
        with self._lock:
            found = self._shared.get(key)
            if found is None or found.limits != numbers:
                found = self._shared[key] = SharedLimiter(store, key[1], *numbers)
            return found

    def _limits_of(self, name: str) -> ModelLimits:
        given = self._given.get(name)
        return given if given is not None else _limits_in(settings_of(name))

    def start_child(self) -> None:
        self._lock = Lock()
        self._by_name, self._shared = {}, {}


_limiters = _Limiters()
limiter_of = _limiters.of
shared_limiter_of = _limiters.shared
os.register_at_fork(after_in_child=_limiters.start_child)


def limits(
    model: str,
    *,
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    concurrency: int | None = None,
    shared: bool = False,
) -> None:
    """Limit the asks of a model, by its name, in this process, before the environment and
    plait.toml. Without numbers these decide again.

    `shared`: the limits per minute are for all processes together that have the same store, the
    same key and the same numbers.
    """
    found = ModelLimits(requests_per_minute, tokens_per_minute, concurrency)
    if not isinstance(shared, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("shared", f"{shared!r:.60} is neither True nor False", "pass True")
    for name, value in msgspec.structs.asdict(found).items():
        if name == "shared":
            continue
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_whole and value > 0):
            step = "pass a whole number above 0, or None for no limit"
            raise InvalidValue(name, f"{value!r} is not a limit", step)
    if not isinstance(model, str) or not model:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("model", f"{model!r} is not the name of a model", "pass 'openai:gpt-5'")
    _limiters.give(model, msgspec.structs.replace(found, shared=shared))


def _limits_in(settings: ModelSettings) -> ModelLimits:
    return ModelLimits(
        settings.requests_per_minute,
        settings.tokens_per_minute,
        settings.concurrency,
        bool(settings.shared),
    )
