"""Effects: the requests of an agent to the runtime.

An effect carries the session, and its answer gives the next one back: an agent itself appends
nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from plait.calls.model_call import Retry
from plait.event import Event, Json
from plait.event.kinds import Action, Data, MemoryKind, Purpose, Scope
from plait.ids import Digest
from plait.memory.recall import Finder
from plait.model.base import Choice, Model
from plait.runtime.extraction import Extract
from plait.runtime.prompt.prompt import Prompt
from plait.session import Session
from plait.session.acting import Because
from plait.session.ports import Draft
from plait.tool import Tool


class AskModel(NamedTuple):
    """Ask a model; each attempt is recorded, and the reply with the calls it asks for.

    Answer: (session, Answer).
    """

    session: Session
    prompt: Prompt
    model: Model
    actor: str
    path: str
    tools: Mapping[str, Tool[..., Any]] = {}
    choice: Choice = "auto"
    forced: str = ""  # with the choice "any": the tool to call. "": any of them
    retry: Retry = Retry()
    aside: bool = False  # not part of the conversation: only the asking program sees the reply
    # a model that was put in its place has answered nothing of what was there before
    fresh: bool = False


class Answer(NamedTuple):
    """A reply as it was recorded."""

    id: Digest
    text: str
    data: Data | None  # of a reply that was to have a shape; None: it is none
    calls: tuple[Action, ...]  # what it asks for
    # those of them that can be run; why the others cannot is on record already
    runnable: tuple[Action, ...]
    stop: str
    requests: Mapping[str, Event] = {}  # by call: what is on record of each
    # by call: the arguments as the model gave them, where secrets were taken out of the record
    spoken: Mapping[str, Json] = {}


class UseTools(NamedTuple):
    """Run calls whose requests are on record, side by side where they may, and record each outcome.

    Answer: (session, outcomes by call), without the last outcome if that is not written yet.
    """

    session: Session
    calls: tuple[Action, ...]
    tools: Mapping[str, Tool[..., Any]]
    actor: str
    path: str
    requests: Mapping[str, Event]
    spoken: Mapping[str, Json] = {}
    is_written: bool = False  # True: every outcome is written, the last one, too


class Tell(NamedTuple):
    """Say something as the runtime: to the agent, or in its place. Answer: (session, None)."""

    session: Session
    text: str
    role: Literal["user", "assistant"] = "user"
    aside: str = ""  # the one agent who is to see it; "": it is part of the conversation


@runtime_checkable
class AgentMemory(Protocol):
    """A memory as an agent uses it, as `plait.Memory` is."""

    agent: str
    workflow: str
    k: int
    tokens_max: int
    scopes: tuple[Scope, ...] | None
    index: Any  # None: the store's own

    def finder(self) -> Finder: ...
    def remember(
        self,
        session: Session,
        text: str,
        *,
        evidence: Because,
        kind: MemoryKind,
        actor: str | None,
        origin: str | None,
    ) -> Session: ...


class Recall(NamedTuple):
    """Search a memory for the last message of another in a prompt, and record what the prompt shows
    of it. Answer: (session, None).
    """

    session: Session
    memory: AgentMemory
    prompt: Prompt
    actor: str
    path: str
    purpose: Purpose | None = None


class Remember(NamedTuple):
    """Propose statements as memories of the session, each with its evidence.

    Answer: (session, None).
    """

    session: Session
    memory: AgentMemory
    extracts: Sequence[Extract]
    actor: str
    origin: str


class Record(NamedTuple):
    """Record an act of the agent itself, as in a compaction.

    Answer: (session, the events).
    """

    session: Session
    drafts: Sequence[Draft]
    blobs: Mapping[Digest, bytes] = {}


Effect = AskModel | UseTools | Tell | Recall | Remember | Record
T = TypeVar("T")
EffectGenerator = Generator[Effect, tuple[Session, Any], T]
