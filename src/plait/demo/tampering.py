"""A copy of the store in which one byte is changed, as an intruder would."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from plait.ids import LogId


class Flip:
    """The byte that was changed: the one in the middle of the body of an event."""

    def __init__(self, log: LogId, seq: int, byte: int, size: int) -> None:
        self.log, self.seq, self.byte, self.size = log, seq, byte, size


def copy_with_flipped_byte(store: Path, copy: Path, log: LogId, seq: int) -> Flip:
    """Copy a store, and flip one bit of an event in the copy."""
    import sqlite3  # what an intruder would use; some builds of Python have none

    if copy.exists():
        shutil.rmtree(copy)
    copy.mkdir(parents=True)
    (copy / ".gitignore").write_text("*\n")
    with (
        closing(sqlite3.connect(f"file:{store / 'store.db'}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(copy / "store.db")) as target,
    ):
        source.backup(target)
        number, body = target.execute(
            "SELECT event.number, event.body FROM event JOIN log ON log.key = event.log"
            " WHERE log.id = ? AND event.seq = ?",
            (bytes.fromhex(log.replace("-", "")), seq),
        ).fetchone()
        changed = bytearray(body)
        middle = len(changed) // 2
        changed[middle] ^= 1
        target.execute("UPDATE event SET body = ? WHERE number = ?", (bytes(changed), number))
        target.commit()
    return Flip(log, seq, middle, len(changed))
