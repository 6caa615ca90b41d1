"""Asks of a model, as drivers perform them: any error of the model is a fault, and ends nothing
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from plait.inside import Stop, ends_run
from plait.model.base import Fault, Reply
from plait.runtime.failures import text_of_error
from plait.runtime.replies import misfit_of_reply

T = TypeVar("T")


def reply_or_fault(answer: Callable[[], Any]) -> Reply | Fault:
    """Return the model's reply; an error that it raised, as a fault."""
    try:
        return check_reply(answer())
    except Fault as fault:
        return fault
    except BaseException as error:  # of any class: the ask failed, and nothing else did
        if ends_run(error):
            raise
        return fault_of(error)


def check_reply(reply: Any) -> Reply | Fault:
    """Return the reply, or the fault that it is none or is malformed."""
    if not isinstance(reply, Reply):
        return Fault("BadModel", f"the model answered with a {type(reply).__name__}, not a Reply")
    why = misfit_of_reply(reply)
    return (
        reply
        if why is None
        else Fault("MalformedReply", f"the model's reply is not one: {why}", retryable=True)
    )


def fault_of(error: BaseException) -> Fault:
    fault = Fault(type(error).__name__, text_of_error(error))
    fault.__cause__ = error
    return fault


async def await_answer(answer: Awaitable[T]) -> T:
    """Await a model's answer in a task of its own: a model that raises a cancel, or cancels its
    task, ends its ask and nothing else.
    """
    work = asyncio.ensure_future(_answer_or_fault(answer))
    try:
        return await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise fault_of(error) from error


async def _answer_or_fault(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except (Exception, asyncio.CancelledError, Stop):
        raise
    except BaseException as error:  # it would end the loop itself, and all that runs on it
        raise fault_of(error) from error
