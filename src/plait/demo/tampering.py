"""A copy of the store in which a verdict is turned around, as somebody with something to hide
would.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from plait.event import VOCABULARY, Event
from plait.event import kinds as k
from plait.ids import short
from plait.store import packing


class Forgery(NamedTuple):
    """The verdict that was changed in the copy."""

    place: str
    was: str
    now: str


def copy_with_other_verdict(store: Path, copy: Path, verdict: Event) -> Forgery:
    """Copy a store, and turn a verdict around in the copy. The event is whole in every other way:
    only its hash can tell.
    """
    import sqlite3  # what an intruder would use; some builds of Python have none

    body = verdict.body
    assert isinstance(body, k.ValidationRecorded)
    forged = VOCABULARY.encode(msgspec.structs.replace(body, passed=not body.passed))
    codec, _, packed = packing.pack_event(b"", forged)
    if len(forged) > packing.BODY_INLINE_MAX:
        codec, packed = packing.HEADER_1 | packing.PLAIN, forged
    if copy.exists():
        shutil.rmtree(copy)
    copy.mkdir(parents=True)
    (copy / ".gitignore").write_text("*\n")
    with (
        closing(sqlite3.connect(f"file:{store / 'store.db'}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(copy / "store.db")) as target,
    ):
        source.backup(target)
        target.execute(
            "UPDATE event SET codec = ?, body = ? WHERE seq = ? AND log ="
            " (SELECT key FROM log WHERE id = ?)",
            (codec, packed, verdict.seq, bytes.fromhex(verdict.log.replace("-", ""))),
        )
        target.commit()
    words = ("failed", "passed")
    return Forgery(
        f"{short(verdict.log)}@{verdict.seq}", words[body.passed], words[not body.passed]
    )
