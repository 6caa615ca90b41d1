"""`plait submit`, `plait worker` and `plait cluster` in the shell."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import Session, open_store
from tests.cli.shell import Shell, shell
from tests.cluster.flows import Wire
from tests.support import child_environment

__all__ = ["shell"]

COUNT = "tests.cluster.flows:Count"
LONG_S = 120


@pytest.fixture
def plait(shell: Shell) -> Shell:
    open_store(shell.folder)
    return shell


@pytest.fixture
def worker(plait: Shell) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own."""
    line = [sys.executable, "-m", "plait", "worker", "tests.cluster.flows", "--name", "one"]
    process = subprocess.Popen(
        [*line, "--store", str(plait.folder), "--labels", "linux"],
        env=child_environment(),
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


def test_a_run_is_submitted_explained_executed_and_printed(
    plait: Shell, worker: subprocess.Popen[str]
) -> None:
    waits = plait.json("submit", COUNT, "-i", "Hi", "--need", "gpu")
    assert waits["short"] in plait("ls")
    said = plait("submit", COUNT, "-i", "Hi", "--need", "linux", "--wait")
    assert said.strip() == "counted"
    assert "needs gpu" in plait("cluster", "why", waits["short"])
    (told,) = plait.json("cluster", "ls")
    assert (told["name"], told["labels"], told["alive"]) == ("one", ["linux"], True)
    assert "one" in plait("cluster", "ls") and COUNT in plait("cluster", "ls")
    (counts,) = plait.json("cluster", "top")
    assert counts["queued"] == 1 and "1 queued" in plait("cluster", "top")
    (run,) = plait.json("cluster", "runs")
    assert run["session"] == waits["session"] and "needs gpu" in plait("cluster", "runs")


def test_a_signal_drains_a_worker(plait: Shell, worker: subprocess.Popen[str]) -> None:
    while not plait.json("cluster", "ls"):
        threading.Event().wait(0.05)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(LONG_S) == 0
    assert plait.json("cluster", "ls") == []


def test_a_worker_is_drained_by_its_name(plait: Shell, worker: subprocess.Popen[str]) -> None:
    while not plait.json("cluster", "ls"):
        threading.Event().wait(0.05)
    assert "there are: one" in plait.error(3, "cluster", "drain", "two")
    plait("cluster", "drain", "one")
    assert worker.wait(LONG_S) == 0


def test_a_run_that_was_called_is_adopted(plait: Shell, worker: subprocess.Popen[str]) -> None:
    session = Session("Wire.", store=plait.folder)
    with pytest.raises(BaseException, match="wire needs consent"):
        Wire()(session)
    assert "not submitted" in plait("cluster", "why", session.short)
    assert "left to the workers" in plait("cluster", "adopt", session.short)
    plait("approve", session.reload().inbox.waiting[0].event[:12], "--as", "human:ann")
    while session.reload().status != "finished":
        threading.Event().wait(0.05)


def test_wrong_input_names_the_next_step(plait: Shell, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from tests.cluster.flows import Count\n")
    assert "import it from there" in plait.error(2, "submit", str(tmp_path / "own.py:Count"))
    assert "gpu!" in plait.error(2, "submit", COUNT, "-i", "Hi", "--need", "gpu!")
    assert "nowhere" in plait.error(2, "submit", "nowhere.flows:Count", "-i", "Hi")
    assert "--arg NAME=JSON" in plait.error(2, "submit", COUNT, "-i", "Hi", "--arg", "x=1")
    assert "as in shop=2:8" in plait.error(2, "worker", "tests.cluster.flows", "--share", "x=y")
    assert "no workflow" in plait.error(2, "worker", "tests.cluster.conftest")
    assert plait.json("ls")["sessions"] == []
    assert plait.json("cluster", "ls") == []
