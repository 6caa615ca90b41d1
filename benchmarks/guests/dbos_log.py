"""DBOS with a SQLite system database.

One append is one step of a running workflow that returns the message: that is how DBOS records that
something happened, and it is recorded when the step returns. (Its streams, `DBOS.write_stream`,
write a row and a step: they took longer and more room.) A step must run inside its workflow, so
every session is a workflow in a thread of its own, and the clock runs there.

- `default`: the journal mode SQLite begins with (DELETE). DBOS sets none.
- `wal`: the same file switched to WAL beforehand, which SQLite remembers in the file. Anybody can
  do that in one line.

The pollers in the background are told to rest for a minute. Messages are read back by
`list_workflow_steps`, one query (a workflow that really resumes asks for each step again). A fork
goes to a queue without a worker, so that it is made and not run.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient, SetWorkflowID
from worker import Guest, clocked, serve

PARKED = "parked"  # a queue without a worker


class Talk:
    """The two ends of a running workflow."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[str] = queue.Queue()
        self.outbox: queue.Queue[Any] = queue.Queue()


TALKS: dict[str, Talk] = {}


@DBOS.workflow()
def talk(name: str) -> None:
    while True:
        text = TALKS[name].inbox.get()
        try:
            TALKS[name].outbox.put(clocked(partial(say, text)) | {"value": None})
        except Exception as error:
            TALKS[name].outbox.put(error)


@DBOS.step()
def say(text: str) -> str:
    return text


class Dbos(Guest):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True)
        self.path = folder / "system.db"
        self.url = f"sqlite:///{self.path}"
        if sys.argv[2] == "wal":
            first = sqlite3.connect(self.path)
            first.execute("PRAGMA journal_mode = WAL")
            first.close()
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "log_level": "ERROR",
                "enable_otlp": False,
                "notification_listener_polling_interval_sec": 60.0,
                "scheduler_polling_interval_sec": 60.0,
                "max_executor_threads": 200,
            }
        )
        DBOS.launch()
        self.client = DBOSClient(system_database_url=self.url)
        journal = (
            "WAL, set on the file beforehand"
            if sys.argv[2] == "wal"
            else "rollback journal (DELETE) as it comes"
        )
        self.settings = (
            f"{journal}, synchronous FULL (SQLite's default), one commit per step; survives power"
            " loss"
        )

    def version(self) -> str:
        return f"dbos {version('dbos')} (SQLite {sqlite3.sqlite_version})"

    def begin(self) -> str:
        name = f"workflow {len(TALKS)}"
        TALKS[name] = Talk()
        with SetWorkflowID(name):
            DBOS.start_workflow(talk, name)
        return name

    def append(self, session: str, text: str) -> None:
        self.time("append", {"session": session, "text": text})

    def time(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        if verb != "append":
            return super().time(verb, asked)
        ends = TALKS[asked["session"]]
        ends.inbox.put(asked["text"])
        took = ends.outbox.get(timeout=60)
        if isinstance(took, Exception):
            raise took
        return took

    def fork(self, session: str, place: int) -> None:
        self.client.fork_workflow(session, place + 1, queue_name=PARKED)

    def state(self, session: str) -> int:
        again = DBOSClient(system_database_url=self.url)
        count = len(again.list_workflow_steps(session))
        again.destroy()
        return count

    def crowd(self, count: int) -> None:
        """Use a connection that does not wait for the disk, since that is not measured here."""
        client = DBOSClient(system_database_url=self.url, system_database_engine=_hasty(self.url))
        for i in range(count):
            client.enqueue(
                {
                    "queue_name": PARKED,
                    "workflow_name": talk.__qualname__,
                    "workflow_id": f"crowd {i}",
                },
                f"crowd {i}",
            )

    def page(self) -> int:
        return len(
            DBOS.list_workflows(limit=100, sort_desc=True, load_input=False, load_output=False)
        )


def _hasty(url: str) -> sqlalchemy.Engine:
    engine = sqlalchemy.create_engine(url)

    @sqlalchemy.event.listens_for(engine, "connect")
    def set_off(connection: Any, record: Any) -> None:
        connection.isolation_level = "IMMEDIATE"
        connection.execute("PRAGMA synchronous = OFF")

    return engine


if __name__ == "__main__":
    serve(Dbos)
    sys.stderr.flush()
    os._exit(0)  # its workflows never end, and its pollers would be waited for
