"""Clocks: they jump, stand still and disagree. What is true of a session never depends on them.

The same history is made twice, by a sane clock and by one that is not, with the same ids and salts.
Places, states, listings and verify come out the same; only times differ, and the hashes over them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plait import Session, Store, open_store
from plait.event import without_measured
from plait.ids import LogId, Micros, derive_id
from plait.journal.writer import DirectWriter, bind_direct_writer, direct_writer
from plait.session import verify
from plait.session.fold import state_at
from plait.session.value import counted_logs
from tests.faults.folders import quick_folder
from tests.support import dose, python, report, seed

START = 1_750_000_000_000_000
YEAR = 365 * 86_400 * 10**6
LAST = 2**63 - 1


class Clock:
    """A `Source` whose time is what a function of the number of questions says; ids and salts are
    the same for all clocks.
    """

    def __init__(self, time: Callable[[int], Micros]) -> None:
        self._time, self._asked, self._made = time, 0, 0

    def now(self, log: LogId, seq: int) -> Micros:
        self._asked += 1
        return min(max(self._time(self._asked), 0), LAST)

    def salt(self, log: LogId, seq: int) -> bytes:
        return sha256(f"{log}/{seq}".encode()).digest()[:16]

    def fresh(self, *about: str | int) -> LogId:
        self._made += 1
        return derive_id("clock", self._made)


def sane(asked: int) -> Micros:
    return START + asked * 1_000_000


CLOCKS: dict[str, Callable[[int], Micros]] = {
    "backward": lambda asked: START - asked * 3_600_000_000,
    "still": lambda asked: START,
    "repeating": lambda asked: START + asked % 3,
    "back by a year now and then": lambda asked: sane(asked) - YEAR * (asked // 7 % 2),
    "forward by years": lambda asked: sane(asked) + YEAR * asked * 3,
    "before 1970 and after the end of time": lambda asked: -5 if asked % 2 else 2**70,
    "two that differ by hours": lambda asked: sane(asked) + (asked % 2) * 5 * 3_600_000_000,
}


@contextmanager
def by(clock: Clock) -> Generator[None]:
    """Sessions take their time from this clock for a while."""
    before = direct_writer()
    bind_direct_writer(DirectWriter(clock, before.store, before.address))
    try:
        yield
    finally:
        bind_direct_writer(before)


def live(store: Store, steps: int, start: int) -> list[Session]:
    """A history with everything that orders something: forks, rewinds, merges, the same key written
    by many, tags, lives.
    """
    chance = random.Random(start)
    sessions = [Session("begin", title="s0", user="u-0", tags={"team": "web"}, store=store)]
    for i in range(steps):
        at = chance.randrange(len(sessions))
        session, verb = sessions[at], chance.randrange(12)
        if session.status in ("closed", "archived") or verb == 0:
            sessions.append(
                Session(
                    f"begin {i}",
                    title=f"s{i}",
                    user=f"u-{i % 3}",
                    tags={"team": "web"} if i % 2 else {},
                    store=store,
                )
            )
        elif verb == 1:
            sessions.append(session.fork(f"b{i}", at=chance.randrange(1, session.seq + 1)))
        elif verb == 2 and session.seq > 2:
            sessions[at] = session.rewind(chance.randrange(1, session.seq))
        elif verb == 3 and (
            near := [other for other in sessions if other.id != session.id and _kin(session, other)]
        ):
            sessions[at] = session.merge(chance.choice(near), resolve=_either)
        elif verb == 4:
            sessions[at] = session.close() if i % 3 == 0 else session.pause().unpause()
        elif verb == 5:
            sessions[at] = session.todo(f"work {i % 5}", key=f"w{i % 5}")
        elif verb < 9:
            sessions[at] = session.fact(f"k{i % 4}", i, because=session)
        else:
            sessions[at] = session.say(f"words {i}")
    return sessions


def _either(key: str, sides: Mapping[str, Any]) -> Any:
    return sides[min(sides)]


def _kin(one: Session, other: Session) -> bool:
    return bool(counted_logs(one).keys() & counted_logs(other).keys()) and other.status not in (
        "closed",
        "archived",
    )


def history_facts(store: Store, sessions: list[Session]) -> dict[str, Any]:
    """All that can be said of a history, with ids of events as their places and times left out."""
    places = {event.id: f"{event.log}@{event.seq}" for _, event in store.feed()}

    def placed(value: Any) -> str:
        text = msgspec.json.encode(value, order="deterministic").decode()
        for id, place in places.items():
            text = text.replace(id, place)
        return text

    states = [
        msgspec.structs.replace(state_at(store, session.id, session.seq), opened=0)
        for session in sessions
    ]
    return {
        "places": list(places.values()),
        "bodies": [placed(_timeless(event.body)) for _, event in store.feed()],
        "parents": [
            [places[id] for id in event.header.parents + event.header.causes]
            for _, event in store.feed()
        ],
        "states": [placed(state) for state in states],
        "listed": [str(each) for each in Session.list(store=store)],
        "by user": [str(each) for each in Session.list(store=store, user="u-1")],
        "by tag": [str(each) for each in Session.list(store=store, tag={"team": "web"})],
        "open": [str(each) for each in Session.list(store=store, status="open")],
        "logs": [log.id for _, log in store.logs()],
        "said": [[message.text for message in session.messages] for session in sessions],
        "histories": [
            [change.status for change in session.lineage.statuses] for session in sessions
        ],
        "why": [
            [(step.log, step.seq, step.how) for step in session.why(session.seq)]
            for session in sessions
        ],
    }


def _timeless(body: Any) -> Any:
    """The digest of a state covers when it was opened."""
    bare = without_measured(body)
    return (
        msgspec.structs.replace(bare, state=None)
        if getattr(bare, "state", None) is not None
        else bare
    )


def history(folder: Path, time: Callable[[int], Micros], steps: int, start: int) -> dict[str, Any]:
    store = open_store(folder)
    with by(Clock(time)):
        sessions = live(store, steps, start)
        found = history_facts(store, sessions)
        for session in sessions:
            check_slices(session)
            check_snapshots(store, session)
    assert list(verify(store, state=True)) == []
    store.rebuild("session")
    store.rebuild("graph")
    assert [str(each) for each in Session.list(store=store)] == found["listed"]
    store.close()
    return found


def check_slices(session: Session) -> None:
    """A slice by time is a choice of events by their time, in the order of the log, however the
    clock ran.
    """
    events = list(session.events)
    last = events[-1].time
    for since, micros in (("1s", 10**6), ("2h", 7_200 * 10**6), ("52w", 52 * 7 * 86_400 * 10**6)):
        due = [event.seq for event in events if event.time >= last - micros]
        assert [event.seq for event in session.events[since:]] == due
        assert [event.seq for event in session.events.where(until=since)] == [
            e.seq for e in events if e.time <= last - micros
        ]
    assert [event.seq for event in events] == list(range(1, session.seq + 1))


def check_snapshots(store: Store, session: Session) -> None:
    """The state is the same from snapshots and without."""
    kept = state_at(store, session.id, session.seq)
    assert state_at(store, session.id, session.seq, cached=False) == kept


@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock_that_is_wrong_changes_nothing_but_times(name: str) -> None:
    steps, start = dose("STEPS", short=40, long=300), seed()
    with quick_folder() as folder:
        right = history(folder / "right", sane, steps, start)
        wrong = history(folder / "wrong", CLOCKS[name], steps, start)
    for what, value in right.items():
        assert wrong[what] == value, f"SEED={start}: {what} differ under a clock that is {name}"
    report(
        "clock",
        f"{name}: {len(right['places']):,} events in {len(right['logs'])} sessions, the same as by"
        " a sane clock",
        start,
    )


WRITER = """
import sys
from plait import Session, open_store
from plait.runtime.live import Live
from plait.journal.writer import DirectWriter, bind_direct_writer
from plait.session.ports import writer_of

class Off(Live):
    def now(self, log, seq):
        return super().now(log, seq) + int(hours) * 3_600_000_000

folder, name, hours, text = sys.argv[1:]
before = writer_of(None)
bind_direct_writer(DirectWriter(Off(), before.store, before.address))
session = Session.open(name, store=open_store(folder)).say(text).fact("last", text)
Session(text, title=text, store=open_store(folder))
"""


def test_processes_whose_clocks_differ_by_hours_write_one_history(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    session = Session("begin", title="first", store=store)
    for i, hours in enumerate((5, -7, 9000)):
        python(WRITER, tmp_path, session.id, str(hours), str(i))
    session = session.reload()
    assert [message.text for message in session.messages] == ["begin", "0", "1", "2"]
    assert session.facts["last"] == "2"
    assert [each.title for each in Session.list(store=store)] == ["2", "1", "0", "first"]
    times = [event.time for event in session.events]
    assert times != sorted(times)
    check_slices(session)
    assert list(verify(store, state=True)) == []
    store.close()
