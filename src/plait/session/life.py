"""A session's life: open, running, waiting, paused, finished, failed, cancelled, closed, archived,
moved.

One small machine, used by the row that a listing shows, by the state and by the verbs that change
it. It runs over a log's own events: a branch inherits the past, and no open work, so it begins its
own life. That a run is interrupted is no event: `status.py` finds it out.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from plait.errors import WrongStatus
from plait.event import Event
from plait.event.kinds import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRequested,
    Body,
    ChangeAccepted,
    ForkedFrom,
    QuestionAnswered,
    QuestionAsked,
    RunBranched,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionArchived,
    SessionArrived,
    SessionClosed,
    SessionMoved,
    SessionOpened,
    SessionPaused,
    SessionResumed,
    TimerFired,
    TimerSet,
    ToolResolved,
    ToolUnknown,
    VerdictAwaited,
    VerdictHeard,
)

RunEnd = Literal["finished", "failed", "cancelled"]
OpenRun = Literal["running", "waiting", "paused", "interrupted"]
Status = Literal[
    "open",
    "running",
    "waiting",
    "paused",
    "interrupted",
    "failed",
    "cancelled",
    "finished",
    "closed",
    "archived",
    "moved",
]

STATUSES: tuple[Status, ...] = get_args(Status)
OPEN_RUN_STATUSES: tuple[OpenRun, ...] = get_args(OpenRun)


class Life(msgspec.Struct, frozen=True, omit_defaults=True):
    run: Literal["", "open"] | RunEnd = ""  # of the last run that began on the log; "": none did
    asks: int = 0  # approvals and questions without an answer yet
    unknown: int = 0  # effects that may have happened
    timers: int = 0  # times and signals that it sleeps for
    verdicts: int = 0  # gates that hold a run
    paused: bool = False
    over: Literal["", "closed", "archived"] = ""
    moved: bool = False  # True: it goes on in another store

    @property
    def status(self) -> Status:
        """The status by the events alone: an open run counts as running."""
        if self.moved:
            return "moved"
        if self.over:
            return self.over
        if self.paused:
            return "paused"
        if self.asks or self.unknown or self.timers or self.verdicts:
            return "waiting"
        if self.run == "open":
            return "running"
        return self.run or "open"


def _names(*kinds: type[Body]) -> frozenset[str]:
    return frozenset(kind.__name__ for kind in kinds)


_BEGINS = _names(SessionOpened, ForkedFrom)
_RUNS = _names(RunStarted, RunResumed, RunBranched)
RUN_STATUS: dict[str, RunEnd] = {
    RunFinished.__name__: "finished",
    RunFailed.__name__: "failed",
    RunCancelled.__name__: "cancelled",
}
_CHANGES = _names(ChangeAccepted)  # nothing waits after it, and the run goes on
_ASKS = _names(ApprovalRequested, QuestionAsked)
_ANSWERS = _names(ApprovalGranted, ApprovalDenied, ApprovalExpired, QuestionAnswered)
# each kind counts in a column of its own: an answer to nothing must not take another's place
_COUNTS = {
    **{name: ("asks", 1) for name in _ASKS},
    **{name: ("asks", -1) for name in _ANSWERS},
    ToolUnknown.__name__: ("unknown", 1),
    ToolResolved.__name__: ("unknown", -1),
    TimerSet.__name__: ("timers", 1),
    TimerFired.__name__: ("timers", -1),
    VerdictAwaited.__name__: ("verdicts", 1),
    VerdictHeard.__name__: ("verdicts", -1),
}
_PAUSES = _names(SessionPaused)
_RESUMES = _names(SessionResumed)
_CLOSES = _names(SessionClosed)
_ARCHIVES = _names(SessionArchived)
_MOVES = _names(SessionMoved)
_ARRIVALS = _names(SessionArrived)

PAUSE_KINDS = _PAUSES | _RESUMES
LIFE_KINDS = (
    _BEGINS
    | _RUNS
    | frozenset(RUN_STATUS)
    | _CHANGES
    | frozenset(_COUNTS)
    | _PAUSES
    | _RESUMES
    | _CLOSES
    | _ARCHIVES
    | _MOVES
    | _ARRIVALS
)


def life_after(life: Life, kind: str) -> Life:
    """Return the life after one more event of this kind."""
    if kind not in LIFE_KINDS:  # as most are
        return life
    if kind in _BEGINS:
        return Life()
    if kind in _RUNS:
        return msgspec.structs.replace(life, run="open")
    if kind in _CHANGES:
        return msgspec.structs.replace(life, asks=0, unknown=0, timers=0, verdicts=0)
    if kind in RUN_STATUS:
        return msgspec.structs.replace(
            life, run=RUN_STATUS[kind], asks=0, unknown=0, timers=0, verdicts=0
        )
    if kind in _COUNTS:
        column, by = _COUNTS[kind]
        return msgspec.structs.replace(life, **{column: max(0, getattr(life, column) + by)})
    if kind in _PAUSES:
        return msgspec.structs.replace(life, paused=True)
    if kind in _RESUMES:
        return msgspec.structs.replace(life, paused=False)
    if kind in _CLOSES:
        return msgspec.structs.replace(life, over="closed")
    if kind in _ARCHIVES:
        return msgspec.structs.replace(life, over="archived")
    if kind in _MOVES or kind in _ARRIVALS:
        return msgspec.structs.replace(life, moved=kind in _MOVES)
    return life


def life_after_event(life: Life, event: Event) -> Life:
    """Return the life after one more event of its log."""
    return life if is_word_to_branch(event) else life_after(life, event.kind)


def is_word_to_branch(event: Event) -> bool:
    """True if an event tells a branch that the run it was forked in has a new holder: no run began
    on the branch itself.
    """
    body = event.body if event.kind == RunResumed.__name__ else None
    return isinstance(body, RunResumed) and body.branch


def is_busy_after(busy: bool | None, kind: str) -> bool | None:
    """Return True if a run is open after one more event of this kind. None: still not known."""
    if kind not in LIFE_KINDS:
        return busy
    return True if kind in _RUNS else False if kind in RUN_STATUS else busy


_OVER: tuple[Status, ...] = ("closed", "archived", "moved")
_LIVE: tuple[Status, ...] = tuple([each for each in STATUSES if each not in _OVER])
_FROM: dict[str, tuple[tuple[Status, ...], str]] = {
    "be paused": (
        tuple([each for each in _LIVE if each != "paused"]),
        "it rests already, or is over",
    ),
    "be unpaused": (("paused",), "there is nothing to take up again"),
    "be closed": (_LIVE, "it is over already"),
    "be archived": (("closed",), "close it first"),
}


def check_status(session: str, status: Status, verb: str) -> None:
    """Raise WrongStatus if a session of this status may not do this.

    A session that is over takes no more events, but can be forked.
    """
    allowed, step = _FROM.get(verb, (_LIVE, "go on in a fork of it"))
    if status not in allowed:
        raise WrongStatus(
            session,
            status,
            verb,
            "it is over already" if verb == "be archived" and status == "archived" else step,
        )
