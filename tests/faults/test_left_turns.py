"""Messages whose clients were killed with -9 before their runs: a resume from the shell, as cron
starts it, answers each of them once, however many resume at the same time. And a client of a turn
that another process runs.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from plait import Event, Session, open_store
from plait.session import verify
from tests.cli.shell import COMMAND
from tests.faults.chat_client import Echo
from tests.faults.left_client import WORDS
from tests.support import ForkedProgram, run_forked, said_texts
from tests.support.processes import child_environment, module_command, wait_until


def _plait(*arguments: str, store: Path) -> subprocess.Popen[str]:
    return ForkedProgram(
        [*COMMAND, *arguments, "--store", str(store)],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )


@pytest.mark.parametrize("moment", ["posted", "running"])
@pytest.mark.parametrize("others", ["cron", "worker"])
def test_messages_of_killed_clients(tmp_path: Path, moment: str, others: str) -> None:
    place = tmp_path / "store"
    store = open_store(place)
    session = Session("hello", store=store)
    command = module_command("tests.faults.left_client", str(place), session.id, moment)
    killed = run_forked(command, env=child_environment())
    assert killed.returncode == -signal.SIGKILL
    said = ["hello", "one"] if moment == "running" else ["hello"]
    assert said_texts(session.reload()) == said and session.reload().status == "interrupted"
    listed = _plait("ls", "--interrupted", "--json", store=place).communicate(timeout=60)[0]
    assert [each["id"] for each in json.loads(listed)["sessions"]] == [session.id]
    shown = _plait("show", session.short, store=place).communicate(timeout=60)[0]
    assert ("a message waits" if moment == "posted" else "no process has its run") in shown

    jobs = [_plait("resume", "--due", "--interrupted", "--json", store=place) for _ in range(2)]
    mine = list[str]()
    if others == "worker":
        mine.append("mine")
        assert session.turn("mine", Echo()).text == "ok mine"
    outputs = [job.communicate(timeout=120)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    pairs = [text for words in (*WORDS, *mine) for text in (words, f"ok {words}")]
    assert said_texts(session.reload()) == ["hello", *pairs], "each once, in their order"
    assert session.reload().status == "finished"
    kinds = Counter(event.kind for event in store.read(session.id))
    assert kinds["RunFinished"] == kinds["RunStarted"] == len(pairs) / 2 and not kinds["RunFailed"]
    assert list(verify(store, state=True)) == []
    last = _plait("resume", "--due", "--interrupted", "--json", store=place)
    assert json.loads(last.communicate(timeout=60)[0]) == {"resumed": []}


@pytest.mark.parametrize("end", ["finished", "killed"])
def test_the_events_of_a_turn_that_another_process_runs(tmp_path: Path, end: str) -> None:
    place = tmp_path / "store"
    store = open_store(place)
    session = Session("hello", store=store)
    command = module_command("tests.faults.left_client", str(place), session.id, "held")
    with ForkedProgram(command, env=child_environment()) as worker:
        try:
            wait_until(lambda: session.reload().status == "running")
            items = Echo().stream_turn(session, WORDS[0], key="r-1")
            events = list[Event]()
            while not events or events[-1].kind != "ModelAsked":
                assert isinstance(item := next(items), Event)
                events.append(item)
            if end == "killed":
                worker.kill()
            (tmp_path / "go").touch()
            *rest, last = items
        finally:
            worker.kill()
    events += [item for item in rest if isinstance(item, Event)]
    assert isinstance(last, Session) and last == session.reload()
    assert last.text == f"ok {WORDS[0]}"
    recorded = list(store.read(session.id, last.runs[-1].first, last.seq))
    # a resume is not told to the listeners of its own run
    assert events == [event for event in recorded if event.kind != "RunResumed"]
    assert (events != recorded) == (end == "killed")
