"""What a cluster refuses: typed errors, and nothing written; or a row whose `why` says what it
waits for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import pytest

from plait import Cluster, Session, migrate_store, open_store
from plait.cluster import Worker, drive
from plait.errors import (
    BadAddress,
    InvalidValue,
    NotASession,
    NotMigrated,
    NotPortable,
    RunOpen,
    StoreDenied,
    TaskCancelled,
    TaskPending,
    UnknownRevision,
    UnknownWorker,
    WorkerNameTaken,
    WrongStatus,
)
from plait.store import Store
from tests.cli.shell import Shell, shell
from tests.cluster.flows import Count
from tests.support import PostgresServer

__all__ = ["shell"]

FLOWS = "tests.cluster.flows"
Serve = Callable[..., Worker]
Refused = tuple[type[Exception], Callable[[Cluster, Session], object]]
ODD: Any = object()

REFUSED: dict[str, Refused] = {
    "labels as a text": (InvalidValue, lambda c, s: c.submit(Count(), s, need="gpu")),
    "labels as a number": (InvalidValue, lambda c, s: c.submit(Count(), s, need=ODD)),
    "labels of numbers": (InvalidValue, lambda c, s: c.submit(Count(), s, need=[ODD])),
    "a label with a space": (InvalidValue, lambda c, s: c.submit(Count(), s, need={"a b"})),
    "a deadline in the past": (InvalidValue, lambda c, s: c.submit(Count(), s, deadline_s=-1)),
    "a deadline of now": (InvalidValue, lambda c, s: c.submit(Count(), s, deadline_s=0)),
    "a deadline before the begin": (
        InvalidValue,
        lambda c, s: c.submit(Count(), s, delay_s=9, deadline_s=8),
    ),
    "a deadline that is no number": (
        InvalidValue,
        lambda c, s: c.submit(Count(), s, deadline_s=math.nan),
    ),
    "a delay in the past": (InvalidValue, lambda c, s: c.submit(Count(), s, delay_s=-1)),
    "a priority beyond": (InvalidValue, lambda c, s: c.submit(Count(), s, priority=101)),
    "no attempts": (InvalidValue, lambda c, s: c.submit(Count(), s, attempts=0)),
    "an unknown revision": (InvalidValue, lambda c, s: c.submit(Count(), s, revision=ODD)),
    "arguments beyond JSON": (NotPortable, lambda c, s: c.submit(Count(), s, path=ODD)),
    "unknown arguments": (InvalidValue, lambda c, s: c.submit(Count(), s, other=1)),
    "no session": (NotASession, lambda c, s: c.submit(Count(), ODD)),
    "no workflow": (InvalidValue, lambda c, s: c.submit(ODD, s)),
    "nothing for a workflow": (InvalidValue, lambda c, s: c.submit(_none(), s)),
    "a class": (InvalidValue, lambda c, s: c.submit(_count_class(), s)),
    "a module": (InvalidValue, lambda c, s: c.submit(FLOWS, s)),
    "a job of zero": (InvalidValue, lambda c, s: c.job(Count(), [])),
    "a job of nothing": (InvalidValue, lambda c, s: c.job(Count(), _none())),
    "a job of texts": (NotASession, lambda c, s: c.job(Count(), [ODD])),
    "a job of one twice": (InvalidValue, lambda c, s: c.job(Count(), [s, s])),
    "a job that never runs": (InvalidValue, lambda c, s: c.job(Count(), [s], parallelism=0)),
    "a job that is over": (InvalidValue, lambda c, s: c.job(Count(), [s], deadline_s=-1)),
    "less than none kept": (InvalidValue, lambda c, s: c.keep("a", Count(), replicas=-1)),
    "kept without a name": (InvalidValue, lambda c, s: c.keep("", Count(), replicas=1)),
    "a map of nothing": (InvalidValue, lambda c, s: list(c.map(Count(), _none()))),
    "a map of texts": (NotASession, lambda c, s: list(c.map(Count(), [ODD]))),
    "a map of zero": (InvalidValue, lambda c, s: list(c.map(Count(), [s], parallelism=0))),
    "a map of a text": (InvalidValue, lambda c, s: list(c.map(Count(), [s], parallelism=ODD))),
    "an unknown job": (UnknownRevision, lambda c, s: c.open_job("nothing")),
    "a session that is no job": (InvalidValue, lambda c, s: c.open_job(s.id).status),
    "an unknown worker": (UnknownWorker, lambda c, s: c.drain("nobody")),
    "an unknown session": (UnknownRevision, lambda c, s: drive("nothing", store=c.store)),
    "no stores": (InvalidValue, lambda c, s: Cluster([])),
    "no store": (InvalidValue, lambda c, s: Cluster(ODD)),
    "an unknown scheme": (BadAddress, lambda c, s: Cluster("nothing://there")),
    "no workers": (InvalidValue, lambda c, s: c.start([FLOWS], workers=0)),
    "workers without a module": (InvalidValue, lambda c, s: c.start(["nothing.there"])),
    "a worker without modules": (InvalidValue, lambda c, s: Worker(c.store, [])),
    "a worker of a text": (InvalidValue, lambda c, s: Worker(c.store, FLOWS)),
    "a worker of a package": (InvalidValue, lambda c, s: Worker(c.store, ["tests.cluster.none"])),
    "a worker without workflows": (InvalidValue, lambda c, s: Worker(c.store, ["json"])),
    "a worker without a store": (InvalidValue, lambda c, s: Worker([], [FLOWS])),
    "a worker without slots": (InvalidValue, lambda c, s: Worker(c.store, [FLOWS], slots=0)),
    "a worker of odd slots": (InvalidValue, lambda c, s: Worker(c.store, [FLOWS], slots=ODD)),
    "a worker of two lines": (InvalidValue, lambda c, s: Worker(c.store, [FLOWS], name="a\nb")),
    "a worker of 200 letters": (
        InvalidValue,
        lambda c, s: Worker(c.store, [FLOWS], name="a" * 200),
    ),
    "a worker of odd labels": (InvalidValue, lambda c, s: Worker(c.store, [FLOWS], labels="gpu")),
}


def _none() -> Any:
    return None


def _count_class() -> Any:
    return Count


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_and_nothing_is_written(store: Store, case: str) -> None:
    cluster, session = Cluster(store), Session("Count.", store=store)
    kind, act = REFUSED[case]
    before = store.number
    with pytest.raises(kind):
        act(cluster, session)
    assert store.number == before


def test_sessions_that_cannot_run_are_refused(store: Store) -> None:
    cluster = Cluster(store)
    going = cluster.submit(Count(), Session("Count.", store=store))
    paused, closed = [Session("Count.", store=store) for _ in range(2)]
    paused, closed = paused.pause(), closed.close()
    acts: list[Callable[[Session], object]] = [
        lambda one: cluster.submit(Count(), one),
        lambda one: cluster.job(Count(), [one]),
    ]
    before = store.number
    for session, kind in (
        (going.session, RunOpen),
        (paused, WrongStatus),
        (closed, WrongStatus),
    ):
        for act in acts:
            with pytest.raises(kind):
                act(session)
    with pytest.raises(InvalidValue, match="left to the workers already"):
        cluster.adopt(going.session)
    assert store.number == before


def test_a_result_is_waited_for_so_long(store: Store) -> None:
    task = Cluster(store).submit(Count(), Session("Count.", store=store))
    odd: list[Any] = [-1, math.nan, math.inf, "soon", True]
    for timeout_s in odd:
        with pytest.raises(InvalidValue):
            task.result(timeout_s)
    with pytest.raises(TaskPending, match="no worker serves this store"):
        task.result(0)
    task.cancel("enough")
    with pytest.raises(TaskCancelled, match="enough"):
        task.result(60)


def test_what_nobody_has_is_waited_for_and_said(store: Store, serve: Serve) -> None:
    cluster = Cluster(store)
    tasks = {
        "needs gpu; 1 worker is there with its program, none has gpu": cluster.submit(
            Count(), Session("Count.", store=store), need={"gpu"}
        ),
        f"1 worker is there, none has {FLOWS}:counter": cluster.submit(
            f"{FLOWS}:counter", Session("Count.", store=store)
        ),
    }
    worker = serve(modules=[f"{FLOWS}:Count"])
    other = cluster.submit(Count(), Session("Count.", store=store))
    assert other.result(120).text == "counted"
    for why, task in tasks.items():
        assert why in task.why and not task.is_over() and task.status != "failed"
    with pytest.raises(WorkerNameTaken, match=worker.name):
        Worker(store, [FLOWS], name=worker.name).serve()


def test_stores_that_workers_cannot_use(
    postgres_address: str, shared_postgres: PostgresServer
) -> None:
    with pytest.raises(NotMigrated):
        Cluster(postgres_address)
    guest = f"cluster_guest_{os.getpid()}"
    shared_postgres.execute(f"CREATE ROLE {guest} LOGIN")
    try:
        migrate_store(postgres_address, grant_read=[guest])
        session = Session("Count.", store=open_store(postgres_address))
        theirs = open_store(postgres_address.replace("postgres@", f"{guest}@"))
        before = theirs.number
        with pytest.raises(StoreDenied):
            Cluster(theirs).submit(Count(), Session.open(session.id, store=theirs))
        with pytest.raises(StoreDenied):
            Worker(theirs, [FLOWS]).serve()
        assert theirs.number == before
        theirs.close()
    finally:
        shared_postgres.execute(f"DROP OWNED BY {guest} CASCADE")
        shared_postgres.execute(f"DROP ROLE {guest}")


COMMANDS: dict[str, tuple[int, tuple[str, ...]]] = {
    "has no 'Nothing'": (2, ("submit", f"{FLOWS}:Nothing")),
    "no module 'nothing'": (2, ("submit", "nothing.there:Count")),
    "there is no file": (2, ("submit", "flows.py:Count")),
    "over before the run may begin": (2, ("submit", f"{FLOWS}:Count", "--deadline", "-5")),
    "not a label": (2, ("submit", f"{FLOWS}:Count", "--need", "a b")),
    "unexpected keyword": (2, ("submit", f"{FLOWS}:Count", "--arg", "other=1")),
    "not a time to wait": (2, ("submit", f"{FLOWS}:Count", "--wait", "--timeout", "-3")),
    "there is no wait": (2, ("submit", f"{FLOWS}:Count", "--timeout", "3")),
    "no worker named nobody": (3, ("cluster", "drain", "nobody")),
    "no worker named nobody:": (3, ("cluster", "check", "nobody")),
    "no session is called that": (3, ("cluster", "why", "nothing")),
    "not one of": (2, ("cluster", "runs", "--state", "odd")),
    "is no rung": (2, ("worker", FLOWS, "--isolation", "vm")),
    "has no workflow": (2, ("worker", "json")),
    "there is no module": (2, ("worker", "nothing.there")),
    "is not one": (2, ("worker", FLOWS, "--slots", "0")),
}


@pytest.mark.parametrize("words", COMMANDS)
def test_bad_commands_are_refused_and_nothing_is_written(shell: Shell, words: str) -> None:
    shell("init")
    store = open_store(shell.folder)
    before = store.number
    code, arguments = COMMANDS[words]
    said = shell.error(code, *arguments)
    assert words in said
    assert store.number == before


def test_a_message_to_a_session_that_cannot_run_is_not_said(shell: Shell) -> None:
    shell("submit", f"{FLOWS}:Count", "-i", "Count.")
    store = open_store(shell.folder)
    before = store.number
    assert "has an open run" in shell.error(
        1, "submit", f"{FLOWS}:Count", "--session", "@", "-i", "More."
    )
    paused = shell.new("Hello.")
    shell("pause", paused)
    before = store.number
    assert "paused" in shell.error(
        1, "submit", f"{FLOWS}:Count", "--session", paused, "-i", "More."
    )
    assert store.number == before
