"""The effect loop: performs effects one after another, and sends their answers back.

A request is on record before its effect, and an outcome before the next one. These are generators,
too: they append, and yield what has to be waited for (a model's answer, a tool, a pause), so that
blocking, async and simulated drivers share every line.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from plait.calls.tool_call import SERVICE
from plait.errors import PlaitError
from plait.event import kinds as k
from plait.runtime.appends import append_events
from plait.runtime.ask_model import ask_model
from plait.runtime.effects import (
    AskModel,
    EffectGenerator,
    Recall,
    Record,
    Remember,
    Tell,
    UseTools,
)
from plait.runtime.executing import check_running
from plait.runtime.recalls import recall_memories, remember_extracts
from plait.runtime.safe_points import safe_point
from plait.runtime.settle import use_tools
from plait.runtime.unwritten import Unwritten
from plait.runtime.waits import Wait
from plait.session import Session
from plait.session.ports import Act, Draft

T = TypeVar("T")


def perform_effects(effects: EffectGenerator[T]) -> Generator[Wait, Any, T]:
    """Perform the effects that a generator yields; return what it returns.

    The last outcome of tools is kept unwritten until the next effect, which may be an ask that
    takes it along.
    """
    after: Unwritten | None = None
    try:
        effect = next(effects)
        while True:
            try:
                if isinstance(effect, AskModel):
                    answer = yield from ask_model(effect, after)
                    after = None
                else:
                    if after is not None:
                        effect, after = effect._replace(session=after.write()), None
                    if isinstance(effect, UseTools):
                        session, after, outcomes = yield from use_tools(effect)
                        answer = session, outcomes
                    elif isinstance(effect, Recall):
                        answer = yield from recall_memories(effect)
                    else:
                        answer = _write(effect)
            except PlaitError as error:
                after = None  # an ask that raises has written it
                effect = effects.throw(error)
            else:
                effect = effects.send(answer)
    except StopIteration as done:
        return done.value
    finally:
        effects.close()
        if after is not None:  # interrupted right then
            after.write_if_missing()


def _write(effect: Tell | Remember | Record) -> tuple[Session, Any]:
    """Perform an effect that only writes."""
    check_running(effect.session)
    if isinstance(effect, Remember):
        return remember_extracts(effect), None
    if isinstance(effect, Record):
        return append_events(effect.session, effect.drafts, effect.blobs)
    body = k.MessageSaid(effect.role, (k.Text(effect.text),), "plait", bool(effect.aside))
    draft = Draft(body, Act(effect.aside or SERVICE, "program"))
    return append_events(safe_point(effect.session), [draft])[0], None
