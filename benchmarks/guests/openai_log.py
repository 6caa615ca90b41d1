"""The OpenAI Agents SDK with its `SQLiteSession`.

One append is `session.add_items([one])`, what its runner calls to remember a turn. It is a
coroutine that does its work in a thread; one event loop and one thread are kept, which is how it is
quickest. It sets WAL and leaves `synchronous` as its SQLite has it, and takes no setting of ours:
`settings` says what was found on a connection of its own.

A fork needs the `AdvancedSQLiteSession`, which keeps the branch of every message in another table:
`create_branch_from_turn`, and a step back to the main branch that is not timed. It has no list of
sessions.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession
from worker import Guest, serve


class OpenAI(Guest):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True)
        self.path = folder / "sessions.db"
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(1))
        self.sessions: dict[str, SQLiteSession] = {}
        self.settings = self._found()

    def version(self) -> str:
        return f"openai-agents {version('openai-agents')} (SQLite {sqlite3.sqlite_version})"

    def begin(self) -> str:
        return self._keep(SQLiteSession(f"session {len(self.sessions)}", self.path))

    def append(self, session: str, text: str) -> None:
        self.loop.run_until_complete(self.sessions[session].add_items([_item(text)]))

    def fill(self, session: str, texts: list[str]) -> None:
        """In one call: every message becomes the same row as if it had come alone."""
        self.loop.run_until_complete(
            self.sessions[session].add_items([_item(text) for text in texts])
        )

    def parent(self, session: str) -> str:
        name = self._keep(
            AdvancedSQLiteSession(
                session_id=f"parent {len(self.sessions)}", db_path=self.path, create_tables=True
            )
        )
        items = self.loop.run_until_complete(self.sessions[session].get_items())
        self.loop.run_until_complete(self.sessions[name].add_items(items))
        return name

    def fork(self, session: str, place: int) -> None:
        self.loop.run_until_complete(self._advanced(session).create_branch_from_turn(place + 1))

    def time(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        took = super().time(verb, asked)
        if verb == "fork":
            self.loop.run_until_complete(self._advanced(asked["session"]).switch_to_branch("main"))
        return took

    def state(self, session: str) -> int:
        again = SQLiteSession(self.sessions[session].session_id, self.path)
        count = len(self.loop.run_until_complete(again.get_items()))
        again.close()
        return count

    def hold(self, texts: list[str]) -> str:
        name = self._keep(SQLiteSession(f"held {len(texts)}"))
        self.fill(name, texts)
        return name

    def remember(self, session: str, texts: list[str]) -> None:
        for text in texts:
            self.append(session, text)

    def _advanced(self, session: str) -> AdvancedSQLiteSession:
        found = self.sessions[session]
        assert isinstance(found, AdvancedSQLiteSession)
        return found

    def _keep(self, session: SQLiteSession) -> str:
        self.sessions[session.session_id] = session
        return session.session_id

    def _found(self) -> str:
        """Asked of the connection it writes with."""

        def ask() -> str:
            connection = self.sessions[self.begin()]._get_connection()
            journal, level = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous")
            )
            word = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[level]
            kept = (
                "survives power loss"
                if level >= 2
                else "the newest messages do not survive power loss"
            )
            return (
                f"as it comes: {journal.upper()}, synchronous {word}, one commit per message;"
                f" {kept}"
            )

        return self.loop.run_until_complete(asyncio.to_thread(ask))


def _item(text: str) -> Any:
    return {"role": "user", "content": text}


if __name__ == "__main__":
    serve(OpenAI)
