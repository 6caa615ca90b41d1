"""Bodies decoded in part: the few fields that an index of steps needs, and no others.

Texts, arguments and outputs are skipped, not decoded. A body of an older version is decoded whole,
and brought up to date, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from plait.event import Event
from plait.event import kinds as k
from plait.event.vocabulary import encode_canonical


class LightBody(msgspec.Struct, frozen=True):
    v: int


class LightCall(msgspec.Struct, frozen=True):
    call: str


class LightPrice(msgspec.Struct, frozen=True):
    cost_usd_nano: int


class LightReply(LightBody, frozen=True):
    """The parts of `ModelReplied` and `ModelFailed` that are counted, and the calls asked for."""

    parts: msgspec.Raw = msgspec.Raw(b"[]")
    usage: k.Usage | None = None
    calls: tuple[LightCall, ...] = ()
    price: LightPrice | None = None
    aside: bool = False

    @property
    def has_words(self) -> bool:
        """True if it says something, and does not only call tools."""
        raw = bytes(self.parts)
        return raw != b"[]" and any(each in raw for each in _WORDS)


# in canonical JSON the type of a part is written so; inside a text its quotes are escaped
_WORDS = (b'"type":"text"', b'"type":"image"', b'"type":"file"', b'"type":"data"')


class LightRequest(LightBody, frozen=True):
    decision: str = ""


class LightTrees(msgspec.Struct, frozen=True):
    before: str
    after: str


class LightOutcome(LightBody, frozen=True):
    exit_code: int | None = None
    trees: LightTrees | None = None

    @property
    def changes_files(self) -> bool:
        return self.trees is not None and self.trees.before != self.trees.after


class LightMessage(LightBody, frozen=True):
    aside: bool = False


Light = TypeVar("Light", bound=LightBody)


def light_decoder(light: type[Light], kind: type[k.Body]) -> Callable[[Event], Light]:
    """Return a function that decodes the light part of events of this kind.

    It raises a `PlaitError` if the body is erased or damaged, as `event.body` does.
    """
    decode = msgspec.json.Decoder(light).decode
    current: Any = kind.__struct_config__.tag

    def light_part(event: Event) -> Light:
        content = event.content
        try:
            found = decode(content)
            if found.v == current:
                return found
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        return decode(encode_canonical(event.body))

    return light_part


light_reply = light_decoder(LightReply, k.ModelReplied)
light_failure = light_decoder(LightReply, k.ModelFailed)
light_request = light_decoder(LightRequest, k.ToolRequested)
light_return = light_decoder(LightOutcome, k.ToolReturned)
light_tool_failure = light_decoder(LightOutcome, k.ToolFailed)
light_message = light_decoder(LightMessage, k.MessageSaid)
