"""Workflows: one act in two spellings, trees that can be printed and rebound, branches at the same
time, and every way to end.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from plait import (
    Agent,
    Event,
    Parallel,
    ScriptedModel,
    Selector,
    Sequential,
    Session,
    ToolCall,
    Workflow,
)
from plait.errors import (
    BranchFailed,
    ChoiceInvalid,
    DiskFull,
    InvalidValue,
    MergeConflict,
    ModelFailed,
    NotASession,
    RunOpen,
    WrongStatus,
)
from plait.event import kinds as k
from plait.model.base import Fault, Reply, Request, TextDelta, ToolDelta
from plait.session.audit import verify
from plait.session.ports import store_at
from plait.session.value import open_run_of
from tests.support import QUICK, bodies, kinds, speaker, word_count


class Review(Workflow):
    """Draft, criticise from two sides, settle."""

    def __init__(self) -> None:
        self.draft, self.judge = speaker("a draft"), speaker("settled")
        self.critics = Parallel(security=speaker("unsafe"), style=speaker("ugly"))
        self.route = Selector(
            expand=speaker("longer"),
            shorten=speaker("shorter"),
            model=ScriptedModel(["expand", '{"reason": "too long", "choice": "shorten"}', "done"]),
        )

    def forward(self, session: Session) -> Session:
        session = self.critics(self.draft(session))
        while not (choice := self.route(session)).done:
            session = choice()
        return self.judge(choice.session)


# ── one act, two spellings ───────────────────────────────────────────────────────────────────


def test_calling_it_and_calling_forward_are_the_same_act() -> None:
    called, forwarded = Review()(Session("go")), Review().forward(Session("go"))
    assert kinds(called) == kinds(forwarded) and kinds(called).count("RunStarted") == 1
    assert [event.header.actor for event in called.events] == [
        event.header.actor for event in forwarded.events
    ]
    assert [body.path for body in bodies(called, k.CallStarted)] == [
        body.path for body in bodies(forwarded, k.CallStarted)
    ]
    assert called.text == "settled" and called.run is forwarded.run is None


def test_super_forward_is_no_call_of_its_own_and_recursion_is() -> None:
    class Base(Workflow):
        def forward(self, session: Session) -> Session:
            return session.note("base")

    class Derived(Base):
        def forward(self, session: Session) -> Session:
            session = super().forward(session)
            return session.note("derived")

    class Countdown(Workflow):
        def forward(self, session: Session, n: int = 3) -> Session:
            return self(session.note(f"{n}"), n - 1) if n else session

    session = Derived()(Session("go"))
    assert [body.path for body in bodies(session, k.CallStarted)] == ["derived"] and len(
        session.facts.findings
    ) == 2
    session = Countdown()(Session("go"))
    assert [body.path for body in bodies(session, k.CallStarted)][
        -1
    ] == "countdown/countdown/countdown/countdown"
    assert bodies(session, k.RunStarted)[0].arguments is None


def test_arguments_of_forward_are_on_record() -> None:
    class Greet(Workflow):
        def forward(self, session: Session, name: str, *, loud: bool = False) -> Session:
            return session.note(name.upper() if loud else name)

    session = Greet()(Session("go"), "ann", loud=True)
    assert bodies(session, k.RunStarted)[0].arguments == {"args": ["ann"], "kwargs": {"loud": True}}
    session = Greet()(Session("go"), "ann", loud=threading.Lock())  # type: ignore[arg-type]
    assert "lock" in bodies(session, k.RunStarted)[0].arguments["repr"]


# ── the tree ─────────────────────────────────────────────────────────────────────────────────


def test_it_prints_as_a_tree() -> None:
    assert repr(Review()) == (
        """Review(
  (draft): Agent("Say ('a draft',)", model=scripted)
  (judge): Agent("Say ('settled',)", model=scripted)
  (critics): Parallel(
    (security): Agent("Say ('unsafe',)", model=scripted)
    (style): Agent("Say ('ugly',)", model=scripted)
  )
  (route): Selector(model=scripted
    (expand): Agent("Say ('longer',)", model=scripted)
    (shorten): Agent("Say ('shorter',)", model=scripted)
  )
)"""
    )


def test_children_register_by_attribute_also_in_lists_and_dicts() -> None:
    class Team(Workflow):
        def __init__(self) -> None:
            self.lead = speaker("a")
            self.members = [speaker("b"), speaker("c")]
            self.by_name = {"ann": speaker("d")}
            self._hidden = speaker("e")

        def forward(self, session: Session) -> Session:
            for member in self.members:
                session = member(session)
            return self.by_name["ann"](session)

    team = Team()
    assert [name for name, _ in team.named_children()] == [
        "lead",
        "members.0",
        "members.1",
        "by_name.ann",
    ]
    session = team(Session("go"))
    assert [body.path for body in bodies(session, k.CallStarted)] == [
        "team",
        "team/members.0",
        "team/members.1",
        "team/by_name.ann",
    ]
    assert len(list(Review().named_parts())) == 8 and len(list(team.children())) == 4


def test_to_rebinds_every_agent_and_selector_below() -> None:
    review = Review()
    other = ScriptedModel(lambda session: "done")
    assert review.to(model=other) is review
    session = review(Session("go"))
    assert {body.model for body in bodies(session, k.ModelAsked)} == {
        "scripted"
    } and session.text == "done"
    assert [vars(part)["model"] for _, part in review.named_parts() if hasattr(part, "model")] == [
        other
    ] * 7


def test_purposes_and_paths_stand_in_the_call_events() -> None:
    class Plan(Workflow):
        purpose = "plan"

        def forward(self, session: Session) -> Session:
            return speaker("planned", name="planner")(
                speaker("checked", purpose="validate", name="checker")(session)
            )

    session = Plan()(Session("go"))
    assert [(body.path, body.purpose, body.agent) for body in bodies(session, k.CallStarted)] == [
        ("plan", "plan", None),
        ("plan/checker", "validate", "checker"),
        ("plan/planner", "plan", "planner"),  # its caller's
    ]
    assert bodies(speaker("x")(Session("go")), k.CallStarted)[0].purpose == "act"
    with pytest.raises(InvalidValue, match="purpose"):
        speaker("x", purpose="fun")
    Plan.purpose = "fun"  # type: ignore[assignment]
    before = Session("go")
    with pytest.raises(InvalidValue, match="purpose"):
        Plan()(before)
    assert before.reload() == before
    asked = session.events.where("ModelAsked")[0]
    assert asked.actor == "agent:plan/checker" and asked.header.behalf == session.events[2].actor


def test_what_the_program_records_in_a_run_is_the_workflows_act() -> None:
    class Work(Workflow):
        def forward(self, session: Session) -> Session:
            return session.fact("a", 1).use(word_count, text="b c")

    session = Work()(Session("go", user="u-17"))
    fact = session.events.where("FactRecorded")[0]
    assert (fact.actor, fact.header.behalf, fact.header.origin) == (
        "service:work",
        "human:u-17",
        "program",
    )
    assert (
        bodies(session, k.ToolRequested)[0].path == "work"
        and session.effects[0].actor == "service:work"
    )
    assert session.fact("b", 2).events[-1].actor == "human:u-17"  # outside again


# ── how it ends ──────────────────────────────────────────────────────────────────────────────


def test_an_error_of_forward_is_on_record_and_reaches_the_caller() -> None:
    class Broken(Workflow):
        def forward(self, session: Session) -> Session:
            session = session.note("so far")
            raise ZeroDivisionError("oh")

    session = Session("go")
    with pytest.raises(ZeroDivisionError, match="oh") as caught:
        Broken()(session)
    after = session.reload()
    assert kinds(after)[2:] == [
        "RunStarted",
        "CallStarted",
        "FactRecorded",
        "CallFinished",
        "RunFailed",
    ]
    assert (
        "ZeroDivisionError" in bodies(after, k.RunFailed)[0].failure.traceback
        and open_run_of(after) is None
    )
    assert any(after.short in note for note in caught.value.__notes__)
    assert speaker("ok")(after).text == "ok"


@pytest.mark.parametrize("returned", [None, "text", 3])
def test_what_is_no_session_is_refused(returned: Any) -> None:
    class Forgetful(Workflow):
        def forward(self, session: Session) -> Session:
            session.note("x")
            return returned

    session = Session("go")
    with pytest.raises(NotASession, match="forgetful returned a"):
        Forgetful()(session)
    assert kinds(session.reload())[-1] == "RunFailed"
    with pytest.raises(NotASession, match="was called with"):
        Forgetful()(returned)


def test_an_interrupted_run_stays_open_and_says_so() -> None:
    class Stopped(Workflow):
        def forward(self, session: Session) -> Session:
            session.note("x")
            raise KeyboardInterrupt

    session = Session("go")
    with pytest.raises(KeyboardInterrupt):
        Stopped()(session)
    after = session.reload()
    assert (
        open_run_of(after) is not None
        and kinds(after)[-1] == "FactRecorded"
        and [run.status for run in after.runs] == ["interrupted"]
    )
    with pytest.raises(RunOpen, match="has an open run"):
        speaker("ok")(after)
    assert speaker("ok")(after.fork()).text == "ok"


def test_sessions_that_rest_or_are_over_run_nothing() -> None:
    session = Session("go")
    for value in (session.fork().pause(), session.fork().close()):
        with pytest.raises(WrongStatus, match="run a workflow"):
            speaker("ok")(value)
    with pytest.raises(WrongStatus):
        session.fork().close().use(word_count, text="a")


def test_returning_another_session_is_fine() -> None:
    class Branch(Workflow):
        def forward(self, session: Session) -> Session:
            return speaker("in the branch")(session.fork("b"))

    class Stale(Workflow):
        def forward(self, session: Session) -> Session:
            speaker("dropped?")(session)
            return session

    session = Session("go")
    branch = Branch()(session)
    assert branch.text == "in the branch" and branch.run is None and branch.lineage.label == "b"
    assert (
        kinds(session.reload())[-2:] == ["CallFinished", "RunFinished"]
        and open_run_of(session.reload()) is None
    )
    branch.say("goes on")
    session = Stale()(Session("go"))
    session.say("goes on")  # the value that came last, whatever was returned


def test_somebody_else_may_have_written() -> None:
    class Slow(Workflow):
        def forward(self, session: Session) -> Session:
            Session.open(session.id).say("me first")
            return session.note("not disturbed")

    session = Slow()(Session("go"))
    assert (
        list(session.facts.findings.values()) == ["not disturbed"]
        and session.runs[-1].status == "finished"
    )
    # heard at the next safe point
    assert [event.kind for event in session.inbox.events] == ["MessageSaid"]


def test_a_run_ends_with_the_digest_of_its_state() -> None:
    session = Review()(Session("go"))
    assert bodies(session, k.RunFinished)[0].state is not None
    assert list(verify(store_at(session.store), state=True)) == []


def test_values_outlive_their_run() -> None:
    kept: list[Session] = []

    class Keep(Workflow):
        def forward(self, session: Session) -> Session:
            kept.append(session.fork("kept"))
            return session

    Keep()(Session("go"))
    assert speaker("later")(kept[0]).text == "later"


def test_a_fresh_session_inside_a_run_has_a_run_of_its_own() -> None:
    class Outer(Workflow):
        def forward(self, session: Session) -> Session:
            inner = speaker("inner")(Session("another"))
            assert inner.run is None and open_run_of(inner) is None
            return session.note(inner.text)

    assert list(Outer()(Session("go")).facts.findings.values()) == ["inner"]


# ── branches ─────────────────────────────────────────────────────────────────────────────────


def test_branches_run_at_the_same_time_and_are_merged() -> None:
    barrier = threading.Barrier(3, timeout=10)

    class Meet(Workflow):
        def forward(self, session: Session) -> Session:
            barrier.wait()
            return session.fact(session.lineage.label or "", 1)

    session = Parallel(a=Meet(), b=Meet(), c=Meet())(Session("go"))
    assert dict(session.facts) == {"a": 1, "b": 1, "c": 1} and kinds(session).count("Merged") == 1


def test_a_failing_branch_names_itself_and_stops_the_others() -> None:
    started, failed = threading.Event(), threading.Event()
    stopped: list[BaseException] = []

    class Fails(Workflow):
        def forward(self, session: Session) -> Session:
            assert started.wait(10)
            raise LookupError("no such thing")

    class Endless(Workflow):
        def forward(self, session: Session) -> Session:
            started.set()
            try:
                while True:
                    session = session.use(word_count, text="a")
            except BaseException as error:
                stopped.append(error)
                failed.set()
                raise

    session = Session("go")
    with pytest.raises(
        BranchFailed, match="branch 'bad' failed: LookupError: .*no such thing"
    ) as caught:
        Parallel(bad=Fails(), endless=Endless())(session)
    assert failed.wait(10) and type(stopped[0]).__name__ == "Cancelled"
    assert isinstance(caught.value.__cause__, LookupError) and set(caught.value.branches) == {
        "bad",
        "endless",
    }
    assert kinds(session.reload())[-1] == "RunFailed" and "Merged" not in kinds(session.reload())


def test_branches_that_disagree_conflict_unless_somebody_chooses() -> None:
    class Decide(Workflow):
        def __init__(self, verdict: str) -> None:
            self.verdict = verdict

        def forward(self, session: Session) -> Session:
            return session.decide("verdict", self.verdict)

    with pytest.raises(MergeConflict):
        Parallel(a=Decide("yes"), b=Decide("no"))(Session("go"))
    chosen = Parallel(a=Decide("yes"), b=Decide("no"), resolve=lambda key, sides: sides["b"])(  # pyright: ignore[reportUnknownLambdaType]
        Session("go")
    )
    assert chosen.facts["verdict"] == "no"


def test_forks_of_a_run_have_ids_that_follow_from_it() -> None:
    class Fork(Workflow):
        def forward(self, session: Session) -> Session:
            a, b, c = session.fork("x"), session.fork("x"), session.fork("y")
            assert len({a.id, b.id, c.id}) == 3 and a.run == session.run
            errors: list[BaseException] = []

            def again() -> None:
                try:
                    session.fork("x")
                except InvalidValue as error:
                    errors.append(error)

            thread = threading.Thread(target=again)
            thread.start()
            thread.join()
            assert "two threads fork" in str(errors[0])
            return session

    Fork()(Session("go"))


def test_nested_parallels_and_user_threads() -> None:
    class Threads(Workflow):
        def forward(self, session: Session) -> Session:
            forks = [session.fork(f"t{n}") for n in range(3)]
            results: list[Session] = [session] * 3

            def work(n: int) -> None:
                results[n] = speaker(f"from {n}", name=f"t{n}")(forks[n])

            threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return session.merge(*results)

    session = Parallel(one=Threads(), two=Parallel(x=speaker("x"), y=speaker("y")))(Session("go"))
    assert sorted(message.text for message in session.messages[1:]) == [
        "from 0",
        "from 1",
        "from 2",
        "x",
        "y",
    ]
    assert len({event.header.run for event in session.events[2:]}) == 1


def test_a_branch_is_whole_when_it_is_merged() -> None:
    class Both(Workflow):
        def __init__(self) -> None:
            self.a, self.b = speaker("a"), Sequential(x=speaker("x"), y=speaker("y"))

        def forward(self, session: Session) -> Session:
            return session.merge(self.a(session.fork("a")), self.b(session.fork("b")))

    session = Both()(Session("go"))
    for branch in bodies(session, k.Merged)[0].branches:
        assert (
            Session.open(branch.log).seq == branch.seq
            and kinds(Session.open(branch.log))[-1] == "CallFinished"
        )
    again = session.merge(
        *[Session.open(branch.log) for branch in bodies(session, k.Merged)[0].branches]
    )
    assert again == session


def test_what_went_wrong_first_is_what_the_caller_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Workflow):
        def forward(self, session: Session) -> Session:
            monkeypatch.setattr(type(store_at(session.store)), "append", full)
            raise LookupError("the cause")

    def full(*args: Any, **kwargs: Any) -> Any:
        raise DiskFull("here")

    session = Session("go")
    with pytest.raises(LookupError, match="the cause") as caught:
        Broken()(session)
    assert any("could not be recorded" in note for note in caught.value.__notes__)
    monkeypatch.undo()
    assert open_run_of(session.reload()) is not None


def test_what_cannot_be_nested_is_refused() -> None:
    for kind in (Parallel, Sequential):
        with pytest.raises(InvalidValue):
            kind()
        with pytest.raises(InvalidValue, match="not a workflow"):
            kind(a=lambda session: session)  # type: ignore[arg-type]
    positional = Sequential(speaker("a"), {"named": speaker("b")}, last=speaker("c"))
    assert [name for name, _ in positional.named_children()] == ["0", "named", "last"]


# ── selectors ────────────────────────────────────────────────────────────────────────────────


def test_routes_are_on_record_with_candidates_and_reason() -> None:
    session = Review()(Session("go"))
    routes = bodies(session, k.RouteSelected)
    assert [(body.choice, body.reason) for body in routes] == [
        ("expand", ""),
        ("shorten", "too long"),
        ("done", ""),
    ]
    assert routes[0].candidates == ("expand", "shorten", "done")
    assert [message.text for message in session.messages] == [
        "go",
        "a draft",
        "unsafe",
        "ugly",
        "longer",
        "shorter",
        "settled",
    ]
    event = session.events.where("RouteSelected")[1]
    assert isinstance(
        session.events[event.seq - 2].body, k.ModelReplied
    ) and event.header.causes == (session.events[event.seq - 2].id,)


def test_an_answer_outside_the_set_is_retried_then_a_typed_error() -> None:
    route = Selector(a=speaker("A"), model=ScriptedModel(["nonsense", "a"]))
    choice = route(Session("go"))
    assert (choice.name, choice.done, choice.session.run) == (
        "a",
        False,
        None,
    ) and choice().text == "A"
    # what a selector and its model say to each other is not part of the conversation
    assert choice.session.text == "go"
    with pytest.raises(ChoiceInvalid, match="answered 'c'") as caught:
        Selector(a=speaker("A"), model=ScriptedModel(["b", "{}", "c"]))(Session("go"))
    assert kinds(caught.value.session)[-1] == "RunFailed" and "RouteSelected" not in kinds(
        caught.value.session
    )


def test_rules_choose_without_a_model() -> None:
    def rule(session: Session) -> Any:
        return None if len(session.messages) > 2 else ("again", "it is short")

    again = Selector({"again": speaker("more", "and more")}, rule=rule)
    session = Session("go")
    choice = again(session)
    assert (choice.name, choice.reason) == ("again", "it is short")
    choice = again(choice())
    assert (choice.name, choice.done) == ("again", False)
    done = again(choice.session.say("x").say("y"))
    assert (
        done.done
        and done.name == "done"
        and done() == done.session
        and done.reason == "by the rule rule"
    )
    assert "ModelAsked" not in kinds(choice.session)[:5]
    with pytest.raises(ChoiceInvalid):
        Selector({"a": speaker("A")}, rule=lambda _: "b")(Session("go"))
    with pytest.raises(ChoiceInvalid):
        Selector({"a": speaker("A")}, rule=lambda _: None, done=None)(Session("go"))


def test_selectors_that_cannot_choose_are_refused() -> None:
    for wrong in ({}, {"done": speaker("x")}, {"a": 3}):
        with pytest.raises(InvalidValue, match="Selector"):
            Selector(wrong)  # type: ignore[arg-type]
    assert Selector({"done": speaker("x")}, done="finish").names == ("done", "finish")
    with pytest.raises(InvalidValue, match="done= names the choice of nothing"):
        Selector(a=speaker("a"), done=speaker("b"))  # type: ignore[arg-type]


def test_candidates_describe_themselves() -> None:
    class Fix(Workflow):
        """Mend what is broken.

        In detail.
        """

    seen: list[Request] = []

    class Spy:
        name = "spy"

        def ask(self, request: Request, on_delta: Any) -> Reply:
            seen.append(request)
            return Reply((k.Text("done"),))

    Selector(
        fix=Fix(),
        ask=Agent("Ask the user.\nPolitely."),
        say=Agent("x", description="Say it."),
        model=Spy(),
    )(Session("go"))
    for line in (
        "- fix: Mend what is broken.",
        "- ask: Ask the user.",
        "- say: Say it.",
        "- done: nothing more",
    ):
        assert line in seen[0].instruction
    schema: Any = seen[0].output
    assert schema["properties"]["choice"]["enum"] == ["fix", "ask", "say", "done"]


# ── async ────────────────────────────────────────────────────────────────────────────────────


class Async(Workflow):
    def __init__(self) -> None:
        self.first, self.both = (
            speaker(ToolCall("word_count", text="a b"), "first", tools=[word_count]),
            Parallel(x=speaker("x"), y=speaker("y")),
        )

    async def forward(self, session: Session) -> Session:
        session = await self.first.acall(session)
        await asyncio.sleep(0)
        return await self.both.acall(session)


def test_async_forwards_run_on_the_loop_or_blocking() -> None:
    awaited = asyncio.run(Async().acall(Session("go")))
    blocking = Async()(Session("go"))
    assert kinds(awaited) == kinds(blocking) and awaited.text == blocking.text

    async def inside() -> Session:
        return Async()(Session("go"))  # blocks this loop, and does not touch it

    assert kinds(asyncio.run(inside())) == kinds(awaited)


def test_plain_workflows_can_be_awaited() -> None:
    async def several() -> list[Session]:
        return list(await asyncio.gather(*[Review().acall(Session(f"{n}")) for n in range(4)]))

    sessions = asyncio.run(several())
    assert [session.text for session in sessions] == ["settled"] * 4
    assert len({session.id for session in sessions}) == 4


def test_cancelling_the_task_cancels_the_run_and_closes_what_is_open() -> None:
    closed = threading.Event()
    started = threading.Event()

    class Hanging:
        name = "hanging"

        async def ask(self, request: Request, on_delta: Any) -> Reply:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                closed.set()
            raise AssertionError

    session = Session("go")

    async def cancelled() -> None:
        task = asyncio.ensure_future(Agent("x", model=Hanging()).acall(session))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert (
        closed.wait(10)
        and kinds(session.reload())[-1] == "RunCancelled"
        and open_run_of(session.reload()) is None
    )


def test_a_failing_branch_names_itself_in_async_too() -> None:
    class Fails(Workflow):
        async def forward(self, session: Session) -> Session:
            raise LookupError("no such thing")

    class Hangs(Workflow):
        async def forward(self, session: Session) -> Session:
            await asyncio.Event().wait()
            return session

    with pytest.raises(BranchFailed, match="branch 'bad' failed"):
        asyncio.run(Parallel(bad=Fails(), slow=Hangs()).acall(Session("go")))


# ── streaming ────────────────────────────────────────────────────────────────────────────────


def test_streams_yield_deltas_and_end_with_the_session() -> None:
    agent = speaker(ToolCall("word_count", text="a"), "It is one word.", tools=[word_count])
    *deltas, session = list(agent.stream(Session("go")))
    assert isinstance(session, Session) and session.text == "It is one word."
    assert (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "It is one word."
    )
    assert [delta.tool for delta in deltas if isinstance(delta, ToolDelta)] == ["word_count"] * 2
    assert {delta.agent for delta in deltas if not isinstance(delta, Session)} == {
        session.events.where("CallStarted")[0].body.path  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    }

    async def streamed() -> list[Any]:
        return [item async for item in agent.astream(Session("go"))]

    *others, last = asyncio.run(streamed())
    assert others == deltas and kinds(last) == kinds(session)


def test_workflows_stream_what_every_agent_below_says() -> None:
    *deltas, session = list(
        Parallel(a=speaker("from a"), b=speaker("from b")).stream(Session("go"))
    )
    assert isinstance(session, Session)
    texts = {
        path: "".join(
            delta.text for delta in deltas if isinstance(delta, TextDelta) and delta.agent == path
        )
        for path in ("parallel/a", "parallel/b")
    }
    assert texts == {"parallel/a": "from a", "parallel/b": "from b"}


def test_a_stream_that_nobody_reads_on_is_cancelled_and_left_in_order() -> None:
    agent = Agent(
        "x",
        model=ScriptedModel(lambda _: ToolCall("word_count", text="a")),
        tools=[word_count],
        steps_max=10_000,
    )
    session = Session("go")
    stream = agent.stream(session)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert kinds(session.reload())[-1] == "RunCancelled" and open_run_of(session.reload()) is None

    async def abandoned() -> None:
        async for _ in agent.astream(other):
            break

    other = Session("go")
    asyncio.run(abandoned())
    assert open_run_of(other.reload()) is None


def test_a_stream_says_when_an_answer_begins_anew() -> None:
    class Breaks:
        name = "breaks"

        def ask(self, request: Request, on_delta: Any) -> Reply:
            on_delta(TextDelta("Fo"))
            if not request.outcomes:
                raise Fault("StreamCut", "it broke off", retryable=True, partial="Fo")
            on_delta(TextDelta("ur."))
            return Reply((k.Text("Fo"), k.Text("ur.")), usage=k.Usage(1, 1))

    *deltas, session = Agent("x", model=Breaks(), retry=QUICK).stream(Session("go"))
    assert [type(delta).__name__ for delta in deltas] == [
        "TextDelta",
        "Restarted",
        "TextDelta",
        "TextDelta",
    ]
    # pieces of one answer are one text
    assert isinstance(session, Session) and session.text == "Four."


def test_errors_come_out_of_the_stream() -> None:
    with pytest.raises(ModelFailed):
        list(speaker(Fault("AuthFailed", "no")).stream(Session("go")))


def test_on_event_sees_everything_that_is_recorded_and_cannot_break_it() -> None:
    seen: list[Any] = []
    session = Review()(Session("go"), on_event=seen.append)
    recorded = [item for item in seen if isinstance(item, Event)]
    assert [event.kind for event in recorded if event.log == session.id] == kinds(session)[2:]
    assert any(isinstance(item, TextDelta) for item in seen)

    def broken(item: Any) -> None:
        raise ValueError("display")

    with pytest.warns(RuntimeWarning, match="on_event raised ValueError"):
        assert Review()(Session("go"), on_event=broken).text == "settled"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("to", "Berlin"),
        ("forward", print),
        ("invocation", 1),
        ("_call_name", 1),
        ("policy", "strict"),
        ("purpose", "think"),
        ("bypass", True),
    ],
)
def test_a_workflow_refuses_an_attribute_that_would_break_it_later(name: str, value: Any) -> None:
    class Plain(Workflow):
        pass

    with pytest.raises(InvalidValue, match=f"^{name}: "):
        setattr(Plain(), name, value)
    assert name not in vars(Plain())
    plain = Plain()
    plain.policy, plain.purpose, plain.bypass = None, "plan", "warn"
    assert (plain.policy, plain.purpose, plain.bypass) == (None, "plan", "warn")
