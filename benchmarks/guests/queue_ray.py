# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Ray: an actor that is called once per task, and appends to a session of Plait what it did."""

import sys
from importlib.metadata import version

import ray
from queue_line import QueueGuest, serve

address = sys.argv[1]


@ray.remote(num_cpus=0)
class Appender:
    def __init__(self, address: str, paths: list[str]) -> None:
        import os

        sys.path[:0] = paths
        from plait import Session, open_store

        self._session, self._store, self.pid = Session, open_store(address), os.getpid()

    def process(self) -> int:
        return self.pid

    def add_one(self, number: int) -> int:
        self._session("Go.", store=self._store).fact("number", number + 1)
        return number + 1


class RayActor(QueueGuest):
    def __init__(self) -> None:
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        self._actor = Appender.remote(address, sys.argv[2:])
        self._process = ray.get(self._actor.process.remote(), timeout=120)

    def about(self) -> str:
        return f"Ray {version('ray')} actor + our append, PostgreSQL"

    def workers(self) -> list[int]:
        return [self._process]

    def dispatch(self, count: int) -> None:
        ray.get([self._actor.add_one.remote(n) for n in range(count)], timeout=120)

    def stop(self) -> None:
        ray.shutdown()


serve(RayActor())
