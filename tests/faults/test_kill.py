"""kill -9 in the middle of writing: what was acknowledged is there, what was not is all there or
not at all.

At random moments and at every system call that writes, syncs, truncates or removes, in every act of
a store's life. After each kill the store is opened as anybody would: no manual step, nothing lost,
no broken chain, the schema the old one or the new one, and writing goes on. `nursery.py` does it;
`KILLS` says how often at random, `KILL_EVERY` how many of the system calls are taken (1: all).
`SEED` reproduces which acts, steps, calls and delays are chosen; what a process had just done when
its delay was over, no seed can.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.errors import StaleHead
from plait.event import seal_all
from plait.ids import LogId
from plait.store import SqliteStore
from plait.testing import Seeded
from plait.testing.writing import message, seal_events, texts
from tests.faults.acts import ACTS, UPKEEP, WRITING
from tests.faults.nursery import ask
from tests.support import dose, needs_strace, report, seed

# for as many processors: the first in memory, the others on the disk, which takes longer
LANES = dose("LANES", short=1, long=2)


@pytest.mark.parametrize("durability", ["full", "async"])
@pytest.mark.parametrize("lane", range(1, LANES + 1))
def test_kills_at_random_moments(tmp_path: Path, lane: int, durability: str) -> None:
    """What is written async is lost to a power cut at most, never to a kill: the system has the
    bytes.
    """
    kills, start = dose("KILLS", short=30, long=1000) // LANES // 2, seed()
    options, disk = {"durability": durability}, tmp_path if lane > 1 else None
    found = ask(
        "random", tmp_path, start, tuple(ACTS), options=options, disk=disk, lane=lane, kills=kills
    )
    assert found["kills"] == kills
    report(f"kill -9 at random moments, {durability}, lane {lane}", _counts(found), start)
    if kills >= 500:
        assert all(found[f"in {act}"] for act in ACTS), (
            f"SEED={start}: some act was never hit: {found}"
        )
        assert found["unknown"], (
            f"SEED={start}: no kill came between a commit and its acknowledgement"
        )


@pytest.mark.parametrize("acts", [WRITING, UPKEEP], ids=["writing", "upkeep"])
def test_a_kill_at_every_system_call(tmp_path: Path, acts: tuple[str, ...]) -> None:
    needs_strace()
    every, start = dose("KILL_EVERY", short=60, long=1), seed()
    found = ask("calls", tmp_path, start, acts, every=every)
    assert all(found[f"in {act}"] for act in acts), f"SEED={start}: some act was never hit: {found}"
    report(f"kill -9 at {_one_in(every)} of {', '.join(acts)}", _counts(found), start)


def _one_in(every: int) -> str:
    return "every system call" if every == 1 else f"one in {every} system calls"


def _counts(found: dict[str, int]) -> str:
    return (
        f"{found['kills']:,} kills after {found['acknowledged']:,} acknowledged steps, 0 lost, 0"
        f" chain breaks; {found['unknown']:,} times one more stood than was acknowledged, and the"
        " same events again settled it"
    )


def test_an_append_without_acknowledgement_is_settled_by_appending_it_again(tmp_path: Path) -> None:
    """The outcome of a killed append is unknown, not failed.

    The same events again: there once, whatever had happened.
    """
    store = SqliteStore(tmp_path, source=Seeded())
    log = LogId("0197a0b0-0000-7000-8000-000000000001")
    (opened,) = seal_events([message("opened")], log)
    store.begin(log, [opened])
    for seq in range(2, 12):
        events = seal_all(
            [message(str(seq))],
            log=log,
            seq=seq,
            parents=(store.log(log).head,),
            source=Seeded(seq),
            actor="human:a",
        )
        after = events[0].header.parents[0]
        if seq % 2:
            # it was committed, and then the process died before it could say so
            store.append(log, events, after=after)
        store.close()
        store = SqliteStore(tmp_path, source=Seeded())
        assert store.append(log, events, after=after) == events[0].id
        other = seal_all(
            [message("another")],
            log=log,
            seq=seq,
            parents=(after,),
            source=Seeded(99),
            actor="human:a",
        )
        with pytest.raises(StaleHead):
            store.append(log, other, after=after)
    assert texts(store, log) == ["opened", *map(str, range(2, 12))]
    store.close()
