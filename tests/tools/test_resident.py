"""A process that stays in a sandbox: it hears and answers between calls, shares the files, and ends
when it has to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from plait.sandbox.local import LocalSandbox
from plait.sandbox.resident import Resident, ResidentHost
from tests.tools.screens import gone, placed

ECHO = ["sh", "-c", 'while read line; do eval "$line"; echo "$line"; done']


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[LocalSandbox]:
    with placed(tmp_path, {"old.txt": "old"}) as made:
        assert isinstance(made, LocalSandbox) and isinstance(made, ResidentHost)
        yield made


def ask(resident: Resident, line: bytes) -> bytes:
    resident.send(line)
    return resident.receive(20)


def test_it_remembers_between_calls_and_shares_the_files(sandbox: LocalSandbox) -> None:
    resident = sandbox.start("echo", ECHO)
    ask(resident, b"count=1")
    assert sandbox.exec(["sh", "-c", "echo new > shell.txt"]).exit_code == 0
    assert (
        ask(resident, b"echo $count $(cat old.txt shell.txt) > told.txt")
        == b"echo $count $(cat old.txt shell.txt) > told.txt"
    )
    assert sandbox.exec(["cat", "told.txt"]).output.view() == "1 oldnew\n"
    assert sandbox.resident("echo") is resident and sandbox.snapshot().changed == (
        "shell.txt",
        "told.txt",
    )


def test_commands_and_residents_see_what_the_others_change(sandbox: LocalSandbox) -> None:
    resident = sandbox.start("echo", ECHO)
    ask(resident, b"cat old.txt > first.txt")
    assert sandbox.exec(["sh", "-c", "echo changed > old.txt"]).exit_code == 0
    ask(resident, b"echo more >> old.txt; cat old.txt > second.txt")
    sandbox.start("other", ECHO)
    resident.end()
    assert (
        sandbox.exec(["cat", "first.txt", "second.txt", "old.txt"]).output.view()
        == "old" + "changed\nmore\n" * 2
    )


def test_it_outlives_the_thread_that_started_it(sandbox: LocalSandbox) -> None:
    thread = Thread(target=sandbox.start, args=("echo", ECHO))
    thread.start()
    thread.join()
    resident = sandbox.resident("echo")
    assert resident is not None and ask(resident, b"true") == b"true"


def test_it_ends_when_the_files_are_made_others_or_its_name_is_taken(sandbox: LocalSandbox) -> None:
    first = sandbox.start("echo", ECHO)
    second = sandbox.start("echo", ECHO)
    gone(first.pid)
    sandbox.begin()
    sandbox.restore(sandbox.snapshot().tree)
    gone(second.pid)
    assert sandbox.resident("echo") is None and not second.is_alive
    assert second.receive(20) == b""
    second.send(b"nobody hears this")
    second.end()


def test_one_that_ends_by_itself_leaves_its_last_words(sandbox: LocalSandbox) -> None:
    resident = sandbox.start("brief", ["sh", "-c", "echo said; echo complained >&2; exit 3"])
    assert resident.receive(20) == b"said" and resident.receive(20) == b""
    gone(resident.pid)
    assert sandbox.resident("brief") is None and resident.complaint() == "complained"


def test_one_that_cannot_begin_says_why(sandbox: LocalSandbox) -> None:
    for resident, why in (
        (sandbox.start("none", ["no-such-program"]), "no-such-program"),
        (sandbox.start("lost", ECHO, cwd="no/such/folder"), "no/such/folder"),
    ):
        assert resident.receive(20) == b""
        assert why in resident.complaint()
