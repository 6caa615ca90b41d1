"""The tool calls that a changed program left behind.

When a change of a program is accepted, the run goes on live from the first difference, and the
steps beyond it are abandoned: they stay in the log, and are no longer its recording. Their effects
took place all the same. So the calls are kept here, until the program asks for the same once more:
then the new request names the old call, and stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock

from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest, LogId
from plait.session.value import SessionValue, store_of_session
from plait.store import Log, Store

_FORKS = frozenset({k.ForkedFrom.__name__})
_CHANGES = frozenset({k.ChangeAccepted.__name__})
_ASKED, _ANSWERED = k.QuestionAsked.__name__, k.QuestionAnswered.__name__
_REQUESTED = k.ToolRequested.__name__
# of one call
_KINDS = frozenset(
    kind.__name__
    for kind in (
        k.ToolRequested,
        k.ToolReturned,
        k.ToolFailed,
        k.ToolUnknown,
        k.ToolResolved,
        k.ApprovalRequested,
        k.ApprovalGranted,
        k.ApprovalDenied,
        k.ApprovalExpired,
        k.QuestionAsked,
        k.QuestionAnswered,
        k.BudgetRefused,
    )
)


class AbandonedCalls:
    """The calls that were left behind, each to be taken once."""

    def __init__(self, calls: Iterable[Sequence[Event]] = (), used: Iterable[Digest] = ()) -> None:
        """`calls`: the events of each call. `used`: the first events of those taken before."""
        self._lock = Lock()
        self._calls = {events[0].id: list(events) for events in calls}
        self._left = [id for id in self._calls if id not in frozenset(used)]

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(self, is_same: Callable[[Sequence[Event]], bool]) -> list[Event] | None:
        """Remove and return the events of the first call for which this is true."""
        with self._lock:
            for id in self._left:
                if is_same(self._calls[id]):
                    self._left.remove(id)
                    return self._calls[id]
        return None

    def events_of(self, first: Digest) -> list[Event]:
        """Return the events of a call that was taken, by the id of its first one."""
        return self._calls.get(first, [])

    def untaken(self) -> list[list[Event]]:
        """Return the events of each call that the program did not ask for again."""
        with self._lock:
            return [self._calls[id] for id in self._left]


def branches_of(store: Store, root: LogId, run: str) -> Iterator[LogId]:
    """Yield the branches of a run, merged or not, parents before children."""
    parents = [root]
    while parents:
        for log in children_of(store, parents.pop(), run):
            parents.append(log.id)
            yield log.id


def children_of(store: Store, parent: LogId, run: str) -> Iterator[Log]:
    """Yield the branches that a run forked from a log."""
    wanted = {"parent": parent}
    rows = store.rows("session", "session", wanted, limit=2**31, kinds=_FORKS)
    children = [LogId(str(row["log"])) for row in rows if row["run"] == run.partition("/")[0]]
    if not children:
        return
    heads = store.heads(children)
    firsts = store.events_at([(log.id, log.place + 1) for log in heads.values()])
    yield from [heads[event.log] for event in firsts if event.header.run == run]


def read_abandoned(
    root: SessionValue, run: str, branches: Sequence[LogId] | None = None
) -> AbandonedCalls:
    """Return the calls that the accepted changes of a run left behind, up to where the value of
    its root stands.

    `branches`: those of the run, if they are known.
    """
    store = store_of_session(root)
    if branches is None:
        branches = list(branches_of(store, root.id, run))
    first = store.lineage(root.id)[-1].first
    changes = store.read(root.id, first, root.seq, kinds=_CHANGES)
    spans = {root.id: _abandoned_spans(changes, run)}
    tips = {root.id: (first, root.seq)}
    for about in store.heads(branches).values() if branches else ():
        log, first = about.id, about.place + 1
        tips[log] = first, about.tip
        changes = store.read(log, first, about.tip, kinds=_CHANGES)
        found = spans[log] = _abandoned_spans(changes, run)
        above = spans.get(about.parent, ()) if about.parent is not None else ()
        if any(about.place in span for span in above):
            found.append(range(about.place + 1, about.tip + 1))
    if not any(spans.values()):
        return AbandonedCalls()
    calls: dict[tuple[LogId, str], list[Event]] = {}
    used = list[Digest]()
    for log, (first, tip) in tips.items():
        for event in store.read(log, first, tip, kinds=_KINDS):
            if event.header.run != run:
                continue
            used += _uses(event)
            if any(event.seq in span for span in spans[log]):
                calls.setdefault((log, event.header.call or event.id), []).append(event)
    whole = [events for events in calls.values() if _is_whole(events)]
    return AbandonedCalls(whole, used)


def _abandoned_spans(changes: Iterable[Event], run: str) -> list[range]:
    """Return the places of a log that accepted changes of a run cut off."""
    return [
        range(event.body.at, event.seq)
        for event in changes
        if isinstance(event.body, k.ChangeAccepted) and event.body.run == run
    ]


def _uses(event: Event) -> tuple[Digest, ...]:
    """Return the abandoned calls that an event stands for."""
    body = event.body if event.kind in (_REQUESTED, _ANSWERED) else None
    if isinstance(body, k.ToolRequested):
        return (body.carries.request,) if body.carries is not None else ()
    if isinstance(body, k.QuestionAnswered):
        return tuple([cause for cause in event.header.causes if cause != body.question])
    return ()


def _is_whole(events: Sequence[Event]) -> bool:
    """True if the first event of a call is among these: else its request is still on the path."""
    body = events[0].body
    return isinstance(body, k.QuestionAsked) or (
        isinstance(body, k.ToolRequested) and body.attempt == 1
    )
