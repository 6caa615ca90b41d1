"""What if: the same program, recorded up to a place and live after it, in a branch, with something
changed.
"""

from __future__ import annotations

from typing import Any

import pytest

from plait import (
    Agent,
    Parallel,
    ScriptedModel,
    Selector,
    Session,
    ToolCall,
    Workflow,
    open_store,
    replay,
    resume,
    tool,
    whatif,
)
from plait.errors import InvalidValue, NothingToResume, UnknownPlace
from plait.event import Event
from plait.event.kinds import (
    ApprovalRequested,
    FactRecorded,
    Merged,
    MessageSaid,
    ModelAsked,
    ModelReplied,
    QuestionAnswered,
    RunBranched,
    RunFinished,
    RunStarted,
    ToolRequested,
    ToolReturned,
)
from plait.runtime.sent import rebuild_prompt
from plait.session import verify
from tests.support import RAN, ask_preview, events_of, parked_session, scripted_model

pytestmark = pytest.mark.long  # `make quick` leaves these out

BOSS = "human:boss"


@tool(effect="pure")
def look(what: str) -> str:
    """Look at something."""
    RAN.append(what)
    return f"saw {what}"


@tool
def pay(amount: int, idempotency_key: str) -> str:
    """Pay."""
    RAN.append((amount, idempotency_key))
    return f"paid {amount}"


class Trip(Workflow):
    """Tools, branches, a choice, a question, a fact: a bit of everything."""

    def __init__(self) -> None:
        self.scout = Agent(
            "Scout.",
            model=scripted_model(
                ToolCall("look", what="map"),
                [ToolCall("look", what="a"), ToolCall("look", what="b")],
                "scouted",
            ),
            tools=[look],
        )
        self.critics = Parallel(
            one=Agent(
                "Criticise.",
                model=scripted_model(ToolCall("look", what="one"), "one is fine"),
                tools=[look],
            ),
            two=Agent("Doubt.", model=scripted_model("two doubts")),
        )
        self.walk, self.ride = (
            Agent("Walk.", model=scripted_model("walked")),
            Agent("Ride.", model=scripted_model("rode")),
        )
        self.choose = Selector(
            {"walk": self.walk, "ride": self.ride},
            rule=lambda session: "ride" if session.facts["far"] else "walk",
        )
        self.payer = Agent(
            "Pay.", model=scripted_model(ToolCall("pay", amount=5), "done"), tools=[pay]
        )

    def forward(self, session: Session) -> Session:
        session = self.scout(session)
        session = session.ask("Is it far?", ["yes", "no"])
        session = session.fact("far", session.result == "yes")
        session = self.critics(session)
        session = self.choose(session)()
        return self.payer(session)


def trip() -> Session:
    return Trip()(Session("go"), answerer=lambda question, choices: "yes")


def message_texts(session: Session) -> list[str]:
    return [each.text for each in session.messages if each.text]


def own(session: Session) -> list[Event]:
    """Return the branch's own events, beyond its fork."""
    return [event for event in session.events if event.log == session.id]


WORDS = ["go", "scouted", "one is fine", "two doubts", "rode", "done"]


@pytest.mark.long
def test_at_every_place_the_past_is_kept_and_the_rest_is_live() -> None:
    session = trip()
    assert message_texts(session) == WORDS
    first, last = events_of(session, RunStarted)[0].seq, events_of(session, RunFinished)[-1].seq
    before, recorded = session.head, list(RAN)
    key = recorded[-1][1]
    for at in range(first, last + 1):
        RAN.clear()
        other = whatif(
            session, Trip(), at=at, effects="live", answerer=lambda question, choices: "yes"
        )
        assert message_texts(other) == WORDS, at
        assert other.id != session.id and session.reload().head == before
        prefix = [event.id for event in session.events][:at]
        assert [event.id for event in other.events][:at] == prefix
        (branched,) = [event.body for event in other.events if isinstance(event.body, RunBranched)]
        assert branched.source.seq == at
        ran = list(RAN)
        # Nothing that came back before the cut is run again, and everything after it is.
        # one was in a branch
        done = sum(
            isinstance(event.body, (ToolReturned, Merged)) for event in session.at(at).events
        )
        assert len(ran) == len(recorded) - done, (at, ran)
        assert all(isinstance(each, str) or each[1] != key for each in ran), at
        assert replay(other, Trip()).head == other.head, at
        assert ran == RAN
    assert list(verify(open_store(session.store), state=True)) == []


def test_a_model_is_another_from_there_on() -> None:
    session = trip()
    (reply,) = [event for event in events_of(session, ModelReplied) if "scouted" in str(event.body)]
    other = whatif(
        session,
        Trip(),
        at=reply.seq,
        model=scripted_model("something else"),
        effects="live",
        answerer=lambda question, choices: "no",
    )
    assert message_texts(other) == ["go", "scouted", *["something else"] * 4]
    named = whatif(
        session,
        Trip(),
        at=reply.seq,
        model={"ride": scripted_model("flew")},
        effects="live",
        answerer=lambda q, c: "yes",
    )
    assert message_texts(named) == ["go", "scouted", "one is fine", "two doubts", "flew", "done"]
    assert replay(other, Trip()).head == other.head and replay(named, Trip()).head == named.head


def test_an_instruction_is_another_and_the_prompt_says_so() -> None:
    session = trip()
    at = events_of(session, FactRecorded)[0].seq
    other = whatif(
        session,
        Trip(),
        at=at,
        instruction={"ride": "Ride slowly."},
        effects="live",
        answerer=lambda q, c: "yes",
    )
    asked = [event for event in events_of(other, ModelAsked) if event.actor.endswith("ride")]
    assert [rebuild_prompt(other, each).setup.instruction for each in asked] == ["Ride slowly."]
    for each in events_of(other, ModelAsked):
        rebuilt = rebuild_prompt(other.at(each.seq), each)
        assert rebuilt.matches, (each.seq, each.actor)
    everyone = whatif(
        session, Trip(), at=at, instruction="Be brief.", effects="live", answerer=lambda q, c: "yes"
    )
    assert {
        rebuild_prompt(everyone, each).setup.instruction
        for each in events_of(everyone, ModelAsked)
        if each.seq > at and each.log == everyone.id
    } == {"Be brief."}
    assert (
        replay(other, Trip()).head == other.head and replay(everyone, Trip()).head == everyone.head
    )


def test_tools_are_others() -> None:
    @tool(name="look", effect="pure")
    def blind(what: str) -> str:
        """Look away."""
        RAN.append("blind")
        return "saw nothing"

    session = trip()
    RAN.clear()
    at = events_of(session, RunStarted)[0].seq
    other = whatif(
        session,
        Trip(),
        at=at,
        tools={"scout": [blind]},
        effects="live",
        answerer=lambda q, c: "yes",
    )
    assert RAN[:3] == ["blind"] * 3 and other.effects[0].result == "saw nothing"


def test_tools_are_kept_by_name_and_the_branch_is_resumed() -> None:
    session = trip()
    at = events_of(session, RunStarted)[0].seq
    RAN.clear()
    other = parked_session(
        lambda: whatif(session, Trip(), at=at, tools={"scout": [], "payer": ["pay"]})
    )
    assert RAN == [] and [call.result for call in other.effects] == [None] * 3  # it is refused
    (branched,) = [event.body for event in events_of(other, RunBranched)]
    assert isinstance(branched, RunBranched) and isinstance(branched.overrides, dict)
    assert branched.overrides["tools_kept"] == {"scout": [], "payer": ["pay"]}
    other.inbox.answer(other.inbox.waiting[0], "no")
    paid = parked_session(lambda: resume(other, Trip()))
    assert [ask.tool for ask in paid.inbox.waiting] == ["pay"]
    with pytest.raises(InvalidValue, match="there are: look, pay"):
        whatif(session, Trip(), at=at, tools=["lok"])


# ── other words in the past ──────────────────────────────────────────────────────────────────


def _replaced(session: Session, event: Event, value: Any, **more: Any) -> Session:
    other = whatif(
        session, Trip(), replace={event: value}, effects="live", answerer=lambda q, c: "yes", **more
    )
    assert replay(other, Trip()).head == other.head
    return other


def test_a_fact_is_another() -> None:
    session = trip()
    other = _replaced(session, events_of(session, FactRecorded)[0], False)
    assert other.facts["far"] is False and message_texts(other) == [
        "go",
        "scouted",
        "one is fine",
        "two doubts",
        "walked",
        "done",
    ]
    assert session.reload().facts["far"] is True


def test_an_answer_is_another() -> None:
    session = trip()
    other = _replaced(session, events_of(session, QuestionAnswered)[0], "no")
    assert other.facts["far"] is False and "walked" in message_texts(other)


def test_a_tools_result_is_another() -> None:
    session = trip()
    returned = events_of(session, ToolReturned)[0]
    other = _replaced(session, returned, "saw a dragon")
    assert other.effects[0].result == "saw a dragon" and session.effects[0].result == "saw map"
    first = [event for event in events_of(other, ModelAsked) if event.log == other.id][0]
    assert "dragon" in str(rebuild_prompt(other, first).turns)


def test_a_reply_is_another() -> None:
    session = trip()
    reply = [event for event in events_of(session, ModelReplied) if "scouted" in str(event.body)][0]
    other = _replaced(session, reply, "there is nothing there")
    assert message_texts(other)[:2] == ["go", "there is nothing there"]


def test_what_cannot_be_replaced_is_refused() -> None:
    session = trip()
    before = len(Session.list(limit=1000))
    asked = events_of(session, ModelAsked)[0]
    with pytest.raises(InvalidValue):
        whatif(session, Trip(), replace={asked: "x"})
    with pytest.raises(InvalidValue):
        whatif(session, Trip(), replace={events_of(session, FactRecorded)[0]: 1}, at=3)
    odd: Any = "sometimes"
    with pytest.raises(InvalidValue):
        whatif(session, Trip(), effects=odd)
    with pytest.raises(UnknownPlace):
        whatif(session, Trip(), at=10_000)
    with pytest.raises(NothingToResume):
        whatif(session, Trip(), at=1)
    with pytest.raises(NothingToResume):
        whatif(Session("nothing ran here"), Trip())
    assert len(Session.list(limit=1000)) == before + 1


# ── effects ──────────────────────────────────────────────────────────────────────────────────


class Pays(Workflow):
    def __init__(self) -> None:
        self.payer = Agent(
            "Pay.",
            model=scripted_model(ToolCall("look", what="bill"), ToolCall("pay", amount=5), "done"),
            tools=[look, pay],
        )

    def forward(self, session: Session) -> Session:
        return self.payer(session)


@pytest.mark.parametrize("at", ["start", "call", "look", "request"])
def test_what_reaches_outside_needs_consent_and_has_a_key_of_its_own(at: str) -> None:
    session = Pays()(Session("go"))
    (_, (_, key)) = RAN
    places = {
        "start": events_of(session, RunStarted)[0].seq,
        "call": events_of(session, RunStarted)[0].seq + 1,
        "look": events_of(session, ToolReturned)[0].seq,
        "request": events_of(session, ToolRequested)[1].seq,
    }
    RAN.clear()
    other = parked_session(lambda: whatif(session, Pays(), at=places[at]))
    assert [each for each in RAN if each != "bill"] == [] and ask_preview(other.inbox.waiting[0])[
        "tool"
    ] == "pay"
    assert other.lineage.parent is not None and other.lineage.parent.id == session.id
    RAN.clear()
    other = resume(other.inbox.approve(other.inbox.waiting[0], actor=BOSS), Pays())
    (ran,) = RAN
    assert ran[0] == 5 and ran[1] != key and other.text == "done"
    assert replay(other, Pays()).head == other.head
    live = whatif(session, Pays(), at=places[at], effects="live")
    keys = {each[1] for each in RAN if each != "bill"}
    assert len(keys) == 2 and key not in keys and events_of(live, ApprovalRequested) == []


def test_what_the_program_itself_does_needs_consent_too() -> None:
    class Direct(Workflow):
        def forward(self, session: Session) -> Session:
            return session.use(pay, amount=1)

    session = Direct()(Session("go"))
    for place in range(
        events_of(session, RunStarted)[0].seq, events_of(session, ToolRequested)[0].seq + 1
    ):
        RAN.clear()
        parked_session(lambda: whatif(session, Direct(), at=place))  # noqa: B023
        assert RAN == [], place


def test_an_approver_decides_at_once() -> None:
    session = Pays()(Session("go"))
    RAN.clear()
    other = whatif(
        session,
        Pays(),
        at=events_of(session, RunStarted)[0].seq,
        approver=lambda approval: "not in a dream",
    )
    assert [each for each in RAN if each != "bill"] == [] and "not in a dream" in str(
        rebuild_prompt(other).turns
    )
    assert replay(other, Pays()).head == other.head


def test_a_what_if_of_a_what_if() -> None:
    session = trip()
    far = events_of(session, FactRecorded)[0]
    walked = _replaced(session, far, False)
    fact = next(event for event in own(walked) if isinstance(event.body, FactRecorded))
    again = whatif(
        walked, Trip(), at=fact.seq, model={"walk": scripted_model("crawled")}, effects="live"
    )
    assert message_texts(again) == ["go", "scouted", "one is fine", "two doubts", "crawled", "done"]
    assert (
        walked.reload().head == walked.head
        and again.lineage.parent is not None
        and again.lineage.parent.id == walked.id
    )
    assert replay(again, Trip()).head == again.head


def test_a_branch_is_asked_through_its_root() -> None:
    session = trip()
    branches = [
        Session.open(row.id)
        for row in Session.list(limit=100)
        if Session.open(row.id).lineage.label == "two"
    ]
    with pytest.raises(InvalidValue, match=f"began in {session.short}"):
        whatif(branches[0], Trip(), effects="live", answerer=lambda q, c: "yes")


def test_both_sides_are_compared() -> None:
    session = trip()
    other = _replaced(session, events_of(session, FactRecorded)[0], False).checks.record(
        "arrived", False
    )
    diff = session.checks.record("arrived", True).diff(other)
    assert "rode" in [each.text for each in diff.messages.left] and "walked" in [
        each.text for each in diff.messages.right
    ]
    assert diff.messages.common > 0
    assert (diff.facts["far"].left, diff.facts["far"].right) == (True, False)
    assert (diff.validation["arrived"].left, diff.validation["arrived"].right) == (True, False)
    assert diff.cost[0].tokens > 0 and diff.cost[1].tokens > 0
    text = str(diff)
    for words in (
        "- ride: rode",
        "+ walk: walked",
        "- far = true",
        "+ far = false",
        "- arrived = true",
        "cost:",
    ):
        assert words in text, text


def test_a_message_is_another() -> None:
    class Echo(Workflow):
        def __init__(self) -> None:
            self.asker = Agent(
                "Answer.",
                model=ScriptedModel(lambda session: f"you said {session.messages[-1].text}"),
            )

        def forward(self, session: Session) -> Session:
            return self.asker(session.say("sunny"))

    session = Echo()(Session("go"))
    said = events_of(session, MessageSaid)[-1]
    other = whatif(session, Echo(), replace={said: "rainy"})
    assert message_texts(other) == ["go", "rainy", "you said rainy"] and message_texts(
        session.reload()
    ) == [
        "go",
        "sunny",
        "you said sunny",
    ]
    assert replay(other, Echo()).head == other.head
