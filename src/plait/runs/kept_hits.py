"""A recall that returned less: the hits that a what-if keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from plait.errors import InvalidValue
from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest
from plait.memory.shown import shown_parts
from plait.session import Session
from plait.session.ports import store_at

LEFT_OUT = "left out in a what-if"


def keep_hits(
    session: Session, event: Event, body: k.MemoryRecalled, keep: object
) -> k.MemoryRecalled:
    """Return a recall with some of its hits: memories by id, by its first digits, or as hits.

    A prompt shows it as if no other had been found.
    """
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        raise _unkept(event, f"{keep!r} is not a list of memories")
    kept = {_hit_of(event, body, each) for each in cast("Iterable[object]", keep)}
    hits = tuple([hit for hit in body.hits if hit.memory in kept])
    gone = [k.Omission(hit.memory, LEFT_OUT) for hit in body.hits if hit.memory not in kept]
    shown = shown_parts(store_at(session.store), event.header.time, hits) if body.shown else ()
    return msgspec.structs.replace(body, hits=hits, left_out=(*body.left_out, *gone), shown=shown)


def _hit_of(event: Event, body: k.MemoryRecalled, named: object) -> Digest:
    name: Any = named if isinstance(named, str) else getattr(named, "id", None)
    found = [hit.memory for hit in body.hits if isinstance(name, str) and hit.memory == name]
    found = found or [
        hit.memory
        for hit in body.hits
        if isinstance(name, str) and len(name) >= 4 and hit.memory.startswith(name)
    ]
    if len(found) != 1:
        raise _unkept(event, f"{named!r:.80} is not one of the hits of event {event.seq}")
    return found[0]


def _unkept(event: Event, why: str) -> InvalidValue:
    return InvalidValue("replace", why, "pass the hits to keep, or [] for none")
