"""`debug` stops in the program, at the line that made a step, with the values that were there."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any, NamedTuple

import pytest

from plait import (
    Agent,
    Parallel,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    debug,
    open_store,
    resume,
    tool,
    whatif,
)
from plait.errors import InvalidValue, NeedsWorkflow, NothingToDebug, ReplayDiverged, ToolFailed
from plait.event import Event
from plait.store import Store
from tests.support import RAN, parked_session, report, seed


@tool
def count(word: str) -> int:
    """Count the letters of a word."""
    RAN.append(word)
    if word == "broken":
        raise ValueError("it has no letters")
    return len(word)


class Seen(NamedTuple):
    """A frame of the program: its function, its line, and its values."""

    function: str
    line: int
    values: dict[str, str]


def seen_frame(frame: FrameType) -> Seen:
    values = {
        name: f"{value.id}@{value.seq}" if isinstance(value, Session) else repr(value)
        for name, value in frame.f_locals.items()
        if isinstance(value, (Session, str, int)) or name == "words"
    }
    return Seen(frame.f_code.co_name, frame.f_lineno, values)


LIVE: list[tuple[Session, Seen]] = []


def note(session: Session) -> None:
    """Note the values of the caller, which makes a step on the next line."""
    seen = seen_frame(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
    LIVE.append((session, seen._replace(line=seen.line + 1)))


def talker(*words: str) -> Agent:
    script = [*(ToolCall("count", word=word) for word in words), "Done."]
    return Agent("Count.", model=ScriptedModel(script), tools=[count])


class Child(Workflow):
    def __init__(self, name: str) -> None:
        self.talker, self.title = talker("one", "two"), name

    def forward(self, session: Session) -> Session:
        title = self.title * 2
        note(session)
        session = session.fact(f"{title}.begun", True)
        note(session)
        session = self.talker(session)
        ended = session.seq
        note(session)
        return session.fact(f"{title}.ended", ended)


def team() -> Agent:
    """An agent whose tool is an agent, whose tool is a workflow."""
    helper = Child("helper").as_tool(name="help", description="Help.")
    script = [ToolCall("help", request="help"), "Done."]
    middle = Agent("Ask.", model=ScriptedModel(script), tools=[helper], name="middle")
    lead = ScriptedModel([ToolCall("middle", request="go"), "Done."])
    return Agent("Lead.", model=lead, tools=[middle])


class Later(Workflow):
    def __init__(self) -> None:
        self.talker = talker("three")

    async def forward(self, session: Session) -> Session:
        kind = "async"
        note(session)
        session = await self.talker.acall(session)
        words = [kind, kind]
        note(session)
        session = await session.ause(count, word="".join(words))
        return session


class Threads(Workflow):
    def forward(self, session: Session) -> Session:
        found: dict[str, Session] = {}

        def work(branch: Session, word: str) -> None:
            twice = word * 2
            note(branch)
            found[word] = branch.use(count, word=twice)

        threads = [
            Thread(target=work, args=(session.fork(word), word)) for word in ("left", "right")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        note(session)
        return session.merge(found["left"], found["right"])


class Story(Workflow):
    """Every way to make steps: loops, helpers, children, agents, also as tools, branches, threads,
    coroutines.
    """

    def __init__(self) -> None:
        self.child, self.later, self.threads = Child("only"), Later(), Threads()
        self.team = team()
        self.both = Parallel(first=Child("first"), second=Child("second"))

    def forward(self, session: Session) -> Session:
        total = 0
        for number in range(6):
            note(session)
            session = session.use(count, word="x" * number)
            total += session.result
        session = self.helped(session, total)
        session = self.child(session)
        note(session)
        session = self.team(session)
        session = self.later(session)
        note(session)
        session = self.both(session)
        session = self.threads(session)
        try:
            note(session)
            session = session.use(count, word="broken")
        except ToolFailed as error:
            session = session.reload()
            assert error.session == session
            note(session)
            session = session.say("It is broken.")
        note(session)
        return session.decide("total", total)

    def helped(self, session: Session, total: int) -> Session:
        doubled = total * 2
        note(session)
        session = session.fact("doubled", doubled)
        return session


# Written by Plait around the calls of a program, not by a line of it.
AROUND = {"CallStarted", "CallFinished", "HandedOff", "ForkedFrom", "RunStarted", "RunFinished"}


def noted_at(event: Event) -> Seen | None:
    """The values at the last note before an event was written."""
    before = [seen for session, seen in LIVE if session.id == event.log and session.seq < event.seq]
    return before[-1] if before else None


@pytest.fixture
def store(tmp_path: Path) -> Store:
    LIVE.clear()
    return open_store(tmp_path / "store")


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Seen]]:
    """The frames in which a breakpoint was called."""
    found: list[Seen] = []

    def hook() -> None:
        found.append(seen_frame(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(sys, "breakpointhook", hook)
    yield found


def state_of(store: Store) -> tuple[int, list[Any]]:
    """The last commit of a store, and what tools did."""
    return next(number for number, _ in store.feed(reverse=True)), list(RAN)


# ── values ───────────────────────────────────────────────────────────────────────────────────


def test_the_values_at_50_random_steps_are_those_that_were_there(
    store: Store, stops: list[Seen]
) -> None:
    chance = seed()
    session = Story()(Session("Count.", store=store))
    live, before = list(LIVE), state_of(store)
    steps = [
        (log, event)
        for log in Session.list(store=store)
        for event in log.events
        if event.log == log.id and event.kind not in AROUND and noted_at(event) is not None
    ]
    assert len(steps) > 60 and {event.kind for _, event in steps} >= {"ModelReplied", "Merged"}
    trace = sys.gettrace()
    for log, event in random.Random(chance).sample(steps, 50):
        stops.clear()
        LIVE[:] = live
        ended = debug(log.at(event.seq), Story())
        LIVE[:] = live
        assert stops == [noted_at(event)], f"{event.kind} {event.seq} of {log!r}, SEED={chance}"
        assert ended.head == session.head and sys.gettrace() is trace
    assert state_of(store) == before
    report("values at 50 steps in the debugger", "0 differ", chance)


def test_calls_are_seen_from_the_line_that_made_them(store: Store, stops: list[Seen]) -> None:
    session = Story()(Session("Count.", store=store))
    for kind in ("CallStarted", "CallFinished"):
        for event in session.events.where(kind)[1:-1]:
            debug(session.at(event.seq), Story())
    lines = {(seen.function, seen.line) for seen in stops}
    first = Story.forward.__wrapped__.__code__.co_firstlineno  # pyright: ignore[reportFunctionMemberAccess]
    assert {("forward", first + line) for line in (7, 9, 10, 12, 13)} < lines
    stops.clear()
    for seq in (session.runs[-1].first, session.runs[-1].first + 1):
        debug(session.at(seq), Story())  # its first step
    debug(session, Story())  # its last one
    assert [seen.values.get("number") for seen in stops] == ["0", "0", "5"]


# ── runs that did not end well ───────────────────────────────────────────────────────────────


class Stops(Workflow):
    def forward(self, session: Session, how: str) -> Session:
        before = "noted"
        session = session.use(count, word=before)
        if how == "wait":
            session = session.ask("Go on?")
        if how == "tool":
            session = session.use(count, word="broken")
        return self.fall(session, session.result)

    def fall(self, session: Session, letters: int) -> Session:
        share = 1 / (letters - 5)
        return session.fact("share", share)


def test_a_failed_run_is_opened_where_the_error_was_raised(store: Store, stops: list[Seen]) -> None:
    session = Session("Count.", store=store)
    broken = session.fork("broken")
    with pytest.raises(ZeroDivisionError):
        Stops()(session, "fall")
    with pytest.raises(ToolFailed, match="it has no letters"):
        Stops()(broken, "tool")
    before = state_of(store)
    assert debug(session.reload()) == session.reload()  # found by the name on record
    assert debug(broken.reload()) == broken.reload()
    assert [(seen.function, seen.values.get("letters")) for seen in stops] == [
        ("fall", "5"),
        ("forward", None),
    ]
    assert stops[1].values["before"] == "'noted'" and state_of(store) == before


def test_a_waiting_run_is_stepped_to_the_end_of_its_recording(
    store: Store, stops: list[Seen]
) -> None:
    waiting = parked_session(lambda: Stops()(Session("Count.", store=store), "wait"))
    assert debug(waiting) == waiting == debug(waiting.at(waiting.runs[-1].first + 2))
    assert [seen.function for seen in stops] == ["forward", "forward"]
    waiting.inbox.answer(waiting.inbox.waiting[0], "yes", actor="human:ann")
    with pytest.raises(Exception, match="unsupported operand"):
        resume(waiting)
    assert debug(waiting).seq > waiting.seq  # the same step, and now the recording goes on
    assert stops[-1] == stops[0]


def test_a_step_of_an_earlier_run_and_a_step_that_was_rewound(
    store: Store, stops: list[Seen]
) -> None:
    session = Child("first")(Session("Count.", store=store))
    again = Child("second")(session.say("And again."))
    back = again.rewind(session.runs[0].first)
    for value, title in ((session, "first"), (back.at(session.seq), "first"), (again, "second")):
        stops.clear()
        debug(value, Child(title))
        assert stops[0].values["title"] == repr(title * 2)
    with pytest.raises(NothingToDebug, match="no run was going on there"):
        debug(back)


def test_a_session_that_went_on_after_its_run_is_debugged_at_the_last_step(
    store: Store, stops: list[Seen]
) -> None:
    session = Child("a")(Session("Count.", store=store))
    debug(session, Child("a"))
    judged = session.checks.feedback(False, "wrong", actor="human:ann")
    debug(judged, Child("a"))
    assert judged.seq > session.seq and stops[1] == stops[0]
    with pytest.raises(NothingToDebug, match="no run was going on there"):
        debug(judged.say("And?").at(judged.seq), Child("a"))  # a step that is named


def test_a_what_if_is_debugged_in_its_own_log(store: Store, stops: list[Seen]) -> None:
    session = Child("a")(Session("Count.", store=store))
    asked = session.events.where("ModelAsked")[1]
    other = whatif(
        session, Child("a"), at=asked.seq - 1, model=ScriptedModel(["1", "2", "Enough."])
    )
    for value in (other, other.at(-4), other.at(asked.seq - 2)):
        debug(value, Child("a"))
    assert [seen.function for seen in stops] == ["forward"] * 3
    assert stops[0].values["ended"] != stops[1].values.get("ended")


def test_what_cannot_be_debugged_is_refused(store: Store, stops: list[Seen]) -> None:
    session = Session("Count.", store=store)
    with pytest.raises(NothingToDebug, match="start a run"):
        debug(session)
    ended = Child("a")(session)
    with pytest.raises(NothingToDebug, match="name a step of a run: 3 to"):
        debug(ended.at(2))
    with pytest.raises(NeedsWorkflow, match=r"Pass it: debug\(session, Child\(…\)\)\."):
        debug(ended)  # it cannot be made without arguments
    with pytest.raises(ReplayDiverged):
        debug(ended, Child("b"))
    wrong: Any = Child
    with pytest.raises(InvalidValue):
        debug(ended, wrong)
    assert stops == []
    agent = talker("alone")
    alone = agent(Session("Count.", store=store))
    points: list[bool] = []
    debug(alone, agent, on_stop=lambda step, point: points.append(point.is_ours))
    assert points == [True] and [seen.function for seen in stops] == ["forward"]


def test_a_debugger_that_is_left_ends_the_replay(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Story()(Session("Count.", store=store))
    before = state_of(store)

    def leave() -> None:
        from bdb import BdbQuit

        raise BdbQuit

    monkeypatch.setattr(sys, "breakpointhook", leave)
    for event in session.events.where("ToolReturned"):
        left = debug(session.at(event.seq), Story())
        assert event.seq <= left.seq < session.seq
    first = session.at(session.runs[-1].first)
    assert asyncio.run(asyncio.to_thread(debug, first, Story())).seq < session.seq
    assert state_of(store) == before


def test_a_step_in_the_branch_of_an_agent_as_a_tool(store: Store, stops: list[Seen]) -> None:
    session = team()(Session("Go.", store=store))
    rows = [row for row in store.rows("session", "session", limit=9) if row["label"] == "help"]
    branch = Session.open(str(rows[0]["log"]), store=store)
    before = state_of(store), list(RAN)
    for event in branch.events.where(["ToolReturned", "FactRecorded"])[-4:]:
        debug(branch.at(event.seq), team())
    assert [(seen.function, seen.values["title"]) for seen in stops] == [
        ("forward", "'helperhelper'")
    ] * 4
    assert (state_of(store), RAN) == before
    assert session.reload() == session
