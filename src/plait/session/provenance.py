"""The events behind an event, and the events that followed from it.

`why` walks back and `influence` walks forward. Strong steps are on record: declared causes,
branches that were merged, the request of an outcome. A model is shown more than it decides by: the
events of its prompt are steps of their own sort, "having seen". An event without a declared cause
is shown *after* the message before it on its path, not because of it. Walking forward needs an
index, which is a projection (graph_rows.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from plait.event import Event
from plait.event.kinds import (
    ApprovalGranted,
    ForkedFrom,
    Merged,
    MessageSaid,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    Rewound,
    SessionOpened,
    ToolFailed,
    ToolRequested,
    ToolResolved,
    ToolReturned,
)
from plait.ids import LogId
from plait.session.graph_rows import CAUSE_DIGITS
from plait.session.state import Span
from plait.session.trace import MayShow, Prompted, Trace, TraceWalk, event_causes, event_details
from plait.store import Row, Store

_ASKED = ModelAsked.__name__
_MESSAGES = frozenset({MessageSaid.__name__, ModelReplied.__name__, Merged.__name__})
_BACK = _MESSAGES | {Rewound.__name__}
_OUTCOMES = {
    ModelReplied.__name__: ModelAsked.__name__,
    ModelFailed.__name__: ModelAsked.__name__,
    ToolReturned.__name__: ToolRequested.__name__,
    ToolFailed.__name__: ToolRequested.__name__,
    ToolResolved.__name__: ToolRequested.__name__,
}
# Kinds that a tool may write to the session it is given: they belong to the call of the tool.
_WRITTEN_BY_TOOLS = frozenset(
    {
        "FactRecorded",
        "FactRetracted",
        "PendingAdded",
        "PendingSettled",
        "ValidationRecorded",
        "EvidenceAttached",
        "MemoryProposed",
        "MemoryQuarantined",
        "MemoryRecalled",
        "MemoryRejected",
        "MemoryRetracted",
        "MemorySupported",
        "RecallFailed",
    }
)
_RESULTS = frozenset(kind.__name__ for kind in (ToolReturned, ToolFailed, ToolResolved))
_ALL = 2**31
_OUTCOME_AHEAD = 4096  # events after a request among which its outcome is looked for
_FRAMES = frozenset({SessionOpened.__name__})
_FOLLOWERS = _MESSAGES | _WRITTEN_BY_TOOLS | {"RouteSelected"}


# ── back ─────────────────────────────────────────────────────────────────────────────────────


def why(
    store: Store,
    path: tuple[Span, ...],
    log: LogId,
    events: list[Event],
    about: str,
    limit: int,
    prompt: Prompted | None = None,
    *,
    is_far: bool = True,
    may_show: MayShow | None = None,
) -> Trace:
    """Walk back from these events, as seen from a session with this path in this log.

    With `prompt`, each step that asks a model carries its prompt. `is_far` goes on from events that
    only came before; else the first of them is the last step, as for a memory and its evidence.
    Events that the reader may not see (`may_show`) are left out, and not followed.
    """
    walk = TraceWalk(store, about, limit, prompt, may_show)
    first, *between = events
    # a choice at a merge: the sides it was between say more than its parents
    walk.add(None, "is", first, follow=not between)
    for event in events:
        walk.add(first, "between", event)
        came = next(
            (
                span
                for span in path
                if span.via
                and not span.apart
                and span.log == event.log
                and span.first <= event.seq <= span.last
            ),
            None,
        )
        if came is not None:
            walk.add(event, "came by", next(store.read(log, came.via, came.via)), follow=False)
    for event in walk:
        for link in back_links(store, event, walk.placement_before):
            walk.add(
                event, link.how, link.event, follow=link.is_followed and (is_far or link.is_cause)
            )
    return walk.trace()


class BackLink(NamedTuple):
    """One step back from an event."""

    how: str
    event: Event
    is_followed: bool = True  # False: a walk ends here
    is_cause: bool = True  # False: it only came before


def back_links(
    store: Store, event: Event, placement_before: Callable[[Event], Event | None]
) -> Iterator[BackLink]:
    """Yield the events that one comes from: its causes, the branches that it merged, its request,
    its placement; if there are none, the message before it.
    """
    header = event.header
    for cause in event_causes(event):
        yield BackLink("having seen" if event.kind == _ASKED else "because of", store.event(cause))
    for parent in header.parents[1:]:
        yield BackLink("merged from", store.event(parent))
    in_call = event.kind in _OUTCOMES or event.kind in _WRITTEN_BY_TOOLS
    asked = list(_call_asks(store, event)) if header.call is not None and in_call else []
    for how, earlier in asked:
        yield BackLink(how, earlier)
    if event_details(event)[1] and (placement := placement_before(event)) is not None:
        yield BackLink("ran in", placement, is_followed=False)
    is_alone = not header.causes and not asked and event.kind not in _FRAMES
    if is_alone and (before := _message_before(store, event)) is not None:
        yield BackLink("after", before, is_cause=False)


def _message_before(store: Store, event: Event) -> Event | None:
    """Return the message before an event on its path: rewinds are followed."""
    seq = event.seq - 1
    if isinstance(body := event.body, Rewound):
        seq = body.to
    count = 16
    while seq >= 1:
        first = max(1, seq - count + 1)
        for found in store.read(event.log, first, seq, kinds=_BACK, reverse=True):
            if found.kind != Rewound.__name__:
                return found
            body = found.body
            assert isinstance(body, Rewound)
            seq = min(body.to, found.seq - 1)
            break
        else:
            seq, count = first - 1, count * 4
    return None


def _call_asks(store: Store, event: Event) -> Iterator[tuple[str, Event]]:
    """Yield the approvals and the request of the call that an event belongs to."""
    request = _OUTCOMES.get(event.kind, ToolRequested.__name__)
    asks = frozenset((request, ApprovalGranted.__name__))
    for found in _read_back(store, event.log, event.seq - 1, asks):
        if found.header.call == event.header.call:
            if found.kind != ApprovalGranted.__name__:
                yield "asked by", found
                return
            yield "approved by", found


def _read_back(store: Store, log: LogId, last: int, kinds: frozenset[str]) -> Iterator[Event]:
    """Yield the events of these kinds up to a seq, the latest first, few at a time in the
    beginning: what is looked for is as a rule near.
    """
    count = 32
    while last >= 1:
        first = max(1, last - count + 1)
        yield from store.read(log, first, last, kinds=kinds, reverse=True)
        last, count = first - 1, count * 4


# ── forward ──────────────────────────────────────────────────────────────────────────────────


def influence(
    store: Store, event: Event, about: str, limit: int, *, may_show: MayShow | None = None
) -> Trace:
    """Walk forward from an event, in the store as it is now: to its effects, its outcome, its
    followers, and the branches that took it along.

    Events that the reader may not see (`may_show`) are left out, and not followed.
    """
    walk = TraceWalk(store, about, limit, may_show=may_show)
    ways: _Ways = {}
    # rows of events that are left out take no place from those that are shown
    rows_max = limit + 1 if may_show is None else _ALL
    walk.add(None, "is", event)
    for found in walk:
        for row in store.rows("graph", "cause", {"cause": found.id[:CAUSE_DIGITS]}, limit=rows_max):
            effect = _event_at(store, row["log"], row["seq"])
            if effect is not None and found.id in effect.header.causes:
                walk.add(found, "seen by" if effect.kind == _ASKED else "caused", effect)
        if (outcome := _tool_outcome(store, found)) is not None:
            walk.add(found, "came of it", outcome)
        for carrier in _carriers(store, found, rows_max, ways):
            walk.add(
                found,
                "carried into" if carrier.kind == ForkedFrom.__name__ else "merged into",
                carrier,
                follow=False,
            )
            if carrier.kind == ForkedFrom.__name__:
                for follower in _followers(store, found, carrier.log):
                    walk.add(found, "followed by", follower, follow=False)
        for follower in _followers(store, found, found.log):
            walk.add(found, "followed by", follower, follow=False)
    return walk.trace()


def _tool_outcome(store: Store, request: Event) -> Event | None:
    """Return the outcome of a tool call by its request. None: it is no request, or has none."""
    call = request.header.call
    if request.kind != ToolRequested.__name__ or call is None:
        return None
    last = min(store.log(request.log).tip, request.seq + _OUTCOME_AHEAD)
    found = store.read(request.log, request.seq + 1, last, kinds=_RESULTS)
    return next((event for event in found if event.header.call == call), None)


# the forks of a log, and the merges that took it in: asked for once in a walk
_Ways = dict[LogId, tuple[list[Row], list[Row]]]


def _carriers(store: Store, event: Event, rows_max: int, ways: _Ways) -> Iterator[Event]:
    """Yield the forks that took an event along and the merges that took it in, directly or through
    one another.
    """
    queue, seen = deque([(event.log, event.seq)]), {event.log}
    while queue:
        log, seq = queue.popleft()
        if log not in ways:
            ways[log] = (
                store.rows("session", "session", {"parent": log}, limit=rows_max),
                store.rows("graph", "merge", {"log": log}, limit=rows_max),
            )
        forks, merges = ways[log]
        for row in forks:
            place, child = row["place"], LogId(str(row["log"]))
            if isinstance(place, int) and place >= seq and child not in seen:
                seen.add(child)
                # inherited: it goes along with branches of the branch from any place at or after it
                queue.append((child, seq))
                if (first := _event_at(store, child, place + 1)) is not None:
                    yield first
        for row in merges:
            place, into = row["place"], LogId(str(row["into"]))
            if (
                isinstance(place, int)
                and place >= seq
                and (merge := _event_at(store, into, row["seq"])) is not None
            ):
                yield merge
                if into not in seen:
                    seen.add(into)
                    queue.append((into, merge.seq))


def _followers(store: Store, event: Event, log: LogId) -> Iterator[Event]:
    """Yield the events right after a message on a log, up to the next message, that declare no
    other cause.
    """
    if event.kind not in _MESSAGES:
        return
    first, count, tip = event.seq + 1, 16, store.log(log).tip
    while first <= tip:
        for found in store.read(
            log, first, min(tip, first + count - 1), kinds=_FOLLOWERS | {Rewound.__name__}
        ):
            if found.kind == Rewound.__name__:
                return
            if not found.header.causes:
                yield found
            if found.kind in _MESSAGES:
                return
        first, count = first + count, count * 4


def _event_at(store: Store, log: object, seq: object) -> Event | None:
    if not isinstance(log, str) or not isinstance(seq, int):
        return None
    return next(store.read(LogId(log), seq, seq), None)
