"""Turns: a message and the run that answers it, from any thread, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from plait import (
    Agent,
    Event,
    Parked,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    open_store,
    resume,
    secrets,
    tool,
)
from plait.errors import InvalidValue, RunOpen, ToolFailed, TurnFailed, WrongStatus
from plait.event import kinds as k
from plait.model.base import TextDelta
from plait.policy import Ask, Policy
from plait.session import verify
from plait.session.inbox import post
from plait.session.ports import Act, Draft, store_at
from tests.support import said_texts
from tests.support.processes import wait_until


@pytest.fixture(params=["memory", "sqlite"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    address = f"memory:{tmp_path.name}" if request.param == "memory" else str(tmp_path / "store")
    return Session("hello", store=open_store(address))


def echo(name: str = "echo") -> Agent:
    return Agent("Repeat.", model=ScriptedModel(lambda at: f"ok {at.messages[-1].text}"), name=name)


def kinds_of(session: Session) -> list[str]:
    return [event.kind for event in store_at(session.store).read(session.id)]


def in_threads(*works: Callable[[], object]) -> None:
    threads = [Thread(target=work) for work in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


class Held(Workflow):
    """Answers when it is let go on."""

    def __init__(self) -> None:
        self.agent, self._begun, self._may = echo("held"), Flag(), Flag()

    def forward(self, session: Session) -> Session:
        self._begun.set()
        self._may.wait(60)
        return self.agent(session)

    def wait_until_begun(self) -> None:
        assert self._begun.wait(60)

    def go_on(self) -> None:
        self._may.set()


def test_a_turn_is_a_message_and_its_answer(session: Session) -> None:
    after = session.turn("one", echo())
    assert said_texts(after) == ["hello", "one", "ok one"]
    again = after.turn("two", echo())
    assert said_texts(again) == ["hello", "one", "ok one", "two", "ok two"]
    assert again == session.reload() and list(verify(store_at(session.store), state=True)) == []


def test_twenty_clients_give_twenty_answers(session: Session) -> None:
    chat, ends = echo(), dict[str, list[str]]()

    def ask(words: str) -> None:
        ends[words] = said_texts(session.turn(words, chat))[-2:]

    in_threads(*[lambda words=f"m{i}": ask(words) for i in range(20)])
    assert ends == {f"m{i}": [f"m{i}", f"ok m{i}"] for i in range(20)}
    now = session.reload()
    assert [message.role for message in now.messages] == ["user", *["user", "assistant"] * 20]
    kinds = kinds_of(session)
    assert kinds.count("RunFinished") == 20 and "RunFailed" not in kinds
    assert list(verify(store_at(session.store), state=True)) == []


def test_the_value_is_of_its_own_turn(session: Session) -> None:
    first = session.turn("one", echo())
    second = session.turn("two", echo())  # of an earlier value: the session has moved on
    assert said_texts(first)[-1] == "ok one" and said_texts(second)[-1] == "ok two"
    assert second.seq > first.seq


def test_a_turn_waits_for_the_run_that_is_open(session: Session) -> None:
    held, after = Held(), list[Session]()
    one = Thread(target=lambda: session.turn("one", held))
    one.start()
    held.wait_until_begun()
    two = Thread(target=lambda: after.append(session.turn("two", echo())))
    two.start()
    wait_until(lambda: len(session.inbox.events) == 2 or None)
    assert said_texts(session.reload()) == ["hello", "one"], "the second one waits"
    held.go_on()
    one.join()
    two.join()
    assert said_texts(after[0]) == ["hello", "one", "ok one", "two", "ok two"]


def test_each_is_answered_by_its_own_workflow(session: Session) -> None:
    said = dict[str, str]()

    def ask(name: str) -> None:
        agent = Agent("Say it.", model=ScriptedModel(lambda at: f"I am {name}"), name=name)
        said[name] = session.turn("who?", agent).text

    in_threads(*[lambda name=f"a{i}": ask(name) for i in range(6)])
    assert said == {f"a{i}": f"I am a{i}" for i in range(6)}


def test_a_key_makes_it_one_turn(session: Session) -> None:
    chat = echo()
    first = session.turn("one", chat, key="r-1")
    assert session.turn("one", chat, key="r-1") == first
    ends = list[Session]()
    in_threads(*[lambda: ends.append(session.turn("two", chat, key="r-2"))] * 8)
    assert len(set(ends)) == 1 and said_texts(session.reload()).count("two") == 1
    other = Session("hello", store=store_at(session.store))
    assert said_texts(other.turn("one", chat, key="r-1")) == ["hello", "one", "ok one"]


def test_a_key_with_a_secret_is_one_key(session: Session) -> None:
    secrets.register("tok-93jd8s7xx", "TOK")
    try:
        first = session.turn("pay", echo(), key="r-tok-93jd8s7xx-1")
        assert session.turn("pay", echo(), key="r-tok-93jd8s7xx-1") == first == session.reload()
    finally:
        secrets.forget()


def test_a_turn_that_was_rewound_away_is_answered_anew(session: Session) -> None:
    first = session.turn("one", echo(), key="r-1")
    rewound = first.rewind(session.seq)
    again = rewound.turn("one", echo(), key="r-1")
    assert again == session.reload() and said_texts(again) == ["hello", "one", "ok one"]
    assert rewound.turn("one", echo(), key="r-1") == again, "the key is the new turn's"
    assert kinds_of(session).count("RunFinished") == 2


def test_a_run_acts_on_behalf_of_the_actor_of_its_turn(session: Session) -> None:
    chat = payer()
    with pytest.raises(Parked) as stop:
        session.turn("pay", chat, actor="human:ann")
    parked = stop.value.session
    assert parked.inbox.waiting[0].behalf == "human:ann"
    parked.inbox.approve(parked.inbox.waiting[0], actor="human:bob")
    after = resume(session, chat)
    acts = [event for event in after.events if event.kind in ("RunStarted", "ModelAsked")]
    assert [event.header.behalf or event.actor for event in acts] == ["human:ann"] * 3

    class Claims(Workflow):
        def forward(self, session: Session) -> Session:
            other = Session("x", store=store_at(session.store))
            return session.fact("id", other.turn("y", echo(), actor="human:admin").id)

    Claims()(session.reload())
    other = Session.open(str(session.reload().facts["id"]), store=store_at(session.store))
    started = next(event for event in other.events if event.kind == "RunStarted")
    assert (
        started.actor
        == next(e for e in session.reload().events[::-1] if e.kind == "RunStarted").actor
    )


def test_the_caller_need_not_wait(session: Session) -> None:
    assert session.turn("one", echo(), wait=False) == session
    wait_until(lambda: "ok one" in said_texts(session.reload()) or None)


def test_words_sent_before_are_heard_first(session: Session) -> None:
    post(
        session.store,
        session.id,
        [Draft(k.MessageSaid("user", (k.Text("by the way"),)), Act("human:ann", "human"))],
    )
    after = session.turn("one", echo())
    assert said_texts(after) == ["hello", "by the way", "one", "ok one"]
    assert kinds_of(after).count("Delivered") == 1


def test_a_failed_turn_raises_and_the_next_one_goes_on(session: Session) -> None:
    class Fails(Workflow):
        def forward(self, session: Session) -> Session:
            raise LookupError("no stock")

    with pytest.raises(LookupError, match="no stock"):
        session.turn("one", Fails(), key="r-1")
    with pytest.raises(TurnFailed, match="no stock.*plait resume"):
        session.turn("one", Fails(), key="r-1")
    assert said_texts(session.turn("two", echo())) == ["hello", "one", "two", "ok two"]


def test_the_turn_of_a_client_that_is_gone_is_taken_by_the_next(session: Session) -> None:
    draft = Draft(k.TurnPosted((k.Text("orphan"),), "nobody has this lock"), Act("human:ann"))
    post(session.store, session.id, [draft])
    after = session.turn("mine", echo())
    assert said_texts(after) == ["hello", "orphan", "ok orphan", "mine", "ok mine"]


def test_a_run_that_was_left_is_ended_first(session: Session) -> None:
    class Interrupted(Workflow):
        def __init__(self) -> None:
            self.agent, self._times = echo(), 0

        def forward(self, session: Session) -> Session:
            session = session.fact("before", 1)
            self._times += 1
            if self._times == 1:
                raise KeyboardInterrupt
            return self.agent(session)

    chat = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        session.turn("one", chat)
    assert said_texts(session.turn("two", chat)) == ["hello", "one", "ok one", "two", "ok two"]
    assert kinds_of(session).count("RunStarted") == 2


@tool
def wire(amount: int) -> str:
    return f"wired {amount}"


def payer() -> Agent:
    def speak(at: Session) -> Any:
        words = at.messages[-1].text
        if words == "pay":
            return ToolCall("wire", amount=5)
        return f"ok {words}" if words else "it is paid"

    return Agent("Pay.", model=ScriptedModel(speak), tools=[wire], policy=Policy(Ask("wire")))


def test_an_approval_in_the_middle_of_a_chat(session: Session) -> None:
    chat = payer()
    with pytest.raises(Parked) as stop:
        session.turn("pay", chat)
    with pytest.raises(Parked, match="the turn stands in the queue"):
        session.turn("thanks", chat)
    parked = stop.value.session
    parked.inbox.approve(parked.inbox.waiting[0])
    after = session.turn("bye", chat)  # it goes on with all that stood before
    said = said_texts(after)
    assert said[-5:] == ["it is paid", "thanks", "ok thanks", "bye", "ok bye"]
    assert kinds_of(session).count("ToolReturned") == 1


def test_an_approver_is_asked_at_once(session: Session) -> None:
    after = session.turn("pay", payer(), approver=lambda *_: True)
    assert said_texts(after)[-1] == "it is paid"


def test_bad_input_writes_nothing(session: Session) -> None:
    chat = echo()
    for act, error in (
        (lambda: session.turn("", chat), InvalidValue),
        (lambda: session.turn((), chat), InvalidValue),
        (lambda: session.turn("x", None), InvalidValue),
        (lambda: session.turn("x", Agent), InvalidValue),
        (lambda: session.turn("x", chat, key=7), InvalidValue),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(error):
            act()
    closed = Session("x", store=store_at(session.store)).close()
    paused = Session("x", store=store_at(session.store)).pause()
    number = store_at(session.store).number
    with pytest.raises(WrongStatus, match="fork"):
        closed.turn("x", chat)
    with pytest.raises(WrongStatus, match="unpause"):
        paused.turn("x", chat)
    assert store_at(session.store).number == number and session.inbox.events == []


def test_not_inside_a_run(session: Session) -> None:
    class Turns(Workflow):
        def forward(self, session: Session) -> Session:
            return session.turn("x", echo())

    with pytest.raises(InvalidValue, match=r"workflow\(session\)"):
        Turns()(session)

    def take_turn() -> str:
        """Take a turn on the session of the run."""
        return Session.open(session.id, store=store_at(session.store)).turn("x", echo()).text

    def act_apart(act: Callable[[], object]) -> None:
        errors = list[BaseException]()

        def act_here() -> None:
            try:
                act()
            except InvalidValue as error:
                errors.append(error)

        in_threads(act_here)
        raise errors[0]

    class Nested(Workflow):
        def forward(self, session: Session) -> Session:
            return session.fact("text", take_turn())

    class Acts(Workflow):
        def __init__(self, act: Callable[[Session], object]) -> None:
            self._act = act

        def forward(self, session: Session) -> Session:
            self._act(session)
            return session

    other, inbox = Session("z", store=store_at(session.store)), list(session.inbox.events)
    acts: list[Callable[[Session], object]] = [
        lambda at: take_turn(),
        lambda at: act_apart(take_turn),
        lambda at: at.use(tool(take_turn)),
        lambda at: other.turn("y", Nested()),
        lambda at: list(Nested().stream_turn(other, "y")),
    ]
    for act in acts:
        with pytest.raises((InvalidValue, ToolFailed), match="code of its open run"):
            Acts(act)(session.reload())
    assert session.inbox.events == inbox, "nothing was posted"

    class Branches(Workflow):
        def __init__(self) -> None:
            self.held = Held()

        def forward(self, session: Session) -> Session:
            branches.append(session.fork("b"))
            return self.held(session)

    branches, workflow = list[Session](), Branches()
    run = Thread(target=lambda: workflow(Session("y", store=store_at(session.store))))
    run.start()
    workflow.held.wait_until_begun()
    branch = Session.open(branches[0].id, store=store_at(session.store))
    with pytest.raises(RunOpen, match="fork"):
        branch.turn("x", echo())
    workflow.held.go_on()
    run.join()
    assert said_texts(branch.turn("x", echo()))[-1] == "ok x", "its run is over"


def test_a_stream_has_deltas_and_events_in_order(session: Session) -> None:
    items = list(echo().stream_turn(session, "a b"))
    assert isinstance(items[-1], Session) and items[-1].text == "ok a b"
    kinds = [item.kind if isinstance(item, Event) else type(item).__name__ for item in items[:-1]]
    deltas = [item.text for item in items if isinstance(item, TextDelta)]
    assert "".join(deltas) == "ok a b"
    first = kinds.index("TextDelta")
    assert kinds[:3] == ["Delivered", "MessageSaid", "RunStarted"]
    assert kinds[first - 1] == "ModelAsked" and kinds[first + len(deltas)] == "ModelReplied"
    assert kinds[-1] == "RunFinished"


def test_a_reader_of_a_stream_may_go_away(session: Session) -> None:
    for _ in echo().stream_turn(session, "one"):
        break
    wait_until(lambda: "ok one" in said_texts(session.reload()) or None)


def test_an_error_comes_out_of_the_stream(session: Session) -> None:
    class Fails(Workflow):
        def forward(self, session: Session) -> Session:
            raise LookupError("no stock")

    with pytest.raises(LookupError, match="no stock"):
        list(Fails().stream_turn(session, "one"))


def test_on_an_event_loop(session: Session) -> None:
    chat = echo()

    class OnLoop(Workflow):
        def __init__(self) -> None:
            self.agent = echo()

        async def forward(self, session: Session) -> Session:
            loops.append(asyncio.get_running_loop())
            return await self.agent.acall(session)

    loops = list[asyncio.AbstractEventLoop]()

    async def main() -> None:
        after = await session.aturn("one", chat)
        assert said_texts(after)[-1] == "ok one"
        ends = await asyncio.gather(*[session.aturn(f"m{i}", chat) for i in range(10)])
        assert [end.text for end in ends] == [f"ok m{i}" for i in range(10)]
        await session.aturn("mine", OnLoop())
        assert loops == [asyncio.get_running_loop()], "an async forward runs on the caller's loop"
        items = [item async for item in chat.astream_turn(session, "last")]
        assert isinstance(items[-1], Session) and items[-1].text == "ok last"

    asyncio.run(main())
    assert list(verify(store_at(session.store), state=True)) == []


def test_a_cancelled_caller_leaves_a_turn_that_ends(session: Session) -> None:
    held = Held()

    async def main() -> None:
        first = asyncio.ensure_future(session.aturn("one", held))
        await asyncio.to_thread(held.wait_until_begun)
        second = asyncio.ensure_future(session.aturn("two", echo()))
        await asyncio.to_thread(wait_until, lambda: len(session.inbox.events) == 2 or None)
        first.cancel()
        second.cancel()
        held.go_on()
        await asyncio.to_thread(
            wait_until, lambda: "ok two" in said_texts(session.reload()) or None
        )

    asyncio.run(main())
    assert said_texts(session.reload()) == ["hello", "one", "ok one", "two", "ok two"]


def test_a_loop_that_ends_leaves_a_turn_to_the_next_client(session: Session) -> None:
    class Slow(Workflow):
        def __init__(self) -> None:
            self.agent, self._times = echo(), 0

        async def forward(self, session: Session) -> Session:
            self._times += 1
            if self._times == 1:
                begun.set()
                await asyncio.sleep(600)
            return await self.agent.acall(session)

    begun, chat = Flag(), Slow()

    async def main() -> None:
        await session.aturn("one", chat, wait=False)
        await asyncio.to_thread(begun.wait, 60)

    asyncio.run(main())  # it cancels what is left on it
    assert said_texts(session.turn("two", chat)) == ["hello", "one", "ok one", "two", "ok two"]
    assert "RunFailed" not in kinds_of(session)


def test_a_resume_of_the_run_of_a_turn(session: Session) -> None:
    class Fails(Workflow):
        def __init__(self) -> None:
            self.agent, self._times = echo(), 0

        def forward(self, session: Session) -> Session:
            self._times += 1
            if self._times == 1:
                raise LookupError("no stock")
            return self.agent(session)

    chat = Fails()
    with pytest.raises(LookupError):
        session.turn("one", chat, key="r-1")
    after = resume(session, chat)
    assert said_texts(after) == ["hello", "one", "ok one"]
    assert session.turn("one", chat, key="r-1") == after
