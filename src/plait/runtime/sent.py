"""Prompts as they were sent, rebuilt from the log alone: the setup that the call recorded, and the
story before the ask.

A prompt is a function of the log, so the rebuilt one has the digest that stands in the
`ModelAsked`, or something is not as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plait.errors import NoPrompt
from plait.event import Event, Json
from plait.event.kinds import CallStarted, ModelAsked
from plait.ids import Digest
from plait.model.base import Turn
from plait.runtime.names import principal_of
from plait.runtime.prompt.marks import LeftOut
from plait.runtime.prompt.prompt import Prompt
from plait.runtime.prompt.setup import Setup
from plait.session import Session
from plait.session.ports import Position, store_at
from plait.session.session import session_at

_setup = msgspec.json.Decoder(Setup).decode


class Sent(msgspec.Struct, frozen=True):
    """One ask, as the model had it."""

    event: Event  # the ModelAsked
    model: str
    setup: Setup
    parameters: Json
    turns: Sequence[Turn]
    digest: Digest  # of the rebuilt prompt
    recorded: Digest  # of the prompt that was sent
    left_out: Sequence[LeftOut]

    @property
    def matches(self) -> bool:
        return self.digest == self.recorded


def last_asked(session: Session) -> Event:
    """Return the ask at this place, or the nearest before it."""
    found = next(
        store_at(session.store).read(
            session.id, 1, session.seq, kinds={ModelAsked.__name__}, reverse=True
        ),
        None,
    )
    if found is None:
        raise NoPrompt(
            session.short,
            session.seq,
            "no model was asked by then",
            "look for a later place with plait log",
        )
    return found


def rebuild_prompt(session: Session, asked: Event | None = None) -> Sent:
    """Rebuild the prompt that was sent at this place of a session, or the nearest before it where
    a model was asked.
    """
    asked = asked or last_asked(session)
    body = asked.body
    assert isinstance(body, ModelAsked)
    first = _first_attempt(session, asked)
    encoded = _encoded_setup(session, first)
    prompt = Prompt(_setup(encoded), asked.actor, asked.header.run, encoded, explain=True)
    prompt.catch_up(
        session_at(Position(session.store, first.log, first.seq - 1, first.header.parents[0]))
    )
    digest, turns = prompt.ask()
    left = sorted(
        dict.fromkeys(prompt.left_out), key=lambda each: (each.log != first.log, each.seq)
    )
    return Sent(asked, body.model, prompt.setup, body.parameters, turns, digest, body.prompt, left)


def _first_attempt(session: Session, asked: Event) -> Event:
    """Return the first attempt of an ask: each further one is sent the same prompt."""
    body, call = asked.body, asked.header.call
    if isinstance(body, ModelAsked) and body.attempt > 1:
        for event in store_at(session.store).read(
            asked.log, 1, asked.seq, kinds={ModelAsked.__name__}, reverse=True
        ):
            if (
                event.header.call == call
                and isinstance(event.body, ModelAsked)
                and event.body.attempt == 1
            ):
                return event
    return asked


def _encoded_setup(session: Session, asked: Event) -> bytes:
    """Return the setup that the asking call recorded, in its own bytes."""
    store = store_at(session.store)
    for event in store.read(asked.log, 1, asked.seq, kinds={CallStarted.__name__}, reverse=True):
        body = event.body
        if (
            isinstance(body, CallStarted)
            and body.setup
            and f"agent:{principal_of(body.path)}" == asked.actor
        ):
            return store.get_blob(body.setup)
    step = "check that it was asked by an agent, a selector or a compactor"
    raise NoPrompt(session.short, asked.seq, f"what {asked.actor} asks with is not on record", step)
