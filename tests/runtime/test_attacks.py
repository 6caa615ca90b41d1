"""Faults that an attack on the runtime found, each in its smallest form: cancelling, interrupting,
answering nonsense, and being called oddly.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from textwrap import dedent
from typing import Any, cast

import pytest

from plait import (
    Agent,
    Parallel,
    Retry,
    ScriptedModel,
    Selector,
    Sequential,
    Session,
    ToolCall,
    View,
    Workflow,
    tool,
)
from plait.errors import InvalidValue, ModelFailed, WrongStatus
from plait.event import kinds as k
from plait.journal.journal import Journal
from plait.model.base import Fault, Reply, Request, Said, TextDelta
from plait.runtime.loop import spawn
from plait.runtime.registry import open_runs, run_of
from plait.runtime.workers import IDLE
from plait.session import verify
from plait.session.content import text_of
from plait.session.ports import store_at
from plait.session.value import open_run_of
from tests.support import bodies, kinds, python, speaker, wait_until

PATIENCE_S = 10.0


class Till:
    """A tool that can be held up, and that counts."""

    def __init__(self) -> None:
        self.paid, self.begun, self.go = list[int](), threading.Event(), threading.Event()

    @tool
    def pay(self, n: int) -> int:
        self.begun.set()
        assert self.go.wait(PATIENCE_S)
        self.paid.append(n)
        return n


# ── cancelling and interrupting ──────────────────────────────────────────────────────────────


class Plain(Workflow):
    def __init__(self, inner: Workflow) -> None:
        self.inner = inner

    def forward(self, session: Session) -> Session:
        return self.inner(session)


@pytest.mark.parametrize("how", ["acall", "astream"])
def test_after_a_cancel_no_branch_goes_on_behind_our_back(how: str) -> None:
    till, before = Till(), _at_work()
    pays = [ToolCall("pay", n=n) for n in range(8)]
    both = Plain(
        Parallel(a=speaker(*pays, "a", tools=[till.pay]), b=speaker(*pays, "b", tools=[till.pay]))
    )
    session = Session("go")

    async def cancelled() -> None:
        async def drain() -> None:
            async for _ in both.astream(session):
                pass

        task = asyncio.ensure_future(both.acall(session) if how == "acall" else drain())
        await asyncio.to_thread(till.begun.wait, PATIENCE_S)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, till.go.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    paid = len(till.paid)
    assert paid <= 2 and kinds(session.reload())[-1] == "RunCancelled"
    settled = [
        event
        for branch in Session.list(parent=session)
        for event in branch.events
        if event.kind == "ToolReturned"
    ]
    assert len(settled) == paid  # what was under way is on record
    wait_until(lambda: not [name for name in _at_work() if name not in before])
    assert len(till.paid) == paid


def _at_work() -> list[str]:
    """Threads of ours that are doing something, by name and number: other tests may have left some
    behind, and those are not meant.
    """
    return [
        f"{thread.name} {thread.ident}"
        for thread in threading.enumerate()
        if thread.name.startswith("plait-")
        and thread.name not in ("plait-loop", "plait-lease", IDLE)
    ]


def test_after_an_interrupt_no_branch_goes_on_behind_our_back() -> None:
    done = python(
        dedent("""
        import os, signal, threading, time
        from plait import *
        paid = []
        @tool
        def pay(n: int) -> int:
            paid.append(n)
            if len(paid) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            return n
        calls = [ToolCall("pay", n=n) for n in range(8)]
        agents = {name: Agent(name, model=ScriptedModel([*calls, name]), tools=[pay]) for name in "ab"}
        session = Session("go", store="memory:")
        try:
            Parallel(agents)(session)
        except KeyboardInterrupt:
            before = len(paid)
            while any(t.name in ("plait-a", "plait-b") for t in threading.enumerate()): time.sleep(0.01)
            print(before <= 4, len(paid) == before, session.reload().runs[-1].status == "interrupted")
        """)  # noqa: E501
    )
    assert done.stdout.split() == ["True", "True", "True"], done.stderr


def test_a_plain_tool_that_runs_while_its_turn_is_cancelled_is_recorded() -> None:
    till = Till()
    session = Session("go")
    agent = speaker(ToolCall("pay", n=100), "done", tools=[till.pay])

    async def cancelled() -> None:
        task = asyncio.ensure_future(agent.acall(session))
        await asyncio.to_thread(till.begun.wait, PATIENCE_S)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, till.go.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    after = session.reload()
    assert (
        till.paid == [100]
        and after.effects[0].result == 100
        and after.runs[-1].status == "cancelled"
    )


def test_a_call_whose_outcome_nobody_knows_is_told_as_such() -> None:
    @tool
    def vanish() -> None:
        raise KeyboardInterrupt

    seen: list[str] = []

    class Spy(ScriptedModel):
        def ask(self, request: Request, on_delta: Any) -> Reply:
            seen.extend(
                text_of(result.parts)
                for turn in request.turns
                for result in getattr(turn, "results", ())
            )
            return super().ask(request, on_delta)

    session = Session("go")
    agent = Agent(
        "x",
        model=Spy(lambda session: "ok" if session.effects else ToolCall("vanish")),
        tools=[vanish],
        name="x",
    )
    with pytest.raises(KeyboardInterrupt):
        agent(session)
    agent(session.reload().fork())
    assert seen == ["(not run in this branch)"]


def test_a_cancel_at_any_moment_leaves_no_run_open() -> None:
    async def cancelled(after: int) -> Session:
        session = Session("go", store="memory:")
        task = asyncio.ensure_future(speaker("a", name="a").acall(session))
        for _ in range(after):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return session.reload()

    before = len(open_runs())
    for after in (*range(12), 0, 0, 1, 1, 2, 2):
        session = asyncio.run(cancelled(after))
        assert open_run_of(session) is None and len(open_runs()) == before
        assert speaker("ok")(session).text == "ok"


def test_a_nested_call_that_is_given_up_leaves_its_caller_free() -> None:
    class Slow(Workflow):
        def forward(self, session: Session) -> Session:
            while True:
                session = session.use(tick)

    class Patient(Workflow):
        def __init__(self) -> None:
            self.slow, self.last = Slow(), speaker("after all")

        async def forward(self, session: Session) -> Session:
            try:
                await asyncio.wait_for(self.slow.acall(session), 0.1)
            except TimeoutError:
                return await self.last.acall(session.reload())
            raise AssertionError

    @tool(effect="pure")
    def tick() -> None: ...

    assert asyncio.run(Patient().acall(Session("go", store="memory:"))).text == "after all"


def test_an_async_tool_cannot_end_the_loop_or_the_run() -> None:
    @tool
    async def interrupt(how: str) -> None:
        raise {"ctrl-c": KeyboardInterrupt, "exit": SystemExit, "cancel": asyncio.CancelledError}[
            how
        ]

    calls = [ToolCall("interrupt", how=how) for how in ("ctrl-c", "exit", "cancel")]
    session = speaker(calls, calls[0], "still here", tools=[interrupt])(Session("go"))
    assert session.text == "still here"
    assert [effect.failure.kind for effect in session.effects if effect.failure] == [
        "KeyboardInterrupt",
        "SystemExit",
        "CancelledError",
        "KeyboardInterrupt",
    ]
    awaited = asyncio.run(speaker(calls, "still here", tools=[interrupt]).acall(Session("go")))
    assert awaited.text == "still here"


def test_one_tool_that_ends_oddly_does_not_take_its_siblings_along() -> None:
    @tool
    def odd() -> None:
        raise GeneratorExit

    @tool
    def good() -> int:
        return 1

    session = speaker([ToolCall("odd"), ToolCall("good")], "ok", tools=[odd, good])(Session("go"))
    assert [effect.result for effect in session.effects] == [None, 1] and session.effects[
        0
    ].failure is not None


# ── being called oddly ───────────────────────────────────────────────────────────────────────


def test_a_forward_of_ones_own_counts_in_acall_too() -> None:
    class Noting:
        def forward(self, session: Session) -> Session:
            return super().forward(session.fact("before", 1)).fact("after", 1)  # type: ignore[misc]

    class MyAgent(Noting, Agent): ...

    class MySequential(Noting, Sequential): ...

    class MyParallel(Noting, Parallel): ...

    made = [
        lambda: MyAgent("x", model=ScriptedModel(["x"])),
        lambda: MySequential(a=speaker("x")),
        lambda: MyParallel(a=speaker("x")),
    ]
    for make in made:
        blocking, awaited = make()(Session("go")), asyncio.run(make().acall(Session("go")))
        assert dict(blocking.facts) == dict(awaited.facts) == {"before": 1, "after": 1}
        assert kinds(blocking) == kinds(awaited)


def test_decorated_mixed_in_and_late_forwards_are_runs() -> None:
    calls: list[str] = []

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            calls.append("logged")
            return function(*args)

        return wrapper

    class Decorated(Workflow):
        @logged
        def forward(self, session: Session) -> Session:
            return session.fact("a", 1)

    class Mixin:
        def forward(self, session: Session) -> Session:
            return session.fact("a", 1)

    class Mixed(Mixin, Workflow): ...

    class Late(Workflow): ...

    Late.forward = lambda self, session: session.fact("a", 1)  # pyright: ignore[reportUnknownLambdaType,reportUnknownMemberType]
    for workflow in (Decorated(), Mixed(), Late()):
        for session in (workflow(Session("go")), asyncio.run(workflow.acall(Session("go")))):
            assert kinds(session)[2:] == [
                "RunStarted",
                "CallStarted",
                "FactRecorded",
                "CallFinished",
                "RunFinished",
            ]
    assert calls == ["logged"] * 2


def test_threads_that_race_for_a_session_leave_no_call_behind() -> None:
    class Race(Workflow):
        def __init__(self) -> None:
            self.a, self.b, self.c = speaker("a"), speaker("b"), speaker("c")

        def forward(self, session: Session) -> Session:
            errors: list[BaseException] = []

            def run(agent: Agent) -> None:
                try:
                    agent(session)
                except Exception as error:
                    errors.append(error)

            threads = [threading.Thread(target=run, args=(agent,)) for agent in (self.a, self.b)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return self.c(session.reload())

    session = Race()(Session("go"))
    assert bodies(session, k.CallStarted)[-1].path == "race/c" and session.text == "c"


def test_retrying_a_failed_parallel_is_allowed() -> None:
    class Again(Workflow):
        def __init__(self) -> None:
            self.both = Parallel(a=speaker(Fault("BadRequest", "no"), "a"), b=speaker("b"))

        async def forward(self, session: Session) -> Session:
            try:
                return await self.both.acall(session)
            except Exception:
                return await self.both.acall(session)

    # a script goes by the path, and the new branch has none: it fails again
    with pytest.raises(Exception, match="branch 'a' failed"):
        asyncio.run(Again().acall(Session("go")))


def test_a_tree_that_knows_its_root_is_no_circle() -> None:
    class Child(Workflow):
        def __init__(self, parent: Workflow) -> None:
            self.parent, self.agent = parent, speaker("x")

        def forward(self, session: Session) -> Session:
            return self.agent(session)

    class Root(Workflow):
        def __init__(self) -> None:
            self.child = Child(self)

        def forward(self, session: Session) -> Session:
            return self.child(session)

    root = Root().to(model=ScriptedModel(["y"]))
    assert "(parent): Root(…)" in repr(root) and root(Session("go")).text == "y"
    assert [path for path, _ in root.named_parts()] == ["child", "child/agent"]


def test_listeners_and_streams_inside_a_run() -> None:
    seen: list[Any] = []

    class Inner(Workflow):
        def __init__(self) -> None:
            self.a, self.b = speaker("from a"), speaker("from b")

        def forward(self, session: Session) -> Session:
            session = self.a(session, on_event=seen.append)
            *deltas, last = self.b.stream(session)
            assert "".join(delta.text for delta in deltas) == "from b" and isinstance(last, Session)
            return last

    Inner()(Session("go"))
    assert "".join(item.text for item in seen if isinstance(item, TextDelta)) == "from a"
    heard: list[Any] = []
    *_, session = speaker("x").stream(Session("go"), on_event=heard.append)
    assert heard and isinstance(session, Session)


def test_listeners_that_raise_at_once_in_two_branches() -> None:
    def broken(item: Any) -> None:
        raise ValueError("display")

    with pytest.warns(RuntimeWarning):
        session = Parallel({str(n): speaker("x") for n in range(8)})(Session("go"), on_event=broken)
    assert len(session.messages) == 9


def test_a_paused_value_runs_nothing_inside_a_run_either() -> None:
    class Pauses(Workflow):
        def forward(self, session: Session) -> Session:
            return speaker("x")(session.pause())

    with pytest.raises(WrongStatus):
        Pauses()(Session("go"))


# ── answering nonsense ───────────────────────────────────────────────────────────────────────


class Sulky(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Dumps:
    def model_dump(self, mode: str) -> Any:
        raise KeyError("dump")


ODD: dict[str, Any] = {
    "sulky": Sulky(),
    "long": ValueError("x" * 50_000_000),
    "surrogate": ValueError("\ud800"),
    "dumps": Dumps(),
    "text": k.Text("", "ab"),  # type: ignore[arg-type]
    "image": k.Image("", "zz"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("odd", list(ODD))
@pytest.mark.parametrize(
    "seen",
    [None, "\ud800", float("nan"), "x" * 20_000_000],
    ids=["plain", "surrogate", "nan", "huge"],
)
def test_whatever_comes_of_a_tool_is_settled(odd: str, seen: Any) -> None:
    value = ODD[odd]

    @tool(observe=(lambda: seen) if seen is not None else None)
    def give() -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    session = speaker(ToolCall("give"), "ok", tools=[give])(Session("go"))
    assert session.text == "ok" and session.effects[0].failure is not None


def test_an_observation_that_cannot_be_recorded_does_not_cost_the_result() -> None:
    @tool(observe=lambda: float("nan"))
    def give() -> int:
        return 4

    session = Session("go").use(give)
    assert session.result == 4 and "unobserved" in str(session.effects[0].delta)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("a"),
        AssertionError(),
        ZeroDivisionError("x"),
        RuntimeError("r"),
        AttributeError("at"),
    ],
)
def test_types_that_look_at_what_they_are_made_of(error: Exception) -> None:
    @dataclasses.dataclass
    class Picky:
        x: int

        def __post_init__(self) -> None:
            if self.x < 0:
                raise error

    @tool
    def take(picky: Picky) -> int:
        return picky.x

    session = speaker(
        ToolCall("take", picky={"x": -1}), ToolCall("take", picky={"x": 1}), "ok", tools=[take]
    )(Session("go"))
    assert (
        session.text == "ok"
        and session.effects[0].failure is not None
        and session.effects[0].failure.kind == "WrongArguments"
    )


@pytest.mark.parametrize(
    "answer",
    [
        lambda: Reply(None),  # type: ignore[arg-type]
        lambda: Reply("abc"),  # type: ignore[arg-type]
        lambda: Reply((), ("x",)),  # type: ignore[arg-type]
        lambda: Reply((), (ToolCall.of(3, "{}"),)),  # type: ignore[arg-type]
        lambda: Reply((k.Text("a"),), usage=k.Usage("3", 0)),  # type: ignore[arg-type]
        lambda: Reply((k.Text("a"),), usage=k.Usage(-1, 0)),
        lambda: Fault("X", None),  # type: ignore[arg-type]
        lambda: Fault("\ud800", "\ud800"),
        lambda: Fault("X", "x" * 50_000_000, partial="y" * 20_000_000),
        Sulky,
    ],
)
def test_whatever_a_model_answers_is_settled(answer: Callable[[], Any]) -> None:
    class Odd:
        name = "odd"

        def ask(self, request: Request, on_delta: Any) -> Any:
            found = answer()
            if isinstance(found, Exception):
                raise found
            return found

    with pytest.raises(ModelFailed) as caught:
        Agent("x", model=Odd(), retry=Retry(attempts=2, wait_s=0))(Session("go"))
    str(caught.value).encode()
    assert kinds(caught.value.session)[-3:] == ["ModelFailed", "CallFinished", "RunFailed"]


def test_an_error_without_words_ends_the_run_and_reaches_the_caller() -> None:
    for error in (Sulky(), ValueError("x" * 50_000_000)):

        class Raises(Workflow):
            def forward(self, session: Session) -> Session:
                raise error  # noqa: B023

        session = Session("go")
        with pytest.raises(type(error)):
            Raises()(session)
        assert session.reload().runs[-1].status == "failed"


def test_a_reply_is_recorded_though_somebody_wrote_meanwhile() -> None:
    def script(session: Session) -> Any:
        Session.open(session.id).note("meanwhile")
        return Reply((k.Text("answer"),), usage=k.Usage(100_000, 1))

    session = Agent("x", model=ScriptedModel(script))(Session("go"))
    assert session.text == "answer" and session.budget.usage.input_tokens == 100_000
    # heard at the next safe point, in this run or the next
    assert [event.kind for event in session.inbox.events] == ["FactRecorded"]
    after = Agent("x", model=ScriptedModel(["and on"]))(session.say("go on"))
    assert list(after.facts.findings.values()) == ["meanwhile"]


def test_what_no_event_can_hold_is_refused_before_anything_is_written() -> None:
    for make in (
        lambda: Agent("a\ud800"),
        lambda: Agent("a", parameters={"t": object()}),  # type: ignore[dict-item]
        lambda: Agent("a", parameters={"stop": {1, 2}}),  # type: ignore[dict-item]
        lambda: Selector({"\ud800": speaker("x")}),
    ):
        with pytest.raises(InvalidValue):
            make()


def test_arguments_may_have_any_name() -> None:
    @tool
    def take(tool: str, session: int, key: str = "k") -> str:
        return f"{tool} {session} {key}"

    assert Session("go").use(take, tool="t", session=3).result == "t 3 k"


def test_a_function_that_forgot_its_async() -> None:
    async def inner() -> int:
        return 1

    @tool
    def outer() -> Any:
        return inner()

    session = speaker(ToolCall("outer"), "ok", tools=[outer])(Session("go"))
    assert (
        session.effects[0].failure is not None and "async def" in session.effects[0].failure.message
    )


# ── workspaces, views, types ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["blocking", "async"])
def test_a_workspace_tool_that_is_tried_again_is_still_alone(how: str) -> None:
    inside, order = threading.Lock(), list[int]()

    @tool(effect="workspace", attempts=2)
    def write(n: int) -> int:
        assert inside.acquire(blocking=False)
        try:
            order.append(n)
            if order.count(1) == 1 and n == 1:
                raise OSError("once")
            return n
        finally:
            inside.release()

    @tool
    def other() -> int:
        return 0

    agent = speaker(
        [ToolCall("write", n=1), ToolCall("write", n=2), ToolCall("other")],
        "ok",
        tools=[write, other],
    )
    session = agent(Session("go")) if how == "blocking" else asyncio.run(agent.acall(Session("go")))
    assert order == [1, 1, 2] and [effect.result for effect in session.effects] == [1, 2, 0]


def test_many_calls_do_not_make_as_many_threads() -> None:
    peak: list[int] = []

    @tool(effect="pure")
    def count(n: int) -> int:
        peak.append(threading.active_count())
        return n

    session = speaker([ToolCall("count", n=n) for n in range(300)], "ok", tools=[count])(
        Session("go", store="memory:")
    )
    assert [effect.result for effect in session.effects] == list(range(300)) and max(peak) < 80


def test_the_facts_view_keeps_its_facts() -> None:
    seen: list[list[str]] = []

    class Spy:
        name = "spy"

        def ask(self, request: Request, on_delta: Any) -> Reply:
            seen.append([text_of(turn.parts) for turn in request.turns if isinstance(turn, Said)])
            return Reply((k.Text("ok"),))

    route = Selector(a=speaker("x"), model=ScriptedModel(["nonsense", "done"]))
    session = route(Session("go")).session.fact("k", "IMPORTANT").say("last question")
    Agent("x", model=Spy(), view=View.facts())(session)
    assert seen == [["(fact k: IMPORTANT)", "last question"]]


def test_an_agent_knows_its_own_words_in_a_merged_branch() -> None:
    class Twice(Workflow):
        def __init__(self) -> None:
            self.both = Parallel(a=speaker("one", "two"), b=speaker("uno", "dos"))

        def forward(self, session: Session) -> Session:
            return self.both(self.both(session))

    session = Twice()(Session("go"))
    assert sorted(message.text for message in session.messages[1:]) == ["dos", "one", "two", "uno"]


def test_answers_of_odd_types() -> None:
    @dataclasses.dataclass
    class answer:
        answer: int

    assert speaker('{"answer": null}', returns=int | None)(Session("go")).result is None
    assert speaker('{"answer": 3}', returns=answer)(Session("go")).result_as(answer) == answer(3)
    assert speaker("5.0", returns=int)(Session("go")).result_as(int) == 5


def test_two_types_of_one_name_are_two_in_the_schema() -> None:
    pydantic = pytest.importorskip("pydantic")
    one = pydantic.create_model("One", item=(pydantic.create_model("Item", a=(int, ...)), ...))
    two = pydantic.create_model("Two", item=(pydantic.create_model("Item", b=(str, ...)), ...))

    def take(one: Any, two: Any) -> int:
        return 1

    take.__annotations__ = {"one": one, "two": two}
    schema: Any = tool(take).schema
    assert {
        frozenset(each["properties"])
        for name, each in schema["$defs"].items()
        if name.startswith("Item")
    } == {
        frozenset({"a"}),
        frozenset({"b"}),
    }


# ── the last outcome of a turn's calls, which is written with the next ask ───────────────────


class Reader:
    """A script that keeps what the model is told of its tools."""

    name = "reader"

    def __init__(self, *script: Any) -> None:
        self.told: list[str] = []
        self._script = ScriptedModel(list(script))

    def ask(self, request: Request, on_delta: Any) -> Reply:
        self.told = [
            text_of(result.parts)
            for turn in request.turns
            for result in getattr(turn, "results", ())
        ]
        return self._script.ask(request, on_delta)


@tool(effect="pure")
def echo(n: int) -> int:
    return n


def test_every_outcome_reaches_the_prompt_however_many_there_are() -> None:
    for calls in (1, 2, 31, 70):
        reader = Reader(
            [ToolCall("echo", n=n) for n in range(calls)], ToolCall("echo", n=-1), "done"
        )
        session = Agent("x", model=reader, tools=[echo])(Session("go", store="memory:"))
        assert reader.told == [*map(str, range(calls)), "-1"] and len(session.effects) == calls + 1


def test_a_tool_that_merges_does_not_hide_the_outcome_after_it() -> None:
    @tool(effect="workspace")
    def merge(session: Session) -> str:
        session.merge(session.fork("side").fact("k", 1))
        return "merged"

    @tool(effect="workspace")
    def last(n: int) -> int:
        return n

    reader = Reader(
        [ToolCall("merge"), ToolCall("last", n=1)],
        *[ToolCall("last", n=n) for n in range(2, 8)],
        "done",
    )
    session = Session("go")
    for n in range(236):  # so that a snapshot falls into the turn
        session = session.fact("p", n)
    session = Agent("x", model=reader, tools=[merge, last], name="x")(session)
    assert reader.told == ["merged", *map(str, range(1, 8))]
    assert list(verify(store_at(session.store), state=True)) == []


def test_somebody_who_writes_while_the_last_tool_runs_is_heard() -> None:
    @tool
    def slow(session: Session) -> int:
        Session.open(session.id).say("by the way")
        return 1

    reader = Reader(ToolCall("slow"), "done")
    session = Agent("x", model=reader, tools=[slow])(Session("go"))
    assert (
        session.text == "done"
        and reader.told == ["1"]
        and "by the way" in [message.text for message in session.messages]
    )
    assert session.runs[-1].status == "finished"


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_at_the_commit_writes_the_outcome_once(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Journal.append

    def interrupted(self: Journal, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("held"):
            return write(self, *args, **kwargs)
        if when == "after":
            write(self, *args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "append", interrupted)
    session = Session("go")
    with pytest.raises(KeyboardInterrupt):
        speaker(ToolCall("echo", n=1), "done", tools=[echo])(session)
    assert (
        kinds(session.reload()).count("ToolReturned") == 1
        and session.reload().effects[0].result == 1
    )


def test_a_failing_branch_does_not_disturb_another() -> None:
    class Both(Workflow):
        def forward(self, session: Session) -> Session:
            forks, over = [session.fork("good"), session.fork("bad")], threading.Event()

            def fail() -> None:
                at = forks[1]
                while not over.is_set():
                    with suppress(Exception):
                        speaker(Fault("BadRequest", "no"), name="bad")(at)
                    at = at.reload()

            thread = threading.Thread(target=fail)
            thread.start()
            try:
                return speaker(
                    *[ToolCall("echo", n=n) for n in range(30)], "good", tools=[echo], name="good"
                )(forks[0])
            finally:
                over.set()
                thread.join()

    assert Both()(Session("go", store="memory:")).text == "good"


@pytest.mark.parametrize("pause_s", [0.0, 0.005, 0.02, 0.04])
def test_whatever_ran_when_a_turn_was_cancelled_is_settled(pause_s: float) -> None:
    ran: list[int] = []

    @tool
    def plain(n: int) -> None:
        ran.append(n)

    @tool
    async def waits(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0.01)

    async def cancelled() -> Session:
        session = Session("go", store="memory:")
        calls = [ToolCall(("plain", "waits")[n % 2], n=n) for n in range(60)]
        task = asyncio.ensure_future(speaker(calls, "done", tools=[plain, waits]).acall(session))
        await asyncio.sleep(pause_s)
        for _ in range(2):  # twice: the second while the first is being heard
            task.cancel()
            await asyncio.sleep(0.002)
        with suppress(asyncio.CancelledError):
            await task
        return session.reload()

    session = asyncio.run(cancelled())
    assert open_run_of(session) is None and all(
        effect.outcome is not None for effect in session.effects
    )
    unrun = [
        effect
        for effect in session.effects
        if effect.failure is not None and "not run" in effect.failure.message
    ]
    assert len(session.effects) - len(unrun) == len(ran)


def test_two_cancels_leave_no_run_open() -> None:
    async def cancelled(first: int, second: int) -> Session:
        session = Session("go", store="memory:")
        task = asyncio.ensure_future(speaker("a", name="a").acall(session))
        for ticks in (first, second):
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return session.reload()

    before = len(open_runs())
    for first in range(0, 30, 3):
        for second in (1, 2, 3):
            assert (
                open_run_of(asyncio.run(cancelled(first, second))) is None
                and len(open_runs()) == before
            )


def test_leaving_a_stream_does_not_take_back_somebody_elses_stop() -> None:
    begun, failed, paid = threading.Event(), threading.Event(), list[int]()

    @tool
    def slow() -> None:
        begun.set()
        assert failed.wait(PATIENCE_S)
        time.sleep(0.05)

    @tool
    def pay() -> None:
        paid.append(1)

    class Fails(Workflow):
        def forward(self, session: Session) -> Session:
            assert begun.wait(PATIENCE_S)
            failed.set()
            raise LookupError

    class Streams(Workflow):
        def __init__(self) -> None:
            self.inner = speaker(ToolCall("slow"), "x", tools=[slow])
            self.after = speaker(ToolCall("pay"), "y", tools=[pay])

        def forward(self, session: Session) -> Session:
            stream = self.inner.stream(session)
            next(stream)
            assert failed.wait(PATIENCE_S)
            wait_until(lambda: bool(vars(run_of(session))["_stopped"]))
            cast("Any", stream).close()
            return self.after(session.reload())

    with pytest.raises(Exception, match="branch 'fails' failed"):
        Parallel(fails=Fails(), streams=Streams())(Session("go"))
    assert paid == []


def test_code_of_a_run_that_is_over_does_nothing_more() -> None:
    over, tried = threading.Event(), list[BaseException]()

    class Leaves(Workflow):
        def forward(self, session: Session) -> Session:
            def late() -> None:
                assert over.wait(PATIENCE_S)
                try:
                    speaker("late")(session.fork("late"))
                except BaseException as error:
                    tried.append(error)

            spawn(late)
            return session

    session = Leaves()(Session("go"))
    over.set()
    wait_until(lambda: bool(tried))
    assert type(tried[0]).__name__ == "Cancelled" and speaker("free")(session).text == "free"
