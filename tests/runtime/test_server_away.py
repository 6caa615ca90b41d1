"""A PostgreSQL server that is away for a while: runs wait for it, can be interrupted, and stand in
nobody's way; and forks of a program that has used one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from plait import Session, Workflow, open_store, tool
from plait.errors import StoreUnreachable
from plait.runtime.live import Live
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from plait.store.postgres.store import PostgresStore
from tests.support.processes import free_port
from tests.support.proxy import Proxy, proxied
from tests.support.runs import RAN, assert_replays


@tool(effect="at_most_once")
def note_down(number: int) -> int:
    """Note a number."""
    RAN.append(number)
    return number


class Steps(Workflow):
    """Notes three numbers; all connections are cut before each of them."""

    def __init__(self, proxy: Proxy) -> None:
        self.cut = proxy.cut_all

    def forward(self, session: Session) -> Session:
        for number in range(3):
            self.cut()
            session = session.use(note_down, number=number)
        return session


@pytest.fixture
def proxy(postgres_address: str) -> Iterator[Proxy]:
    """A proxy before a store that is made."""
    migrate(parse_address(postgres_address), source=Live())
    with proxied(postgres_address) as made:
        yield made


def take_away(proxy: Proxy) -> None:
    """End the server, for its clients."""
    proxy.lead_to(f"postgresql://127.0.0.1:{free_port()}/nothing")
    proxy.cut_all()


def test_a_run_goes_on_when_its_connections_break(proxy: Proxy) -> None:
    workflow = Steps(proxy)
    after = workflow(Session("go", store=proxy.address))
    assert after.status == "finished" and RAN == [0, 1, 2]
    assert_replays(after, workflow)


def test_an_interrupt_is_heard_while_an_answer_is_awaited(proxy: Proxy) -> None:
    session = Session("go", store=proxy.address)
    is_over = threading.Event()

    def end_wait() -> None:
        """Let the test fail instead of hang, if the interrupt is not heard."""
        is_over.set()
        proxy.cut_all()

    with proxy.partition():
        interrupts = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        rescue = threading.Timer(25, end_wait)
        for each in (interrupts, rescue):
            each.daemon = True
            each.start()
        with pytest.raises(KeyboardInterrupt):
            session.say("never mind")
        assert not is_over.is_set()
        rescue.cancel()
    assert session.reload().say("hello").messages


def test_an_interrupt_is_heard_while_the_server_is_away(proxy: Proxy) -> None:
    session = Session("go", store=proxy.address)
    take_away(proxy)
    interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        session.say("never mind")


def test_a_store_is_closed_while_a_run_waits_for_its_server(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "3")
    store = open_store(proxy.address)
    take_away(proxy)
    errors: list[BaseException] = []

    def take() -> None:
        try:
            store.lock("a run", "a session")
        except BaseException as error:
            errors.append(error)

    waiting = threading.Thread(target=take)
    waiting.start()
    store.close()  # does not wait for the thread
    assert store.is_closed
    waiting.join()
    assert len(errors) == 1


def test_a_server_that_stays_away_is_told(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "0.3")
    session = Session("go", store=proxy.address)
    take_away(proxy)
    with pytest.raises(StoreUnreachable):
        session.say("lost")


def test_a_forked_child_has_connections_of_its_own(proxy: Proxy) -> None:
    session = Session("go", store=proxy.address)
    store = open_store(proxy.address)
    lock = store.lock("a run", session.short)
    assert isinstance(store, PostgresStore)
    assert (kept := store._locks._line) is not None  # pyright: ignore[reportPrivateUsage]
    line = kept.socket
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if not store.is_locked("a run"):  # the parent's, not the child's
                os._exit(2)
            try:
                os.fstat(line)
                os._exit(3)  # the parent could die, and the server would not see it
            except OSError:
                session.say("from the child")
                code = 0
        finally:
            os._exit(code)
    session_of_parent = session.fork().say("from the parent")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert session.reload().messages[-1].text == "from the child"
    assert session_of_parent.messages[-1].text == "from the parent"
    assert store.is_locked("a run")
    lock.release()
    assert not store.is_locked("a run")
