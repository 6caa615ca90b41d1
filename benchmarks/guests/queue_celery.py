# pyright: basic, reportMissingImports=false
"""Celery with Redis as broker and for results: a worker of one slot, and no record of steps."""

import os
import subprocess
import sys
from importlib.metadata import version

from celery import Celery
from queue_line import QueueGuest, serve

app = Celery("queue_celery", broker=os.environ["QUEUE_REDIS"], backend=os.environ["QUEUE_REDIS"])
app.conf.broker_connection_retry_on_startup = True


@app.task(name="add_one")
def add_one(number: int) -> int:
    return number + 1


class CeleryQueue(QueueGuest):
    def __init__(self) -> None:
        line = [sys.executable, "-m", "celery", "-A", "queue_celery", "worker"]
        line += ["--pool", "solo", "--loglevel", "CRITICAL", "--without-gossip", "--without-mingle"]
        self._worker = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        add_one.delay(1).get(timeout=120)

    def about(self) -> str:
        return f"Celery {version('celery')} + Redis, no record of steps"

    def workers(self) -> list[int]:
        return [self._worker.pid]

    def dispatch(self, count: int) -> None:
        for result in [add_one.delay(1) for _ in range(count)]:
            result.get(timeout=120)

    def stop(self) -> None:
        self._worker.kill()
        self._worker.wait()


if __name__ == "__main__":
    sys.modules["queue_celery"] = sys.modules["__main__"]
    serve(CeleryQueue())
