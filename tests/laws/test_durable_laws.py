"""Law 8: kill anywhere + resume = as if never killed, and no effect twice. Law 7: replay executes
nothing and ends on the same head.

Programs are made from seeds, and the process that runs them dies before or after any of its writes,
as often as the seed has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from plait import Memory, Session
from plait.event import Event
from plait.event import kinds as k
from plait.runs.replay import replay
from plait.session import verify
from plait.session.inbox import all_waiting
from plait.session.ports import store_at
from plait.testing import Simulation
from tests.laws.durable_programs import (
    Effect,
    Program,
    World,
    changed_program,
    patched_program,
    program,
    traits,
)
from tests.support import count, dose

LAW = "kill anywhere + resume = as if never killed"
CHUNKS = 50
DEATHS = dose("DEATHS", 2, 5, ci=5)  # histories with deaths, for each program
WORLD = World()


class Ending(NamedTuple):
    """The outcome of a program, without the parts that differ only because it was resumed."""

    messages: list[tuple[str, str]]
    facts: dict[str, Any]
    decisions: dict[str, Any]
    effects: Counter[Effect]
    memories: list[tuple[str, str, str, int]]  # text, scope, state and supports


def _ending(session: Session) -> Ending:
    said = [(message.role, message.text) for message in session.messages]
    memories = [
        (item.text, item.scope, item.state, item.supports)
        for item in Memory().items(session, state=None)
    ]
    return Ending(
        said,
        dict(session.facts.items()),
        dict(session.facts.decisions.items()),
        WORLD.standing(),
        sorted(memories),
    )


def _events(session: Session) -> Iterator[Event]:
    store = store_at(session.store)
    for _, log in store.logs(limit=10_000):
        yield from store.read(log.id, log.place + 1, log.tip)


def _made(seed: int) -> Program:
    return program(seed, WORLD)


def _check_effects() -> None:
    """No effect took place twice for one key, unless its class allows."""
    for key, effect in WORLD.about.items():
        if effect.tool not in ("put", "flaky", "later"):  # repeated under the same key
            assert WORLD.most[key] <= 1, f"{effect} stood twice"
        if effect.tool in ("mail", "book"):
            assert WORLD.times[key] <= 1, f"{effect} took place twice"


def _check_asks(events: list[Event], crashes: int, asked: int | None) -> None:
    """A lost ask is asked again, at most once per death, and stays on record.

    `asked`: how often, without deaths.
    """
    asks = sum(isinstance(event.body, k.ModelAsked) for event in events)
    lost = Counter(event.header.call for event in events if _is_lost(event))
    assert all(times <= crashes for times in lost.values())
    assert WORLD.asked <= asks, "a model was asked without a word on record"
    if asked is not None:
        assert asks == asked + lost.total(), (
            "asked again without need, or a lost ask is not on record"
        )


def _is_lost(event: Event) -> bool:
    return isinstance(event.body, k.ModelFailed) and event.body.failure.kind == "ProcessEnded"


def _check_record(session: Session, seed: int) -> None:
    """The store is sound, and the record alone leads to the same head."""
    assert list(verify(store_at(session.store), state=True)) == []
    WORLD.sealed = True
    assert replay(session, _made(seed)).head == session.head
    WORLD.sealed = False


def _undisturbed(seed: int) -> tuple[Ending, int]:
    WORLD.renew()
    simulation = Simulation(seed, crash_at=10**9)
    session = simulation.run(lambda: _made(seed), "go", oracle=WORLD.oracle)
    ending, asked = _ending(session), WORLD.asked
    _check_record(session, seed)
    simulation.close()
    return ending, asked


def _dies(seed: int, simulation: Simulation, expected: Ending, asked: int) -> None:
    WORLD.renew()
    session = simulation.run(lambda: _made(seed), "go", oracle=WORLD.oracle)
    events = list(_events(session))
    assert _ending(session) == expected
    _check_effects()
    # A tool that is run again asks again, for itself; a new process asks a model that was down.
    found = traits(seed, WORLD)
    is_counted = not (found.nested_asks or found.lists)
    _check_asks(events, simulation.crashes, asked if is_counted else None)
    assert {event.kind for event in events} >= ({"RunResumed"} if simulation.crashes else set())
    _check_record(session, seed)
    count(LAW, simulation)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_kill_anywhere_and_resume(chunk: int, tmp_path: Path) -> None:
    programs = dose("DURABLE_PROGRAMS", 1, 400, ci=4)
    for seed in range(chunk * programs, (chunk + 1) * programs):
        expected, asked = _undisturbed(seed)
        for life in range(DEATHS):
            rate = (0.03, 0.06, 0.12)[(chunk + life) % 3]

            def check(
                simulation: Simulation,
                seed: int = seed,
                expected: Ending = expected,
                asked: int = asked,
            ) -> None:
                _dies(seed, simulation, expected, asked)

            Simulation.check(
                check, seeds=[seed * 100 + life], crash_rate=rate, kept=tmp_path / "seeds.txt"
            )


# ── others act while no process runs ─────────────────────────────────────────────────────────


def _others(simulation: Simulation, session: Session) -> None:
    """Act as another writer between a death and the next life, by the seed."""
    about = ("others", simulation.crashes)
    lot = simulation.lot(*about)
    if lot < 0.3:
        session.inbox.send(f"sent {simulation.crashes}")
    elif lot < 0.4:
        session.say(f"from outside {simulation.crashes}", actor="human:else")
    elif lot < 0.5:
        session.fact(f"outside {simulation.crashes}", simulation.crashes)
    elif lot < 0.75:
        started = next(event.seq for event in session.events if event.kind == "RunStarted")
        to = started + int(simulation.lot("to", *about) * (session.seq - started))
        if to < session.seq:
            session.rewind(to, reason="another way")


def _disturbed(simulation: Simulation, seed: int) -> None:
    WORLD.renew()
    session = simulation.run(
        lambda: _made(seed), "go", oracle=WORLD.oracle, between=lambda at: _others(simulation, at)
    )
    _check_effects()
    _check_asks(list(_events(session)), simulation.crashes, None)
    _check_record(session, seed)
    count("others act between a death and the next life", simulation)


@pytest.mark.parametrize("chunk", range(10))
def test_others_between_a_death_and_the_next_life(chunk: int, tmp_path: Path) -> None:
    histories = dose("DURABLE_OTHERS", 2, 2000, ci=20)
    for seed in range(10**6 + chunk * histories, 10**6 + (chunk + 1) * histories):
        Simulation.check(
            lambda simulation, seed=seed: _disturbed(simulation, seed),
            seeds=[seed],
            crash_rate=0.06,
            kept=tmp_path / "seeds",
        )


# ── changed programs ─────────────────────────────────────────────────────────────────────────


def _ending_of(seed: int, make: Callable[[int, World], Program]) -> tuple[Ending, int]:
    """Return the ending of a program that does not die, and in how many moments it might have."""
    WORLD.renew()
    simulation = Simulation(seed, crash_at=10**9)
    session = simulation.run(lambda: make(seed, WORLD), "go", oracle=WORLD.oracle)
    ending = _ending(session)
    simulation.close()
    return ending, simulation.moments


def _accepts(simulation: Simulation, seed: int, before: Ending, after: Ending) -> int:
    """Die, go on with a changed program, die again; return the number of accepted changes."""
    WORLD.renew()
    session = simulation.run(
        lambda: program(seed, WORLD),
        "go",
        oracle=WORLD.oracle,
        changed=lambda: changed_program(seed, WORLD),
    )
    ending, events = _ending(session), list(_events(session))
    expected = after if simulation.crashes else before
    assert ending[:3] == expected[:3], "another end than that of the changed program alone"
    assert not expected.effects - ending.effects, "an effect is missing"
    allowed = before.effects | after.effects  # some programs do the same twice by themselves
    assert not ending.effects - allowed, "an effect stands twice"
    done = Counter[Effect]()
    for key, effect in WORLD.about.items():
        done[effect] += WORLD.times[key] if effect.tool in ("mail", "book") else 0
    assert not done - allowed, "an effect took place twice"
    assert list(verify(store_at(session.store), state=True)) == []
    assert not all_waiting(store_at(session.store))
    WORLD.sealed = True
    made = changed_program if simulation.crashes else program
    assert replay(session, made(seed, WORLD)).head == session.head
    WORLD.sealed = False
    count("a changed program is accepted", simulation)
    return sum(event.kind == "ChangeAccepted" for event in events)


@pytest.mark.parametrize("chunk", range(5))
def test_cut_change_accept_and_cut_again(chunk: int, tmp_path: Path) -> None:
    # Threads of a program may die elsewhere than the last time: of four histories, one is too few
    # to count on for an accepted change.
    histories = dose("DURABLE_CHANGES", 8, 4000, ci=40)
    accepted = 0
    for seed in range(2 * 10**6 + chunk * histories, 2 * 10**6 + (chunk + 1) * histories):
        chance = Random(seed)
        before, moments = _ending_of(seed, program)
        after, _ = _ending_of(seed, changed_program)
        first = chance.randint(moments // 3, moments)
        deaths = [first, *(first + chance.randint(1, 30) for _ in range(chance.randint(0, 3)))]

        def check(
            simulation: Simulation, seed: int = seed, before: Ending = before, after: Ending = after
        ) -> None:
            nonlocal accepted
            accepted += _accepts(simulation, seed, before, after)

        Simulation.check(check, seeds=[seed], crash_at=deaths, kept=tmp_path / "seeds")
    assert accepted


def _patches(simulation: Simulation, seed: int, allowed: Counter[Effect]) -> str:
    """Die, and go on with a patched program; return the kind of the run that it came to be."""
    WORLD.renew()
    made = iter([lambda: program(seed, WORLD)])
    session = simulation.run(
        lambda: next(made, lambda: patched_program(seed, WORLD))(), "go", oracle=WORLD.oracle
    )
    _check_effects()
    assert not WORLD.standing() - allowed, "an effect stands twice"
    assert list(verify(store_at(session.store), state=True)) == []
    assert "ChangeAccepted" not in {event.kind for event in _events(session)}
    WORLD.sealed = True
    last = patched_program if simulation.crashes else program
    assert replay(session, last(seed, WORLD)).head == session.head
    WORLD.sealed = False
    count("a patched program takes up a run", simulation)
    is_new = any(event.kind == "PatchMarked" for event in _events(session))
    assert is_new == bool(WORLD.standing()[Effect("put", 1000)])
    return "new" if is_new else "old"


@pytest.mark.parametrize("chunk", range(5))
def test_cut_patch_and_cut_again(chunk: int, tmp_path: Path) -> None:
    histories = dose("DURABLE_PATCHES", 5, 1000, ci=20)
    came_to = Counter[str]()
    for seed in range(3 * 10**6 + chunk * histories, 3 * 10**6 + (chunk + 1) * histories):
        before, moments = _ending_of(seed, program)
        allowed = before.effects | _ending_of(seed, patched_program)[0].effects
        chance = Random(seed)
        deaths = [chance.randint(1, moments), *(chance.randint(1, 2 * moments) for _ in range(2))]

        def check(
            simulation: Simulation, seed: int = seed, allowed: Counter[Effect] = allowed
        ) -> None:
            came_to[_patches(simulation, seed, allowed)] += 1

        Simulation.check(check, seeds=[seed], crash_at=deaths, kept=tmp_path / "seeds")
    assert len(came_to) == 2, came_to


# ── the seed decides ─────────────────────────────────────────────────────────────────────────


def test_the_same_seed_dies_at_the_same_moments_and_ends_on_the_same_head() -> None:
    died, seeds = 0, dose("DURABLE_TWINS", 10, 200, ci=20)
    for seed in range(seeds):
        # whose turn it is among the program's own threads is not for the seed to say
        if not traits(seed, WORLD).threads:
            heads: list[str] = []
            for _ in range(2):
                WORLD.renew()
                simulation = Simulation(seed, crash_rate=0.1)
                heads.append(simulation.run(partial(_made, seed), "go", oracle=WORLD.oracle).head)
                died += simulation.crashes
            assert heads[0] == heads[1], seed
    assert died > seeds // 2


def test_a_death_at_a_given_moment() -> None:
    seed = next(seed for seed in range(30, 60) if not traits(seed, WORLD).threads)
    expected, asked = _undisturbed(seed)
    counting = Simulation(seed, crash_at=10**9)
    WORLD.renew()
    counting.run(partial(_made, seed), "go", oracle=WORLD.oracle)
    for moment in range(1, counting.moments):  # after the last one there is nothing left to do
        simulation = Simulation(seed, crash_at=moment)
        _dies(seed, simulation, expected, asked)
        assert simulation.crashes == 1
    assert counting.crashes == 0 and counting.moments > 4
