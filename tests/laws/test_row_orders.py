"""Law: rows come out the same for every order of events that respects logs and causes.

A store that folds behind sees the events of different logs in the order in which they become
visible, which need not be that of their commit numbers. Histories are recorded on a store that
folds in the order of numbers, and folded again in many others.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from plait import Budget, Session, open_store
from plait.errors import LogExists
from plait.event import Body, Event, seal_all
from plait.event import kinds as k
from plait.event.kinds import Failure, Text
from plait.ids import Digest, LogId, house_of, inbox_of
from plait.session.ports import store_at
from plait.session.work_rows import BUDGET_FAILURE, GIVEN_UP
from plait.store import Store
from plait.testing import Simulation
from plait.testing.seeded import Seeded
from tests.laws.durable_programs import World, program
from tests.laws.naive_work import check_work
from tests.laws.row_orders import BUILT_IN, check_orders, history_of, rows_of
from tests.laws.test_memory_laws import MemoryMachine
from tests.laws.test_session_laws import SessionMachine
from tests.laws.test_turn_laws import Clients
from tests.support import count as counted
from tests.support import dose

ORDERS = dose("ROW_ORDERS", 4, 40, ci=10)  # for each history
LAW = "rows are the same in every order"
_names = count(1)
WORLD = World()


def _check(store: Store, seed: int) -> None:
    assert check_orders(history_of(store), ORDERS, Random(seed)) >= 0
    counted(LAW, store)


# ── histories of the other laws ──────────────────────────────────────────────────────────────


class _Fresh(RuleBasedStateMachine):
    """A machine with a store of its own for each history."""

    def __init__(self) -> None:
        self.store = open_store(f"memory:orders-{next(_names)}")
        super().__init__()

    def teardown(self) -> None:
        _check(self.store, 1)
        super().teardown()
        self.store.close()


class Memories(_Fresh, MemoryMachine):
    law = f"{LAW}: memories"


class Sessions(_Fresh, SessionMachine):
    law = f"{LAW}: sessions"


class Turns(Clients):
    def teardown(self) -> None:
        _check(self.store, 2)
        super().teardown()


@pytest.mark.parametrize("machine", [Memories, Sessions, Turns])
def test_histories_of_machines(machine: type[RuleBasedStateMachine]) -> None:
    profile = settings.get_profile(settings._current_profile)  # type: ignore[attr-defined]  # pyright: ignore
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=profile.max_examples,
            stateful_step_count=30,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def _act_between(simulation: Simulation, session: Session) -> None:
    """Act as others do: send words, ask for an end, fork, judge."""
    lot = simulation.lot("orders", simulation.crashes)
    if lot < 0.3:
        session.inbox.send(f"sent {simulation.crashes}")
    elif lot < 0.5:
        session.inbox.signal("go", simulation.crashes)
    elif lot < 0.7:
        with suppress(LogExists):  # ids come from a seed: it was forked here before
            session.fork(f"aside {simulation.crashes}")


@pytest.mark.parametrize("chunk", range(4))
def test_histories_of_runs(chunk: int) -> None:
    programs = dose("ROW_ORDER_RUNS", 6, 100, ci=10)
    for seed in range(chunk * programs, (chunk + 1) * programs):
        WORLD.renew()
        simulation = Simulation(seed, crash_rate=0.06)
        session = simulation.run(
            partial(program, seed, WORLD),
            "go",
            oracle=WORLD.oracle,
            between=partial(_act_between, simulation),
        )
        _check(store_at(session.store), seed)
        simulation.close()


# ── a crowd that writes to many logs at once ─────────────────────────────────────────────────


class _Crowd:
    """Writes asks, answers, words to inboxes, runs, branches and their ends, at random, some of
    which no program of ours would write: the rows have to come out the same all the same.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.source = Random(seed), Seeded(seed)
        self.store = open_store(f"memory:crowd-{next(_names)}")
        self.logs: list[LogId] = []
        self.houses = [self.source.fresh("store", n) for n in range(2)]
        self.roots: dict[str, LogId] = {}  # the log of each run
        self.runs: dict[LogId, str] = {}
        self.asks: list[Event] = []
        self.signals: list[tuple[LogId, Event]] = []
        for _ in range(2):
            self.open_session()

    def put(self, log: LogId, body: Body, **act: Any) -> Event:
        known = self.store.heads([log]).get(log)
        seq, parents = (known.tip + 1, (known.head,)) if known is not None else (1, ())
        actor = act.pop("actor", None) or self.random.choice(["human:ann", "human:ben", "agent:a"])
        how: dict[str, Any] = {"log": log, "source": self.source, "actor": actor, **act}
        (event,) = seal_all([body], seq=seq, parents=parents, **how)
        if known is None:
            self.store.begin(log, [event])
        else:
            self.store.append(log, [event], after=known.head)
        return event

    def open_session(self) -> None:
        log = self.source.fresh("session", len(self.logs))
        self.put(log, k.SessionOpened(title=f"t{len(self.logs)}", user="ann"))
        self.logs.append(log)

    def fork(self) -> None:
        parent = self.random.choice(self.logs)
        place = self.random.randint(1, self.store.log(parent).tip)
        point = next(self.store.read(parent, place, place))
        log = self.source.fresh("fork", len(self.logs))
        run = self.runs.get(parent)
        how: dict[str, Any] = {"log": log, "source": self.source, "actor": "human:ann", "run": run}
        body = k.ForkedFrom(parent, place)
        events = seal_all([body], seq=place + 1, parents=(point.id,), **how)
        self.store.begin(log, events, parent=parent)
        self.logs.append(log)
        if run is not None and self.roots[run] in self.lineage(parent, place):
            self.runs[log] = run

    def lineage(self, log: LogId, place: int) -> set[LogId]:
        return {event.log for event in self.store.read(log, 1, place)}

    def start_run(self) -> None:
        log = self.random.choice(self.logs)
        run = str(self.source.fresh("run", self.store.number))
        self.put(log, k.RunStarted("a:B"), run=run)
        self.roots[run], self.runs[log] = log, run

    def wishes(self) -> k.Wishes:
        pick = self.random.choice
        return k.Wishes(
            need=pick([(), ("gpu",)]),
            priority=pick([0, 5]),
            project=pick(["", "shop"]),
            not_before=pick([None, None, 10**15]),
            deadline=pick([None, 10**15, 2 * 10**15]),
            attempts=pick([1, 2, 3]),
            code=pick(["", "c"]),
            same_code=pick([False, True]),
        )

    def submit_run(self) -> None:
        log = self.random.choice(self.logs)
        run = str(self.source.fresh("run", self.store.number))
        self.put(log, k.RunStarted("a:B", wishes=self.wishes()), run=run)
        self.roots[run], self.runs[log] = log, run

    def adopt_run(self) -> None:
        if self.roots:
            run, log = self.random.choice(list(self.roots.items()))
            self.put(log, k.RunSubmitted(run, self.wishes()))

    def take_run(self) -> None:
        if self.roots:
            run, log = self.random.choice(list(self.roots.items()))
            claim = self.random.choice([None, k.Claim("w", "first", host="m")])
            self.put(log, k.RunResumed("h", 1, claim=claim), run=run)
            for branch, other in self.runs.items():
                if other == run and branch != log and self.random.random() < 0.5:
                    self.put(branch, k.RunResumed("h", 1, branch=True), run=run)

    def end_run(self) -> None:
        if self.roots:
            run, log = self.random.choice(list(self.roots.items()))
            kinds = ["E", "E", BUDGET_FAILURE, GIVEN_UP]
            failed = k.RunFailed(Failure(self.random.choice(kinds), "e"))
            ends = [k.RunFinished(), failed, failed, k.RunCancelled()]
            body = self.random.choice([*ends, k.RunCancelled("enough", "human:ann")])
            self.put(log, body, run=run)

    def ask(self) -> None:
        log = self.random.choice(self.logs)
        binding = Digest(f"{self.random.randint(1, 3):064x}")
        other = self.random.choice([None, *self.logs])
        body = self.random.choice(
            [
                k.ApprovalRequested(binding, {}),
                k.QuestionAsked("why?"),
                k.ToolUnknown(binding),
                k.TimerSet(event=self.random.choice(["", "go"])),
                k.VerdictAwaited("tests", session=other),
            ]
        )
        run, call = self.runs.get(log), f"c{self.random.randint(1, 2)}"
        self.asks.append(self.put(log, body, run=run, call=call, actor="agent:a"))

    def answer(self) -> None:
        """Answer in the inbox, mostly; or settle in the session itself."""
        if not self.asks:
            return
        ask = self.random.choice(self.asks)
        causes = (ask.id,) if self.random.random() < 0.6 else ()
        body, log = ask.body, ask.log
        is_own = self.random.random() < 0.3
        if isinstance(body, k.ApprovalRequested):
            answers = [k.ApprovalGranted(body.binding), k.ApprovalDenied(body.binding)]
            said: Body = self.random.choice(answers)
        elif isinstance(body, k.ToolUnknown):
            said = k.ToolResolved(body.request, "happened")
        elif isinstance(body, k.QuestionAsked):
            said = k.QuestionAnswered(ask.id, "so")
        elif isinstance(body, k.VerdictAwaited):
            said, is_own = k.VerdictHeard(ask.id), True
        else:
            said, is_own = k.TimerFired("event"), True
        if is_own:
            self.put(log, said, run=ask.header.run, call=ask.header.call, causes=causes)
        else:
            self.put(inbox_of(log), said, causes=causes)

    def speak(self) -> None:
        log = self.random.choice(self.logs)
        where = self.random.choice([log, inbox_of(log)])
        words: list[tuple[LogId, Body]] = [
            (inbox_of(log), k.CancelRequested()),
            (where, k.ValidationRecorded("tests", self.random.random() < 0.7)),
            (where, k.SessionPaused()),
            (where, k.SessionResumed()),
            (where, k.BudgetSet(Budget(tokens_max=5))),
        ]
        self.put(*self.random.choice(words))

    def signal(self) -> None:
        log = self.random.choice(self.logs)
        self.signals.append((log, self.put(inbox_of(log), k.Signalled("go"))))

    def deliver(self) -> None:
        if self.signals:
            log, event = self.signals.pop(0)
            self.put(log, k.Signalled("go"), causes=(event.id,))

    def change(self) -> None:
        if self.runs:
            log, run = self.random.choice(list(self.runs.items()))
            self.put(log, k.ChangeAccepted(run, "why", self.random.randint(1, 9)))

    def close(self) -> None:
        log = self.random.choice(self.logs)
        self.put(log, self.random.choice([k.SessionClosed(), k.SessionPaused()]))

    def move(self) -> None:
        """Let a session, or a branch of its run, go to another store, or come from there."""
        log = self.random.choice(self.logs)
        there = self.random.choice(self.houses)
        bodies: list[Body] = [
            k.SessionMoved(there, "memory:x"),
            k.SessionArrived(there, "memory:x"),
        ]
        self.put(log, self.random.choice(bodies))

    def copy(self) -> None:
        """Tell of a copy, mostly in the house log of the store that it goes to."""
        into = self.random.choice([self.store.id, *self.houses])
        kind = self.random.choice([k.CopyBegun, k.CopyFinished])
        logs = self.random.sample(self.logs, self.random.randint(1, 2))
        told_in = into if self.random.random() < 0.9 else self.random.choice(self.houses)
        house = house_of(told_in)
        if not self.store.heads([house]):
            self.put(house, k.HouseOpened(told_in))
        came_from = self.random.choice(self.houses)
        self.put(house, kind(came_from, f"memory:{came_from}", into, tuple(logs)))

    def say(self) -> None:
        self.put(self.random.choice(self.logs), k.MessageSaid("user", (Text("hm"),)))

    def write(self, steps: int) -> None:
        often = [self.ask] * 6 + [self.answer] * 5 + [self.speak] * 3
        acts = [self.start_run, self.take_run, self.end_run, self.fork, self.signal, self.deliver]
        acts += [self.move, self.submit_run, self.submit_run, self.take_run, self.end_run]
        seldom = [self.change, self.close, self.say, self.open_session, self.copy, self.adopt_run]
        for _ in range(steps):
            self.random.choice([*often, *acts, *acts, *seldom])()


@pytest.mark.parametrize("chunk", range(4))
def test_histories_of_a_crowd(chunk: int) -> None:
    histories = dose("ROW_ORDER_CROWDS", 25, 2000, ci=60)
    for seed in range(chunk * histories, (chunk + 1) * histories):
        crowd = _Crowd(seed)
        crowd.write(50)
        for projection in BUILT_IN:  # the store itself folded in the order of numbers
            due = rows_of(projection, list(crowd.store.feed()))
            for table in projection.tables:
                found = crowd.store.rows(projection.name, table.name, limit=2**31)
                assert sorted(map(repr, found)) == due[table.name]
        check_work(crowd.store)
        assert check_orders(history_of(crowd.store), ORDERS, Random(seed)) > 0
        counted(LAW, crowd.store)
        crowd.store.close()
