"""OpenRath, in the two places where it writes something down.

- `session`: one append is `SessionWriter.write_chunk`, by which a session's transcript grows on
  disk: a line of JSON, flushed to the system and not synced. It survives the process and not the
  machine, so its time is not that of a durable append. The value in memory grows by
  `ChunkTable.extend`, which copies the table; that is `remember`.
- `runs`: one append is `SQLiteRunStore.append_run_event`, by which the durable runtime records what
  happened in a run. It opens a connection for each and closes it again, and the last one to close
  moves the write-ahead log into the file. Nothing can be set; but a connection of ours that is kept
  open spares it that work, so one is kept open: its best, not its default.

A session is forked in memory in no time (`Session.fork` shares the table); to have the branch on
disk its rows are written again.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
import tracemalloc
from importlib.metadata import version
from pathlib import Path
from uuid import UUID, uuid4

from rath.runtime.models import Run
from rath.runtime.sqlite import SQLiteRunStore
from rath.session import Session
from rath.session.chunk import ChunkTable, user_text_chunk
from rath.session.persistence import SessionWriter, list_persisted_sessions, load_session
from worker import Guest, serve


class Versioned(Guest):
    def version(self) -> str:
        return f"openrath {version('openrath')} (SQLite {sqlite3.sqlite_version})"


class Sessions(Versioned):
    settings = "as it comes: a line per message, flushed, never synced; does not survive power loss"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ["OPENRATH_HOME"] = str(folder)
        self.sessions: dict[str, Session] = {}
        self.writers: dict[str, SessionWriter] = {}

    def begin(self) -> str:
        session = Session(ChunkTable())
        name = str(session.id)
        self.sessions[name], self.writers[name] = session, SessionWriter(session)
        return name

    def append(self, session: str, text: str) -> None:
        """Write a row as its loop does: into the writer, and not yet into the table."""
        writer = self.writers[session]
        writer.write_chunk(writer.chunks_written, user_text_chunk(text))

    def parent(self, session: str) -> str:
        """The same, at hand in memory, as it is for a program that forks it."""
        self.sessions[session].chunk_table = load_session(UUID(session)).chunk_table
        return session

    def fork(self, session: str, place: int) -> None:
        branch = Session(ChunkTable(self.sessions[session].chunk_table.rows[:place])).fork()
        with SessionWriter(branch) as writer:
            for i, row in enumerate(branch.chunk_table):
                writer.write_chunk(i, row)

    def state(self, session: str) -> int:
        return len(load_session(UUID(session)).chunk_table)

    def settle(self) -> None:
        """A plain file has nothing to settle."""

    def crowd(self, count: int) -> None:
        for i in range(count):
            session = Session(ChunkTable())
            with SessionWriter(session) as writer:
                writer.write_chunk(0, user_text_chunk(f"session {i}"))

    def page(self) -> int:
        return len(list_persisted_sessions()[:100])

    def hold(self, texts: list[str]) -> str:
        session = Session(_table(texts))
        self.sessions[str(session.id)] = session
        return str(session.id)

    def remember(self, session: str, texts: list[str]) -> None:
        held = self.sessions[session]
        for text in texts:
            held.chunk_table = held.chunk_table.extend(user_text_chunk(text))

    def branches(self, texts: list[str], count: int, text: str) -> int:
        parent = Session(_table(texts))
        gc.collect()
        tracemalloc.start()
        kept = [parent.fork() for _ in range(count)]
        for branch in kept:
            branch.chunk_table = branch.chunk_table.extend(user_text_chunk(text))
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return held


class Runs(Versioned):
    settings = (
        "WAL as it comes, synchronous FULL (SQLite's default), a connection of ours kept open;"
        " survives power loss"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "runs.db"
        self.store = SQLiteRunStore(self.path)
        self.kept_open = sqlite3.connect(self.path)
        self.kept_open.execute("SELECT count(*) FROM runs").fetchall()

    def begin(self) -> str:
        run = Run.create(
            plan_id=uuid4(), revision_id=uuid4(), session_id=uuid4(), tenant_id="bench"
        )
        return str(self.store.create_run(run).id)

    def append(self, session: str, text: str) -> None:
        self.store.append_run_event(UUID(session), "message", {"role": "user", "content": text})

    def state(self, session: str) -> int:
        events = SQLiteRunStore(self.path).list_run_events(UUID(session))
        return sum(event.type == "message" for event in events)

    def crowd(self, count: int) -> None:
        for _ in range(count):
            self.begin()

    def page(self) -> int:
        """The oldest hundred: it has no other order."""
        return len(self.store.list_runs(tenant_id="bench", limit=100))


def _table(texts: list[str]) -> ChunkTable:
    return ChunkTable(tuple(user_text_chunk(text) for text in texts))


if __name__ == "__main__":
    serve({"session": Sessions, "runs": Runs}[sys.argv[2]])
