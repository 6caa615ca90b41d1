"""The recorded steps of a run in one log: in order, each taken once.

When a run is resumed, the same `forward` is called from the same value. Each draft that it appends
is compared with the next recorded step; while they are the same, the step is returned and nothing
happens in the world. Steps follow each other along the path, never by seq: events of other writers
in between are passed over, and events that were rewound are left out.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

import msgspec

from plait import secrets
from plait.event import Body, Event, without_measured
from plait.event import kinds as k
from plait.event.hidden import without_secrets
from plait.event.vocabulary import VOCABULARY, unchecked_bytes
from plait.ids import LogId
from plait.session.ports import Draft, Position

# Events of a run that are no steps: its program does not append them.
_NO_STEPS = frozenset(
    kind.__name__ for kind in (k.RunResumed, k.Bypassed, k.VerdictAwaited, k.VerdictHeard)
)
_ENDED = frozenset({k.RunFailed.__name__, k.RunCancelled.__name__})
_CALL_FINISHED = k.CallFinished.__name__
_MARK = k.PatchMarked.__name__
_DELIVERED = k.Delivered.__name__
_NOT_ORDINARY = _ENDED | {_CALL_FINISHED, _DELIVERED}


class Differs(Exception):
    """The program appends another step than the recorded one."""

    def __init__(self, recorded: Event | None, wanted: Draft | str) -> None:
        self.recorded, self.wanted = recorded, wanted
        super().__init__("the program goes another way than the record")


class Cursor:
    """The steps of one run in one log, from the first to the last one when the log was read.

    When a run fails, it finishes its calls as failed and ends. These last events are its
    aftermath: a resumed run may go on instead, so they are passed over where it does.
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
        # seqs of `Bypassed` and `PatchMarked`: written by the run with the step after it, and no
        # step itself
        self._noted = noted
        # at: after the last step taken; tip: where the log ended
        self.log, self.at, self.tip = log, at, tip
        self.stopped = stopped  # the recording ends with a call that was stopped
        self.closed = closed  # nothing may be added to the log: it is another run's
        # names of patches, by the number of steps before them
        self._marks: dict[int, set[str]] = {}
        if any(step.kind == _MARK for step in steps):
            steps, loose = self._without_marks(steps, loose)
        self._steps, self._next = steps, 0
        self._end = len(steps)  # after it comes the aftermath only
        while self._end and _is_aftermath(steps[self._end - 1]):
            self._end -= 1
        # so many steps are the source run's: they are compared by kind, tool and order only
        self._loose = loose

    def _without_marks(self, steps: list[Event], loose: int) -> tuple[list[Event], int]:
        """Keep the marks of patches apart: a program that has no such patch any more passes them.

        Returns the steps, and how many of them are the source run's.
        """
        kept: list[Event] = []
        of_source = loose
        for number, step in enumerate(steps):
            body = step.body if step.kind == _MARK else None
            if isinstance(body, k.PatchMarked):
                self._marks.setdefault(len(kept), set()).add(body.name)
                of_source -= number < loose
            else:
                kept.append(step)
        return kept, of_source

    def has_mark(self, name: str, ahead: int) -> bool:
        """True if a patch is marked before the next step, or the one so many further."""
        places = range(self._next, self._next + ahead + 1)
        return any(name in self._marks.get(place, ()) for place in places)

    def is_before_branch(self, ahead: int = 0) -> bool:
        """True if the next step, or the one so many further, is one of the source run."""
        return self._next + ahead < self._loose

    @property
    def is_of_other_run(self) -> bool:
        """True if the next step was recorded by the run that this one was branched off."""
        return self.closed or self.is_before_branch()

    def has_steps_after(self, ahead: int) -> bool:
        """True if so many further steps are not the last ones, the aftermath aside."""
        return self._next + ahead < self._end

    @property
    def is_over(self) -> bool:
        """True if every step was taken, the aftermath aside."""
        return self._next >= self._end

    @property
    def has_only_end(self) -> bool:
        """True if nothing is left but the end of the run."""
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
        """Return the next step, or the one so many further."""
        at = self._next + ahead
        return self._steps[at] if at < len(self._steps) else None

    def gap(self) -> int:
        """Return the last seq before the next step: others may have written since the one before.

        It is that of the tip, if no step is left.
        """
        step = self.peek()
        if step is None or self.is_over:
            return self.tip.seq
        seq = step.seq - 1
        while seq in self._noted:
            seq -= 1
        return seq

    def match(self, draft: Draft) -> Event | None:
        """Consume the step that is this draft; None if the recording ends before it.

        Raises `Differs` if the next step is another one.
        """
        at = self._next
        while at < len(self._steps):
            if self._is_same(draft, at):
                return self._take_at(at)
            if not _is_aftermath(self._steps[at]):
                raise Differs(self._steps[self._next], draft)
            at += 1
        return None

    def take(self, calls: Container[str | None]) -> Event | None:
        """Consume the next step, if it belongs to one of these calls."""
        at = self._find_step(calls)
        return self._take_at(at) if at is not None else None

    def peek_call(self, calls: Container[str | None]) -> Event | None:
        """Return the next step, if it belongs to one of these calls."""
        at = self._find_step(calls)
        return self._steps[at] if at is not None else None

    def delivers_after(self, drafts: Sequence[Draft]) -> bool:
        """True if these drafts are the next steps, and a delivery comes right after them."""
        at = self._next
        for draft in drafts:
            while (
                at < len(self._steps)
                and not self._is_same(draft, at)
                and _is_aftermath(self._steps[at])
            ):
                at += 1
            if at == len(self._steps) or not self._is_same(draft, at):
                return False
            at += 1
        return at < len(self._steps) and self._steps[at].kind == k.Delivered.__name__

    def take_delivery(self) -> list[Event]:
        """Consume the delivery at this point: its event and the copies; [] if there is none."""
        step = self.peek()
        if step is None or step.kind != _DELIVERED:
            return []
        body = step.body
        assert isinstance(body, k.Delivered)
        # The copies follow at once; a rewind may have cut some of them off.
        last = step.seq + body.copies
        found: list[Event] = []
        while (step := self.peek()) is not None and step.seq <= last:
            found.append(self._take_at(self._next))
        return found

    def first_untaken(self) -> Event | None:
        """Return the first step that the program did not come to; None if it came to all."""
        return next((step for step in self._steps[self._next :] if not _is_aftermath(step)), None)

    def has_ordinary_step(self, seq: int) -> bool:
        """True if an ordinary step comes right after this seq: no delivery, no event of another
        writer, not the end.
        """
        step = self.peek()
        return step is not None and step.header.seq == seq + 1 and step.kind not in _NOT_ORDINARY

    def _find_step(self, calls: Container[str | None]) -> int | None:
        for at in range(self._next, self._end):
            step = self._steps[at]
            if step.kind != _CALL_FINISHED or not _is_aftermath(step):
                return at if step.header.call in calls else None
        return None

    def _take_at(self, at: int) -> Event:
        step = self._steps[at]
        self._next = at + 1
        self.at = Position(self.at.store, self.log, step.seq, step.id, self.at.run)
        return step

    def _is_same(self, draft: Draft, at: int) -> bool:
        (body, act), step = draft, self._steps[at]
        if type(body).__name__ != step.kind:
            return False
        if at < self._loose:
            return not isinstance(body, k.ToolRequested) or body.tool == _tool_of(step)
        if step.header.call != act.call or step.header.actor != act.actor:
            return False
        if secrets.is_armed():
            body = without_secrets(body)
        if isinstance(body, k.RunFinished):
            return _is_same_end(body, step)
        # The bytes as they come are enough if they are the same: those on record were checked when
        # they were written.
        return (
            unchecked_bytes(body) == step.content
            or VOCABULARY.encode(body) == step.content
            or _comparable(body) == _comparable(step.body)
        )


def _is_same_end(end: k.RunFinished, step: Event) -> bool:
    """Compare the ends of a run by their states, if the same version of the fold made both."""
    recorded = step.body
    assert isinstance(recorded, k.RunFinished)
    folds = [state.fold for state in (end.state, recorded.state) if state is not None]
    return len(set(folds)) == 2 or end == recorded


def ends_stopped(run: str, events: Sequence[Event]) -> bool:
    """True if the last step of a run in a log is a call that was stopped."""
    for event in reversed(events):
        if event.header.run == run and event.kind not in _NO_STEPS and event.kind not in _ENDED:
            body = event.body
            return (
                isinstance(body, k.CallFinished)
                and body.failure is not None
                and body.failure.kind == "Cancelled"
            )
    return False


def steps_of(run: str, events: Sequence[Event]) -> list[Event]:
    """Return the steps of a run among the events of a log, in the order of the path."""
    steps: list[Event] = []
    for event in _events_on_path(run, events):
        if event.kind == k.RunResumed.__name__:
            reopen(steps)
        elif event.kind not in _NO_STEPS:
            steps.append(event)
    return steps


def noted_in(run: str, events: Sequence[Event]) -> frozenset[int]:
    """Return the seqs at which a run noted an act around it, or a patch."""
    return frozenset(
        [
            event.seq
            for event in events
            if event.kind in (k.Bypassed.__name__, _MARK) and event.header.run == run
        ]
    )


def reopen(steps: list[Event]) -> None:
    """Remove the end of a run that was resumed: its aftermath, and that its budget was used up."""
    while steps and (steps[-1].kind in _ENDED or _is_aftermath(steps[-1])):
        steps.pop()
    body = steps[-1].body if steps and steps[-1].kind == k.BudgetRefused.__name__ else None
    if isinstance(body, k.BudgetRefused) and body.final:
        steps.pop()


def _events_on_path(run: str, events: Sequence[Event]) -> list[Event]:
    """Return the events of a run on the path.

    Read back from the last: a rewind by another writer jumps to its target, which may itself have
    been rewound before.
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
    """True if a step only says that a call failed, as a run does of all its calls when it ends."""
    if step.kind != _CALL_FINISHED:
        return False
    body = step.body
    return isinstance(body, k.CallFinished) and body.failure is not None


def _comparable(body: Body) -> Body:
    """Return a body without what may differ: measured times, the traceback of an error, the
    decision of a policy, which is not made again, the effects that a rewind leaves done.
    """
    if isinstance(body, k.ToolRequested):
        # a tool described anew is still that tool
        return msgspec.structs.replace(
            body, policy=None, decision="", version="", carries=None, due=None
        )
    if isinstance(body, k.Rewound):  # they follow from the path, by rules that were mended
        return msgspec.structs.replace(body, not_undone=())
    if isinstance(body, k.ModelAsked):
        return msgspec.structs.replace(body, reserved=None)
    if isinstance(body, k.CallStarted):
        # a script is __main__ when it is run
        return msgspec.structs.replace(body, workflow=body.workflow.rpartition(":")[2], version="")
    if isinstance(body, k.GateRequired):
        return msgspec.structs.replace(body, by="")  # the judge of a gate is on record
    if isinstance(body, k.ValidationRecorded):
        return msgspec.structs.replace(body, by=())
    failure = getattr(body, "failure", None)
    if isinstance(failure, k.Failure):
        # a branch that is stopped is told so in other words each time
        message = "" if failure.kind == "Cancelled" else _without_advice(failure.message)
        body = msgspec.structs.replace(
            body, failure=msgspec.structs.replace(failure, traceback="", message=message)
        )
    return without_measured(body)


def _without_advice(message: str) -> str:
    """Return the text of a failure without the step for callers in Python, which earlier versions
    recorded with it.
    """
    if not message.endswith("error.session."):
        return message
    return re.split(r" (?:It is|The answers are) recorded; ", message)[0]


def _tool_of(step: Event) -> str:
    body = step.body
    return body.tool if isinstance(body, k.ToolRequested) else ""


def describe_step(step: Event | Draft | str | None) -> dict[str, object]:
    """Return one side of a difference, for people and programs: its kind and its fields."""
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
