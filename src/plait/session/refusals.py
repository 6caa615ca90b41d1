"""Messages that no guard let pass as the input of an agent. People see them; no model does.

The verdict of a guard that refused a message names it as its cause. If the guard failed, or refused
it in a branch, the failure of the run names it, until the run is resumed. Verdicts and failures of
older versions name none, and the message stayed in the prompts: runs that are on record from then
replay as they were.
"""

from __future__ import annotations

from typing import NamedTuple

from plait.errors import GuardFailed
from plait.event import Event
from plait.event.kinds import MessageSaid, ModelReplied, RunFailed, RunResumed, ValidationRecorded
from plait.ids import Digest
from plait.session.events import path_events
from plait.session.value import SessionValue, core_of

GUARD = "guard "  # begins the names of the verdicts of guards
WITHHELD = "(a message is withheld: no guard has passed it)"  # what models see in its place
_SPOKEN = frozenset({MessageSaid.__name__, ModelReplied.__name__})
_ENDS = frozenset({RunFailed.__name__, RunResumed.__name__})


class RefusedInput(NamedTuple):
    """A message that a guard refused, and the reason."""

    message: Digest
    guard: str
    reason: str

    @property
    def marker(self) -> str:
        """The text that models see in the place of the message."""
        why = f": {self.reason}" if self.reason else ""
        return f"(a message was refused by the guard {self.guard}{why})"


def refused_input(event: Event) -> RefusedInput | None:
    """Return the message that a verdict refuses. None: the event is no such verdict."""
    if event.kind != ValidationRecorded.__name__ or not event.actor.startswith("service:"):
        return None
    body = event.body
    assert isinstance(body, ValidationRecorded)
    causes = event.header.causes[len(body.evidence) :]
    if body.passed or not body.name.startswith(GUARD) or not causes:
        return None
    detail = body.detail if isinstance(body.detail, dict) else {}
    if detail.get("of") != "input":
        return None
    return RefusedInput(causes[0], body.name.removeprefix(GUARD), str(detail.get("reason", "")))


def refused_messages(session: SessionValue) -> set[Digest]:
    """Return the messages on the path of a session that no model sees, because of guards."""
    core = core_of(session)
    verdicts = path_events(core.store, core.state.story.path, {ValidationRecorded.__name__})
    found = [refused_input(event) for _, event in verdicts]
    refused = {refused.message for refused in found if refused is not None}
    return refused | withheld_messages(session)


def withheld_messages(session: SessionValue) -> set[Digest]:
    """Return the messages over which runs failed, as no guard passed them, and were not resumed."""
    core = core_of(session)
    failures: dict[str | None, Event] = {}
    found: set[Digest] = set()
    for _, event in path_events(core.store, core.state.story.path, _ENDS):
        if event.kind == RunFailed.__name__:
            failures[event.header.run] = event
        else:
            failures.pop(event.header.run, None)
    for failure in failures.values():
        for cause in failure.header.causes:
            # a branch that failed may not have come with a session that was brought here
            is_here = core.store.number_of(cause) is not None
            if is_here and _is_input(failure, core.store.event(cause)):
                found.add(cause)
    return found


def _is_input(failure: Event, cause: Event) -> bool:
    """True if a run failed over this message. A reply may also be the answer that failed."""
    body = failure.body
    assert isinstance(body, RunFailed)
    is_of_guard = body.failure.kind == GuardFailed.__name__
    return cause.kind == MessageSaid.__name__ or (is_of_guard and cause.kind in _SPOKEN)
