"""The second function of a tool, `probe=` or `compensate=`: called for a call in doubt."""

from __future__ import annotations

from typing import Any

import pytest

from plait import Happened, Session, Workflow, resume, tool
from plait.errors import BadTool
from tests.support import kinds, parked_session


class Uses(Workflow):
    """Uses one tool, which can be exchanged."""

    def __init__(self, used: Any) -> None:
        self._used = used

    def forward(self, session: Session) -> Session:
        return session.use(self._used, room="7")


def interrupted(used: Any) -> tuple[Uses, Session]:
    """A run whose process ended in the middle of its only call."""
    program, session = Uses(used), Session("go", store="memory:")
    with pytest.raises(KeyboardInterrupt):
        program(session)
    return program, session.reload()


class Hotel:
    """A service that answers a key it knows with the booking it knows."""

    def __init__(self) -> None:
        self.bookings: dict[str, str] = {}
        self.cancelled: list[str] = []
        self.is_cut = True  # the first caller never hears the answer

    def book(self, key: str, room: str) -> str:
        booking = self.bookings.setdefault(key, f"{room}-{len(self.bookings)}")
        if self.is_cut:
            self.is_cut = False
            raise KeyboardInterrupt
        return booking


def test_a_call_that_was_undone_is_made_again_under_a_new_key() -> None:
    hotel = Hotel()

    def cancel(idempotency_key: str) -> None:
        hotel.cancelled.append(hotel.bookings[idempotency_key])

    @tool(effect="compensatable", compensate=cancel, version="1")
    def book(room: str, idempotency_key: str) -> str:
        """Book a room."""
        return hotel.book(idempotency_key, room)

    program, session = interrupted(book)
    session = resume(session, program)
    assert hotel.cancelled == ["7-0"]
    assert session.effects[-1].result == "7-1"  # not the booking that was just cancelled


def test_a_call_that_did_not_happen_keeps_its_key() -> None:
    keys: list[str] = []

    @tool(effect="probeable", probe=lambda: None, version="1")
    def book(room: str, idempotency_key: str) -> str:
        """Book a room."""
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise KeyboardInterrupt
        return room

    program, session = interrupted(book)
    resume(session, program)
    assert len(keys) == 2 and len(set(keys)) == 1


def test_a_companion_gets_arguments_that_the_call_left_at_their_defaults() -> None:
    asked: list[tuple[str, str]] = []

    def look(room: str, currency: str) -> Happened:
        asked.append((room, currency))
        return Happened("booked")

    @tool(effect="probeable", probe=look, version="1")
    def book(room: str, currency: str = "EUR") -> str:
        """Book a room."""
        raise KeyboardInterrupt

    program, session = interrupted(book)
    session = resume(session, program)
    assert asked == [("7", "EUR")] and session.effects[-1].result == "booked"


@pytest.mark.parametrize("effect", ["probeable", "compensatable"])
def test_a_companion_that_asks_for_what_the_tool_does_not_have_is_refused(effect: str) -> None:
    def companion(rom: str) -> None:
        """Misspells a parameter."""

    name = {"probeable": "probe", "compensatable": "compensate"}[effect]
    more: Any = {"effect": effect, name: companion}
    with pytest.raises(BadTool, match="'rom', which the tool does not have"):

        @tool(**more)
        def book(room: str) -> str:  # pyright: ignore[reportUnusedFunction]
            """Book a room."""
            return room


@pytest.mark.parametrize("effect", ["probeable", "compensatable"])
def test_a_lost_call_without_its_companion_is_reviewed_by_a_person(effect: Any) -> None:
    @tool(effect_of=lambda placement, arguments: effect, version="1")
    def book(room: str) -> str:
        """Book a room."""
        raise KeyboardInterrupt

    program, session = interrupted(book)
    session = parked_session(lambda: resume(session, program))
    (wait,) = session.inbox.waiting
    assert wait.kind == "unknown" and "ToolUnknown" in kinds(session.reload())


def test_the_version_of_a_tool_covers_its_companion() -> None:
    def first() -> None:
        """Finds nothing."""

    def second() -> Happened:
        """Finds everything."""
        return Happened()

    def version_with(probe: Any) -> str:
        @tool(effect="probeable", probe=probe)
        def book(room: str) -> str:
            """Book a room."""
            return room

        return book.version

    assert version_with(first) != version_with(second)
