"""Plait on PostgreSQL: a run of one step is submitted, and executed by a worker of this process."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from queue_line import QueueGuest, serve

from cluster_flows import Steps
from plait import Cluster, Session, open_store
from plait.cluster import Worker
from plait.cluster.choosing import Ability, Shares
from plait.cluster.claiming import Claims
from plait.cluster.submitting import now_in
from plait.event import kinds as k
from plait.event import seal_all
from plait.runtime.live import Live

OTHER = "cluster_flows:Stamp"
SOURCE = Live()


class PlaitQueue(QueueGuest):
    def __init__(self, address: str) -> None:
        self._store = open_store(address)
        self._cluster = Cluster(self._store)
        worker = Worker(self._store, ["cluster_flows:Steps"], slots=1)
        threading.Thread(target=worker.serve, daemon=True).start()

    def about(self) -> str:
        return "Plait, PostgreSQL, every step on record"

    def dispatch(self, count: int) -> None:
        tasks = [
            self._cluster.submit(Steps(), Session("Go.", store=self._store)) for _ in range(count)
        ]
        for task in tasks:
            while not task.is_over():
                time.sleep(0.05)

    def fill(self, count: int) -> None:
        started = k.RunStarted(OTHER, wishes=k.Wishes())
        for _ in range(count):
            log = SOURCE.fresh()
            how: dict[str, Any] = {"log": log, "source": SOURCE, "actor": "human:a"}
            (opened,) = seal_all([k.SessionOpened()], seq=1, parents=(), **how)
            (begun,) = seal_all([started], seq=2, parents=(opened.id,), run=str(log), **how)
            self._store.begin(log, [opened, begun])

    def claim(self) -> None:
        # one that has not looked before: a second claim would take what the first look has left
        claims = Claims(self._store, "w", Ability(frozenset({OTHER})), Shares())
        work, _ = claims.claim(now_in(self._store))
        assert work is not None
        work.lock.release()


serve(PlaitQueue(sys.argv[1]))
