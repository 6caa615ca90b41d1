"""Compaction: what leaves the context, what stands for it, what never leaves, and that nothing
leaves the log.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from plait import Agent, Compactor, ScriptedModel, Session, ToolCall, View, tool
from plait.calls.model_call import Retry
from plait.errors import InvalidValue, ModelFailed
from plait.event import kinds as k
from plait.event.kinds import ContextCompacted
from plait.model.base import Answered, Fault, Returned
from plait.runtime.appends import append_events
from plait.runtime.prompt.prompt import Prompt
from plait.runtime.prompt.setup import Setup
from plait.runtime.sent import rebuild_prompt
from plait.session.ports import Act, Draft
from plait.session.views import Message
from tests.support import Spy, turn_text

SUMMARY = "(what went before, in short)"


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"{what} " * 50


def shown(session: Session, view: View | None = None, actor: str = "agent:reader") -> list[str]:
    prompt = Prompt(Setup("x", (), view=view or View()), actor, None)
    prompt.catch_up(session)
    return [turn_text(turn) for turn in prompt.ask()[1]]


def compactions(session: Session) -> list[ContextCompacted]:
    return [event.body for event in session.events if isinstance(event.body, ContextCompacted)]


def short(session: Session, messages: list[Message]) -> str:
    return f"{len(messages)} messages"


def said(session: Session, *texts: str) -> Session:
    for text in texts:
        session = session.say(text)
    return session


# ── what it looks like ───────────────────────────────────────────────────────────────────────


def test_a_summary_stands_for_what_left_and_facts_stay() -> None:
    session = said(
        Session("one")
        .fact("db", "pg")
        .decide("lang", "python")
        .note("slow", key="perf")
        .todo("test", key="t"),
        "two",
    )
    session = (
        session.checks.record("tests", passed=True).fact("db", "sqlite").say("three").say("four")
    )
    before = session
    after = Compactor(rule=short, keep=2)(session)
    facts = [
        "(decision lang: python)",
        "(finding perf: slow)",
        "(to do: test)",
        "(verdict tests: passed)",
        "(fact db: sqlite)",
    ]
    assert shown(after) == [f"{SUMMARY}\n2 messages", *facts, "three", "four"]
    (body,) = compactions(after)
    assert body.left == (1, before.messages[2].seq - 1) and set(body.kept) == {"db", "lang", "perf"}
    # The originals are where they were.
    assert [message.text for message in after.messages] == ["one", "two", "three", "four"]
    assert shown(after.at(before.seq)) == shown(before)


def test_what_is_over_leaves_with_the_rest() -> None:
    session = (
        Session("one")
        .fact("a", 1)
        .retract("a")
        .todo("x", key="x")
        .settle("x")
        .fact("b", 2)
        .say("two")
        .retract("b")
    )
    after = Compactor(rule=short, keep=1)(session)
    assert shown(after) == [f"{SUMMARY}\n1 messages", "(fact b: 2)", "two", "(b no longer holds)"]


def test_a_later_compaction_covers_the_earlier_summary() -> None:
    compact = Compactor(rule=short, keep=2)
    session = compact(said(Session("1"), "2", "3", "4").fact("k", "v"))
    session = compact(said(session, "5", "6"))
    assert shown(session) == [f"{SUMMARY}\n4 messages", "(fact k: v)", "5", "6"]


def test_nothing_to_compact_changes_nothing() -> None:
    session = Compactor(rule=short, keep=4)(said(Session("1"), "2", "3"))
    assert not compactions(session)
    once = Compactor(rule=short, keep=2)(said(session, "4"))
    assert len(compactions(Compactor(rule=short, keep=2)(once))) == 1


def test_the_other_views() -> None:
    session = Compactor(rule=short, keep=1)(said(Session("1").fact("k", "v"), "2", "3")).say("4")
    assert shown(session, View.compacted()) == [f"{SUMMARY}\n2 messages", "4"]
    assert shown(session, View.last(1)) == ["4"]
    assert shown(session, View.facts()) == [f"{SUMMARY}\n2 messages", "(fact k: v)", "4"]


def test_a_call_and_its_results_stay_together() -> None:
    calls = [ToolCall("look", what="a"), ToolCall("look", what="b")]
    agent = Agent(
        "x",
        model=ScriptedModel([calls, [ToolCall("look", what="c")], "done"]),
        tools=[look],
        name="ann",
    )
    session = agent(Session("go"))
    for keep in range(1, 4):
        after = Compactor(rule=short, keep=keep)(session.fork(f"keep-{keep}"))
        prompt = Prompt(Setup("x", ()), "agent:ann", None)
        prompt.catch_up(after)
        turns = prompt.ask()[1]
        for at, turn in enumerate(turns):
            assert not isinstance(turn, Returned) or isinstance(turns[at - 1], Answered)
            assert not (isinstance(turn, Answered) and turn.calls) or isinstance(
                turns[at + 1], Returned
            )
        assert not any("not known" in turn_text(turn) for turn in turns)


def test_an_outcome_that_comes_after_its_call_has_left_is_told() -> None:
    session, _ = append_events(
        Session("go"),
        [Draft(k.ToolRequested("look", {"what": "a"}, "pure"), Act("service:x", call="c1"))],
    )
    session = Compactor(rule=short, keep=1)(said(session, "1", "2"))
    session, _ = append_events(
        session, [Draft(k.ToolReturned((k.Text("late"),)), Act("service:x", "tool", call="c1"))]
    )
    assert shown(session)[-2:] == ["2", '(look {"what":"a"} returned)\nlate']


# ── branches ─────────────────────────────────────────────────────────────────────────────────


def test_a_fork_inherits_it_and_a_rewind_takes_it_back() -> None:
    before = said(Session("1"), "2", "3")
    after = Compactor(rule=short, keep=1)(before)
    assert shown(after.fork("f")) == shown(after)
    assert shown(after.fork("g", at=before.seq)) == ["1", "2", "3"]
    assert shown(after.rewind(before.seq)) == ["1", "2", "3"]


def test_a_merged_branchs_compaction_hides_nothing_of_ours() -> None:
    base = said(Session("1"), "2", "3")
    branch = Compactor(rule=short, keep=1)(said(base.fork("b"), "b1", "b2"))
    ours = base.say("4")
    assert shown(ours.merge(branch)) == ["1", "2", "3", "4", f"[b] {SUMMARY}\n4 messages", "[b] b2"]
    whole = Compactor(rule=short, keep=1)(ours.reload().say("5"))
    assert shown(whole)[1:] == ["5"]


def test_a_detached_session_compacts_what_it_took_over() -> None:
    session = said(said(Session("1"), "2", "3").detach(), "4", "5")
    assert shown(Compactor(rule=short, keep=1)(session.fork("one"))) == [
        f"{SUMMARY}\n4 messages",
        "5",
    ]
    # it cannot name a place of another log
    assert shown(Compactor(rule=short, keep=3)(session)) == ["1", "2", "3", "4", "5"]


# ── by whom ──────────────────────────────────────────────────────────────────────────────────


def test_a_model_makes_the_summary_aside() -> None:
    spy = Spy("All of it in short.")
    session = Compactor(model=spy, keep=1)(said(Session("Fix cart.py"), "two", "three"))
    request = spy.requests[0]
    assert "identifiers" in request.instruction and [turn_text(turn) for turn in request.turns][
        :3
    ] == ["Fix cart.py", "two", "three"]
    assert shown(session) == [f"{SUMMARY}\nAll of it in short.", "three"]
    event = next(event for event in session.events if event.kind == "ContextCompacted")
    reply = next(event for event in session.events if event.kind == "ModelReplied")
    assert event.header.causes == (reply.id,)
    assert [message.text for message in session.messages] == ["Fix cart.py", "two", "three"]
    assert rebuild_prompt(session).matches


def test_the_extract_says_how_it_began_who_said_what_last_and_which_tools() -> None:
    agent = Agent(
        "x",
        model=ScriptedModel([ToolCall("look", what="a"), ToolCall("look", what="b"), "Found it."]),
        tools=[look],
        name="ann",
    )
    session = Compactor(keep=1)(
        agent(Session("Find the bug.", user="u").say("Quickly.")).say("Thanks.")
    )
    summary = shown(session)[0]
    for each in (
        "It began with: Find the bug.",
        "Last words of ann: Found it.",
        "look ×2",
        "Quickly.",
    ):
        assert each in summary
    assert shown(session)[1:] == ["Thanks."]


def test_what_cannot_be_done_is_refused() -> None:
    for wrong in ({"keep": 0}, {"keep": True}, {"model": "m", "rule": short}, {"rule": 3}):
        with pytest.raises(InvalidValue):
            Compactor(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidValue, match="says nothing"):
        Compactor(rule=lambda session, messages: " ", keep=1)(said(Session("1"), "2"))
    with pytest.raises(InvalidValue):
        Agent("x", context_max=0)
    with pytest.raises(InvalidValue):
        Agent("x", compactor=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelFailed):
        Compactor(model=ScriptedModel([Fault("ContextOverflow", "too long")]), keep=1)(
            said(Session("1"), "2")
        )


def test_a_model_that_asks_for_tools_instead_is_stood_in_for() -> None:
    session = Compactor(model=ScriptedModel([ToolCall("look", what="a")]), keep=1)(
        said(Session("1"), "2")
    )
    assert shown(session)[0].startswith(f"{SUMMARY}\nIt began with: 1")


# ── by itself ────────────────────────────────────────────────────────────────────────────────


def worker(**more: Any) -> tuple[Agent, Spy]:
    spy = Spy(*[ToolCall("look", what=f"w{number}") for number in range(12)], "done")
    return Agent("Work.", model=spy, tools=[look], name="ann", context_max=300, **more), spy


def test_an_agent_compacts_before_it_asks_too_much() -> None:
    agent, spy = worker(compactor=Compactor(rule=short, keep=2))
    session = agent(Session("go").fact("goal", "find w7"))
    assert session.text == "done" and len(compactions(session)) > 1
    for request in spy.requests:
        assert len(request.turns) <= 12
    assert [turn_text(turn) for turn in spy.requests[-1].turns][1] == "(fact goal: find w7)"
    for event in session.events:
        assert event.kind != "ModelAsked" or rebuild_prompt(session.at(event.seq)).matches


def test_its_own_model_does_it_unless_told_otherwise() -> None:
    def answer(session: Session) -> Any:
        last = session.events[-2]
        if last.kind == "MessageSaid" and last.actor.endswith("/compact"):
            return "in short"
        return ToolCall("look", what="x") if session.seq < 60 else "done"

    agent = Agent("Work.", model=ScriptedModel(answer), tools=[look], name="ann", context_max=700)
    session = agent(Session("go"))
    assert session.text == "done" and compactions(session)
    paths = [event.body.path for event in session.events if isinstance(event.body, k.CallStarted)]
    assert set(paths) == {"ann", "ann/compact"}
    for event in session.events:
        assert event.kind != "ModelAsked" or rebuild_prompt(session.at(event.seq)).matches


def test_it_does_not_compact_in_circles() -> None:
    """What has to stay is too large already: it asks all the same, and does not put every step in
    short.
    """
    agent, spy = worker(compactor=Compactor(rule=short, keep=8))
    session = agent(Session("x" * 4_000).say("y" * 4_000))
    assert session.text == "done" and len(spy.requests) == 13
    assert len(compactions(session)) <= 4


def test_a_summary_that_cannot_be_had_does_not_end_the_run() -> None:
    failing = ScriptedModel(lambda session: Fault("ContextOverflow", "too long"))
    agent, _ = worker(compactor=Compactor(model=failing, keep=2), retry=Retry(wait_s=0.0))
    session = agent(Session("go"))
    assert session.text == "done" and compactions(session)
    assert any(
        event.kind == "ModelFailed" and event.actor == "agent:ann/compact"
        for event in session.events
    )
    assert "It began with: go" in shown(session)[0]


async def _async(agent: Agent, session: Session) -> Session:
    return await agent.acall(session)


def test_it_does_so_on_an_event_loop_too() -> None:
    import asyncio

    agent, _ = worker(
        compactor=Compactor(model=ScriptedModel([f"short {n}" for n in range(20)]), keep=2)
    )
    session = asyncio.run(_async(agent, Session("go")))
    assert (
        session.text == "done"
        and compactions(session)
        and shown(session)[0].startswith(f"{SUMMARY}\nshort")
    )


# ── the law ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(60))
def test_law_facts_never_leave_and_originals_stay_readable(seed: int) -> None:
    lot = random.Random(seed)
    session = Session("go", store=f"memory:compaction-{seed}")
    for step in range(lot.randint(5, 25)):
        act = lot.randrange(6)
        if act == 0:
            session = session.fact(f"key-{lot.randint(0, 5)}", step)
        elif act == 1:
            session = session.note(f"found {step}", key=f"find-{step}")
        elif act == 2 and session.facts:
            session = session.retract(lot.choice(list(session.facts)))
        elif act == 3:
            fork = session.fork(f"f{step}").decide(f"dec-{step}", step).say("there")
            session = session.say("here").merge(
                Compactor(keep=1)(fork) if lot.random() < 0.5 else fork
            )
        elif act == 4:
            before, texts, story = (
                session.seq,
                shown(session),
                [message.text for message in session.messages],
            )
            session = Compactor(keep=lot.randint(1, 4))(session)
            assert shown(session.at(before)) == texts
            assert [message.text for message in session.messages] == story
        else:
            session = session.say(f"said {step}")
        told = "\n".join(shown(session))
        for key in session.facts:
            assert f" {key}: {session.facts[key]})" in told
        for pending in session.pending.values():
            assert pending.what in told
