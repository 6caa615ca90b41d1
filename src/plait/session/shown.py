"""The messages of a session that a person in it may see.

The log has more: answers that a guard rejected or has yet to judge, answers before a guard
corrected them, tasks that programs and agents give to agents, and notes of the runtime to a model.
"""

from __future__ import annotations

from collections.abc import Iterable

from plait.event import Event
from plait.event.kinds import CallFinished, MessageSaid, ModelReplied
from plait.ids import Digest, inbox_of
from plait.session.about import MESSAGE_KINDS
from plait.session.core import Core
from plait.session.events import path_events
from plait.session.views import Message, message_of
from plait.store import Store

_OWN_NAMES = ("plait", "memory")  # of the runtime, in its notes to models


class MessageList(list[Message]):
    """The messages of a session, in the order of its path."""

    __slots__ = ("_core",)

    def __init__(self, messages: Iterable[Message], core: Core) -> None:
        super().__init__(messages)
        self._core = core

    @property
    def shown(self) -> list[Message]:
        """The messages that a person in the conversation may see: those of people as they were
        said, and the answers as their guards let them pass.

        The answer of an agent with guards is among them when its call is over.
        """
        bodies = [(message, message.event.body) for message in self]
        hidden = set[Digest]()
        for message, body in bodies:
            if isinstance(body, MessageSaid):
                hidden.update(_hidden_by(self._core.store, message.event, body))
        hidden.update(_unpassed_replies(self._core, bodies))
        return [message for message in self if message.id not in hidden and message.text]


def path_messages(core: Core) -> MessageList:
    """Return the messages on the path of a session."""
    store = core.store
    found = [
        message_of(event, span, store.get_blob)
        for span, event in path_events(store, core.state.story.path, MESSAGE_KINDS)
    ]
    return MessageList([message for message in found if message is not None], core)


def _unpassed_replies(core: Core, bodies: Iterable[tuple[Message, object]]) -> set[Digest]:
    """Return the replies that no guard has passed, of the agents that have guards.

    An agent asks until its guards pass an answer. So that is the last reply of a call that
    finished, and a reply with calls of tools is none.
    """
    hidden = set[Digest]()
    answers: dict[str, Digest] = {}  # by call: its last reply
    for message, body in bodies:
        if isinstance(body, ModelReplied) and body.judged_in:
            hidden.add(message.id)
            answers.pop(body.judged_in, None)
            if not body.calls:
                answers[body.judged_in] = message.id
    if answers:
        ends = path_events(core.store, core.state.story.path, {CallFinished.__name__})
        for _, event in ends:
            body, call = event.body, event.header.call or ""
            if isinstance(body, CallFinished) and body.failure is None and call in answers:
                hidden.discard(answers[call])
    return hidden


def _hidden_by(store: Store, event: Event, body: MessageSaid) -> list[Digest]:
    """Return the messages that are not shown because of one: it may be among them."""
    if body.role == "assistant":
        return [body.instead_of.head] if body.instead_of is not None else []
    if body.name in _OWN_NAMES and event.actor.startswith("service:"):
        return [event.id, *event.header.causes]  # a note, and the answers that it refuses
    # A person sees the words that were typed, also where agents see corrected ones.
    is_hidden = body.role == "system" or body.instead_of is not None
    return [event.id] if is_hidden or _is_said_by_program(store, event) else []


def _is_said_by_program(store: Store, event: Event) -> bool:
    """True if the program of a run, or an agent, gives an agent a task by this message."""
    if event.header.run is None or event.actor.startswith("human:"):
        return False
    inbox = inbox_of(event.log)  # services, too, say in it what a person has said to them
    return not any([store.event(cause).log == inbox for cause in event.header.causes])
