"""The setup of a prompt: an agent's instruction, tools, parameters and view."""

from __future__ import annotations

import msgspec

from plait import secrets
from plait.event import Json
from plait.model.base import Spec
from plait.runtime.prompt import View

encode_json = msgspec.json.Encoder(order="deterministic").encode


class Setup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a prompt that is not the story.

    Recorded once per call, so that a prompt can be shown exactly as it was.
    """

    instruction: str
    tools: tuple[Spec, ...]
    parameters: dict[str, Json] = {}
    output: Json = None
    view: View = View()
    choice: str = ""  # of tools in its first ask, as the agent says. "": as the model likes

    def encode(self) -> bytes:
        data = encode_json(self)
        return (
            encode_json(secrets.hide(msgspec.json.decode(data)))
            if secrets.is_armed() and secrets.may_hold_secret(data)
            else data
        )
