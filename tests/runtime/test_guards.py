"""Guards: they pass, correct or reject the input and the answer of an agent, on record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plait import (
    Agent,
    Correct,
    Parallel,
    Reject,
    ScriptedModel,
    Session,
    ToolCall,
    View,
    Workflow,
    resume,
    tool,
)
from plait.errors import BranchFailed, GuardFailed, GuardRefused, InvalidValue
from plait.event import kinds as k
from plait.model import Fault
from plait.runtime import guards
from plait.runtime.compaction import Leaving, extract
from plait.runtime.extraction import leaving_events
from plait.runtime.guards import GuardVerdict
from plait.session import verify
from plait.session.ports import store_at
from plait.tools import history
from tests.support import RAN, Spy, assert_replays, bodies, kinds, read, turn_text


def no_homework(session: Session, text: str) -> Reject | None:
    return Reject("it is homework") if "homework" in text else None


def polite(session: Session, text: str) -> Correct | None:
    return Correct(text.replace("damn", "very")) if "damn" in text else None


def short(session: Session, text: str) -> Reject | None:
    return Reject("it is too long") if len(text) > 10 else None


def agent(*script: Any, **more: Any) -> Agent:
    return Agent("Help.", model=ScriptedModel(list(script)), name="a", tools=[read], **more)


def verdicts(session: Session) -> list[tuple[str, bool, Any]]:
    return [(b.name, b.passed, b.detail) for b in bodies(session, k.ValidationRecorded)]


# ── input ────────────────────────────────────────────────────────────────────────────────────


def test_an_input_that_is_rejected_ends_the_call_before_any_effect() -> None:
    made = agent(ToolCall("read", name="a"), "Done.", before=[polite, no_homework])
    session = Session("Do my homework.")
    with pytest.raises(GuardRefused, match="no_homework rejects the input of a: it is homework"):
        made(session)
    session = session.reload()
    assert RAN == [] and not bodies(session, k.ModelAsked) and session.runs[-1].status == "failed"
    reason = {"of": "input", "reason": "it is homework"}
    assert verdicts(session) == [("guard no_homework", False, reason)]
    started = [body.path for body in bodies(session, k.CallStarted)]
    assert started == ["a", "a/polite", "a/no_homework"], "also the guard that lets it pass"
    with pytest.raises(GuardRefused):
        resume(session, made)


def test_an_input_that_is_corrected_is_all_that_the_agent_sees() -> None:
    spy = Spy("Yes.", "Again.")
    made = Agent("Help.", model=spy, name="a", before=[polite, no_homework])
    session = made(Session("A damn question."))
    assert [turn_text(turn) for turn in spy.requests[0].turns] == ["A very question."]
    assert [message.text for message in session.messages][:2] == [
        "A damn question.",
        "A very question.",
    ]
    session = made(session.say("Another one."))
    assert "damn" not in " ".join(map(turn_text, spy.requests[1].turns))
    assert_replays(session, made)
    assert list(verify(store_at(session.store), state=True)) == []


def test_an_input_that_is_rejected_reaches_no_model_later() -> None:
    spy = Spy("Yes.", "Again.")
    made = Agent("Help.", model=spy, name="a", before=[no_homework])
    other = Agent("Help, too.", model=spy, name="b", view=View.calls("b"))
    session = Session("Do my homework.")
    with pytest.raises(GuardRefused):
        made(session)
    with pytest.raises(GuardRefused):  # the message is judged again, and not the marker
        made(session.reload())
    session = made(session.reload().say("What is a noun?"))
    marker = "(a message was refused by the guard no_homework: it is homework)"
    assert [turn_text(turn) for turn in spy.requests[0].turns] == [
        marker,
        marker,
        "What is a noun?",
    ]
    assert session.messages[0].text == "Do my homework." and "homework" in session.transcript()
    asked = next(event for event in session.events if event.kind == "ModelAsked")
    assert session.messages[0].id not in asked.header.causes
    assert_replays(session, made)
    session = other(session.say("And a verb?"))
    assert turn_text(spy.requests[1].turns[0]) == "What is a noun?", "also in a view of people"
    assert "homework." not in extract(session, Leaving(session.seq).messages(session))
    assert not any("homework." in words for _, words in leaving_events(session, session.seq))
    assert "my homework" not in str(session.use(history).result)
    assert list(verify(store_at(session.store), state=True)) == []


def no_message(_: object) -> None:
    return None


def test_runs_replay_in_which_the_agent_saw_an_input_that_was_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spy = Spy("Yes.")
    made = Agent("Help.", model=spy, name="a", before=[no_homework])
    session = Session("Do my homework.")
    with monkeypatch.context() as patch:  # as a verdict was recorded before
        patch.setattr(guards, "last_message", no_message)
        with pytest.raises(GuardRefused):
            made(session)
        session = made(session.reload().say("What is a noun?"))
    assert turn_text(spy.requests[0].turns[0]) == "Do my homework."
    assert_replays(session, made)


class Flaky:
    """A guard that fails until it is mended."""

    name = "flaky"

    def __init__(self) -> None:
        self.is_mended = False

    def __call__(self, session: Session, text: str) -> None:
        if "later" in text and not self.is_mended:
            raise KeyError("no such list")


WITHHELD = "(a message is withheld: no guard has passed it)"


def asked_texts(spy: Spy, at: int = -1) -> list[str]:
    return [turn_text(turn) for turn in spy.requests[at].turns]


def test_an_input_that_a_guard_failed_on_reaches_no_model_before_guards_pass_it() -> None:
    spy, guard = Spy("Yes.", "No."), Flaky()
    made = Agent("Help.", model=spy, name="a", before=[guard])
    session = Session("Now or later?")
    with pytest.raises(GuardFailed):
        made(session)
    session = made(session.reload().say("Hello."))
    assert asked_texts(spy) == [WITHHELD, "Hello."]
    asked = session.events.where("ModelAsked")[0]
    assert session.messages[0].id not in asked.header.causes
    assert [message.text for message in session.messages.shown][0] == "Now or later?"
    assert "later" not in extract(session, Leaving(session.seq).messages(session))
    assert_replays(session, made)
    assert list(verify(store_at(session.store), state=True)) == []


def test_an_input_that_a_guard_failed_on_is_seen_once_a_later_run_passes_it() -> None:
    spy, guard = Spy("Yes.", "No."), Flaky()
    made = Agent("Help.", model=spy, name="a", before=[guard])
    session = Session("Now or later?")
    for _ in range(2):
        with pytest.raises(GuardFailed):
            made(session.reload())
    guard.is_mended = True
    session = made(session.reload())
    assert asked_texts(spy) == ["Now or later?"]
    assert [message.text for message in session.messages.shown] == ["Now or later?", "Yes."]
    assert_replays(session, made)
    session = made(session.say("Hello."))
    assert asked_texts(spy) == ["Now or later?", "Yes.", "Hello."]


def test_a_run_that_failed_over_a_guard_sees_the_input_when_it_is_resumed() -> None:
    spy, guard = Spy("Yes.", "No."), Flaky()
    made = Agent("Help.", model=spy, name="a", before=[polite, guard])
    session = Session("Now or later?")
    with pytest.raises(GuardFailed):
        made(session)
    guard.is_mended = True
    session = resume(session.reload(), made)
    assert asked_texts(spy) == ["Now or later?"]
    session = made(session.say("Hello."))
    assert asked_texts(spy) == ["Now or later?", "Yes.", "Hello."]
    assert_replays(session, made)


def test_an_agent_that_is_a_guard_is_shown_the_input_that_it_failed_on() -> None:
    down, judge, spy = (
        Fault("Down", "it is down", retryable=False),
        Spy('{"passes": true}'),
        Spy("Yes."),
    )

    def guarded(model: Any) -> Agent:
        return Agent("Help.", model=spy, name="a", before=[Agent("Judge.", model=model, name="j")])

    session = Session("Now or later?")
    with pytest.raises(GuardFailed):
        guarded(ScriptedModel([down]))(session)
    made = guarded(judge)
    session = made(session.reload())
    assert asked_texts(judge)[-1] == "Now or later?" and asked_texts(spy) == ["Now or later?"]
    assert_replays(session, made)


def nothing_said(session: Session) -> None:
    """Stand for the last message, so that no event names it."""


def test_runs_replay_in_which_the_agent_saw_an_input_that_a_guard_failed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spy = Spy("Yes.")
    made = Agent("Help.", model=spy, name="a", before=[Flaky()])
    session = Session("Now or later?")
    with monkeypatch.context() as patch:  # as a failure was recorded before
        patch.setattr(guards, "last_message", nothing_said)
        with pytest.raises(GuardFailed):
            made(session)
    session = made(session.reload().say("Hello."))
    assert asked_texts(spy) == ["Now or later?", "Hello."]
    assert_replays(session, made)


def test_an_input_that_is_rejected_in_a_branch_reaches_no_model_later() -> None:
    spy = Spy("Yes.")
    made = Agent("Help.", model=ScriptedModel(lambda _: "Ok."), name="a", before=[no_homework])
    other = Agent("Help, too.", model=ScriptedModel(lambda _: "Ok."), name="b")
    session = Session("Do my homework.")
    with pytest.raises(BranchFailed):
        Parallel(a=made, b=other)(session)
    last = Agent("Help.", model=spy, name="c")
    session = last(session.reload().say("Hello."))
    assert asked_texts(spy) == [WITHHELD, "Hello."]
    assert_replays(session, last)


# ── answers ──────────────────────────────────────────────────────────────────────────────────


def test_an_answer_that_is_rejected_is_asked_for_again_with_the_reason() -> None:
    spy = Spy("This is much too long.", ToolCall("read", name="a"), "Short.")
    made = Agent("Help.", model=spy, name="a", tools=[read], after=[short])
    for session in (made(Session("Go.")), asyncio.run(made.acall(Session("Go.")))):
        assert session.text == "Short."
        assert verdicts(session)[0][:2] == ("guard short", False)
        assert_replays(session, made)
    assert "it is too long" in turn_text(spy.requests[1].turns[-1])


def test_an_answer_that_is_rejected_too_often_fails_the_run_which_asks_again_when_resumed() -> None:
    long = "This is much too long."
    session = Session("Go.")
    with pytest.raises(GuardRefused, match="short rejects the answer of a"):
        agent(long, long, long, "Short.", after=[short])(session)
    assert len(bodies(session.reload(), k.ModelReplied)) == 3
    session = resume(session.reload(), agent(long, long, long, "Short.", after=[short]))
    assert session.text == "Short."
    with pytest.raises(GuardRefused):
        agent(long, "Short.", after=[short], guard_retries=0)(Session("Go."))


def test_an_answer_that_is_corrected_is_the_answer() -> None:
    spy = Spy("A damn good one.", "Fine.")
    made = Agent("Help.", model=spy, name="a", after=[polite])
    session = made(Session("Go."))
    assert session.text == "A very good one." and session.messages[-1].role == "assistant"
    session = made(session.say("Thanks."))
    said = " ".join(map(turn_text, spy.requests[1].turns))
    assert "A very good one." in said and "damn" not in said
    assert_replays(session, made)


# ── agents and workflows ─────────────────────────────────────────────────────────────────────


def test_an_agent_is_a_guard_in_a_branch_of_its_own() -> None:
    def judge(*answers: str) -> Agent:
        script = [ToolCall("read", name="rules"), *answers]
        return Agent("Is it allowed?", model=ScriptedModel(script), name="judge", tools=[read])

    no = '{"passes": false, "reason": "it is a secret"}'
    made = agent("Done.", before=[judge(no)])
    session = Session("Tell me.")
    with pytest.raises(GuardRefused, match="it is a secret"):
        made(session)
    session = session.reload()
    assert RAN == ["rules"] and "read" not in kinds(session)
    (evidence,) = bodies(session, k.ValidationRecorded)[0].evidence
    assert store_at(session.store).event(evidence).log != session.id
    made = agent("Done.", after=[judge('{"passes": true}')])
    session = made(Session("Tell me."))
    assert session.text == "Done." and [message.text for message in session.messages] == [
        "Tell me.",
        "Done.",
    ]
    assert_replays(session, made)


def test_a_workflow_is_a_guard_by_its_result() -> None:
    @tool(effect="pure")
    def allowed(text: str) -> bool:
        """Look it up."""
        return "secret" not in text

    class Rules(Workflow):
        name = "rules"

        def forward(self, session: Session) -> Session:
            return session.use(allowed, text=session.text)

    assert agent("Done.", before=[Rules()])(Session("Go.")).text == "Done."
    with pytest.raises(GuardRefused, match="rules rejects the input"):
        agent("Done.", before=[Rules()])(Session("A secret."))


# ── failures ─────────────────────────────────────────────────────────────────────────────────


def broken(session: Session, text: str) -> None:
    raise KeyError("no such list")


def wordy(session: Session, text: str) -> Any:
    return "fine"


def corrects(session: Session, text: str) -> Correct:
    return Correct("no")


def shy(text: str) -> None: ...


async def later(session: Session, text: str) -> None: ...


def quiet(session: Session, text: str) -> None: ...


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (broken, "the guard broken failed: KeyError: 'no such list'"),
        (wordy, "it returned 'fine'"),
        (later, "write it as def"),
        (Agent("x", name="judge", model=ScriptedModel(["7"]), returns=int), "neither a bool"),
    ],
)
def test_a_guard_that_fails_is_named_and_the_run_can_be_resumed(guard: Any, text: str) -> None:
    session = Session("Go.")
    with pytest.raises(GuardFailed, match=text):
        agent(ToolCall("read", name="a"), "Done.", before=[guard])(session)
    session = session.reload()
    assert RAN == [] and session.runs[-1].status == "failed"


def test_a_guard_that_was_mended_lets_the_run_go_on() -> None:
    is_mended = False

    def guard(session: Session, text: str) -> None:
        if not is_mended:
            raise KeyError("no such list")

    made, session = agent("Done.", before=[guard]), Session("Go.")
    with pytest.raises(GuardFailed):
        made(session)
    is_mended = True
    assert resume(session.reload(), made).text == "Done."


def test_data_is_rejected_and_not_corrected() -> None:
    made = agent('{"passes": true}', returns=GuardVerdict, after=[corrects])
    with pytest.raises(GuardFailed, match="an answer that is data"):
        made(Session("Go."))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"before": [7]}, "a int is not a guard"),
        ({"before": quiet}, "not a list of guards"),
        ({"after": [shy]}, "does not take the session and the text"),
        ({"guard_retries": -1}, "guard_retries"),
    ],
)
def test_what_is_no_guard_is_refused(more: Any, text: str) -> None:
    with pytest.raises(InvalidValue, match=text):
        agent("Done.", **more)
