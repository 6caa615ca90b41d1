"""Many writers: threads, processes, forks; their histories, checked.

And how many fsyncs they pay.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from plait import Session, open_store
from plait.errors import StoreBusy
from plait.session import verify
from plait.store import SqliteStore
from plait.testing import Seeded
from plait.testing.writing import begin, extend, message, texts, wait_until_settled
from tests.faults.history import Act, Append, Entry, Look, check, decode
from tests.faults.rival import run, text_of
from tests.support import (
    ForkedProgram,
    RawSql,
    child_environment,
    dose,
    module_command,
    needs_strace,
    python,
    report,
    seed,
)


def final_logs(sessions: list[Session]) -> dict[str, list[Entry]]:
    """The whole store as it was left: it holds nothing but these sessions."""
    store = open_store(sessions[0].store)
    wait_until_settled(store)
    numbers = {event.id: number for number, event in store.feed()}
    return {
        session.id: [
            Entry(event.seq, numbers[event.id], event.id, text_of(event.body))
            for event in session.reload().events
        ]
        for session in sessions
    }


def judge(part: str, sessions: list[Session], acts: list[Act], due: int, seed: int) -> None:
    store = open_store(sessions[0].store)
    acknowledged = sum(isinstance(act, Append) and act.outcome == "ok" for act in acts)
    assert acknowledged == due, f"SEED={seed}: {acknowledged} of {due} appends were acknowledged"
    assert check(acts, final_logs(sessions), dense=store.dense) == [], f"SEED={seed}"
    assert list(verify(store, state=True)) == [], f"SEED={seed}"
    refused, looks = (
        sum(isinstance(act, Append) for act in acts) - due,
        sum(isinstance(act, Look) for act in acts),
    )
    report(
        part,
        f"{due:,} appends, {refused:,} refused as stale, {looks:,} looks, {len(sessions)} sessions:"
        " 0 anomalies",
        seed,
    )
    store.close()


def run_rivals(
    place: str, ids: Sequence[str], processes: int, each: int, threads: int, chance: int
) -> list[Act]:
    """So many processes write to these sessions at once; returns all that they did."""
    rivals = [
        ForkedProgram(
            module_command(
                "tests.faults.rival",
                place,
                f"p{i}",
                str(each),
                str(threads),
                str(chance),
                *ids,
            ),
            env=child_environment(),
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
            bufsize=0,
        )
        for i in range(processes)
    ]
    for rival in rivals:
        assert rival.stdout is not None
        rival.stdout.read(1)  # it is ready
    for rival in rivals:
        assert rival.stdin is not None
        rival.stdin.write(b"x")
    outcomes = [rival.communicate(timeout=30 + each) for rival in rivals]
    assert all(rival.returncode == 0 for rival in rivals) and not any(
        errors for _, errors in outcomes
    ), f"SEED={chance}: {outcomes}"
    return [act for said, _ in outcomes for act in decode(said)]


@pytest.mark.parametrize(("short", "threads", "logs"), [(8, 1, 1), (3, 2, 24)])
def test_processes_leave_a_history_that_one_writer_could_have_made(
    tmp_path: Path, short: int, threads: int, logs: int
) -> None:
    """WRITES=5000: so many appends by each process."""
    processes, each, chance = (
        dose("PROCESSES", short=short, long=8),
        dose("WRITES", short=15, long=300),
        seed(),
    )
    store = open_store(tmp_path)
    sessions = [Session(title=str(i), store=store) for i in range(logs)]
    ids = [session.id for session in sessions]
    acts = run_rivals(str(tmp_path), ids, processes, each, threads, chance)
    judge(
        f"writers, {processes} processes of {threads} threads",
        sessions,
        acts,
        each * processes,
        chance,
    )


@pytest.mark.parametrize("logs", [1, 5])
def test_threads_leave_a_history_that_one_writer_could_have_made(tmp_path: Path, logs: int) -> None:
    each, chance = dose("WRITES", short=15, long=300), seed()
    store = open_store(tmp_path)
    sessions = [Session(title=str(i), store=store) for i in range(logs)]
    acts = run("t", sessions, each * 8, 8, chance)
    judge("writers, 8 threads", sessions, acts, each * 8, chance)


# ── the checker ──────────────────────────────────────────────────────────────────────────────


def entries(*texts: str) -> list[Entry]:
    return [Entry(i, i, f"id {i}", text) for i, text in enumerate(("", *texts), 1)]


def ok(writer: str, began: int, ended: int, place: int, *texts: str) -> Append:
    return Append(writer, "L", began, ended, texts, "ok", place, f"id {place}")


def look(writer: str, began: int, ended: int, place: int, *texts: str) -> Look:
    return Look(writer, "L", began, ended, place, f"id {place}", texts)


def stale(writer: str, began: int, ended: int, place: int, *texts: str) -> Append:
    return Append(writer, "L", began, ended, texts, "stale", place, f"id {place}")


SOUND: list[Act] = [
    ok("p", 1, 4, 2, "a"),
    stale("q", 2, 5, 2, "b"),
    look("q", 6, 7, 2, "", "a"),
    ok("q", 8, 9, 4, "c", "d"),
    look("p", 8, 10, 2, "a"),  # begun before c was acknowledged: it may have missed it
    ok("p", 11, 12, 5, "e"),
]
LEFT = entries("a", "c", "d", "e")


def test_a_sound_history_passes() -> None:
    assert check(SOUND, {"L": LEFT}) == []


@pytest.mark.parametrize(
    ("name", "acts", "left"),
    [
        ("lost update", SOUND, entries("a", "c", "d")),
        ("lost update", [*SOUND, ok("r", 13, 14, 5, "f")], LEFT),  # two winners of one place
        ("duplicate", SOUND, entries("a", "c", "d", "e", "a")),
        ("fractured", SOUND, entries("a", "c", "e")),
        ("fractured", SOUND, entries("a", "c", "e", "d")),
        ("misplaced", SOUND, entries("c", "d", "a", "e")),
        ("dirty write", SOUND, entries("a", "c", "d", "e", "b")),  # it was refused
        ("dirty write", SOUND, entries("a", "c", "d", "e", "x")),  # nobody wrote it
        ("dirty read", [*SOUND, look("r", 13, 14, 6, "x")], LEFT),  # seen, and then undone
        ("dirty read", [*SOUND, look("r", 13, 14, 5, "c", "e")], LEFT),
        ("dirty read", [*SOUND, Look("r", "L", 13, 14, 5, "id of another")], LEFT),
        # a stale read: e was acknowledged before it began
        ("cycle", [*SOUND, look("r", 13, 14, 4, "d")], LEFT),
        ("cycle", [*SOUND, look("r", 13, 14, 3, "c")], LEFT),  # half of an append
        ("cycle", [*SOUND, look("q", 2, 3, 4, "d")], LEFT),  # seen before it was begun
        ("cycle", [*SOUND, stale("r", 13, 14, 4, "f")], LEFT),  # refused by a head that was gone
        ("cycle", [ok("p", 1, 2, 3, "b"), ok("q", 3, 4, 2, "a")], entries("a", "b")),  # reordered
        ("gap", SOUND, [entry._replace(place=entry.place + (entry.place > 2)) for entry in LEFT]),
        ("gap", SOUND, [entry._replace(number=entry.number + (entry.place > 2)) for entry in LEFT]),
        ("order", SOUND, [entry._replace(number=len(LEFT) + 1 - entry.number) for entry in LEFT]),
        (
            "error",
            [*SOUND, Append("r", "L", 13, 14, ("f",), "BusyError('database is locked')")],
            LEFT,
        ),
    ],
)
def test_a_broken_history_is_caught(name: str, acts: list[Act], left: list[Entry]) -> None:
    found = check(acts, {"L": left})
    assert found and any(each.startswith(f"{name}:") for each in found), found


def test_commit_numbers_of_two_logs_that_contradict_the_clock_are_caught() -> None:
    acts = [
        Append("p", "A", 1, 2, ("a",), "ok", 2, "A2"),
        Append("q", "B", 3, 4, ("b",), "ok", 2, "B2"),
    ]
    first, second = (
        [Entry(1, 1, "A1", ""), Entry(2, 4, "A2", "a")],
        [Entry(1, 2, "B1", ""), Entry(2, 3, "B2", "b")],
    )
    (found,) = check(acts, {"A": first, "B": second})
    assert found.startswith("cycle:") and "-ww->" in found and "-time->" in found
    sound = {
        "A": [first[0], first[1]._replace(number=3)],
        "B": [second[0], second[1]._replace(number=4)],
    }
    assert check(acts, sound) == []


def test_a_writer_who_sees_less_than_before_is_caught_without_a_clock() -> None:
    """Acts that overlap in time, and a process that goes back: only its own order contradicts what
    it saw.
    """
    acts = [ok("p", 1, 100, 2, "a"), look("q", 1, 100, 2), look("q", 2, 100, 1)]
    (found,) = check(acts, {"L": entries("a")})
    assert found.startswith("cycle:") and "-process->" in found


SYNCED = """
import sys, threading
from plait.runtime.live import Live
from plait.event import seal_all
from plait.event.kinds import MessageSaid, SessionOpened, Text
from plait.store import SqliteStore

folder, threads, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
source = Live()
store = SqliteStore(folder, source=source)

def write(begun, start):
    log = source.fresh()
    head = store.begin(log, seal_all([SessionOpened()], log=log, seq=1, parents=(), source=source, actor="human:a"))
    begun.wait(); start.wait()
    for seq in range(2, each + 2):
        events = seal_all([MessageSaid("user", (Text("x" * 900),))], log=log, seq=seq, parents=(head,), source=source, actor="human:a")
        head = store.append(log, events, after=head)

begun, start = threading.Barrier(threads + 1), threading.Event()
workers = [threading.Thread(target=write, args=(begun, start)) for _ in range(threads)]
for worker in workers: worker.start()
begun.wait()
open(folder + "/marker-before", "w").close()
start.set()
for worker in workers: worker.join()
open(folder + "/marker-after", "w").close()
"""  # noqa: E501


def syncs_per_append(folder: Path, threads: int, each: int) -> float:
    """Counted by strace, between two marks that the child makes by opening files."""
    trace = folder.parent / f"{folder.name}.trace"
    python(
        SYNCED,
        folder,
        str(threads),
        str(each),
        prefix=(needs_strace(), "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync,openat"),
    )
    lines = trace.read_text().splitlines()
    marks = [i for i, line in enumerate(lines) if "marker-" in line]
    calls = [
        line for line in lines[marks[0] : marks[-1]] if re.search(r"\b(fsync|fdatasync)\(", line)
    ]
    return len(calls) / (threads * each)


def test_a_lone_writer_pays_one_fsync_per_append(tmp_path: Path) -> None:
    ratio = syncs_per_append(tmp_path / "one", 1, 400)
    print(f"\n{ratio:.3f} fsyncs per append, alone")
    assert 1.0 <= ratio < 1.05  # the rest is checkpoints


def test_sixteen_threads_share_their_fsyncs(tmp_path: Path) -> None:
    ratio = syncs_per_append(tmp_path / "many", 16, 60)
    print(f"\n{ratio:.3f} fsyncs per append, sixteen threads")
    assert ratio < 0.2


# These do to their process what a coverage tracer does not survive (a fork, or an exception, while
# it holds its own lock), so each runs in a process without one.


@pytest.mark.parametrize(
    "scene", ["fork_in_the_middle", "fork_while_opening", "interrupt_at_random"]
)
def test_scene(tmp_path: Path, scene: str) -> None:
    done = python(
        f"import sys; from tests.faults import scenes; scenes.{scene}(sys.argv[1])", tmp_path
    )
    assert done.stdout.endswith("ok\n"), done.stdout + done.stderr


def test_a_forked_child_that_ends_normally_does_no_harm(tmp_path: Path) -> None:
    done = python(
        """
import os, sys
from plait.testing import Seeded
from plait.testing.writing import begin, extend, message, texts, wait_until_settled
from plait.store import SqliteStore, verify_store
store = SqliteStore(sys.argv[1], source=Seeded())
log = begin(store)
for i in range(20):
    if os.fork() == 0:
        extend(store, log, message(f"child {i}"))
        sys.exit(0)  # runs finalisers, unlike os._exit
    assert os.wait()[1] == 0
    extend(store, log, message(f"parent {i}"))
assert len(texts(store, log)) == 40 and not list(verify_store(store))
print("ok")
""",
        tmp_path,
    )
    assert done.stdout == "ok\n", done.stderr


def test_a_lock_that_is_never_given_up_is_a_typed_error(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, source=Seeded(), busy_s=0.1)
    log = begin(store)
    rude = RawSql(tmp_path / "store.db")
    rude("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="try again"):
        extend(store, log, message("x"))
    assert texts(store, log) == []  # reading goes on
    rude("ROLLBACK")
    extend(store, log, message("y"))
    assert texts(store, log) == ["y"]
    rude.close()
    store.close()
