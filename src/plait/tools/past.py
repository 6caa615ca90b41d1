"""`history`: an agent reads in its own session events that a compacted or narrowed prompt does not
show it.

The places that were read stand in the delta of the call, so that the record shows what the agent
knew.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plait.errors import InvalidValue
from plait.event import Event, Json
from plait.event import kinds as k
from plait.session import Session
from plait.session.content import text_of, unpack
from plait.session.event_text import event_text
from plait.session.refusals import refused_messages
from plait.tool import Result, tool
from plait.tools.text import SHOWN_MAX, bounded_text

_EVENT_MAX = 2_000  # characters of one event that are shown
_LAST_MAX = 200
# Bookkeeping events are of no use to an agent.
_BOOKS = frozenset(
    {"ModelAsked", "CallStarted", "CallFinished", "ScratchSet", "BudgetSet", "RunResumed"}
)


@tool(effect="pure", timeout_s=60)
def history(session: Session, query: str = "", since: int = 0, last: int = 20) -> Result:
    """Read what happened in this session: what was said, decided and found, tool calls and what came of them. The newest stands last.

    Each entry begins with its place. Long ones are shown by their beginning and end. To read an older stretch, search for words, or pass
    since and a larger last.

    Args:
        query: only entries with these words, whatever their case; leave it out for all
        since: only entries from this place on
        last: how many entries to show, the newest ones, up to 200
    """  # noqa: E501
    if last < 1 or since < 0:
        raise InvalidValue(
            "last" if last < 1 else "since",
            "it shows nothing",
            "pass last from 1, and since from 0",
        )
    found = list(_matching_entries(session, query.casefold(), since))
    shown, places = _newest_entries(found, min(last, _LAST_MAX))
    left = len(found) - len(shown)
    if not shown:
        return Result(
            [f"[nothing{' with these words' if query else ''} from place {since} on]"],
            delta={"query": query, "places": []},
        )
    note = (
        [f"[{left:,} earlier entries are not shown; the first one here is at place {places[0]}]"]
        if left
        else []
    )
    return Result(
        ["\n".join([*note, *shown])], delta={"query": query, "places": list[Json](places)}
    )


def _matching_entries(session: Session, words: str, since: int) -> Iterator[tuple[int, str]]:
    refused = refused_messages(session)
    for event in session.lineage.path:
        if event.seq >= since and event.kind not in _BOOKS and event.id not in refused:
            text = _event_text(session, event)
            if not words or words in text.casefold():
                yield event.seq, text


def _newest_entries(found: list[tuple[int, str]], last: int) -> tuple[list[str], list[int]]:
    """Return as many of the newest entries as there is room for, in their order, and their
    places.
    """
    shown: list[str] = []
    places: list[int] = []
    room = SHOWN_MAX
    for place, text in reversed(found[-last:]):
        entry = f"{place} {bounded_text(text, _EVENT_MAX)}"
        room -= len(entry) + 1
        if room < 0:
            break
        shown.append(entry)
        places.append(place)
    return shown[::-1], places[::-1]


def _event_text(session: Session, event: Event) -> str:
    """Return the text of an event, whole: long texts are fetched."""
    body = event.body
    if isinstance(body, k.MessageSaid):
        return f"{event.actor} said ({body.role}): {_parts_text(session, body.parts)}"
    if isinstance(body, k.ModelReplied):
        calls = "".join(
            f"\n  calls {call.tool}({_json_text(call.arguments)})" for call in body.calls
        )
        return f"{event.actor} said: {_parts_text(session, body.parts)}{calls}"
    if isinstance(body, k.ToolRequested):
        return f"{event.actor} called {body.tool}({_json_text(body.arguments)})"
    if isinstance(body, k.ToolReturned):
        code = f" (exit code {body.exit_code})" if body.exit_code else ""
        return f"it returned{code}: {_parts_text(session, body.parts)}"
    if isinstance(body, k.ToolFailed):
        return f"it failed: {body.failure.kind}: {body.failure.message}"
    return f"{event.actor}: {event_text(event)}"


def _parts_text(session: Session, parts: k.Parts) -> str:
    return text_of(unpack(parts, session.files.blob))


def _json_text(value: Json) -> str:
    return msgspec.json.encode(value).decode()
