"""A cluster: sessions are submitted to it, and workers anywhere execute them.

It is an address, and no service: the store is the queue, the lock manager and the clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from plait.cluster.choosing import ProjectShare
from plait.cluster.explaining import explain_run
from plait.cluster.jobs import Job, submit_job
from plait.cluster.keeping import Kept, keep_sessions
from plait.cluster.processes import WorkerProcesses
from plait.cluster.programs import find_portable
from plait.cluster.shares import check_room, merged_shares
from plait.cluster.submitting import (
    Heads,
    adopt_run,
    check_count,
    check_labels,
    check_wait,
    make_wishes,
    now_in,
    read_session_ahead,
    submit_run,
    submitted_code,
)
from plait.cluster.workers import ENDED, WorkerNotice, ask_drain, live_workers
from plait.errors import (
    InvalidValue,
    NotASession,
    QueueFull,
    TaskCancelled,
    TaskFailed,
    TaskPending,
    UnknownRevision,
)
from plait.event import kinds as k
from plait.ids import Digest
from plait.session import Session
from plait.session.ask_rows import InboxRows
from plait.session.life import Status
from plait.session.ports import Position, store_at
from plait.session.run_rows import find_run_row
from plait.session.session import session_at
from plait.store import Row, Store
from plait.workflow import Workflow

_LOOK_S = 1.0  # between two looks of a waiting caller, without a bell
_PARALLEL = 64


class Task:
    """A submitted run."""

    def __init__(self, session: Session, run: str) -> None:
        self._session, self.run = session, run

    @property
    def session(self) -> Session:
        """The session as it is now."""
        return self._session.reload()

    @property
    def status(self) -> Status:
        return self.session.status

    @property
    def why(self) -> str:
        """Why it runs where it does, or what it waits for."""
        return explain_run(store_at(self._session.store), self._session.id)

    def result(self, timeout_s: float | None = None) -> Session:
        """Wait for the end of the run, and return the session after it.

        Raises TaskFailed or TaskCancelled if it has none, and TaskPending after `timeout_s`: the
        run goes on.
        """
        check_wait(timeout_s)
        store = store_at(self._session.store)
        started = time.monotonic()
        bell = store.listen(ENDED)
        try:
            while (row := self._end_row(store)) is None:
                waited = time.monotonic() - started
                if timeout_s is not None and waited >= timeout_s:
                    raise TaskPending(self._session.short, timeout_s, self.why)
                left = _LOOK_S if timeout_s is None else min(_LOOK_S, timeout_s - waited)
                bell.wait(max(left, 0.001))
        finally:
            bell.close()
        return self._session_after(store, row)

    def cancel(self, reason: str = "", *, actor: str | None = None) -> None:
        """Ask the run to end before its next effect."""
        self.session.inbox.cancel(reason, actor=actor)

    def is_over(self) -> bool:
        """True if the run has ended, and is not tried again."""
        return self._end_row(store_at(self._session.store)) is not None

    def _end_row(self, store: Store) -> Row | None:
        """Return the row of the run if it is over. None: it goes on, or will be tried again."""
        row = find_run_row(store, self.run)
        if row is None or row["status"] == "open":
            return None
        work = store.rows(InboxRows.name, "work", {"run": self.run}, limit=1)
        return None if work and work[0]["state"] != "failed" else row

    def _session_after(self, store: Store, row: Row) -> Session:
        here = self._session
        ends = {kind.__name__ for kind in (k.RunFinished, k.RunFailed, k.RunCancelled)}
        for event in store.read(here.id, int(str(row["seq"])), kinds=ends, reverse=True):
            if event.header.run != self.run:
                continue
            body = event.body
            if isinstance(body, k.RunFailed):
                why = f"{body.failure.kind}: {body.failure.message}"
                raise TaskFailed(here.short, event.seq, why)
            if isinstance(body, k.RunCancelled):
                raise TaskCancelled(here.short, event.seq, body.by, body.reason)
            return session_at(Position(here.store, here.id, event.seq, Digest(event.id)))
        raise AssertionError("the row of a run that is over has an event")

    def __repr__(self) -> str:
        return f"<Task {self._session.short} {self.status}>"


class Cluster:
    """Submits runs to the workers of one store, or of several."""

    def __init__(
        self,
        stores: str | Path | Store | Sequence[str | Path | Store],
        *,
        shares: Mapping[str, ProjectShare] | None = None,
    ) -> None:
        """With several stores, a session is served by the store that it lives in."""
        given = stores if isinstance(stores, Sequence) and not isinstance(stores, str) else [stores]
        if not given:
            raise InvalidValue("stores", "there are none", "pass the address of one")
        self.stores = [_open(each) for each in given]
        self._shares = merged_shares(shares)

    @property
    def store(self) -> Store:
        """The first store: new sessions are opened in it."""
        return self.stores[0]

    def submit(
        self,
        workflow: Workflow | str,
        session: Session,
        *args: Any,
        need: Iterable[str] = (),
        priority: int = 0,
        delay_s: float | None = None,
        deadline_s: float | None = None,
        attempts: int = 1,
        revision: Literal["any", "same"] = "any",
        **kwargs: Any,
    ) -> Task:
        """Start a run that no process has: the next worker that can takes it.

        `args` and `kwargs` are those of `forward`, besides the session. `need` are labels that the
        worker must have. A run that fails is tried `attempts` times, with pauses in between; one
        that has not ended by `deadline_s` is cancelled. `revision="same"` holds it to workers with
        the code of this process.
        """
        self._check_served(session)
        program, same_code = find_portable(workflow), _is_same(revision)
        with read_session_ahead(session) as heads:
            wishes = make_wishes(
                session,
                now=now_in(store_at(session.store)),
                need=need,
                priority=priority,
                delay_s=delay_s,
                deadline_s=deadline_s,
                attempts=attempts,
                same_code=same_code,
                code=submitted_code(program),
            )
            return self.submit_wishes(program, session, args, kwargs, wishes, heads)

    def submit_wishes(
        self,
        program: Workflow,
        session: Session,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        wishes: k.Wishes,
        heads: Heads | None = None,
    ) -> Task:
        """Submit a run of a portable workflow, with wishes that were made before."""
        share = self._share_of(wishes.project)
        after, run = submit_run(session, program, args, kwargs, wishes, share, heads)
        return Task(after, run)

    def check_room(self, project: str) -> None:
        """Raise QueueFull if a project has as many runs in the queue of the first store as it may:
        before a session is opened for one more.
        """
        check_room(self.store, project, self._share_of(project), now_in(self.store))

    def _share_of(self, project: str) -> ProjectShare | None:
        return self._shares.get(project) or self._shares.get("*")

    def map(
        self,
        workflow: Workflow | str,
        sessions: Iterable[Session],
        *,
        parallelism: int = _PARALLEL,
        **how: Any,
    ) -> Iterator[Session]:
        """Submit a run for each session, so many at a time, and yield the sessions after them, as
        they end. The first that fails is raised; those that were submitted go on. If the queue of
        the project is full, the next one is submitted after one has ended.
        """
        check_count("parallelism", parallelism, 1, 10**6)
        waiting = iter(_iterable(sessions))
        going, held = list[Task](), list[Session]()
        bells = [store.listen(ENDED) for store in self.stores]
        try:
            while True:
                while len(going) < parallelism:
                    session = held.pop() if held else next(waiting, None)
                    if session is None:
                        break
                    try:
                        going.append(self.submit(workflow, session, **how))
                    except QueueFull:
                        if not going:
                            raise
                        held.append(session)
                        break
                if not going:
                    return
                ended = [task for task in going if task.is_over()]
                for task in ended:
                    going.remove(task)
                    yield task.result()
                if not ended:
                    bells[0].wait(_LOOK_S if len(bells) == 1 else 0.1)
        finally:
            for bell in bells:
                bell.close()

    def job(
        self,
        workflow: Workflow | str,
        sessions: Iterable[Session],
        *,
        parallelism: int = 4,
        backoff_limit: int | None = None,
        backoff_limit_per_index: int | None = None,
        deadline_s: float | None = 7200,
        ttl_s: float | None = 86400,
        completions: int | None = None,
        need: Iterable[str] = (),
        priority: int = 0,
        revision: Literal["any", "same"] = "any",
        actor: str | None = None,
        **kwargs: Any,
    ) -> Job:
        """Submit a run for each session, at most `parallelism` at a time, and return the job.

        It is complete when `completions` indexes succeeded (None: all). It fails when more than
        `backoff_limit` attempts failed (None: 3, or any number with a limit per index), or after
        `deadline_s`. With `backoff_limit_per_index`, an index that failed more often does not hold
        up the others. Its rows are removed `ttl_s` after its end; logs stay.
        """
        parts = list(_iterable(sessions))
        for part in parts:
            if isinstance(part, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
                self._check_served(part)
        return submit_job(
            workflow,
            parts,
            kwargs,
            parallelism=parallelism,
            backoff_limit=backoff_limit,
            backoff_limit_per_index=backoff_limit_per_index,
            deadline_s=deadline_s,
            ttl_s=ttl_s,
            completions=completions,
            need=need,
            priority=priority,
            same_code=_is_same(revision),
            actor=actor,
        )

    def open_job(self, id: str) -> Job:
        """Return a job by the id of its session, or the start of it."""
        return Job(self._open_session(id))

    def keep(
        self,
        name: str,
        workflow: Workflow | str | None = None,
        *,
        replicas: int,
        need: Iterable[str] = (),
        priority: int = 0,
        project: str | None = None,
        actor: str | None = None,
        **kwargs: Any,
    ) -> Kept:
        """Keep so many sessions of a name at work, in the first store, with the ordinals from 0 on.

        A run that ends is followed by the next one in the same session; after a failure with a
        pause that grows. They are scaled down from the top, and up in order; `replicas=0` ends
        all. Without a workflow, it is the one that was said before.
        """
        return keep_sessions(
            self.store,
            name,
            workflow,
            kwargs,
            replicas=replicas,
            need=need,
            priority=priority,
            project=project,
            actor=actor,
        )

    def open_kept(self, name: str) -> Kept:
        """Return the kept sessions of a name."""
        return Kept(self.store, name)

    def _open_session(self, id: str) -> Session:
        for store in self.stores[:-1]:
            with suppress(UnknownRevision):
                return Session.open(id, store=store)
        return Session.open(id, store=self.stores[-1])

    def adopt(self, session: Session, *, actor: str | None = None, **how: Any) -> Task:
        """Leave a run that was started by a call, and whose process is gone, to the workers."""
        self._check_served(session)
        wishes = make_wishes(session, now=now_in(store_at(session.store)), **how)
        after = adopt_run(session, wishes, actor)
        runs = store_at(after.store).rows(InboxRows.name, "work", {"log": after.id}, limit=1)
        return Task(after, str(runs[0]["run"]))

    def start(
        self,
        modules: Sequence[str],
        *,
        workers: int = 1,
        name: str = "",
        labels: Iterable[str] = (),
        slots: int = 4,
    ) -> WorkerProcesses:
        """Start workers on this machine, each in a process of its own, and keep them alive.

        They serve the workflows of these modules. `stop()` drains them, and so does the end of a
        `with` block, and the end of this process.
        """
        addresses = [store.address for store in self.stores]
        if local := [each for each in addresses if each.startswith("memory:")]:
            step = "open a folder, or serve it in this process with Worker"
            raise InvalidValue("store", f"no other process reaches {local[0]}", step)
        return WorkerProcesses(
            addresses[0],
            modules,
            workers,
            name=name,
            labels=check_labels(labels, "labels"),
            slots=slots,
            shares=self._shares,
            others=addresses[1:],
        ).start()

    def workers(self) -> list[WorkerNotice]:
        """Return the workers that live, by name."""
        return [worker for store in self.stores for worker in live_workers(store)]

    def drain(self, name: str) -> None:
        """Ask a worker to take no more runs, and to let go of those that it has."""
        stores = [each for each in self.stores if name in [w.name for w in live_workers(each)]]
        ask_drain(stores[0] if stores else self.store, name)

    def why(self, session: Session) -> str:
        """Return why a session runs where it does, or what it waits for."""
        return explain_run(store_at(session.store), session.id)

    def _check_served(self, session: Session) -> None:
        if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NotASession("a cluster was given", session)
        if session.store not in [store.address for store in self.stores]:
            known = ", ".join(store.address for store in self.stores)
            why = f"it lives in {session.store}, and the cluster serves {known}"
            raise InvalidValue("session", why, "open it in a store of the cluster")


def _iterable(sessions: Iterable[Session]) -> Iterable[Session]:
    if not isinstance(sessions, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        why = f"a {type(sessions).__name__} is not a list of sessions"
        raise InvalidValue("sessions", why, "pass a list of them")
    return sessions


def _is_same(revision: str) -> bool:
    if revision not in ("any", "same"):
        raise InvalidValue("revision", f"{revision!r:.40} is not one", 'pass "any" or "same"')
    return revision == "same"


def _open(store: str | Path | Store) -> Store:
    from plait import open_store

    if isinstance(store, (str, Path)):
        return open_store(store)
    if not hasattr(store, "append_all"):
        why = f"a {type(store).__name__} is not a store"
        raise InvalidValue("stores", why, "pass an address, or one that is open")
    return store
