"""Messages of clients that are gone, turns that run elsewhere, and turns that Ctrl-C stops."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import closing
from threading import Event as Flag
from threading import Thread, current_thread, main_thread
from typing import Any, cast

import pytest

from plait import (
    Agent,
    Event,
    Parked,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    aresume,
    open_store,
    resume,
    stream_resume,
    tool,
)
from plait.errors import (
    InvalidValue,
    NeedsWorkflow,
    NoModel,
    NothingToResume,
    NotSettled,
    TurnFailed,
)
from plait.journal.stops import Cancelled
from plait.policy import Ask, Policy
from plait.runs import turn_queue
from plait.runs.turn_drivers import answer_queue
from plait.runs.turn_queue import LOOK_AHEAD, QueueKeeper, TakeTurn
from plait.runs.turns import TurnClient
from plait.runtime.attendants import NOBODY
from plait.runtime.registry import run_of
from plait.session import verify
from plait.session.ports import store_at
from tests.runtime.test_turns import session, wire
from tests.support import said_texts
from tests.support.interrupting import InterruptedLines
from tests.support.processes import wait_until

__all__ = ["session"]

RUNS = "/plait/runs/"


class Clerk(Workflow):
    """Can be found by its name."""

    def __init__(self) -> None:
        self.agent = Agent("Repeat.", model=ScriptedModel(lambda at: f"ok {at.messages[-1].text}"))

    def forward(self, session: Session) -> Session:
        if session.messages[-1].text == "fail":
            raise LookupError("no stock")
        return self.agent(session)


class Rude(Workflow):
    def __init__(self) -> None:
        self.agent = Agent("Be rude.", model=ScriptedModel(lambda at: "no"), name="rude")

    def forward(self, session: Session) -> Session:
        return self.agent(session)


def leave(session: Session, *messages: str, workflow: Workflow | None = None) -> None:
    """Post messages whose clients are gone before their turns."""
    for words in messages:
        TurnClient.post(session, words, workflow or Clerk(), "", None, NOBODY).release()


def statuses(session: Session) -> tuple[str, list[str]]:
    found = Session.list(store=store_at(session.store), status="interrupted")
    return session.reload().status, [each.id for each in found]


# ── messages of clients that are gone ────────────────────────────────────────────────────────


def test_a_resume_answers_them_in_their_order(session: Session) -> None:
    assert statuses(session) == ("open", [])
    leave(session, "one", "two")
    assert statuses(session) == ("interrupted", [session.id])
    after = resume(session)
    assert said_texts(after) == ["hello", "one", "ok one", "two", "ok two"]
    assert after == session.reload() and statuses(session) == ("finished", [])
    leave(session, "three")
    assert statuses(session) == ("interrupted", [session.id])
    assert [run.status for run in session.reload().runs] == ["finished", "finished"]
    assert said_texts(resume(session))[-2:] == ["three", "ok three"]
    assert resume(session) == session.reload(), "nothing is left to do"
    assert list(verify(store_at(session.store), state=True)) == []


def test_on_an_event_loop_and_as_a_stream(session: Session) -> None:
    leave(session, "one", "two")
    assert said_texts(asyncio.run(aresume(session)))[-2:] == ["two", "ok two"]
    leave(session, "three")
    items = list(stream_resume(session, events=True))
    assert isinstance(items[-1], Session) and items[-1].text == "ok three"
    kinds = [item.kind for item in items if isinstance(item, Event)]
    assert "RunStarted" in kinds and kinds[-1] == "RunFinished"


def test_nothing_is_left_and_no_run_ever_began(session: Session) -> None:
    with pytest.raises(NothingToResume):
        resume(session)


def test_the_messages_behind_a_run_that_was_left(session: Session) -> None:
    class Interrupted(Clerk):
        def forward(self, session: Session) -> Session:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.turn("one", Interrupted())
    leave(session, "two")
    after = resume(session, Clerk())
    assert said_texts(after) == ["hello", "one", "ok one", "two", "ok two"]


def test_a_branch_has_messages_of_its_own(session: Session) -> None:
    class Branches(Clerk):
        def forward(self, session: Session) -> Session:
            branches.append(session.fork("b"))
            return session

    branches = list[Session]()
    Branches()(session)
    branch = Session.open(branches[0].id, store=store_at(session.store))
    leave(branch, "x")
    assert statuses(branch) == ("interrupted", [branch.id])
    assert said_texts(resume(branch))[-1] == "ok x" and statuses(branch) == ("finished", [])


def test_each_is_answered_by_the_program_it_was_posted_for(session: Session) -> None:
    leave(session, "one")
    leave(session, "two", workflow=Rude())
    after = session.turn("three", Rude())
    assert said_texts(after)[1:] == ["one", "ok one", "two", "no", "three", "no"]
    leave(session, "four", workflow=Agent("Hm.", model=ScriptedModel(["hm"])))
    number = store_at(session.store).number
    with pytest.raises(NeedsWorkflow, match="resume"):
        resume(session)  # an agent of no module
    assert store_at(session.store).number == number and statuses(session)[0] == "interrupted"
    assert said_texts(resume(session, Rude()))[-2:] == ["four", "no"], "what is passed answers"


def test_one_that_fails_keeps_no_other_from_its_answer(session: Session) -> None:
    leave(session, "fail", "two")
    with pytest.raises(LookupError, match="no stock"):
        resume(session)
    assert said_texts(session.reload()) == ["hello", "fail", "two", "ok two"]
    leave(session, "fail", "three", "fail")
    with pytest.raises(LookupError):
        answer_queue(session, None, NOBODY)
    assert session.reload().status == "failed"
    runs = len(session.reload().runs)
    assert answer_queue(session, None, NOBODY) == session, "one that failed is not tried again"
    assert len(session.reload().runs) == runs == 5


def test_a_client_that_lives_keeps_its_turn(session: Session) -> None:
    client = TurnClient.post(session, "mine", Clerk(), "", None, NOBODY)
    leave(session, "behind")
    assert statuses(session) == ("open", []), "a client is at it"
    assert answer_queue(session, None, NOBODY) == session
    client.release()
    assert said_texts(resume(session)) == ["hello", "mine", "ok mine", "behind", "ok behind"]


def test_two_that_find_the_same_message(session: Session) -> None:
    leave(session, "one")
    first, second = [QueueKeeper(session, None, NOBODY) for _ in range(2)]
    steps = first.look(), second.look()
    assert all(isinstance(step, TakeTurn) for step in steps)
    ends = list[Session]()
    threads = [
        Thread(target=lambda: ends.append(answer_queue(session, None, NOBODY))) for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert said_texts(session.reload()) == ["hello", "one", "ok one"] and len(ends) == 8
    assert isinstance(first.look(), Session), "the other finds nothing to do"


def test_one_that_is_closed_or_paused(session: Session) -> None:
    leave(session, "one")
    paused = session.pause()
    assert statuses(session) == ("paused", [])
    unpaused = paused.unpause()
    number = store_at(session.store).number
    with pytest.raises(NotSettled, match="'one'.*plait resume"):
        unpaused.close()
    assert store_at(session.store).number == number
    assert resume(session).close().status == "closed"


# ── turns that were let go of ────────────────────────────────────────────────────────────────


class LetGo(Clerk):
    """Is let go of, as at the end of an event loop."""

    def __init__(self, *, is_stopped: bool = True) -> None:
        super().__init__()
        self._is_stopped = is_stopped

    def forward(self, session: Session) -> Session:
        if self._is_stopped:
            raise Cancelled("the loop ended")
        return super().forward(session)


def let_go(session: Session, words: str, key: str = "") -> Session:
    with pytest.raises(Cancelled):
        session.turn(words, LetGo(), key=key)
    return session.reload()


def test_a_turn_that_was_let_go_of_is_taken_up(session: Session) -> None:
    let_go(session, "one")
    assert statuses(session) == ("interrupted", [session.id])
    with pytest.raises(NotSettled, match="'one'"):
        session.reload().close()
    after = answer_queue(session, LetGo(is_stopped=False), NOBODY)
    assert said_texts(after) == ["hello", "one", "ok one"]
    assert statuses(session) == ("finished", [])


def test_turns_that_were_let_go_of_do_not_fill_the_queue(session: Session) -> None:
    for number in range(LOOK_AHEAD + 1):
        left = let_go(session, "x", key=f"r-{number}")
        Clerk()(left.say("plain"))
        assert statuses(session) == ("finished", []), "another run began"
    assert said_texts(session.turn("last", Clerk()))[-2:] == ["last", "ok last"]
    with pytest.raises(TurnFailed, match="let go of it"):
        session.turn("x", Clerk(), key="r-0")
    assert list(verify(store_at(session.store), state=True)) == []


def test_a_turn_that_was_let_go_of_is_rewound_away(session: Session) -> None:
    rewound = let_go(session, "one", key="r-1").rewind(session.seq)
    assert statuses(session) == ("cancelled", [])
    assert said_texts(rewound.turn("two", Clerk())) == ["hello", "two", "ok two"]
    assert said_texts(rewound.turn("one", Clerk(), key="r-1"))[-2:] == ["one", "ok one"]


# ── runs that wait ───────────────────────────────────────────────────────────────────────────


class Payer(Workflow):
    def __init__(self) -> None:
        model = ScriptedModel(
            lambda at: ToolCall("wire", amount=5) if at.messages[-1].text == "pay" else "fine"
        )
        policy = Policy(Ask("wire"))
        self.agent = Agent("Pay.", model=model, tools=[wire], policy=policy, name="payer")

    def forward(self, session: Session) -> Session:
        return self.agent(session)


def test_a_message_stays_behind_a_run_that_waits(session: Session) -> None:
    leave(session, "pay", "thanks", workflow=Payer())
    with pytest.raises(Parked) as stop:
        resume(session)
    assert statuses(session) == ("waiting", [])
    with pytest.raises(Parked, match="the turn stands in the queue"):
        session.turn("bye", Payer(), approver=lambda *_: None)  # not its run to approve
    parked = stop.value.session
    parked.inbox.approve(parked.inbox.waiting[0])
    said = said_texts(resume(session))
    assert said[-5:] == ["fine", "thanks", "fine", "bye", "fine"]


def leave_behind_approval(session: Session) -> None:
    """Leave a turn that waits for an approval, with messages in the queue behind it; approve."""
    with pytest.raises(Parked) as stop:
        session.turn("pay", Payer(), key="m2")
    for words in ("thanks", "bye"):
        with pytest.raises(Parked, match="is answered after it"):
            session.turn(words, Payer(), key=words)
    parked = stop.value.session
    parked.inbox.approve(parked.inbox.waiting[0])


def is_answered(session: Session) -> bool:
    """True if the last message in the queue is answered; between two turns no run is open, too."""
    now = session.reload()
    return now.status == "finished" and said_texts(now)[-2] == "bye"


def answers_after(session: Session) -> list[str]:
    wait_until(lambda: is_answered(session))
    assert not list(verify(store_at(session.store)))
    return said_texts(session.reload())[-5:]


@pytest.mark.parametrize("key", ["m2", "thanks"])
def test_the_client_that_takes_up_a_run_answers_the_queue_behind_it(
    session: Session, key: str
) -> None:
    leave_behind_approval(session)
    after = session.turn({"m2": "pay"}.get(key, key), Payer(), key=key)
    assert said_texts(after)[-1] == "fine"  # its own turn is the last that its client sees
    assert said_texts(after)[-2] in ("", key)
    assert answers_after(session) == ["fine", "thanks", "fine", "bye", "fine"]


def test_on_an_event_loop_the_queue_behind_a_run_is_answered_likewise(session: Session) -> None:
    leave_behind_approval(session)

    async def take() -> None:
        after = await session.aturn("pay", Payer(), key="m2")
        assert said_texts(after)[-1] == "fine"
        await asyncio.to_thread(wait_until, lambda: is_answered(session))

    asyncio.run(take())
    assert answers_after(session) == ["fine", "thanks", "fine", "bye", "fine"]


# ── errors that are known before ─────────────────────────────────────────────────────────────


def test_a_turn_that_cannot_run_writes_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Takes(Workflow):
        def forward(self, session: Session, more: int) -> Session:
            return session

    class Empty(Workflow):
        pass

    monkeypatch.delenv("PLAIT_MODEL", raising=False)
    number = store_at(session.store).number
    for workflow, error in (
        (Agent("No model."), NoModel),
        (Takes(), InvalidValue),
        (Empty(), InvalidValue),
    ):
        with pytest.raises(error):
            session.turn("x", workflow)
        with pytest.raises(error):
            list(workflow.stream_turn(session, "x"))
        with pytest.raises(error):
            asyncio.run(session.aturn("x", workflow, wait=False))
    assert store_at(session.store).number == number and session.inbox.events == []


# ── a turn that runs elsewhere ───────────────────────────────────────────────────────────────


class Steps(Workflow):
    """Takes a step whenever it is let go on."""

    def __init__(self) -> None:
        self.agent = Agent("Repeat.", model=ScriptedModel(lambda at: "done"), name="steps")
        self._begun, self._may = Flag(), Flag()

    def forward(self, session: Session) -> Session:
        session = session.fact("first", 1)
        self._begun.set()
        assert self._may.wait(60)
        return self.agent(session.fact("second", 2))

    def wait_until_begun(self) -> None:
        assert self._begun.wait(60)

    def go_on(self) -> None:
        self._may.set()


def test_a_second_client_of_a_turn_hears_its_events(session: Session) -> None:
    steps = Steps()
    first = Thread(target=lambda: session.turn("go", steps, key="r-1"))
    first.start()
    steps.wait_until_begun()
    items = steps.stream_turn(session, "go", key="r-1")
    heard = [next(items)]
    assert isinstance(heard[0], Event) and heard[0].kind == "RunStarted"
    steps.go_on()
    rest = list(items)
    first.join()
    events = [each for each in (*heard, *rest) if isinstance(each, Event)]
    now = session.reload()
    run = now.runs[-1]
    assert events == list(store_at(session.store).read(session.id, run.first, now.seq))
    assert rest[-1] == now and now.text == "done"
    assert list(steps.stream_turn(session, "go", key="r-1")) == [now], "it is over: no events"


def test_a_second_client_hears_the_end_of_a_run_that_ends_while_it_looks(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds a run that is open in what it has read, and that no process has any more."""
    steps, allowed = Steps(), turn_queue.check_not_over
    first = Thread(target=lambda: session.turn("go", steps, key="r-1"))
    first.start()
    steps.wait_until_begun()
    items = steps.stream_turn(session, "go", key="r-1")
    heard = [next(items)]

    def end_and_check(read: Session) -> None:
        if current_thread() is not first:
            steps.go_on()
            first.join()
        allowed(read)

    monkeypatch.setattr(turn_queue, "check_not_over", end_and_check)
    heard += items
    now = session.reload()
    events = [each for each in heard if isinstance(each, Event)]
    assert events == list(store_at(session.store).read(session.id, now.runs[-1].first, now.seq))
    assert heard[-1] == now


def test_the_events_of_a_turn_that_runs_elsewhere_on_an_event_loop(session: Session) -> None:
    steps = Steps()

    async def main() -> None:
        first = asyncio.ensure_future(session.aturn("go", steps, key="r-1"))
        await asyncio.to_thread(steps.wait_until_begun)
        kinds = list[str]()
        async for item in steps.astream_turn(session, "go", key="r-1"):
            if isinstance(item, Event):
                kinds.append(item.kind)
            if kinds and kinds[-1] == "FactRecorded":
                steps.go_on()
        assert kinds[0] == "RunStarted" and kinds[-1] == "RunFinished"
        await first

    asyncio.run(main())


# ── Ctrl-C ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["reader", "waiting"])
def test_ctrl_c_stops_a_stream_of_a_turn(session: Session, where: str) -> None:
    class Slow(Clerk):
        def forward(self, session: Session) -> Session:
            session = session.fact("first", 1)
            run = run_of(session)
            if run is not None and not interrupted.is_set():
                interrupted.set()
                if where == "waiting":  # the main thread waits for the next item
                    signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
                wait_until(lambda: run.stops.is_interrupted)
            return super().forward(session)

    interrupted, chat, before = Flag(), Slow(), signal.getsignal(signal.SIGINT)
    items = chat.stream_turn(session, "one")
    with closing(cast("Generator[Any]", items)), pytest.raises(KeyboardInterrupt):
        for item in items:
            if where == "reader" and isinstance(item, Event) and item.kind == "FactRecorded":
                signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert said_texts(session.reload()) == ["hello", "one"]
    assert statuses(session) == ("interrupted", [session.id])
    assert said_texts(resume(session, chat)) == ["hello", "one", "ok one"]


def test_ctrl_c_leaves_a_message_in_the_queue(session: Session) -> None:
    steps = Steps()
    first = Thread(target=lambda: session.turn("one", steps))
    first.start()
    steps.wait_until_begun()
    posted = Thread(
        target=lambda: (
            wait_until(lambda: len(session.inbox.events) == 2),
            signal.pthread_kill(main_thread().ident or 0, signal.SIGINT),
        )
    )
    posted.start()
    with pytest.raises(KeyboardInterrupt):
        list(Clerk().stream_turn(session, "two"))
    posted.join()
    steps.go_on()
    first.join()
    assert statuses(session) == ("interrupted", [session.id])
    assert said_texts(resume(session))[-2:] == ["two", "ok two"]


@pytest.mark.parametrize("wait", [True, False])
def test_ctrl_c_stops_a_turn_on_an_event_loop(session: Session, wait: bool) -> None:
    class Uses(Workflow):
        async def forward(self, session: Session) -> Session:
            for _ in range(5):
                session = session.use(step)
                await asyncio.sleep(0)
            return session

    @tool(effect="pure")
    def step() -> str:
        """Do something while a person stops it."""
        done.append("step")
        signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
        return "s"

    async def main() -> None:
        await session.aturn("one", Uses(), wait=wait)
        await asyncio.sleep(600)

    done, before = list[str](), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert done == ["step"], "no effect began after it"
    assert signal.getsignal(signal.SIGINT) is before
    assert statuses(session) == ("interrupted", [session.id])


# ── the messages that wait ───────────────────────────────────────────────────────────────────


def test_the_queue_can_be_read(session: Session) -> None:
    assert session.inbox.queued == []
    leave(session, "one")
    client = TurnClient.post(session, "two", Clerk(), "r-2", "human:bo", NOBODY)
    first, second = session.inbox.queued
    assert (first.text, first.key, first.is_attended) == ("one", "", False)
    assert (second.text, second.key, second.is_attended) == ("two", "r-2", True)
    assert (second.actor, second.time) == ("human:bo", second.event.time)
    assert repr(second) == "<QueuedTurn 'two', by human:bo>"
    client.release()
    resume(session)
    assert session.inbox.queued == [] and session.fork("b").inbox.queued == []


@pytest.mark.parametrize("form", ["turn", "stream_turn"])
def test_ctrl_c_between_any_two_lines_leaves_no_message_without_a_client(form: str) -> None:
    def send_turn() -> None:
        if form == "turn":
            session.turn("two", Clerk())
        else:
            list(Clerk().stream_turn(session, "two"))

    lines = InterruptedLines(0, RUNS)
    session = Session("hello", store=open_store("memory:every-line"))
    with lines:
        send_turn()
    assert lines.count > 50
    for stop_at in range(1, lines.count + 1):
        session = Session("hello", store=open_store("memory:every-line"))
        lines = InterruptedLines(stop_at, RUNS)
        try:
            with lines:
                send_turn()
        except KeyboardInterrupt:
            assert lines.is_stopped
        if session.reload().status == "interrupted":
            resume(session, Clerk())
        found = said_texts(session.reload())
        assert found in (["hello"], ["hello", "two", "ok two"]), (stop_at, lines.where)
        assert len(session.inbox.events) == len(found) // 2, (stop_at, lines.where)
