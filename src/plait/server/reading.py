"""Answers about a store and its sessions: the store itself, a session at a place, events, search,
verification.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from plait import __version__
from plait.errors import PlaitError, UnknownBlob
from plait.event import Event
from plait.event.kinds import MessageSaid, ModelReplied
from plait.ids import LogId
from plait.outline.documents import event_document, show_document
from plait.server.desk import Desk
from plait.server.params import EventsParams, SearchParams, SessionParams
from plait.server.shapes import (
    EventPage,
    EventShape,
    FaultRow,
    SearchHit,
    SearchPage,
    SessionShape,
    StoreShape,
    UncheckedRow,
    VerifyShape,
)
from plait.session.audit import Audit, logs_behind
from plait.session.content import text_of, unpack
from plait.session.listing import session_row
from plait.store import Store

MESSAGES = 20  # the last ones, with a session
SEARCHED = 20_000  # messages and replies that one search reads, the newest first
SNIPPET = 160  # characters
_SAID = frozenset({MessageSaid.__name__, ModelReplied.__name__})


def read_store(desk: Desk) -> StoreShape:
    """Tell which store is served, and what may be done with it."""
    runner = desk.runner
    return StoreShape(
        desk.store.id,
        desk.store.address,
        __version__,
        desk.actor,
        desk.read_only,
        runner is not None and not desk.read_only,
        str(runner.folder) if runner is not None else "",
        desk.store.number,
    )


def read_session(desk: Desk, params: SessionParams) -> SessionShape:
    """Return a session at a place, and all that it knows."""
    session = desk.open(params.session)
    tip = desk.store.log(session.id).tip
    document = {
        **show_document(session, min(MESSAGES, len(session.messages))),
        "is_tip": tip == session.seq,
        "tip": tip,
    }
    return msgspec.convert(document, SessionShape)


def read_events(desk: Desk, params: EventsParams) -> EventPage:
    """Return events of a log, also those it was forked with."""
    log = desk.log(params.log)
    tip, first = desk.store.log(log).tip, max(1, params.first)
    last = min(tip, first + params.count - 1)
    events = desk.store.read(log, first, last) if first <= last else iter(())
    return EventPage(log, first, tip, tuple([event_shape(event) for event in events]))


def event_shape(event: Event) -> EventShape:
    """Return an event. A body that is erased, or cannot be read, is left out, with the reason."""
    shape = msgspec.convert(event_document(event), EventShape)
    if shape.body is not None:
        return shape
    try:
        event.body  # noqa: B018
    except UnknownBlob as error:
        return msgspec.structs.replace(shape, state="erased", why=error.record_text)
    except PlaitError as error:
        return msgspec.structs.replace(shape, state="unreadable", why=error.record_text)
    return shape


# ── search ───────────────────────────────────────────────────────────────────────────────────


def search_said(desk: Desk, params: SearchParams) -> SearchPage:
    """Search what was said, by people and models, for all words; the newest come first."""
    words = params.q.casefold().split()
    if not words:
        return SearchPage((), False)
    found = list(islice(_hits(desk.store, words), params.limit + 1))
    is_cut = len(found) > params.limit or (bool(found) and found[-1] is None)
    hits = [hit for hit in found[: params.limit] if hit is not None]
    return SearchPage(tuple(hits), is_cut)


def _hits(store: Store, words: list[str]) -> Iterator[SearchHit | None]:
    """Yield messages that have all words, and None if not all of the store was read."""
    names = dict[LogId, str]()
    for at, (_, event) in enumerate(store.feed(kinds=_SAID, reverse=True)):
        if at >= SEARCHED:
            yield None
            return
        text = said_text(store, event)
        folded = text.casefold()
        if all(word in folded for word in words):
            name = names.setdefault(event.log, _name_of(store, event.log))
            yield SearchHit(
                event.log,
                event.seq,
                event.kind,
                name,
                event.actor,
                event.time,
                snippet_of(text, folded.find(words[0])),
            )


def said_text(store: Store, event: Event) -> str:
    """Return the text of a message or a reply; "": it is erased, or has none."""
    try:
        body = event.body
        if isinstance(body, (MessageSaid, ModelReplied)):
            return text_of(unpack(body.parts, store.get_blob))
    except PlaitError:
        pass
    return ""


def snippet_of(text: str, at: int) -> str:
    """Return the words of a text around a place, on one line."""
    first = max(0, at - SNIPPET // 3)
    piece = " ".join(text[first : first + SNIPPET].split())
    return f"{'…' if first else ''}{piece}{'…' if first + SNIPPET < len(text) else ''}"


def _name_of(store: Store, log: LogId) -> str:
    row = session_row(store, log)
    return str(row.get("label") or row.get("title") or "")


# ── verification ─────────────────────────────────────────────────────────────────────────────


def verify_session(desk: Desk, params: SessionParams) -> VerifyShape:
    """Check every event of a session, and of all that it is made of, against its hash."""
    session = desk.open(params.session)
    logs = logs_behind(desk.store, [session.id])
    audit = Audit(desk.store, logs, state=False)
    faults = [FaultRow(fault.log, fault.seq, fault.what) for fault in audit.faults()]
    faults.sort(key=lambda fault: (fault.session != session.id, fault.seq or 0))
    unchecked = [UncheckedRow(each.what, each.why) for each in audit.unchecked_parts()]
    events = sum(log.tip - log.place for log in map(desk.store.log, logs))
    return VerifyShape(session.id, session.seq, not faults, events, tuple(faults), tuple(unchecked))
