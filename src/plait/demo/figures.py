"""The figures of the demo: each is counted in the session, and again in a file outside of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId, short
from plait.session import Session
from plait.session.audit import Audit, count_logs
from plait.session.listing import session_row
from plait.session.ports import store_at
from plait.store import Store

Interval = tuple[int, int]  # microseconds, begin and end


class CallRecord(msgspec.Struct):
    """A call of a model or a tool in the run, as the log has it."""

    log: LogId
    tool: str  # "": a model
    path: str  # of the agent or workflow that called
    effect: str  # "": a model
    outside: str  # the line about it outside of the log, each time it really ran
    requests: list[int] = []  # commit numbers
    outcome: int | None = None  # commit number; None: there is none
    begun: int = 0  # microseconds
    ended: int = 0

    @property
    def is_effect(self) -> bool:
        """True if it changes something: looking is no effect."""
        return self.effect not in ("", "pure")


class ResumeFigures(msgspec.Struct, frozen=True):
    """The findings of a process that took the run up after a kill, and its repeated calls."""

    seq: int  # of the event that says so
    model_calls: int  # with a reply on record by then
    effects: int  # with an outcome on record by then
    cut: tuple[str, ...]  # calls in the middle of which the process was killed
    repeated_model_calls: int  # of those on record: asked again, by the log
    repeated_effects: int
    repeated_outside: int  # of all those: ran again, by the file outside


class DemoFigures(msgspec.Struct, frozen=True):
    """The figures of a run, from the store and the file outside."""

    model_calls: int
    effects: int
    rejected: int  # verdicts
    passed: int
    branches: tuple[str, ...]
    merged: tuple[str, ...]
    asked: int  # approvals of people or of rules
    allowed: int
    take_up: ResumeFigures | None  # None: nobody took it up
    waits: tuple[Interval, ...]  # in which only a model was waited for


def figures_of(session: Session, outside: Path) -> DemoFigures:
    """Count everything in the run of a session."""
    store = store_at(session.store)
    run = session.runs[0].id
    events = [(number, event) for number, event in store.feed() if event.header.run == run]
    calls = list(_calls(events))
    verdicts = [
        body.passed for _, event in events if isinstance(body := event.body, k.ValidationRecorded)
    ]
    forks = [event.log for _, event in events if isinstance(event.body, k.ForkedFrom)]
    merged = [
        place.log
        for _, event in events
        if isinstance(body := event.body, k.Merged)
        for place in body.branches
    ]
    return DemoFigures(
        model_calls=sum(1 for call in calls if not call.tool and call.outcome is not None),
        effects=sum(1 for call in calls if call.is_effect and call.outcome is not None),
        rejected=verdicts.count(False),
        passed=verdicts.count(True),
        branches=tuple([_label(store, log) for log in forks]),
        merged=tuple([_label(store, log) for log in merged]),
        asked=_count(events, k.ApprovalRequested),
        allowed=_count(events, k.ApprovalGranted),
        take_up=_take_up(events, calls, outside_lines(outside)),
        waits=tuple(_waits(calls)),
    )


def _calls(events: Iterable[tuple[int, Event]]) -> Iterator[CallRecord]:
    """Yield the calls of models and tools, with their requests and outcomes."""
    calls, replies = dict[tuple[LogId, str], CallRecord](), Counter[tuple[LogId, str]]()
    for number, event in events:
        body, at = event.body, (event.log, event.header.call or "")
        agent = event.actor.partition(":")[2]
        if isinstance(body, k.ModelAsked):
            reply = f"{short(event.log)}#{replies[event.log, agent] + 1}"
            made = CallRecord(event.log, "", agent, "", f"model {agent} {reply}", begun=event.time)
            calls.setdefault(at, made).requests.append(number)
        elif isinstance(body, k.ToolRequested):
            line = f"tool {body.tool} {event.id[:12]}"
            made = CallRecord(event.log, body.tool, agent, body.effect, line, begun=event.time)
            calls.setdefault(at, made).requests.append(number)
        elif isinstance(body, (k.ModelReplied, k.ToolReturned, k.ToolFailed, k.ToolResolved)):
            call = calls.get(at)
            if call is not None and call.outcome is None:
                call.outcome, call.ended = number, event.time
            if isinstance(body, k.ModelReplied):
                replies[event.log, agent] += 1
    yield from calls.values()


def _take_up(
    events: list[tuple[int, Event]], calls: list[CallRecord], ran: Counter[str]
) -> ResumeFigures | None:
    found = next(
        ((number, event) for number, event in events if isinstance(event.body, k.RunResumed)), None
    )
    if found is None:
        return None
    number, event = found
    known = [call for call in calls if call.outcome is not None and call.outcome < number]
    models = [call for call in known if not call.tool]
    effects = [call for call in known if call.is_effect]
    return ResumeFigures(
        seq=event.seq,
        model_calls=len(models),
        effects=len(effects),
        cut=tuple(
            [
                call.outside
                for call in calls
                if call.requests[0] < number and (call.outcome is None or call.outcome > number)
            ]
        ),
        repeated_model_calls=sum(1 for call in models if call.requests[-1] > number),
        repeated_effects=sum(1 for call in effects if call.requests[-1] > number),
        repeated_outside=sum(max(ran[call.outside] - 1, 0) for call in (*models, *effects)),
    )


def _count(events: Iterable[tuple[int, Event]], kind: type[k.Body]) -> int:
    return sum(1 for _, event in events if isinstance(event.body, kind))


def _label(store: Store, log: LogId) -> str:
    return str(session_row(store, log).get("label") or short(log))


def outside_lines(outside: Path) -> Counter[str]:
    """Return how often each call really ran, by the file outside of the log."""
    if not outside.exists():
        return Counter()
    return Counter(outside.read_text().splitlines())


# ── times ────────────────────────────────────────────────────────────────────────────────────


def _waits(calls: Iterable[CallRecord]) -> list[Interval]:
    """Return the times in which a model was waited for, and no tool was at work."""
    done = [call for call in calls if call.outcome is not None]
    waits = _union((call.begun, call.ended) for call in done if not call.tool)
    for begin, end in _union((call.begun, call.ended) for call in done if call.tool):
        waits = [
            piece
            for first, last in waits
            for piece in ((first, min(last, begin)), (max(first, end), last))
            if piece[0] < piece[1]
        ]
    return waits


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    found = list[Interval]()
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def seconds_of(waits: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in waits) / 1e6


# ── checks ───────────────────────────────────────────────────────────────────────────────────


class Verification(msgspec.Struct, frozen=True):
    """The result of `plait verify` for a store."""

    sessions: int
    other_logs: int
    events: int
    faults: tuple[str, ...]  # each with its place


def verify_at(store: Store) -> Verification:
    """Check every event of a store against its hash and its neighbours."""
    faults = [
        f"{short(fault.log)}@{fault.seq}" if fault.log else "the store"
        for fault in Audit(store).faults()
    ]
    return Verification(*count_logs(store), tuple(faults))
