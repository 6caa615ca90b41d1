"""The last outcome of a reply is written with the next ask: once, whatever interrupts it."""

from __future__ import annotations

import linecache
import sys
from types import FrameType
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, open_store, resume, tool
from plait.runtime import ask_model, effect_loop, unwritten
from tests.support import kinds

MODULES = {str(module.__file__) for module in (ask_model, effect_loop, unwritten)}


@tool(effect="at_most_once")
def pay(n: int) -> int:
    """Pay."""
    return n


def agent() -> Agent:
    return Agent("x", model=ScriptedModel([ToolCall("pay", n=1), "done"]), tools=[pay])


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line that is executed after the tool has returned, in
    the modules that know of unwritten outcomes.
    """

    def __init__(self, at: int) -> None:
        self.at, self.lines, self._is_armed = at, 0, False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_name == "__init__" and frame.f_code.co_filename == unwritten.__file__:
            self._is_armed = True
        return self._trace_line if frame.f_code.co_filename in MODULES else None

    def _trace_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        # no signal is heard at a `try:` itself, and CPython does not guard it by an outer one
        is_try = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() == "try:"
        if event == "line" and self._is_armed and not is_try:
            self.lines += 1
            if self.lines == self.at:
                raise KeyboardInterrupt
        return self._trace_line


def run_interrupted(session: Session, at: int) -> Interrupt:
    interrupt, before = Interrupt(at), sys.gettrace()
    sys.settrace(interrupt)
    try:
        agent()(session)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupt


def test_interrupted_at_any_line_the_outcome_is_written_once() -> None:
    lines = run_interrupted(Session("go", store="memory:"), 0).lines
    assert lines > 60
    for at in range(4, lines + 1):  # the first lines are still those of the constructor
        session = Session("go", store="memory:")
        run_interrupted(session, at)
        assert kinds(session.reload()).count("ToolReturned") == 1, at
        if session.reload().status != "open":  # it goes on from there, and pays no second time
            assert resume(session.reload(), agent()).text == "done"
            assert kinds(session.reload()).count("ToolReturned") == 1, at


def test_the_outcome_and_the_next_ask_are_one_append(monkeypatch: pytest.MonkeyPatch) -> None:
    appends: list[list[str]] = []
    store = open_store("memory:")
    write = type(store).append

    def noted(self: Any, log: Any, events: Any, **kwargs: Any) -> Any:
        appends.append([event.kind for event in events])
        return write(self, log, events, **kwargs)

    monkeypatch.setattr(type(store), "append", noted)
    agent()(Session("go", store=store))
    assert ["ToolReturned", "ModelAsked"] in appends
