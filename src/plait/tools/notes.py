"""Notes: facts that an agent wants on record, besides its messages.

They are `pure`: all that they change is the session, and a repeated call records the same under the
same key. A rewind takes them back like everything else on the path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from plait.errors import StaleHead
from plait.event import Json
from plait.event.kinds import FactRecorded, PendingAdded
from plait.session import Session
from plait.session.state import PendingKind
from plait.tool import tool

B = TypeVar("B")

_TRIES = 100  # each try lost to another writer, which is done now


@tool(effect="pure", timeout_s=60)
def note(text: str, session: Session) -> str:
    """Note a finding: something you learned that must not be lost when the conversation gets long.

    Args:
        text: the finding, in a sentence that can be understood by itself
    """
    noted = _record_at_tip(session, lambda now: now.note(text))
    return f"noted as {_last_body(noted, FactRecorded).key}"


@tool(effect="pure", timeout_s=60)
def decide(key: str, value: Json, session: Session, reason: str = "") -> str:
    """Record a decision. The same key again replaces it; what was decided before stays in the history.

    Args:
        key: what it is about, in a word or two, as in database
        value: what was decided: a text, a number, a list or an object
        reason: why, in a sentence
    """  # noqa: E501
    _record_at_tip(session, lambda now: now.decide(key, value, reason=reason))
    return f"decided {key}"


@tool(effect="pure", timeout_s=60)
def todo(what: str, session: Session, kind: PendingKind = "step") -> str:
    """Add something that is still to be done or found out. You get the key to settle it by.

    Args:
        what: the work, in a sentence
        kind: step, question or hypothesis
    """
    added = _record_at_tip(session, lambda now: now.todo(what, kind=kind))
    return f"to do, as {_last_body(added, PendingAdded).key}"


@tool(effect="pure", timeout_s=60)
def settle(key: str, session: Session, outcome: str = "") -> str:
    """Say that something is done, answered or given up.

    Args:
        key: the key that todo gave, or its very words
        outcome: what came of it
    """
    _record_at_tip(session, lambda now: now.settle(key, outcome))
    return f"settled {key}"


def _record_at_tip(session: Session, record: Callable[[Session], Session]) -> Session:
    """Record at the present end of the log: calls of one reply run side by side, and each of them
    writes.
    """
    for _ in range(_TRIES):
        try:
            return record(session)
        except StaleHead:
            session = session.reload()
    return record(session)


def _last_body(session: Session, kind: type[B]) -> B:
    """Return the body of the event that was just recorded."""
    body = session.events[-1].body
    assert isinstance(body, kind)
    return body
