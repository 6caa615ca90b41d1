"""Kinds about runs, calls and effects."""

from __future__ import annotations

from typing import Literal

from plait.event.kinds.base import Body, DurationMicros, EffectClass, MeasuredTime, Purpose
from plait.event.kinds.values import (
    Action,
    Carried,
    Claim,
    Failure,
    File,
    Parts,
    Place,
    Placement,
    Price,
    StateDigest,
    Trees,
    Usage,
    Wishes,
    blobs_of,
    roots_of,
)
from plait.event.strict import Json
from plait.ids import Digest


class RunStarted(Body, frozen=True):
    workflow: str  # import path, as in package.module:Class
    arguments: Json = None
    revision: str = ""
    environment: Json = None
    turn: Digest | None = None  # the TurnPosted that it answers
    version: str = ""  # of the workflow, as its author counts
    wishes: Wishes | None = None  # None: it was called here, and not submitted to a cluster


class RunSubmitted(Body, frozen=True):
    """An open run that was called somewhere is left to the workers of a cluster from here on."""

    run: str
    wishes: Wishes


class RunResumed(Body, frozen=True):
    holder: str
    epoch: int = 0
    branch: bool = False  # True: said in a branch of the run, to the process that held it before
    claim: Claim | None = None  # None: a person or a program resumed it, and no worker


class RunBranched(Body, frozen=True):
    source: Place
    workflow: str
    overrides: Json = None


class ChangeAccepted(Body, frozen=True):
    """The run goes on from here with a changed program: the steps of this log from `at` on are no
    longer its recording.
    """

    run: str
    reason: str
    at: int  # seq of the first recorded step that the program does not make any more
    recorded: str = ""  # that step, in short
    now: str = ""  # the step that the program makes instead


class RunFinished(Body, frozen=True):
    state: StateDigest | None = None


class RunFailed(Body, frozen=True):
    failure: Failure


class RunCancelled(Body, frozen=True):
    reason: str = ""
    # the principal that wished it; "": its process let go of it, and it can be taken up again
    by: str = ""


class CallStarted(Body, frozen=True):
    workflow: str
    path: str
    purpose: Purpose | None = None
    agent: str | None = None
    # the request of an agent besides the story: instruction, tools, view, parameters
    setup: Digest | None = None
    version: str = ""

    def refs(self) -> tuple[Digest, ...]:
        return (self.setup,) if self.setup else ()


class PatchMarked(Body, frozen=True):
    """The run executes the changed code of a patch from here on."""

    name: str


class CallFinished(Body, frozen=True):
    failure: Failure | None = None


class ModelAsked(Body, frozen=True):
    model: str
    prompt: Digest  # of the prompt chain: the previous prompt's digest and the parts appended
    parameters: Json = None
    attempt: int = 1
    reserved: Usage | None = None


class ModelReplied(Body, frozen=True):
    parts: Parts
    usage: Usage
    stop: str
    calls: tuple[Action, ...] = ()
    model: str = ""
    price: Price | None = None  # None: no price is known for this model
    latency_us: DurationMicros = 0
    aside: bool = False  # a selector's: not part of the conversation
    # the agent's call whose guards decide if people see it; "": it is shown as it is
    judged_in: str = ""

    def refs(self) -> tuple[Digest, ...]:
        return blobs_of(self.parts)


class ModelFailed(Body, frozen=True):
    failure: Failure
    attempt: int = 1
    usage: Usage | None = None
    partial: str = ""  # the answer up to the failure
    price: Price | None = None
    latency_us: DurationMicros = 0


class ToolRequested(Body, frozen=True):
    tool: str
    arguments: Json
    effect: EffectClass
    version: str = ""
    reason: str = ""
    policy: Digest | None = None
    attempt: int = 1
    path: str = ""  # of the call that asked for it: review/critics/style
    source: str = ""  # of the tool, if it is not the program itself: mcp:git
    decision: Literal["", "allow", "ask", "refuse"] = ""  # of the policy; "": there is none
    # the same call, before a change of the program was accepted. None: it is a new one
    carries: Carried | None = None
    # it is not run before then, since the attempt before failed. None: at once
    due: MeasuredTime | None = None


class ToolReturned(Body, frozen=True):
    parts: Parts
    exit_code: int | None = None
    trees: Trees | None = None
    placement: Placement | None = None
    delta: Json = None
    attempt: int = 1
    duration_us: DurationMicros = 0
    # evidence that no model is shown: a whole output, a page as it came
    kept: tuple[File, ...] = ()

    def refs(self) -> tuple[Digest, ...]:
        return (*blobs_of(self.parts), *roots_of(self.trees), *blobs_of(self.kept))


class ToolFailed(Body, frozen=True):
    failure: Failure
    exit_code: int | None = None
    trees: Trees | None = None
    placement: Placement | None = None
    delta: Json = None
    attempt: int = 1
    duration_us: DurationMicros = 0

    def refs(self) -> tuple[Digest, ...]:
        return roots_of(self.trees)


class ToolUnknown(Body, frozen=True):
    """The request is on record and its outcome is not: it may have happened."""

    request: Digest
    why: str = ""
    returns: Json = None  # the JSON schema of its return value. None: anything


class ToolResolved(Body, frozen=True):
    request: Digest
    verdict: Literal["happened", "did_not_happen", "compensated"]
    parts: Parts = ()
    note: str = ""

    def refs(self) -> tuple[Digest, ...]:
        return blobs_of(self.parts)
