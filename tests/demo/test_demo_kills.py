"""The demo that is killed at any moment and interrupted at any moment: the same table, and nothing
is left running.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
from pathlib import Path

import pytest

from plait.demo.folder import NAME
from tests.cli.shell import COMMAND
from tests.demo.runs import (
    WITHOUT_LANDLOCK,
    DemoRun,
    check_nothing_left,
    neutral,
    path_without,
    run_demo,
)
from tests.support import (
    ForkedProgram,
    child_environment,
    dose,
    report,
    run_forked,
    seed,
    wait_until,
)

EVENTS = 75  # of the run, before it waits for consent
ENDED = "The worker had come to its end by then."


def check_killed(run: DemoRun, reference: dict[str, tuple[str, str]]) -> None:
    """The table is that of every demo; nothing on record was repeated, nothing is left."""
    assert run.code == 0, run.screen + run.errors
    assert "ended by signal 9" in run.screen, run.screen
    told = re.search(
        r"resumed at event \d+; (\d+) of \d+ model calls and (\d+) of \d+ effects", run.screen
    )
    assert told is not None and told.groups() == ("0", "0")
    assert neutral_table(run) == reference
    # what cannot be taken back was done once for each branch
    comments = (run.path / "tracker.txt").read_text().splitlines()
    assert sorted(line.partition(":")[0] for line in comments) == ["clamp", "refuse"]
    check_nothing_left(run.folder)


def neutral_table(run: DemoRun) -> dict[str, tuple[str, str]]:
    """The table without ids, seqs and the count of events, which depend on the moment."""
    return {
        claim: (re.sub(r"@\d+|\b\d+ events|event \d+", "N", neutral(figure)), command)
        for claim, (figure, command) in run.table.items()
    }


REFERENCE = {
    "a killed run goes on": ("resumed at N", "plait log @ --steps | grep kill"),
    "nothing is done twice": ("0 repeated", "sort outside.txt | uniq -d"),
    "patches are tested": ("2 rejected, 1 passed", "plait log @ --steps | grep tests"),
    "branches are merged": ("1 of 2 merged", "plait graph @"),
    "risky calls ask first": ("1 asked, 1 allowed", "plait inbox @ --all"),
    "cart.py:6 has a reason": ("by clampN", "plait why @ cart.py:6"),
    "what if, in a branch": ("6 for 10 model calls", "plait diff @ zero"),
    "the record is whole": ("N, 0 faults", "plait verify"),
    "a change is found": ("at cf5a85b7N", "plait verify --store tampered"),
}


def kill_often(tmp_path: Path, kills: int, number: int) -> None:
    chance = random.Random(number)
    path = path_without("bwrap", tmp_path / "bin")
    for kill in range(kills):
        folder = tmp_path / str(kill)
        folder.mkdir()
        run = kill_at(folder, kill % 3, str(chance.randint(1, EVENTS)), path)
        while ENDED in run.screen:  # a slow machine looked too late, and there was no kill
            run = kill_at(folder, kill % 3, str(chance.randint(1, EVENTS)), path)
        check_killed(run, REFERENCE)
    report("demos killed at a random moment", f"{kills} killed", number)


def kill_at(folder: Path, way: int, moment: str, path: str) -> DemoRun:
    """Run a demo on one of three machines, and have it killed after so many events."""
    if way == 0:  # no bubblewrap: landlock
        run = run_demo(folder, "--again", "--kill-after", moment, PATH=path)
        assert "Sandbox: landlock only. bubblewrap is not installed." in run.screen
    elif way == 1:  # nor landlock: no isolation at all
        run = run_demo(folder, "--again", "--kill-after", moment, PATH=path, code=WITHOUT_LANDLOCK)
        assert "Sandbox: host only. bubblewrap is not installed." in run.screen
    else:
        run = run_demo(folder, "--again", "--kill-after", moment)
        assert "Sandbox: overlay" in run.screen
    return run


def test_a_demo_that_is_killed_at_a_random_moment(tmp_path: Path) -> None:
    kill_often(tmp_path, dose("DEMO_KILLS", short=2, ci=6, long=20), seed())


@pytest.mark.slow
def test_a_hundred_demos_that_are_killed(tmp_path: Path) -> None:
    kill_often(tmp_path, 100, seed())


def interrupt_often(tmp_path: Path, times: int, number: int) -> None:
    chance = random.Random(number)
    for turn in range(times):
        folder = tmp_path / str(turn)
        folder.mkdir()
        screen = folder / "screen"
        lines = chance.randint(2, 50)
        with screen.open("wb") as shown:
            demo = ForkedProgram(
                [*COMMAND, "demo"],
                cwd=folder,
                env={**child_environment(), "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=shown,
                stderr=subprocess.STDOUT,
            )

        def is_time(demo: ForkedProgram = demo, screen: Path = screen, lines: int = lines) -> bool:
            return demo.poll() is not None or screen.read_text().count("\n") >= lines

        wait_until(is_time)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 130, screen.read_text()
        check_nothing_left(folder)
        last = screen.read_text().splitlines()[-1]
        said, _, command = last.partition(": ")
        assert said == "interrupted; go on with"
        if turn == 0:
            goes_on(folder, command)
    report("demos interrupted", f"{times} interrupted", number)


def goes_on(folder: Path, command: str) -> None:
    """The command that the demo names does go on."""
    if command == "plait demo --again":
        assert run_demo(folder, "--again").code == 0
        return
    where, words = command.split(" && plait ")
    assert where == f"cd {NAME}"
    env = {**child_environment(), "PLAIT_STORE": ""}
    del env["PLAIT_STORE"]
    done = run_forked([*COMMAND, *words.split()], cwd=folder / NAME, env=env, input="")
    assert done.returncode in (0, 4), done.stderr  # 4: it waits for consent, as it should


def test_a_demo_that_is_interrupted_at_a_random_moment(tmp_path: Path) -> None:
    interrupt_often(tmp_path, dose("DEMO_INTERRUPTS", short=2, ci=5, long=20), seed())


@pytest.mark.slow
def test_twenty_demos_that_are_interrupted(tmp_path: Path) -> None:
    interrupt_often(tmp_path, 20, seed())
