"""The transcript as text for people: who spoke, and what was said."""

from __future__ import annotations

from collections.abc import Sequence

from plait.session.safe_text import clean
from plait.session.views import Message

SHOWN_MAX = 6  # messages that a printed session ends with
_TEXT_MAX = 2_000  # characters of each


def transcript_text(messages: Sequence[Message], *, text_max: int | None = None) -> str:
    """Return messages as paragraphs, each with its speaker.

    `text_max`: characters of each that are shown; None: all.
    """
    return "\n".join([_paragraph(message, text_max) for message in messages])


def end_text(messages: Sequence[Message]) -> str:
    """Return the last messages, and how many stand before them."""
    last = messages[-SHOWN_MAX:]
    before = len(messages) - len(last)
    lines = [f"({before} earlier messages: session.transcript())"] if before else []
    return "\n".join([*lines, transcript_text(last, text_max=_TEXT_MAX)])


def _paragraph(message: Message, text_max: int | None) -> str:
    speaker = clean(f"{message.role} {message.name}" if message.name else message.role)
    where = clean(f" [{message.branch}]") if message.branch else ""
    text = clean(message.text, lines=True)  # a terminal obeys what an agent wrote
    if text_max is not None and len(text) > text_max:
        text = f"{text[:text_max]}… ({len(text) - text_max:,} more characters)"
    return f"{speaker}{where}: {text or '(no text)'}".replace("\n", "\n  ")
