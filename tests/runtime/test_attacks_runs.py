"""Faults that attackers and newcomers found in resumed runs: each of these went wrong
once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plait import (
    Agent,
    Budget,
    Parallel,
    Parked,
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
from plait.errors import (
    BranchFailed,
    BudgetExceeded,
    InvalidValue,
    MayNotApprove,
    NothingToResume,
    ReplayDiverged,
    RunLost,
    RunOpen,
    ToolFailed,
)
from plait.event.kinds import ApprovalRequested, ToolUnknown
from plait.policy import Ask, Policy, Refuse
from plait.program import load
from plait.runtime.registry import run_of
from plait.session import verify
from tests.support import RAN, parked_session, python

BROKEN = [False]
BOSS = "human:boss"


@pytest.fixture(autouse=True)
def _clean() -> None:  # pyright: ignore[reportUnusedFunction]
    BROKEN[:] = [False]
    open_store("memory:attacks").close()


@tool
def wire(amount: int) -> str:
    """Send money."""
    RAN.append(amount)
    if BROKEN[0]:
        raise TimeoutError("the bank did not answer")
    return f"{amount} sent"


class Pay(Workflow):
    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy

    def forward(self, session: Session) -> Session:
        return session.use(wire, amount=1)


def new() -> Session:
    return Session("go", store="memory:attacks")


def test_what_was_refused_is_refused_when_the_run_is_resumed() -> None:
    session, never = new(), Policy(Refuse("wire"))
    for again in (False, True, True):
        with pytest.raises(ToolFailed, match="not allowed"):
            resume(session, Pay(never)) if again else Pay(never)(session)
    assert RAN == []


def test_one_consent_is_for_one_execution() -> None:
    BROKEN[:] = [True]
    pay = Pay(Policy(Ask("wire")))
    session = parked_session(lambda: pay(new()))
    session.inbox.approve(session.inbox.waiting[0], actor=BOSS)
    with pytest.raises(ToolFailed):
        resume(session, pay)
    # what raised may have happened: a person looks first
    session = parked_session(lambda: resume(session, pay))
    assert RAN == [1] and [ask.kind for ask in session.inbox.waiting] == ["unknown"]
    session.inbox.resolve(session.inbox.waiting[0], "did_not_happen", actor=BOSS)
    BROKEN[:] = [False]
    session = resume(session, pay)
    assert RAN == [1, 1] and replay(session, pay).head == session.head


def test_what_raised_is_not_made_again_without_a_word() -> None:
    BROKEN[:] = [True]
    session = new()
    with pytest.raises(ToolFailed):
        Pay()(session)
    session = parked_session(lambda: resume(session, Pay()))
    assert RAN == [1] and "bank did not answer" in str(session.events.where(ToolUnknown)[0].body)
    session.inbox.resolve(session.inbox.waiting[0], "happened", "1 sent", actor=BOSS)
    session = resume(session, Pay())
    assert RAN == [1] and session.result == "1 sent" and replay(session, Pay()).head == session.head


def test_a_failure_that_was_dealt_with_is_not_tried_again() -> None:
    BROKEN[:] = [True]
    bugs = [True]

    class Careful(Workflow):
        def forward(self, session: Session) -> Session:
            try:
                return session.use(wire, amount=1)
            except ToolFailed as error:
                if bugs:
                    raise KeyError("a bug in the handler") from None
                return error.session.fact("wire", "failed")

    session = new()
    with pytest.raises(KeyError):
        Careful()(session)
    bugs.clear()
    assert resume(session, Careful()).facts["wire"] == "failed" and RAN == [1]


@pytest.mark.parametrize("actor", [None, BOSS])
def test_no_tool_approves_what_its_agent_asks_for(actor: str | None) -> None:
    refused: list[str] = []

    @tool(effect="pure")
    def helper(session: Session) -> str:
        """Help."""
        for found in (session.reload(), Session.open(session.id, store=session.store)):
            for ask in found.inbox.waiting:
                try:
                    found.inbox.approve(ask, actor=actor)
                except MayNotApprove as error:
                    refused.append(error.why)
        return "helped"

    script = [ToolCall("wire", amount=1), ToolCall("helper")]
    clerk = Agent(
        "Pay.",
        model=ScriptedModel([script, "done"]),
        tools=[wire, helper],
        policy=Policy(Ask("wire")),
    )
    session = parked_session(lambda: clerk(new()))
    parked_session(lambda: resume(session, clerk))
    assert RAN == [] and refused


@pytest.mark.parametrize("policy", [Policy(Refuse("wire")), Policy(Ask("wire", name="another"))])
def test_consent_does_not_outlive_the_policy_it_was_asked_under(policy: Policy) -> None:
    session = parked_session(lambda: Pay(Policy(Ask("wire")))(new()))
    session.inbox.approve(session.inbox.waiting[0], actor=BOSS)
    with pytest.raises((Parked, ToolFailed)):
        resume(session, Pay(policy))
    assert RAN == []


def test_a_correction_is_judged_like_any_call() -> None:
    pay = Pay(
        Policy(Ask("wire"), Refuse("wire", when=lambda call: call.arguments["amount"] > 1000))
    )
    session = parked_session(lambda: pay(new()))
    session.inbox.approve(session.inbox.waiting[0], edited={"amount": 10**6}, actor=BOSS)
    with pytest.raises(ToolFailed, match="not allowed"):
        resume(session, pay)
    assert RAN == []


def test_an_approver_who_is_too_late_has_not_allowed_it() -> None:
    late = Pay(Policy(Ask("wire", expires_s=0.01)))

    def slow(_: object) -> bool:
        import time

        deadline = time.monotonic() + 0.05
        while time.monotonic() < deadline:
            pass
        return True

    with pytest.raises(ToolFailed, match="ApprovalExpired"):
        late(new(), approver=slow)
    assert RAN == []


def test_a_cancel_is_final_and_meant_for_the_run_it_was_said_to() -> None:
    pay = Pay(Policy(Ask("wire")))
    session = parked_session(lambda: pay(new()))
    session.inbox.approve(session.inbox.waiting[0], actor=BOSS).inbox.cancel(
        "paid by hand", actor=BOSS
    )
    with pytest.raises(NothingToResume, match="human:boss cancelled"):
        resume(session, pay)
    assert RAN == [] and replay(session.reload(), pay).head == session.reload().head

    @tool(effect="pure")
    def last(session: Session) -> str:
        """The last thing a run does, while somebody cancels it."""
        Session.open(session.id, store=session.store).inbox.cancel("stop", actor=BOSS)
        return "done"

    class Late(Workflow):
        def forward(self, session: Session) -> Session:
            return session.use(last)

    session = Late()(new())
    assert Agent("Speak.", model=ScriptedModel(["hello"]))(session).text == "hello"


def test_a_branch_that_was_stopped_says_what_it_did_not_run() -> None:
    class Boom(Workflow):
        def forward(self, session: Session) -> Session:
            if BROKEN[0]:
                raise ValueError("boom")
            return session

    class Waits(Workflow):
        def __init__(self) -> None:
            self.pay = Agent(
                "Pay.", model=ScriptedModel([ToolCall("wire", amount=7), "paid"]), tools=[wire]
            )

        def forward(self, session: Session) -> Session:
            run = run_of(session)
            while BROKEN[0] and run is not None and not run.stops.is_stopped(session.id):
                pass
            return self.pay(session)

    BROKEN[:] = [True]
    both, session = Parallel(boom=Boom(), ok=Waits()), new()
    with pytest.raises(Exception, match="boom"):
        both(session)
    BROKEN[:] = [False]
    session = resume(session, both)
    assert RAN == [7] and replay(session, both).head == session.head


def test_whoever_cannot_resume_holds_nothing() -> None:
    pay = Pay(Policy(Ask("wire")))
    session = parked_session(lambda: pay(new()))
    wrong: list[object] = [Pay, 3, "Pay"]
    for program in wrong:
        for act in (resume, replay, whatif):
            with pytest.raises(InvalidValue, match="workflow"):
                act(session, program)  # pyright: ignore[reportArgumentType]
    session.inbox.approve(session.inbox.waiting[0], actor=BOSS)
    resume(session, pay)
    assert RAN == [1]


def test_a_tool_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "from plait import tool\nfrom pathlib import Path\n@tool\ndef touch() -> str:\n   "
        " Path('ran').touch()\n    return 'x'\n"
    )
    with pytest.raises(InvalidValue, match="is a tool"):
        load(f"{tmp_path / 'tools.py'}:touch")
    assert not Path("ran").exists()


def test_a_what_if_names_agents_that_there_are() -> None:
    class Two(Workflow):
        def __init__(self) -> None:
            self.buyer = Agent("Buy.", model=ScriptedModel(["bought"]))

        def forward(self, session: Session) -> Session:
            return self.buyer(session)

    session = Two()(new())
    with pytest.raises(InvalidValue, match="'byer'"):
        whatif(session, Two(), at=4, model={"byer": ScriptedModel(["x"])})
    other = Pay()(new())
    with pytest.raises(InvalidValue, match="not an event of this session"):
        whatif(session, Two(), replace={other.events[4]: 42})
    with pytest.raises(InvalidValue, match="about the run"):
        whatif(session, Two(), replace={3: "x"})
    assert whatif(session, Two(), at=4, instruction={"buyer": "Sell."}).text == "bought"


def test_a_changed_instruction_is_told_in_words() -> None:
    class Speak(Workflow):
        def __init__(self, how: str) -> None:
            self.agent = Agent(how, model=ScriptedModel(["hi"]))

        def forward(self, session: Session) -> Session:
            return self.agent(session)

    session = Speak("Say hello.")(new())
    with pytest.raises(ReplayDiverged) as error:
        replay(session, Speak("Say goodbye."))
    assert (
        error.value.expected["instruction"] == "Say hello."
        and error.value.found["instruction"] == "Say goodbye."
    )


def test_a_session_that_forward_opens_escapes_neither_policy_nor_budget() -> None:
    class Sub(Workflow):
        policy = Policy(Refuse("wire"))

        def forward(self, session: Session) -> Session:
            sub = Agent(
                "Pay.",
                model=ScriptedModel([ToolCall("wire", amount=1), "done", "more", "more"]),
                tools=[wire],
            )
            for _ in range(3):
                sub(Session("sub", store=session.store))
            return session

    Sub()(new())
    assert RAN == []
    with pytest.raises(BudgetExceeded):
        Sub()(Session("go", store="memory:attacks", budget=Budget(steps_max=2)))


def test_consent_cannot_be_waited_for_inside_a_tool() -> None:
    clerk = Agent(
        "Pay.",
        model=ScriptedModel([ToolCall("wire", amount=1), "told"]),
        tools=[wire],
        policy=Policy(Ask("wire")),
        name="clerk",
    )

    @tool(effect="idempotent")
    def delegate(session: Session) -> str:
        """Let somebody else do it."""
        return clerk(session.fork("sub")).text

    boss = Agent("Delegate.", model=ScriptedModel([ToolCall("delegate"), "done"]), tools=[delegate])
    session = boss(new())
    assert RAN == [] and session.text == "done" and not session.events.where(ApprovalRequested)


def test_reading_the_folder_frees_no_lock(tmp_path: Path) -> None:
    store = open_store(tmp_path / ".plait")
    lock = store.lock("run-1", "s")
    for file in (tmp_path / ".plait").iterdir():
        file.read_bytes()  # as a backup does
    code = "import sys, plait; plait.open_store(sys.argv[1]).lock('run-1', 's')"
    other = python(code, store.address, check=False)
    assert other.returncode != 0 and "RunHeld" in other.stderr
    lock.release()
    assert python(code, store.address, check=False).returncode == 0
    store.close()


def test_a_forked_child_writes_nothing_of_its_parents_run() -> None:
    program = """
import os
from plait import Session, Workflow, tool
from plait.errors import RunLost

class Forks(Workflow):
    def forward(self, session):
        pid = os.fork()
        if pid == 0:
            try:
                session.fact("child", 1)
            except BaseException as error:
                os._exit(3 if "RunLost" in repr(getattr(error, "error", error)) else 4)
            os._exit(5)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return session.fact("code", code)

print(Forks()(Session("go", store="memory:forks")).facts["code"])
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ},
    )
    assert done.stdout.strip() == "3", done.stderr
    assert issubclass(RunLost, Exception)


def test_what_was_said_before_a_run_is_said_anew_in_a_fork() -> None:
    session = Pay()(new())
    with pytest.raises(InvalidValue, match=r"fork\(at=1\)"):
        whatif(session, Pay(), replace={2: "another task"})
    assert Pay()(session.fork(at=1).say("another task")).messages[0].text == "another task"


@tool(effect="pure")
def bad(n: int) -> str:
    """Fail."""
    raise ValueError(f"boom {n}")


class _Use(Workflow):
    def __init__(self, n: int) -> None:
        self._n = n

    def forward(self, session: Session) -> Session:
        return session.use(bad, n=self._n)


class _Asks(Workflow):
    def forward(self, session: Session) -> Session:
        return session.ask("Which?")


def test_a_run_in_which_one_branch_waited_and_another_failed_is_replayed() -> None:
    session, both = new(), Parallel(waits=_Asks(), fails=_Use(1))
    with pytest.raises(BranchFailed):
        both(session)
    assert replay(session.reload(), both).head == session.reload().head


def test_a_run_that_was_cancelled_while_a_branch_waited_is_replayed() -> None:
    class Says(Workflow):
        def forward(self, session: Session) -> Session:
            return session.say("said")

    both = Parallel(waits=_Asks(), says=Says())
    session = parked_session(lambda: both(new())).inbox.cancel("never mind", actor=BOSS).reload()
    assert replay(session, both).head == session.head


def test_of_several_branches_that_fail_it_is_always_the_first_that_is_named() -> None:
    later = [True]

    class Both(Workflow):
        def __init__(self) -> None:
            self.both = Parallel(one=_Use(1), two=_Use(2))

        def forward(self, session: Session) -> Session:
            try:
                return self.both(session)
            except BranchFailed as error:
                session = session.reload().fact("failed", error.branch)
            if later:
                raise RuntimeError("later")
            return session

    for _ in range(10):
        later[:] = [True]
        session, program = new(), Both()
        with pytest.raises(RuntimeError):
            program(session)
        later.clear()
        session = resume(session, program)
        assert replay(session, program).head == session.head


def test_a_refusal_is_over_when_the_call_was_made_after_all() -> None:
    later = [True]

    class Uses(Workflow):
        def forward(self, session: Session) -> Session:
            session = session.use(wire, amount=1)
            try:
                session = session.use(bad, n=1)
            except ToolFailed as error:
                session = error.session.fact("failed", True)
            if later:
                raise RuntimeError("later")
            return session

    session = Session("go", store="memory:attacks", budget=Budget(tool_calls_max=1))
    with pytest.raises(BudgetExceeded):
        Uses()(session)
    session = session.reload().budget.grant(Budget(tool_calls_max=5))
    with pytest.raises(RuntimeError):
        resume(session, Uses())
    later.clear()
    session = resume(session, Uses())
    assert (
        session.facts["failed"] is True
        and replay(session, Uses()).head == session.head
        and RAN == [1]
    )


def test_a_branch_that_the_budget_ended_goes_on_when_more_is_granted() -> None:
    def talker() -> Agent:
        return Agent("Talk.", model=ScriptedModel(["hi"]))

    both = Parallel(one=talker(), two=talker())
    session = Session("go", store="memory:attacks", budget=Budget(steps_max=1))
    for _ in range(2):
        with pytest.raises(BranchFailed):
            resume(session, both) if session.reload().runs else both(session)
    session = resume(session.reload().budget.grant(Budget(steps_max=9)), both)
    assert [message.text for message in session.messages].count("hi") == 2 and replay(
        session, both
    ).head == session.head


def test_what_goes_around_a_run_is_no_step_of_it(tmp_path: Path) -> None:
    """A note that something was bypassed rides before the next step; what is named by its place was
    named without it.
    """

    class Careless(Workflow):
        def forward(self, session: Session) -> Session:
            session = session.fact("a", 1)
            (tmp_path / "aside").write_text("x")
            session = session.use(shown, x=1)
            (tmp_path / "beside").write_text("x")
            return session.use(shown, x=2)

    done = Careless()(Session("x", store=tmp_path / "store"))
    assert [event.kind for event in done.events].count("Bypassed") == 2
    assert replay(done, Careless()).head == done.head


@tool(effect="pure")
def shown(x: int) -> int:
    """Show it."""
    return x


def test_a_run_that_was_rewound_away_is_not_taken_up_and_nothing_is_written() -> None:
    pay, before = Pay(Policy(Ask("wire"))), new()
    session = parked_session(lambda: pay(before))
    with pytest.raises(RunOpen, match="to before that run"):
        session.rewind(before.seq)  # its asks would lead nowhere
    BROKEN[:] = [True]
    session.inbox.approve(session.inbox.waiting[0], actor=BOSS)
    with pytest.raises(ToolFailed):
        resume(session, pay)
    rewound = session.reload().rewind(before.seq)
    for _ in range(2):
        with pytest.raises(NothingToResume, match="rewound to before run"):
            resume(rewound, pay)
    assert rewound.reload().head == rewound.head
    BROKEN[:] = [False]
    assert Pay()(rewound).effects[-1].result == "1 sent"


class Closing(Workflow):
    """A session that is closed by the workflow it was handed to."""

    name = "closing"

    def forward(self, session: Session) -> Session:
        return session.close()


def test_a_workflow_does_not_close_the_branch_that_it_works_on() -> None:
    """Its own end is written there: the state that the last event names would be another."""
    script = [ToolCall("closing", request="please"), "It refused."]
    Agent("Lead.", model=ScriptedModel(script), tools=[Closing()])(session := new())
    assert list(verify(open_store("memory:attacks"), state=True)) == []
    (effect,) = session.reload().effects
    assert "failed: NotSettled" in repr(effect)
