"""The work of turns and streams, counted: a turn asks the store little more than a plain run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from plait import Agent, Event, ScriptedModel, Session, Workflow, open_store
from plait.event import kinds as k
from plait.runtime.attendants import Watch
from plait.session.appending import append_drafts
from plait.session.inbox import post
from plait.session.ports import Act, Draft
from plait.streaming import hear_also, stream_work


class Chat(Workflow):
    def __init__(self) -> None:
        self.agent = Agent("Repeat.", model=ScriptedModel(lambda at: f"ok {at.messages[-1].text}"))

    def forward(self, session: Session) -> Session:
        return self.agent(session)


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements that SQLite executes, of all connections that are opened from now on."""
    found: list[str] = []

    def note(about: dict[str, str]) -> None:
        found.append(about["sql"])

    def trace(connection: Any) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, note)

    apsw.connection_hooks.append(trace)
    yield found
    apsw.connection_hooks.remove(trace)


def test_a_turn_takes_few_statements_more_than_a_run(tmp_path: Path, statements: list[str]) -> None:
    chat, session = Chat(), Session("hello", store=open_store(tmp_path / "store"))

    def count(act: Callable[[Session], Session]) -> int:
        nonlocal session
        session = act(session)  # caches are filled
        statements.clear()
        session = act(session)
        return len(statements)

    plain = count(lambda session: chat(session.say("again")))
    turn = count(lambda session: session.turn("again", chat))
    # Two events, their rows, and a look at the queue. That the session was not closed, and did not
    # move to another store, is part of the statement that posts; the ends of logs are read once.
    # The start of a run asks once if a submitted run was open in its session.
    assert plain <= 61 and turn - plain <= 9, (plain, turn)


def test_a_pause_that_no_run_heard_is_found_without_a_walk_through_the_log(tmp_path: Path) -> None:
    steps: list[int] = []

    def trace(connection: Any) -> None:
        def note(about: dict[str, Any]) -> None:
            steps.append(about["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)

    def steps_of_status(messages: int) -> int:
        session = Session("hello", store=open_store(tmp_path / f"store-{messages}"))
        drafts = [Draft(k.ScratchSet("k", 1), Act("human:ann"))] * messages
        session = append_drafts(session, drafts)
        post(session.store, session.id, [Draft(k.SessionPaused(), Act("human:ann"))])
        assert session.status == "paused"
        steps.clear()
        assert session.status == "paused"
        return sum(steps)

    apsw.connection_hooks.append(trace)
    try:
        assert steps_of_status(500) < steps_of_status(5) + 100
    finally:
        apsw.connection_hooks.remove(trace)


def test_a_stream_puts_nothing_that_is_not_asked_for() -> None:
    """Each item that is put wakes the reader's thread."""
    session = Session("hello", store=open_store("memory:stream-costs"))
    (event,) = session.events[-1:]
    assert isinstance(event, Event)
    for events, items in ((True, [event, event, session]), (False, [session])):

        def work(put: Callable[[Any], object]) -> Session:
            heard = hear_also(Watch(), put).on_event
            assert heard is not None and heard is put  # nothing between a run and its only listener
            heard(event)
            put(event)
            return session

        assert list(stream_work(work, lambda: (), events)) == items
