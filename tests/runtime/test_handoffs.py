"""Handoffs, instructions that are functions of the session, and calls that are forced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plait import Agent, Reject, ScriptedModel, Session, ToolCall, Workflow, resume
from plait import agent as agents
from plait.errors import GuardFailed, GuardRefused, InstructionFailed, InvalidValue, ReplayDiverged
from plait.event import kinds as k
from plait.model.base import TextDelta
from plait.policy import Ask, Policy, Refuse
from plait.runtime.sent import rebuild_prompt
from plait.session.inbox import all_waiting
from plait.session.ports import store_at
from tests.support import RAN, Spy, assert_replays, bodies, parked_session, read, turn_text


def agent(name: str, *script: Any, **more: Any) -> Agent:
    model = ScriptedModel(list(script))
    return Agent(f"I am {name}.", model=model, name=name, tools=[read], **more)


def to(name: str, reason: str = "it is theirs") -> ToolCall:
    return ToolCall(f"hand_off_to_{name}", reason=reason)


def handed(session: Session) -> list[tuple[str, str]]:
    """The handoffs that agents made, with their reasons."""
    return [(body.to, body.reason) for body in bodies(session, k.HandedOff) if body.reason]


# ── the conversation moves on ────────────────────────────────────────────────────────────────


def test_the_target_goes_on_with_the_conversation_and_keeps_it() -> None:
    spy = Spy("Your bill is 7.", "It is still 7.")
    billing = Agent("Bill.", model=spy, name="billing")
    desk = agent("desk", to("billing", "an invoice"), handoffs=[billing, agent("refunds", "No.")])
    session = desk(Session("What do I owe?"))
    assert session.text == "Your bill is 7." and handed(session) == [("desk/billing", "an invoice")]
    assert turn_text(spy.requests[0].turns[0]) == "What do I owe?"
    assert_replays(session, desk)
    # called again, it begins with the agent that has the session
    session = desk(session.say("And now?"))
    assert session.events[-4].actor == "agent:desk/billing"
    assert (
        len(bodies(session, k.HandedOff)) == 1
    )  # the desk, which asked nothing, took nothing over
    assert_replays(session, desk)


def test_a_conversation_may_come_back_and_go_further() -> None:
    billing = agent("billing", to("refunds", "money back"))
    refunds = agent("refunds", ToolCall("read", name="policy"), to("desk", "not ours"))
    desk = agent("desk", to("billing", "an invoice"), "I see to it myself.", handoffs=[billing])
    billing.handoffs, refunds.handoffs = [refunds], [desk, billing]
    for session in (desk(Session("Go.")), asyncio.run(desk.acall(Session("Go.")))):
        assert [where for where, _ in handed(session)] == ["desk/billing", "desk/refunds", "desk"]
        assert session.text == "I see to it myself."
        assert_replays(session, desk)
    assert RAN == ["policy", "policy"] and "(refunds)" in repr(desk)


def test_a_desk_in_a_workflow_and_as_a_tool() -> None:
    class Flow(Workflow):
        def __init__(self) -> None:
            self.desk = agent("desk", to("billing"), handoffs=[agent("billing", "7.")])
            self.lead = agent("lead", "unused")
            self.boss = Agent(
                "Lead.",
                model=ScriptedModel([ToolCall("desk", request="ask"), "Done."]),
                name="boss",
                tools=[self.desk],
            )

        def forward(self, session: Session) -> Session:
            return self.boss(self.desk(session))

    flow = Flow()
    session = flow(Session("Go."))
    assert handed(session) == [("flow/desk/billing", "it is theirs")]
    assert session.result == "7." and session.text == "Done."
    assert_replays(session, flow)


def test_one_reply_hands_off_once_and_cycles_end() -> None:
    one = agent("one", [to("two"), to("three")], handoffs=[agent("two", "2"), agent("three", "3")])
    session = one(Session("Go."))
    assert session.text == "2" and bodies(session, k.ToolFailed)[0].failure.kind == "NotHandedOff"
    ping, pong = _until_told("ping", "pong"), _until_told("pong", "ping")
    ping.handoffs, pong.handoffs = [pong], [ping]
    session = ping(Session("Go."))
    assert len(handed(session)) == 3 and session.text == "Then I answer."
    assert_replays(session, ping)


def _until_told(name: str, other: str) -> Agent:
    """An agent that hands off until it is told that it may not."""

    def item(session: Session) -> Any:
        failed = [effect.failure for effect in session.effects if effect.failure is not None]
        return "Then I answer." if failed else to(other)

    return Agent("x", model=ScriptedModel(item), name=name, steps_max=3)


def test_a_handoff_is_a_call_like_any_other_to_policies() -> None:
    billing = agent("billing", "7.")
    rules = Policy(Refuse("hand_off_to_billing"))
    session = agent("desk", to("billing"), "I cannot.", handoffs=[billing], policy=rules)(
        Session("Go.")
    )
    assert session.text == "I cannot." and handed(session) == []

    def made() -> Agent:
        rules = Policy(Ask("hand_off_to_billing"))
        return agent("desk", to("billing"), handoffs=[agent("billing", "7.")], policy=rules)

    session = parked_session(lambda: made()(Session("Go.")))
    (ask,) = all_waiting(store_at(session.store))
    session.inbox.approve(ask, actor="human:boss")
    session = resume(session, made())
    assert session.text == "7." and len(handed(session)) == 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Agent("x", handoffs=[]), "nobody"),
        (lambda: Agent("x", handoffs=[agent("a"), agent("a")]), "two agents are called 'a'"),
        (lambda: Agent("x", handoffs=[agent("")]), "no name"),
        (lambda: Agent("x", handoffs=[read]), "a Tool is not one"),  # pyright: ignore[reportArgumentType]
        (lambda: Agent("x", handoffs="billing"), "not a list of agents"),  # pyright: ignore[reportArgumentType]
        (
            lambda: agent("x", handoffs=[agent("a", handoffs=[agent("b")]), agent("b")])(
                Session("Go.")
            ),
            "two agents that x may come to are called 'b'",
        ),
    ],
)
def test_a_handoff_that_cannot_be_is_refused(make: Any, text: str) -> None:
    with pytest.raises(InvalidValue, match=text):
        make()


# ── instructions that are functions ──────────────────────────────────────────────────────────


def test_an_instruction_may_be_a_function_of_the_session() -> None:
    def instruction(session: Session) -> str:
        """Speaks as the facts say."""
        return f"Speak {session.facts['tone']}."

    spy = Spy("Yes.", "No.")
    made = Agent(instruction, model=spy)
    session = made(Session("Go.").fact("tone", "softly"))
    session = made(session.fact("tone", "loudly"))
    assert [each.instruction for each in spy.requests] == ["Speak softly.", "Speak loudly."]
    assert (
        rebuild_prompt(session).setup.instruction == "Speak loudly."
        and rebuild_prompt(session).matches
    )
    assert made.describe() == "Speaks as the facts say."
    assert_replays(session, made)


def test_an_instruction_that_changes_diverges_and_says_so() -> None:
    def made(words: str) -> Agent:
        policy, model = Policy(Ask("read")), ScriptedModel([ToolCall("read", name="a"), "Done."])
        return Agent(lambda _: words, model=model, tools=[read], policy=policy, name="a")

    session = parked_session(lambda: made("Speak softly.")(Session("Go.")))
    with pytest.raises(ReplayDiverged, match=r"Speak loudly"):
        resume(session, made("Speak loudly."))


def test_an_instruction_that_fails_fails_the_run_which_can_be_resumed() -> None:
    broken = Agent(lambda session: str(session.facts["tone"]), model=ScriptedModel(["Yes."]))
    session = Session("Go.")
    with pytest.raises(InstructionFailed, match="tone") as failed:
        broken(session)
    assert failed.value.session.runs[-1].status == "failed"
    mended = Agent(lambda _: "Speak.", model=ScriptedModel(["Yes."]), name=broken._default_name())  # pyright: ignore[reportPrivateUsage]
    assert resume(session.reload(), mended).text == "Yes."


# ── calls that are forced ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "asks"),
    [
        ("auto", [("auto", ""), ("auto", "")]),
        ("required", [("any", ""), ("auto", "")]),
        ("read", [("any", "read"), ("auto", "")]),
    ],
)
def test_a_call_is_forced_in_the_first_ask_only(given: str, asks: list[Any]) -> None:
    spy = Spy(ToolCall("read", name="a"), "Done.")
    made = Agent("Read.", model=spy, tools=[read], tool_choice=given)
    session = made(Session("Go."))
    assert [(each.choice, each.forced) for each in spy.requests] == asks
    assert rebuild_prompt(session).setup.choice == given.replace("auto", "")
    assert_replays(session, made)


def test_no_call_is_made_where_none_is_allowed() -> None:
    spy = Spy("Done.")
    Agent("Read.", model=spy, tools=[read], tool_choice="none")(Session("Go."))
    assert spy.requests[0].choice == "none"


@pytest.mark.parametrize(("given", "tools"), [("write", [read]), ("required", []), (1, [read])])
def test_a_choice_of_no_tool_is_refused(given: Any, tools: Any) -> None:
    with pytest.raises(InvalidValue, match="tool_choice"):
        Agent("Read.", tools=tools, tool_choice=given)


# ── guards of the desk ───────────────────────────────────────────────────────────────────────


def no_bills(session: Session, text: str) -> Reject | None:
    return Reject("no bills") if "bill" in text else None


def guarded_desk(*script: Any, **more: Any) -> Agent:
    """A desk that hands off to `billing`, whose script this is."""
    return agent("desk", to("billing"), handoffs=[agent("billing", *script)], **more)


@pytest.mark.parametrize("is_on_loop", [False, True])
def test_the_guards_of_the_desk_judge_whoever_answers(is_on_loop: bool) -> None:
    desk = guarded_desk("A bill.", "Fine.", "Fine.", before=[no_bills], after=[no_bills])
    heard: list[Any] = []

    def call(session: Session) -> Session:
        if is_on_loop:
            return asyncio.run(desk.acall(session, on_event=heard.append))
        return desk(session, on_event=heard.append)

    session = call(Session("Go."))
    assert [message.text for message in session.messages.shown] == ["Go.", "Fine."]
    assert [item.text for item in heard if isinstance(item, TextDelta)] == ["Fine."]
    started = [body.path for body in bodies(session, k.CallStarted)]
    assert started.count("desk/no_bills") == 1, "the input is judged once"
    assert_replays(session, desk)
    with pytest.raises(GuardRefused, match="rejects the input of desk/billing"):
        call(session.say("My bill!"))
    session = call(session.reload().say("Well?"))
    assert session.text == "Fine."
    assert_replays(session, desk)


def test_the_guards_of_a_desk_that_is_a_tool_judge_whoever_answers() -> None:
    desk = guarded_desk("A bill.", "Fine.", after=[no_bills])
    lead = Agent(
        "Lead.", model=ScriptedModel([ToolCall("desk", request="Go."), "Done."]), tools=[desk]
    )
    session = lead(Session("Go."))
    assert "Fine." in str(bodies(session, k.ToolReturned)[0])
    assert_replays(session, lead)


def test_the_guards_of_a_desk_judge_in_a_run_that_is_resumed() -> None:
    is_mended = False

    def flaky(session: Session, text: str) -> Reject | None:
        if not is_mended:
            raise KeyError("no such list")
        return no_bills(session, text)

    desk, session = guarded_desk("A bill.", "Fine.", after=[flaky]), Session("Go.")
    with pytest.raises(GuardFailed):
        desk(session)
    is_mended = True
    session = resume(session.reload(), desk)
    assert session.text == "Fine."
    assert_replays(session, desk)


def test_runs_replay_in_which_the_guards_of_a_desk_did_not_judge_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(change: str, session: Session) -> bool:
        return False

    desk = guarded_desk("A bill.", "One more.", before=[no_bills], after=[no_bills])
    with monkeypatch.context() as patch:  # as calls were recorded before
        patch.setattr(agents, "is_marked_here", never)
        first = desk(Session("Go."))
        second = desk(first.say("My bill!"))
    assert first.text == second.text == "A bill."
    assert_replays(first, desk)
    assert_replays(second, desk)
