"""What an act leaves when nothing goes wrong, step by step; and whether a store that something went
wrong with is that.

Acts make the same bytes whenever they are done. So after a kill there are two ways to be right:
exactly what stood after the last acknowledged step, or exactly what stands after one more. Anything
else was lost, is half there or left over.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from plait.event import Event
from plait.event.kinds import ForkedFrom, SessionOpened
from plait.ids import Digest
from plait.session import Session, verify
from plait.store import LogAppend, SqliteStore
from plait.store.records import short_of
from plait.store.sqlite import FILE
from plait.store.sqlite.database import Database
from plait.testing.writing import message, seal_events
from tests.faults.acts import Act, Stage


class Wrong(Exception):
    """A state that must not be."""


# ── what stands ──────────────────────────────────────────────────────────────────────────────


class Picture(NamedTuple):
    """The content of a store, table by table, read without Plait."""

    number: int
    tables: Mapping[str, str]
    snapshots: str


BLANK = Picture(0, {}, "")

_ROWS = {"store": "SELECT id FROM store"}  # how often it was synced is not for comparison


def picture(folder: Path) -> Picture:
    if not (folder / FILE).exists():
        return BLANK
    with closing(_raw(folder)) as db:
        names = [
            name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        tables = {
            name: _digest(db.execute(_ROWS.get(name, f"SELECT * FROM {name}"))) for name in names
        }
        number = (
            db.execute("SELECT max(number) FROM event").fetchone()[0] if "event" in tables else 0
        )
    return Picture(number or 0, tables, tables.pop("snapshot", ""))


def _raw(folder: Path) -> Any:
    return apsw.Connection(str(folder / FILE))


def _digest(rows: Iterator[Any]) -> str:
    return sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()[:16]


def schemas(act: Act) -> list[dict[str, str]]:
    """The tables after each numbered step of the schema; none before the first."""
    blank = Database("file::memory:", apsw.SQLITE_OPEN_READWRITE, 1.0)
    found: list[dict[str, str]] = [{}]
    for migration in act.migrations:
        migration(blank)
        found.append(_tables(blank.connection))
    return found


def _tables(db: Any) -> dict[str, str]:
    return dict(
        db.execute(
            "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT GLOB 'p_*'"
        )
    )


class Known(NamedTuple):
    """An act as it goes when nothing goes wrong."""

    act: Act
    base: Path
    pictures: list[Picture]  # before the first step, and after each
    events: dict[int, Event]  # by commit number
    blobs: dict[Digest, bytes]
    schemas: list[dict[str, str]]

    def written_by(self, step: int) -> list[Event]:
        """Return the events that a step appends, counted from 0; none beyond the last."""
        if step + 1 >= len(self.pictures):
            return []
        return [
            self.events[number]
            for number in range(self.pictures[step].number + 1, self.pictures[step + 1].number + 1)
        ]


def learn(act: Act, folder: Path, options: dict[str, Any]) -> Known:
    """Do an act in peace, and take a picture after each step."""
    base, there = folder / "base", folder / "undisturbed"
    folder.mkdir()
    act.before(Stage(base, options, act, 0))
    fresh_copy(base, there)
    stage, pictures = Stage(there, options, act), [picture(there)]
    for step in act.steps(stage):
        result = step()
        pictures.append(picture(there))
        if not _stands(there, result):
            raise Wrong(
                f"step {len(pictures) - 1} of {act.name!r} is done, and others do not see it"
            )
    stage.close()
    store = stage.open()
    events = {number: Event(event.raw, event.salt, event.content) for number, event in store.feed()}
    blobs = {ref: store.get_blob(ref) for event in events.values() for ref in event.refs}
    stage.close()
    return Known(act, base, pictures, events, blobs, schemas(act))


def _stands(folder: Path, result: object) -> bool:
    """True if the result of a step is there for others: an event, a blob; of anything else nothing
    is known.
    """
    if isinstance(result, Session):
        sql, value = "SELECT count(*) FROM event WHERE short = ?", short_of(result.head)
    elif isinstance(result, str):
        sql, value = "SELECT count(*) FROM blob WHERE digest = ?", bytes.fromhex(result)
    else:
        return True
    with closing(_raw(folder)) as db:
        return db.execute(sql, (value,)).fetchone() == (1,)


def fresh_copy(base: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if base.exists():
        shutil.copytree(base, folder)


# ── afterwards ───────────────────────────────────────────────────────────────────────────────


def check(
    known: Known, folder: Path, options: dict[str, Any], done: int, *, cached: bool = True
) -> bool:
    """Open it again and compare: `done` steps were acknowledged. Returns whether one more stood
    that was not.

    `cached`: what is only a cache has to be there as well.
    """
    _check_schema(known, folder)
    stage = Stage(folder, options, known.act, 1000)
    store = stage.open()
    _expect_no_faults(store)
    before, after = known.pictures[done], known.pictures[min(done + 1, len(known.pictures) - 1)]
    found = picture(folder)
    stands = found.tables == after.tables
    if not stands and found.tables != before.tables:
        raise Wrong(
            f"{done} steps were acknowledged; {_differences(found, before)} differ from that,"
            f" {_differences(found, after)} from one more"
        )
    kept = {each.snapshots for each in ((before, after) if cached else known.pictures[: done + 2])}
    if found.snapshots not in kept:
        raise Wrong(
            f"{done} steps were acknowledged, and the snapshots are neither those after that nor"
            " those after one more"
        )
    if known.written_by(done):
        _submit_again(store, known, done)
        if (again := picture(folder)).tables != after.tables:
            raise Wrong(
                f"the same events again did not settle it: {_differences(again, after)} differ"
            )
    _go_on(stage)
    stage.close()
    return stands and after.number > before.number


def _check_schema(known: Known, folder: Path) -> None:
    """The schema is the old one or the new one, looked at in a copy, before anybody of ours opens
    the store.
    """
    if not (folder / FILE).exists():
        return
    aside = known.base.parent / "aside"
    fresh_copy(folder, aside)
    with closing(_raw(aside)) as db:
        version, tables = db.execute("PRAGMA user_version").fetchone()[0], _tables(db)
    if tables != known.schemas[version]:
        raise Wrong(f"the schema says it is number {version}, and its tables are those of another")


def _expect_no_faults(store: SqliteStore) -> None:
    faults = [str(fault) for fault in verify(store, state=True)]
    if faults:
        raise Wrong("; ".join(faults))


def _differences(found: Picture, due: Picture) -> str:
    names = sorted(found.tables.keys() | due.tables.keys())
    return (
        ", ".join(name for name in names if found.tables.get(name) != due.tables.get(name))
        or "none"
    )


def _submit_again(store: SqliteStore, known: Known, step: int) -> None:
    """The very same events once more: they stand once, whether they were there or not."""
    events = known.written_by(step)
    blobs = {ref: known.blobs[ref] for event in events for ref in event.refs}
    first = events[0]
    body = first.body
    if len({event.log for event in events}) > 1:
        store.append_all(_parts_of(events), blobs=blobs)
    elif isinstance(body, ForkedFrom):
        store.begin(first.log, events, parent=body.parent, blobs=blobs)
    elif isinstance(body, SessionOpened):
        store.begin(first.log, events, blobs=blobs)
    else:
        store.append(first.log, events, after=first.header.parents[0], blobs=blobs)


def _parts_of(events: Sequence[Event]) -> list[LogAppend]:
    """The parts of an act that wrote these events, log by log."""
    parts: list[LogAppend] = []
    for log, some in groupby(events, attrgetter("log")):
        own = list(some)
        parents = own[0].header.parents
        parts.append(LogAppend(log, own, parents[0] if parents else None))
    return parts


def _go_on(stage: Stage) -> None:
    """Writing goes on, in a new session and in the last one there was."""
    last = stage.store.logs(limit=1)
    session = Session("after the fall", store=stage.folder, user="u-1").say("more")
    for _, log in last:
        stage.store.append(
            log.id, seal_events([message("on")], log.id, log.tip + 1, (log.head,)), after=log.head
        )
    faults = [
        str(fault) for fault in verify(stage.store, [session.id, *(log.id for _, log in last)])
    ]
    if faults:
        raise Wrong(f"after writing on: {'; '.join(faults)}")
