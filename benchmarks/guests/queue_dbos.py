# pyright: basic, reportMissingImports=false
"""A queue of DBOS in PostgreSQL: a workflow of one step, executed in this process."""

import sys
from importlib.metadata import version

from dbos import DBOS
from queue_line import QueueGuest, serve


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
        DBOS.register_queue("tasks", polling_interval_sec=0.05)

    def about(self) -> str:
        return f"DBOS {version('dbos')} queue, PostgreSQL, every step on record"

    def dispatch(self, count: int) -> None:
        for handle in [DBOS.enqueue_workflow("tasks", steps) for _ in range(count)]:
            handle.get_result(polling_interval_sec=0.05)


serve(DbosQueue(sys.argv[1]))
