"""Streams that are closed before their end: by their reader, and by the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from plait import Agent, Session, ToolCall, streaming, tool
from plait.runtime.registry import run_of
from plait.store.process import STORES
from tests.support import kinds, wait_until
from tests.support.models import scripted_model

PATIENCE_S = 60.0  # until a test is given up


class HeldStream:
    """A stream of an agent whose tool has begun. The tool goes on when it may, and needs the lock
    that a thread has while it opens a store.
    """

    def __init__(self) -> None:
        begun, self.may_go_on, self.runs = Event(), Event(), list[Any]()

        @tool
        def look(session: Session) -> str:
            """Look up something in another store."""
            self.runs.append(run_of(session))
            begun.set()
            assert self.may_go_on.wait(PATIENCE_S)
            gc.collect()
            with STORES.opening:
                return "found"

        model = scripted_model(ToolCall("look"), ToolCall("look"), "done")
        self.session = Session("go")
        self.items: Iterator[Any] | None
        self.items = Agent("Look.", model=model, tools=[look]).stream(self.session, events=True)
        next(self.items)
        assert begun.wait(PATIENCE_S)

    def leave_in_circle(self) -> None:
        """Drop the stream so that only the garbage collector finds it."""
        circle: list[Any] = [self.items]
        circle.append(circle)
        self.items = None

    def check_end(self) -> None:
        """Check that the run ends by itself, after one call of the tool, and that the branch is
        stopped no more.
        """
        (run,) = self.runs
        wait_until(lambda: kinds(self.session.reload())[-1] == "RunCancelled")
        assert kinds(self.session.reload()).count("ToolReturned") == 1
        wait_until(lambda: not run.stops.is_stopped(self.session.id))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldStream:
    # so that a stream which waits where it must not is found out
    monkeypatch.setattr(streaming, "_CLOSE_S", 60 * PATIENCE_S)
    return HeldStream()


def test_a_collector_in_a_thread_with_a_lock_does_not_wait_for_a_stream(held: HeldStream) -> None:
    with STORES.opening:
        held.may_go_on.set()
        held.leave_in_circle()
        gc.collect()
    held.check_end()


def test_a_collector_in_the_thread_of_a_stream_does_not_wait_for_it(held: HeldStream) -> None:
    held.leave_in_circle()
    held.may_go_on.set()
    held.check_end()


def test_a_reader_with_a_lock_does_not_wait_for_ever(
    held: HeldStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_CLOSE_S", 0.0)
    with STORES.opening:
        held.may_go_on.set()
        held.items = None  # the last reference
    held.check_end()


def test_a_reader_that_leaves_waits_for_the_work(held: HeldStream) -> None:
    held.may_go_on.set()
    held.items = None
    assert kinds(held.session.reload())[-1] == "RunCancelled"
    held.check_end()
