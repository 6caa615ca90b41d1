"""A holder of a run on a PostgreSQL store tries to write after it lost the run, in every way that a
program has: nothing is written, nothing is paid.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from plait import Session, Workflow, open_store, tool
from plait.copying.copy import copy_sessions
from plait.errors import PlaitError, RunLost
from plait.event import seal_all
from plait.event.kinds import RunResumed
from plait.ids import LogId
from plait.journal.stops import Halted
from plait.runtime.live import Live
from plait.store.postgres.store import PostgresStore
from plait.testing.writing import wait_until_settled
from tests.faults.postgres_aftermath import Told, judge, made_store

Attack = Callable[[Session, Session, Session], object]

_paid: list[str] = []


@tool(effect="idempotent")
def pay(text: str) -> str:
    _paid.append(text)
    return text


def _in_thread(act: Callable[[], object]) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def _in_forked_child(act: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        code = 3
        try:
            act()
            code = 0
        except (PlaitError, Halted):
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1), "the child failed in another way"
    if code == 1:
        raise RunLost("a run", "a session", "another")


def _alias(session: Session) -> Session:
    """The same session by another address of its store."""
    return Session.open(session.id, store=_alias_of(session.store))


def _alias_of(address: str) -> str:
    return address.replace("@127.0.0.1:", "@localhost:")


ATTACKS: dict[str, Attack] = {
    "the session": lambda run, branch, other: run.say("late"),
    "a call": lambda run, branch, other: run.use(pay, text="late"),
    "a branch": lambda run, branch, other: branch.use(pay, text="late"),
    "a branch of the branch": lambda run, branch, other: branch.fork().use(pay, text="late"),
    "a branch forked afterwards": lambda run, branch, other: run.fork().use(pay, text="late"),
    "a merge": lambda run, branch, other: run.merge(branch),
    "a successor": lambda run, branch, other: run.successor("go on"),
    "a rewound one": lambda run, branch, other: run.rewind(2).say("late"),
    "a new session": lambda run, branch, other: Session("new", store=run.store),
    "another session": lambda run, branch, other: other.say("late"),
    "a call of another": lambda run, branch, other: other.use(pay, text="late"),
    "the inbox": lambda run, branch, other: Session.open(run.id, store=run.store).say("late"),
    "a thread": lambda run, branch, other: _in_thread(lambda: run.fork().use(pay, text="late")),
    "a child": lambda run, branch, other: _in_forked_child(lambda: branch.use(pay, text="late")),
    "another address": lambda run, branch, other: _alias(run).fork().say("late"),
    "another store": lambda run, branch, other: Session("new", store="memory:late").say("late"),
    "a copy": lambda run, branch, other: copy_sessions(
        open_store(run.store), open_store("memory:late"), [run.id]
    ),
}


def _take_over(address: str, log: LogId) -> int:
    """Take the run as another machine would; return the number of that."""
    taker = PostgresStore(address, source=Live())
    now = taker.log(log)
    body = RunResumed("another machine", now.epoch + 1)
    events = seal_all(
        [body],
        log=log,
        seq=now.tip + 1,
        parents=(now.head,),
        source=Live(),
        actor="service:taker",
    )
    taker.append(log, events, after=now.head)
    wait_until_settled(taker)
    number = taker.number
    taker.close()
    return number


BY_VALUES = list(ATTACKS)[:8] + ["a thread", "a child"]
"""Those by values of the run: they are refused after the run, too, when other code may write."""


class Losing(Workflow):
    """Makes a step, loses its run, and does something else: at once, or when it has ended."""

    def __init__(self, other: Session, attack: Attack, is_late: bool) -> None:
        self._other, self._attack, self._is_late = other, attack, is_late
        self.taken, self.acts = 0, list[Callable[[], object]]()
        self.refused: BaseException | None = None

    def forward(self, session: Session) -> Session:
        branch = session.fork()
        session = session.use(pay, text="in time")
        self.taken = _take_over(session.store, session.id)
        self.acts.append(lambda: self._attack(session, branch, self._other))
        if not self._is_late:
            self.act()
        return session

    def act(self) -> None:
        try:
            self.acts[0]()
        except (PlaitError, Halted) as error:
            self.refused = error


@pytest.mark.parametrize("is_late", [False, True])
def test_a_holder_that_lost_its_run_writes_nothing_in_any_way(
    postgres_address: str, is_late: bool
) -> None:
    store = made_store(postgres_address)
    for name in BY_VALUES if is_late else ATTACKS:
        _paid.clear()
        losing = Losing(Session("another", store=store), ATTACKS[name], is_late)
        with pytest.raises(RunLost):
            losing(Session("go", store=store))
        if is_late:
            losing.act()
        assert losing.refused is not None, f"{name}: it went through"
        wait_until_settled(store)
        assert [event.kind for _, event in store.feed(losing.taken)] == [], name
        assert _paid == ["in time"], name
    judge(store, Told())


def test_an_address_of_the_same_store_is_fenced_in_the_statement(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is taken after the writer has looked, and before the server has the statement."""
    store = made_store(postgres_address)
    alias: Any = open_store(_alias_of(postgres_address))
    write, taken = alias._write, list[int]()

    class Writing(Workflow):
        def forward(self, session: Session) -> Session:
            session = session.use(pay, text="in time")

            def take_and_write(*given: Any) -> object:
                if not taken:
                    taken.append(_take_over(postgres_address, session.id))
                return write(*given)

            monkeypatch.setattr(alias, "_write", take_and_write)
            Session("new", store=alias)
            return session

    with pytest.raises(RunLost):
        Writing()(Session("go", store=store))
    wait_until_settled(store)
    assert taken and [event.kind for _, event in store.feed(taken[0])] == []
    alias.close()
