"""Epochs that somebody edited are found: a lower one would let in who was replaced, a higher one
would lock out who holds the run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.event.kinds import RunResumed, RunStarted
from plait.store import SqliteStore, verify_log, verify_store
from plait.testing import Seeded
from plait.testing.writing import begin, extend, fork, message
from tests.support import RawSql


@pytest.mark.parametrize("epoch", [0, 1, 3, -1, 2**62])
def test_an_epoch_that_the_events_do_not_say_is_named(tmp_path: Path, epoch: int) -> None:
    store = SqliteStore(tmp_path, source=Seeded())
    log = begin(store, RunStarted("a:B"), message("one"))
    child = fork(store, log, 2)
    extend(store, log, RunResumed("b", 1), message("two"))
    assert list(verify_store(store)) == [] and store.log(log).epoch == 2
    raw = RawSql(tmp_path / "store.db")
    raw("UPDATE log SET epoch = ? WHERE parent IS NULL AND key > 0", (epoch,))
    raw.close()
    (fault,) = verify_store(store)
    assert fault.log == log and "epoch" in fault.what
    assert verify_log(store, log) == fault and verify_log(store, child) is None
    store.close()
