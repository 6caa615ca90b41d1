"""Messages and streams as a person in a chat gets to see them, with and without guards."""

from __future__ import annotations

from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from plait import (
    Agent,
    Correct,
    Reject,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    resume,
    tool,
)
from plait.errors import GuardFailed, GuardRefused, KeyTaken, TurnFailed
from plait.model.base import Restarted, TextDelta
from tests.support import assert_replays, read


def brief(session: Session, text: str) -> Reject | None:
    return Reject("say it in five words") if len(text.split()) > 5 else None


def no_names(session: Session, text: str) -> Correct | None:
    return Correct(text.replace("Ann", "[name]")) if "Ann" in text else None


LONG = "That is a very long answer indeed."


def guarded(*script: Any, **more: Any) -> Agent:
    model = ScriptedModel(list(script))
    given: dict[str, Any] = {"after": [brief, no_names], "tools": [read], **more}
    return Agent("Help.", model=model, name="a", **given)


def shown(session: Session) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in session.messages.shown]


def spoken(items: list[Any]) -> list[str | None]:
    """Return the texts of a stream; None: they count no more."""
    return [
        item.text if isinstance(item, TextDelta) else None
        for item in items
        if isinstance(item, (TextDelta, Restarted))
    ]


def streamed(workflow: Workflow, session: Session) -> tuple[list[Any], Session]:
    *items, last = workflow.stream(session)
    assert isinstance(last, Session)
    return items, last


def test_people_see_neither_refused_answers_nor_notes() -> None:
    made = guarded(LONG, ToolCall("read", name="a"), "Ask Ann.", before=[no_names])
    items, session = streamed(made, Session("Whom, says Ann?"))
    assert shown(session) == [("user", "Whom, says Ann?"), ("assistant", "Ask [name].")]
    assert spoken(items) == ["Ask [name]."] and len(session.messages) == 7
    assert_replays(session, made)
    items, session = streamed(made, session.say("Again?"))
    assert shown(session)[2:] == [("user", "Again?"), ("assistant", session.text)]


def test_text_that_is_not_held_back_is_taken_back() -> None:
    made = guarded(LONG, "Ask Ann.", hold_back=False)
    items, _ = streamed(made, Session("Whom?"))
    texts = spoken(items)
    assert "".join(text or "|" for text in texts) == f"{LONG}|Ask Ann.|Ask [name]."
    whys = [item.why for item in items if isinstance(item, Restarted)]
    assert "five words" in whys[0] and "no_names" in whys[1]


def test_an_answer_is_not_seen_while_its_guards_judge_it() -> None:
    begun, go_on, seen = Flag(), Flag(), list[Any]()

    def slow(session: Session, text: str) -> bool:
        begun.set()
        return go_on.wait(30)

    heard = list[Any]()
    made, session = guarded("Fine.", after=[slow]), Session("Well?")
    work = Thread(target=lambda: made(session, on_event=heard.append))
    work.start()
    assert begun.wait(30)
    now = session.reload()
    seen = [message.text for message in now.messages], shown(now), spoken(heard)
    go_on.set()
    work.join()
    assert seen == (["Well?", "Fine."], [("user", "Well?")], [])
    assert shown(session.reload())[-1] == ("assistant", "Fine.") and spoken(heard) == ["Fine."]  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [GuardRefused, GuardFailed])
def test_an_answer_that_never_passed_is_never_seen(error: type[Exception]) -> None:
    def refuses(session: Session, text: str) -> bool:
        if error is GuardFailed:
            raise LookupError("no list of names")
        return False

    session, heard = Session("Well?"), list[Any]()
    with pytest.raises(error):
        guarded("One.", "Two.", after=[refuses], guard_retries=1)(session, on_event=heard.append)
    assert shown(session.reload()) == [("user", "Well?")] and spoken(heard) == []


def test_text_of_guards_and_of_agents_at_work_is_not_heard() -> None:
    helper = Agent("Find it.", model=ScriptedModel(["Ann has it."]), name="helper")
    judge = Agent("Judge.", model=ScriptedModel(['{"passes": true}']), name="judge")
    calls = ToolCall("helper", request="Who?")
    lead = guarded(
        calls, "Ask.", tools=[helper.as_tool(takes="all")], before=[judge], after=[judge]
    )
    items, session = streamed(lead, Session("Whom?"))
    assert spoken(items) == ["Ask."] and shown(session) == [
        ("user", "Whom?"),
        ("assistant", "Ask."),
    ]


def test_agents_that_take_over_are_under_the_guards_of_the_desk() -> None:
    script = ScriptedModel(["Ann has paid the whole bill already.", "Ann has paid."])
    billing = Agent("Bill.", model=script, name="b")
    desk = guarded(ToolCall("hand_off_to_b", reason="a bill"), handoffs=[billing])
    items, session = streamed(desk, Session("Pay?"))
    assert "".join(map(str, spoken(items))) == session.text == shown(session)[-1][1]
    assert "whole" not in str(shown(session)) and "Ann" not in session.text


def test_answers_of_the_wrong_shape_and_words_of_programs_are_not_seen() -> None:
    class Counts(Workflow):
        def __init__(self) -> None:
            self.agent = Agent("Count.", model=ScriptedModel(["many", "3"]), returns=int)

        def forward(self, session: Session) -> Session:
            return self.agent(session.say("Count the words."))

    items, session = streamed(Counts(), Session("How many?"))
    assert shown(session) == [("user", "How many?"), ("assistant", "3")]
    assert spoken(items) == ["many", None, "3"]
    session = session.turn("And now?", Counts(), actor="service:web")
    assert shown(session)[2:] == [("user", "And now?"), ("assistant", "3")]


# ── turns that have no answer ────────────────────────────────────────────────────────────────


def test_a_key_is_of_one_message() -> None:
    made, session = guarded("Yes.", "No."), Session()
    session = session.turn("one", made, key="r-1")
    with pytest.raises(KeyTaken, match="with a key of its own"):
        session.turn("two", made, key="r-1")
    assert session.reload() == session == session.turn("one", made, key="r-1")


def test_a_turn_without_an_answer_says_what_helps() -> None:
    class Fails(Workflow):
        def __init__(self, times: int) -> None:
            self._times = times

        def forward(self, session: Session) -> Session:
            self._times -= 1
            if self._times >= 0:
                raise LookupError("no stock")
            return session.say("ok", role="assistant")

    session, flow = Session(), Fails(1)
    with pytest.raises(LookupError):
        session.turn("one", flow, key="r-1")
    with pytest.raises(TurnFailed, match="no stock.*another key.*plait resume") as failed:
        session.turn("one", flow, key="r-1")
    assert failed.value.can_resume
    session.turn("two", flow)
    with pytest.raises(TurnFailed, match=r"no stock.*another key or none\.$") as failed:
        session.turn("one", flow, key="r-1")
    assert not failed.value.can_resume


def test_a_cancelled_turn_says_why() -> None:
    @tool
    def stop() -> str:
        """Cancel the run."""
        here.reload().inbox.cancel("too slow", actor="human:ann")
        return ""

    made, here = guarded(ToolCall("stop"), "Yes.", tools=[stop]), Session()
    with pytest.raises(BaseException, match="too slow"):
        here.turn("one", made, key="r-1")
    with pytest.raises(TurnFailed, match=r"human:ann cancelled it: too slow.*or none\.$"):
        here.turn("one", made, key="r-1")
    with pytest.raises(Exception, match="nothing to resume"):
        resume(here, made)
