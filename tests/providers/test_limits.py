"""Limits per model: no minute has too much in it, no more ask at a time, and a wait can be left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Lock, Thread
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait import Agent, Session, Workflow
from plait.errors import InvalidValue
from plait.event.kinds import Text, Usage
from plait.model import Queued, Reply, limits
from plait.model.base import OnDelta, Request
from plait.model.limits import WINDOW_S, Limiter, ModelLimits, limiter_of
from plait.runtime.attendants import Watch
from plait.runtime.drivers.blocking import Blocking
from plait.runtime.invoke import invoke
from plait.runtime.waits import Pause, Wait


@pytest.fixture(autouse=True)
def no_limits(own_store: Path) -> Iterator[None]:
    yield
    for name in ("slow", "counted"):
        limits(name)


# ── minutes ──────────────────────────────────────────────────────────────────────────────────

ASKS = st.lists(
    st.tuples(
        st.floats(0, 30),  # seconds since the ask before
        st.integers(0, 120),  # tokens, as estimated
        st.one_of(st.none(), st.integers(0, 150)),  # as counted at its end; None: given up
    ),
    max_size=40,
)


@given(ASKS, st.integers(1, 5), st.integers(1, 100))
def test_no_minute_has_more_in_it_than_the_limits_allow(
    asks: list[tuple[float, int, int | None]], requests: int, tokens: int
) -> None:
    limiter = Limiter(ModelLimits(requests, tokens))
    now, begun = 0.0, list[tuple[float, int]]()
    for gap, estimated, counted in asks:
        now += gap
        place = limiter.enter(estimated)
        assert place.is_free.done()
        start = now + place.wait_s(now)
        assert start >= max([now, *(at for at, _ in begun)]) - 1e-6
        window = [size for at, size in begun if at > start - WINDOW_S + 1e-6]
        assert len(window) < requests
        # one that is larger than the limit is alone
        assert sum(window) + estimated <= tokens or not sum(window)
        place.leave(counted)
        if counted is not None:
            begun.append((start, counted))


@given(st.integers(1, 20))
def test_an_ask_does_not_wait_without_need(requests: int) -> None:
    limiter = Limiter(ModelLimits(requests))
    for wait_s in (0.0, WINDOW_S):  # a whole minute's asks may begin at once
        assert {limiter.enter(1).wait_s(0.0) for _ in range(requests)} == {wait_s}
    assert limiter.enter(1).wait_s(4 * WINDOW_S) == 0


# ── at a time ────────────────────────────────────────────────────────────────────────────────


class Busy:
    """A model that counts how many ask it at the same time."""

    name = "counted"

    def __init__(self, go_on: Event | None = None) -> None:
        self.lock, self.now, self.most = Lock(), 0, 0
        self.began, self.go_on = Event(), go_on

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.began.set()
        if self.go_on is not None:
            assert self.go_on.wait(20)
        with self.lock:
            self.now -= 1
        return Reply((Text("Done."),), usage=Usage(3, 2))


def test_no_more_threads_and_loops_ask_at_a_time_than_may() -> None:
    model, together = Busy(), Barrier(8)
    limits("counted", concurrency=2)

    def work(n: int) -> str:
        together.wait(20)
        agent = Agent("Answer.", model=model, name=f"agent{n}")
        if n % 2:
            return asyncio.run(agent.acall(Session("Hello?"))).text
        return agent(Session("Hello?")).text

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == ["Done."] * 8
    assert model.most <= 2
    limiter = limiter_of("counted")
    assert limiter is not None and limiter.enter(1).is_free.done()


def test_a_wait_for_a_place_is_told_and_can_be_left() -> None:
    """A cancelled stream gives its place in the line back, and its model is never asked."""
    go_on = Event()
    first, second = Busy(go_on), Busy()
    limits("counted", concurrency=1)
    heard: list[Any] = []

    async def leave() -> None:
        stream = Agent("Answer.", model=second, name="other").astream(Session("Hello?"))
        async for item in stream:
            heard.append(item)
            if isinstance(item, Queued):
                await stream.aclose()  # type: ignore[attr-defined]
                return

    holder = Thread(target=lambda: Agent("Answer.", model=first)(Session("Hello?")))
    holder.start()
    assert first.began.wait(20)
    asyncio.run(leave())
    go_on.set()
    holder.join(20)
    assert heard == [Queued("counted", "others ask it, and no more may at a time", "other")]
    assert not second.most and Agent("Answer.", model=second)(Session("And?")).text == "Done."


class Hurried(Blocking):
    """Waits for nothing, and keeps the pauses that were asked for."""

    def __init__(self) -> None:
        self.paused: list[float] = []
        self.now_s = 0.0

    def clock(self) -> int:
        return int(self.now_s * 1e6)

    def wait(self, op: Wait) -> Any:
        if isinstance(op, Pause):
            self.paused.append(op.seconds)
            self.now_s += op.seconds
            return None
        return super().wait(op)


class Thrice(Workflow):
    def __init__(self, model: Any) -> None:
        self.one = Agent("Answer.", model=model)

    def forward(self, session: Session) -> Session:
        for _ in range(3):
            session = self.one(session).say("Again?")
        return session


def test_a_wait_for_the_minute_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_REQUESTS_PER_MINUTE", "2")
    heard: list[Any] = []
    waiter = Hurried()
    call = Thrice(Busy()).invocation(Session("Hello?"), watch=Watch(heard.append))
    invoke(msgspec.structs.replace(call, waiter=waiter))
    assert waiter.paused == [WINDOW_S]
    assert [item.why for item in heard if isinstance(item, Queued)] == [
        "it has been asked so much this minute; 60.0 s to go"
    ]


# ── numbers ──────────────────────────────────────────────────────────────────────────────────


def test_the_program_is_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limiter_of("slow") is None
    monkeypatch.setenv("PLAIT_TOKENS_PER_MINUTE", "100")
    found = limiter_of("slow")
    assert found is not None and found.limits == ModelLimits(None, 100, None)
    limits("slow", concurrency=3)
    found = limiter_of("slow")
    assert found is not None and found.limits == ModelLimits(None, None, 3)
    assert limiter_of("slow") is found


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "7"])
def test_a_number_that_is_no_limit_is_refused(number: Any) -> None:
    with pytest.raises(InvalidValue, match="is not a limit"):
        limits("slow", requests_per_minute=number)
    with pytest.raises(InvalidValue, match="is not the name of a model"):
        limits(number if number != "7" else "", concurrency=1)
