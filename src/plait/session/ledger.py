"""Costs, added up over many sessions: by user, project, agent, model, session, run, day or tag.

Every event stands in the store once, however many forks and merges take it along, so each is
counted once. The rules are those of a session's own `spent`. The total of a session is that, less
tool calls that a policy refused, and with the branches that its runs opened and did not merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from plait.errors import InvalidValue
from plait.event import Event
from plait.event.kinds import ModelAsked, ToolRequested, Usage
from plait.ids import LogId, Micros
from plait.session.grants import SPENDING, spent_by, spent_in
from plait.session.listing import session_row
from plait.session.ports import store_at
from plait.session.reading import Reading
from plait.session.run_branches import branches_of_runs, is_of_run
from plait.session.state import NOTHING, Spent
from plait.session.times import When, parse_when
from plait.session.value import counted_logs
from plait.store import Store, visible_events

NAMES = ("user", "project", "agent", "model", "session", "run", "day")  # and tag:NAME
# beside a run: whether a branch of it was ever merged; "": it was, or it is the session's own log
BRANCH, LOSING = "branch", "not merged"

_tags = msgspec.json.Decoder(dict[str, str]).decode


class Costs(NamedTuple):
    """Sums by the names in `by`, the dearest first, and the sum of all."""

    by: tuple[str, ...]
    # "": there is none, as there is no model to a call of the program's own
    rows: tuple[tuple[tuple[str, ...], Spent], ...]
    total: Spent
    # the part of the total in branches that were not merged. None: it is not about one session
    not_merged: Spent | None = None
    since: Micros | None = None  # None: from the beginning
    until: Micros | None = None  # None: up to the end


def costs(
    store: Store,
    by: str | Sequence[str] = (),
    *,
    since: When | None = None,
    until: When | None = None,
    session: Reading | None = None,
) -> Costs:
    """Add up the costs of the sessions of a store, or of one session, all that it covers, and the
    branches of its runs.

    A span such as "7d" counts back from the last event.
    """
    names = _check_names(
        [name for text in ([by] if isinstance(by, str) else by) for name in text.split(",")]
    )
    first, last = _time_limits(store, since, until, session)
    about = _Filing(store, session)
    sums: dict[tuple[str, ...], list[Spent]] = {}
    losing = list[Spent]()
    for event in _events(store, session):
        body: Any = event.body
        about.note_model(event, body)
        if (first is None or event.time >= first) and (last is None or event.time <= last):
            spent = NOTHING if _is_refused(body) else spent_by(body)
            if spent is not NOTHING:
                sums.setdefault(
                    tuple([about.value(name, event, body) for name in names]), []
                ).append(spent)
                if session is not None and about.branch(event):
                    losing.append(spent)
    rows = [(key, _sum_spent(parts)) for key, parts in sums.items()]
    rows.sort(key=lambda row: (-row[1].cost_usd_nano, -row[1].tokens, row[0]))
    total, not_merged = _sum_spent([spent for _, spent in rows]), _sum_spent(losing)
    return Costs(
        names, tuple(rows), total, not_merged if session is not None else None, first, last
    )


def spent_in_branches(session: Reading) -> Spent:
    """Return the amounts spent in branches that runs of a session opened and did not merge:
    `session.budget.used` does not count them.
    """
    store, covers = store_at(session.store), counted_logs(session)
    return spent_in(_events_of_branches(store, session, covers))


def _is_refused(body: Any) -> bool:
    """Return True if a policy refused this call. A budget counts it all the same."""
    return isinstance(body, ToolRequested) and body.decision == "refuse"


def _check_names(names: Sequence[str]) -> tuple[str, ...]:
    given = [name.strip() for name in names if name.strip()]
    # With runs the cost of branches that were never merged stands in rows of its own.
    found = tuple(
        dict.fromkeys(
            [part for name in given for part in ((name, BRANCH) if name == "run" else (name,))]
        )
    )
    for name in found:
        if name not in (*NAMES, BRANCH) and not (name.startswith("tag:") and len(name) > 4):
            raise InvalidValue(
                "by", f"nothing is summed by {name!r}", f"use {', '.join(NAMES)} or tag:NAME"
            )
    return found


def _time_limits(
    store: Store, since: When | None, until: When | None, session: Reading | None
) -> tuple[Micros | None, Micros | None]:
    if since is None and until is None:
        return None, None
    newest = (
        session.events[-1]
        if session is not None
        else next((event for _, event in store.feed(limit=1, reverse=True)), None)
    )
    last = newest.time if newest is not None else 0
    return (
        parse_when(since, last, "since") if since is not None else None,
        parse_when(until, last, "until") if until is not None else None,
    )


def _events(store: Store, session: Reading | None) -> Iterator[Event]:
    """Yield each event that may have cost something, once."""
    if session is None:
        for _, event in visible_events(store, kinds=SPENDING):
            yield event
        return
    covers = counted_logs(session)
    for log, upto in covers.items():
        yield from store.read(log, store.log(log).place + 1, upto, kinds=SPENDING)
    yield from _events_of_branches(store, session, covers)


def _events_of_branches(
    store: Store, session: Reading, covers: dict[LogId, int]
) -> Iterator[Event]:
    for log in branches_of_runs(session):
        first = max(store.log(log).place, covers.get(log, 0)) + 1
        yield from store.read(log, first, kinds=SPENDING)


def _sum_spent(parts: Sequence[Spent]) -> Spent:
    usage = Usage(
        *(sum([getattr(part.usage, name) for part in parts]) for name in Usage.__struct_fields__)
    )
    return Spent(
        usage,
        *(sum([getattr(part, name) for part in parts]) for name in Spent.__struct_fields__[1:]),
    )


class _Filing:
    """Finds the values that an event is summed under: its user, model, day and so on."""

    def __init__(self, store: Store, session: Reading | None) -> None:
        self._store = store
        self._counted: dict[LogId, int] = dict(counted_logs(session)) if session is not None else {}
        self._of_one = session is not None
        self._rows: dict[LogId, dict[str, Any]] = {}
        # which model a call asked: a failure does not say it
        self._asked: dict[tuple[LogId, str | None], str] = {}

    def note_model(self, event: Event, body: Any) -> None:
        if isinstance(body, ModelAsked):
            self._asked[event.log, event.header.call] = body.model

    def value(self, name: str, event: Event, body: Any) -> str:
        if name.startswith("tag:"):
            return self._row(event.log)["tags"].get(name[4:], "")
        return _VALUES[name](self, event, body)

    def model(self, event: Event, body: Any) -> str:
        """Return the model as it was asked for: its name in the answer may differ, and the bill
        would be in two halves.
        """
        if isinstance(body, ToolRequested):
            return ""
        return self._asked.get((event.log, event.header.call)) or getattr(body, "model", "")

    def branch(self, event: Event) -> str:
        """Return LOSING if the event stands in a branch of a run that was never merged, or ""."""
        upto = self._counted.get(event.log, 0) if self._of_one else self._counted_upto(event.log)
        return "" if event.seq <= upto else LOSING

    def _counted_upto(self, log: LogId) -> int:
        """Return the last place of a log that counts: its tip, or for a branch of a run the last
        place that was merged into a log that counts.
        """
        waiting = [log] if log not in self._counted else []
        while waiting:
            at = waiting[-1]
            merges = (
                self._store.rows("graph", "merge", {"log": at}, limit=2**31)
                if is_of_run(self._store, at)
                else None
            )
            known = [
                (LogId(str(row["into"])), int(row["seq"] or 0), int(row["place"] or 0))
                for row in merges or ()
            ]
            further = [
                into for into, _, _ in known if into not in self._counted and into not in waiting
            ]
            if further:
                waiting += further
                continue
            places = [place for into, seq, place in known if seq <= self._counted.get(into, 0)]
            self._counted[at] = (
                self._store.log(at).tip if merges is None else max(places, default=0)
            )
            waiting.pop()
        return self._counted[log]

    def row_text(self, name: str, event: Event) -> str:
        return str(self._row(event.log)[name] or "")

    def _row(self, log: LogId) -> dict[str, Any]:
        if log not in self._rows:
            row = session_row(self._store, log)
            tags = _tags(str(row.get("tags") or "{}"))
            parent = row.get("parent")  # tags are kept with the root
            if parent:
                tags = {**self._row(LogId(str(parent)))["tags"], **tags}
            self._rows[log] = {"user": row.get("user"), "project": row.get("project"), "tags": tags}
        return self._rows[log]


def _agent(about: _Filing, event: Event, body: Any) -> str:
    kind, _, name = event.actor.partition(":")
    return name if kind == "agent" else event.actor


def _day(about: _Filing, event: Event, body: Any) -> str:
    return datetime.fromtimestamp(event.time / 1e6, UTC).date().isoformat()


_VALUES: dict[str, Callable[[_Filing, Event, Any], str]] = {
    "user": lambda about, event, body: about.row_text("user", event),
    "project": lambda about, event, body: about.row_text("project", event),
    "agent": _agent,
    "model": lambda about, event, body: about.model(event, body),
    "session": lambda about, event, body: event.log,
    "run": lambda about, event, body: (event.header.run or "").partition("/")[0],
    BRANCH: lambda about, event, body: about.branch(event),
    "day": _day,
}
