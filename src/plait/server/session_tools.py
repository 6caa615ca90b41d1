"""Sessions as tools of an MCP server: other agents list, read and fork them, and say something.

Each tool carries an annotation that tells if it writes. With `read_only` those that write are not
there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from plait.errors import MissingExtra, PlaitError
from plait.outline.documents import event_document, session_document, show_document
from plait.session import Session

LISTED_MAX, EVENTS_MAX, MESSAGES_MAX = 100, 200, 100


class SessionTools:
    """The tools, for one store and one principal."""

    def __init__(self, store: str, actor: str | None = None) -> None:
        self._store, self._actor = store, actor

    def list_sessions(self, limit: int = 20) -> str:
        """List the sessions of the store, the one written to last first."""
        found = Session.list(store=self._store, limit=max(1, min(limit, LISTED_MAX)))
        return _text([session_document(session) for session in found])

    def read_session(self, session: str, messages: int = 20) -> str:
        """Read a session: its state, what it has cost, and its last messages.

        Args:
            session: its id, the start of it, or its label; ID@42 as it was at event 42
            messages: how many of the last messages
        """
        count = max(0, min(messages, MESSAGES_MAX))
        return _text(show_document(self._open(session), count))

    def read_events(self, session: str, after: int = 0, limit: int = 50) -> str:
        """Read the events of a session, in their order.

        Args:
            session: its id, the start of it, or its label
            after: the number of the event that was read last; 0 for the first
            limit: how many at most
        """
        events = self._open(session).events[max(0, after) :][: max(1, min(limit, EVENTS_MAX))]
        return _text([event_document(event) for event in events])

    def say(self, session: str, text: str) -> str:
        """Add a message to a session. Its log grows by one event; nothing is run.

        Args:
            session: its id, the start of it, or its label
            text: the message
        """
        return _text(session_document(self._open(session).say(text, actor=self._actor)))

    def fork_session(self, session: str, label: str = "") -> str:
        """Make a branch of a session that shares all before it. The session itself stays as it is.

        Args:
            session: its id, the start of it, or its label; ID@42 to branch off at event 42
            label: a name for the branch
        """
        return _text(session_document(self._open(session).fork(label or None)))

    def _open(self, name: str) -> Session:
        return Session.open(name, store=self._store)


READING = ("list_sessions", "read_session", "read_events")
WRITING = ("say", "fork_session")


def mcp_server(store: str, actor: str | None = None, *, read_only: bool = False) -> Any:
    """Return a server of the MCP SDK with the tools for a store."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise MissingExtra("plait mcp", "mcp") from error
    tools, server = SessionTools(store, actor), MCPServer("plait")
    for name in READING if read_only else (*READING, *WRITING):
        tool: Callable[..., str] = getattr(tools, name)
        hints = ToolAnnotations(
            read_only_hint=name in READING, destructive_hint=False, open_world_hint=False
        )
        reporting = _with_errors_as(ToolError, tool)
        server.tool(annotations=hints, structured_output=False)(reporting)
    return server


def _with_errors_as(
    error_type: Callable[[str], Exception], tool: Callable[..., str]
) -> Callable[..., str]:
    """Return the tool with our errors as those that the SDK tells its client in words."""

    @wraps(tool)
    def act(*args: Any, **kwargs: Any) -> str:
        try:
            return tool(*args, **kwargs)
        except PlaitError as error:
            raise error_type(str(error)) from error

    return act


def _text(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)
