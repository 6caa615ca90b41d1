"""Events and blobs made ready for the write transaction, in the caller's thread.

Everything that needs no database is done here: hashing, packing, moving a long body to a blob.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plait.event import Event
from plait.ids import Digest
from plait.store import packing
from plait.store.blobs import checked_blobs, digest_of
from plait.store.epochs import epochs_raised
from plait.store.records import short_of


class PreparedEvent(NamedTuple):
    event: Event
    short: int
    codec: int
    header: bytes
    body: bytes
    refs: tuple[Digest, ...]


class PackedBlob(NamedTuple):
    size: int
    codec: int
    data: bytes


class Prepared(NamedTuple):
    """Events, and the blobs that come along with them, ready to be inserted."""

    events: list[PreparedEvent]
    blobs: dict[Digest, PackedBlob]
    raised: int  # by how much they raise the epoch of their log

    @property
    def first(self) -> Event:
        return self.events[0].event

    @property
    def last(self) -> Event:
        return self.events[-1].event


def prepare(events: Sequence[Event], blobs: Mapping[Digest, bytes] | None) -> Prepared:
    content = checked_blobs(blobs)
    ready: list[PreparedEvent] = []
    for event in events:
        body, refs = event.content, event.refs
        if len(body) > packing.BODY_INLINE_MAX:
            digest = digest_of(body)
            content[digest] = body
            codec, header = packing.HEADER_1 | packing.IN_BLOB, packing.pack_header(event.raw)
            ready.append(
                PreparedEvent(
                    event, short_of(event.id), codec, header, bytes.fromhex(digest), (*refs, digest)
                )
            )
        else:
            ready.append(
                PreparedEvent(event, short_of(event.id), *packing.pack_event(event.raw, body), refs)
            )
    return Prepared(
        ready,
        {digest: pack_blob(data) for digest, data in content.items()} if content else {},
        epochs_raised(events),
    )


def pack_blob(content: bytes) -> PackedBlob:
    return PackedBlob(len(content), *packing.pack(content))
