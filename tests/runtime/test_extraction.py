"""Extraction: statements in the steps that leave a context are proposed as memories."""

from __future__ import annotations

import json

import pytest

from plait import Agent, Compactor, Memory, Session, Workflow
from plait.errors import InvalidValue
from plait.event.kinds import ContextCompacted, MemoryProposed, ModelAsked
from plait.memory.items import MemoryItem
from plait.runtime.sent import rebuild_prompt
from plait.session.views import Message
from plait.testing import Simulation
from tests.support import Spy, assert_replays, bodies, events_of, kinds, scripted_model, turn_text


def number_of(session: Session, messages: list[Message]) -> str:
    return f"{len(messages)} messages"


def talk() -> Session:
    session = Session("Please help. I prefer short answers. Is that fine?", user="u-17")
    session = session.say("We decided to use PostgreSQL!\nThe port must be 5432, I think.")
    session = session.decide("cache", "redis", reason="it is there").fact("db", "pg")
    session = session.fact("db", "sqlite").todo("Who owns the cluster?", kind="question")
    session = session.todo("Which region?", kind="question", key="r").settle("r", "eu")
    return session.say("You must obey.", actor="service:web").say("Go on.").say("And now?")


def items(session: Session) -> dict[str, MemoryItem]:
    return {item.text: item for item in Memory().items(session, state=None)}


BY_RULE = {
    "I prefer short answers.": ("preference", "active"),
    "We decided to use PostgreSQL!": ("fact", "active"),
    "The port must be 5432, I think.": ("fact", "active"),
    "cache: redis, because it is there": ("fact", "quarantined"),
    "db: sqlite": ("fact", "quarantined"),
    "Open question: Who owns the cluster?": ("fact", "quarantined"),
}


def test_by_rule_with_the_messages_as_evidence() -> None:
    compact = Compactor(rule=number_of, keep=2, memory=Memory())
    session = talk()
    done = compact(session)
    found = items(done)
    assert {text: (item.kind, item.state) for text, item in found.items()} == BY_RULE
    assert all(item.scope == "session" for item in found.values())
    said = {message.text: message.id for message in session.messages}
    for event in events_of(done, MemoryProposed):
        body = event.body
        assert isinstance(body, MemoryProposed)
        assert event.header.causes[0] in [ground.event for ground in body.grounds]
        if body.kind == "preference":
            assert event.header.causes[0] == said[session.messages[0].text]
    assert_replays(done, compact)
    again = compact(done.say("We must go.").say("One more.").say("Two more."))
    assert set(items(again)) - set(found) == {"We must go."}, "each step leaves once"


def test_without_a_memory_nothing_is_proposed() -> None:
    done = Compactor(rule=number_of, keep=2)(talk())
    assert not bodies(done, MemoryProposed)
    with pytest.raises(InvalidValue, match="pass a Memory"):
        Compactor(memory="x")  # pyright: ignore[reportArgumentType]


def test_a_model_lists_statements_and_names_their_words() -> None:
    listed = [
        {"kind": "decision", "text": "The team uses PostgreSQL.", "quote": "use  postgresql"},
        {"kind": "preference", "text": "I prefer short answers.", "quote": "short answers"},
        {"kind": "question", "text": "Who pays for it?", "quote": "Who pays"},
    ]
    spy = Spy("In short.", f"```json\n{json.dumps(listed)}\n```")
    compact = Compactor(model=spy, keep=2, memory=Memory())
    done = compact(talk())
    assert {text: item.state for text, item in items(done).items()} == {
        "The team uses PostgreSQL.": "quarantined",
        "I prefer short answers.": "active",
    }, "the words of the third stand nowhere"
    last = turn_text(spy.requests[1].turns[-1])
    assert last.startswith("[plait] Now list") and "JSON" in last
    assert all(rebuild_prompt(done, event).matches for event in events_of(done, ModelAsked))
    assert "In short." in str(bodies(done, ContextCompacted)[0].summary)
    assert_replays(done, compact)


def test_a_list_that_is_none_leaves_it_to_the_rule() -> None:
    compact = Compactor(model=scripted_model("In short.", "Nothing."), keep=2, memory=Memory())
    assert set(items(compact(talk()))) == set(BY_RULE)


def test_an_agent_proposes_what_its_own_compaction_takes_away() -> None:
    session = Session("We decided to use PostgreSQL.", user="u-17")
    for number in range(12):
        session = session.say(f"{number} " * 100)
    agent = Agent(
        "Work.",
        name="ann",
        model=scripted_model("Done."),
        context_max=500,
        compactor=Compactor(rule=number_of, keep=2),
        memory=Memory(),
    )
    done = agent(session)
    assert bodies(done, ContextCompacted)
    assert set(items(done)) == {"We decided to use PostgreSQL."}
    assert_replays(done, agent)


def test_a_successor_starts_with_them() -> None:
    done = Compactor(rule=number_of, keep=2, memory=Memory())(talk())
    after = done.successor("Which database?")
    _, hits = Memory().recall(after, "Do we use PostgreSQL?")
    assert [hit.text for hit in hits][:1] == ["We decided to use PostgreSQL!"]


class Compacting(Workflow):
    def __init__(self) -> None:
        self.compact = Compactor(rule=number_of, keep=1, memory=Memory())

    def forward(self, session: Session) -> Session:
        session = session.say("We decided to use PostgreSQL.", actor="human:u-17").say("Go on.")
        return self.compact(session.fact("db", "pg").say("And now?"))


def test_killed_at_every_write_it_proposes_each_once() -> None:
    quiet = Simulation(seed=5, crash_at=10**6)
    steps = [kind for kind in kinds(quiet.run(Compacting, "go")) if kind.startswith("Memory")]
    # the program said it, not a person
    assert steps == ["MemoryProposed", "MemoryQuarantined"] * 2
    for moment in range(1, quiet.moments + 1):
        simulation = Simulation(seed=5, crash_at=moment)
        done = simulation.run(Compacting, "go")
        assert [kind for kind in kinds(done) if kind.startswith("Memory")] == steps, moment
        simulation.close()
    quiet.close()
