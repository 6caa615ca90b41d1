"""A cluster: sessions are submitted to it, and workers anywhere execute them.

It is an address, and no service: the store is the queue, the lock manager and the clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from plait.cluster.choosing import ProjectShare
from plait.cluster.explaining import explain_run
from plait.cluster.submitting import (
    adopt_run,
    make_wishes,
    now_in,
    submit_run,
)
from plait.cluster.worker import ENDED
from plait.cluster.workers import WorkerNotice, ask_drain, live_workers
from plait.errors import InvalidValue, TaskCancelled, TaskFailed, TaskPending
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
        self._shares = dict(shares or {})

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
        if revision not in ("any", "same"):
            raise InvalidValue("revision", f"{revision!r:.40} is not one", 'pass "any" or "same"')
        wishes = make_wishes(
            session,
            now=now_in(store_at(session.store)),
            need=need,
            priority=priority,
            delay_s=delay_s,
            deadline_s=deadline_s,
            attempts=attempts,
            same_code=revision == "same",
        )
        return self.submit_wishes(workflow, session, args, kwargs, wishes)

    def submit_wishes(
        self,
        workflow: Workflow | str,
        session: Session,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        wishes: k.Wishes,
    ) -> Task:
        """Submit a run with wishes that were made before."""
        share = self._shares.get(wishes.project) or self._shares.get("*")
        after, run = submit_run(session, workflow, args, kwargs, wishes, share)
        return Task(after, run)

    def map(
        self,
        workflow: Workflow | str,
        sessions: Iterable[Session],
        *,
        parallelism: int = _PARALLEL,
        **how: Any,
    ) -> Iterator[Session]:
        """Submit a run for each session, so many at a time, and yield the sessions after them, as
        they end. The first that fails is raised; those that were submitted go on.
        """
        if isinstance(parallelism, bool) or parallelism < 1:
            raise InvalidValue(
                "parallelism", f"{parallelism!r:.40} is not a count", "pass 1 or more"
            )
        waiting = iter(sessions)
        going = list[Task]()
        bells = [store.listen(ENDED) for store in self.stores]
        try:
            while True:
                while len(going) < parallelism and (session := next(waiting, None)) is not None:
                    going.append(self.submit(workflow, session, **how))
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

    def adopt(self, session: Session, *, actor: str | None = None, **how: Any) -> Task:
        """Leave a run that was started by a call, and whose process is gone, to the workers."""
        self._check_served(session)
        wishes = make_wishes(session, now=now_in(store_at(session.store)), **how)
        after = adopt_run(session, wishes, actor)
        runs = store_at(after.store).rows(InboxRows.name, "work", {"log": after.id}, limit=1)
        return Task(after, str(runs[0]["run"]))

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
        if session.store not in [store.address for store in self.stores]:
            known = ", ".join(store.address for store in self.stores)
            why = f"it lives in {session.store}, and the cluster serves {known}"
            raise InvalidValue("session", why, "open it in a store of the cluster")


def _open(store: str | Path | Store) -> Store:
    from plait import open_store

    return store if not isinstance(store, (str, Path)) else open_store(store)
