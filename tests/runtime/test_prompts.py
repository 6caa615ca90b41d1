"""A prompt is a function of the log: built anew at any place, it is the one that was sent from
there.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from plait import (
    Agent,
    Compactor,
    Parallel,
    ScriptedModel,
    Selector,
    Sequential,
    Session,
    ToolCall,
    View,
    Workflow,
    tool,
)
from plait.errors import BranchFailed, ModelFailed, ToolFailed
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import ModelAsked
from plait.ids import Digest
from plait.model.base import Answered, Fault, Reply, Request, Returned, Said
from plait.runtime.appends import append_at_tip
from plait.runtime.process import THIS_PROCESS
from plait.runtime.prompt import chain
from plait.runtime.prompt.prompt import Prompt
from plait.runtime.prompt.setup import Setup
from plait.runtime.sent import rebuild_prompt
from plait.session import ABSENT
from plait.session.ports import Act, Draft, store_at
from plait.testing import Simulation
from tests.support import QUICK, Spy, turn_text


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"{what} " * 20


@tool(effect="pure", attempts=2)
def shaky(what: str) -> str:
    """Works now and then."""
    if what.endswith("0"):
        raise ValueError("not this one")
    return what


def every_ask(session: Session) -> list[Event]:
    """The asks of every session of its store."""
    store = store_at(session.store)
    return [
        event
        for each in Session.list(store=session.store)
        for event in store.read(each.id, 1, each.seq, kinds={ModelAsked.__name__})
        if event.log == each.id
    ]


def check_all(session: Session) -> int:
    found = every_ask(session)
    for asked in found:
        rebuilt = rebuild_prompt(session, asked)
        assert rebuilt.matches, (
            asked.log,
            asked.seq,
            asked.actor,
            [turn_text(turn) for turn in rebuilt.turns],
        )
        assert not isinstance(rebuilt.turns[0], (Answered, Returned)) and not isinstance(
            rebuilt.turns[-1], Answered
        )
    return len(found)


# ── many histories ───────────────────────────────────────────────────────────────────────────


class Chance(Workflow):
    """A history made by lot: agents with several views, tools, facts, forks, merges, rewinds,
    compactions, late outcomes.
    """

    def __init__(self, seed: int) -> None:
        self._lot = random.Random(seed)
        lot = self._lot
        views: list[Any] = [None, None, None, 3, "facts", "branch", "compacted", View.calls("ann")]
        self.ann = Agent(
            "You are ann.",
            model=self._model(seed),
            tools=[look, shaky],
            retry=QUICK,
            context_max=lot.choice([None, 150]),
        )
        self.ann.compactor = Compactor(keep=lot.randint(1, 3))
        self.bob = Agent(
            "You are bob.",
            model=self._model(seed + 1),
            tools=[look],
            retry=QUICK,
            view=lot.choice(views),
        )
        self.eve = Agent(
            "You are eve.", model=self._model(seed + 2), retry=QUICK, view=lot.choice(views)
        )
        self.short = Compactor(model=self._model(seed + 3), keep=lot.randint(1, 4), retry=QUICK)
        self.rule = Compactor(keep=lot.randint(1, 4))
        self.both = Parallel(left=self.ann, right=Sequential(self.bob, self.rule))
        self.pick = Selector(
            {"ann": self.ann, "bob": self.bob},
            rule=lambda session: "ann" if session.seq % 2 else "bob",
        )

    def _model(self, seed: int) -> ScriptedModel:
        def answer(session: Session) -> Any:
            lot = random.Random(f"{seed}/{session.id}/{session.seq}")
            calls = [
                ToolCall(lot.choice(["look", "shaky", "nowhere"]), what=f"w{lot.randint(0, 9)}")
                for _ in range(lot.randint(1, 3))
            ]
            return lot.choice(
                [calls, f"words {lot.randint(0, 99)}", "a longer answer " * lot.randint(1, 30)]
            )

        return ScriptedModel(answer)

    def forward(self, session: Session) -> Session:
        lot = self._lot
        start = session.seq
        for step in range(lot.randint(4, 9)):
            act = lot.randrange(12)
            if act == 0:
                session = session.say(f"said {step} " * lot.randint(1, 60))
            elif act == 1:
                session = session.fact(f"key{lot.randint(0, 3)}", step).todo(f"do {step}")
            elif act == 2:
                session = _used(session, f"p{step}")
            elif act == 3:
                session = self.both(session)
            elif act == 4 and session.seq > start:
                session = session.rewind(lot.randint(start, session.seq - 1))
            elif act == 5:
                session = self.short(session)
            elif act == 6:
                fork = self.bob(
                    session.fork(f"f{step}", at=lot.randint(start, session.seq)).say("over there")
                )
                session = session.merge(self.rule(fork), resolve=_first)
            elif act == 7:
                session = _late(session, "look")
            elif act == 8:
                session = self.pick(session)()
            else:
                session = lot.choice([self.ann, self.ann, self.bob, self.eve])(session)
        return session


def _used(session: Session, what: str) -> Session:
    try:
        return session.use(look, what=what)
    except ToolFailed as error:
        return error.session


def _first(key: str, sides: Mapping[str, Any]) -> Any:
    return next((value for value in sides.values() if value is not ABSENT), None)


def _late(session: Session, tool: str) -> Session:
    """Say once more what came of some call: as an outcome that comes after a prompt in which it was
    shown otherwise.
    """
    calls = [event.header.call for event in session.lineage.path if event.kind == "ToolRequested"]
    if not calls:
        return session
    body = k.ToolReturned((k.Text("late"),))
    return append_at_tip(
        session, [Draft(body, Act("service:tools", "tool", call=calls[len(calls) // 2]))]
    )[0]


def session_after(simulation: Simulation, program: Chance, *content: str | Session) -> Session:
    """The session at the end of a run.

    A run in which every attempt met a fault has failed, and left a history, too.
    """
    try:
        return simulation.run(program, *content)
    except ModelFailed as error:
        return error.session
    except BranchFailed as error:
        assert isinstance(error.__cause__, ModelFailed)
        return error.session


def rebuilt(simulation: Simulation) -> None:
    session = session_after(simulation, Chance(simulation.seed), "Begin.")
    THIS_PROCESS.prompts.clear()  # as another process has it
    session = session_after(simulation, Chance(simulation.seed + 1), session.say("Go on."))
    assert check_all(session) > 0


@pytest.mark.parametrize("part", range(4))
def test_what_was_sent_can_be_rebuilt_whatever_happened(part: int) -> None:
    assert (
        Simulation.check(
            rebuilt,
            seeds=range(part * 12, part * 12 + 12),
            model_fault_rate=0.2,
            tool_fault_rate=0.2,
        )
        == 12
    )


def test_what_was_sent_can_be_rebuilt_though_no_attempt_was_answered() -> None:
    assert (
        Simulation.check(
            rebuilt, seeds=[434, *range(12)], model_fault_rate=0.7, tool_fault_rate=0.2
        )
        == 13
    )
    # a branch of two fails
    assert Simulation.check(rebuilt, seeds=[434], model_fault_rate=0.2, tool_fault_rate=0.2) == 1


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_in_hundreds_of_histories(part: int) -> None:
    assert (
        Simulation.check(
            rebuilt,
            seeds=range(48 + part * 50, 98 + part * 50),
            model_fault_rate=0.2,
            tool_fault_rate=0.2,
        )
        == 50
    )


# ── single things ────────────────────────────────────────────────────────────────────────────


def test_an_outcome_that_came_late_is_told_after_what_was_shown() -> None:
    spy = Spy(ToolCall("look", what="a"), "One.")
    agent = Agent("x", model=spy, tools=[look], name="ann")
    session = agent(Session("go"))
    asked = session.lineage.path[
        [event.kind for event in session.lineage.path].index("ToolRequested")
    ].header.call
    late, _ = append_at_tip(
        session, [Draft(k.ToolReturned((k.Text("late"),)), Act("service:x", "tool", call=asked))]
    )
    THIS_PROCESS.prompts.clear()
    agent(late)
    assert [turn_text(turn) for turn in spy.requests[2].turns][1:] == [
        "",
        "a " * 20,
        "One.",
        '(look {"what":"a"} returned)\nlate',
    ]
    assert check_all(late) == 4


def test_every_attempt_was_sent_what_the_first_one_was() -> None:
    class Interrupted:
        """Somebody speaks while it is asked."""

        name = "interrupted"

        def ask(self, request: Request, on_delta: Any) -> Reply:
            if (
                not any(
                    isinstance(turn, Said) and turn_text(turn) == "wait!" for turn in request.turns
                )
                and not request.outcomes
            ):
                append_at_tip(
                    Session.open(request.session.id),
                    [Draft(k.MessageSaid("user", (k.Text("wait!"),)), Act("human:u"))],
                )
                raise Fault("Overloaded", "try again", retryable=True)
            return Reply((k.Text("fine"),))

    session = Agent("x", model=Interrupted(), retry=QUICK, name="ann")(Session("go"))
    asked = [event.body for event in session.events if isinstance(event.body, ModelAsked)]
    assert [body.attempt for body in asked] == [1, 2] and asked[0].prompt == asked[1].prompt
    assert check_all(session) == 2
    assert check_all(Agent("x", model=ScriptedModel(["ok"]), name="ann")(session)) == 3


def test_a_prompt_is_not_rendered_anew_at_each_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    links = 0
    link = chain.link_digest

    def counted(before: Digest, turn: bytes) -> Digest:
        nonlocal links
        links += 1
        return link(before, turn)

    monkeypatch.setattr(chain, "link_digest", counted)
    script = [*[ToolCall("look", what=f"{n}") for n in range(60)], "done"]
    Agent("x", model=ScriptedModel(script), tools=[look], steps_max=100, context_max=10**9)(
        Session("go")
    )
    # a turn is linked once, and once more if the last result was not yet written when it was
    # measured
    assert links <= 1 + 2 * 60 + 60


def test_a_session_that_says_nothing_is_asked_to_go_on() -> None:
    spy = Spy("Hm.", "Well.")
    agent = Agent("x", model=spy, name="ann")
    session = agent(agent(Session(title="empty")))
    assert [turn_text(turn) for turn in spy.requests[1].turns] == ["Go on.", "Hm.", "Go on."]
    assert check_all(session) == 2


def test_the_size_is_about_that_of_what_is_sent() -> None:
    session = Session("x" * 4_000)
    prompt = Prompt(Setup("i", ()), "agent:a", None)
    prompt.catch_up(session)
    assert 1_000 <= prompt.tokens <= 1_050
    last = Prompt(Setup("i", (), view=View.last(1)), "agent:a", None)
    last.catch_up(session.say("short"))
    assert last.tokens < 100
