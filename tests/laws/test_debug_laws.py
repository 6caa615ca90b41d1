"""The debugger can be opened at every step of every run, and changes nothing."""

from __future__ import annotations

import sys
from random import Random

import pytest

from plait import debug
from plait.session.ports import Position, store_at
from plait.session.session import session_at
from plait.testing.simulation import Simulation
from tests.laws.durable_programs import World, program
from tests.support import count, dose

LAW = "a run that died and was resumed can be debugged at every step"
CHUNKS = 4
STEPS = 6  # of each program


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_debug_at_any_step(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def hook() -> None:
        calls.append(sys._getframe(1).f_code.co_filename)  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(sys, "breakpointhook", hook)
    programs, world = dose("DEBUGGED_PROGRAMS", 4, 200, ci=20), World()
    for seed in range(chunk * programs, (chunk + 1) * programs):
        world.renew()
        simulation = Simulation(seed, crash_rate=0.06)
        flow = program(seed, world)
        session = simulation.run(lambda flow=flow: flow, "go", oracle=world.oracle)
        world.sealed = True  # nothing is executed from here on
        store, run = store_at(session.store), session.runs[-1].id
        last = next(number for number, _ in store.feed(reverse=True))
        events = [event for _, event in store.feed() if event.header.run == run]
        for event in Random(seed).sample(events, min(STEPS, len(events))):
            calls.clear()
            value = session_at(Position(session.store, event.log, event.seq, event.id))
            assert debug(value, program(seed, world)).head == session.head
            assert [name.endswith("durable_programs.py") for name in calls] == [True]
        assert next(number for number, _ in store.feed(reverse=True)) == last
        count(LAW, simulation)
        simulation.close()
