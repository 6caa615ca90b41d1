"""Runs that are left while threads of their program are on the way to their next event."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread, current_thread, main_thread
from typing import Any

import pytest

from plait import (
    Agent,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    open_store,
    replay,
    resume,
    tool,
)
from plait.journal.journal import Journal
from plait.runtime import ask_model, run_tools
from plait.session import verify
from plait.session.ports import Draft, Position
from tests.support.interrupting import InterruptedLines, PausedThread

FILES = ("/plait/runtime/", "/plait/journal/", "/plait/session/ports.py")
STRIDE = 29  # of the lines: every one of them takes minutes
STORE = "memory:left-runs"
FIRST_KINDS = ["SessionOpened", "MessageSaid", "RunStarted", "CallStarted"]


@tool(effect="pure")
def look(name: str) -> str:
    """Look something up."""
    return name


class Strategy(Workflow):
    """Comes to events of many kinds, in a branch."""

    def __init__(self) -> None:
        model = ScriptedModel([ToolCall("look", name="a"), "done"])
        self.coder = Agent("Do it.", model=model, tools=[look])

    def forward(self, session: Session) -> Session:
        session = self.coder(session).fact("mended", True)
        session = session.use(look, name="b")
        return session.decide("outcome", "fine")


class Pool(Workflow):
    """Works in branches, each in a thread of its own, and may be left when all are paused."""

    def __init__(self, branches: int) -> None:
        self.first, self.second = Strategy(), Strategy()
        self.branches = branches
        self.pauses: list[PausedThread] = []
        self.threads: list[Thread] = []
        self.way = ""  # how it is left; "": not at all

    def forward(self, session: Session) -> Session:
        strategies = [self.first, self.second][: self.branches]
        ends = [session.fork(f"b{at}") for at in range(self.branches)]
        if not self.pauses:
            return session.merge(*[each(end) for each, end in zip(strategies, ends, strict=True)])

        def work(at: int) -> None:
            ends[at] = strategies[at](ends[at])

        def run_traced(at: int, pause: PausedThread) -> None:
            suppressed(lambda: pause.run(lambda: work(at)))

        self.threads = [Thread(target=run_traced, args=each) for each in enumerate(self.pauses)]
        for thread in self.threads:
            thread.start()
        for pause in self.pauses:
            assert pause.is_paused.wait(60)
        if self.way == "ctrl-c":
            signal.raise_signal(signal.SIGINT)
        if self.way:
            raise KeyboardInterrupt
        self.wait_for_threads()
        return session.merge(*ends)

    def wait_for_threads(self) -> None:
        for pause in self.pauses:
            pause.may_go_on.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize(("way", "branches"), [("ctrl-c", 1), ("ctrl-c", 2), ("other", 1)])
def test_a_run_that_is_left_while_a_thread_is_between_any_two_lines(
    way: str, branches: int
) -> None:
    program = Pool(branches)
    program.pauses = [PausedThread(0, *FILES) for _ in range(branches)]
    whole = program(Session("go", store=open_store(STORE)))
    count = program.pauses[0].count
    assert count > 1000
    for pause_at in range(1, count, STRIDE * branches):
        program = Pool(branches)
        program.way = way
        program.pauses = [PausedThread(pause_at, *FILES) for _ in range(branches)]
        session = Session("go", store=open_store(STORE))
        with pytest.raises(KeyboardInterrupt):
            program(session)
        program.wait_for_threads()
        where = [pause.where for pause in program.pauses]
        program.pauses = []
        done = resume(session.reload(), program)
        assert [each.tool for each in done.effects] == [each.tool for each in whole.effects], where
        assert dict(done.facts) == dict(whole.facts) and done.status == "finished", where
        assert replay(done, program).head == done.head, where
    assert list(verify(open_store(STORE), state=True)) == []


def test_an_ask_that_is_about_to_be_written_when_its_run_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is written after the calls that it is made in, or not at all."""
    about_to, left = Event(), Event()
    record = ask_model.ModelAsk._record_attempt  # pyright: ignore[reportPrivateUsage]

    def record_when_left(*args: Any) -> None:
        about_to.set()
        assert left.wait(60)
        record(*args)

    class Asks(Workflow):
        def __init__(self) -> None:
            self.agent = Agent("Answer.", model=ScriptedModel(["hello"]))
            self.thread: Thread | None = None

        def forward(self, session: Session) -> Session:
            branch = session.fork("b")
            if left.is_set():
                return session.merge(self.agent(branch))
            self.thread = Thread(target=lambda: suppressed(lambda: self.agent(branch)))
            self.thread.start()
            assert about_to.wait(60)
            signal.raise_signal(signal.SIGINT)
            return session

    program, session = Asks(), Session("go", store="memory:")
    with monkeypatch.context() as patched:
        patched.setattr(ask_model.ModelAsk, "_record_attempt", record_when_left)
        with pytest.raises(KeyboardInterrupt):
            program(session)
        left.set()
        assert program.thread is not None
        program.thread.join()
    done = resume(session.reload(), program)
    assert replay(done, program).head == done.head


def test_a_tool_that_ctrl_c_stops_right_before_it_runs_is_run_by_a_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_job = run_tools._job  # pyright: ignore[reportPrivateUsage]

    def interrupt(*args: Any) -> Any:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return make_job(*args)

    class Uses(Workflow):
        def forward(self, session: Session) -> Session:
            return session.use(look, name="a")

    session = Session("go", store="memory:")
    with monkeypatch.context() as patched:
        patched.setattr(run_tools, "_job", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Uses()(session)
    assert session.reload().effects[-1].failure is not None
    done = resume(session.reload(), Uses())
    assert done.result == "a" and replay(done, Uses()).head == done.head


def test_a_run_that_fails_leaves_a_branch_to_the_thread_that_works_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread writes to the branch at the very time at which the run is ended."""
    has_entered, is_ending = Event(), Event()
    append = Journal._append  # pyright: ignore[reportPrivateUsage]

    def append_after_thread(
        self: Journal, at: Position, drafts: Sequence[Draft], *rest: Any
    ) -> Any:
        if current_thread() is main_thread() and has_entered.is_set() and not is_ending.is_set():
            is_ending.set()
            assert program.thread is not None
            program.thread.join()
        return append(self, at, drafts, *rest)

    class Notes(Workflow):
        def forward(self, session: Session) -> Session:
            has_entered.set()
            assert is_ending.wait(60)
            return session.fact("noted", True)

    class Fails(Workflow):
        def __init__(self) -> None:
            self.notes = Notes()
            self.thread: Thread | None = None

        def forward(self, session: Session) -> Session:
            branch = session.fork("b")
            if self.thread is not None:
                return session.merge(self.notes(branch))
            self.thread = Thread(target=lambda: suppressed(lambda: self.notes(branch)))
            self.thread.start()
            assert has_entered.wait(60)
            raise ValueError("no")

    program, session = Fails(), Session("go", store="memory:")
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_append", append_after_thread)
        with pytest.raises(ValueError, match="no"):
            program(session)
    done = resume(session.reload(), program)
    assert done.facts["noted"] is True and replay(done, program).head == done.head


@pytest.mark.parametrize("is_caught", [True, False])
def test_ctrl_c_between_any_two_lines_of_an_append_loses_nothing_that_waits(
    is_caught: bool,
) -> None:
    """The program goes on with the value before, if nothing was written yet."""

    class Notes(Workflow):
        def __init__(self, stop_at: int) -> None:
            self.lines = InterruptedLines(stop_at, "/journal/journal.py")

        def forward(self, session: Session) -> Session:
            try:
                with self.lines:
                    return session.fact("first", 1)
            except KeyboardInterrupt:
                if not is_caught:
                    raise
                self.lines = InterruptedLines(0)
                return session.reload().fact("second", 2)

    program = Notes(0)
    program(Session("go", store="memory:"))
    count, caught = program.lines.count, list[str]()
    assert count > 20
    for stop_at in range(1, count + 1):
        program, session = Notes(stop_at), Session("go", store="memory:")
        where = program.lines
        try:
            done = program(session)
        except KeyboardInterrupt:
            program.lines = InterruptedLines(0)
            done = resume(session.reload(), program)
        assert where.is_stopped
        kinds = [event.kind for event in done.events if event.kind != "RunResumed"]
        assert kinds[:4] == ["SessionOpened", "MessageSaid", "RunStarted", "CallStarted"], (
            where.where
        )
        caught += [key for key in done.facts if key == "second"]
        if "second" not in done.facts:
            assert replay(done, program).head == done.head, where.where
    assert bool(caught) is is_caught


def suppressed(work: Callable[[], object]) -> None:
    with suppress(BaseException):
        work()
