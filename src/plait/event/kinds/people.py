"""Kinds about people and the inbox: approvals, questions, timers, deliveries."""

from __future__ import annotations

from typing import Literal

from plait.event.kinds.base import Body, MeasuredTime
from plait.event.kinds.values import Parts, blobs_of
from plait.event.strict import Json
from plait.ids import Digest, LogId


class ApprovalRequested(Body, frozen=True):
    binding: Digest  # over session, seq, tool and version, arguments, policy
    shown: Json
    expires: MeasuredTime | None = None
    asked: int = 1  # the number of times this call was asked for, this one included


class ApprovalGranted(Body, frozen=True):
    binding: Digest
    # None: as asked; otherwise the corrected arguments, under a binding of their own
    edited: Json = None
    note: str = ""


class ApprovalDenied(Body, frozen=True):
    binding: Digest
    reason: str = ""


class ApprovalExpired(Body, frozen=True):
    binding: Digest


class QuestionAsked(Body, frozen=True):
    question: str
    choices: tuple[str, ...] = ()


class QuestionAnswered(Body, frozen=True):
    question: Digest
    answer: Json


class CancelRequested(Body, frozen=True):
    """A wish that the run end.

    It stands in the inbox; the run reads it before its next effect.
    """

    reason: str = ""


class TimerSet(Body, frozen=True):
    """The run waits: for a time, or for a signal of this name in its inbox."""

    until: MeasuredTime | None = None  # None: as long as it takes
    event: str = ""
    limit: str = ""  # the model whose limits it waits for; "": the program wants to wait


class Signalled(Body, frozen=True):
    """A report that something has happened which a run may wait for."""

    name: str
    value: Json = None


class TimerFired(Body, frozen=True):
    by: Literal["time", "event"]


class TurnPosted(Body, frozen=True):
    """A message that waits in the inbox for a run of its own, behind those before it."""

    parts: Parts
    client: str  # a lock that the process which asked has for as long as it attends to the turn
    key: str = ""  # a second message of the same key is the same turn; "": each is one
    log: LogId | None = None  # the session whose inbox this is; None: not on record
    workflow: str = ""  # import path of the program that is to answer; "": not on record
    target: Json = None  # more to find the program by: its file, its name there, its model

    def refs(self) -> tuple[Digest, ...]:
        return blobs_of(self.parts)


class Delivered(Body, frozen=True):
    """The inbox was read up to a place; its events have now reached the session."""

    inbox: LogId
    upto: int
    copies: int = 0  # the number of events after this one that repeat those of the inbox
