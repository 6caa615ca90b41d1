"""Token counts before a call: the estimate of the prompt that the next ask sends."""

from __future__ import annotations

from typing import Any

import pytest

from plait import Agent, Session, Workflow, file, open_store, tool
from plait.errors import NotASession
from plait.runtime.counting import TokenCount
from tests.support import Spy, word_count


@tool(effect="pure")
def lookup(word: str) -> str:
    """Look a word up in the dictionary of the house, which has many words."""
    return word


def test_it_grows_with_all_that_is_sent_and_writes_nothing() -> None:
    session = Session("Hello?")
    plain = Agent("Answer.", name="one").count(session)
    assert plain == TokenCount(plain.tokens, plain.setup, 0, "estimate")
    assert 0 < plain.setup < plain.tokens
    longer = Agent("Answer. " * 100, name="one").count(session)
    assert longer.setup - plain.setup > 150 and longer.tokens - plain.tokens > 150
    tools = Agent("Answer.", name="one", tools=[lookup, word_count]).count(session)
    assert tools.setup > plain.setup + 30
    said = Agent("Answer.", name="one").count(session.say("word " * 400))
    assert said.setup == plain.setup and said.tokens - plain.tokens >= 500
    store = open_store()
    before = [log.tip for _, log in store.logs()]
    Agent("Answer.", tools=[lookup]).count(session)
    assert [log.tip for _, log in store.logs()] == before


def test_it_is_the_estimate_by_which_contexts_are_compacted() -> None:
    """A context that is as long as it may be is not compacted, one token less and it is."""
    session = Session("First. " * 200)
    for n in range(12):
        session = session.say(f"Message {n}. " * 20)
    agent = Agent("Answer.", name="one", model=Spy("Yes.", "Yes."))
    most = agent.count(session).tokens
    for limit, is_compacted in ((most, False), (most - 1, True)):
        kept = Agent("Answer.", name="one", model=Spy(*["Yes."] * 3), context_max=limit)
        after = kept(session.fork("try"))
        assert bool(after.events.where("ContextCompacted")) == is_compacted


class Asks(Workflow):
    def __init__(self, model: Any) -> None:
        self.one = Agent("Answer.", model=model)
        self.counts: list[int] = []

    def forward(self, session: Session) -> Session:
        session = self.one(session)
        self.counts.append(self.one.count(session).tokens)
        return session


def test_inside_a_run_the_agent_knows_its_own_words() -> None:
    spy = Spy("A word of its own.")
    workflow = Asks(spy)
    workflow(Session("Hello?"))
    assert workflow.counts[0] > 0


def test_files_are_said_not_to_be_counted() -> None:
    session = Session("Read.", file(b"x" * 100_000, "a.txt"))
    found = Agent("Answer.").count(session)
    assert found.files == 1 and found.tokens < 1000


def test_only_sessions_are_counted() -> None:
    with pytest.raises(NotASession):
        Agent("Answer.").count("Hello?")  # type: ignore[arg-type]
