"""Agents and workflows as tools: each call in a branch, and what of it the caller takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pytest

from plait import (
    Agent,
    Budget,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    replay,
    resume,
    tool,
    whatif,
)
from plait.errors import AlreadyAnswered, BadTool, InvalidValue, ToolFailed, WrongAskKind
from plait.event import kinds as k
from plait.model.base import Fault
from plait.policy import Ask, Policy, Refuse
from plait.runtime.delegation import DEPTH_MAX, WorkflowTool
from plait.session import verify
from plait.session.inbox import all_waiting
from plait.session.ports import store_at
from plait.tools import write_file
from tests.support import (
    QUICK,
    RAN,
    Spy,
    assert_replays,
    bodies,
    filled_folder,
    kinds,
    parked_session,
    read,
    turn_text,
)


@tool
def mail(to: str) -> str:
    """Send a mail."""
    RAN.append(to)
    return f"sent to {to}"


def helper(*script: Any, name: str = "helper", **more: Any) -> Agent:
    model = ScriptedModel(list(script))
    return Agent("Help.", model=model, name=name, tools=[read, mail], retry=QUICK, **more)


def lead(*script: Any, tools: Any, **more: Any) -> Agent:
    return Agent("Lead.", model=ScriptedModel(list(script)), name="lead", tools=tools, **more)


def asked(name: str = "helper", request: str = "do it") -> ToolCall:
    return ToolCall(name, request=request)


def branches_of(session: Session) -> list[Session]:
    rows = store_at(session.store).rows("session", "session", {"parent": session.id}, limit=99)
    return [Session.open(str(row["log"]), store=session.store) for row in rows]


def failure_of_call(session: Session) -> k.Failure:
    return bodies(session, k.ToolFailed)[-1].failure


# ── the call and its branch ──────────────────────────────────────────────────────────────────


def test_the_answer_is_the_result_and_the_work_stays_in_the_branch() -> None:
    spy = Spy(ToolCall("read", name="a"), "It says a.")
    reader = Agent("Read.", model=spy, name="reader", tools=[read])
    boss = lead(asked("reader", "read file a"), "Done.", tools=[reader])
    session = boss(Session("Go."))
    assert kinds(session)[5:9] == ["ModelReplied", "ToolRequested", "ToolReturned", "ModelAsked"]
    assert session.result == "It says a." and session.text == "Done." and RAN == ["a"]
    assert [message.text for message in session.messages] == ["Go.", "", "Done."]
    # the helper sees the conversation, and its task last
    assert turn_text(spy.requests[0].turns[-1]) == "read file a"
    assert "Go." in turn_text(spy.requests[0].turns[0])
    # the branch is on record, and the result leads to it
    (branch,) = branches_of(session)
    assert branch.lineage.label == "reader" and branch.text == "It says a."
    steps = {step.id for step in session.why(session.effects[-1])}
    assert {event.id for event in branch.events if event.kind == "ToolReturned"} <= steps
    assert [event.actor for event in branch.events if event.kind == "ModelAsked"] == [
        "agent:lead",
        "agent:lead/reader",
        "agent:lead/reader",
    ]
    assert_replays(session, boss)
    assert list(verify(store_at(session.store), state=True)) == []


def test_a_workflow_is_a_tool_too_and_typed_arguments_arrive_as_data() -> None:
    class Mail(msgspec.Struct):
        to: str
        urgent: bool = False

    class Sender(Workflow):
        """Sends mail."""

        def forward(self, session: Session) -> Session:
            return session.use(mail, to=session.messages[-1].parts[0].value["to"]).say(  # pyright: ignore
                "Sent.", role="assistant"
            )

    sender = Sender().as_tool(name="send", arguments=Mail)
    assert sender.description == "Sends mail." and "urgent" in str(sender.schema)
    boss = lead([ToolCall("send", urgent=True), ToolCall("send", to="ann")], "Ok.", tools=[sender])
    session = boss(Session("Go."))
    assert RAN == ["ann"] and session.result == "Sent."
    assert failure_of_call(session).kind == "WrongArguments"
    assert_replays(session, boss)


def test_a_typed_answer_is_data() -> None:
    class Patch(msgspec.Struct):
        file: str

    coder = helper('{"file": "a.py"}').as_tool(name="fix", description="Fix it.", returns=Patch)
    session = lead(asked("fix"), "Ok.", tools=[coder])(Session("Go."))
    assert session.result == {"file": "a.py"} and session.result_as(Patch).file == "a.py"


def test_a_helper_with_a_view_of_its_branch_sees_its_task_alone() -> None:
    spy = Spy("Ok.")
    alone = Agent("Help.", model=spy, name="helper", view="branch")
    lead(asked(request="just this"), "Done.", tools=[alone])(Session("A secret."))
    assert [turn_text(turn) for turn in spy.requests[0].turns] == ["just this"]


def test_calls_of_one_reply_run_side_by_side() -> None:
    together = Barrier(2, timeout=20)

    @tool(effect="pure")
    def meet() -> str:
        """Wait for the other."""
        together.wait()
        return "met"

    def one(name: str) -> Agent:
        script = ScriptedModel([ToolCall("meet"), f"{name} met."])
        return Agent("Meet.", model=script, name=name, tools=[meet])

    boss = lead([asked("ann"), asked("bob")], "Done.", tools=[one("ann"), one("bob")])
    session = boss(Session("Go."))
    assert sorted(effect.result for effect in session.effects) == ["ann met.", "bob met."]
    together.reset()
    session = asyncio.run(boss.acall(Session("Go.")))
    assert sorted(effect.result for effect in session.effects) == ["ann met.", "bob met."]


# ── what the caller takes ────────────────────────────────────────────────────────────────────


class Noting(Workflow):
    """Notes a fact, and says so."""

    def __init__(self, key: str, value: int) -> None:
        self.key, self.value = key, value

    def forward(self, session: Session) -> Session:
        return session.fact(self.key, self.value).say("Noted.", role="assistant")


@pytest.mark.parametrize("takes", ["answer", "facts", "all"])
def test_facts_and_the_transcript_are_taken_as_the_tool_says(takes: Any) -> None:
    noting = Noting("price", 7).as_tool(name="helper", takes=takes)
    boss = lead(asked(), "Done.", tools=[noting])
    session = boss(Session("Go."))
    assert dict(session.facts.items()) == ({} if takes == "answer" else {"price": 7})
    said = [message.text for message in session.messages]
    assert ("Noted." in said) == (takes == "all") and session.effects[-1].result == "Noted."
    assert bool(bodies(session, k.Merged)) == (takes == "all")
    if takes == "facts":
        (branch,) = branches_of(session)
        assert branch.head in {step.id for step in session.why(session.effects[-1])}
        assert {step.log for step in session.why("price")} == {session.id, branch.id}
    assert_replays(session, boss)
    assert list(verify(store_at(session.store), state=True)) == []


def test_facts_in_dispute_fail_the_call_and_are_not_taken() -> None:
    ann, bob = (
        Noting("price", price).as_tool(name=name, takes="facts")
        for name, price in (("ann", 7), ("bob", 8))
    )
    session = lead([asked("ann"), asked("bob")], "Done.", tools=[ann, bob])(Session("Go."))
    assert session.facts["price"] in (7, 8) and session.text == "Done."
    assert failure_of_call(session).kind == "MergeConflict"


@pytest.mark.long
@pytest.mark.parametrize("takes", ["answer", "files", "all"])
def test_files_are_taken_as_the_tool_says(takes: Any, tmp_path: Path) -> None:
    folder = filled_folder(tmp_path / "repo", {"a.txt": "a\n", "b.txt": "b\n"})

    def writer(name: str, path: str) -> WorkflowTool:
        script = ScriptedModel([ToolCall("write_file", path=path, content=name), "Written."])
        made = Agent("Write.", model=script, name=name, tools=[write_file])
        return made.as_tool(takes=takes)

    boss = lead(
        [asked("ann"), asked("bob")],
        "Done.",
        tools=[writer("ann", "a.txt"), writer("bob", "c/d.txt")],
    )
    session = Session("Go.", store=tmp_path / "store").to("local", folder)
    before = session.files.tree
    session = boss(session)
    if takes == "answer":
        assert session.files.tree == before
    else:
        assert (session.files.text("a.txt"), session.files.text("c/d.txt")) == ("ann", "bob")
        changed = [effect.trees.changed for effect in session.effects if effect.trees]
        assert ("c/d.txt",) in [paths[-1:] for paths in changed]
    assert_replays(session, boss)
    assert list(verify(store_at(session.store), state=True)) == []


# ── failures, policies, budgets ──────────────────────────────────────────────────────────────


def test_a_failing_helper_is_a_failed_call_with_its_reason() -> None:
    broken = helper(Fault("Refused", "not today"))
    boss = lead(asked(), "I go on.", tools=[broken])
    session = boss(Session("Go."))
    failed = failure_of_call(session)
    assert failed.kind == "ModelFailed" and "not today" in failed.message
    assert session.text == "I go on."
    (branch,) = branches_of(session)
    assert bodies(branch, k.ModelFailed)[-1].failure.message == "not today"
    assert branch.head in {step.id for step in session.why(session.effects[-1])} or any(
        step.log == branch.id for step in session.why(session.effects[-1])
    )
    assert_replays(session, boss)


def test_a_helper_may_no_more_than_its_caller() -> None:
    worker = helper(ToolCall("mail", to="ann"), "I could not.", policy=Policy())
    session = lead(asked(), "Done.", tools=[worker], policy=Policy(Refuse("mail")))(Session("Go."))
    assert RAN == [] and session.result == "I could not."
    (branch,) = branches_of(session)
    assert failure_of_call(branch).kind == "Refused"


def test_a_helper_draws_on_the_budget_of_its_caller() -> None:
    worker = helper(*[ToolCall("read", name=str(n)) for n in range(9)], "Done.")
    session = Session("Go.", budget=Budget(tool_calls_max=4))
    session = lead(asked(), "Done.", tools=[worker])(session)
    assert len(RAN) == 3, "the call of the helper is one, and three are left"


def test_a_helper_that_needs_consent_parks_the_run_which_goes_on_in_the_branch() -> None:
    def made() -> Agent:
        return lead(
            [asked(), asked("other")],
            "Done.",
            tools=[
                helper(ToolCall("read", name="x"), ToolCall("mail", to="ann"), "Sent."),
                helper(ToolCall("read", name="y"), "Read.", name="other"),
            ],
            policy=Policy(Ask("mail")),
        )

    session = parked_session(lambda: made()(Session("Go.")))
    assert sorted(RAN) == ["x", "y"]
    (ask,) = all_waiting(store_at(session.store))
    assert ask.tool == "mail"
    session.inbox.approve(ask, actor="human:boss")
    session = resume(session, made())
    assert sorted(RAN) == ["ann", "x", "y"] and session.text == "Done."
    assert [effect.result for effect in session.effects] == ["Sent.", "Read."]
    assert_replays(session, made())


def test_a_call_that_fails_the_run_goes_on_in_its_branch_when_it_is_resumed() -> None:
    class Desk(Workflow):
        def __init__(self, *answers: Any) -> None:
            self.helper = helper(ToolCall("mail", to="ann"), *answers)

        def forward(self, session: Session) -> Session:
            return session.use(self.helper.as_tool(), request="do it")

    session = Session("Go.")
    with pytest.raises(ToolFailed, match="no idea"):
        Desk(Fault("Broken", "no idea"))(session)
    session = resume(session.reload(), Desk(Fault("Broken", "no idea"), "Sent."))
    assert session.result == "Sent." and RAN == ["ann"], "the mail is not sent twice"


def test_a_what_if_calls_a_helper_anew_in_a_branch_of_its_own() -> None:
    boss = lead(asked(), "Done.", tools=[helper(ToolCall("read", name="x"), "One.")])
    session = boss(Session("Go."))
    at = next(event.seq for event in session.events if event.kind == "ToolRequested")
    other = lead(asked(), "Done.", tools=[helper(ToolCall("read", name="z"), "Two.")])
    changed = whatif(session, other, at=at)
    assert changed.effects[-1].result == "Two." and session.effects[-1].result == "One."
    assert RAN == ["x", "z"]
    assert replay(changed, other).head == changed.head


def test_workflows_that_call_each_other_are_stopped_by_depth() -> None:
    class Again(Workflow):
        """Calls itself."""

        name = "again"

        def __init__(self) -> None:
            calls = [asked("again", "once more"), "Enough."]
            self.boss = Agent(
                "Go on.", model=ScriptedModel(calls), name="boss", view="branch", tools=[self]
            )

        def forward(self, session: Session) -> Session:
            return self.boss(session)

    again = Again()
    session = again(Session("Go."))
    assert session.text == "Enough." and "again" in repr(again)
    depth, branch = 0, session
    while branches_of(branch):
        (branch,) = branches_of(branch)
        depth += 1
    assert depth == DEPTH_MAX + 1
    assert branch.lineage.parent is not None
    assert failure_of_call(branch.lineage.parent.reload()).kind == "DelegationRefused"


# ── bad input ────────────────────────────────────────────────────────────────────────────────


class Itself(Agent):
    def __init__(self) -> None:
        super().__init__("x", tools=[self])


class Silent(Workflow):
    def forward(self, session: Session) -> Session:
        return session


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Agent("x", tools=[Agent("y")]), BadTool, "it has no name"),
        (lambda: Agent("x", tools=[Agent("y", name="a b")]), BadTool, "letters"),
        (lambda: Agent("x", tools=[helper(), helper()]), InvalidValue, "two tools"),
        (lambda: helper().as_tool(takes="more"), BadTool, "takes='more'"),  # pyright: ignore
        (lambda: helper().as_tool(arguments=int), BadTool, "no named fields"),
        (lambda: Silent().as_tool(name="silent"), BadTool, "description="),
        (Itself, InvalidValue, "not a tool of its own"),
    ],
)
def test_what_cannot_be_a_tool_is_refused(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_workflow_is_a_tool_in_runs_only() -> None:
    session = Session("Go.")
    with pytest.raises(InvalidValue, match="in runs only"):
        session.use(helper("x").as_tool(), request="x")
    assert session.reload().head == session.head


class Paying(Workflow):
    """Has a helper that pays with consent, and asks a person if one wants to know more."""

    policy = Policy(Ask("refund"))

    def __init__(self) -> None:
        @tool(effect="idempotent", version="1")
        def refund(amount: int) -> str:
            """Send money back."""
            return f"{amount} sent"

        calls = ScriptedModel([ToolCall("refund", amount=1), "paid"])
        helper = Agent("Pay.", name="payer", tools=[refund], model=calls)
        script = ScriptedModel([ToolCall("payer", request="go"), "all done"])
        self.lead = Agent("Lead.", name="lead", tools=[helper], model=script)

    def forward(self, session: Session) -> Session:
        return self.lead(session)


@pytest.mark.parametrize("length", [64, 12])
def test_an_ask_in_a_branch_is_answered_by_its_id(length: int) -> None:
    session = Session.open(parked_session(lambda: Paying()(Session("Pay."))).id)
    (ask,) = session.inbox.waiting
    assert ask.log != session.id
    with pytest.raises(WrongAskKind):
        session.inbox.answer(ask.event[:length], "yes", actor="human:ann")
    session.inbox.approve(ask.event[:length], actor="human:ann")
    with pytest.raises(AlreadyAnswered):
        session.inbox.deny(ask.event[:length], "no", actor="human:bob")
    assert resume(session, Paying()).text == "all done"
