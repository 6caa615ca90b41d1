"""The wording of turns: bodies of events as texts and data that a model is shown, bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.event import Json
from plait.event import kinds as k
from plait.event.kinds import Parts
from plait.ids import Digest
from plait.model.base import Said
from plait.runtime.prompt.setup import encode_json
from plait.session import Session
from plait.session.content import unpack
from plait.session.ports import store_at

SHOWN_MAX = 16_000  # characters of one result that a model is shown; all of it is in the log
ASIDE_MAX = 2_000  # of a result that another agent asked for
GO_ON = "Go on."  # said where a model would otherwise have to answer itself
SUMMARY = "(what went before, in short)"
CORRECTED = "({who} corrected the arguments; it was called with {arguments})"
NOT_RUN: Parts = (k.Text("(not run in this branch)"),)
UNKNOWN: Parts = (k.Text("(its outcome is not known: it may have happened)"),)


def blob_reader(session: Session) -> Callable[[Digest], bytes]:
    """Return a function that reads a blob of the session's store. The store is found at the first
    blob, since most prompts need none.
    """
    return lambda name: store_at(session.store).get_blob(name)


def failure_text(kind: str, message: str) -> str:
    return f"{kind}: {message}"


def said_text(text: str) -> Said:
    return Said((k.Text(text),))


def verbatim_parts(parts: Parts) -> Parts:
    """The parts without references to blobs, which are for the store and not for the model."""
    return tuple(
        [k.Text(part.text) if isinstance(part, k.Text) and part.blob else part for part in parts]
    )


def attributed_parts(speaker: str, parts: Parts) -> Parts:
    """The words of another, with the speaker's name before the first."""
    parts = verbatim_parts(parts)
    if not speaker:
        return parts
    if parts and isinstance(parts[0], k.Text):
        return (k.Text(f"[{speaker}] {parts[0].text}"), *parts[1:])
    return (k.Text(f"[{speaker}]"), *parts)


def bounded_parts(parts: Parts, limit: int) -> Parts:
    """Texts and data that fit. A cut is marked in the text, with its size."""
    return tuple([_bounded_part(part, limit) for part in parts]) or (k.Text("(nothing)"),)


def _bounded_part(part: Any, limit: int) -> Any:
    if isinstance(part, k.Text):
        return k.Text(shorten_text(part.text, limit)) if part.text else k.Text('""')
    if isinstance(part, k.Data):
        text = encode_json(part.value).decode()
        return k.Text(shorten_text(text, limit)) if len(text) > limit else k.Data(part.value)
    return part


def shorten_text(text: str, limit: int) -> str:
    """The text, or the beginning and the end of one that is too long to show."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    left_out = (
        f"[… {len(text) - head - tail:,} of {len(text):,} characters are not shown here; all are on"
        " record …]"
    )
    return f"{text[:head]}\n{left_out}\n{text[-tail:]}"


def json_text(value: Json, limit: int) -> str:
    return shorten_text(encode_json(value).decode(), limit)


def outcome_parts(body: Any, get_blob: Callable[[Digest], bytes]) -> tuple[Parts, bool]:
    """The parts of a tool's outcome, and True if it failed."""
    if isinstance(body, k.ToolFailed):
        return (k.Text(f"{body.failure.kind}: {body.failure.message}"),), True
    if isinstance(body, k.ToolUnknown):
        return (k.Text(f"its outcome is not known{': ' + body.why if body.why else ''}"),), True
    return (
        unpack(body.parts, get_blob),
        isinstance(body, k.ToolResolved) and body.verdict != "happened",
    )


def knowledge_text(body: Any) -> str:
    if isinstance(body, k.FactRecorded):
        said = body.value if isinstance(body.value, str) else json_text(body.value, ASIDE_MAX)
        return (
            f"({body.kind} {body.key}: {said}{', because ' + body.reason if body.reason else ''})"
        )
    if isinstance(body, k.FactRetracted):
        return f"({body.key} no longer holds{': ' + body.reason if body.reason else ''})"
    if isinstance(body, k.PendingAdded):
        return f"({'to do' if body.kind == 'step' else body.kind}: {body.what})"
    if isinstance(body, k.PendingSettled):
        return f"(settled {body.key}{': ' + body.outcome if body.outcome else ''})"
    assert isinstance(body, k.ValidationRecorded)
    detail = f": {json_text(body.detail, ASIDE_MAX)}" if body.detail is not None else ""
    return f"(verdict {body.name}: {'passed' if body.passed else 'failed'}{detail})"


def recall_failure_text(body: k.RecallFailed) -> str:
    failure = failure_text(body.failure.kind, body.failure.message)
    return f"[memory] memory could not be searched: {shorten_text(failure, ASIDE_MAX)}"
