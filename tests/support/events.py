"""The events of a session as a list, and events that only the runtime would write."""

from __future__ import annotations

from typing import Any

import msgspec

from plait import Session
from plait.event import Body, Event
from plait.event.kinds import ModelReplied, Text, Usage
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import position_of


def kinds(session: Session) -> list[str]:
    """The kind of every event of the session."""
    return [event.kind for event in session.events]


def bodies(session: Session, kind: type[Body]) -> list[Any]:
    """The bodies of the session's events of one kind."""
    return [event.body for event in session.events if isinstance(event.body, kind)]


def events_of(session: Session, *kinds: type[Body]) -> list[Event]:
    """The session's events of these kinds."""
    return [event for event in session.events if isinstance(event.body, kinds)]


def record(
    session: Session,
    *bodies: Body,
    call: str | None = None,
    run: str | None = None,
    actor: str = "agent:coder",
    behalf: str | None = None,
) -> Session:
    """The session after events that only the runtime writes."""
    drafts = [Draft(body, Act(actor, "model", behalf=behalf, call=call)) for body in bodies]
    return session_at(
        writer_of(None).append(msgspec.structs.replace(position_of(session), run=run), drafts)
    )


def record_reply(session: Session, tokens: int = 5) -> Session:
    """The session after a model's reply that took so many tokens."""
    return record(
        session,
        ModelReplied((Text("reply"),), Usage(input_tokens=tokens), "end"),
        actor="agent:model",
    )
