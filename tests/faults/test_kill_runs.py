"""kill -9 in the middle of agents' runs: no effect without its request on record, no outcome lost
but the one under way, no log broken.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import pytest

from plait import Session, open_store
from plait.session import verify
from plait.session.value import open_run_of
from tests.support import ForkedProgram, dose, report, seed

CHILD = dedent("""
    import os, sys
    from plait import Agent, Parallel, ScriptedModel, Session, ToolCall, tool

    folder, effect = sys.argv[1:]

    @tool(effect=effect)
    def act(who: str, n: int) -> int:
        with open(f"{folder}/{who}", "a") as out:
            print(n, file=out)
        return n

    def agent(who):
        model = ScriptedModel(lambda s: ToolCall("act", who=who, n=s.seq))
        return Agent(who, model=model, tools=[act], name=who, steps_max=10_000)

    session = Session("go", store=f"{folder}/.plait", title="killed")
    print(session.id, flush=True)
    Parallel(a=agent("a"), b=agent("b"))(session) if effect == "pure" else agent("a")(session)
""")


@pytest.mark.ci
def test_runs_that_are_killed(tmp_path: Path) -> None:
    chance = random.Random(begun := seed())
    kills, effects = dose("RUN_KILLS", 6, 200), 0
    for n in range(kills):
        folder = tmp_path / str(n)
        folder.mkdir()
        effects += _killed(
            folder, chance.choice(["pure", "at_most_once"]), chance.uniform(0.05, 0.5)
        )
    report(
        "runs killed with -9",
        f"{kills} kills after {effects} effects, 0 without a request, 0 outcomes lost before the"
        " last",
        begun,
    )


def _killed(folder: Path, effect: str, after_s: float) -> int:
    """Kill a run after so long; returns how many effects it had."""
    with ForkedProgram(
        [sys.executable, "-c", CHILD, str(folder), effect], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        log = child.stdout.readline().strip()
        time.sleep(after_s)  # the moment is chance: any will do
        child.send_signal(signal.SIGKILL)
    store = open_store(str(folder / ".plait"))
    assert list(verify(store, state=True)) == []
    root = Session.open(log, store=store)
    sessions = [root, *Session.list(parent=root, store=store)]
    total = 0
    for who in ("a", "b"):
        file = folder / who
        done = [int(line) for line in file.read_text().split()] if file.exists() else []
        calls = [
            each
            for session in sessions
            for each in session.effects
            if cast("Any", each.arguments)["who"] == who
        ]
        requested: set[int] = {cast("Any", each.arguments)["n"] for each in calls}
        settled = [each for each in calls if each.outcome is not None]
        assert done == sorted(set(done)), "an effect happened twice"
        assert set(done) <= requested, "an effect happened that was not on record"
        assert len(settled) >= len(done) - 1, "an outcome before the last was lost"
        assert len(calls) - len(settled) <= 1
        total += len(done)
    assert open_run_of(root) is not None or not total
    store.close()
    return total
