"""Memory in runs: an agent recalls once in a call, a run decides when it ends, and a run that is
killed or replayed searches and remembers nothing twice.
"""

from __future__ import annotations

import asyncio
from threading import Event as Flag
from typing import Any

import pytest

from plait import (
    Agent,
    Memory,
    Parallel,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    open_store,
    replay,
    resume,
    tool,
    whatif,
)
from plait.errors import InvalidValue
from plait.event import kinds as k
from plait.event.kinds import MemoryCommitted, MemoryProposed, MemoryRecalled, MemoryUsed
from plait.runtime.recalls import QUERY_MAX
from plait.runtime.sent import rebuild_prompt
from plait.session import verify
from plait.session.value import walk_path
from plait.testing import Simulation
from tests.support import (
    STAGING,
    CountedIndex,
    PromptModel,
    Spy,
    assert_replays,
    bodies,
    events_of,
    kinds,
    remembered,
    scripted_model,
    speaker,
    turn_text,
)

ASK = "May I write to the staging database?"


@tool(effect="pure")
def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


def asked(text: str = ASK) -> Session:
    return Session(text, user="u-17", project="shop")


def ann(*script: Any, memory: Any = None, **more: Any) -> Agent:
    model = scripted_model(*script) if script else scripted_model("No.")
    return Agent("Answer.", name="ann", model=model, memory=memory or Memory(), **more)


# ── recalling ────────────────────────────────────────────────────────────────────────────────


def test_an_agent_recalls_once_before_its_first_ask_in_a_call() -> None:
    id, spy = remembered(), Spy(ToolCall("look", what="db"), "No.", "No again.")
    agent = Agent("Answer.", name="ann", model=spy, memory=Memory(), tools=[look], purpose="plan")
    done = agent(asked())
    (recall,) = events_of(done, MemoryRecalled)
    asks = events_of(done, k.ModelAsked)
    assert recall.seq == asks[0].seq - 1 and recall.actor == "agent:ann"
    body = recall.body
    assert isinstance(body, MemoryRecalled)
    assert (body.query, body.workflow, body.purpose) == (ASK, "ann", "plan")
    assert [hit.memory for hit in body.hits] == [id] == list(recall.header.causes)
    assert recall.id in asks[0].header.causes
    first, second = [[turn_text(turn) for turn in each.turns] for each in spy.requests]
    assert first[0] == ASK and STAGING in first[1] and first[1].startswith("[memory] ")
    assert second[:2] == first, "what was shown stays as it was"
    for event in asks:
        assert rebuild_prompt(done, event).matches
    assert_replays(done, agent)
    again = agent(done.say("And the staging database of the shop?"))
    assert [each.query for each in bodies(again, MemoryRecalled)][1:] == [
        "And the staging database of the shop?"
    ]


def test_an_agent_asks_about_words_of_others_and_not_too_many() -> None:
    long = f"{'begin ' * 400}{'end ' * 400}"
    (body,) = bodies(ann()(asked(long)), MemoryRecalled)
    assert len(body.query) <= QUERY_MAX + 1
    assert body.query.startswith("begin ") and body.query.endswith("end")
    assert not bodies(ann()(Session(user="u-17")), MemoryRecalled), "no words: no recall"


def test_a_memory_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidValue, match="pass a Memory"):
        Agent("x", memory="notes")  # pyright: ignore[reportArgumentType]


def test_a_failed_search_is_on_record_and_the_agent_goes_on() -> None:
    remembered()
    index = CountedIndex()
    index.before = _raise_lost
    spy = Spy("I cannot tell.")
    agent = Agent("Answer.", name="ann", model=spy, memory=Memory(index=index))
    done = agent(asked())
    (failed,) = bodies(done, k.RecallFailed)
    assert failed.index == "counted" and failed.failure.kind == "IndexFailed"
    shown = turn_text(spy.requests[0].turns[-1])
    assert shown.startswith("[memory] memory could not be searched: IndexFailed: the index counted")
    assert "ConnectionError: the index is gone" in shown
    assert done.text == "I cannot tell."
    assert_replays(done, agent)
    assert index.searches == 1


def _raise_lost() -> None:
    raise ConnectionError("the index is gone")


def test_a_replay_makes_no_search() -> None:
    remembered()
    index = CountedIndex()
    agent = ann(memory=Memory(index=index))
    done = agent(asked())
    assert index.searches == 1
    index.before = _raise_lost
    assert_replays(done, agent)
    assert index.searches == 1


def test_a_resumed_run_takes_the_recorded_recall_without_its_index() -> None:
    remembered()
    index = CountedIndex()
    agent = ann(ValueError("the model is gone"), memory=Memory(index=index))
    session = asked()
    with pytest.raises(Exception, match="the model is gone"):
        agent(session)
    index.before = _raise_lost
    done = resume(session, ann("No.", memory=Memory(index=index)))
    assert done.text == "No." and index.searches == 1
    assert len(bodies(done, MemoryRecalled)) == 1 and not bodies(done, k.RecallFailed)


def test_an_event_loop_goes_on_while_an_index_is_searched() -> None:
    remembered()
    index = CountedIndex()
    agent = ann(memory=Memory(index=index))

    async def both() -> Session:
        began, go_on = _stop_at_search(index)
        call = asyncio.create_task(agent.acall(asked()))
        await began.wait()
        go_on.set()
        return await call

    done = asyncio.run(both())
    assert len(bodies(done, MemoryRecalled)[0].hits) == 1
    assert_replays(done, agent)


def _stop_at_search(index: CountedIndex) -> tuple[asyncio.Event, Flag]:
    """Let the next search wait for a flag; return an event of this loop that tells of the search,
    and the flag.
    """
    loop, began, go_on = asyncio.get_running_loop(), asyncio.Event(), Flag()

    def stop() -> None:
        loop.call_soon_threadsafe(began.set)
        assert go_on.wait(60), "the loop is blocked"

    index.before = stop
    return began, go_on


def test_a_cancelled_call_does_not_wait_for_an_index() -> None:
    index, session = CountedIndex(), asked()

    async def cancel() -> None:
        began, go_on = _stop_at_search(index)
        call = asyncio.create_task(ann(memory=Memory(index=index)).acall(session))
        await began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go_on.set()

    asyncio.run(cancel())
    assert kinds(session.reload())[-1] == "RunCancelled"


def test_branches_recall_each_for_itself() -> None:
    id = remembered()
    workflow = Parallel(
        one=Agent("One.", model=scripted_model(f"No [m:{id[:8]}]."), memory=Memory()),
        two=Agent("Two.", model=scripted_model("Yes.")),
    )
    done = workflow(asked())
    (used,) = [event for _, event in walk_path(done, {"MemoryUsed"})]
    assert used.log != done.id and used.header.causes[1:] == (id,)
    assert_replays(done, workflow)


# ── the end of a run ─────────────────────────────────────────────────────────────────────────


class Learn(Workflow):
    """Remembers for the project, at the end of a run."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def forward(self, session: Session) -> Session:
        session = session.use(look, what="port 5432")
        passed = session.checks.record("seen", passed=True)
        text = "The database listens on port 5432."
        session = Memory().remember(passed, text, scope="project", evidence=passed)
        if self.fails:
            raise ValueError("no more")
        return session.say("learned")


def test_a_run_decides_about_its_proposals_when_it_ends() -> None:
    done = Learn()(asked("go"))
    (proposed,), (committed,) = events_of(done, MemoryProposed), events_of(done, MemoryCommitted)
    assert committed.header.causes == (proposed.id,)
    assert [event.kind for event in done.events][-2:] == ["MemoryCommitted", "RunFinished"]
    assert not list(verify(open_store(), state=True))
    (item,) = Memory().items(asked())
    assert item.state == "active"
    Memory().forget(item, session=asked())
    assert_replays(done, Learn())


def test_a_failed_run_decides_nothing_and_a_resumed_one_once() -> None:
    session = asked("go")
    with pytest.raises(ValueError, match="no more"):
        Learn(fails=True)(session)
    assert not bodies(session.reload(), MemoryCommitted)
    assert Memory().items(session, state=None)[0].state == "proposed"
    done = resume(session, Learn())
    assert len(bodies(done, MemoryCommitted)) == 1
    assert_replays(done, Learn())


def test_a_run_without_proposals_asks_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> list[object]:
        raise AssertionError("the gate was asked")

    monkeypatch.setattr("plait.runtime.end.decisions_at_end", refuse)
    assert speaker("hi")(asked()).text == "hi"
    with pytest.raises(AssertionError, match="was asked"):
        Learn()(asked("go"))


# ── dying ────────────────────────────────────────────────────────────────────────────────────


class Story(Workflow):
    """Recalls, remembers as a program and by a tool, cites, and proposes for its user."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.ann = Agent(
            "Work.",
            name="ann",
            model=PromptModel(_next_act),
            memory=memory,
            tools=[look, *memory.tools],
        )

    def forward(self, session: Session) -> Session:
        session = session.use(look, what="the staging database")
        session = self.memory.remember(session, "saw the staging database", evidence=session)
        session = session.say("Is the staging database read-only?")
        session = self.ann(session)
        session, hits = self.memory.recall(session, "staging database")
        return session.fact("found", len(hits))


def _next_act(prompt: str) -> str | ToolCall:
    if "port 5432" not in prompt:
        return ToolCall("look", what="port 5432")
    if "proposed as" not in prompt:
        return ToolCall("remember", text="saw port 5432", scope="user")
    if "remembered as" not in prompt:
        return ToolCall("remember", text="saw port 5432")
    name = prompt.partition("[m:")[2][9:].partition("[m:")[2][:8]
    return f"So says [m:{name}]."


def ending(session: Session) -> tuple[object, ...]:
    items = sorted(
        (item.text, item.scope, item.state, item.supports)
        for item in Memory().items(session, state=None)
    )
    steps = [event.kind for event in session.events if event.kind in _STEPS]
    used = [len(event.header.causes) for event in events_of(session, MemoryUsed)]
    return items, steps, used, session.text[:8], dict(session.facts.items())


_STEPS = {
    kind.__name__
    for kind in (
        k.ModelReplied,
        MemoryRecalled,
        MemoryUsed,
        MemoryProposed,
        MemoryCommitted,
        k.MemoryQuarantined,
        k.MemorySupported,
        k.RunFinished,
    )
}


def test_killed_at_every_write_it_remembers_as_if_never_killed() -> None:
    def story(simulation: Simulation, index: CountedIndex) -> Session:
        memory = Memory(index=index)
        session = simulation.session("go")
        done = simulation.run(lambda: Story(memory), session)
        assert_replays(done, Story(memory))
        assert not list(verify(open_store(done.store), state=True))
        return done

    quiet, index = Simulation(seed=3, crash_at=10**6), CountedIndex()
    expected, searches = ending(story(quiet, index)), index.searches
    assert expected[2] == [2], "a reply cites one memory"
    assert quiet.moments > 20
    for moment in range(1, quiet.moments + 1):
        index = CountedIndex()
        simulation = Simulation(seed=3, crash_at=moment)
        found = story(simulation, index)
        assert ending(found) == expected, f"died at {moment}"
        assert index.searches <= searches + 1
        assert simulation.crashes == 1
        simulation.close()
    quiet.close()


# ── what-ifs ─────────────────────────────────────────────────────────────────────────────────


def test_a_what_if_inherits_the_recall_before_it() -> None:
    remembered()
    index = CountedIndex()
    agent = ann(memory=Memory(index=index))
    done = agent(asked())
    place = events_of(done, MemoryRecalled)[0].seq
    branch = whatif(done, agent, at=place, model=ScriptedModel(["Perhaps."]))
    assert branch.text == "Perhaps." and index.searches == 1
    assert rebuild_prompt(branch).matches
    assert STAGING in "".join(map(turn_text, rebuild_prompt(branch).turns))


def test_a_what_if_replaces_a_recall() -> None:
    id, other = remembered(), remembered("Staging is in Frankfurt.")
    index = CountedIndex()
    model = PromptModel(lambda prompt: "no" if "read-only" in prompt else "yes")
    agent = Agent("Answer.", name="ann", model=model, memory=Memory(index=index))
    done = agent(asked("What of staging?"))
    (recall,) = events_of(done, MemoryRecalled)
    assert done.text == "no" and len(recall.header.causes) == 2
    branch = whatif(done, agent, replace={recall.seq: [other[:8]]})
    assert branch.text == "yes" and index.searches == 1
    (kept,) = events_of(branch.at(branch.seq), MemoryRecalled)
    body = kept.body
    assert isinstance(body, MemoryRecalled)
    assert [hit.memory for hit in body.hits] == [other]
    assert [each.memory for each in body.left_out][-1:] == [id]
    assert kept.header.causes == (other, recall.id)
    text = turn_text(rebuild_prompt(branch).turns[-1])
    assert "Frankfurt" in text and "read-only" not in text and text.startswith("[memory] ")
    assert rebuild_prompt(branch).matches
    assert replay(branch, agent).head == branch.head
    none = whatif(done, agent, replace={recall.seq: []})
    assert [turn_text(turn) for turn in rebuild_prompt(none).turns] == ["What of staging?"]
    for wrong in ("all", ["ffff0000"], [7]):
        with pytest.raises(InvalidValue, match="hits to keep"):
            whatif(done, agent, replace={recall.seq: wrong})
