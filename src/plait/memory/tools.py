"""The tools of a memory: an agent remembers, recalls and forgets through them, so that its policy
speaks on each as on any call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from plait.errors import StaleHead
from plait.event import Event
from plait.event.kinds import (
    MemoryKind,
    MemoryProposed,
    MemoryRecalled,
    MemoryRejected,
    MemoryRetracted,
    MemorySupported,
    MessageSaid,
    ModelReplied,
    RecallFailed,
    Scope,
    ToolFailed,
    ToolReturned,
    ValidationRecorded,
)
from plait.memory.evidence import text_of_event
from plait.memory.items import Hit, find_row, hits_of, item_of
from plait.memory.rows import DECISION_KINDS
from plait.memory.scopes import viewer_of
from plait.memory.words import words_of
from plait.session import Session
from plait.session.acting import acting_in
from plait.session.events import path_events
from plait.session.origins import ORDINARY
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


# Consent is for a version. A fingerprint would cover the memory, whose index may hold connections:
# another one in each process.
_VERSION = "plait 1"
_TRIES = 100  # each try lost to another writer, which is done now
_QUOTES_MAX = 8
_LOOKED_AT = 200  # events of the path among which a quotation is looked for
_CITED = frozenset(
    kind.__name__
    for kind in (MessageSaid, ModelReplied, ToolReturned, ToolFailed, ValidationRecorded)
)
_REMEMBERED = frozenset(kind.__name__ for kind in (MemoryProposed, MemorySupported, MemoryRejected))
_RECALLED = frozenset({MemoryRecalled.__name__, RecallFailed.__name__})
_FORGOTTEN = frozenset({MemoryRetracted.__name__})
_OUTCOMES = {
    "active": "remembered as [m:{id}]",
    "quarantined": "kept as [m:{id}] for review, and not recalled before: {why}",
    "rejected": "not remembered: {why}",
    "proposed": "proposed as [m:{id}]; it is decided when this run ends",
}


def memory_tools(memory: ToolMemory) -> list[Tool[..., Any]]:
    """Return the tools remember, recall and forget of a memory."""

    @tool(effect="pure", timeout_s=60, version=_VERSION)
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
        if (written := _written_before(session, _REMEMBERED)) is not None:
            return _outcome_text(memory, session.reload(), [written])
        evidence = evidence_for(session, text)
        for _ in range(_TRIES):
            try:
                after = memory.remember(
                    session, text, scope=scope, kind=kind, key=key, evidence=evidence
                )
            except StaleHead:
                session = session.reload()
            else:
                news = core_of(after).store.read(after.id, session.seq + 1, after.seq, reverse=True)
                return _outcome_text(memory, after, news)
        raise StaleHead(session.id, session.head, session.head, session.seq)

    @tool(effect="pure", timeout_s=60, version=_VERSION)
    def recall(query: str, session: Session, k: int = 5) -> str:
        """Search memory for statements that matter to a question.

        Args:
            query: the question, or the words to search for
            k: how many to return at most
        """
        if (written := _written_before(session, _RECALLED)) is not None:
            store = core_of(session).store
            is_found = written.kind == MemoryRecalled.__name__
            return _recall_text(written, hits_of(store, written) if is_found else [])
        for _ in range(_TRIES):
            try:
                after, hits = memory.recall(session, query, k=k)
            except StaleHead:
                session = session.reload()
            else:
                return _recall_text(core_of(after).store.event(after.head), hits)
        raise StaleHead(session.id, session.head, session.head, session.seq)

    @tool(effect="pure", timeout_s=60, version=_VERSION)
    def forget(memory_id: str, session: Session, reason: str = "") -> str:
        """Forget a statement that turned out to be wrong.

        Args:
            memory_id: its mark, as in m:1a2b3c4d
            reason: why, in a sentence
        """
        if _written_before(session, _FORGOTTEN) is not None:
            return f"forgot {memory_id}"
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
    # what came from outside first: results that repeat it must not hide where it came from
    quoted.sort(key=lambda event: event.header.origin in ORDINARY)
    return quoted[:_QUOTES_MAX] or (
        [reply] if reply is not None else [core.store.event(session.head)]
    )


def _recall_text(event: Event, hits: Sequence[Hit]) -> str:
    """Return a recall as the model is told. A broken index must not look like an empty memory."""
    body = event.body
    if isinstance(body, RecallFailed):
        return f"memory could not be searched: {body.failure.kind}: {body.failure.message}"
    return "\n".join(map(_hit_text, hits)) or "(nothing in memory matches)"


def _written_before(session: Session, kinds: frozenset[str]) -> Event | None:
    """Return the last event of these kinds that this very call wrote before its process died.

    The call is made again then, and must not say the same twice.
    """
    call, now = acting_in(session).call, session.reload()
    if call is None:
        return None
    for event in core_of(now).store.read(now.id, 1, now.seq, kinds=kinds, reverse=True):
        if event.header.call == call:
            return event
    return None


def _outcome_text(memory: ToolMemory, session: Session, news: Iterable[Event]) -> str:
    """Return what became of a memory, as the model is told, by the last event about it."""
    store = core_of(session).store
    viewer = viewer_of(session, memory.names_of(session))
    for event in news:
        is_about = event.kind in DECISION_KINDS or event.kind == MemorySupported.__name__
        subject = event.header.causes[0] if is_about else event.id
        item = item_of(store, find_row(store, subject, viewer), viewer)
        by = item.standing.by
        why = by.rule if by is not None else ""
        return _OUTCOMES.get(item.state, "noted").format(id=item.short, why=why)
    return "it is remembered already"


def _hit_text(hit: Hit) -> str:
    marks = "".join(f", {mark}" for mark in hit.marks)
    who = f"{hit.speaker}: " if hit.speaker else ""
    # on one line: a text with a line break could pass for two memories
    return (
        f"[m:{hit.short}] ({hit.kind}, {hit.trust}{marks}) {' '.join(f'{who}{hit.text}'.split())}"
    )
