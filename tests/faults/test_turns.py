"""Many clients in many processes take turns on a few chats, and are killed with -9 at random: every
message stands once, every message has its answer, no run failed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from plait import Session, open_store
from plait.event.kinds import RunFailed, RunFinished
from plait.session import verify
from tests.faults.chat_client import chat_of, words_of
from tests.support import ForkedProgram, dose, report, seed
from tests.support.processes import child_environment, module_command, wait_until


class _Clients:
    """A process of clients, started again after each kill."""

    def __init__(self, request: dict[str, object], said: Path) -> None:
        self._request, self._said = request, said
        self.said = 0
        said.touch()
        self.start()

    def start(self) -> None:
        with self._said.open("ab") as out:
            self.process = ForkedProgram(
                module_command("tests.faults.chat_client", json.dumps(self._request)),
                stdout=out,
                env=child_environment(),
            )

    def answers(self) -> list[str]:
        return self._said.read_text().split()

    def kill_after(self, answers: int) -> bool:
        """Kill it when it has so many more answers. False: it came to its end."""
        wanted = len(self.answers()) + answers
        wait_until(lambda: len(self.answers()) >= wanted or self.process.poll() is not None, 300)
        if self.process.poll() is not None:
            assert self.process.returncode == 0
            return False
        self.process.kill()
        self.process.wait()
        self.start()
        return True


def test_turns_of_clients_that_are_killed(tmp_path: Path) -> None:
    begun = seed()
    chance, killed = random.Random(begun), 0
    processes, threads = dose("TURN_PROCESSES", 2, 4, ci=4), dose("TURN_THREADS", 3, 20, ci=5)
    chats, turns = dose("TURN_CHATS", 2, 5, ci=3), dose("TURNS", 4, 50, ci=10)
    kills = dose("TURN_KILLS", 3, 40, ci=8)
    store = open_store(tmp_path / "store")
    sessions = [Session("hello", store=store) for _ in range(chats)]

    def request(process: int) -> dict[str, object]:
        return {
            "store": str(tmp_path / "store"),
            "chats": [each.id for each in sessions],
            "process": process,
            "threads": threads,
            "turns": turns,
        }

    clients = [
        _Clients(request(number), tmp_path / f"said-{number}") for number in range(processes)
    ]
    try:
        for _ in range(kills):
            killed += chance.choice(clients).kill_after(chance.randrange(1, 2 + threads))
        within_s = 120 + processes * threads * turns  # only keeps it from hanging
        for each in clients:
            assert each.process.wait(within_s) == 0
    finally:
        for each in clients:
            each.process.kill()
            each.process.wait()

    asked: Counter[int] = Counter()
    for thread in range(threads):
        for number in range(turns):
            asked[chat_of(thread, number, chats)] += processes
    assert {words for each in clients for words in each.answers()} == {
        words_of(process, thread, number)
        for process in range(processes)
        for thread in range(threads)
        for number in range(turns)
    }
    for index, session in enumerate(sessions):
        now = session.reload()
        first, *rest = [(message.role, message.text) for message in now.messages]
        assert first == ("user", "hello")
        users, answers = rest[::2], rest[1::2]
        assert len(users) == len(set(users)) == asked[index], "each message once"
        assert [("assistant", f"ok {text}") for _, text in users] == answers, "answered in order"
        kinds = Counter(event.kind for event in store.read(session.id))
        assert kinds[RunFailed.__name__] == 0 and kinds[RunFinished.__name__] == asked[index]
    assert list(verify(store, state=True)) == []
    report(
        "turns of clients killed with -9",
        f"{processes} processes of {threads} threads, {sum(asked.values()):,} turns on {chats}"
        f" chats, {killed} kills: each message once, answers in order, 0 failed runs",
        begun,
    )
