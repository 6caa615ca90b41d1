"""A run's own session value in the hands of another thread: what it does goes to the inbox or is
refused, and the run goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Event, Thread
from typing import Any

import pytest

from plait import Agent, Parallel, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.errors import PlaitError, RunOpen
from plait.runs.replay import replay
from plait.runs.resume import resume
from tests.runtime.programs import Steps, look
from tests.runtime.test_open_runs import DECISIONS, OF_ROOTS, STOPS, VERBS, verbs

Deed = Callable[[], object]


def in_thread(deed: Deed) -> None:
    thread = Thread(target=deed)
    thread.start()
    thread.join()


def in_pool(deed: Deed) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(deed).result()


def with_context(deed: Deed) -> None:
    """As `asyncio.to_thread` does it."""
    context = copy_context()
    in_thread(lambda: context.run(deed))


WAYS = {"thread": in_thread, "pool": in_pool, "context": with_context}
ways = pytest.mark.parametrize("way", WAYS)


class AsyncSteps(Steps):
    async def forward(self, session: Session) -> Session:  # pyright: ignore[reportIncompatibleMethodOverride]
        session = session.fact("known", 1).todo("work", key="work")
        self._deed(session)
        return await self.agent.acall(session.note("between two steps of its own"))


def test_every_verb_is_tried_here() -> None:
    assert verbs() == set(VERBS)


@ways
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in (*STOPS, "unpause")])
def test_a_verb_from_another_thread_never_makes_the_run_fail(verb: str, way: str) -> None:
    failures: list[PlaitError] = []

    def deed(session: Session) -> None:
        def act() -> None:
            try:
                after = VERBS[verb][1](session)
            except PlaitError as error:
                failures.append(error)
            else:
                assert VERBS[verb][0] == "apart" or after is session

        WAYS[way](act)

    done = Steps(deed)(Session("go", store="memory:"))
    assert done.runs[-1].status == "finished" and done.text == "went on"
    is_refused = VERBS[verb][0] == "refused" or verb in (*DECISIONS, *OF_ROOTS)
    assert bool(failures) == is_refused
    assert replay(done, Steps()).head == done.head


@ways
@pytest.mark.parametrize("verb", STOPS)
def test_what_stops_the_run_stops_it_and_does_not_fail_it(verb: str, way: str) -> None:
    session = Session("go", store="memory:")
    with pytest.raises(BaseException, match=r"paused|cancelled|is required first"):
        Steps(lambda at: WAYS[way](lambda: VERBS[verb][1](at)))(session)
    assert session.reload().runs[-1].status != "failed"


@ways
def test_the_error_names_the_word_to_use(way: str) -> None:
    failures: list[str] = []

    def deed(session: Session) -> None:
        def act() -> None:
            with pytest.raises(RunOpen) as caught:
                session.use(look)
            failures.append(str(caught.value))

        WAYS[way](act)

    Steps(deed)(Session("go", store="memory:"))
    assert "another thread" in failures[0] and "session.fork().use(…)" in failures[0]


def says(session: Session, way: str = "thread") -> None:
    WAYS[way](lambda: session.say("from a thread"))


@ways
@pytest.mark.parametrize("made", [Steps, AsyncSteps])
@pytest.mark.parametrize("called", ["blocking", "acall"])
def test_what_a_thread_says_is_heard(way: str, made: type[Steps], called: str) -> None:
    workflow, session = made(lambda at: says(at, way)), Session("go", store="memory:")
    done = workflow(session) if called == "blocking" else asyncio.run(workflow.acall(session))
    assert [message.text for message in done.messages] == ["go", "from a thread", "went on"]
    assert done.messages[1].actor.startswith("service:")
    assert replay(done, made(lambda at: says(at, way))).head == done.head
    assert len(done.inbox.events) == 1


def test_from_to_thread_too() -> None:
    class Aside(Steps):
        async def forward(self, session: Session) -> Session:  # pyright: ignore[reportIncompatibleMethodOverride]
            await asyncio.to_thread(session.say, "from a thread")
            return await self.agent.acall(session.note("one step"))

    done = Aside()(Session("go", store="memory:"))
    assert done.text == "went on" and len(done.inbox.events) == 1


def test_a_value_that_a_thread_reloads_is_the_run_s_all_the_same() -> None:
    done = Steps(lambda at: in_thread(lambda: at.reload().say("from a thread")))(
        Session("go", store="memory:")
    )
    assert done.text == "went on" and len(done.inbox.events) == 1


class Fails(Steps):
    """Says something from a thread, and fails once after that."""

    def __init__(self, failures: list[int]) -> None:
        super().__init__(says)
        self._failures = failures

    def forward(self, session: Session) -> Session:
        session = super().forward(session)
        says(session)
        if self._failures:
            raise RuntimeError(self._failures.pop())
        return session.note("the end")


def test_a_run_that_is_taken_up_again_does_not_say_it_twice() -> None:
    failures, session = [1], Session("go", store="memory:")
    with pytest.raises(RuntimeError):
        Fails(failures)(session)
    done = resume(session, Fails(failures))
    assert done.runs[-1].status == "finished" and len(done.inbox.events) == 2
    assert replay(done, Fails([])).head == done.head and len(done.inbox.events) == 2


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def test_a_tool_s_thread_that_goes_on_after_the_tool_disturbs_nobody() -> None:
    go, said = Event(), Event()

    @tool
    def starts(session: Session) -> str:
        def late() -> None:
            go.wait()
            session.reload().say("late")
            said.set()

        Thread(target=late, daemon=True).start()
        return "started"

    class Goes(Workflow):
        def __init__(self) -> None:
            self.agent = Agent(
                "Go on.", model=ScriptedModel([ToolCall("starts"), "went on"]), tools=[starts]
            )

        def forward(self, session: Session) -> Session:
            session = self.agent(session)
            go.set()
            said.wait()
            return session.note("one more step")

    done = Goes()(Session("go", store="memory:"))
    assert done.runs[-1].status == "finished" and len(done.inbox.events) == 1


def test_a_tool_that_acts_on_the_session_it_is_handed_appends_as_before() -> None:
    @tool
    def notes(session: Session) -> str:
        session.note("by the tool")
        return "noted"

    done = Agent("Go on.", model=ScriptedModel([ToolCall("notes"), "went on"]), tools=[notes])(
        Session("go", store="memory:")
    )
    assert done.text == "went on" and done.inbox.events == []


@pytest.mark.parametrize("limit", [None, 60.0])
def test_a_tool_that_acts_on_its_caller_s_value_disturbs_nobody(limit: float | None) -> None:
    kept: list[Session] = []

    @tool(timeout_s=limit)
    def notes() -> str:
        kept[0].reload().note("by the tool")
        return "noted"

    class Keeps(Workflow):
        def forward(self, session: Session) -> Session:
            kept[:] = [session]
            return session.use(notes).note("one more step")

    assert Keeps()(Session("go", store="memory:")).runs[-1].status == "finished"


# ── what threads may do ──────────────────────────────────────────────────────────────────────


def test_a_thread_works_in_a_fork_as_before() -> None:
    class Forks(Workflow):
        def forward(self, session: Session) -> Session:
            branch = session.fork("side")
            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(lambda: branch.fact("side", 1).use(look)).result()
            return session.merge(done)

    done = Forks()(Session("go", store="memory:"))
    assert done.facts["side"] == 1 and replay(done, Forks()).head == done.head


def test_a_thread_calls_a_workflow_as_before() -> None:
    class Calls(Steps):
        def forward(self, session: Session) -> Session:
            found: list[Session] = []
            in_thread(lambda: found.append(self.agent(session)))
            return found[0].note("with what the thread made of it")

    done = Calls()(Session("go", store="memory:"))
    assert done.text == "went on" and replay(done, Calls()).head == done.head


def test_branches_of_a_parallel_append_as_before() -> None:
    both: Any = Parallel(a=Steps(), b=Steps())
    for done in (
        both(Session("go", store="memory:")),
        asyncio.run(both.acall(Session("go", store="memory:"))),
    ):
        assert done.runs[-1].status == "finished" and done.inbox.events == []


def test_a_branch_that_writes_to_what_it_was_forked_from_disturbs_nobody() -> None:
    kept: list[Session] = []

    class Writes(Workflow):
        def forward(self, session: Session) -> Session:
            kept[0].reload().say("from a branch")
            return session.fact("branch", 1)

    class Keeps(Workflow):
        def __init__(self) -> None:
            self.both = Parallel(a=Writes(), b=Steps())

        def forward(self, session: Session) -> Session:
            kept[:] = [session]
            return self.both(session).note("one more step")

    done = Keeps()(Session("go", store="memory:"))
    assert done.runs[-1].status == "finished" and len(done.inbox.events) == 1
