"""Limits that all processes of a store keep together, and runs that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, replay, resume
from plait.cluster import Cluster, Worker, drive
from plait.errors import InvalidValue
from plait.event import kinds as k
from plait.event.kinds import Text, Usage
from plait.journal.stops import Parked
from plait.model import Queued, Reply, limits
from plait.model.base import Fault
from plait.model.shared_limits import LATE_S, LEASE_S, SharedLimiter, account_of, allowance_name
from plait.runtime import shared_limits, waiting
from plait.session import verify
from plait.session.ask_rows import InboxRows
from plait.store import MemoryStore, Store
from plait.testing import Seeded
from tests.cluster.flows import Asks, Refused

Serve = Callable[..., Worker]
LONG_S = 120


@pytest.fixture(autouse=True)
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ten asks at once, then one every second. A wait of a fifth of a second is a long one."""
    for module in (shared_limits, waiting):
        monkeypatch.setattr(module, "IN_PLACE_S", 0.2)
    limits("limited", requests_per_minute=60, shared=True)
    yield
    for name in ("limited", "other", "counted"):
        limits(name)


def drain_limits(store: Store, model: str = "limited") -> None:
    """Use up what there is of an allowance, and what refills in the next two seconds."""
    name = f"{allowance_name(store, ScriptedModel([], name=model))}/requests"
    store.draw(name, 12, per_s=1.0, size=10.0, reserves=True)


def timers_of(session: Session) -> list[k.TimerSet]:
    bodies = [event.body for event in session.events]
    return [body for body in bodies if isinstance(body, k.TimerSet)]


def count_asks(session: Session) -> int:
    return len([event for event in session.events if isinstance(event.body, k.ModelAsked)])


# ── the allowance of a process ───────────────────────────────────────────────────────────────


class CountedStore(MemoryStore):
    """A store that counts its draws."""

    def __init__(self) -> None:
        super().__init__(source=Seeded())
        self.draws = 0

    def draw(self, *args: Any, **how: Any) -> Any:
        self.draws += 1
        return super().draw(*args, **how)


def test_a_busy_process_asks_the_store_for_a_few_of_its_asks() -> None:
    store = CountedStore()
    limiter = SharedLimiter(store, "m", 60_000, None)  # 10,000 at once
    assert [limiter.start(1, n / 5000) for n in range(5000)] == [0.0] * 5000
    assert store.draws < 30
    idle = SharedLimiter(store, "m", 60_000, None)
    before = store.draws
    assert [idle.start(1, n * 2 * LEASE_S) for n in range(10)] == [0.0] * 10
    assert store.draws - before == 10  # an idle process draws no more than it needs
    left = store.draw("m/requests", 1, per_s=1e-9, size=10_000, most=10_000).amount
    assert left >= 10_000 - 5010 - 2500  # at most a chunk is in the hands of the busy one


def test_processes_have_together_what_there_is() -> None:
    store = MemoryStore(source=Seeded())
    both = [SharedLimiter(store, "m", 60, 6000) for _ in range(2)]  # 10 asks, 1000 tokens at once
    waits = [both[n % 2].start(50, 0.0) for n in range(14)]
    ready = waits.count(0.0)  # the rest of the ten may be in the hands of the other one
    assert 8 <= ready <= 10
    later = [wait_s for wait_s in waits if wait_s]
    assert later == sorted(later) and 2 < later[-1] <= 4
    tokens = [SharedLimiter(store, "t", None, 6000) for _ in range(2)]
    waits = [tokens[n % 2].start(600, 0.0) for n in range(3)]
    assert waits[0] == 0.0 and 1.9 < waits[1] <= 2 and 7.9 < waits[2] <= 8
    tokens[0].settle(600, 100)  # the provider counted less
    tokens[1].settle(600, None)  # and this one was not sent
    assert [each.start(0, 0.0) for each in tokens] == [0.0, 0.0]  # which puts it back
    assert 300 <= store.allowances()["t/tokens"].level < 1000


def test_a_closed_limit_is_closed_for_all_and_late_asks_come_one_after_another() -> None:
    store = MemoryStore(source=Seeded())
    one, other, free = [SharedLimiter(store, "m", 60, None) for _ in range(3)]
    free = SharedLimiter(store, "free", None, None)
    one.close(100)
    free.close(50)
    assert 99 < other.start(1, 0.0) <= 100 and 49 < free.start(1, 0.0) <= 50
    assert 99 < other.start_reserved(1, 0.0) <= 100
    store.drop_allowance("m/requests")
    store.drop_allowance("free/requests")
    assert other.start_reserved(1, 0.0) == 0 and free.start(1, 0.0) == 0
    late = [other.start_reserved(1, LATE_S + 1) for _ in range(12)]
    assert late[:10] == [0.0] * 10 and 0 < late[10] <= 1 and 0 < late[11] <= 1


def test_a_key_is_not_in_the_name_of_an_allowance() -> None:
    store, other = MemoryStore(source=Seeded()), MemoryStore(source=Seeded(1))

    def named(key: str, store: Store, name: str = "openai:gpt-5") -> str:
        model: Any = ScriptedModel([], name=name)
        model.account = account_of(key)
        return allowance_name(store, model)

    name = named("sk-secret", store)
    assert name.startswith("openai:gpt-5/") and "secret" not in name
    assert account_of("sk-secret")[:12] not in name
    assert name == named("sk-secret", store)
    assert len({name, named("sk-2", store), named("", store), named("sk-secret", other)}) == 4
    assert len(named("sk-secret", store, "m" * 5000).encode()) < 180


def test_shared_is_true_or_false() -> None:
    odd: list[Any] = [1, "yes", None]
    for each in odd:
        with pytest.raises(InvalidValue):
            limits("limited", shared=each)


# ── runs ─────────────────────────────────────────────────────────────────────────────────────


def test_a_run_of_a_worker_waits_as_a_timer_and_goes_on(store: Store, serve: Serve) -> None:
    drain_limits(store)
    task = Cluster(store).submit(Asks(), Session("Ask.", store=store))
    outcome = drive(task.session.id, store=store)
    assert (outcome.how, store.is_locked(task.run)) == ("parked", False)
    (timer,) = timers_of(task.session)
    assert timer.limit == "limited" and count_asks(task.session) == 0
    (row,) = store.rows(InboxRows.name, "work", {"log": task.session.id}, limit=1)
    assert row["state"] == "timed" and row["due"] == timer.until
    assert "share the limits of limited have asked it so much; it goes on in" in task.why
    serve()
    done = task.result(LONG_S)
    assert done.text == "two" and count_asks(done) == 2
    assert list(verify(store)) == []
    before = done.head
    assert replay(done).head == done.reload().head == before


def test_recorded_asks_need_no_allowance(
    store: Store, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve()
    task = Cluster(store).submit(Asks(), Session("Ask.", store=store))
    done = task.result(LONG_S)
    draws = list[str]()

    def draw(_: Store, name: str, *__: Any, **___: Any) -> None:
        draws.append(name)

    monkeypatch.setattr(type(store), "draw", draw)
    assert replay(done).head == done.head
    assert draws == []


def test_a_provider_that_wants_to_be_left_alone_is_left_alone_by_all(
    store: Store, serve: Serve
) -> None:
    cluster = Cluster(store)
    task = cluster.submit(Refused(), Session("Ask.", store=store))
    assert drive(task.session.id, store=store).how == "parked"
    kinds = [event.kind for event in task.session.events][-2:]
    assert kinds == ["ModelFailed", "TimerSet"] and count_asks(task.session) == 1
    other = cluster.submit(Asks(), Session("Ask, too.", store=store))
    assert drive(other.session.id, store=store).how == "parked"
    assert timers_of(other.session) and count_asks(other.session) == 0
    serve()
    done = task.result(LONG_S)
    assert done.text == "served" and count_asks(done) == 2
    assert other.result(LONG_S).text == "two"
    for each in (done, other.session):
        assert replay(each).head == each.head
    assert list(verify(store)) == []


def test_a_long_rest_does_not_end_a_run_of_a_worker(store: Store) -> None:
    def answer(_: Session) -> Any:
        return Fault("RateLimited", "tomorrow", retryable=True, retry_after_s=900)

    limits("limited", shared=True)  # no numbers: it is only closed
    agent = Agent("Ask.", model=ScriptedModel(answer, name="limited"))
    called = Session("Ask.", store=store)
    with pytest.raises(Exception, match="tomorrow"):  # as before: nobody would wake this run
        agent(called)
    names = store.allowances()
    assert len(names) == 1 and 800 < next(iter(names.values())).closed_s <= 900
    task = Cluster(store).submit(Refused(), Session("Ask.", store=store))
    assert drive(task.session.id, store=store).how == "parked"
    assert 800 < (timers_of(task.session)[0].until or 0) / 1e6 - task.session.events[-1].time / 1e6


def test_a_called_run_waits_in_place(store: Store) -> None:
    drain_limits(store)
    heard = list[Any]()
    agent = Agent("Ask.", model=ScriptedModel(["yes"], name="limited"))
    done = agent(Session("Ask.", store=store), on_event=heard.append)
    assert done.text == "yes" and timers_of(done) == []
    (queued,) = [item for item in heard if isinstance(item, Queued)]
    assert queued.model == "limited" and "share its limits" in queued.why


def test_a_resume_by_hand_follows_the_recorded_wait(store: Store) -> None:
    drain_limits(store)
    task = Cluster(store).submit(Asks(), Session("Ask.", store=store))
    assert drive(task.session.id, store=store).how == "parked"
    timer = timers_of(task.session)[0]
    with pytest.raises(Parked, match="the limits of limited"):
        resume(task.session)
    while task.status != "finished":  # the time may not be over
        with suppress(Parked):
            resume(task.session)
    done = task.session
    assert done.text == "two" and timers_of(done) == [timer]
    assert replay(done).head == done.head


def test_the_next_model_of_a_list_is_asked_if_the_limits_of_one_are_used_up(store: Store) -> None:
    drain_limits(store)
    models = [ScriptedModel(["slow"], name="limited"), ScriptedModel(["quick"], name="other")]
    assert Agent("Ask.", model=models)(Session("Ask.", store=store)).text == "quick"
    limits("other", requests_per_minute=60, shared=True)
    drain_limits(store, "other")
    done = Agent("Ask.", model=models)(Session("Ask.", store=store))
    assert done.text in ("slow", "quick") and count_asks(done) == 1


def test_tokens_are_counted_after_the_answer(store: Store) -> None:
    limits("counted", tokens_per_minute=600_000, shared=True)
    reply = Reply((Text("done"),), usage=Usage(40_000, 10_000))
    agent = Agent("Ask.", model=ScriptedModel([reply, reply, reply], name="counted"))
    session = Session("Ask.", store=store)
    for _ in range(2):
        session = agent(session)
    name = f"{allowance_name(store, ScriptedModel([], name='counted'))}/tokens"
    # the second ask was drawn with what the first one took above its estimate
    assert store.allowances()[name].level < 55_000
