"""Scale: a long session and many sessions. What is asked of a few events or sessions must not cost
by how many there are.

Each question is asked in a process of its own, which reports its time, its calls and its peak
memory. Times are only reported: what is asserted is how many calls it takes, which a busy machine
does not change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plait import Store, open_store
from plait.event import seal_all
from plait.event.kinds import Body, FactRecorded, ScratchSet, SessionOpened
from plait.ids import LogId
from plait.runtime.live import Live
from plait.session.fold import keep_snapshot, state_at
from plait.testing.writing import message
from tests.faults.folders import quick_folder
from tests.support import dose, python, report

CALLS_MAX, PEAK_MB_MAX = 20_000, 300  # the target is 100 ms and 300 MB for a million events
BATCH = 5000

QUESTION = """
import json, re, resource, sys, time
from pathlib import Path
from plait import Session, open_store
from tests.support import count_calls
folder, name, middle = sys.argv[1], sys.argv[2], int(sys.argv[3])
started = time.perf_counter()
store = open_store(folder)
def took(ask):
    global started
    answer = ask()
    now = time.perf_counter()
    figures.append((now - started) * 1000)
    calls.append(count_calls(ask))
    started = time.perf_counter()
    return answer
figures, calls = [], []
{ask}
status = Path("/proc/self/status")  # ru_maxrss survives exec: it would be the peak of whoever started this process
peak = int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) if status.exists() else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"ms": figures, "calls": calls, "peak_mb": peak / 1024}))
"""  # noqa: E501
# What is measured is the last step; what comes before it makes it ready, and the opening of the
# store is in the first.
OPEN = "s = took(lambda: Session.open(name, store=store))"
LONG = {
    "open lazily": (OPEN, "assert s.seq == middle * 2"),
    "tail": (
        OPEN,
        "t = took(lambda: s.events[-10:])",
        "assert t[-1].seq == s.seq and len(t) == 10",
    ),
    "one in the middle": (OPEN, "e = took(lambda: s.events[middle])", "assert e.seq == middle + 1"),
    "state": (OPEN, "d = took(lambda: dict(s.facts))", "assert len(d) == 50"),
    "fork in the middle": (
        OPEN,
        "f = took(lambda: s.fork('half', at=middle))",
        "assert f.seq == middle + 1",
    ),
    "say after a fork": (
        OPEN,
        "f = took(lambda: s.fork(at=middle))",
        "g = took(lambda: f.say('x'))",
        "assert g.seq == middle + 2",
    ),
}
MANY = {
    "a page": (
        "p = took(lambda: Session.list(store=store, limit=100))",
        "q = took(lambda: Session.list(store=store, limit=100, before=p[-1]))",
        "assert len(q) == 100 and not {s.id for s in p} & {s.id for s in q}",
    ),
    "a page by user": (
        "p = took(lambda: Session.list(store=store, user='u-7', limit=100))",
        "q = took(lambda: Session.list(store=store, user='u-8', limit=100))",
        "assert q and all(s.user == 'u-8' for s in q[:3])",
    ),
    "open by short id": (
        OPEN,
        "t = took(lambda: Session.open(name[-12:-4], store=store))",
        "assert s == t",
    ),
}


def ask(folder: Path, name: str, middle: int, steps: tuple[str, ...]) -> dict[str, Any]:
    return json.loads(
        python(QUESTION.replace("{ask}", "\n".join(steps)), folder, name, str(middle)).stdout
    )


@contextmanager
def built(events: int, sessions: int) -> Generator[tuple[Path, LogId, LogId]]:
    """A store with one session of so many events, and so many others."""
    with quick_folder() as folder:
        store = open_store(folder)
        short = build_many(store, sessions)
        log = build_long(store, events)
        store.close()
        yield folder, log, short


def build_long(store: Store, events: int) -> LogId:
    source = Live()
    log = source.fresh()
    opened = seal_all(
        [SessionOpened(title="long")], log=log, seq=1, parents=(), source=source, actor="human:a"
    )
    head = store.begin(log, opened)
    for first in range(2, events + 1, BATCH):
        bodies = [body(place) for place in range(first, min(first + BATCH, events + 1))]
        head = store.append(
            log,
            seal_all(bodies, log=log, seq=first, parents=(head,), source=source, actor="human:a"),
            after=head,
        )
    # As whoever wrote it event by event would have left it: snapshots not far before the middle and
    # the end.
    for at in (events // 2 - 100, events - 100):
        keep_snapshot(store, state_at(store, log, at), next(store.read(log, at, at)).id)
    return log


def body(place: int) -> Body:
    if place % 20 == 0:
        return FactRecorded(f"fact {place // 20 % 50}", place, "fact")
    return (
        ScratchSet("place", place)
        if place % 20 == 10
        else message(f"message {place}, of middling length, as they are")
    )


def build_many(store: Store, sessions: int) -> LogId:
    """Many beginnings of logs share their commits, as those of many threads do."""
    source = Live()
    logs = [source.fresh() for _ in range(sessions)]
    for i, log in enumerate(logs):
        opened = SessionOpened(
            title=f"session {i}",
            user=f"u-{i % 100}",
            tags={"team": str(i % 7)} if i % 10 == 0 else {},
        )
        store.begin(
            log,
            seal_all(
                [opened, message("x")], log=log, seq=1, parents=(), source=source, actor="human:a"
            ),
        )
    return logs[sessions // 2]


def test_questions_about_a_few_cost_the_same_among_a_million() -> None:
    """EVENTS=1000000 SESSIONS=100000."""
    events, sessions = (
        dose("EVENTS", short=5000, long=200_000) // 2 * 2,
        dose("SESSIONS", short=500, long=20_000),
    )
    started = time.monotonic()
    with built(events, sessions) as (folder, long, short):
        built_s = time.monotonic() - started
        figures = {
            what: ask(folder, long, events // 2, question) for what, question in chosen(LONG)
        }
        figures |= {what: ask(folder, short, 0, question) for what, question in chosen(MANY)}
        size = sum(path.stat().st_size for path in folder.iterdir())
    for what, figure in figures.items():
        assert max(figure["calls"]) < CALLS_MAX, f"{what}: {figure}"
        assert figure["peak_mb"] < PEAK_MB_MAX, f"{what}: {figure}"
    told = ", ".join(
        f"{what} {figure['ms'][-1]:.1f} ms / {figure['peak_mb']:.0f} MB"
        for what, figure in figures.items()
    )
    report(
        "scale",
        f"{events:,} events and {sessions:,} sessions, {size / 1e6:,.0f} MB, built in {built_s:.0f}"
        f" s: {told}",
    )


def chosen(questions: dict[str, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """All of them at length; in the ordinary run one of each sort, because each is a process."""
    return list(questions.items())[: dose("QUESTIONS", short=1, long=99)]
