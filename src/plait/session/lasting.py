"""The outcomes of tool calls that stay in the world when a story is set back.

An outcome lasts if its call did or may have reached beyond the workspace. A call that was refused,
denied or stopped before it began did not, and one that was undone does not any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from plait.event import Event
from plait.event.effect_classes import EFFECTS, was_not_run
from plait.event.kinds import (
    ApprovalGranted,
    ToolFailed,
    ToolRequested,
    ToolResolved,
    ToolReturned,
    ToolUnknown,
)
from plait.ids import Digest

_OUTCOMES = (ToolReturned, ToolFailed, ToolUnknown, ToolResolved)
# the events that tell if a call has happened
CALL_KINDS = frozenset(kind.__name__ for kind in (ToolRequested, ApprovalGranted, *_OUTCOMES))


class LastingCalls:
    """The requests that reach beyond the workspace, each with its last outcome."""

    def __init__(self, events: Iterable[Event]) -> None:
        """`events` are those of a path, or of one call, in their order."""
        self._requests: dict[Digest, Event] = {}  # by their ids
        self._last: dict[str | None, Digest] = {}  # by call: its last request
        self._granted: set[Digest] = set()  # requests that a person consented to
        self._outcomes: dict[Digest, Event] = {}  # by request
        for event in events:
            if event.kind in CALL_KINDS:
                self._take(event)

    def _take(self, event: Event) -> None:
        body, call = event.body, event.header.call
        if isinstance(body, ToolRequested):
            was_granted = self._last.get(call) in self._granted and body.decision != "ask"
            self._requests[event.id], self._last[call] = event, event.id
            if was_granted:  # as the person corrected it
                self._granted.add(event.id)
            return
        request = self._last.get(call, event.id)
        if isinstance(body, ApprovalGranted):
            self._granted.add(request)
            return
        if isinstance(body, (ToolUnknown, ToolResolved)):
            request = body.request
        self._outcomes.pop(request, None)  # they stand in the order of the last ones
        self._outcomes[request] = event

    def outcomes(self) -> list[Event]:
        """Return the outcomes that last; of an attempt with several, the last one."""
        return [
            outcome
            for request, outcome in self._outcomes.items()
            if self._is_outward(request) and _has_happened(outcome)
        ]

    def open_requests(self) -> list[Event]:
        """Return the last requests of calls that have no outcome, and may have been carried out."""
        return [
            self._requests[id]
            for id in self._last.values()
            if id not in self._outcomes and self._is_outward(id) and self._may_have_begun(id)
        ]

    def _is_outward(self, id: Digest) -> bool:
        request = self._requests.get(id)
        body = request.body if request is not None else None
        return not isinstance(body, ToolRequested) or EFFECTS[body.effect].is_outward

    def _may_have_begun(self, id: Digest) -> bool:
        body = self._requests[id].body
        assert isinstance(body, ToolRequested)
        return body.decision != "refuse" and (body.decision != "ask" or id in self._granted)


def _has_happened(outcome: Event) -> bool:
    """True if an outcome says that the call did or may have happened, and was not undone."""
    body = outcome.body
    if isinstance(body, ToolFailed):
        return not was_not_run(body.failure.kind, outcome.header.origin)
    return not isinstance(body, ToolResolved) or body.verdict == "happened"
