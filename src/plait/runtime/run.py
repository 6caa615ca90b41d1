"""A run: one outermost call of a workflow on a session, and everything below it.

`Run` is a struct of parts, each with one subject. Everything they know is kept by log, never by
thread or context; a session finds its run by the id that it carries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from threading import Lock
from typing import Any

from plait import inside
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId
from plait.journal.fence import RunFence
from plait.journal.journal import Journal
from plait.journal.standing import Standing
from plait.journal.writer import DirectWriter
from plait.runtime import bypass
from plait.runtime.listeners import Listeners, OnEvent
from plait.runtime.policy import Policy
from plait.runtime.reads import NOTHING_READ, Calls, Reads, doing
from plait.runtime.run_budgets import RunBudgets
from plait.runtime.settings import Settings
from plait.runtime.stack import CallStack, Frame
from plait.runtime.stops import StopList
from plait.session import Session
from plait.session.ports import Act, Draft, Position
from plait.store import RunLock


class Run:
    """The parts of a run."""

    def __init__(
        self,
        id: str,
        session: Session,
        writer: DirectWriter,
        io: Any,
        *,
        behalf: str,
        on_event: OnEvent | None = None,
    ) -> None:
        self.id, self.root, self.io = id, session.id, io
        self.journal = Journal(id, self.root, writer, behalf=behalf, home=session.store)
        self.stack = CallStack(id, self.root)
        self.stops = StopList(self.journal)
        self.budgets = RunBudgets(self.journal, io.clock)
        self.listeners = Listeners(on_event)
        self.settings = Settings(behalf)
        self.reads = Reads()  # shared with the runs that its code starts
        self.lock: RunLock | None = None  # None in a replay, which locks nothing
        # the events of its recording that were read ahead, until it is let go of
        self.ahead = ExitStack()
        self.holder = ""  # this process, as its RunResumed names it; "": the run was begun here
        self.taker = writer.principal()  # the principal that resumes it
        self.is_claimed = False  # True: a worker executes it, and takes it up again in time
        # the seq of its inbox up to which wishes to cancel were for a run before it
        self.started_at = 0
        # the calls whose branches a replay enters, though their outcomes are on record
        self.entered_calls: frozenset[str] = frozenset()
        # the error that its program raised in this process, which ended the program's work on it
        self.program_error: BaseException | None = None
        # it proposed or confirmed a memory in this process, or merged a branch that may have
        self.has_proposals = False
        self._lock = Lock()
        self._met: set[tuple[str, ...]] = set()
        self.journal.on_append = self._after_append

    @property
    def closed(self) -> bool:
        """True once the run goes on no more in this process."""
        return self.journal.fence.is_closed

    @property
    def is_lost(self) -> bool:
        """True once another process took the run, or ended it."""
        return self.journal.fence.is_lost

    def _after_append(self, events: Sequence[Event]) -> None:
        self.budgets.take_grants(events)
        self.listeners.tell_all(events)

    def note_bypass(self, body: k.Bypassed) -> None:
        """Record an act around the session with the next append to the run's root."""
        if not self.closed:
            self.journal.defer_live(Draft(body, Act("service:plait", "program")))

    def principal(self, log: LogId) -> str:
        """Return the principal that acts in a log: its innermost call, else the caller."""
        return self.stack.principal(log) or self.journal.writer.principal()

    def is_first_time(self, what: tuple[str, ...]) -> bool:
        """True if this is asked for the first time in this execution."""
        with self._lock:
            before = len(self._met)
            self._met.add(what)
            return len(self._met) > before

    def policies_for(self, session: Session) -> tuple[Policy, ...]:
        """Return the policies of the run itself: they apply beyond the recording of its source."""
        policies = self.settings.policies
        if policies and self.journal.standing(session) is Standing.INHERITED:
            return ()
        return policies

    # ── the code that acts ───────────────────────────────────────────────────────────────────

    def calls(self, log: LogId) -> Calls:
        """Return the calls whose code this is: by the context, else those that have the log."""
        here = doing.get()
        context = inside.starter_context() if not here else None
        if context is not None and context.get(running) is self:
            here = context.get(doing, ())
        return here or tuple([frame.call for frame in self.stack.frames(log)])

    def act_of(self, store: str, at: Position | None = None) -> Act:
        """Return how the code here acts on a value: as itself, or as the tool that it is.

        The causes are the places whose content it has read elsewhere.
        """
        act = self.stack.act_of(at)
        if not self.reads.places:
            return act
        read = self.reads.sources(self.calls(at.id if at is not None else self.root), store, at)
        if read is NOTHING_READ:
            return act
        return act._replace(origin=read.origin or act.origin, causes=(*act.causes, *read.causes))


# the run whose code this is, and which call of it; threads that the runtime starts know it, too
running: ContextVar[Run | None] = ContextVar("plait_run", default=None)
acting: ContextVar[Frame | None] = ContextVar("plait_call", default=None)
bypass.bind(running.get)


def run_here() -> Run | None:
    """Return the run whose code this is, also in threads that the code started. Every append asks,
    so it looks for no more.
    """
    run = running.get()
    if run is None and (context := inside.starter_context()) is not None:
        return context.get(running)
    return run


def left_run_here(id: str) -> Run | None:
    """Return the run whose code this is, if it was left in this process, and `id` is its id or that
    of a scope in it. None: it is not so.

    A thread of the program may go on when the run is interrupted. What it still writes belongs
    after the drafts that wait in the journal of this very run.
    """
    run = run_here()
    if run is None or not run.closed or run.is_lost:
        return None
    return run if id == run.id or id.startswith(f"{run.id}/") else None


def _ids_of(run: Run) -> Iterator[str]:
    """Yield the ids of a run, and of the runs whose code started it."""
    fence: RunFence | None = run.journal.fence
    while fence is not None:
        yield fence.run
        fence = fence.outer


inside.bind(running.get, _ids_of)
