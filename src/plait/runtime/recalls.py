"""An agent and its memory: it is searched once, before its first ask in a call, and given what
leaves the context.

A search in the store is made at once. Another index may be a server, so a driver waits for it, as
for a model. Taken up again, the recorded recall is the answer and no search is made.
"""

from __future__ import annotations

from plait.errors import StaleHead
from plait.event.kinds import Parts, Scope
from plait.memory.recall import (
    Finder,
    Question,
    has_recorded,
    recall,
    recall_draft,
    search_and_rank,
)
from plait.memory.scopes import owners_of
from plait.runtime.appends import append_at_tip
from plait.runtime.effects import Recall, Remember
from plait.runtime.executing import check_running
from plait.runtime.registry import run_of
from plait.runtime.safe_points import safe_point
from plait.runtime.waits import Answering, Search
from plait.session import Session
from plait.session.content import text_of

QUERY_MAX = 1_000  # characters of a message that memory is searched for


def query_of(heard: Parts) -> str:
    """Return the text to search for: of a long message, how it begins and how it ends."""
    text = text_of(heard).strip()
    if len(text) <= QUERY_MAX:
        return text
    return f"{text[: QUERY_MAX // 2]} {text[-QUERY_MAX // 2 :]}"


def recall_memories(effect: Recall) -> Answering:
    """Search, and record what the agent is shown; a failure is recorded, and the agent goes on."""
    check_running(effect.session)
    session, memory = safe_point(effect.session), effect.memory
    question = Question(
        effect.query,
        memory.k,
        memory.scopes,
        effect.purpose,
        effect.path,
        shown=True,
        tokens_max=memory.tokens_max,
    )
    finder, names = memory.finder(), owners_of(session, memory.agent, memory.workflow)
    if not has_recorded(session):
        run = run_of(session)
        if run is not None:
            run.journal.check_may_act(session)
        if memory.index is not None:
            body, _ = yield Search(lambda: search_and_rank(session, question, names, finder))
            draft = recall_draft(session, body, effect.actor)
            return append_at_tip(session, [draft])[0], None
    return _recall_here(session, question, names, finder, effect.actor), None


def _recall_here(
    session: Session, question: Question, names: dict[Scope, str], finder: Finder, actor: str
) -> Session:
    for _ in range(100):
        try:
            return recall(session, question, names, finder, actor=actor)[0]
        except StaleHead:
            session = session.reload()
    return recall(session, question, names, finder, actor=actor)[0]


def remember_extracts(effect: Remember) -> Session:
    """Propose statements, one after another; the gate decides about each."""
    session = effect.session
    for text, kind, evidence in effect.extracts:
        session = effect.memory.remember(
            session,
            text,
            evidence=evidence,
            kind=kind,
            actor=effect.actor,
            origin=effect.origin,
        )
    return session
