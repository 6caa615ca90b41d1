"""The inbox of a session: messages and answers from outside of the run that holds it.

An entry goes to the inbox, so that a run that holds the session is not disturbed, and is delivered
when the run next looks there. The session's own log does not change, so each verb returns the same
value.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from plait.errors import InvalidValue, NoRun
from plait.event import Event, Json
from plait.event.kinds import (
    ApprovalDenied,
    ApprovalGranted,
    CancelRequested,
    MessageSaid,
    QuestionAnswered,
    SessionResumed,
    Signalled,
    ToolResolved,
)
from plait.ids import Digest
from plait.session.accessors.view import SessionView
from plait.session.acting import acting_in
from plait.session.appending import post_all_to_inbox, post_to_inbox, reply_to
from plait.session.arguments import check_choice, check_key, value_text
from plait.session.content import Content, contents, pack
from plait.session.inbox import (
    ask_in_branches,
    ask_now,
    inbox_events,
    waiting_in,
    waiting_in_branches,
)
from plait.session.pauses import is_paused
from plait.session.ports import Draft, host
from plait.session.turn_rows import turns_in_queue
from plait.session.typed import bytes_of, misfit, takes_bytes, to_json
from plait.session.value import S, core_of, open_run_of, reload
from plait.session.views import QueuedTurn, Waiting


class _NoneYet(list[Waiting]):
    """No ask, at a place after which the log has gone on: who takes one is told so."""

    def __init__(self, session: str, seq: int, tip: int) -> None:
        super().__init__()
        self._why = (
            f"nothing waits at event {seq} of session {session}, and its log has gone on to event"
            f" {tip} since: keep the session that a call returns (of Parked: error.session), or"
            " take session.reload()"
        )

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return []
        raise IndexError(self._why)


class SessionInbox(SessionView[S]):
    """Messages and answers to a session, and the asks that wait for them."""

    __slots__ = ()

    @property
    def events(self) -> list[Event]:
        """Every event written to the inbox, in the store as it is now, delivered or not."""
        return inbox_events(self._core.store, self._session.id)

    @property
    def waiting(self) -> list[Waiting]:
        """The asks that are open at this place, less those answered in the store as it is now.

        At its tip they include the asks of its run's branches.
        """
        core, id, seq = self._core, self._session.id, self._session.seq
        own = core.store.log(id)
        found = waiting_in(core.store, id, own.place + 1, seq) if seq > own.place else []
        if not found and seq < own.tip:
            return _NoneYet(self._session.short, seq, own.tip)
        run = core.state.run if seq == own.tip else None
        return [*found, *waiting_in_branches(core.store, run, id)] if run is not None else found

    @property
    def queued(self) -> list[QueuedTurn]:
        """The turns that wait for a run, in their order, in the store as it is now: messages
        without an answer yet.
        """
        return turns_in_queue(self._core.store, self._session.id)

    def send(self, *content: Content, actor: str | None = None) -> S:
        """Say something to the session as a user: the run that holds it hears it at its next safe
        point.
        """
        if not content:
            raise InvalidValue("content", "nothing is said", "pass a text")
        parts, blobs = pack(content, "content")
        draft = Draft(MessageSaid("user", parts), acting_in(self._session, actor))
        return post_to_inbox(self._session, draft, "take messages", blobs)

    def cancel(self, reason: str = "", *, actor: str | None = None) -> S:
        """Ask the open run to end before its next effect. A pause ends with it."""
        session = self._session
        if open_run_of(reload(session)) is None:
            raise NoRun(session.short, "be cancelled")
        act = acting_in(session, actor)
        drafts = [Draft(CancelRequested(reason), act)]
        if is_paused(core_of(reload(session))):  # what was held is to end: others may go on
            drafts.insert(0, Draft(SessionResumed("its run is cancelled"), act))
        asked = post_all_to_inbox(session, drafts, "be cancelled")
        host("be cancelled").cancel(session, reason)
        return asked

    def signal(self, name: str, value: Json = None, *, actor: str | None = None) -> S:
        """Report an event that a run may wait for with `session.wait_for(name)`."""
        body = Signalled(check_key(name, "name"), value)
        return post_to_inbox(
            self._session, Draft(body, acting_in(self._session, actor)), "take signals"
        )

    def approve(
        self,
        ask: Waiting | Event | str,
        *,
        edited: Json = None,
        note: str = "",
        actor: str | None = None,
    ) -> S:
        """Allow a call exactly as it was shown, or with other arguments.

        An ask is named by itself or the start of its id.
        """
        found = self._ask(ask, "approval")
        if edited is not None and not isinstance(edited, Mapping):
            raise InvalidValue(
                "edited",
                f"{value_text(edited)} is not an object",
                "pass the corrected arguments by name",
            )
        body = ApprovalGranted(_binding(found), dict(edited) if edited is not None else None, note)
        return reply_to(self._session, found, body, actor)

    def deny(self, ask: Waiting | Event | str, reason: str = "", *, actor: str | None = None) -> S:
        """Refuse a call. The reason is told to the model or program that asked."""
        found = self._ask(ask, "approval")
        return reply_to(self._session, found, ApprovalDenied(_binding(found), reason), actor)

    def answer(
        self, question: Waiting | Event | str, value: Json, *, actor: str | None = None
    ) -> S:
        """Answer a question."""
        found = self._ask(question, "question")
        if found.choices and value not in found.choices:
            raise InvalidValue(
                "value",
                f"{value_text(value)} is not among the choices",
                f"answer with one of {', '.join(found.choices)}",
            )
        return reply_to(self._session, found, QuestionAnswered(found.event, value), actor)

    def resolve(
        self,
        call: Waiting | Event | str,
        verdict: Literal["happened", "did_not_happen", "compensated"],
        value: Any = None,
        note: str = "",
        *,
        actor: str | None = None,
    ) -> S:
        """Settle an effect whose outcome is not known, named by the ask, its request or its call.

        `value` is the value it returned, of the type that its tool returns: a number, a text, a
        dataclass, a model.
        """
        check_choice("verdict", verdict, ("happened", "did_not_happen", "compensated"))
        found = self._ask(call, "unknown")
        parts, blobs = pack(
            _result_parts(found, value) if verdict == "happened" or value is not None else [],
            "value",
        )
        body = ToolResolved(cast("Digest", found.request), verdict, parts, note)
        return reply_to(self._session, found, body, actor, blobs)

    def _ask(
        self, ask: Waiting | Event | str, kind: Literal["approval", "question", "unknown"]
    ) -> Waiting:
        return ask_now(self._core.position, self._branch_ask(ask) or ask, kind)

    def _branch_ask(self, ask: Waiting | Event | str) -> Waiting | None:
        """Return the ask of this name in a branch of the open run. None: there is none."""
        if isinstance(ask, Waiting):
            return None
        core, name = self._core, ask.id if isinstance(ask, Event) else ask
        run = open_run_of(reload(self._session))
        if run is None or not isinstance(name, str) or len(name) < 4:  # pyright: ignore[reportUnnecessaryIsInstance]
            return None
        return ask_in_branches(core.store, run, core.position.id, name)


def _binding(ask: Waiting) -> Digest:
    assert ask.binding is not None  # an approval has one
    return ask.binding


def _result_parts(ask: Waiting, value: Any) -> list[Any]:
    """The result of an effect as its tool would have recorded it."""
    of_bytes = takes_bytes(ask.returns)
    if isinstance(value, Path) and (of_bytes or ask.returns is None):
        return [value]
    try:
        plain = to_json(value) if ask.returns is not None else None
        why = misfit(plain, ask.returns)
        if (
            why is None
            and ask.returns is not None
            and isinstance(value, (bytes, bytearray, memoryview))
            and not of_bytes
        ):
            why = "it is bytes"  # as JSON it would pass for a text
        if why is None and of_bytes and isinstance(value, str):
            value = bytes_of(value)
        parts = contents(value)
    except (TypeError, ValueError) as error:
        raise InvalidValue("value", str(error), "pass plain data") from error
    if why is not None:
        shape = msgspec.json.encode(ask.returns).decode()
        raise InvalidValue(
            "value",
            f"that is not what the call returns: {why}",
            f"pass a value that has this JSON schema: {shape}",
        )
    return parts
