"""What a log of a run has on record: its steps in order, each taken once.

When a run is taken up again, the same `forward` is called from the same value. Whatever it wants to
append is compared with the next step on record; as long as they are the same, the step is answered
from the log and nothing happens in the world. Steps follow each other along the path, never by
number: what other writers put in between is passed over, and what they rewound is gone.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from plait import secrets
from plait.event import Body, Event, without_measured
from plait.event import kinds as k
from plait.event.hidden import without_secrets
from plait.event.vocabulary import VOCABULARY, unchecked_bytes
from plait.ids import LogId
from plait.session.ports import Draft, Position

# About the run, not steps of it.
_ABOUT = frozenset(
    kind.__name__ for kind in (k.RunResumed, k.Bypassed, k.VerdictAwaited, k.VerdictHeard)
)
_ENDED = frozenset({k.RunFailed.__name__, k.RunCancelled.__name__})
_FINISHED = k.CallFinished.__name__
_NO_ORDINARY = _ENDED | {_FINISHED, k.Delivered.__name__}


class Differs(Exception):
    """The program wants another step than the one on record."""

    def __init__(self, recorded: Event | None, wanted: Draft | str) -> None:
        self.recorded, self.wanted = recorded, wanted
        super().__init__("the program goes another way than the record")


class Cursor:
    """The steps of one run in one log, from the first to the last that was there
    when it was read.
    """

    def __init__(
        self,
        log: LogId,
        steps: list[Event],
        at: Position,
        tip: Position,
        *,
        loose: int = 0,
        closed: bool = False,
        stopped: bool = False,
        noted: Container[int] = (),
    ) -> None:
        # places of what was noticed by the way: it rode with the step after it, and nobody else
        # wrote it
        self._noted = noted
        # at: the last step taken; tip: where the log ended
        self.log, self.at, self.tip = log, at, tip
        self.stopped = stopped  # whether its record ends with a call that somebody stopped
        self.closed = closed  # whether nothing may be added to it: it is another run's
        self._steps, self._next = steps, 0
        self._end = len(steps)  # after it come only words on how a run failed
        while self._end and _is_aftermath(steps[self._end - 1]):
            self._end -= 1
        # what was branched off: so many steps are followed by kind, tool and order only
        self._loose = loose

    def before_branch(self, ahead: int = 0) -> bool:
        """Whether the next step, or the one so many further, is one of the run this one was
        branched off.
        """
        return self._next + ahead < self._loose

    def goes_on(self, ahead: int) -> bool:
        """Whether there is anything after so many further steps but how a failure was described."""
        return self._next + ahead < self._end

    @property
    def over(self) -> bool:
        """Whether every step was taken, or only what describes a failure is left."""
        return self._next >= self._end

    @property
    def ends(self) -> bool:
        """Whether nothing is left but the end of the run."""
        at = self._next
        while at < len(self._steps):
            step = self._steps[at]
            body = step.body if step.kind == k.Delivered.__name__ else None
            if isinstance(body, k.Delivered):  # the wish that it end, say
                at += body.copies
            elif step.kind not in _ENDED and not _is_aftermath(step):
                return False
            at += 1
        return True

    def peek(self, ahead: int = 0) -> Event | None:
        """The next step, or the one so many further."""
        at = self._next + ahead
        return self._steps[at] if at < len(self._steps) else None

    def gap(self) -> int:
        """The last place before the next step: others may have written since the one before.

        The tip's, if there is none.
        """
        step = self.peek()
        if step is None or self.over:
            return self.tip.seq
        place = step.seq - 1
        while place in self._noted:
            place -= 1
        return place

    def match(self, draft: Draft) -> Event | None:
        """The step this draft is; None: the record ends before it."""
        at = self._next
        while at < len(self._steps):
            if self._same(draft, at):
                return self._took(at)
            if not _is_aftermath(self._steps[at]):
                raise Differs(self._steps[self._next], draft)
            at += 1  # how a run that failed described its end; taken up again it may go on instead
        return None

    def take(self, calls: Container[str | None]) -> Event | None:
        """Consume the next step, if it belongs to one of these calls."""
        at = self._ahead(calls)
        return self._took(at) if at is not None else None

    def next_of(self, calls: Container[str | None]) -> Event | None:
        at = self._ahead(calls)
        return self._steps[at] if at is not None else None

    def delivers_after(self, drafts: Sequence[Draft]) -> bool:
        """Whether these drafts are the next steps, and a delivery comes right after them."""
        at = self._next
        for draft in drafts:
            while (
                at < len(self._steps)
                and not self._same(draft, at)
                and _is_aftermath(self._steps[at])
            ):
                at += 1
            if at == len(self._steps) or not self._same(draft, at):
                return False
            at += 1
        return at < len(self._steps) and self._steps[at].kind == k.Delivered.__name__

    def take_delivery(self) -> list[Event]:
        """What was delivered from the inbox at this point; nothing, if nothing was."""
        step = self.peek()
        if step is None or step.kind != k.Delivered.__name__:
            return []
        body = step.body
        assert isinstance(body, k.Delivered)
        # What was repeated follows at once; a rewind may have cut some of it off.
        last = step.seq + body.copies
        found: list[Event] = []
        while (step := self.peek()) is not None and step.seq <= last:
            found.append(self._took(self._next))
        return found

    def left(self) -> Event | None:
        """The first step that nobody took. None: there is none."""
        return next((step for step in self._steps[self._next :] if not _is_aftermath(step)), None)

    def follows(self, place: int) -> bool:
        """Whether an ordinary step comes right after this place: nothing was delivered there,
        nobody wrote, it is not the end.
        """
        step = self.peek()
        return step is not None and step.header.seq == place + 1 and step.kind not in _NO_ORDINARY

    def _ahead(self, calls: Container[str | None]) -> int | None:
        for at in range(self._next, self._end):
            step = self._steps[at]
            if not _is_aftermath(step):
                return at if step.header.call in calls else None
        return None

    def _took(self, at: int) -> Event:
        step = self._steps[at]
        self._next = at + 1
        self.at = Position(self.at.store, self.log, step.seq, step.id, self.at.run)
        return step

    def _same(self, draft: Draft, at: int) -> bool:
        (body, act), step = draft, self._steps[at]
        if type(body).__name__ != step.kind:
            return False
        if at < self._loose:
            return not isinstance(body, k.ToolRequested) or body.tool == _tool_of(step)
        if step.header.call != act.call or step.header.actor != act.actor:
            return False
        if secrets.is_armed():
            body = without_secrets(body)
        # The bytes as they come are enough if they are the same: those on record were checked when
        # they were written.
        return (
            unchecked_bytes(body) == step.content
            or VOCABULARY.encode(body) == step.content
            or _comparable(body) == _comparable(step.body)
        )


def ends_stopped(run: str, events: Sequence[Event]) -> bool:
    """Whether the last thing that a run did in a log was to stop there."""
    for event in reversed(events):
        if event.header.run == run and event.kind not in _ABOUT and event.kind not in _ENDED:
            body = event.body
            return (
                isinstance(body, k.CallFinished)
                and body.failure is not None
                and body.failure.kind == "Cancelled"
            )
    return False


def steps_of(run: str, events: Sequence[Event]) -> list[Event]:
    """The steps of a run among the events of a log, one after another, from one range scan."""
    steps: list[Event] = []
    for event in _along(run, events):
        if event.kind == k.RunResumed.__name__:
            _reopen(steps)
        elif event.kind not in _ABOUT:
            steps.append(event)
    return steps


def noted_in(run: str, events: Sequence[Event]) -> frozenset[int]:
    """Where a run noted that something went around it."""
    return frozenset(
        [
            event.seq
            for event in events
            if event.kind == k.Bypassed.__name__ and event.header.run == run
        ]
    )


def _reopen(steps: list[Event]) -> None:
    """It was taken up again: how it ended and described that is no step any more, nor that the
    budget had nothing left for it.
    """
    while steps and (steps[-1].kind in _ENDED or _is_aftermath(steps[-1])):
        steps.pop()
    body = steps[-1].body if steps and steps[-1].kind == k.BudgetRefused.__name__ else None
    if isinstance(body, k.BudgetRefused) and body.final:
        steps.pop()


def _along(run: str, events: Sequence[Event]) -> list[Event]:
    """Events of the run, back from the last: a rewind by another writer jumps to its target, which
    may itself have been rewound before.
    """
    found: list[Event] = []
    at = len(events) - 1
    while at >= 0:
        event = events[at]
        at -= 1
        if event.header.run == run:
            found.append(event)
        elif isinstance(event.body, k.Rewound):
            at = event.body.to - events[0].seq
    return found[::-1]


def _is_aftermath(step: Event) -> bool:
    """Whether a step only says that a call failed, as a run does of all its calls when it ends."""
    if step.kind != _FINISHED:
        return False
    body = step.body
    return isinstance(body, k.CallFinished) and body.failure is not None


def _comparable(body: Body) -> Body:
    """Without what a clock decides, where in which file an error was raised, and what a policy
    said: that is not decided again.
    """
    if isinstance(body, k.ToolRequested):
        # a tool described anew is still that tool
        return msgspec.structs.replace(body, policy=None, decision="", version="")
    if isinstance(body, k.ModelAsked):
        return msgspec.structs.replace(body, reserved=None)
    if isinstance(body, k.CallStarted):
        # a script is __main__ when it is run
        return msgspec.structs.replace(body, workflow=body.workflow.rpartition(":")[2])
    if isinstance(body, k.GateRequired):
        return msgspec.structs.replace(body, by="")  # whom a gate names, and how, is on record
    if isinstance(body, k.ValidationRecorded):
        return msgspec.structs.replace(body, by=())
    failure = getattr(body, "failure", None)
    if isinstance(failure, k.Failure):
        # who stops a branch, and when, says it in other words each time
        said = "" if failure.kind == "Cancelled" else failure.message
        body = msgspec.structs.replace(
            body, failure=msgspec.structs.replace(failure, traceback="", message=said)
        )
    return without_measured(body)


def _tool_of(step: Event) -> str:
    body = step.body
    return body.tool if isinstance(body, k.ToolRequested) else ""


def told(step: Event | Draft | str | None) -> dict[str, object]:
    """One side of a difference, for people and programs: its kind and what it says."""
    if step is None:
        return {"kind": "(nothing)"}
    if isinstance(step, str):
        return {"kind": step}
    kind, body = (
        (step.kind, step.body) if isinstance(step, Event) else (type(step.body).__name__, step.body)
    )
    # A fact has a kind of its own, which is not that of its event.
    return {
        "kind": kind,
        **{
            f"{name}_" if name == "kind" else name: value
            for name, value in msgspec.to_builtins(body).items()
        },
    }
