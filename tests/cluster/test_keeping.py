"""Kept sessions: so many of one name are always at work, each under an ordinal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait import Session
from plait.cluster import Cluster, Kept, Worker
from plait.cluster.keep_state import keeper_of, kept_session
from plait.cluster.keeping import KeepDriver
from plait.cluster.submitting import now_in
from plait.errors import InvalidValue, NotPortable, UnknownKept
from plait.event import kinds as k
from plait.session import verify
from plait.session.job_rows import job_rows
from plait.store import Store
from tests.cluster.flows import (
    Count,
    Fails,
    Line,
    Sleeps,
    Slow,
    Wire,
    lines_in,
    started_runs,
    wait_until,
)

Serve = Callable[..., Worker]


def starts_of(kept: Kept, ordinal: int) -> list[k.KeptStarted]:
    bodies = [event.body for event in kept.session.events]
    return [b for b in bodies if isinstance(b, k.KeptStarted) and b.ordinal == ordinal]


def run_starts(store: Store, kept: Kept, ordinal: int) -> int:
    """Count the runs that were started for an ordinal, by the log of its session."""
    return len(started_runs(store, kept.ordinals[ordinal].session))


def active_in(kept: Kept) -> list[int]:
    return [each.ordinal for each in kept.ordinals if each.is_active]


# ── keeping ──────────────────────────────────────────────────────────────────────────────────


def test_each_ordinal_has_a_session_of_its_own(store: Store) -> None:
    cluster = Cluster(store)
    kept = cluster.keep("triage", Wire(), replicas=3, project="desk")
    assert (kept.status, kept.replicas, active_in(kept)) == ("keeping", 3, [0, 1, 2])
    assert [each.id for each in kept.sessions] == [
        kept_session(store.id, "triage", n) for n in range(3)
    ]
    assert {each.project for each in kept.sessions} == {"desk"}
    assert [each.title for each in kept.sessions] == ["triage 0", "triage 1", "triage 2"]
    assert kept.id == keeper_of(store.id, "triage")
    again = cluster.keep("triage", Wire(), replicas=3, project="desk")
    assert again.session.head == kept.session.head  # nothing was to say
    assert [run_starts(store, kept, n) for n in range(3)] == [1, 1, 1]
    assert cluster.open_kept("triage").ordinals == kept.ordinals
    assert list(verify(store)) == []


def test_a_run_that_ends_is_followed_by_the_next_in_the_same_session(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    kept = Cluster(store).keep("beat", Count(), replicas=2, path=str(out), steps=1)
    serve()
    wait_until(lambda: all(each.round >= 3 for each in kept.ordinals))
    for ordinal in range(2):
        rounds = [word.round for word in starts_of(kept, ordinal)]
        assert rounds == list(range(1, len(rounds) + 1))
        assert run_starts(store, kept, ordinal) in (len(rounds), len(rounds) - 1)
    texts = [line.split()[0] for line in lines_in(out)]
    assert {each.partition("/")[0] for each in texts} == {each.short for each in kept.sessions}
    assert len(lines_in(out)) == len(set(lines_in(out)))


def test_a_run_that_fails_is_followed_after_a_pause_that_grows(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    kept = Cluster(store).keep("fails", Fails(), replicas=1, path=str(there))
    serve()
    wait_until(lambda: kept.ordinals[0].failures >= 2)
    told = [(event.body, event.header.time) for event in kept.session.events]
    ends = [(body, time) for body, time in told if isinstance(body, k.KeptEnded)]
    first, second = [(body.due - time) / 1e6 for body, time in ends[:2]]
    assert [body.failures for body, _ in ends[:2]] == [1, 2] and first <= 1.0 and second <= 2.0
    starts = [time for body, time in told if isinstance(body, k.KeptStarted)]
    assert starts[1] >= ends[0][0].due and starts[2:3] >= [ends[1][0].due][: len(starts[2:3])]
    assert "not yet" in ends[0][0].why
    there.touch()
    wait_until(lambda: kept.ordinals[0].failures == 0)
    assert kept.sessions[0].text == "at last"


# ── scaling ──────────────────────────────────────────────────────────────────────────────────


def test_scaled_down_from_the_top_and_up_in_order(store: Store) -> None:
    cluster = Cluster(store)
    kept = cluster.keep("triage", Wire(), replicas=4)
    first = [each.id for each in kept.sessions]
    cluster.keep("triage", replicas=1)
    assert (kept.replicas, active_in(kept)) == (1, [0])
    ends = [e.body.ordinal for e in kept.session.events if isinstance(e.body, k.KeptEnded)]
    assert ends == [3, 2, 1]
    for log in first[1:]:
        session = Session.open(log, store=store)
        (end,) = [e.body for e in session.events if isinstance(e.body, k.RunCancelled)]
        assert end.reason == "triage is scaled to 1"
    for each in list(kept.ordinals):  # their rests are over
        wait_until(lambda each=each: not _rests(store, kept, each.ordinal))
    cluster.keep("triage", replicas=3)
    wait_until(lambda: KeepDriver(store).advance(kept.id) and active_in(kept) == [0, 1, 2])
    again = [e.body.ordinal for e in kept.session.events if isinstance(e.body, k.KeptStarted)]
    assert again == [0, 1, 2, 3, 1, 2]
    assert [each.id for each in kept.sessions] == first[:3]


def _rests(store: Store, kept: Kept, ordinal: int) -> bool:
    return kept.ordinals[ordinal].due > now_in(store)


def test_the_next_lower_one_is_asked_when_the_higher_has_ended(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    cluster = Cluster(store)
    kept = cluster.keep("slow", Slow(), replicas=3, path=str(out), seconds=0.05, steps=10_000)
    serve(slots=3)
    wait_until(lambda: len({line.partition("/")[0] for line in lines_in(out)}) == 3)
    cluster.keep("slow", replicas=0)
    wait_until(lambda: kept.status == "ended")
    ends = [e.body.ordinal for e in kept.session.events if isinstance(e.body, k.KeptEnded)]
    assert ends == [2, 1, 0] and kept.sessions == []
    assert [row["state"] for row in job_rows(store)] == ["over"]
    assert list(verify(store)) == []


def test_a_new_program_is_used_from_the_next_run_on(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    cluster = Cluster(store)
    kept = cluster.keep("both", Sleeps(), replicas=1, seconds=0.1)
    cluster.keep("both", Count(), replicas=1)
    serve()
    wait_until(lambda: kept.ordinals[0].round >= 2 and "counted" in kept.sessions[0].text)
    started = [e.body for e in kept.sessions[0].events if isinstance(e.body, k.RunStarted)]
    assert [s.workflow.rpartition(":")[2] for s in started[:2]] == ["Sleeps", "Count"]


def test_a_paused_or_closed_session_is_left_alone(store: Store) -> None:
    kept = Cluster(store).keep("triage", Wire(), replicas=2)
    paused, closed = kept.sessions
    for each in (paused, closed):
        each.inbox.cancel("enough", actor="human:ann")
    closed.reload().close()
    paused.reload().pause(actor="human:ann")
    wait_until(lambda: KeepDriver(store).advance(kept.id) and not active_in(kept))
    wait_until(lambda: not any(_rests(store, kept, n) for n in range(2)))
    KeepDriver(store).advance(kept.id)
    assert active_in(kept) == []
    paused.reload().unpause(actor="human:ann")
    KeepDriver(store).advance(kept.id)
    assert active_in(kept) == [0]


# ── bad input ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "how", "said"),
    [
        ("triage", {"replicas": -1}, "replicas"),
        ("triage", {"replicas": 1001}, "replicas"),
        ("triage", {"replicas": True}, "replicas"),
        ("a b", {"replicas": 1}, "not a label"),
        ("", {"replicas": 1}, "not a label"),
        ("triage", {"replicas": 1, "need": "gpu"}, "not a set of labels"),
        ("triage", {"replicas": 1, "priority": 101}, "priority"),
        ("triage", {"replicas": 1, "nonsense": 1}, "does not take that"),
    ],
)
def test_wrong_counts_and_names_are_refused(
    store: Store, name: str, how: dict[str, Any], said: str
) -> None:
    logs = len(store.logs())
    with pytest.raises(InvalidValue, match=said):
        Cluster(store).keep(name, Count(), **how)
    assert len(store.logs()) == logs


def test_a_name_without_a_program_is_refused(store: Store) -> None:
    logs = len(store.logs())
    with pytest.raises(UnknownKept, match="triage"):
        Cluster(store).keep("triage", replicas=0)
    with pytest.raises(UnknownKept, match="triage"):
        Cluster(store).open_kept("triage")
    with pytest.raises(NotPortable):
        Cluster(store).keep("triage", Line("left"), replicas=1)
    assert len(store.logs()) == logs


# ── workers that die ─────────────────────────────────────────────────────────────────────────


def test_kept_sessions_outlive_workers_that_are_killed(
    store: Store, environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    cluster = Cluster(store)
    kept = cluster.keep("beat", Count(), replicas=3, path=str(out), steps=4)
    line = [sys.executable, "-m", "plait", "worker", "tests.cluster.flows"]
    line += ["--store", store.address, "--slots", "3"]
    for _ in range(3):
        before = len(lines_in(out))
        process = subprocess.Popen(line, env=environment)
        try:
            wait_until(lambda before=before: len(lines_in(out)) > before + 13)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    cluster.keep("beat", replicas=0)
    wait_until(lambda: KeepDriver(store).advance(kept.id) and kept.status == "ended")
    for ordinal in range(3):
        words = starts_of(kept, ordinal)
        assert len(words) >= 2 and [word.round for word in words] == [*range(1, len(words) + 1)]
        assert len(words) - 1 <= run_starts(store, kept, ordinal) <= len(words)
        ends = [e.body for e in kept.session.events if isinstance(e.body, k.KeptEnded)]
        rounds = [each.round for each in ends if each.ordinal == ordinal]
        assert rounds == [word.round for word in words]
    assert len({each.session for each in kept.ordinals}) == 3
    assert list(verify(store, state=True)) == []
