"""The agent's turn: what it asks with, what it does about every kind of answer, and how it ends."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import msgspec
import pytest

from plait import (
    Agent,
    Budget,
    Parallel,
    ScriptedModel,
    Sequential,
    Session,
    ToolCall,
    View,
    Workflow,
    tool,
)
from plait.errors import InvalidValue, ModelFailed, NoModel, ResultInvalid
from plait.event import kinds as k
from plait.model.base import Answered, Fault, Reply, Request, Returned, Said
from plait.session.value import open_run_of
from tests.support import QUICK, Spy, bodies, kinds, turn_text, word_count

# ── the loop ─────────────────────────────────────────────────────────────────────────────────


def test_ask_act_answer() -> None:
    model = ScriptedModel([ToolCall("word_count", text="to be or not"), "Four."])
    session = Agent("Use word_count.", model=model, tools=[word_count])(Session("How many?"))
    assert (
        session.text == "Four."
        and session.result == 4
        and session.run is None
        and session.status == "finished"
    )
    assert kinds(session)[2:] == [
        "RunStarted",
        "CallStarted",
        "ModelAsked",
        "ModelReplied",
        "ToolRequested",
        "ToolReturned",
        "ModelAsked",
        "ModelReplied",
        "CallFinished",
        "RunFinished",
    ]
    assert (
        session.budget.usage.input_tokens > 0
        and session.budget.used.model_calls == 2
        and session.budget.used.tool_calls == 1
    )
    assert (
        {event.header.run for event in session.events[2:]}
        == {session.events[2].header.run}
        != {None}
    )
    session.close()


def test_causes_lead_from_the_answer_to_the_question() -> None:
    model = ScriptedModel(
        [[ToolCall("word_count", text="a"), ToolCall("word_count", text="b c")], "Done."]
    )
    session = Agent("x", model=model, tools=[word_count])(Session("How many?"))
    by_id = {event.id: event for event in session.events}
    question, asked, reply, one, two, done_1, done_2, again, answer = (
        session.events[i] for i in (1, 4, 5, 6, 7, 8, 9, 10, 11)
    )
    assert asked.header.causes == (question.id,) and reply.header.causes == (asked.id,)
    assert one.header.causes == two.header.causes == (reply.id,)
    assert set(again.header.causes) == {done_1.id, done_2.id} and answer.header.causes == (
        again.id,
    )
    assert by_id[answer.header.causes[0]].kind == "ModelAsked"
    trace = str(session.why(session.text))
    assert "How many?" in trace and "word_count" in trace


def test_why_leads_from_result_to_call_to_reply_to_question() -> None:
    model = ScriptedModel([ToolCall("word_count", text="a b"), "Two."])
    session = Agent("x", model=model, tools=[word_count], name="x")(Session("How many?"))
    assert [step.how for step in session.why("Two.")] == [
        "is",
        "because of",
        "having seen",
        "asked by",
        "because of",
        "because of",
        "having seen",
    ]
    assert [step.kind for step in session.why("Two.")][3:] == [
        "ToolRequested",
        "ModelReplied",
        "ModelAsked",
        "MessageSaid",
    ]


def test_wrong_arguments_and_unknown_tools_become_results_the_model_can_correct() -> None:
    spy = Spy(
        [
            ToolCall("word_count", txt="a"),
            ToolCall("word_cuont", text="a"),
            ToolCall("word_count", text="a b"),
        ],
        ToolCall.of("word_count", '{"text": "cut o'),
        ToolCall.of("word_count", {"text": float("nan")}),
        "Two.",
    )
    session = Agent("x", model=spy, tools=[word_count])(Session("go"))
    assert session.text == "Two."
    results = [
        result
        for turn in spy.requests[1].turns
        if isinstance(turn, Returned)
        for result in turn.results
    ]
    assert [result.failed for result in results] == [True, True, False]
    assert "missing required field `text`" in turn_text(
        Said(results[0].parts)
    ) or "unknown field `txt`" in turn_text(Said(results[0].parts))
    assert "there is no tool 'word_cuont'; there are: word_count" in turn_text(
        Said(results[1].parts)
    )
    failures = [body.failure.kind for body in bodies(session, k.ToolFailed)]
    assert failures == ["WrongArguments", "UnknownTool", "WrongArguments", "WrongArguments"]
    assert bodies(session, k.ToolRequested)[3].arguments == '{"text": "cut o'  # as it came
    assert open_run_of(session) is None and not session.pending


def test_a_reply_cut_at_its_length_runs_none_of_its_calls() -> None:
    cut = Reply((k.Text("I will"),), (ToolCall("word_count", text="a"),), "length", k.Usage(5, 5))
    spy = Spy(cut, "Fine.")
    session = Agent("x", model=spy, tools=[word_count])(Session("go"))
    assert session.text == "Fine." and bodies(session, k.ToolFailed)[0].failure.kind == "Truncated"
    assert not bodies(session, k.ToolReturned)


def test_refusals_and_long_answers_end_the_turn_and_say_how() -> None:
    for stop in ("refusal", "length", "content_filter"):
        session = Agent(
            "x", model=ScriptedModel([Reply((k.Text("I cannot"),), (), stop, k.Usage(1, 1))])
        )(Session("go"))
        assert session.text == "I cannot" and bodies(session, k.ModelReplied)[0].stop == stop


def test_reasoning_is_kept_verbatim_and_given_back() -> None:
    thought = k.Reasoning("hm", {"signature": "sig=="})
    spy = Spy(
        Reply((thought, k.Text("Let me see.")), (ToolCall("word_count", text="a"),), "calls"),
        "One.",
    )
    session = Agent("x", model=spy, tools=[word_count])(Session("go"))
    answered = next(turn for turn in spy.requests[1].turns if isinstance(turn, Answered))
    assert (
        answered.parts == (thought, k.Text("Let me see."))
        and bodies(session, k.ModelReplied)[0].parts[0] == thought
    )
    assert session.messages[1].text == "\nLet me see." or "Let me see." in session.messages[1].text


# ── faults ───────────────────────────────────────────────────────────────────────────────────


def test_each_attempt_is_on_record() -> None:
    model = ScriptedModel(
        [
            Fault("RateLimited", "slow down", retryable=True, retry_after_s=0.0),
            Fault("StreamCut", "it broke off", retryable=True, partial="Fo", usage=k.Usage(3, 1)),
            "Four.",
        ]
    )
    session = Agent("x", model=model, retry=QUICK)(Session("go"))
    assert session.text == "Four."
    assert [body.attempt for body in bodies(session, k.ModelAsked)] == [1, 2, 3]
    failed = bodies(session, k.ModelFailed)
    assert [(body.failure.kind, body.attempt, body.partial) for body in failed] == [
        ("RateLimited", 1, ""),
        ("StreamCut", 2, "Fo"),
    ]
    assert (
        session.budget.usage.input_tokens > 3
        and len({event.header.call for event in session.events if event.kind.startswith("Model")})
        == 1
    )
    # what the cut one cost nobody knows
    assert session.budget.cost.unpriced == 1 and str(session.budget.cost) == "unknown"


def test_what_cannot_be_retried_ends_the_run_and_is_on_record() -> None:
    agent = Agent("x", model=ScriptedModel([Fault("AuthFailed", "no such key")]))
    with pytest.raises(
        ModelFailed, match="did not answer, asked once: AuthFailed: no such key"
    ) as caught:
        agent(Session("go"))
    session = caught.value.session
    assert (
        kinds(session)[-4:] == ["ModelAsked", "ModelFailed", "CallFinished", "RunFailed"]
        and open_run_of(session) is None
    )
    assert bodies(session, k.RunFailed)[0].failure.kind == "ModelFailed"
    again = Agent("y", model=ScriptedModel(["ok"]))(session)  # the session goes on
    assert again.text == "ok"


def test_attempts_come_to_an_end() -> None:
    down = ScriptedModel([Fault("ServerError", "500", retryable=True)] * 9)
    with pytest.raises(ModelFailed, match="asked 5 times"):
        Agent("x", model=down, retry=QUICK)(Session("go"))
    patient = ScriptedModel([Fault("RateLimited", "later", retryable=True, retry_after_s=3600.0)])
    with pytest.raises(ModelFailed, match="asked once"):
        Agent("x", model=patient)(Session("go"))


def test_empty_replies_are_asked_again_and_then_fail() -> None:
    nothing = Reply((), (), "end", k.Usage(7, 0))
    session = Agent("x", model=ScriptedModel([nothing, nothing, "Here."]), retry=QUICK)(
        Session("go")
    )
    assert (
        session.text == "Here."
        and [body.failure.kind for body in bodies(session, k.ModelFailed)] == ["EmptyReply"] * 2
    )
    assert session.budget.usage.input_tokens >= 14
    with pytest.raises(ModelFailed, match="EmptyReply"):
        Agent(
            "x",
            model=ScriptedModel([Reply((k.Reasoning("hm"), k.Text(""))), *[nothing] * 8]),
            retry=QUICK,
        )(Session("go"))


def test_a_reply_no_log_can_hold_is_a_fault() -> None:
    session = Agent("x", model=ScriptedModel(["half \ud800", "whole"]), retry=QUICK)(Session("go"))
    assert (
        session.text == "whole"
        and bodies(session, k.ModelFailed)[0].failure.kind == "MalformedReply"
    )


def test_a_model_with_a_bug_fails_with_its_traceback() -> None:
    class Broken:
        name = "broken"

        def ask(self, request: Request, on_delta: Any) -> Any:
            return dict[str, int]()["nothing"]

    class Wrong(Broken):
        def ask(self, request: Request, on_delta: Any) -> Any:
            return "a text"

    with pytest.raises(ModelFailed, match="KeyError") as caught:
        Agent("x", model=Broken())(Session("go"))
    assert (
        'dict[str, int]()["nothing"]'
        in bodies(caught.value.session, k.ModelFailed)[0].failure.traceback
    )
    with pytest.raises(ModelFailed, match="answered with a str, not a Reply"):
        Agent("x", model=Wrong())(Session("go"))


def test_async_models_are_awaited() -> None:
    class Slow:
        name = "slow"

        async def ask(self, request: Request, on_delta: Any) -> Reply:
            import asyncio

            await asyncio.sleep(0)
            return Reply((k.Text("later"),), usage=k.Usage(1, 1))

    assert Agent("x", model=Slow())(Session("go")).text == "later"


# ── scripts ──────────────────────────────────────────────────────────────────────────────────


def test_which_item_is_served_follows_from_the_path() -> None:
    agent = Agent("x", model=ScriptedModel(["one", "two"]))

    class Twice(Workflow):
        def __init__(self) -> None:
            self.agent = agent

        def forward(self, session: Session) -> Session:
            first = self.agent(session)
            back = first.rewind(session.seq)
            again = self.agent(back)
            fork = first.fork("other")
            assert self.agent(fork).text == "two"
            assert again.text == "one"
            return self.agent(again)

    assert Twice()(Session("go")).text == "two"
    # no counter anywhere
    assert agent(Session("go")).text == "one" and agent(Session("go")).text == "one"
    with pytest.raises(
        ModelFailed, match="ScriptExhausted: the script has 1 items, and item 2 was asked for"
    ):
        Sequential(a := Agent("y", model=ScriptedModel(["only"]), name="y"), a)(Session("go"))


def test_a_script_may_be_a_function_of_the_session() -> None:
    agent = Agent(
        "x", model=ScriptedModel(lambda session: f"I see {len(session.messages)} messages")
    )
    assert agent(Session("a").say("b")).text == "I see 2 messages"
    with pytest.raises(InvalidValue, match="is not a script"):
        ScriptedModel("text")
    for wrong in (3, [], ["text"]):
        with pytest.raises(InvalidValue, match="is not an answer"):
            ScriptedModel([wrong])  # type: ignore[list-item]


# ── limits ───────────────────────────────────────────────────────────────────────────────────


def test_the_step_limit_ends_well() -> None:
    spy = Spy(*[ToolCall("word_count", text="a")] * 3, "That is all I know.")
    session = Agent("x", model=spy, tools=[word_count], steps_max=3)(Session("go"))
    assert session.text == "That is all I know." and len(spy.requests) == 4
    assert spy.requests[3].choice == "none" and "Answer now" in turn_text(spy.requests[3].turns[-1])
    assert spy.requests[3].tools == spy.requests[0].tools  # the prefix stays as it is


def test_one_that_never_stops_ends_well_too() -> None:
    agent = Agent(
        "x",
        model=ScriptedModel(lambda _: ToolCall("word_count", text="a")),
        tools=[word_count],
        steps_max=2,
    )
    session = agent(Session("go"))
    assert (
        "all 2 steps were used" in session.text
        and len(session.effects) == 2
        and open_run_of(session) is None
    )


# ── typed results ────────────────────────────────────────────────────────────────────────────


@dataclasses.dataclass
class Verdict:
    passed: bool
    why: str = ""


class Score(msgspec.Struct):
    points: int


def test_an_answer_of_a_type() -> None:
    agent = Agent("Judge.", model=ScriptedModel(['{"passed": true, "why": "tests"}']))
    typed = agent.returns(Verdict)
    session = typed(Session("go"))
    assert session.result == {"passed": True, "why": "tests"} and session.result_as(
        Verdict
    ) == Verdict(True, "tests")
    assert typed is not agent and "returns=Verdict" in repr(typed) and "returns" not in repr(agent)
    with pytest.raises(InvalidValue, match="it is not a Score"):
        session.result_as(Score)


def test_an_answer_of_another_type_is_told_why_and_asked_again() -> None:
    spy = Spy("maybe", '{"passed": "yes"}', '```json\n{"passed": false}\n```')
    session = Agent("Judge.", model=spy, returns=Verdict)(Session("go"))
    assert session.result_as(Verdict) == Verdict(False)
    assert "it is not JSON" in turn_text(
        spy.requests[1].turns[-1]
    ) and "Expected `bool`" in turn_text(spy.requests[2].turns[-1])
    with pytest.raises(ResultInvalid) as caught:
        Agent("Judge.", model=ScriptedModel(["no"] * 9), returns=Verdict)(Session("go"))
    assert kinds(caught.value.session)[-1] == "RunFailed"


@pytest.mark.parametrize(
    ("type_", "answer", "result"),
    [(int, '{"answer": 4}', 4), (list[str], '["a"]', ["a"]), (Literal["a", "b"], '"b"', "b")],
)
def test_types_that_are_no_objects(type_: Any, answer: str, result: Any) -> None:
    spy = Spy(answer)
    session = Agent("x", model=spy, returns=type_)(Session("go"))
    assert session.result == result
    schema: Any = spy.requests[0].output
    assert schema["type"] == "object" and schema["required"] == ["answer"]
    with pytest.raises(InvalidValue, match="returns"):
        Agent("x", returns=lambda: 0)


# ── what it sees ─────────────────────────────────────────────────────────────────────────────


def rendered(request: Request) -> bytes:
    return msgspec.json.encode(
        [request.instruction, list(request.tools), list(request.turns)], order="deterministic"
    )


def test_the_prefix_is_stable_as_the_session_grows_and_across_forks() -> None:
    spy = Spy(*[ToolCall("word_count", text="x")] * 5, "done")
    agent = Agent("Count.", model=spy, tools=[word_count, tool(name="other")(word_count.function)])
    session = agent(Session("go").fact("db", "postgres"))
    for spot in (
        session.say("more"),
        session.fork("a").say("more"),
        session.fork("b").say("and more"),
    ):
        agent(spot)
    prompts = [rendered(request)[:-2] for request in spy.requests]
    for early, late in zip(prompts[:5], prompts[1:6], strict=True):
        assert late.startswith(early)
    for later in (prompts[6], prompts[12], prompts[18]):
        assert later.startswith(prompts[5])
    assert [spec.name for spec in spy.requests[0].tools] == ["other", "word_count"]  # sorted
    first = [body.prompt for body in bodies(session, k.ModelAsked)]
    assert len(set(first)) == len(first) == 6


def test_the_digest_is_that_of_the_same_prompt_built_anew() -> None:
    agent = Agent(
        "Count.", model=ScriptedModel([ToolCall("word_count", text="x"), "a"]), tools=[word_count]
    )
    session = Session("go")
    one, two = agent(session.fork("one")), agent(session.fork("two"))
    digests = [[body.prompt for body in bodies(each, k.ModelAsked)] for each in (one, two)]
    assert digests[0][0] == digests[1][0]  # the same words, the same prompt
    setups = {body.setup for each in (one, two) for body in bodies(each, k.CallStarted)}
    assert len(setups) == 1 and b'"instruction":"Count."' in one.files.blob(next(iter(setups)))


def test_an_agent_takes_nobody_elses_words_for_its_own() -> None:
    ann, bob = Spy("I am Ann.", "Ann again."), Spy("I am Bob.")
    pair = Sequential(
        ann=Agent("You are Ann.", model=ann),
        bob=Agent("You are Bob.", model=bob),
        last=Agent("Sum up.", model=Spy("Sum.")),
    )
    session = pair(Session("hello"))
    assert [turn_text(turn) for turn in bob.requests[0].turns] == ["hello", "[ann] I am Ann."]
    assert isinstance(bob.requests[0].turns[1], Said)
    assert [event.body.to for event in session.events if isinstance(event.body, k.HandedOff)] == [
        "sequential/bob",
        "sequential/last",
    ]
    again = Agent("You are Ann.", model=ann, name="ann")
    session = again(again(Session("x")))
    assert [type(turn).__name__ for turn in ann.requests[-1].turns] == ["Said", "Answered", "Said"]
    assert turn_text(ann.requests[-1].turns[-1]) == "Go on."


def test_a_handoff_from_run_to_run_is_on_record_too() -> None:
    ann, bob = (
        Agent("Ann.", model=ScriptedModel(["a"]), name="ann"),
        Agent("Bob.", model=ScriptedModel(["b"]), name="bob"),
    )
    session = bob(bob(ann(Session("go"))))
    assert [
        (event.actor, event.body.to)
        for event in session.events
        if isinstance(event.body, k.HandedOff)
    ] == [("agent:ann", "bob")]
    assert [(run.status, run.workflow) for run in session.runs] == [
        ("finished", "plait.agent:Agent")
    ] * 3


def test_what_the_program_fetched_is_there_to_be_read() -> None:
    @tool
    def fetch() -> str:
        return "x" * 10_000

    spy = Spy("ok")
    Agent("x", model=spy)(Session("go").use(fetch))
    assert "x" * 10_000 in turn_text(spy.requests[0].turns[-1])


def test_two_agents_without_a_name_are_two() -> None:
    ann, bob = Spy("I am Ann."), Spy("I am Bob.")
    session = Agent("You are Ann.", model=ann)(Session("hello"))
    session = Agent("You are Bob.", model=bob)(session)
    assert [type(turn) for turn in bob.requests[0].turns] == [
        Said,
        Said,
    ] and "I am Ann." in turn_text(bob.requests[0].turns[1])


def test_facts_work_verdicts_and_program_calls_are_seen() -> None:
    spy = Spy("ok")
    session = (
        Session("go")
        .fact("db", {"port": 5432})
        .decide("verdict", "reject")
        .note("slow")
        .todo("test it", key="t")
        .settle("t", "done")
    )
    session = (
        session.checks.record("tests", False, detail={"failed": 2})
        .retract("verdict", reason="wrong")
        .use(word_count, text="a b")
    )
    Agent("x", model=spy)(session)
    text = "\n".join(turn_text(turn) for turn in spy.requests[0].turns)
    for part in (
        '(fact db: {"port":5432})',
        "(decision verdict: reject)",
        "slow",
        "(to do: test it)",
        "(settled t: done)",
    ):
        assert part in text
    for part in (
        '(verdict tests: failed: {"failed":2})',
        "verdict no longer holds: wrong",
        'word_count {"text":"a b"} returned',
        "2",
    ):
        assert part in text


def test_a_call_left_behind_by_a_fork_is_shown_as_not_run() -> None:
    spy = Spy(ToolCall("word_count", text="a"), "done")
    agent = Agent("x", model=spy, tools=[word_count], name="a")
    session = agent(Session("go"))
    reply = next(event.seq for event in session.events if event.kind == "ModelReplied")
    spy2 = Spy("ok")
    agent2 = Agent("x", model=spy2, tools=[word_count], name="a")
    agent2(session.fork("early", at=reply).say("instead?"))
    assert [turn_text(turn) for turn in spy2.requests[0].turns] == [
        "go",
        "",
        "(not run in this branch)",
        "instead?",
    ]


def test_views_show_less() -> None:
    def asked(view: Any, session: Session) -> list[str]:
        spy = Spy("ok")
        Agent("x", model=spy, view=view, name="viewer")(
            session if session.lineage.label else session.fork()
        )
        return [turn_text(turn) for turn in spy.requests[0].turns]

    session = Session("one").say("two").fact("k", "v").say("three")
    session = Agent("a", model=ScriptedModel(["I am a"]), name="ann")(session)
    session = Agent("b", model=ScriptedModel(["I am b"]), name="bob")(session)
    assert asked(None, session) == [
        "one",
        "two",
        "(fact k: v)",
        "three",
        "[ann] I am a",
        "[bob] I am b",
    ]
    assert asked(View.last(2), session) == asked(2, session) == ["[ann] I am a", "[bob] I am b"]
    assert asked(View.calls("ann"), session) == [
        "one",
        "two",
        "(fact k: v)",
        "three",
        "[ann] I am a",
    ]
    assert asked(View.facts(), session) == asked("facts", session) == ["(fact k: v)", "three"]
    assert asked(View.branch(), session.fork("f").say("in the branch")) == ["in the branch"]
    with pytest.raises(InvalidValue, match="is not a view"):
        Agent("x", view="some")


def test_merged_branches_are_seen_as_named_blocks() -> None:
    spy = Spy("settled")
    both = Parallel(
        pro=Agent("p", model=ScriptedModel(["yes"])), con=Agent("c", model=ScriptedModel(["no"]))
    )
    Sequential(both, Agent("settle", model=spy))(Session("Shall we?"))
    assert [turn_text(turn) for turn in spy.requests[0].turns] == [
        "Shall we?",
        "[pro] yes",
        "[con] no",
    ]


def test_images_reach_the_model_whole() -> None:
    from plait import image

    spy = Spy("seen")
    Agent("x", model=spy)(Session("look", image(b"GIF89a", "image/gif")))
    part = next(
        part
        for turn in spy.requests[0].turns
        if isinstance(turn, Said)
        for part in turn.parts
        if isinstance(part, k.Image)
    )
    assert spy.requests[0].blob(part.blob) == b"GIF89a"


# ── setting up ───────────────────────────────────────────────────────────────────────────────


def test_what_is_missing_is_said_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session("go")
    with pytest.raises(NoModel, match="has no model"):
        Agent("x")(session)
    with pytest.raises(NoModel, match="no model is called 'gpt-5'"):
        Agent("x", model="gpt-5")(session)
    with pytest.raises(InvalidValue, match="a int is not a model"):
        Agent("x", model=5)  # type: ignore[arg-type]
    for wrong in ("", "  ", None, 3):
        with pytest.raises(InvalidValue, match="instruction"):
            Agent(wrong)  # type: ignore[arg-type]
    for wrong in (0, -1, "3", True):
        with pytest.raises(InvalidValue, match="steps_max"):
            Agent("x", steps_max=wrong)  # type: ignore[arg-type]
    assert session.reload() == session


def test_usage_counts_every_branch_once() -> None:
    usage = k.Usage(10, 5, 2, 1)
    reply = Reply((k.Text("yes"),), (), "end", usage, price=k.Price(1_000_000_000, "test"))
    both = Parallel(
        a=Agent("a", model=ScriptedModel([reply])), b=Agent("b", model=ScriptedModel([reply]))
    )
    session = both(Session("go", budget=Budget(tokens_max=100)))
    assert (
        session.budget.usage == k.Usage(20, 10, 4, 2)
        and session.budget.cost.dollars == 2.0
        and session.budget.left == Budget(tokens_max=70)
    )
    unknown = Agent("u", model=ScriptedModel([Reply((k.Text("x"),), usage=usage)]))(Session("go"))
    assert unknown.budget.cost.dollars is None and str(unknown.budget.cost) == "unknown"
