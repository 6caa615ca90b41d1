"""The `Host`: runs tools, asks people, waits, and places and publishes files for a session.

A session value only reads and appends; everything that acts is reached through this port.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from plait.errors import PlaitError
from plait.event import Event, Json
from plait.model.base import Answered, Returned, Said, Turn
from plait.runtime.consent import User
from plait.runtime.drivers.blocking import Blocking, Waiter, drive
from plait.runtime.drivers.on_loop import AsyncWaiter, adrive
from plait.runtime.end import end_unheld
from plait.runtime.executing import note_error
from plait.runtime.names import principal_of
from plait.runtime.place import place
from plait.runtime.publish import publish
from plait.runtime.registry import run_of
from plait.runtime.safe_points import past_gates
from plait.runtime.sent import rebuild_prompt
from plait.runtime.settle import use_tool
from plait.runtime.waiting import ask_human, sleep, wait_for
from plait.runtime.waits import Wait
from plait.session import Session
from plait.session.content import text_of
from plait.session.files import Resolve
from plait.session.moves import check_may
from plait.session.ports import Position, SessionLike, store_at, writer_of
from plait.session.session import session_at
from plait.session.value import core_of, position_of
from plait.tool import as_tool, reason_of


class LocalHost:
    """Runs tools in this process."""

    def use(self, session: SessionLike, tool: object, arguments: Mapping[str, Json]) -> Session:
        steps, waiter = _tool_steps(session, tool, arguments)
        with _noting_errors(session):
            return drive(steps, waiter)

    async def ause(
        self, session: SessionLike, tool: object, arguments: Mapping[str, Json]
    ) -> Session:
        steps, waiter = _tool_steps(session, tool, arguments)
        with _noting_errors(session):
            return await adrive(steps, AsyncWaiter(waiter))

    def ask(self, session: SessionLike, question: str, choices: Sequence[str]) -> Position:
        return _drive_wait(session, lambda value, actor: ask_human(value, question, choices, actor))

    def sleep(self, session: SessionLike, seconds: float) -> Position:
        return _drive_wait(session, lambda value, actor: sleep(value, seconds, actor))

    def wait_for(self, session: SessionLike, name: str, timeout_s: float | None) -> Position:
        return _drive_wait(session, lambda value, actor: wait_for(value, name, timeout_s, actor))

    def cancel(self, session: SessionLike, reason: str) -> None:
        end_unheld(cast("Session", session), reason)

    def place(
        self, session: SessionLike, backend: str, where: str | None, options: Mapping[str, Any]
    ) -> Position:
        value = cast("Session", session)
        return place(value, backend, where, options, _user(value).actor)

    def prompt(self, session: SessionLike, asked: Event) -> Json:
        return _prompt(cast("Session", session), asked)

    def publish(self, session: SessionLike, resolve: object) -> Session:
        value = cast("Session", session)
        check_may(core_of(value), "publish its files")
        run = run_of(value)
        with _noting_errors(value):
            return drive(
                publish(value, cast("Resolve | None", resolve), _user(value)),
                run.io if run else Blocking(),
            )

    def is_held(self, session: SessionLike, run: str) -> bool:
        return store_at(session.store).is_locked(run)

    def past_gates(
        self, into: SessionLike, gated: Sequence[SessionLike], verb: str
    ) -> list[Session]:
        with _noting_errors(into):
            return past_gates(cast("Session", into), cast("Sequence[Session]", gated), verb)


@contextmanager
def _noting_errors(session: SessionLike) -> Generator[None]:
    """Note the error that the code of a run is handed: one that tells of a session is a read, and a
    stop has to leave the program.
    """
    try:
        yield
    except BaseException as error:
        note_error(error)
        value = cast("Session", session)
        run = run_of(value)
        if run is not None and value.run == run.id:
            run.stops.note(value.id, error)
        raise


def _prompt(session: Session, asked: Event) -> Json:
    """Return the prompt that a model was sent, as plain data, or the reason why it is not known."""
    at = session_at(Position(session.store, asked.log, asked.seq, asked.id))
    try:
        found = rebuild_prompt(at, asked)
    except PlaitError as error:
        return {
            "model": "",
            "as_sent": False,
            "instruction": f"(not known: {error})",
            "tools": [],
            "turns": [],
        }
    turns = [{"type": _SPEAKERS[type(turn)], "text": _turn_text(turn)} for turn in found.turns]
    return {
        "model": found.model,
        "as_sent": found.matches,
        "digest": found.digest,
        "instruction": found.setup.instruction,
        "tools": [msgspec.to_builtins(spec) for spec in found.setup.tools],
        "parameters": found.parameters,
        "turns": turns,
    }


_SPEAKERS: dict[type, str] = {Said: "said", Answered: "answered", Returned: "returned"}


def _turn_text(turn: Turn) -> str:
    if isinstance(turn, Returned):
        return "\n".join([f"{result.tool}: {text_of(result.parts)}" for result in turn.results])
    calls = turn.calls if isinstance(turn, Answered) else ()
    asked = [f"calls {call.tool} {msgspec.json.encode(call.arguments).decode()}" for call in calls]
    return "\n".join(filter(None, [text_of(turn.parts), *asked]))


def _drive_wait(
    session: SessionLike, steps: Callable[[Session, str], Generator[Wait, Any, Session]]
) -> Position:
    value = cast("Session", session)
    run = run_of(value)
    actor = run.principal(value.id) if run else _principal(value)
    with _noting_errors(value):
        return position_of(drive(steps(value, actor), run.io if run else Blocking()))


def _tool_steps(
    session: SessionLike, tool: object, arguments: Mapping[str, Any]
) -> tuple[Generator[Wait, Any, Session], Waiter]:
    value, used = cast("Session", session), as_tool(tool)
    check_may(core_of(value), "use tools")
    run = run_of(value)
    given, reason = reason_of(used, arguments)
    steps = use_tool(value, used, cast("Mapping[str, Any]", given), _user(value), reason)
    return steps, run.io if run else Blocking()


def _user(session: Session) -> User:
    run = run_of(session)
    frames = run.stack.frames(session.id) if run else ()
    return User(
        run.principal(session.id) if run else _principal(session), frames[-1].path if frames else ""
    )


def _principal(session: Session) -> str:
    return f"human:{principal_of(session.user)}" if session.user else writer_of(None).principal()
