"""Turns: messages to a session, each answered by a run of its own, one after another.

A message goes to the session's inbox and stands in a queue there, with those of all threads and
processes. Its client takes the turn when it is the first in the queue and no run is open. The
message in the log and the start of the run that answers it are one append, so a turn is taken once.

A client has a lock for as long as it attends to its turn. The turn of a client that is gone is
taken by the next client, and so is a run that a killed process left. Nothing but the store is
shared between processes; the waits between two looks are short, and shorter for the first in the
queue.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple, Self, cast

import msgspec

from plait.errors import (
    InvalidValue,
    KeyTaken,
    PlaitError,
    RunHeld,
    RunLost,
    RunOpen,
    StaleHead,
    TurnFailed,
    WrongStatus,
)
from plait.event import Event
from plait.event import kinds as k
from plait.event.hidden import without_secrets
from plait.ids import Digest
from plait.inside import Stop
from plait.journal.recorded_run import RecordedRun, last_run
from plait.journal.stops import Parked
from plait.journal.writer import direct_writer
from plait.program import check_workflow
from plait.runtime.attendants import NOBODY, Watch
from plait.runtime.end import outside
from plait.runtime.invoke import Invocation
from plait.runtime.names import import_path
from plait.runtime.process import THIS_PROCESS
from plait.session import Session
from plait.session.acting import acting_in
from plait.session.content import pack
from plait.session.inbox import post
from plait.session.life import check_may
from plait.session.ports import Draft, Position, is_bound, store_at
from plait.session.rows import InboxRows
from plait.session.run_rows import run_of_branch
from plait.session.session import session_at
from plait.session.turn_rows import queued_turns, turn_row, turn_with_key
from plait.session.value import core_of, open_run_of, reload
from plait.store import Row, RunLock, Store
from plait.workflow import Workflow

_FIRST_S, _FIRST_MAX_S = 0.002, 0.025  # between two looks of the first in the queue
_NEXT_S, _NEXT_MAX_S = 0.02, 0.5  # of those behind it, for each place
_LOOK_AHEAD = 16  # places of the queue that are looked at


# ── a look ───────────────────────────────────────────────────────────────────────────────────


class TakeTurn(NamedTuple):
    """Start a run for a turn: one's own, or that of a client which is gone."""

    session: Session
    turn: Event


class TakeUp(NamedTuple):
    """Go on with a run that no process has."""

    session: Session
    run: RecordedRun


class WaitFor(NamedTuple):
    seconds: float


Step = TakeTurn | TakeUp | WaitFor | Session  # a session: the turn is over


class TurnClient:
    """One turn, from its message in the inbox to the end of its run."""

    def __init__(
        self,
        session: Session,
        turn: Digest,
        workflow: Workflow,
        watch: Watch,
        lock: RunLock | None = None,
        posted: Event | None = None,  # None: it was posted before
    ) -> None:
        self.session, self.turn, self.workflow, self.watch = session, turn, workflow, watch
        self._lock, self._posted, self._looks = lock, posted, 0

    @property
    def store(self) -> Store:
        return store_at(self.session.store)

    def look(self) -> Step:
        """Return the step that is due now; raises if the turn cannot go on."""
        # The session is read before the queue: a turn that is taken since then has moved the head,
        # and the append of a second start is refused.
        if self._looks or self._posted is None:  # not just reloaded
            self.session = reload(self.session)
        self._looks += 1
        queue = queued_turns(self.store, self.session.id, _LOOK_AHEAD)
        ahead = next((at for at, each in enumerate(queue) if each["id"] == self.turn), None)
        if ahead is None and (end := turn_row(self.store, self.turn)["end"]) is not None:
            return self._ended_session(int(str(end)))
        session = self.session
        _check_status(session)
        if (run := open_run_of(session)) is not None:
            if self.store.is_locked(run):
                return self._wait(ahead)
            self._check_not_parked(run)
            return self._take_up()
        for first in queue:
            is_mine = first["id"] == self.turn
            if not is_mine and self.store.is_locked(str(first["client"])):
                break
            if not first["taken"]:
                return TakeTurn(session, self._event_of(first))
            if _is_last_run(session, str(first["run"])):  # its process let go of it
                return self._take_up()
            if is_mine:
                why = "its process let go of it, and another run began since"
                raise TurnFailed(session.short, session.seq, why)
        return self._wait(ahead)

    def _event_of(self, row: Row) -> Event:
        if row["id"] == self.turn and self._posted is not None:
            return self._posted
        return self.store.event(Digest(str(row["id"])))

    def _take_up(self) -> TakeUp:
        run = last_run(self.session)
        assert run is not None
        return TakeUp(self.session, run)

    def _wait(self, ahead: int | None) -> WaitFor:
        """Wait a little: the longer, the more turns are before this one.

        None: it has a run.
        """
        if not ahead:
            return WaitFor(min(_FIRST_S * 1.5 ** min(self._looks, 10), _FIRST_MAX_S))
        return WaitFor(min(_NEXT_S * (ahead + 1), _NEXT_MAX_S))

    def _check_not_parked(self, run: str) -> None:
        """Raise Parked if the open run waits for an answer that is not there."""
        asks = self.store.rows(InboxRows.name, "ask", {"run": run, "over": 0}, limit=_LOOK_AHEAD)
        if not asks or self.watch.approver is not None or self.watch.answerer is not None:
            return
        now = direct_writer().source(self.session.store).now(self.session.id, self.session.seq)
        times = [int(str(ask["until"])) for ask in asks if ask["until"] is not None]
        if any([ask["woken"] for ask in asks]) or any([time <= now for time in times]):
            return
        kinds = " and ".join(sorted({str(ask["kind"]) for ask in asks}))
        raise Parked(
            self.session,
            f"its run waits for {kinds}: plait inbox; the turn stands in the queue, and is"
            " answered after it",
        )

    def _ended_session(self, seq: int) -> Session:
        """Return the session after the turn, or raise if it has no answer."""
        here = self.session
        event = next(self.store.read(here.id, seq, seq))
        body = event.body
        if isinstance(body, k.RunFailed):
            last = last_run(here)
            is_last = last is not None and last.id == event.header.run
            why = f"{body.failure.kind}: {body.failure.message}"
            raise TurnFailed(here.short, seq, why, can_resume=is_last)
        if isinstance(body, k.RunCancelled):
            reason = f": {body.reason}" if body.reason else ""
            raise TurnFailed(here.short, seq, f"{body.by} cancelled it{reason}")
        return session_at(Position(here.store, here.id, seq, event.id))

    # ── a step ───────────────────────────────────────────────────────────────────────────────

    def call_of(self, step: TakeTurn, on_start: Callable[[object], object]) -> Invocation:
        """Describe the call that answers a turn."""
        watch = self.watch if step.turn.id == self.turn else NOBODY
        call = self.workflow.invocation(step.session, watch=watch)
        return msgspec.structs.replace(call, turn=step.turn, on_start=on_start)

    def resumption_of(self, step: TakeUp) -> tuple[Session, Workflow | None, Watch]:
        """Return how a run is taken up: with the client's workflow, if the run is of the same."""
        is_same = step.run.workflow == import_path(type(self.workflow))
        watch = self.watch if self.is_mine(step) else NOBODY
        return step.session, self.workflow if is_same else None, watch

    def is_mine(self, step: TakeTurn | TakeUp) -> bool:
        if isinstance(step, TakeTurn):
            return step.turn.id == self.turn
        body = step.run.started.body
        return isinstance(body, k.RunStarted) and body.turn == self.turn

    def is_answered_by(
        self, step: TakeTurn | TakeUp, error: BaseException, *, has_begun: bool
    ) -> bool:
        """True if the next look tells what an error of a step means to this client.

        Another client may have been first. The failure of another client's turn is on record, and
        is not this client's.
        """
        if isinstance(error, (RunHeld, RunLost)) or (
            isinstance(error, (StaleHead, RunOpen)) and not has_begun
        ):
            return True
        if self.is_mine(step) or not isinstance(error, (Exception, Stop)):
            return False
        if isinstance(error, Parked) or open_run_of(reload(self.session)) is None:
            return has_begun or isinstance(step, TakeUp)
        if isinstance(error, PlaitError):
            error.add_note(
                f"The turn of {self.session.short} stands in the queue, behind a run that could"
                " not be taken up."
            )
        return False

    # ── the lock ─────────────────────────────────────────────────────────────────────────────

    def wake_next(self) -> None:
        """Wake the client of the first turn in the queue, if it waits in this process."""
        if len(THIS_PROCESS.waking) < 2:  # this one
            return
        for row in queued_turns(self.store, self.session.id, 1):
            if (wake := THIS_PROCESS.waking.get(str(row["id"]))) is not None:
                wake()

    def release(self) -> None:
        """Attend to the turn no more: if it has not been taken, another client takes it."""
        THIS_PROCESS.waking.pop(self.turn, None)
        if self._lock is not None:
            self._lock.release()

    @classmethod
    def post(
        cls,
        session: Session,
        content: Any,
        workflow: Workflow,
        key: str,
        actor: str | None,
        watch: Watch,
    ) -> Self:
        """Put a message into the queue, and return its client; with a key that is there already,
        that of the turn which has it.
        """
        session = _check_turn(session, workflow, key)
        every = cast("tuple[Any, ...]", content) if isinstance(content, tuple) else (content,)
        parts, blobs = pack(every, "content")
        if not parts:
            raise InvalidValue("content", "nothing is said", "pass a text")
        store = store_at(session.store)
        if key and (known := turn_with_key(store, session.id, key)) is not None:
            _check_same_words(session, known, key, parts)
            return cls(session, known, workflow, watch)
        client, lock = _new_lock(store, session)
        try:
            draft = Draft(k.TurnPosted(parts, client, key), acting_in(session, actor))
            check = _check_key(store, session, key) if key else None
            (turn,) = post(session.store, session.id, [draft], blobs=blobs, check=check)
        except _KeyIsKnown as found:
            lock.release()
            _check_same_words(session, found.turn, key, parts)
            return cls(session, found.turn, workflow, watch)
        except BaseException:
            lock.release()
            raise
        return cls(session, turn.id, workflow, watch, lock, turn)


def _check_turn(session: Session, workflow: object, key: str) -> Session:
    """Return the session as it is now; raises, before anything is written, if there can be no such
    turn.
    """
    if workflow is None:
        raise InvalidValue("workflow", "there is none", "pass the workflow that is to answer")
    check_workflow(workflow)
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue("key", f"a {type(key).__name__} is not a text", 'pass key="request-17"')
    if is_bound(session.run):
        raise InvalidValue(
            "session",
            "it is a value of a run, whose turn this is",
            "call the workflow itself: workflow(session)",
        )
    session = reload(outside(session))
    _check_status(session)
    if core_of(session).is_busy() and open_run_of(session) is None:
        run = run_of_branch(store_at(session.store), session.id) or ""
        raise RunOpen(session.short, run, "take turns", "take them in a fork: session.fork()")
    return session


def _check_status(session: Session) -> None:
    status = core_of(session).life.status
    check_may(session.short, status, "take turns")
    if status == "paused":
        raise WrongStatus(session.short, status, "take turns", "unpause() it first")


class _KeyIsKnown(Exception):
    def __init__(self, turn: Digest) -> None:
        self.turn = turn


def _check_key(store: Store, session: Session, key: str) -> Callable[[object], None]:
    """Return a check that raises if another client posts the same key first."""

    def check(_: object) -> None:
        if (known := turn_with_key(store, session.id, key)) is not None:
            raise _KeyIsKnown(known)

    return check


def _check_same_words(session: Session, turn: Digest, key: str, parts: k.Parts) -> None:
    """Raise if the turn that has this key says something else: a retry says the same."""
    body = store_at(session.store).event(turn).body
    assert isinstance(body, k.TurnPosted)
    if body.parts != without_secrets(k.TurnPosted(parts, "")).parts:
        raise KeyTaken(session.short, key, turn)


def _new_lock(store: Store, session: Session) -> tuple[str, RunLock]:
    """Return the name of a lock that no other client has, and the lock."""
    source = direct_writer().source(session.store)
    for number in count():
        client = str(source.fresh("turn", session.id, session.seq, number))
        try:
            return client, store.lock(client, session.short)
        except RunHeld:  # a seeded source gives the same names to all
            continue
    raise AssertionError


def _is_last_run(session: Session, run: str) -> bool:
    """True if no other run began in a session since this one."""
    last = last_run(session)
    return last is not None and last.id == run
