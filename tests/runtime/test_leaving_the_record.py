"""Programs that work on a session of their own: a replay executes and writes nothing there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plait import Agent, Parked, ScriptedModel, Session, Workflow, open_store, replay, resume, tool
from plait.errors import LeavesRecord, ProgramFailed
from plait.runs.debug import debug

PAID: list[str] = []
ASKED: list[str] = []


@tool
def pay(to: str) -> str:
    """Send money."""
    PAID.append(to)
    return "sent"


def spoken(at: object) -> str:
    ASKED.append("asked")
    return "hello"


def pay_elsewhere(session: Session) -> None:
    Session("ledger", store=open_store(session.store)).use(pay, to="ACME")


def ask_elsewhere(session: Session) -> None:
    Agent("Greet.", model=ScriptedModel(spoken))(Session("hi", store=open_store(session.store)))


def write_elsewhere(session: Session) -> None:
    other = Session("other", store=open_store(session.store))
    other.say("something")
    other.inbox.send("something else")


def hide_it(session: Session) -> None:
    try:
        pay_elsewhere(session)
    except Exception:
        return


class Shop(Workflow):
    """Works on a session of its own, and then waits for an answer."""

    def __init__(self, work: Callable[[Session], None]) -> None:
        self.work = work

    def forward(self, session: Session) -> Session:
        session = session.fact("begun", True)
        self.work(session)
        return session.ask("Shall it be shipped?")


@pytest.mark.parametrize("work", [pay_elsewhere, ask_elsewhere, write_elsewhere, hide_it])
def test_nothing_is_executed_or_written_elsewhere(
    tmp_path: Path, work: Callable[[Session], None]
) -> None:
    PAID.clear()
    ASKED.clear()
    store = open_store(tmp_path / "store")
    with pytest.raises(Parked) as parked:
        Shop(work)(Session("go", store=store))
    session = parked.value.session
    assert isinstance(session, Session)
    before = len(PAID), len(ASKED), store.number
    acts: list[Callable[[], object]] = [
        lambda: replay(session, Shop(work)),
        lambda: debug(session, Shop(work), on_stop=lambda event, point: None),
        lambda: resume(session, Shop(work), accept="nothing"),
    ]
    for act in acts:
        with pytest.raises((LeavesRecord, ProgramFailed)) as refused:
            act()
        assert "session of its own" in str(refused.value)
        assert (len(PAID), len(ASKED), store.number) == before
