"""The words of events, as short as a line: the first words of a message, the last of an output."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from plait.errors import PlaitError
from plait.event import Event, Json
from plait.event import kinds as k
from plait.ids import Digest
from plait.session.content import text_of, unpack
from plait.store import Store

LINE_MAX = 300  # characters of a step's line
_BLOB_MAX = 256 * 1024  # a longer text is not read for the sake of one line
# arguments that say most about a call, in this order
_TELLING = (
    "path",
    "file",
    "command",
    "cmd",
    "url",
    "query",
    "pattern",
    "request",
    "question",
    "text",
    "name",
    "key",
    "to",
)
_EXIT = re.compile(r"\[[^\]\n]*exit code -?\d+[^\]\n]*\]\Z")


def body_of(event: Event) -> k.Body | None:
    """Return the body of an event. None: it is erased, damaged, or of a newer Plait."""
    try:
        return event.body
    except PlaitError:
        return None


def json_text(value: Json) -> str:
    """Return a value as a line: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def parts_text(parts: k.Parts, store: Store) -> str:
    """Return the text of parts. A text that is too long to be read for a line is named."""
    if all(part.blob is None for part in parts):
        return text_of(parts)
    read = [part for part in parts if part.blob is None or _is_short(store, part.blob)]
    filled = text_of(unpack(tuple(read), store.get_blob))
    return filled if len(read) == len(parts) else f"{filled}\n(long text)".lstrip()


def _is_short(store: Store, blob: Digest) -> bool:
    try:
        return store.blob_info(blob).size <= _BLOB_MAX
    except PlaitError:
        return True  # erased: the part says so


def first_words(text: str) -> str:
    """Return the beginning of a text, without the spaces around it."""
    text = text[: LINE_MAX * 4].strip()
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"


def last_words(text: str) -> str:
    """Return the last line of an output that says something. Its exit code stands elsewhere."""
    for line in reversed(text[-LINE_MAX * 20 :].splitlines()):
        words = line.strip()
        if words and not _EXIT.match(words):
            return words if len(words) <= LINE_MAX else f"…{words[1 - LINE_MAX :]}"
    return ""


def is_patch(text: str) -> bool:
    """True if an output is a patch: the changed paths say as much."""
    return text.startswith(("--- ", "diff --git ", "+++ "))


def first_argument(arguments: Json) -> str:
    """Return the argument that tells most about a call."""
    if not isinstance(arguments, Mapping) or not arguments:
        return first_words(arguments) if isinstance(arguments, str) else ""
    name = next((name for name in _TELLING if name in arguments), next(iter(arguments)))
    return first_words(json_text(arguments[name]))
