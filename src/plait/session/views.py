"""What a session shows of itself: small frozen values, and facts as a mapping that nobody can edit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from plait.event import Event, Json
from plait.event.kinds import MessageSaid, ModelReplied, Parts
from plait.ids import Digest, LogId, Micros
from plait.session.content import text_of, unpack
from plait.session.life import Status
from plait.session.state import Fact, FactKind, Stretch


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
        """What it says in words; images and files are named in brackets."""
        return text_of(self.parts)


def message_of(event: Event, stretch: Stretch, get_blob: Callable[[Digest], bytes]) -> Message:
    body = event.body
    if isinstance(body, MessageSaid):
        return Message(body.role, unpack(body.parts, get_blob), body.name, stretch.branch, event)
    assert isinstance(body, ModelReplied)
    return Message("assistant", unpack(body.parts, get_blob), event.actor.partition(":")[2], stretch.branch, event)


class Facts(Mapping[str, Json]):
    """Facts, decisions and findings by key. A value is decoded anew each time: editing it edits nothing here."""

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
        """The fact itself: its kind, and the event that recorded it."""
        return self._facts[key]

    def only(self, kind: FactKind) -> Facts:
        return Facts({key: fact for key, fact in self._facts.items() if fact.kind == kind})

    def __repr__(self) -> str:
        return repr(dict(self))


class Change(msgspec.Struct, frozen=True):
    """A change of status."""

    status: Status
    seq: int
    time: Micros
    actor: str
    reason: str = ""


class Validation(msgspec.Struct, frozen=True):
    name: str
    passed: bool
    evidence: tuple[Digest, ...]
    detail: Json
    tree: Digest | None
    log: LogId
    seq: int


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
