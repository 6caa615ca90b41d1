"""Waits: requests to a driver to wait for something, the one thing in which drivers differ."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from plait.event import Json
from plait.event.kinds import Failure
from plait.ids import LogId
from plait.model.base import Model, OnDelta, Request
from plait.model.limits import QueuePlace
from plait.runtime.sandboxes import BatchSandbox, SandboxOutcome
from plait.session import Session
from plait.session.ports import Act
from plait.tool import Tool


class CallModel(NamedTuple):
    """Answer: `Reply` or `Fault`, and how long it took, in microseconds."""

    model: Model
    request: Request
    on_delta: OnDelta | None
    call: str  # the id of the call; a simulation draws lots by it and the attempt
    attempt: int


class Pause(NamedTuple):
    """Wait for so many seconds."""

    seconds: float
    session: Session


class ToolJob(NamedTuple):
    """A tool to be run."""

    number: int
    tool: Tool[..., Any]
    arguments: dict[str, Any]
    call: str
    given: Json = None  # the arguments as recorded
    attempt: int = 1
    site: BatchSandbox | None = None  # the sandbox it runs in, if the tool takes one
    # the session it is handed, and how it acts on it; None: it takes none
    handed: tuple[LogId, Act] | None = None
    # asked right before it begins: raises if it may not any more
    check: Callable[[], object] | None = None
    # asked then, too: True if it was stopped before it began. None: nothing can stop it
    is_stopped: Callable[[], bool] | None = None
    # asked while its commands run: raises if another process has the run by now
    going: Callable[[], object] | None = None
    delay: Pause | None = None  # it begins only then: the attempt before failed
    on_beat: Callable[[str], object] | None = None  # hears the details of its heartbeats


class Done(NamedTuple):
    """The outcome of a job: a value, or a failure."""

    number: int
    value: Any = None
    failure: Failure | None = None
    duration_us: int = 0
    delta: Json = None
    exit_code: int | None = None
    worked: SandboxOutcome = SandboxOutcome()  # as its sandbox reports
    was_stopped: bool = False  # True: it was not run, since its branch was stopped before


class Launch(NamedTuple):
    """Start these: lanes run side by side, the jobs of one lane one after another.

    Answer: a batch.
    """

    lanes: Sequence[Sequence[ToolJob]]


class Next(NamedTuple):
    """Wait for whichever job of a batch is done next. Answer: `Done`."""

    batch: Any


class Search(NamedTuple):
    """Ask an index of memories that is not the store's own. Answer: what `ask` returns.

    It raises nothing: a failure is an answer.
    """

    ask: Callable[[], Any]


class WaitForPlace(NamedTuple):
    """Wait until a place in the line of a model is free. Answer: None."""

    place: QueuePlace
    session: Session


Wait = CallModel | Launch | Next | Pause | Search | WaitForPlace
Answering = Generator[Wait, Any, tuple[Session, Any]]
