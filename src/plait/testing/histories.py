"""The events of a session without all that differs between two runs of one history."""

from __future__ import annotations

import re

import msgspec

from plait.event import Event, without_measured
from plait.event.kinds import Merged, SessionOpened
from plait.session import Session
from plait.session.ports import Position
from plait.session.session import session_at

_encode = msgspec.json.Encoder(order="deterministic").encode

_IDS = re.compile(r"[0-9a-f]{64}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\bc[0-9a-f]{23}\b")


def history(session: Session) -> list[str]:
    """Return the events without times and random values, so that two runs of one history are equal.

    Merged branches come before the merge. Ids are numbered in the order in which they come up.
    """
    met: dict[str, str] = {}
    told = (
        _IDS.sub(lambda id: met.setdefault(id[0], f"#{len(met)}"), _event_text(event))
        for event in _all_events(session, set())
    )
    # keys in the order of their new names
    return [_encode(msgspec.json.decode(text)).decode() for text in told]


def _all_events(session: Session, seen: set[str]) -> list[Event]:
    found: list[Event] = []
    for event in session.events:
        if event.id not in seen:
            seen.add(event.id)
            for branch in event.body.branches if isinstance(event.body, Merged) else ():
                found.extend(
                    _all_events(
                        session_at(Position(session.store, branch.log, branch.seq, branch.head)),
                        seen,
                    )
                )
            found.append(event)
    return found


def _event_text(event: Event) -> str:
    header = event.header
    about = [
        header.log,
        header.seq,
        event.id,
        header.actor,
        header.behalf,
        header.origin,
        header.run,
        header.call,
        list(header.causes),
    ]
    body = without_measured(event.body)
    if isinstance(body, SessionOpened):
        # the durability is no part of the history
        body = msgspec.structs.replace(body, durability=None)
    return _encode([event.kind, about, body]).decode()
