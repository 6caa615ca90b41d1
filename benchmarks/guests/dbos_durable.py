"""DBOS with a SQLite system database: a workflow of so many steps, recovered after its process was
killed.

Recovery calls the workflow function again, and each step asks the database for what it returned.
Before the clock starts, DBOS is up and running. So that one process can recover again and again,
the process that is killed leaves as many such workflows behind as are needed, and each is then
given to an executor of its own: `_recover_pending_workflows` of that one is what `DBOS.launch()`
calls when it starts, and what its admin server calls for a process that is gone. Steps are steps,
whatever they do: `program` stands for them all.

`wal`: the file is switched to WAL beforehand; DBOS leaves the journal mode that SQLite begins with.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import sqlalchemy
from dbos import DBOS, SetWorkflowID
from worker import Edge, Resumer, clocked, crash, serve

EDGE = Edge()


@DBOS.step()
def echo(text: str) -> str:
    return text


@DBOS.step()
def last(text: str) -> str:
    EDGE.reach()
    return text


@DBOS.workflow()
def work(steps: int) -> None:
    for _ in range(steps):
        echo("to be or not to be")
    last("that is the question")


def launch(path: Path, executor: str) -> None:
    os.environ["DBOS__VMID"] = executor
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path}",
            "log_level": "ERROR",
            "enable_otlp": False,
            "application_version": "1",
            "notification_listener_polling_interval_sec": 60.0,
            "scheduler_polling_interval_sec": 60.0,
            "max_executor_threads": 200,
        }
    )
    DBOS.launch()


class Dbos(Resumer):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True)
        self.path, self.left = folder / "system.db", list[str]()
        if sys.argv[2] == "wal":
            first = sqlite3.connect(self.path)
            first.execute("PRAGMA journal_mode = WAL")
            first.close()
        journal = (
            "WAL, set on the file beforehand"
            if sys.argv[2] == "wal"
            else "rollback journal (DELETE) as it comes"
        )
        self.settings = f"{journal}; every step asks the database for what it returned"

    def version(self) -> str:
        return f"dbos {version('dbos')} (SQLite {sqlite3.sqlite_version})"

    def settle(self) -> None:
        """There is nothing to be settled before there is a record."""

    def record(self, shape: str, effects: int, times: int) -> None:
        if shape != "program":
            raise NotImplementedError
        if self.left:
            return
        crash("crash", str(effects), str(times))
        database = sqlite3.connect(self.path)
        database.execute("UPDATE workflow_status SET executor_id = workflow_uuid")
        database.commit()
        self.left = [
            name
            for (name,) in database.execute("SELECT workflow_uuid FROM workflow_status ORDER BY 1")
        ]
        database.close()
        launch(self.path, "bench")

    def resume(self, shape: str) -> dict[str, float]:
        return EDGE.clock(partial(_recover, self.left.pop()))

    def read(self, shape: str) -> dict[str, float]:
        took = clocked(lambda: DBOS.list_workflow_steps(self.left[0]))
        assert len(took.pop("value"))
        return took


def _recover(name: str) -> None:
    (handle,) = DBOS._recover_pending_workflows([name])
    handle.get_result()


def _hasten(connection: Any, record: Any) -> None:
    """Wait for no fsync: the making of the records is not measured."""
    connection.execute("PRAGMA synchronous = OFF")


def record_and_die(path: Path, effects: int, times: int) -> None:
    global EDGE
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", _hasten)
    launch(path, "killed")
    EDGE = Waiting(times)
    for i in range(times):
        with SetWorkflowID(f"run {i:04}"):
            DBOS.start_workflow(work, effects)
        EDGE.reached.wait()
        EDGE.reached.clear()
    EDGE.barrier.wait(600)


class Waiting(Edge):
    """One after the other they come to the end of their record; with the last one
    all are killed.
    """

    def reach(self) -> None:
        self.reached.set()
        self.deadly = True
        super().reach()


if __name__ == "__main__":
    if sys.argv[3:4] == ["crash"]:
        record_and_die(Path(sys.argv[1]) / "system.db", int(sys.argv[4]), int(sys.argv[5]))
    else:
        serve(Dbos)
        sys.stderr.flush()
        os._exit(0)  # its pollers would be waited for
