"""Durable steps on PostgreSQL, of peers: CPU of this process for so many of them, on request.

`dbos`: a step of a running workflow, which returns a text. `openrath`: `commit_checkpoint` of a run
that this process has claimed; its state holds a counter and a text.

    python step_postgres.py dbos|openrath ADDRESS

A line with a number asks for so many steps; the answer is a line with the seconds of CPU.
"""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable
from typing import Any

TEXT = "to be or not to be"


def dbos_steps(address: str) -> Callable[[int], None]:
    from dbos import DBOS, SetWorkflowID

    asked: queue.Queue[int] = queue.Queue()
    done: queue.Queue[bool] = queue.Queue()

    @DBOS.step()
    def note(text: str) -> str:
        return text

    @DBOS.workflow()
    def work() -> None:
        while True:
            for _ in range(asked.get()):
                note(TEXT)
            done.put(True)

    DBOS(
        config={
            "name": "bench",
            "system_database_url": address,
            "log_level": "ERROR",
            "enable_otlp": False,
            "notification_listener_polling_interval_sec": 60.0,
            "scheduler_polling_interval_sec": 60.0,
        }
    )
    DBOS.launch()
    with SetWorkflowID("work"):
        DBOS.start_workflow(work)

    def act(count: int) -> None:
        asked.put(count)
        done.get(timeout=120)

    return act


def openrath_steps(address: str) -> Callable[[int], None]:
    from datetime import UTC, datetime
    from uuid import uuid4

    from rath.runtime.models import Checkpoint, Run
    from rath.runtime.postgres import PostgresRunStore

    store = PostgresRunStore(address, auto_migrate=True)
    store.create_run(
        Run.create(plan_id=uuid4(), revision_id=uuid4(), session_id=uuid4(), tenant_id="bench")
    )
    claim: Any = store.claim_next(worker_id="bench", lease_seconds=3600)
    held: Any = claim.run
    sequence = 0

    def act(count: int) -> None:
        nonlocal held, sequence
        for _ in range(count):
            sequence += 1
            checkpoint = Checkpoint(
                uuid4(),
                held.id,
                sequence,
                "0" * 64,
                {"count": sequence, "text": TEXT},
                ("act",),
                (),
                0,
                datetime.now(UTC),
            )
            held = store.commit_checkpoint(
                checkpoint,
                worker_id="bench",
                fencing_token=claim.lease.fencing_token,
                expected_run_version=held.version,
            )

    return act


def main() -> None:
    act = {"dbos": dbos_steps, "openrath": openrath_steps}[sys.argv[1]](sys.argv[2])
    for line in sys.stdin:
        begun = time.process_time()
        act(int(line))
        print(time.process_time() - begun, flush=True)


if __name__ == "__main__":
    main()
