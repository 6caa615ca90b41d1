"""OpenRath: a run of `LocalRuntime` on `SQLiteRunStore` that is taken up again by another worker.

Its workflow is one `@step` that leads to itself (see `openrath_run.py`). Taken up again, it claims the run, loads the last checkpoint,
which holds a counter and the last result and not the conversation, and goes on at the next step: there is no program to bring back, and
nothing is compared with anything. Only `agent` has a counterpart; a worker that stopped after so many steps stands for one that was killed,
whose lease has run out.
"""

from __future__ import annotations

import sqlite3
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from openrath_run import LEASE_S, REVISION
from rath.context import RunContext
from rath.definition import EffectClass, step
from rath.runtime.local import LocalRuntime
from rath.runtime.sqlite import SQLiteRunStore
from worker import Edge, Resumer, serve

EDGE = Edge()


class Turn:
    def __init__(self) -> None:
        self.live = False

    @step(entry=True, successors=("act",), effects=EffectClass.READ_ONLY)
    def act(self, state: dict[str, Any], context: Any) -> dict[str, Any]:
        if self.live:
            EDGE.reach()
        return {"count": state["count"] + 1, "last": "to be or not to be"}


class OpenRath(Resumer):
    settings = "WAL as it comes, synchronous FULL, a connection of ours kept open; a checkpoint of a counter is loaded"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.store = SQLiteRunStore(folder / "runs.db")
        self.kept_open = sqlite3.connect(folder / "runs.db")
        self.kept_open.execute("SELECT count(*) FROM runs").fetchall()
        self.runtime, self.turn = LocalRuntime(self.store), Turn()
        self.steps = 0

    def version(self) -> str:
        return f"openrath {version('openrath')} (SQLite {sqlite3.sqlite_version})"

    def settle(self) -> None:
        """It is past the first checkpoint of its write-ahead log once a record is made."""

    def record(self, shape: str, effects: int, times: int) -> None:
        if shape != "agent":
            raise NotImplementedError
        if not self.steps:
            self.steps = effects // 2
            context = RunContext.local(revision_id=REVISION)
            self.runtime.submit(self.turn, session_id=uuid4(), context=context, state={"count": 0, "last": ""})
            self._work(self.steps)

    def resume(self, shape: str) -> dict[str, float]:
        self.turn.live = True
        return EDGE.clock(lambda: self._work(1))

    def _work(self, steps: int) -> None:
        run = self.runtime.work_once(worker_id=str(uuid4()), lease_seconds=LEASE_S, max_steps=steps)
        if run is None:
            raise RuntimeError("there is no run to be had")


if __name__ == "__main__":
    serve(OpenRath)
