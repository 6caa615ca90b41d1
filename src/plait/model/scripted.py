"""A model that reads from a script: for tests and demos, with no key, no network and no chance.

It keeps no counter. The next item follows from the record: from the answers that this agent has had
of its model in this run, on the path. So a fork, a rewind or another process goes on where the
story is, not where an object was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from plait.errors import InvalidValue
from plait.event.kinds import Text, Usage
from plait.model.base import (
    Answered,
    Fault,
    OnDelta,
    Reply,
    Request,
    Returned,
    Said,
    TextDelta,
    ToolCall,
    ToolDelta,
)
from plait.model.prices import FREE
from plait.session import Session
from plait.session.content import text_of

Item = str | ToolCall | Sequence[ToolCall] | Reply | BaseException
Script = Sequence[Item] | Callable[[Session], Item]


class ScriptedModel:
    """Serves a list, item by item, or the results of a function of the session.

    An item is a text (a final answer), a `ToolCall`, a list of `ToolCall`s (of one reply),
    a whole `Reply`, or an exception to raise (`Fault("RateLimited", "slow down", retryable=True)`
    is retried as a real one would be). The list begins anew with each run.
    """

    def __init__(self, script: Script, *, name: str = "scripted") -> None:
        if isinstance(script, str) or not (callable(script) or isinstance(script, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                "script",
                f"a {type(script).__name__} is not a script",
                "pass a list of answers, or a function of the session",
            )
        self._script: Script = script if callable(script) else tuple(map(_check_item, script))
        self.name = name

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        reply = self._reply(self._item(request), request)
        if on_delta is not None:
            _stream(reply, on_delta)
        return reply

    def _item(self, request: Request) -> Item:
        if callable(self._script):
            return _check_item(self._script(request.session))
        at = self._next_index(request.outcomes)
        if at >= len(self._script):
            said = f"the script has {len(self._script)} items, and item {at + 1} was asked for"
            raise Fault("ScriptExhausted", f"{said}; write more, or pass a function of the session")
        return self._script[at]

    def _next_index(self, outcomes: Sequence[str]) -> int:
        """Return the index of the next item.

        A failure that the script itself did not raise (a simulated one, say) has used up no item.
        """
        assert not callable(self._script)
        if not any(outcomes):
            return len(outcomes)
        at = 0
        for outcome in outcomes:
            item = self._script[at] if at < len(self._script) else None
            at += 1 if not outcome or _has_outcome(item, outcome) else 0
        return at

    def _reply(self, item: Item, request: Request) -> Reply:
        if isinstance(item, BaseException):
            raise item
        if isinstance(item, Reply):
            return item
        calls = (
            (item,) if isinstance(item, ToolCall) else () if isinstance(item, str) else tuple(item)
        )
        parts = (Text(item),) if isinstance(item, str) else ()
        said = (
            len(item) if isinstance(item, str) else sum(len(str(call.arguments)) for call in calls)
        )
        usage = Usage(_size(request), max(1, said // 4))
        return Reply(parts, calls, "calls" if calls else "end", usage, self.name, FREE)

    def __repr__(self) -> str:
        script = "a function" if callable(self._script) else f"{len(self._script)} items"
        return f"ScriptedModel({script})"


def _check_item(item: Any) -> Item:
    """Return the item if it is an answer, else raise InvalidValue: scripts are written by hand."""
    if isinstance(item, (str, ToolCall, Reply, BaseException)):
        return item
    if (
        isinstance(item, (list, tuple))
        and item
        and all(isinstance(call, ToolCall) for call in cast("Sequence[Any]", item))
    ):
        return cast("Sequence[ToolCall]", item)
    raise InvalidValue(
        "script",
        f"{item!r} is not an answer",
        "write a text, a ToolCall, a list of ToolCalls, a Reply, or an exception",
    )


def _has_outcome(item: Item | None, outcome: str) -> bool:
    """Return True if an item had this outcome: an exception as it was raised, or an answer that
    could not be used.
    """
    if isinstance(item, Fault):
        return outcome == _clean(f"{item.kind}: {item.message}")
    if isinstance(item, BaseException):
        return outcome == _clean(f"{type(item).__name__}: {str(item) or type(item).__name__}")
    return outcome.partition(":")[0] in ("EmptyReply", "MalformedReply")


def _clean(text: str) -> str:
    """Return a text as it is recorded."""
    return text.encode("utf-8", "backslashreplace").decode()


def _size(request: Request) -> int:
    """Estimate the tokens of a request by a rule of thumb: four characters each.

    Only the instruction and the last turn count: a script reads no more.
    """
    turn = request.turns[-1] if request.turns else None
    if isinstance(turn, Said):
        size = len(text_of(turn.parts))
    elif isinstance(turn, Returned):
        size = sum(len(text_of(result.parts)) for result in turn.results)
    else:
        assert not isinstance(turn, Answered)
        size = 0
    return max(1, (len(request.instruction) + size) // 4)


def _stream(reply: Reply, on_delta: OnDelta) -> None:
    for word in re.findall(r"\s*\S+\s*\Z|\s*\S+|\s+", text_of(reply.parts)):
        on_delta(TextDelta(word))
    for index, call in enumerate(reply.calls):
        on_delta(ToolDelta(index, call.tool))
        arguments = call.arguments
        on_delta(
            ToolDelta(
                index,
                call.tool,
                (
                    arguments
                    if isinstance(arguments, str)
                    else msgspec.json.encode(arguments).decode()
                ),
            )
        )
