"""The side of a queue in `cluster_peers.py`: a process that does what it is asked, one JSON
document per line. Only the standard library is needed here.

    {"do": "dispatch", "count": 20}   →   {"cpu": 0.031, "wall": 0.044}

CPU is that of this process, and of the processes that it names as its workers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


class QueueGuest:
    """One queue, with a worker of one slot that is there already."""

    def about(self) -> str:
        """Return its name and version."""
        raise NotImplementedError

    def workers(self) -> list[int]:
        """Return the processes besides this one whose CPU counts."""
        return []

    def dispatch(self, count: int) -> None:
        """Have so many tasks of one step submitted and executed; return when all have ended."""
        raise NotImplementedError

    def fill(self, count: int) -> None:
        """Queue so many tasks that no worker takes. Queues that have no claim leave it out."""
        raise NotImplementedError

    def claim(self) -> None:
        """Take the next of these tasks, and give it back if that is cheap."""
        raise NotImplementedError


def cpu_s(process: int) -> float:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def serve(guest: QueueGuest) -> None:
    """Do what is asked on standard input, until it ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        act = getattr(guest, asked.pop("do"))
        workers = guest.workers()
        cpu, wall = time.process_time() + sum(map(cpu_s, workers)), time.perf_counter()
        try:
            value = act(**asked)
        except NotImplementedError:
            value = "not there"
        answer = {
            "cpu": time.process_time() + sum(map(cpu_s, workers)) - cpu,
            "wall": time.perf_counter() - wall,
            "value": value,
        }
        print(json.dumps(answer), file=out, flush=True)
    os._exit(0)
