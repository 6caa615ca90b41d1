"""The loop of an agent: ask a model, run the tools that its reply asks for, and ask again.

It is a generator of effects, which `effect_loop` performs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.errors import ResultInvalid
from plait.runtime.compaction import Fit
from plait.runtime.effects import AskModel, EffectGenerator, Tell, UseTools
from plait.runtime.handoffs import Handing, use_and_hand_off
from plait.runtime.registry import is_tried_again
from plait.session import Session
from plait.session.typed import name_of

LIMIT = "You have used all your steps. Answer now with what you have, without calling tools."


def ask_and_act(
    ask: AskModel,
    steps_max: int,
    check: Callable[[Any], str | None] | None = None,
    type_: Any = None,
    fit: Fit | None = None,
    handing: Handing | None = None,
) -> EffectGenerator[tuple[Session, bool]]:
    """Ask and act until there is an answer, or the conversation is handed off: then return True.

    `check` returns why an answer will not do, `fit` makes the prompt fit before each ask.
    """
    session, misses, step = ask.session, 0, 0
    while step <= steps_max:
        last = step == steps_max
        if last:
            session, _ = yield Tell(session, LIMIT)
        session = session if fit is None else (yield from fit(session))
        session, answer = yield ask._replace(session=session, choice="none" if last else ask.choice)
        step += 1
        if ask.choice == "any":  # forced once: it would never come to an answer
            ask = ask._replace(choice="auto", forced="")
        chosen = handing.target_in(answer) if handing is not None else None
        if handing is not None and chosen is not None:
            session, is_handed = yield from use_and_hand_off(ask, session, answer, handing, chosen)
            if is_handed:
                return session, True
        elif answer.calls:
            session, _ = yield UseTools(
                session,
                answer.runnable,
                ask.tools,
                ask.actor,
                ask.path,
                answer.requests,
                answer.spoken,
            )
        elif last and not answer.text and answer.data is None:
            session, _ = yield Tell(
                session,
                f"(no answer: all {steps_max} steps were used, and the last reply said nothing)",
                "assistant",
            )
        elif (
            check is not None
            and (why := check(answer.data.value) if answer.data is not None else "it is not JSON")
            is not None
        ):
            misses += 1
            if misses > 2 or last:
                if not is_tried_again(session):
                    raise ResultInvalid(ask.path, name_of(type_), why, session)
                misses = step = 0
            session, _ = yield Tell(
                session,
                f"That answer does not have the shape that was asked for: {why}. Answer again, in"
                " that shape.",
            )
        else:
            break
    return session, False
