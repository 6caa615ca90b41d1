"""The origins of the content of a story, which a policy asks about.

An origin follows a story in two ways. Along the path: a fork, a merge, a compaction or a detached
session takes the origins along with the events. Along causes: an event whose cause is not on the
path (a fact that a successor took over, a result of another branch that the program handed on,
evidence from another session) brings the origins of all that stood before that cause. Nothing else
is stored, so that old records have their origins, too.

The scan of a span of a log is kept by the process and extended: events never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

import msgspec

from plait.errors import PlaitError
from plait.event import Event
from plait.ids import Digest, LogId, inbox_of
from plait.session.fold import state_at
from plait.session.state import EventRef, Known, Span
from plait.store import Store

# Origins inside of a session. Any other origin names a source outside of it: web, mcp:git,
# mail:inbox.
ORDINARY = frozenset({"human", "model", "program", "tool"})

_SPANS_MAX = 4096  # spans of logs that are remembered for one store
_RECENT_MAX = 256  # ids at the end of a span, among which most causes are found


class _OriginScan(msgspec.Struct):
    """The origins and outside causes of a span up to a place, each with the place it came at."""

    last: int
    origins: dict[str, int]
    leads: dict[Digest, tuple[EventRef, int]]  # causes that lie outside of the span
    recent: dict[Digest, None]  # the last ids, the oldest first


class _Scans:
    """The scans of this process, by store, log and first event. A scan stays true for ever; it goes
    with its store.
    """

    def __init__(self) -> None:
        self._by_store: WeakKeyDictionary[Store, dict[tuple[LogId, int], _OriginScan]] = (
            WeakKeyDictionary()
        )

    def scan(self, store: Store, span: Span) -> _OriginScan:
        """Return the scan of a log from the first event of a span on, at least up to its last."""
        memo, key = self._by_store.setdefault(store, {}), (span.log, span.first)
        kept = memo.get(key) or _OriginScan(span.first - 1, {}, {}, {})
        if kept.last < span.last:
            kept = _extend_scan(store, span, kept)
            if len(memo) >= _SPANS_MAX:
                memo.clear()
            memo[key] = kept
        return kept


_SCANS = _Scans()


def origins_of(store: Store, path: Iterable[Span]) -> frozenset[str]:
    """Return the origins of everything on a path, and of the causes of its events elsewhere."""
    found: set[str] = set()
    visited: list[Known] = []
    paths: list[Sequence[Span]] = [tuple(path)]
    while paths:
        spans = paths.pop()
        visited.append(Known(spans))
        leads: dict[Digest, EventRef] = {}
        for span in spans:
            scan = _SCANS.scan(store, span)
            found.update([name for name, at in scan.origins.items() if at <= span.last])
            came = [lead for lead, at in scan.leads.values() if at <= span.last]
            leads.update({lead.id: lead for lead in came})
        # The last place of a log first: its path mostly has the earlier ones.
        for lead in sorted(leads.values(), key=lambda each: (each.log, -each.seq)):
            if not any(lead in known for known in visited):
                with suppress(PlaitError):  # a cause whose log is not in this store
                    paths.append(state_at(store, lead.log, lead.seq).story.path)
                    visited.append(Known(paths[-1]))
    return frozenset(found)


def origins_before(store: Store, id: Digest) -> frozenset[str]:
    """Return the origins of an event and of all before it: those that it brings as a cause."""
    event = store.event(id)
    return origins_of(store, state_at(store, event.log, event.seq).story.path)


def _extend_scan(store: Store, span: Span, kept: _OriginScan) -> _OriginScan:
    origins, leads, recent = {**kept.origins}, {**kept.leads}, {**kept.recent}
    for event in store.read(span.log, kept.last + 1, span.last):
        header = event.header
        origins.setdefault(header.origin, header.seq)
        unknown = [cause for cause in header.causes if cause not in recent and cause not in leads]
        for cause in _outside_causes(store, event, unknown, origins):
            if cause.log != span.log or not span.first <= cause.seq <= span.last:
                leads[cause.id] = EventRef(cause.log, cause.seq, cause.id), header.seq
        recent[event.id] = None
        if len(recent) > _RECENT_MAX:
            del recent[next(iter(recent))]
    return _OriginScan(span.last, origins, leads, recent)


def _outside_causes(
    store: Store, event: Event, ids: Sequence[Digest], origins: dict[str, int]
) -> Iterable[Event]:
    """Yield the causes of these ids.

    A cause in the inbox counts alone, without the messages before it: its origin is added to
    `origins`, and its own causes are followed.
    """
    todo = list(ids)
    while todo:
        with suppress(PlaitError):
            cause = store.event(todo.pop())
            if cause.log == inbox_of(event.log):
                origins.setdefault(cause.header.origin, event.seq)
                todo.extend(cause.header.causes)
            else:
                yield cause
