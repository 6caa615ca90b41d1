"""Notes and history: what an agent records in, and reads from, its own session."""

from __future__ import annotations

from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, tool
from plait.errors import UnknownKey
from plait.event.kinds import Rewound
from plait.tool import Tool
from plait.tools import NOTES, decide, history, note, settle, todo


def agent(*script: Any) -> Agent:
    return Agent("Work.", model=ScriptedModel(list(script)), tools=list(NOTES))


def places_of(session: Session) -> list[int]:
    """Return the places that the last call says it read."""
    delta: Any = session.effects[-1].delta
    return delta["places"]


def test_notes_stand_in_the_session() -> None:
    session = Session("Go.", store="memory:tools").use(note, text="The test is flaky.")
    assert (
        list(session.facts.findings.values()) == ["The test is flaky."]
        and session.result == f"noted as {next(iter(session.facts.findings))}"
    )
    session = session.use(decide, key="database", value={"name": "sqlite", "wal": True})
    assert session.facts.decisions["database"] == {"name": "sqlite", "wal": True}
    session = session.use(todo, what="Write the docs", kind="question")
    key = session.result.rpartition(" ")[2]
    assert session.pending[key].what == "Write the docs"
    assert not session.use(settle, key=key, outcome="done").pending


def test_the_same_again_is_the_same() -> None:
    session = (
        Session("Go.", store="memory:tools")
        .use(note, text="x")
        .use(note, text="x")
        .use(todo, what="y")
        .use(todo, what="y")
    )
    assert len(session.facts.findings) == 1 and len(session.pending) == 1


def test_a_rewind_takes_them_back_and_lists_nothing_as_not_undone() -> None:
    session = Session("Go.", store="memory:tools")
    rewound = session.use(note, text="x").rewind(session.seq)
    body = rewound.events[-1].body
    assert not rewound.facts.findings and isinstance(body, Rewound) and body.not_undone == ()


def test_an_agent_notes_several_things_in_one_reply() -> None:
    calls = [
        ToolCall("note", text="one"),
        ToolCall("note", text="two"),
        ToolCall("decide", key="k", value=3),
        ToolCall("todo", what="t"),
        ToolCall("settle", key="nothing"),
    ]
    session = agent(calls, "Done.")(Session("Go.", store="memory:tools"))
    assert (
        sorted(map(str, session.facts.findings.values())) == ["one", "two"]
        and session.facts.decisions["k"] == 3
        and len(session.pending) == 1
    )
    failure = next(effect.failure for effect in session.effects if effect.tool == "settle")
    assert failure is not None and failure.kind == UnknownKey.__name__


def test_many_notes_at_once_are_all_there() -> None:
    session = agent([ToolCall("note", text=f"finding {n}") for n in range(40)], "Done.")(
        Session("Go.", store="memory:tools")
    )
    assert len(session.facts.findings) == 40 and all(
        effect.failure is None for effect in session.effects
    )


def test_history_tells_what_happened_and_records_what_was_read() -> None:
    @tool
    def weigh(thing: str) -> str:
        """Weigh."""
        if thing == "air":
            raise ValueError("too light")
        return f"{thing} weighs {'much ' * 2_000}"

    session = (
        Session("Weigh the stone.", store="memory:tools")
        .use(weigh, thing="stone")
        .say("Now the feather.")
        .use(history)
    )
    told = session.result
    assert (
        "Weigh the stone." in told
        and 'called weigh({"thing":"stone"})' in told
        and "it returned: stone weighs much" in told
    )
    assert "characters left out" in told and told.splitlines()[-1].endswith("called history({})")
    places = places_of(session)
    assert [session.events[place - 1].seq for place in places] == places and len(places) >= 5
    assert all(told_line in told for told_line in (f"{places[0]} ", "Now the feather."))


def test_history_is_searched_and_bounded() -> None:
    session = Session("Start.", store="memory:tools")
    for number in range(60):
        session = session.say(f"message {number} " + "x" * 500)
    found = history(session, query="MESSAGE 7 ")
    assert "message 7 " in found.parts[0] and "message 8 " not in found.parts[0]
    bounded = history(session, last=200).parts[0]
    assert (
        len(bounded) < 16_000
        and "earlier entries are not shown" in bounded
        and "message 59 " in bounded
    )
    assert history(session, query="nowhere").parts == ["[nothing with these words from place 0 on]"]
    assert "message 0 " not in history(session, since=50, last=5).parts[0]


def test_nothing_is_given_to_an_agent_that_was_not_handed_it() -> None:
    session = agent_without_tools(ToolCall("note", text="x"))(Session("Go.", store="memory:tools"))
    assert not session.facts.findings


def agent_without_tools(*script: Any) -> Agent:
    return Agent("Work.", model=ScriptedModel([*script, "Done."]))


@pytest.mark.parametrize("each", NOTES, ids=lambda each: each.name)
def test_they_are_pure_and_have_a_time(each: Tool[..., Any]) -> None:
    assert each.effect == "pure" and each.timeout_s and each.takes_session
