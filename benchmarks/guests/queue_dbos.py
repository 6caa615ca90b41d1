# pyright: basic, reportMissingImports=false
"""A queue of DBOS on PostgreSQL: a workflow of one step is enqueued, and executed in this process."""

import sys
from importlib.metadata import version

import sqlalchemy
from dbos import DBOS, Queue
from queue_line import QueueGuest, serve

tasks = Queue("tasks", polling_interval_sec=0.02)


@DBOS.step()
def add_one(number: int) -> int:
    return number + 1


@DBOS.workflow()
def steps() -> int:
    return add_one(1)


class DbosQueue(QueueGuest):
    def __init__(self, address: str) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": address,
                "log_level": "CRITICAL",
                "enable_otlp": False,
                "application_version": "1",
            }
        )
        DBOS.launch()

    def about(self) -> str:
        return f"DBOS {version('dbos')} queue, PostgreSQL"

    def dispatch(self, count: int) -> None:
        for handle in [tasks.enqueue(steps) for _ in range(count)]:
            handle.get_result(polling_interval_sec=0.02)


address = sys.argv[1].replace("postgresql://", "postgresql+psycopg://").partition("?")[0]
engine = sqlalchemy.create_engine(address)
engine.connect().close()
serve(DbosQueue(sys.argv[1].partition("?")[0]))
