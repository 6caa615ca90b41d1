"""Where the content of a story comes from: the origins that a policy asks about.

An origin follows a story in two ways. Along the path: a fork, a merge, a compaction or a detached
session takes the origins along with the events. Along causes: an event whose cause is not on the
path (a fact that a successor took over, a result of another branch that the program handed on,
evidence from another session) brings the origins of all that stood before that cause. Nothing else
is stored, so that old records have their origins, too.

What was found out about a stretch of a log is kept by the process and extended: events never
change.
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
from plait.session.state import Known, Ref, Stretch
from plait.store import Store

# Who speaks for itself. Any other origin names a source outside of the session: web, mcp:git,
# mail:inbox.
ORDINARY = frozenset({"human", "model", "program", "tool"})

_STRETCHES_MAX = 4096  # stretches of logs that are remembered for one store
_RECENT_MAX = 256  # ids at the end of a stretch, among which most causes are found


class _Scanned(msgspec.Struct):
    """What is known of a stretch up to a place, each with the place at which it came."""

    last: int
    origins: dict[str, int]
    leads: dict[Digest, tuple[Ref, int]]  # causes that lie outside of the stretch
    recent: dict[Digest, None]  # the last ids, the oldest first


_scanned: WeakKeyDictionary[Store, dict[tuple[LogId, int], _Scanned]] = WeakKeyDictionary()


def origins_of(store: Store, path: Iterable[Stretch]) -> frozenset[str]:
    """The origins of everything on a path, and of what its events were caused by elsewhere."""
    found: set[str] = set()
    visited: list[Known] = []
    paths: list[Sequence[Stretch]] = [tuple(path)]
    while paths:
        stretches = paths.pop()
        visited.append(Known(stretches))
        leads: dict[Digest, Ref] = {}
        for stretch in stretches:
            scanned = _scan(store, stretch)
            found.update([name for name, at in scanned.origins.items() if at <= stretch.last])
            came = [lead for lead, at in scanned.leads.values() if at <= stretch.last]
            leads.update({lead.id: lead for lead in came})
        # The last place of a log first: its path mostly has the earlier ones.
        for lead in sorted(leads.values(), key=lambda each: (each.log, -each.seq)):
            if not any(lead in known for known in visited):
                with suppress(PlaitError):  # a cause whose log is not in this store
                    paths.append(state_at(store, lead.log, lead.seq).story.path)
                    visited.append(Known(paths[-1]))
    return frozenset(found)


def origins_before(store: Store, id: Digest) -> frozenset[str]:
    """The origins of an event and of all that stood before it: those that it brings as a cause."""
    event = store.event(id)
    return origins_of(store, state_at(store, event.log, event.seq).story.path)


def _scan(store: Store, stretch: Stretch) -> _Scanned:
    """What is known of the log from the first event of a stretch on, at least up to its last."""
    memo, key = _scanned.setdefault(store, {}), (stretch.log, stretch.first)
    kept = memo.get(key) or _Scanned(stretch.first - 1, {}, {}, {})
    if kept.last < stretch.last:
        kept = _extended(store, stretch, kept)
        if len(memo) >= _STRETCHES_MAX:
            memo.clear()
        memo[key] = kept
    return kept


def _extended(store: Store, stretch: Stretch, kept: _Scanned) -> _Scanned:
    origins, leads, recent = {**kept.origins}, {**kept.leads}, {**kept.recent}
    for event in store.read(stretch.log, kept.last + 1, stretch.last):
        header = event.header
        origins.setdefault(header.origin, header.seq)
        unknown = [cause for cause in header.causes if cause not in recent and cause not in leads]
        for cause in _causes(store, event, unknown, origins):
            if cause.log != stretch.log or not stretch.first <= cause.seq <= stretch.last:
                leads[cause.id] = Ref(cause.log, cause.seq, cause.id), header.seq
        recent[event.id] = None
        if len(recent) > _RECENT_MAX:
            del recent[next(iter(recent))]
    return _Scanned(stretch.last, origins, leads, recent)


def _causes(
    store: Store, event: Event, ids: Sequence[Digest], origins: dict[str, int]
) -> Iterable[Event]:
    """The causes of these ids.

    One in the inbox stands for itself: what was sent before it does not.
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
