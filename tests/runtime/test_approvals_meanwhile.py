"""Approvals that arrive while a run is resumed, pauses, or waits at a gate: one ask, one effect."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, replay, resume, tool
from plait.policy import Ask, Policy
from plait.tool import Tool
from tests.support import kinds, parked_session

CLASSES = ["at_most_once", "idempotent"]


class Person:
    """A thread from before any run: it may decide while a run goes on."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:
                self._done.put(error)
            else:
                self._done.put(None)

    def do(self, job: Callable[[], object]) -> None:
        self._jobs.put(job)
        error = self._done.get(timeout=60)
        if error is not None:
            raise error

    def leave(self) -> None:
        self._jobs.put(None)
        self._thread.join()


@pytest.fixture
def person() -> Iterator[Person]:
    person = Person()
    yield person
    person.leave()


class Pays(Workflow):
    """Looks, and then wires money with consent."""

    policy = Policy(Ask("wire"))

    def __init__(self, effect: str) -> None:
        self.ran: list[int] = []
        self.before: Callable[[], object] | None = None  # called right before the money is wired
        ran = self.ran

        @tool(effect=effect, version="1")  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
        def wire(amount: int) -> str:
            """Wire."""
            ran.append(amount)
            return "wired"

        @tool(effect="pure")
        def look() -> str:
            """Look."""
            return "seen"

        self._wire: Tool[..., Any] = wire  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
        self._look = look

    def forward(self, session: Session) -> Session:
        session = session.use(self._look)
        if self.before is not None:
            job, self.before = self.before, None
            job()
        return session.use(self._wire, amount=5)


@pytest.mark.parametrize("effect", CLASSES)
def test_a_verdict_and_an_approval_that_come_while_the_run_begins_to_wait(
    effect: str, person: Person
) -> None:
    program = Pays(effect)
    session = parked_session(lambda: program(Session("go", store="memory:")))
    (ask,) = session.inbox.waiting
    session.checks.require("tests", actor="human:ann")
    came: list[str] = []

    def decide() -> None:
        session.reload().checks.record("tests", True, actor="human:ann")
        session.inbox.approve(ask, actor="human:ann")

    def on_event(event: Any) -> None:
        if getattr(event, "kind", "") == "VerdictAwaited" and not came:
            came.append(event.kind)
            person.do(decide)

    session = resume(session, program, on_event=on_event)
    assert came and program.ran == [5]
    assert kinds(session.reload()).count("ApprovalRequested") == 1
    assert replay(session, program).head == session.head


@pytest.mark.parametrize("effect", CLASSES)
def test_an_approval_with_a_pause_runs_the_call_once_after_it(effect: str, person: Person) -> None:
    program = Pays(effect)
    session = parked_session(lambda: program(Session("go", store="memory:")))
    (ask,) = session.inbox.waiting

    def decide() -> None:
        session.inbox.approve(ask, actor="human:ann")
        session.pause(reason="lunch", actor="human:ann")

    program.before = lambda: person.do(decide)
    session = parked_session(lambda: resume(session, program))
    assert program.ran == []
    session = resume(session, program)
    assert program.ran == [5] and "ToolUnknown" not in kinds(session.reload())
    assert replay(session, program).head == session.head


@pytest.mark.parametrize("effect", CLASSES)
def test_an_approval_that_comes_before_a_gate_is_met_counts_after_it(
    effect: str, person: Person
) -> None:
    program = Pays(effect)
    session = parked_session(lambda: program(Session("go", store="memory:")))
    (ask,) = session.inbox.waiting

    def decide() -> None:
        session.checks.require("tests", actor="human:ann")
        session.inbox.approve(ask, actor="human:ann")

    program.before = lambda: person.do(decide)
    session = parked_session(lambda: resume(session, program))
    session = parked_session(lambda: resume(session, program))  # the gate holds in every process
    assert program.ran == []
    session.checks.record("tests", True, actor="human:ann")
    session = resume(session, program)
    assert program.ran == [5] and "ToolUnknown" not in kinds(session.reload())
    assert replay(session, program).head == session.head


def test_a_process_that_dies_after_the_pause_leaves_the_call_in_doubt(person: Person) -> None:
    program = Pays("at_most_once")
    session = parked_session(lambda: program(Session("go", store="memory:")))
    (ask,) = session.inbox.waiting

    def decide() -> None:
        session.inbox.approve(ask, actor="human:ann")
        session.pause(reason="lunch", actor="human:ann")

    program.before = lambda: person.do(decide)
    session = parked_session(lambda: resume(session, program))
    ran = program.ran

    class Ends(list[int]):
        def append(self, amount: int, /) -> None:
            ran.append(amount)
            raise KeyboardInterrupt

    cells = program._wire.function.__closure__  # pyright: ignore[reportPrivateUsage, reportFunctionMemberAccess]
    assert cells is not None
    cells[0].cell_contents = Ends()
    with pytest.raises(KeyboardInterrupt):
        resume(session, program)
    cells[0].cell_contents = ran
    session = parked_session(lambda: resume(session.reload(), program))
    assert ran == [5] and "ToolUnknown" in kinds(session.reload())


def test_a_gate_required_from_outside_holds_in_every_process() -> None:
    program = Pays("idempotent")
    session = parked_session(lambda: program(Session("go", store="memory:")))
    (ask,) = session.inbox.waiting
    session.checks.require("tests", actor="human:ann")
    session = parked_session(lambda: resume(session, program))
    session.inbox.approve(ask, actor="human:ann")
    session = parked_session(lambda: resume(session, program))
    assert program.ran == [] and "tests" in session.reload().checks.unmet


def test_an_approval_that_comes_while_another_call_runs(person: Person) -> None:
    ran: list[int] = []
    jobs: list[Callable[[], object]] = []

    @tool(version="1")
    def wire(amount: int) -> str:
        """Wire."""
        ran.append(amount)
        if jobs:
            person.do(jobs.pop())
        return "wired"

    calls = [ToolCall("wire", amount=1), ToolCall("wire", amount=2)]
    clerk = Agent(
        "Pay.", model=ScriptedModel([calls, "done"]), tools=[wire], policy=Policy(Ask("wire"))
    )
    session = parked_session(lambda: clerk(Session("go", store="memory:")))
    first, second = session.inbox.waiting
    session.inbox.approve(first, actor="human:ann")
    jobs.append(lambda: session.inbox.approve(second, actor="human:ann"))
    session = resume(session, clerk)
    assert ran == [1, 2] and session.text == "done"
    assert replay(session, clerk).head == session.head


def test_a_parked_session_shows_what_its_branches_wait_for_after_a_resume() -> None:
    @tool(effect="pure")
    def wire() -> str:
        """Wire."""
        return "wired"

    class InBranch(Workflow):
        policy = Policy(Ask("wire"))

        def forward(self, session: Session) -> Session:
            return session.merge(session.fork("pay").use(wire))

    program = InBranch()
    session = parked_session(lambda: program(Session("go", store="memory:")))
    assert len(session.inbox.waiting) == 1
    session = parked_session(lambda: resume(session, program))
    assert len(session.inbox.waiting) == 1
