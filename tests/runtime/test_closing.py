"""Closing a session and taking a turn in it exclude each other, in either order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, open_store, resume
from plait.errors import NotSettled, StaleHead, WrongStatus
from plait.event import kinds as k
from plait.session import verify
from plait.session.inbox import inbox_events, post
from plait.session.ports import Act, Draft, store_at
from tests.support import said_texts


@pytest.fixture(params=["memory", "full", "async"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    if request.param == "memory":
        return Session("hello", store=open_store(f"memory:{tmp_path.name}"))
    return Session("hello", store=open_store(tmp_path / "store"), durability=request.param)


def echo() -> Agent:
    return Agent("Repeat.", model=ScriptedModel(lambda at: f"ok {at.messages[-1].text}"))


def post_turn(session: Session, text: str) -> None:
    """Post the message of a client that is gone at once."""
    body = k.TurnPosted((k.Text(text),), "nobody has this lock", log=session.id)
    post(session.store, session.id, [Draft(body, Act("human:ann"))])


def act_before_commit(session: Session, act: Callable[[], object]) -> None:
    """Let `act` come right before the next act over logs is committed."""
    store: Any = store_at(session.store)
    append_all = store.append_all

    def late(*args: Any, **more: Any) -> Any:
        store.append_all = append_all
        act()
        return append_all(*args, **more)

    store.append_all = late


def test_a_message_that_comes_while_a_session_is_closed_is_answered(session: Session) -> None:
    act_before_commit(session, lambda: post_turn(session, "late"))
    with pytest.raises(NotSettled, match="a message without an answer in its queue, 'late'"):
        session.close()
    after = resume(session.reload(), echo())
    assert said_texts(after)[-2:] == ["late", "ok late"]
    assert after.close().status == "closed"
    assert list(verify(store_at(session.store), state=True)) == []


def test_a_message_that_comes_after_the_close_is_refused_and_not_written(session: Session) -> None:
    act_before_commit(session, session.close)
    with pytest.raises(WrongStatus, match="closed"):
        session.turn("late", echo(), key="r-1")
    assert session.reload().status == "closed"
    assert inbox_events(store_at(session.store), session.id) == []
    with pytest.raises(WrongStatus):
        session.turn("late", echo(), key="r-1")


def test_turns_and_closes_of_other_sessions_are_no_obstacle(session: Session) -> None:
    other = Session("another", store=store_at(session.store))
    act_before_commit(session, lambda: post_turn(other, "now"))
    assert session.close(reason="done").status == "closed"
    act_before_commit(session, lambda: Session("x", store=store_at(session.store)).close())
    assert said_texts(other.reload().turn("and now", echo()))[-1] == "ok and now"


def test_a_close_comes_after_exactly_its_value(session: Session) -> None:
    before = session
    session.say("meanwhile")
    with pytest.raises(StaleHead):
        before.close()
    act_before_commit(session, lambda: session.reload().say("again"))
    with pytest.raises(StaleHead):
        session.reload().close()
    assert session.reload().close().status == "closed"
