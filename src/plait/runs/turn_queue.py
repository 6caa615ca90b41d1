"""The queue of a session: the messages that wait for a run, and the step that is due.

Messages of all threads and processes stand in a session's inbox, in their order. A look at the
queue returns one of two steps. The first message is taken if no run is open; the message in the log
and the start of the run that answers it are one append, so a turn is taken once. An open run that
no process has is taken up first. Two that look at the same time may find the same step: one of them
does it, and the next look tells the other.

`TurnClient` (`turns.py`) attends to one turn, `QueueKeeper` to those whose clients are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from plait.errors import (
    NeedsWorkflow,
    PlaitError,
    RunHeld,
    RunLost,
    RunOpen,
    StaleHead,
    WrongStatus,
)
from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest
from plait.inside import Stop
from plait.journal.recorded_run import RecordedRun, last_run
from plait.journal.stops import Cancelled, Parked
from plait.journal.writer import direct_writer
from plait.program import recorded_program
from plait.runtime.attendants import NOBODY, Watch
from plait.runtime.invoke import EnteredCall, Invocation
from plait.runtime.names import import_path
from plait.runtime.process import THIS_PROCESS
from plait.runtime.run import Run
from plait.session import Session
from plait.session.ask_rows import InboxRows
from plait.session.moves import check_may
from plait.session.pauses import is_paused
from plait.session.ports import store_at
from plait.session.status import has_left_turns
from plait.session.turn_rows import queued_turns, run_of_turn
from plait.session.value import core_of, open_run_of, reload
from plait.store import Row, Store
from plait.workflow import Workflow, target_of

LOOK_AHEAD = 16  # places of the queue that are looked at


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


Step = TakeTurn | TakeUp | WaitFor | Session  # a session: there is no more to do


class QueueClient:
    """Looks for the step that is due in the queue of a session, and describes it."""

    def __init__(
        self, session: Session, workflow: Workflow | None, watch: Watch, own: Digest | None
    ) -> None:
        self.session, self.watch = session, watch
        self.own = own  # the turn that it attends to; None: those that no client attends to
        self._workflow = workflow  # None: the one on record with a turn
        self._run: Run | None = None  # the last that it began
        self._is_interrupted = False
        self.has_taken_up = False  # True: a run that no process had

    @property
    def store(self) -> Store:
        return store_at(self.session.store)

    def look(self) -> Step:
        """Return the step that is due now; raises if it cannot go on."""
        raise NotImplementedError

    def due_step(self, queue: Sequence[Row]) -> TakeTurn | TakeUp | None:
        """Return the step that is due. None: it is for others to do."""
        session = self.session
        check_not_over(session)
        if (run := open_run_of(session)) is not None:
            if self.store.is_locked(run):
                return None
            self.check_not_paused()
            self._check_not_parked(run)
            return self._take_up(run)
        first = queue[0] if queue else None
        if first is None or (
            first["id"] != self.own and self.store.is_locked(str(first["client"]))
        ):
            return None
        self.check_not_paused()
        if first["start"] is None:
            return TakeTurn(session, self.event_of(first))
        return self._take_up(str(first["run"]))  # its process let go of it

    def event_of(self, row: Row) -> Event:
        """Return the message of a turn."""
        return self.store.event(Digest(str(row["id"])))

    def _take_up(self, run: str) -> TakeUp | None:
        last = last_run(self.session)
        if last is None or last.id != run:  # it began after the session was read
            return None
        return TakeUp(self.session, last)

    def check_not_paused(self) -> None:
        """Raise Parked if the session is paused: only a person's wish takes it up."""
        session = self.session
        if is_paused(core_of(session)):
            raise Parked(
                session,
                "the session is paused: the turn stands in the queue, and is answered after"
                f" session.unpause(), or `plait resume {session.short}`",
            )

    def _check_not_parked(self, run: str) -> None:
        """Raise Parked if the open run waits for an answer that is not there."""
        asks = self.store.rows(InboxRows.name, "ask", {"run": run, "over": 0}, limit=LOOK_AHEAD)
        has_attendant = self.watch.approver is not None or self.watch.answerer is not None
        if not asks or (has_attendant and self.own in (None, self._turn_of(run))):
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

    def _turn_of(self, run: str) -> Digest | None:
        """Return the own turn, if this is its run."""
        return self.own if self.own is not None and run_of_turn(self.own) == run else None

    # ── a step ───────────────────────────────────────────────────────────────────────────────

    def call_of(self, step: TakeTurn, on_start: Callable[[EnteredCall], object]) -> Invocation:
        """Describe the call that answers a turn."""
        call = self._program_of(step.turn).invocation(step.session, watch=self.watch_of(step))
        return msgspec.structs.replace(call, turn=step.turn, on_start=on_start)

    def _program_of(self, turn: Event) -> Workflow:
        """Return the program that a message is for: that on record, else the client's own."""
        own, body = self._workflow, turn.body
        assert isinstance(body, k.TurnPosted)
        target = cast("Mapping[str, str]", body.target or {})
        if own is not None and (
            turn.id == self.own
            or not body.workflow
            or (body.workflow == import_path(type(own)) and target in ({}, target_of(own)))
        ):
            return own
        try:
            if not body.workflow:
                raise NeedsWorkflow(self.session.short, "a turn", "its program is not on record")
            return recorded_program(self.session.short, body.workflow, target)
        except NeedsWorkflow:
            if own is None:
                raise
            return own

    def resumption_of(self, step: TakeUp) -> tuple[Session, Workflow | None, Watch]:
        """Return how a run is taken up from now on: with the client's workflow, if the run is of
        the same.
        """
        self.has_taken_up = True
        own = self._workflow
        is_same = own is not None and step.run.workflow == import_path(type(own))
        return step.session, own if is_same else None, self.watch_of(step)

    def watch_of(self, step: TakeTurn | TakeUp) -> Watch:
        return self.watch if self.own is None or self.is_own(step) else NOBODY

    def end_step(self, after: Session) -> None:
        """Tell the listener what it has not heard of the client's own turn, up to this value."""

    def is_own(self, step: TakeTurn | TakeUp) -> bool:
        """True if a step is one of the turn that this client attends to."""
        if isinstance(step, TakeTurn):
            return step.turn.id == self.own
        body = step.run.started.body
        return self.own is not None and isinstance(body, k.RunStarted) and body.turn == self.own

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
        if isinstance(error, WrongStatus) and is_paused(core_of(reload(self.session))):
            return True
        if self.is_own(step) or not isinstance(error, (Exception, Stop)):
            return False
        now = reload(self.session)
        is_written = now.head != step.session.head  # else the next look finds the same step
        if is_written and (isinstance(error, Parked) or open_run_of(now) is None):
            return True
        if isinstance(error, PlaitError):
            error.add_note(
                f"A turn of {self.session.short} stands in the queue, behind a run that could not"
                " be taken up."
            )
        return False

    def next_keeper(self) -> QueueKeeper | None:
        """Return a keeper of the messages that a client leaves behind which took a run up. None:
        there are none.

        Messages whose clients were told that the run waits are answered after it. Those clients are
        gone, so the one that took the run up sees to it.
        """
        if self._is_interrupted:
            return None
        now = reload(self.session)
        if open_run_of(now) is not None or not has_left_turns(self.store, now.id):
            return None
        return QueueKeeper(now, self._workflow, NOBODY)

    # ── waiting, and Ctrl-C ──────────────────────────────────────────────────────────────────

    def attend(self, wake: Callable[[], object]) -> None:
        """Let others in this process wake the client when its turn may have come."""
        if self.own is not None:
            THIS_PROCESS.waking[self.own] = wake

    def wake_next(self) -> None:
        """Wake the client of the first turn in the queue, if it waits in this process."""
        if not THIS_PROCESS.waking.keys() - {self.own}:
            return
        for row in queued_turns(self.store, self.session.id, 1):
            if (wake := THIS_PROCESS.waking.get(str(row["id"]))) is not None:
                wake()

    def release(self) -> None:
        """Attend to the turn no more: if it has not been taken, another client takes it."""
        if self.own is not None:
            THIS_PROCESS.waking.pop(self.own, None)

    def begin(self, run: Run) -> None:
        """Note the run that a step has begun."""
        self._run = run
        if self._is_interrupted:  # right before
            run.stops.interrupt()

    def interrupt(self) -> None:
        """Stop before the next effect. A signal handler calls this, so it takes no lock."""
        self._is_interrupted = True
        if self._run is not None:
            self._run.stops.interrupt()

    @property
    def is_interrupted(self) -> bool:
        """True after Ctrl-C."""
        return self._is_interrupted

    def check_interrupt(self) -> None:
        if self._is_interrupted:
            raise Cancelled("Ctrl-C stopped the turn")


class QueueKeeper(QueueClient):
    """Attends to the turns of a session whose clients are gone, until others attend to the rest."""

    def __init__(
        self,
        session: Session,
        workflow: Workflow | None,
        watch: Watch,
        *,
        is_named: bool = False,  # True: a person has named the workflow, for this session
    ) -> None:
        super().__init__(session, workflow, watch, None)
        self._is_named = is_named
        self._error: BaseException | None = None  # the first failure of a turn
        self._before, self._steps = session, 0

    def look(self) -> Step:
        # The session is read before the queue, as `TurnClient.look` does.
        self.session = reload(self.session)
        queue = queued_turns(self.store, self.session.id, LOOK_AHEAD)
        if not queue or core_of(self.session).life.status in ("closed", "archived", "moved"):
            return self.session
        step = self.due_step(queue)
        self._steps += step is not None
        return step or self.session

    def resumption_of(self, step: TakeUp) -> tuple[Session, Workflow | None, Watch]:
        session, workflow, watch = super().resumption_of(step)
        return session, self._workflow if self._is_named else workflow, watch

    def result(self, after: Session) -> Session:
        """Return the session after the last turn, or as it was; raises if a turn failed."""
        if self._error is not None:
            raise self._error
        return after if self._steps else self._before

    def is_answered_by(
        self, step: TakeTurn | TakeUp, error: BaseException, *, has_begun: bool
    ) -> bool:
        """True if the next turn can be answered. A failure is raised after the last one."""
        if isinstance(error, Parked):
            return False
        is_answered = super().is_answered_by(step, error, has_begun=has_begun)
        is_race = isinstance(error, (RunHeld, RunLost, StaleHead, RunOpen)) and not has_begun
        if is_answered and not is_race and self._error is None:
            self._error = error
        return is_answered


def check_not_over(session: Session) -> None:
    """Raise if a session takes no turns any more, or not here."""
    check_may(core_of(session), "take turns")
