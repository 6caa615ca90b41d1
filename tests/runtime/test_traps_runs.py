"""The traps that others fell into, where runs, effects and approvals are concerned: one test each,
or where it stands.

State
- A session and a durable run that do not know each other:
  test_a_run_and_its_session_are_one_record, here; session/test_traps.py.
- A fork shares the parent's mutable payloads; forks share one folder: session/test_traps.py; files
  come with workspaces.
- A merge that concatenates and repeats the common prefix: session/test_traps.py;
  test_branches_of_a_run_are_merged_without_repeating, here.
- Reload loses id, parents and usage; usage and budget reset at each agent hop:
  test_usage_and_budget_go_along_at_every_agent, here; session/test_traps.py.
- Whole-state checkpoints that grow with the square: test_a_run_stores_each_turn_once, here;
  session/test_traps.py.
- Two concurrent invocations both succeed and one write is gone:
  test_of_two_calls_on_one_session_one_is_refused, here; session/test_traps.py,
  faults/test_writers.py. Staleness by timestamps: session/test_traps.py, faults/test_clock.py.
- Locating step k costs seconds; time travel breaks with nesting: session/test_traps.py;
  test_time_travel_within_a_nested_run, here, and test_whatif.py at every place. Replay that
  silently re-executes: test_replay_has_nobody_who_could_execute, here; laws/test_durable_laws.py.
- A run that failed at step 8 of 10 cannot be resumed:
  test_a_run_that_failed_at_step_8_goes_on_from_there, here. A worker without the right code marks
  it failed for good: test_whoever_has_the_wrong_code_does_no_harm, here.
- No lane for a second writer: test_a_second_writer_is_heard_while_the_agent_runs, here;
  test_waiting.py, session/test_inbox.py.
- History that sends the whole conversation to the log at each call:
  test_a_run_stores_each_turn_once, here.

Effects and approvals
- Recovery as a sweep; a payment ran twice after kill -9:
  test_a_payment_that_may_have_happened_is_not_made_again, here; faults/test_kill_forward.py and
  laws/test_durable_laws.py with real and simulated kills at every moment.
- A second approval in the same step inherited the first decision:
  test_reading_the_file_does_not_approve_the_wire, here; test_people.py.
- A zombie worker completed another worker's effect: test_a_zombie_cannot_write, here;
  faults/test_held_runs.py with processes.
- A node's body runs twice around an interrupt:
  test_what_came_before_the_interrupt_is_not_run_again, here.
- SDK-internal retries hide attempts: test_every_attempt_is_on_record, here; providers/ for each
  SDK.
- An agent with `tools=[]` still had shell access: test_an_agent_without_tools_can_do_nothing, here;
  test_people.py.
"""

from __future__ import annotations

import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from plait import (
    Agent,
    Budget,
    Parallel,
    Retry,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    open_store,
    replay,
    resume,
    tool,
    whatif,
)
from plait.errors import PlaitError, ReplayDiverged, RunHeld, RunLost, RunOpen
from plait.event.kinds import ModelAsked, ModelFailed, RunResumed, RunStarted, ToolReturned
from plait.journal.writer import direct_writer
from plait.model.base import Fault
from plait.policy import Ask, Policy
from plait.session import verify
from plait.session.ports import Act, Draft, Position
from plait.session.value import open_run_of
from tests.support import RAN, ask_preview, parked_session, read, scripted_model


@tool
def wire(amount: int) -> str:
    """Wire money."""
    RAN.append(amount)
    return f"wired {amount}"


# ── state ────────────────────────────────────────────────────────────────────────────────────


def test_a_run_and_its_session_are_one_record() -> None:
    agent = Agent("Wire.", model=scripted_model(ToolCall("wire", amount=1), "done"), tools=[wire])
    session = agent(Session("go"))
    known = Session.open(session.id)  # from the log alone
    assert (
        [run.status for run in known.runs] == ["finished"]
        and known.text == "done"
        and known.effects[0].result == "wired 1"
    )
    assert known.budget.usage == session.budget.usage and replay(known, agent).head == known.head
    assert list(verify(open_store(session.store), state=True)) == []


def test_branches_of_a_run_are_merged_without_repeating() -> None:
    both = Parallel(
        a=Agent("A.", model=scripted_model("from a")), b=Agent("B.", model=scripted_model("from b"))
    )
    session = both(Session("go"))
    assert [each.text for each in session.messages] == ["go", "from a", "from b"]


class Hops(Workflow):
    def __init__(self, count: int) -> None:
        self.agents = [
            Agent(f"Agent {n}.", model=scripted_model(f"answer {n}")) for n in range(count)
        ]

    def forward(self, session: Session) -> Session:
        for agent in self.agents:
            before = session.budget.usage.input_tokens
            session = agent(session)
            assert session.budget.usage.input_tokens > before
        return session


def test_usage_and_budget_go_along_at_every_agent() -> None:
    session = Hops(5)(Session("go", budget=Budget(steps_max=8)))
    assert session.budget.left is not None and session.budget.left.steps_max == 3
    again = Session.open(session.id)
    assert (again.budget.usage, again.budget.left, again.id) == (
        session.budget.usage,
        session.budget.left,
        session.id,
    )


def test_a_run_stores_each_turn_once(store: str) -> None:
    """Twice as many model calls take twice the bytes, though each is sent all that went before."""

    def size(steps: int) -> int:
        words = "many words of a long result " * 40

        @tool(effect="pure")
        def search(n: int) -> str:
            """Search."""
            return f"{n}: {words}"

        script = [*(ToolCall("search", n=n) for n in range(steps)), "done"]
        session = Agent(
            "Search.", model=scripted_model(*script), tools=[search], steps_max=steps + 2
        )(Session("go", store="memory:growth"))
        return sum(len(event.content) for event in session.events)

    small, large = size(25), size(100)
    assert large < small * 4.5


def test_of_two_calls_on_one_session_one_is_refused() -> None:
    inside, go_on = threading.Event(), threading.Event()

    @tool
    def hold() -> str:
        """Hold on."""
        inside.set()
        assert go_on.wait(20)
        return "held"

    session = Session("go")
    holder = Agent("Hold.", model=scripted_model(ToolCall("hold"), "done"), tools=[hold])
    done: list[Session] = []
    thread = threading.Thread(target=lambda: done.append(holder(session)))
    thread.start()
    assert inside.wait(20)
    try:
        with pytest.raises(PlaitError):
            # a value from before: somebody else went on
            Agent("Too.", model=scripted_model("me too"))(session)
        with pytest.raises(RunOpen):
            Agent("Too.", model=scripted_model("me too"))(session.reload())
        with pytest.raises(RunHeld):
            resume(session, holder)
    finally:
        go_on.set()
        thread.join(20)
    assert done[0].text == "done" and [each.text for each in done[0].messages if each.text] == [
        "go",
        "done",
    ]


class Nest(Workflow):
    def __init__(self, depth: int) -> None:
        self.inner = Nest(depth - 1) if depth else None
        self.agent = Agent(
            f"At {depth}.",
            model=scripted_model(ToolCall("read", name=f"{depth}"), f"said at {depth}"),
            tools=[read],
        )

    def forward(self, session: Session) -> Session:
        session = self.agent(session)
        return self.inner(session) if self.inner is not None else session


def test_time_travel_within_a_nested_run() -> None:
    session = Nest(4)(Session("go"))
    said = [each for each in session.messages if each.text]
    middle = next(each for each in said if each.text == "said at 2")
    assert [each.text for each in session.at(middle.seq).messages if each.text][-1] == "said at 2"
    other = whatif(
        session,
        Nest(4),
        at=middle.seq,
        model={"inner/inner/inner/agent": scripted_model("x"), "nest": scripted_model("y")},
    )
    assert [each.text for each in other.messages if each.text][:4] == [each.text for each in said][
        :4
    ]
    assert replay(other, Nest(4)).head == other.head and session.reload().head == session.head


def test_replay_has_nobody_who_could_execute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @tool
    def everything(path: str) -> str:
        """Write, run and connect."""
        Path(path).write_text("x")
        subprocess.run(["true"], check=True)
        RAN.append("everything")
        return "done"

    def agent() -> Agent:
        return Agent(
            "Do.",
            model=scripted_model(ToolCall("everything", path=str(tmp_path / "file")), "done"),
            tools=[everything],
        )

    session = agent()(Session("go"))
    (tmp_path / "file").unlink()

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a replay touches nothing")

    for owner, name in (
        (subprocess, "Popen"),
        (socket.socket, "connect"),
        (Path, "write_text"),
        (ScriptedModel, "ask"),
    ):
        monkeypatch.setattr(owner, name, refuse)
    assert replay(session, agent()).head == session.head
    assert RAN == ["everything"] and not (tmp_path / "file").exists()


class Ten(Workflow):
    def __init__(self, broken: bool) -> None:
        self._broken = broken

    def forward(self, session: Session) -> Session:
        for n in range(1, 11):
            if n == 8 and self._broken:
                raise RuntimeError("the disk of step 8 is full")
            session = session.use(wire, amount=n)
        return session


def test_a_run_that_failed_at_step_8_goes_on_from_there() -> None:
    session = Session("go")
    with pytest.raises(RuntimeError):
        Ten(broken=True)(session)
    assert RAN == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(RuntimeError):
        resume(session, Ten(broken=True))  # still broken: it fails again, and harms nothing
    session = resume(session, Ten(broken=False))
    assert list(range(1, 11)) == RAN and [run.status for run in session.runs] == ["finished"]
    assert replay(session, Ten(broken=False)).head == session.head


def test_whoever_has_the_wrong_code_does_no_harm() -> None:
    pay = Agent(
        "Wire.",
        model=scripted_model(ToolCall("wire", amount=1), "done"),
        tools=[wire],
        policy=Policy(Ask("wire")),
        name="payer",
    )
    other = Agent("Something else.", model=scripted_model("nothing"), name="other")
    session = parked_session(lambda: pay(Session("go")))
    session.inbox.approve(session.inbox.waiting[0], actor="human:boss")
    for _ in range(2):
        with pytest.raises(ReplayDiverged):
            resume(session, other)
    assert RAN == [] and open_run_of(session.reload()) is not None
    session = resume(session, pay)
    assert RAN == [1] and session.text == "done"


def test_a_second_writer_is_heard_while_the_agent_runs() -> None:
    session = Session("go")

    @tool
    def listen() -> str:
        """Listen."""
        Session.open(session.id).inbox.send("by the way", actor="human:ana")
        return "listened"

    after = Agent("Listen.", model=scripted_model(ToolCall("listen"), "heard"), tools=[listen])(
        session
    )
    assert [each.text for each in after.messages if each.text] == ["go", "by the way", "heard"]


# ── effects and approvals ────────────────────────────────────────────────────────────────────


def test_a_payment_that_may_have_happened_is_not_made_again() -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay, and be killed before anybody hears of it."""
        RAN.append(amount)
        raise KeyboardInterrupt

    def agent() -> Agent:
        return Agent("Pay.", model=scripted_model(ToolCall("pay", amount=9), "done"), tools=[pay])

    session = Session("go")
    with pytest.raises(KeyboardInterrupt):
        agent()(session)
    assert RAN == [9]
    for _ in range(3):
        session = parked_session(lambda: resume(session, agent()))  # noqa: B023
        assert RAN == [9] and [each.kind for each in session.inbox.waiting] == ["unknown"]
    session = resume(
        session.inbox.resolve(session.inbox.waiting[0], "happened", "paid 9", actor="human:boss"),
        agent(),
    )
    assert RAN == [9] and session.text == "done"
    assert replay(session, agent()).head == session.head


def test_reading_the_file_does_not_approve_the_wire() -> None:
    def agent() -> Agent:
        script = [[ToolCall("read", name="notes"), ToolCall("wire", amount=1_000_000)], "done"]
        return Agent(
            "Go.", model=scripted_model(*script), tools=[read, wire], policy=Policy(Ask("*"))
        )

    session = parked_session(lambda: agent()(Session("go")))
    session.inbox.approve(
        next(each for each in session.inbox.waiting if ask_preview(each)["tool"] == "read"),
        actor="human:boss",
    )
    session = parked_session(lambda: resume(session, agent()))
    assert RAN == ["notes"] and [ask_preview(each)["tool"] for each in session.inbox.waiting] == [
        "wire"
    ]


def test_a_zombie_cannot_write() -> None:
    """While its tool runs, somebody else takes the run over: what it brings home is left in the
    inbox, and it is told so.
    """
    session = Session("go")

    @tool
    def slow() -> str:
        """Be slow."""
        now = Session.open(session.id)
        spot = Position(now.store, now.id, now.seq, now.head, open_run_of(now))
        direct_writer().write(spot, [Draft(RunResumed("another/1/1", 1), Act("human:other"))])
        return "late"

    with pytest.raises(RunLost):
        Agent("Go.", model=scripted_model(ToolCall("slow"), "done"), tools=[slow])(session)
    session = session.reload()
    assert [
        event for event in session.events if isinstance(event.body, ToolReturned)
    ] == [] and open_run_of(session) is not None
    assert [event.kind for event in session.inbox.events] == ["ToolReturned"]


class Interrupted(Workflow):
    def __init__(self) -> None:
        self.agent = Agent(
            "Go.", model=scripted_model(ToolCall("wire", amount=1), "went"), tools=[wire]
        )

    def forward(self, session: Session) -> Session:
        session = session.use(read, name="before")
        session = self.agent(session)
        session = session.ask("Go on?")
        return session.use(read, name=f"after {session.result}")


def test_what_came_before_the_interrupt_is_not_run_again() -> None:
    session = parked_session(lambda: Interrupted()(Session("go")))
    session = parked_session(lambda: resume(session, Interrupted()))
    session = resume(
        session.inbox.answer(session.inbox.waiting[0], "yes", actor="human:boss"), Interrupted()
    )
    assert (
        RAN == ["before", 1, "after yes"]
        and len([e for e in session.events if isinstance(e.body, ModelAsked)]) == 2
    )


def test_every_attempt_is_on_record() -> None:
    slow = Fault("RateLimited", "slow down", retryable=True, retry_after_s=0.0)
    session = Agent("Go.", model=scripted_model(slow, slow, "at last"), retry=Retry(attempts=5))(
        Session("go")
    )
    asked = [event.body for event in session.events if isinstance(event.body, ModelAsked)]
    failed = [event.body for event in session.events if isinstance(event.body, ModelFailed)]
    assert [each.attempt for each in asked] == [1, 2, 3] and [
        each.failure.kind for each in failed
    ] == ["RateLimited"] * 2
    assert session.text == "at last"


@pytest.mark.parametrize("name", ["shell", "bash", "python", "read", "wire", "open"])
def test_an_agent_without_tools_can_do_nothing(name: str) -> None:
    session = Agent("Go.", model=scripted_model(ToolCall(name, command="id"), "done"), tools=[])(
        Session("go")
    )
    assert RAN == [] and [each.failure and each.failure.kind for each in session.effects] == [
        "UnknownTool"
    ]
    assert len([event for event in session.events if isinstance(event.body, RunStarted)]) == 1
