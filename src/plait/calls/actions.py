"""The actions that a call may need next.

Those of a tool call are performed by `runtime/perform.py`, which has a function for each; those of
an ask of a model by `runtime/ask_model.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from plait.event import Event
from plait.event.kinds import Failure


class RunTool(NamedTuple):
    """Run the function: everything it needs is on record."""


class AskPerson(NamedTuple):
    """Ask for consent to exactly this call."""

    again: str = ""  # why consent that was asked for before does not count; "": it was not


class AskApprover(NamedTuple):
    """Hand the open ask to the approver that the caller of the run passed."""


class AskQuestion(NamedTuple):
    """Put the question of a tool that asks a person on record."""


class AskAnswerer(NamedTuple):
    """Hand the open question to the answerer that the caller of the run passed."""


class TakeAnswer(NamedTuple):
    """Settle a question with its answer."""


class TakeEarlier(NamedTuple):
    """Take over the outcome, consent or answer of the same call before the program changed."""

    event: Event


class UseEdited(NamedTuple):
    """Request the call with the arguments that the person who consented put in place."""


class RequestAgain(NamedTuple):
    """Request the call once more under the policies there are now."""

    keeps_consent: bool = False  # it did not happen, so the consent that was given still counts
    is_new: bool = False  # a branch's own call, under a key of its own


class ProbeCall(NamedTuple):
    """Let the tool find out whether the call took place."""

    why: str


class Compensate(NamedTuple):
    """Let the tool undo a call that may have taken place."""

    why: str


class Review(NamedTuple):
    """Leave it to a person to say whether the call took place."""

    why: str


class Fail(NamedTuple):
    """Settle a call that is not run."""

    failure: Failure
    cause: Event | None = None  # a person's word, if that is why
    expires: bool = False  # the ask has expired, which is recorded first


class Stopped(NamedTuple):
    """The call was stopped before it ran, and so is the branch."""


class WaitForPerson(NamedTuple):
    """A person has to decide first."""


class Settled(NamedTuple):
    """The outcome is on record."""

    outcome: Event


Action = (
    RunTool
    | AskPerson
    | AskApprover
    | AskQuestion
    | AskAnswerer
    | TakeAnswer
    | TakeEarlier
    | UseEdited
    | RequestAgain
    | ProbeCall
    | Compensate
    | Review
    | Fail
    | Stopped
    | WaitForPerson
    | Settled
)


# ── asks of a model ──────────────────────────────────────────────────────────────────────────


class RecordAsk(NamedTuple):
    """Put the first attempt on record."""


class RequestReply(NamedTuple):
    """Send the request to the model: the attempt is on record, and made by this process."""


class RecordLoss(NamedTuple):
    """Record that the attempt was lost with the process that made it."""


class RetryAfter(NamedTuple):
    """Wait, then put another attempt on record."""

    seconds: float
    failure: Failure  # of the attempt before


class AskNext(NamedTuple):
    """Leave the model, which is down, and put an attempt at another one of the list on record."""

    failure: Failure  # of the model that is left


class AskAnew(NamedTuple):
    """Leave this ask behind and make another one from here."""


class GiveUp(NamedTuple):
    """The ask has failed: there is no further attempt."""

    failure: Failure


class EndAtBudget(NamedTuple):
    """The last answer that the budget allowed says nothing: the budget has ended the run."""


ModelAction = (
    RecordAsk
    | RequestReply
    | RecordLoss
    | RetryAfter
    | AskNext
    | AskAnew
    | GiveUp
    | EndAtBudget
    | Settled
)
