"""The common part of all views over a session."""

from __future__ import annotations

from typing import Generic

from plait.session.core import Core
from plait.session.value import S, core_of


class SessionView(Generic[S]):
    """An immutable view over one session. Its verbs return the next session."""

    __slots__ = ("_core", "_session")

    def __init__(self, session: S) -> None:
        self._session = session
        self._core: Core = core_of(session)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._session!r}>"
