"""Acts of others on a session with an open run: each goes to the inbox or is refused, and the run
goes on undisturbed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, Literal

import pytest

from plait import Agent, Budget, Parallel, ScriptedModel, Session, Workflow
from plait.errors import BudgetExceeded, MayNotApprove, PlaitError, RunOpen, StaleHead
from plait.journal.stops import Parked
from plait.runs.forms import aresume
from plait.runs.replay import replay
from plait.runs.resume import resume
from plait.session import accessors
from plait.session.acts import Acting
from plait.session.value import open_run_of, store_of_session
from tests.runtime.programs import Steps, look

Way = Literal["inbox", "refused", "apart"]  # apart: it writes nothing to this session


class Idle(Workflow):
    """Answers a turn, when it is its time, with nothing."""

    def forward(self, session: Session) -> Session:
        return session


VERBS: dict[str, tuple[Way, Callable[[Session], Any]]] = {
    "say": ("inbox", lambda s: s.say("from outside")),
    "note": ("inbox", lambda s: s.note("from outside")),
    "fact": ("inbox", lambda s: s.fact("outside", 1)),
    "decide": ("inbox", lambda s: s.decide("outside decision", 1)),
    "retract": ("inbox", lambda s: s.retract("known")),
    "todo": ("inbox", lambda s: s.todo("from outside")),
    "settle": ("inbox", lambda s: s.settle("work")),
    "scratch": ("inbox", lambda s: s.scratch("outside", 1)),
    "attach": ("inbox", lambda s: s.attach("outside", b"bytes", media_type="text/plain")),
    "record": ("inbox", lambda s: s.checks.record("other tests", True)),
    "feedback": ("refused", lambda s: s.checks.feedback(True)),
    "require": ("inbox", lambda s: s.checks.require("tests")),
    "link": ("inbox", lambda s: s.lineage.link("tracker", "T-1")),
    "grant": ("inbox", lambda s: s.budget.grant(Budget(steps_max=100))),
    "pause": ("inbox", lambda s: s.pause()),
    "unpause": ("refused", lambda s: s.unpause()),
    "send": ("inbox", lambda s: s.inbox.send("from outside")),
    "cancel": ("inbox", lambda s: s.inbox.cancel()),
    "signal": ("inbox", lambda s: s.inbox.signal("outside")),
    "approve": ("refused", lambda s: s.inbox.approve("nothing")),
    "deny": ("refused", lambda s: s.inbox.deny("nothing")),
    "answer": ("refused", lambda s: s.inbox.answer("nothing", 1)),
    "resolve": ("refused", lambda s: s.inbox.resolve("nothing", "happened")),
    "rewind": ("refused", lambda s: s.rewind(2)),
    "merge": ("refused", lambda s: s.merge(s.fork("side").fact("side", 1))),
    "close": ("refused", lambda s: s.close()),
    "archive": ("refused", lambda s: s.archive()),
    "use": ("refused", lambda s: s.use(look)),
    "ause": ("refused", lambda s: asyncio.run(s.ause(look))),
    "ask": ("refused", lambda s: s.ask("Really?")),
    "sleep": ("refused", lambda s: s.sleep(0)),
    "wait_for": ("refused", lambda s: s.wait_for("outside", 0)),
    "to": ("refused", lambda s: s.to("local")),
    "apply": ("refused", lambda s: s.files.apply()),
    "turn": ("inbox", lambda s: s.turn("from outside", Idle(), wait=False)),
    "aturn": ("inbox", lambda s: asyncio.run(s.aturn("from outside", Idle(), wait=False))),
    "fork": ("apart", lambda s: s.fork("aside")),
    "detach": ("apart", lambda s: s.detach()),
    "successor": ("apart", lambda s: s.successor()),
}
STOPS = ("pause", "cancel", "require")  # what stops the run, or holds it, is meant to
OF_ROOTS = ("turn", "aturn")  # a branch of an open run takes no turns
DECISIONS = ("grant",)  # a person's, which code of a run may not make for itself


READERS = {"blame", "blob", "graph", "influence", "paths", "read", "text"}  # of the views


def verbs() -> set[str]:
    """The verbs of a session and of its views."""
    owners = [Session, Acting, *[getattr(accessors, name) for name in accessors.__all__]]
    return {
        name
        for owner in owners
        for name, value in vars(owner).items()
        if not name.startswith("_") and inspect.isfunction(value)
    } - READERS


def test_every_verb_of_a_session_is_named_here() -> None:
    assert verbs() == set(VERBS)


def deed_of(
    verb: str, failures: list[PlaitError], value: Callable[[Session], Session]
) -> Callable[[Session], object]:
    def deed(session: Session) -> None:
        outside = value(session)
        inbox, head = len(outside.inbox.events), outside.head
        try:
            after = VERBS[verb][1](outside)
        except PlaitError as error:
            failures.append(error)
        else:
            assert VERBS[verb][0] == "apart" or (
                after is outside and len(outside.inbox.events) == inbox + 1
            )
        assert outside.reload().head == head

    return deed


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_from_outside_never_makes_the_run_fail(verb: str) -> None:
    failures: list[PlaitError] = []
    session = Session("go", store="memory:")
    runs = Steps(deed_of(verb, failures, lambda at: Session.open(at.id, store=at.store)))
    if verb in STOPS:
        with pytest.raises(BaseException, match=r"paused|cancelled|is required first"):
            runs(session)
        assert session.reload().runs[-1].status != "failed"
        return
    done = runs(session)
    assert done.runs[-1].status == "finished" and done.text == "went on"
    # code of a run would wait for its own end, and post the message again when it is resumed
    is_refused = VERBS[verb][0] == "refused" or verb in (*DECISIONS, *OF_ROOTS)
    assert bool(failures) == is_refused
    assert all("Nothing was written" in str(error) for error in failures)
    assert replay(done, Steps()).head == done.head


@pytest.mark.parametrize(
    "verb", [verb for verb, (way, _) in VERBS.items() if way == "inbox" and verb not in STOPS]
)
def test_from_another_thread_too(verb: str) -> None:
    def in_thread(session: Session) -> None:
        work = Thread(
            target=deed_of(verb, [], lambda at: Session.open(at.id, store=at.store)),
            args=(session,),
        )
        work.start()
        work.join()

    assert Steps(in_thread)(Session("go", store="memory:")).text == "went on"


def test_what_went_to_the_inbox_is_heard_before_the_next_effect() -> None:
    def deed(session: Session) -> None:
        outside = Session.open(session.id, store=session.store)
        outside.say("from outside", actor="human:ana").fact("outside", [1]).retract("known").settle(
            "work"
        )
        outside.attach("log", b"bytes", media_type="a/b")

    done = Steps(deed)(Session("go", store="memory:"))
    assert [message.text for message in done.messages] == ["go", "from outside", "went on"]
    assert done.messages[1].actor == "human:ana"
    assert dict(done.facts)["outside"] == [1] and "known" not in done.facts and done.pending == {}
    assert [each.name for each in done.evidence] == ["log"]


class Waits(Workflow):
    def __init__(self) -> None:
        self.agent = Agent("Go on.", model=ScriptedModel(["went on"]))

    def forward(self, session: Session) -> Session:
        session = session.fact("known", 1).todo("work", key="work").wait_for("go")
        return self.agent(session)


def parked(session: Session, made: Callable[[], Workflow] = Waits) -> Session:
    with pytest.raises(Parked) as stop:
        made()(session)
    return stop.value.session


@pytest.mark.parametrize(
    "verb", [verb for verb, (way, _) in VERBS.items() if way == "inbox" and verb not in STOPS]
)
def test_a_run_that_waits_is_open_too(verb: str) -> None:
    session = parked(Session("go", store="memory:"))
    assert VERBS[verb][1](session) is session and session.reload() == session
    session.inbox.signal("go")
    # after the run, the messages that wait are answered
    assert [each.text for each in resume(session, Waits()).messages].count("went on") == 1


def test_a_turn_that_is_over_meanwhile_hides_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client may end between the look at the queue and the look at the client."""

    def has_left_turns(session: Session) -> bool:
        return True

    monkeypatch.setattr("plait.runs.resume._has_left_turns", has_left_turns)
    for is_async in (False, True):
        session = parked(Session("go", store="memory:"))
        session.inbox.signal("go")
        done = asyncio.run(aresume(session, Waits())) if is_async else resume(session, Waits())
        assert done.text == "went on"


def test_a_verb_that_the_word_for_is_another_says_which() -> None:
    session = parked(Session("go", store="memory:"))
    words = {
        "use": r"fork\(\)\.use",
        "merge": "cancel",
        "to": r"fork\(\)\.to",
        "apply": r"fork\(\)\.files\.apply",
        "sleep": "workflow",
    }
    for verb, word in words.items():
        with pytest.raises(RunOpen, match=word):
            VERBS[verb][1](session)
    with pytest.raises(RunOpen, match=r"send\("):
        session.say("I am the agent", role="assistant")


def test_a_stale_value_says_that_a_run_took_the_session_over() -> None:
    before = Session("go", store="memory:")
    session = parked(before)
    with pytest.raises(StaleHead, match="a run is open") as caught:
        before.say("too late")
    assert caught.value.run == open_run_of(session)
    with pytest.raises(StaleHead) as plain:
        old = Session("x", store="memory:")
        old.say("one")
        old.say("two")
    assert plain.value.run is None


def test_once_the_run_is_over_a_verb_appends_again() -> None:
    session = parked(Session("go", store="memory:"))
    during = Session.open(session.id, store=session.store)
    session.inbox.signal("go")
    done = resume(session, Waits())
    assert done.fact("after", 1).facts["after"] == 1
    with pytest.raises(StaleHead):  # it stands where the run was open, and the run is over
        during.fact("late", 1)
    failed = Session("go", store="memory:")
    with pytest.raises(RuntimeError):
        Steps(lambda session: (_ for _ in ()).throw(RuntimeError("broken")))(failed)
    assert failed.reload().fact("after", 1).facts["after"] == 1


# ── branches ─────────────────────────────────────────────────────────────────────────────────


class Side(Workflow):
    def __init__(self, deed: Callable[[Session], object]) -> None:
        self._deed = deed

    def forward(self, session: Session) -> Session:
        session = session.fact("one", 1)
        self._deed(session)
        return session.fact("two", 2)


@pytest.mark.parametrize(
    "verb",
    [verb for verb in VERBS if verb not in (*STOPS, "settle", "retract", "rewind", "unpause")],
)
def test_a_branch_of_an_open_run_is_not_disturbed_either(verb: str) -> None:
    failures: list[PlaitError] = []
    deed = deed_of(verb, failures, lambda at: Session.open(at.id, store=at.store))
    done = Parallel(side=Side(deed), other=Side(lambda session: None))(
        Session("go", store="memory:")
    )
    assert done.facts["two"] == 2 and done.runs[-1].status == "finished"
    is_refused = VERBS[verb][0] == "refused" or verb in (*DECISIONS, *OF_ROOTS)
    assert bool(failures) == is_refused
    (side,) = [
        each
        for each in Session.list(store=done.store, label="side")
        if each.lineage.parent and each.lineage.parent.id == done.id
    ]
    assert side.fact("after", 1).facts["after"] == 1  # its run is over


def test_no_run_starts_on_a_branch_of_an_open_run() -> None:
    def deed(session: Session) -> None:
        with pytest.raises(RunOpen):
            Steps()(Session.open(session.id, store=session.store))

    assert Parallel(side=Side(deed))(Session("go", store="memory:")).facts["two"] == 2


# ── what it costs ────────────────────────────────────────────────────────────────────────────


def test_outside_of_runs_an_append_asks_nothing_more() -> None:
    session = Session("go", store="memory:")
    store, asked = store_of_session(session), list[str]()  # pyright: ignore[reportPrivateUsage]
    for name in ("log", "rows", "read", "heads"):
        known = getattr(store, name)

        def spy(*args: Any, name: str = name, known: Any = known, **kwargs: Any) -> Any:
            asked.append(name)
            return known(*args, **kwargs)

        setattr(store, name, spy)
    try:
        for number in range(20):
            session = session.fact(f"fact {number}", number)
    finally:
        for name in ("log", "rows", "read", "heads"):
            delattr(store, name)
    assert asked == []


# ── a budget that is granted meanwhile ───────────────────────────────────────────────────────


class GrantedMeanwhile(Workflow):
    """Asks three times, and lets a person grant more after the first."""

    def __init__(self, grant: Callable[[Session], object]) -> None:
        self.agent = Agent("Go on.", model=ScriptedModel(["one", "two", "three"]))
        self._grant = grant

    def forward(self, session: Session) -> Session:
        session = self.agent(session)
        self._grant(session)
        return self.agent(self.agent(session))


def test_a_budget_that_is_granted_meanwhile_holds_from_there_on() -> None:
    ready, granted = Event(), Event()
    asked: list[Session] = []

    def person() -> None:
        ready.wait()
        Session.open(asked[0].id, store=asked[0].store).budget.grant(Budget(steps_max=2))
        granted.set()

    def wait(session: Session) -> None:
        asked.append(session)
        ready.set()
        granted.wait()

    Thread(target=person, daemon=True).start()
    session = Session("go", store="memory:", budget=Budget(steps_max=1))
    done = GrantedMeanwhile(wait)(session)
    assert done.text == "three"
    with pytest.raises(BudgetExceeded):  # two were granted, and two were made
        Agent("More.", model=ScriptedModel(["four"]))(done)


def test_code_of_a_run_grants_itself_nothing() -> None:
    def grant(session: Session) -> None:
        Session.open(session.id, store=session.store).budget.grant(Budget(steps_max=10))

    with pytest.raises(MayNotApprove):
        GrantedMeanwhile(grant)(Session("go", store="memory:", budget=Budget(steps_max=1)))
