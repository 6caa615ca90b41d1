"""Timers, signals, gates, and what others want of a run: cancel, pause, send; tools that take too
long.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from plait import (
    Agent,
    Cancelled,
    Parallel,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    open_store,
    replay,
    resume,
    tool,
)
from plait.errors import GateUnmet, NoRun, ToolFailed
from plait.event.kinds import MessageSaid, ModelAsked, RunCancelled, TimerFired, TimerSet
from plait.ids import LogId, Micros
from plait.journal.writer import direct_writer
from plait.session import verify
from plait.session.inbox import due_sessions
from plait.session.value import open_run_of
from tests.support import RAN, assert_replays, bodies, events_of, parked_session, set_clock_ahead


@tool(effect="pure")
def look(n: int = 0) -> int:
    """Look at something."""
    RAN.append(n)
    return n


def sound(session: Session) -> None:
    assert list(verify(open_store(session.store), state=True)) == []


def now(session: Session) -> Micros:
    return direct_writer().source(session.store).now(session.id, 0)


# ── timers ───────────────────────────────────────────────────────────────────────────────────


class Sleeps(Workflow):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def forward(self, session: Session) -> Session:
        return session.sleep(self._seconds).use(look, n=1)


def test_a_short_sleep_is_slept_in_place() -> None:
    session = Sleeps(0.05)(Session("go"))
    assert RAN == [1]
    (timer,), (fired,) = bodies(session, TimerSet), events_of(session, TimerFired)
    assert [each.by for each in bodies(session, TimerFired)] == ["time"]
    assert fired.time >= timer.until
    assert_replays(session, Sleeps(0.05))


def test_a_long_sleep_is_a_row_and_fires_once() -> None:
    session = parked_session(lambda: Sleeps(3600)(Session("go")))
    assert (session.status, [each.kind for each in session.inbox.waiting], RAN) == (
        "waiting",
        ["timer"],
        [],
    )
    store = open_store(session.store)
    assert due_sessions(store, now(session)) == [] and due_sessions(
        store, session.inbox.waiting[0].until or 0
    ) == [session.id]
    for _ in range(2):  # before its time: nothing is set again
        session = parked_session(lambda: resume(session, Sleeps(3600)))  # noqa: B023
        assert len(bodies(session, TimerSet)) == 1
    set_clock_ahead(session, 4000)
    assert due_sessions(store, now(session)) == [session.id]
    session = resume(session, Sleeps(3600))
    assert RAN == [1] and len(bodies(session, TimerFired)) == 1 and due_sessions(store, 2**60) == []
    again = resume(session, Sleeps(3600))
    assert again.head == session.head and RAN == [1] and len(bodies(again, TimerFired)) == 1
    assert_replays(session, Sleeps(3600))


class Waits(Workflow):
    def __init__(self, timeout_s: float | None = None, first: bool = False) -> None:
        self._timeout_s, self._first = timeout_s, first

    def forward(self, session: Session) -> Session:
        if self._first:
            session = session.use(look, n=0)
        session = session.wait_for("deployed", self._timeout_s)
        return session.fact("came", {"value": session.result})


def test_a_signal_ends_the_wait_and_its_value_is_the_result() -> None:
    session = parked_session(lambda: Waits()(Session("go")))
    session.inbox.signal("something else", 0)
    session = parked_session(lambda: resume(session, Waits()))
    session = resume(session.inbox.signal("deployed", {"ok": [1]}), Waits())
    assert session.facts["came"] == {"value": {"ok": [1]}} and [
        each.by for each in bodies(session, TimerFired)
    ] == ["event"]
    assert_replays(session, Waits())


def test_a_signal_that_comes_before_it_is_waited_for() -> None:
    class Early(Waits):
        def forward(self, session: Session) -> Session:
            session = session.use(look, n=0)
            Session.open(session.id).inbox.signal("deployed", "early") if RAN.count(
                "sent"
            ) == 0 else None
            RAN.append("sent")
            return super().forward(session)

    session = Early()(Session("go"))
    assert session.facts["came"] == {"value": "early"}
    same_head = replay(session, Early())
    assert same_head.head == session.head


def test_nobody_signals_in_time() -> None:
    session = parked_session(lambda: Waits(50)(Session("go")))
    session = parked_session(lambda: resume(session, Waits(50)))
    set_clock_ahead(session, 60)
    session = resume(session, Waits(50))
    assert session.facts["came"] == {"value": None} and [
        each.by for each in bodies(session, TimerFired)
    ] == ["time"]
    assert_replays(session, Waits(50))


class Twice(Workflow):
    def forward(self, session: Session) -> Session:
        for n in range(2):
            session = session.wait_for("go")
            session = session.fact(f"n{n}", session.result)
        return session


def test_a_signal_is_heard_once() -> None:
    session = parked_session(lambda: Twice()(Session("go")))
    session = parked_session(lambda: resume(session.inbox.signal("go", 1), Twice()))
    assert dict(session.facts) == {"n0": 1}
    session = resume(session.inbox.signal("go", 2), Twice())
    assert dict(session.facts) == {"n0": 1, "n1": 2}
    assert_replays(session, Twice())


def test_outside_of_a_run_nobody_waits() -> None:
    session = Session("go")
    for wait in (
        lambda: session.sleep(1),
        lambda: session.wait_for("x"),
        lambda: session.ask("why?"),
    ):
        with pytest.raises(NoRun):
            wait()
    assert session.reload().head == session.head


# ── gates ────────────────────────────────────────────────────────────────────────────────────


class Checker(Workflow):
    def forward(self, session: Session) -> Session:
        return session.use(look, n=7).checks.record("tests", True)


class Gated(Workflow):
    def __init__(self, by: str = "", checks: bool = False) -> None:
        self.worker, self.checker = Agent("Go on.", model=ScriptedModel(["went on"])), Checker()
        self._by, self._checks = by, checks

    def forward(self, session: Session) -> Session:
        session = session.checks.require("tests", by=self._by)
        if self._checks:
            session = self.checker(session)
        return self.worker(session)


def test_a_gate_holds_the_next_effect_until_the_verdict() -> None:
    session = parked_session(lambda: Gated()(Session("go")))
    assert bodies(session, ModelAsked) == []
    session = parked_session(lambda: resume(session, Gated()))
    session = parked_session(
        lambda: resume(session.reload().checks.record("tests", False), Gated())
    )
    assert bodies(session, ModelAsked) == []
    session = resume(session.reload().checks.record("tests", True), Gated())
    assert session.text == "went on"
    assert_replays(session, Gated())


def test_whoever_is_to_judge_may_act() -> None:
    session = Gated("checker", checks=True)(Session("go"))
    assert RAN == [7] and session.text == "went on"
    assert_replays(session, Gated("checker", checks=True))
    held = parked_session(lambda: Gated("somebody", checks=True)(Session("go")))
    assert RAN == [7] and bodies(held, ModelAsked) == []


class Merging(Workflow):
    def forward(self, session: Session) -> Session:
        branch = session.fork("side").fact("done", True).checks.require("review")
        return session.merge(branch)


def test_a_gate_holds_a_merge() -> None:
    session = parked_session(lambda: Merging()(Session("go")))
    assert "done" not in session.facts and open_run_of(session) is not None
    (branch,) = [
        each
        for each in (Session.open(row.id) for row in Session.list())
        if each.lineage.label == "side"
    ]
    branch.checks.record("review", True)
    session = resume(session, Merging())
    assert session.facts["done"] is True
    assert_replays(session, Merging())


def test_outside_of_a_run_an_unmet_gate_raises_and_writes_nothing() -> None:
    session = Session("go")
    branch = session.fork("side").fact("done", True).checks.require("review")
    with pytest.raises(GateUnmet):
        session.merge(branch)
    with pytest.raises(GateUnmet):
        branch.close()
    assert (session.reload().head, branch.reload().head) == (session.head, branch.head)


# ── cancel, pause, send ──────────────────────────────────────────────────────────────────────


class Told(Workflow):
    """Somebody outside does something to it while it runs, once."""

    def __init__(self, act: Callable[[Session], object] = lambda session: None) -> None:
        self.one, self.two = (
            Agent("First.", model=ScriptedModel(["one"])),
            Agent("Second.", model=ScriptedModel(["two"])),
        )
        self._deed = act

    def forward(self, session: Session) -> Session:
        session = self.one(session)
        if "told" not in RAN:
            RAN.append("told")
            self._deed(Session.open(session.id))
        return self.two(session)


def test_what_is_sent_is_heard_at_the_next_safe_point() -> None:
    session = Told(lambda other: other.inbox.send("wait a moment", actor="human:ana"))(
        Session("go")
    )
    assert [each.text for each in session.messages] == ["go", "one", "wait a moment", "two"]
    assert [event.actor for event in session.events if isinstance(event.body, MessageSaid)][
        -1
    ] == "human:ana"
    assert_replays(session, Told())
    sound(session)


def test_what_is_said_directly_is_taken_along() -> None:
    session = Told(lambda other: other.say("by the way"))(Session("go"))
    assert [each.text for each in session.messages] == ["go", "one", "by the way", "two"]
    assert_replays(session, Told())
    sound(session)


def test_a_pause_parks_it_until_it_is_resumed() -> None:
    session = parked_session(lambda: Told(lambda other: other.pause(reason="lunch"))(Session("go")))
    assert session.status == "paused" and [each.text for each in session.messages] == ["go", "one"]
    session = resume(session, Told())
    assert session.status == "finished" and session.text == "two"
    assert_replays(session, Told())
    sound(session)


def _cancelled(call: Callable[[], object], session: Session) -> Session:
    with pytest.raises(Cancelled):
        call()
    session = session.reload()
    assert open_run_of(session) is None and [run.status for run in session.runs][-1:] == [
        "cancelled"
    ]
    sound(session)
    return session


def test_a_cancel_is_heard_before_the_next_effect() -> None:
    start = Session("go")
    session = _cancelled(lambda: Told(lambda other: other.inbox.cancel("enough"))(start), start)
    assert [each.text for each in session.messages] == ["go", "one"] and bodies(
        session, RunCancelled
    )[0].reason == "enough"
    assert_replays(session, Told())
    assert Told()(session.say("on")).text == "two"  # it can be used again


def test_a_cancel_on_an_event_loop() -> None:
    start = Session("go")

    async def go() -> None:
        await Told(lambda other: other.inbox.cancel("enough")).acall(start)

    session = _cancelled(lambda: asyncio.run(go()), start)
    assert [each.text for each in session.messages] == ["go", "one"]


def test_a_cancel_in_a_stream() -> None:
    start = Session("go")
    session = _cancelled(
        lambda: list(Told(lambda other: other.inbox.cancel("enough")).stream(start)), start
    )
    assert [each.text for each in session.messages] == ["go", "one"]


class Branches(Workflow):
    """Two branches wait for each other, then one has the run cancelled; then each would do one
    thing more.
    """

    def __init__(self, act: Callable[[LogId, Session], object]) -> None:
        self.all = Parallel({name: Step(name, act) for name in "ab"})

    def forward(self, session: Session) -> Session:
        RAN.append(session.id)
        return self.all(session)


class Step(Workflow):
    meet = threading.Barrier(2)

    def __init__(self, name: str, act: Callable[[LogId, Session], object]) -> None:
        self._name, self._deed = name, act

    def forward(self, session: Session) -> Session:
        session = session.use(look, n=1)
        self.meet.wait(10)
        if self._name == "a":
            self._deed(next(LogId(each) for each in RAN if isinstance(each, str)), session)
        self.meet.wait(10)
        return session.use(look, n=2).say(f"{self._name} is done")


def test_a_cancel_reaches_every_branch() -> None:
    start = Session("go")
    _cancelled(
        lambda: Branches(lambda root, session: Session.open(root).inbox.cancel("enough"))(start),
        start,
    )
    assert RAN.count(1) == 2 and RAN.count(2) == 0


def test_a_branch_is_sent_something() -> None:
    session = Branches(lambda root, session: Session.open(session.id).inbox.send("to a alone"))(
        Session("go")
    )
    assert [each.text for each in session.messages] == [
        "go",
        "to a alone",
        "a is done",
        "b is done",
    ]
    sound(session)


def test_a_run_that_nobody_holds_is_cancelled_at_once() -> None:
    session = parked_session(lambda: Sleeps(3600)(Session("go")))
    session.inbox.cancel("never mind", actor="human:ana")
    session = session.reload()
    assert (
        open_run_of(session) is None
        and session.status == "cancelled"
        and session.inbox.waiting == []
    )
    assert [run.status for run in session.runs] == ["cancelled"] and due_sessions(
        open_store(session.store), 2**60
    ) == []
    sound(session)
    assert RAN == []


# ── tools that take too long ─────────────────────────────────────────────────────────────────


def _slow(how: str) -> Any:
    let_go = threading.Event()

    @tool(timeout_s=0.05)
    def plain() -> str:
        """Take long."""
        let_go.wait(20)
        return "late"

    @tool(timeout_s=0.05)
    async def later() -> str:
        """Take long."""
        await asyncio.sleep(20)
        return "late"

    return (later if how == "async" else plain), let_go


@pytest.mark.parametrize("how", ["plain", "async"])
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("loop", [False, True])
def test_a_tool_that_takes_too_long_is_told_as_that(how: str, calls: int, loop: bool) -> None:
    slow, let_go = _slow(how)
    agent = Agent(
        "Try.", model=ScriptedModel([[ToolCall(slow.name)] * calls, "gave up"]), tools=[slow]
    )
    try:
        session = asyncio.run(agent.acall(Session("go"))) if loop else agent(Session("go"))
    finally:
        let_go.set()
    assert session.text == "gave up"
    assert [each.failure and each.failure.kind for each in session.effects] == ["TimedOut"] * calls
    assert_replays(session, agent)


def test_a_tool_of_the_program_that_takes_too_long() -> None:
    slow, let_go = _slow("plain")
    with pytest.raises(ToolFailed, match="TimedOut"):
        Session("go").use(slow)
    let_go.set()
