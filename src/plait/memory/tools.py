"""The tools of a memory: an agent remembers, recalls and forgets through them, so that its policy
speaks on each as on any call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from plait.errors import StaleHead
from plait.event import Event
from plait.event.kinds import (
    MemoryKind,
    MessageSaid,
    ModelReplied,
    Scope,
    ToolFailed,
    ToolReturned,
    ValidationRecorded,
)
from plait.memory.evidence import text_of_event
from plait.memory.items import Hit, find_row, item_of
from plait.memory.rows import DECISION_KINDS
from plait.memory.scopes import viewer_of
from plait.memory.words import words_of
from plait.session import Session
from plait.session.events import path_events
from plait.session.value import core_of
from plait.tool import Tool, tool


class ToolMemory(Protocol):
    """The part of a `Memory` that its tools use."""

    def remember(
        self,
        session: Session,
        text: str,
        *,
        scope: Scope,
        evidence: Sequence[Event],
        kind: MemoryKind,
        key: str,
    ) -> Session: ...

    def recall(
        self, session: Session, query: str, *, k: int | None
    ) -> tuple[Session, list[Hit]]: ...

    def forget(self, memory: str, *, session: Session | None, reason: str) -> object: ...

    def names_of(self, session: Session) -> dict[Scope, str]: ...


_TRIES = 100  # each try lost to another writer, which is done now
_LOOKED_AT = 200  # events of the path among which a quotation is looked for
_CITED = frozenset(
    kind.__name__
    for kind in (MessageSaid, ModelReplied, ToolReturned, ToolFailed, ValidationRecorded)
)
_OUTCOMES = {
    "active": "remembered as [m:{id}]",
    "quarantined": "kept as [m:{id}] for review, and not recalled before: {why}",
    "rejected": "not remembered: {why}",
    "proposed": "proposed as [m:{id}]; it is decided when this run ends",
}


def memory_tools(memory: ToolMemory) -> list[Tool[..., Any]]:
    """Return the tools remember, recall and forget of a memory."""

    @tool(effect="pure", timeout_s=60)
    def remember(
        text: str,
        session: Session,
        scope: Scope = "session",
        kind: MemoryKind = "fact",
        key: str = "",
    ) -> str:
        """Remember a statement for later. Quote what was said or observed where you can.

        Args:
            text: one statement that can be understood by itself
            scope: session, agent, workflow, project or user: who is to find it later
            kind: fact, preference, procedure, reflection, failure or resource
            key: what it is about, in a word or two; a later statement with the same key replaces it
        """
        evidence = evidence_for(session, text)
        for _ in range(_TRIES):
            try:
                after = memory.remember(
                    session, text, scope=scope, kind=kind, key=key, evidence=evidence
                )
            except StaleHead:
                session = session.reload()
            else:
                return _outcome_text(memory, session, after)
        raise StaleHead(session.id, session.head, session.head, session.seq)

    @tool(effect="pure", timeout_s=60)
    def recall(query: str, session: Session, k: int = 5) -> str:
        """Search memory for statements that matter to a question.

        Args:
            query: the question, or the words to search for
            k: how many to return at most
        """
        for _ in range(_TRIES):
            try:
                _, hits = memory.recall(session, query, k=k)
            except StaleHead:
                session = session.reload()
            else:
                return "\n".join(map(_hit_text, hits)) or "(nothing in memory matches)"
        raise StaleHead(session.id, session.head, session.head, session.seq)

    @tool(effect="pure", timeout_s=60)
    def forget(memory_id: str, session: Session, reason: str = "") -> str:
        """Forget a statement that turned out to be wrong.

        Args:
            memory_id: its mark, as in m:1a2b3c4d
            reason: why, in a sentence
        """
        for _ in range(_TRIES):
            try:
                memory.forget(memory_id, session=session, reason=reason)
            except StaleHead:
                session = session.reload()
            else:
                return f"forgot {memory_id}"
        raise StaleHead(session.id, session.head, session.head, session.seq)

    return [remember, recall, forget]


def evidence_for(session: Session, text: str) -> list[Event]:
    """Return the events that say a text in its very words, else the reply that asks for it.

    Words of models are no quotation: a model that repeats itself proves nothing.
    """
    core = core_of(session)
    wanted = f" {' '.join(words_of(text))} "
    reply: Event | None = None
    quoted: list[Event] = []
    events = path_events(core.store, core.state.story.path, _CITED, reverse=True)
    for count, (_, event) in enumerate(events):
        if count >= _LOOKED_AT:
            break
        if event.kind == ModelReplied.__name__:
            reply = reply or event
        elif wanted in f" {' '.join(words_of(text_of_event(event, core.store.get_blob)))} ":
            quoted.append(event)
    return quoted[:3] or ([reply] if reply is not None else [core.store.event(session.head)])


def _outcome_text(memory: ToolMemory, before: Session, after: Session) -> str:
    """Return what became of a memory, as the model is told."""
    store = core_of(after).store
    viewer = viewer_of(after, memory.names_of(after))
    for event in store.read(after.id, before.seq + 1, after.seq, reverse=True):
        subject = event.header.causes[0] if event.kind in DECISION_KINDS else event.id
        if event.kind == "MemorySupported":
            subject = event.header.causes[0]
        item = item_of(store, find_row(store, subject, viewer), viewer)
        by = item.standing.by
        why = by.rule if by is not None else ""
        return _OUTCOMES.get(item.state, "noted").format(id=item.short, why=why)
    return "it is remembered already"


def _hit_text(hit: Hit) -> str:
    marks = "".join(f", {mark}" for mark in hit.marks)
    who = f"{hit.speaker}: " if hit.speaker else ""
    return f"[m:{hit.short}] ({hit.kind}, {hit.trust}{marks}) {who}{hit.text}"
