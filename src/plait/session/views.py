"""The views that a session returns: small frozen values, and facts as a read-only mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import unquote

import msgspec

from plait.errors.base import brief
from plait.event import Event, Json
from plait.event.kinds import (
    EffectClass,
    Failure,
    File,
    MessageSaid,
    ModelReplied,
    Parts,
    Placement,
    ToolRequested,
    ToolUnknown,
    Trees,
)
from plait.ids import Digest, LogId, Micros, short
from plait.session.content import text_of, unpack, value_of
from plait.session.effect_rows import Outcome, checked_outcome, checked_path, outcome_of
from plait.session.life import OpenRun, RunEnd, Status
from plait.session.state import Fact, FactKind, Span
from plait.session.times import When, parse_when


class Message(msgspec.Struct, frozen=True):
    """One message of the transcript."""

    role: Literal["user", "assistant", "system"]
    parts: Parts
    name: str
    branch: str | None  # the merged branch it came with; None: said on the session's own path
    event: Event  # the one that said it

    @property
    def log(self) -> LogId:
        return self.event.log

    @property
    def seq(self) -> int:
        return self.event.seq

    @property
    def id(self) -> Digest:
        return self.event.id

    @property
    def time(self) -> Micros:
        return self.event.time

    @property
    def actor(self) -> str:
        return self.event.actor

    @property
    def text(self) -> str:
        """The text of its parts; images and files are named in brackets."""
        return text_of(self.parts)


def message_of(event: Event, span: Span, get_blob: Callable[[Digest], bytes]) -> Message | None:
    """Return the message of an event. None: it was said aside, and is none."""
    body = event.body
    assert isinstance(body, (MessageSaid, ModelReplied))
    if body.aside:
        return None
    if isinstance(body, MessageSaid):
        return Message(body.role, unpack(body.parts, get_blob), body.name, span.branch, event)
    return Message(
        "assistant", unpack(body.parts, get_blob), speaker(event.actor), span.branch, event
    )


def speaker(actor: str) -> str:
    """Return the name of an actor: the last part of an agent's path, as it was written."""
    return unquote(actor.partition(":")[2].rpartition("/")[2])


class Facts(Mapping[str, Json]):
    """Facts, decisions and findings by key.

    A value is decoded anew each time: editing it edits nothing here.
    """

    __slots__ = ("_facts",)

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self._facts = {key: fact for key, fact in facts.items() if fact.json is not None}

    def __getitem__(self, key: str) -> Json:
        return self._facts[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def of(self, key: str) -> Fact:
        """Return the fact itself: its kind, and the event that recorded it."""
        return self._facts[key]

    @property
    def decisions(self) -> Facts:
        return self.only("decision")

    @property
    def findings(self) -> Facts:
        return self.only("finding")

    def only(self, kind: FactKind) -> Facts:
        return Facts({key: fact for key, fact in self._facts.items() if fact.kind == kind})

    def __repr__(self) -> str:
        return repr(dict(self))


class StatusChange(msgspec.Struct, frozen=True):
    """A change of status."""

    status: Status
    seq: int
    time: Micros
    actor: str
    reason: str = ""


class Effect(msgspec.Struct, frozen=True):
    """One tool call: its request, its actor and its outcome."""

    tool: str
    arguments: Json
    effect: EffectClass
    actor: str
    path: str  # of the call that asked for it; "": outside of any
    call: str
    request: Event
    outcome: Event | None = None  # None: not known
    parts: Parts = ()
    failure: Failure | None = None
    delta: Json = None  # the change of the observed values
    attempts: int = 1
    duration_us: int = 0
    exit_code: int | None = None
    trees: Trees | None = None  # the files before and after, and the changed paths. None: no files
    placement: Placement | None = None  # where it ran
    kept: tuple[File, ...] = ()  # evidence that no model was shown
    state: Outcome = "open"

    @property
    def result(self) -> Any:
        return value_of(self.parts)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that it changed, at most 1,000."""
        return self.trees.changed if self.trees is not None else ()

    def __repr__(self) -> str:
        end = "returned" if self.failure is None else f"failed: {self.failure.kind}"
        end = end if self.outcome is not None else "has no outcome yet"
        where = f"{short(self.request.log)}@{self.request.seq}"
        return f"<Effect {self.tool} {brief(self.arguments)} {end}, {where}>"


class Effects(list[Effect]):
    """Tool calls with their outcomes, in the order of their requests."""

    __slots__ = ("_last_time",)

    def __init__(self, effects: Iterable[Effect], last_time: Callable[[], Micros]) -> None:
        super().__init__(effects)
        self._last_time = last_time  # of the session's last event

    def where(
        self,
        *,
        tool: str | None = None,
        path: str | None = None,
        outcome: Outcome | None = None,
        since: When | None = None,
    ) -> Effects:
        """Return the calls of this tool, that changed this file or files in this folder, with this
        outcome (`open`, `returned`, `failed`, `unknown`, `undone`), requested since then.

        A span such as "10m" counts back from the session's last event.
        """
        wanted_path = checked_path(path) if path is not None else None
        wanted = checked_outcome(outcome) if outcome is not None else None
        first = parse_when(since, self._last_time(), "since") if since is not None else 0
        found = [
            each
            for each in self
            if tool in (None, each.tool)
            and wanted in (None, each.state)
            and each.request.time >= first
            and (wanted_path is None or _has_path(each, wanted_path))
        ]
        return Effects(found, self._last_time)


def _has_path(effect: Effect, wanted: str) -> bool:
    return any(path == wanted or path.startswith(f"{wanted}/") for path in effect.paths)


def effects_of(
    events: Iterable[tuple[Span, Event]], get_blob: Callable[[Digest], bytes]
) -> list[Effect]:
    found: dict[str, Effect] = {}
    for _, event in events:
        body, key = event.body, event.header.call or event.id
        if isinstance(body, ToolRequested):
            made = Effect(
                body.tool,
                body.arguments,
                body.effect,
                event.actor,
                body.path,
                event.header.call or "",
                event,
            )
            found[key] = msgspec.structs.replace(made, attempts=body.attempt)
        elif (before := found.get(key)) is not None and isinstance(body, ToolUnknown):
            found[key] = msgspec.structs.replace(before, state="unknown")
        elif before is not None:
            found[key] = msgspec.structs.replace(
                before,
                outcome=event,
                state=outcome_of(body),
                parts=unpack(getattr(body, "parts", ()), get_blob),
                failure=getattr(body, "failure", None),
                delta=getattr(body, "delta", None),
                duration_us=getattr(body, "duration_us", 0),
                exit_code=getattr(body, "exit_code", None),
                trees=getattr(body, "trees", None),
                placement=getattr(body, "placement", None),
                kept=getattr(body, "kept", ()),
            )
    return list(found.values())


class RunView(msgspec.Struct, frozen=True):
    """One outermost call of a workflow on a session, and its status."""

    id: str
    workflow: str
    status: OpenRun | RunEnd
    why: str  # it failed or was cancelled; "": neither
    first: int  # the place it began at
    last: int | None  # and ended at; None: it has not


WaitKind = Literal["approval", "question", "unknown", "timer", "verdict"]


class Waiting(msgspec.Struct, frozen=True):
    """An ask that a session waits for: an approval, an answer, the outcome of an effect, a time or
    signal, or the verdict of a gate.
    """

    kind: WaitKind
    event: Digest  # the one that asks
    log: LogId
    seq: int
    since: Micros
    actor: str  # the one that asks
    behalf: str | None = None
    run: str | None = None  # the run it stops; None: it was asked outside of any
    call: str = ""  # the call of the effect
    binding: Digest | None = None  # of an approval: the digest of all that is approved
    shown: Json = None  # of an approval: the data to decide on
    expires: Micros | None = None  # of an approval; None: never
    question: str = ""
    choices: tuple[str, ...] = ()  # of a question; (): anything
    tool: str = ""  # of an approval or an unknown outcome
    arguments: Json = None  # likewise
    request: Digest | None = None  # of an unknown outcome: the event that asked for the effect
    why: str = ""  # of an unknown outcome, or of a verdict: the words of the gate
    until: Micros | None = None  # of a timer; None: as long as it takes
    name: str = ""  # of a timer: the signal that ends it; of a verdict: its own
    by: str = ""  # of a verdict: its judge; "": any
    of: LogId | None = None  # of a verdict: the session it is about. None: the one that waits
    heard: int = 0  # of a verdict: up to where that session's inbox was heard when it was asked for
    returns: Json = None  # of an unknown outcome: the JSON schema of its result. None: anything

    @property
    def session(self) -> str:
        """The short id of the session that waits."""
        return short(self.log)

    def __repr__(self) -> str:
        about = {
            "approval": f"{self.tool} {brief(self.arguments)}",
            "question": brief(self.question),
            "unknown": f"{self.tool} {brief(self.arguments)}",
        }.get(self.kind, self.name)
        return f"<Waiting {self.kind} {about}, {self.session}@{self.seq} {self.event[:12]}>"


class QueuedTurn(msgspec.Struct, frozen=True):
    """A turn that waits for a run: its message has no answer yet."""

    event: Event  # the one in the inbox that posted it
    parts: Parts
    key: str  # "": it has none
    is_attended: bool  # True: the client that posted it still attends to it

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def actor(self) -> str:
        return self.event.actor

    @property
    def time(self) -> Micros:
        return self.event.time

    def __repr__(self) -> str:
        return f"<QueuedTurn {brief(self.text)}, by {self.actor}>"


class Validation(msgspec.Struct, frozen=True):
    name: str
    passed: bool
    evidence: tuple[Digest, ...]
    detail: Json
    tree: Digest | None
    log: LogId
    seq: int
    actor: str = ""
    counts: bool = True  # False: a gate of that name asks for another judge


class Attachment(msgspec.Struct, frozen=True):
    name: str
    parts: Parts
    log: LogId
    seq: int


class Link(msgspec.Struct, frozen=True):
    system: str
    ref: str
    digest: Digest | None
    note: str
    log: LogId
    seq: int
