"""Models that follow a script, agents that speak one, and what a model was sent."""

from __future__ import annotations

from typing import Any

from plait import Agent, ScriptedModel, Session
from plait.calls.model_call import Retry
from plait.model.base import OnDelta, Reply, Request, Returned, Turn
from plait.session.content import text_of

QUICK = Retry(wait_s=0.0)


def scripted_model(*items: Any) -> ScriptedModel:
    """A model that answers with these items, one after the other."""
    return ScriptedModel(list(items))


def speaker(*items: Any, **more: Any) -> Agent:
    """An agent whose model answers with these items, and is asked again at once."""
    return Agent(f"Say {items[:1]}", model=scripted_model(*items), retry=QUICK, **more)


class Spy:
    """A scripted model that keeps its requests."""

    name = "spy"

    def __init__(self, *script: Any) -> None:
        self.requests: list[Request] = []
        self._script = scripted_model(*script)

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        self.requests.append(request)
        return self._script.ask(request, on_delta)


def turn_text(turn: Turn) -> str:
    """The text of a turn; results are kept apart by a bar."""
    if isinstance(turn, Returned):
        return " | ".join(text_of(result.parts) for result in turn.results)
    return text_of(turn.parts)


def echo_last_words(session: Session) -> str:
    """Answer the last message of a user: for `ScriptedModel`."""
    said = [message.text for message in session.messages if message.role == "user"]
    return f"ok {said[-1]}"
