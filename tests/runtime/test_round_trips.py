"""Verbs over a wire: their round trips to a PostgreSQL server, counted, do not grow with sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from plait import Agent, ScriptedModel, Session, Workflow, open_store, resume, tool
from plait.event.kinds import CancelRequested
from plait.ids import inbox_of
from plait.journal import brought_heads
from plait.journal.stops import Cancelled
from plait.journal.writer import direct_writer
from plait.runtime.live import Live
from plait.session.ports import Act, Draft
from plait.session.value import core_of
from plait.store import Store
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from tests.support.proxy import counted
from tests.support.runs import RAN
from tests.support.wire import WireCounts


@tool(effect="at_most_once")
def count_up(number: int) -> int:
    """Count up."""
    RAN.append(number)
    return number


class Steps(Workflow):
    """Makes so many steps, and looks at each of them."""

    def __init__(self, before: Callable[[Session, int], object] = lambda session, step: None):
        self.before = before

    def forward(self, session: Session, steps: int = 3, fails: bool = False) -> Session:
        for number in range(steps):
            self.before(session, number)
            session = session.use(count_up, number=number)
        if fails:
            raise KeyboardInterrupt
        return session


@pytest.fixture
def wire(postgres_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[WireCounts]:
    """The counts of a server on which a store is made, and its `address`."""
    monkeypatch.setattr(brought_heads, "FRESH_S", 3600)  # a busy machine shall not change counts
    migrate(parse_address(postgres_address), source=Live())
    with counted(postgres_address) as counts:
        open_store(counts.address)
        yield counts
        open_store(counts.address).close()


def opened_anew(wire: WireCounts) -> Store:
    """The store as another process finds it, with nothing in memory."""
    open_store(wire.address).close()
    return open_store(wire.address)


_BY_BELLS = "pg_notify", "server_version_num"


def trips(wire: WireCounts, act: Callable[[], object]) -> int:
    """The statements of an act. Its round trips are at most as many, and those that prepare
    statements.

    Bells are left out: a thread of their own sends them, some time later, on a connection of its
    own.
    """
    wire.reset()
    act()
    assert wire.round_trips <= 2 * wire.statements
    return len([text for text in wire.texts if not any(part in text for part in _BY_BELLS)])


def read_messages(session: Session) -> int:
    return len(session.messages)


def fork_now(session: Session) -> Session:
    return session.reload().fork()


def test_a_step_is_two_round_trips(wire: WireCounts) -> None:
    found: list[int] = []
    workflow = Steps(lambda session, step: found.append(wire.round_trips))
    workflow(Session("warm up", store=wire.address))
    found.clear()
    wire.reset()
    workflow(Session("go", store=wire.address), 6)
    assert [after - before for before, after in zip(found, found[1:], strict=False)] == [2] * 5


@pytest.mark.parametrize("is_own", [True, False])
def test_a_post_of_this_process_is_heard_before_the_next_effect(
    wire: WireCounts, is_own: bool
) -> None:
    """The post of another process is, at the latest, one effect later."""

    def cancel(session: Session, step: int) -> None:
        if step == 2:
            token = direct_writer().last_post
            Session.open(session.id, store=wire.address).inbox.cancel("enough")
            if not is_own:
                direct_writer().last_post = token

    with pytest.raises(Cancelled):
        Steps(cancel)(Session("go", store=wire.address), 9)
    assert RAN == ([0, 1] if is_own else [0, 1, 2])


def test_an_old_answer_is_not_used(wire: WireCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brought_heads, "FRESH_S", -1)

    def cancel(session: Session, step: int) -> None:
        if step == 2:
            token = direct_writer().last_post
            Session.open(session.id, store=wire.address).inbox.cancel("enough")
            direct_writer().last_post = token

    with pytest.raises(Cancelled):
        Steps(cancel)(Session("go", store=wire.address), 9)
    assert RAN == [0, 1]


def test_verbs_cost_as_much_with_a_long_log(wire: WireCounts) -> None:
    costs: list[dict[str, int]] = []
    for size in (10, 1000):
        session = Session("go", store=wire.address)
        for number in range(size):
            session = session.say(f"message {number}")
        store = opened_anew(wire)
        store.rows("session", "session", limit=1)  # what came meanwhile is folded
        cost: dict[str, int] = {}
        cost["open"] = trips(wire, partial(Session.open, session.id, store=store))
        here = Session.open(session.id, store=store)
        cost["read"] = trips(wire, partial(read_messages, here))
        cost["run"] = trips(wire, partial(Steps(), here, 0))
        cost["fork"] = trips(wire, partial(fork_now, here))
        cost["post"] = trips(wire, partial(here.inbox.signal, "go on"))
        cost["post again"] = trips(wire, partial(here.inbox.signal, "go on"))
        costs.append(cost)
    short, long = costs
    short["read"] += 2  # a second page, and a look for a snapshot
    grown = {verb: (short[verb], long[verb]) for verb in short if long[verb] > short[verb]}
    assert not grown
    assert short["fork"] <= 4 and short["open"] <= 4, costs


def test_a_long_recording_is_read_by_pages(wire: WireCounts) -> None:
    costs: list[int] = []
    for size in (10, 1000):
        session = Session("go", store=wire.address)
        with pytest.raises(KeyboardInterrupt):
            Steps()(session, size, fails=True)
        store = opened_anew(wire)
        for name in ("session", "copy", "turn"):
            store.rows(name, {"copy": "arriving"}.get(name, name), limit=1)
        there = Session.open(session.id, store=store)
        costs.append(trips(wire, partial(resume, there, Steps(), size, False)))
        reads = [text for text in wire.texts if "unnest($1::int8[], $2::int4[]" in text]
        assert len([text for text in reads if "e.kind = ANY" not in text]) <= 10
    assert costs[1] <= costs[0] + 4, costs


def test_no_verb_takes_more_statements_in_a_larger_store(wire: WireCounts) -> None:
    most = {"open": 2, "list": 2, "resume": 9, "start": 12, "turn": 38}
    found: list[dict[str, int]] = []
    store = open_store(wire.address)
    for size in (1, 150, 450):  # the first fills caches, and makes this process a holder
        for number in range(size):
            Session(f"session {number}", store=store)
        session = Session("go", store=store)
        with pytest.raises(KeyboardInterrupt):
            Steps()(session, size, fails=True)
        verbs = {
            "open": partial(Session.open, session.id, store=store),
            "list": partial(Session.list, store=store, limit=100),
            "resume": partial(resume, session, Steps(), size, False),
            "start": lambda at=session: Steps()(at.reload(), 0),
            "turn": lambda at=session: at.reload().turn("again", Steps()),
        }
        costs: dict[str, int] = {}
        for verb, act in verbs.items():
            fold_all(store)
            costs[verb] = trips(wire, act)
        found.append(costs)
    assert found[2] == found[1], found
    assert all(found[1][verb] <= most[verb] for verb in most), found


def fold_all(store: Store) -> None:
    """Fold what came meanwhile."""
    for each in store.attached():
        store.rows(each.name, each.tables[0].name, limit=1)


def test_a_deep_fork_costs_as_much_as_a_flat_one(wire: WireCounts) -> None:
    costs: list[list[int]] = []
    for depth in (3, 50):
        session = Session("go", store=wire.address)
        for _ in range(depth):
            session = session.fork().say("here")
        store = opened_anew(wire)
        store.rows("session", "session", limit=1)
        here = Session.open(session.id, store=store)
        costs.append(
            [
                trips(wire, partial(read_messages, here)),
                trips(wire, core_of(here).lineage),
                trips(wire, partial(Steps(), here, 0)),
                trips(wire, partial(fork_now, here)),
            ]
        )
        assert len(here.messages) == depth + 1
    assert all(deep <= flat for flat, deep in zip(*costs, strict=True)), costs


def test_a_page_of_sessions_is_one_question(wire: WireCounts) -> None:
    store, costs = open_store(wire.address), list[int]()
    for many in (10, 500):
        for number in range(many):
            Session(f"session {number}", store=store)
        Session.list(store=store, limit=100)
        costs.append(trips(wire, lambda: Session.list(store=store, limit=100)))
    assert costs[0] == costs[1] <= 3


def test_a_post_is_one_statement_after_its_questions(wire: WireCounts) -> None:
    session = Session("go", store=wire.address)
    writer, drafts = direct_writer(), [Draft(CancelRequested("x"), Act("human:ada"))]
    writer.post(wire.address, Session("warm", store=wire.address).id, drafts)
    for _ in range(2):  # the second goes on in the inbox that the first began
        wire.reset()
        writer.post(wire.address, session.id, drafts)
        assert (wire.statements, wire.commits) == (2, 2), wire.texts
    assert open_store(wire.address).log(inbox_of(session.id)).tip == 2


class Chat(Workflow):
    def __init__(self) -> None:
        self.agent = Agent("Repeat.", model=ScriptedModel(lambda at: "ok"))

    def forward(self, session: Session) -> Session:
        return self.agent(session)


def test_a_turn_takes_few_trips_more_than_a_run(wire: WireCounts) -> None:
    chat, session = Chat(), Session("hello", store=open_store(wire.address))

    def count(act: Callable[[Session], Session]) -> int:
        nonlocal session

        def go_on() -> None:
            nonlocal session
            session = act(session)

        go_on()  # caches are filled
        go_on()
        return trips(wire, go_on)

    plain = count(lambda session: chat(session.say("again")))
    turn = count(lambda session: session.turn("again", chat))
    # four: an act that locks two rows; two: the lock of its client; ten: the rows of the queue are
    # folded by the look that reads them
    assert plain <= 13 and turn - plain <= 15, (plain, turn)
