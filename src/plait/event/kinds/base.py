"""The base class of all kinds, and the types of their fields."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from plait.ids import Digest, Micros

# A measured value differs between two runs of the same history; comparing histories leaves it out.
Measured = msgspec.Meta(extra={"measured": True})
DurationMicros = Annotated[int, Measured]
MeasuredTime = Annotated[Micros, Measured]

Purpose = Literal["plan", "act", "validate", "reflect", "route"]
EffectClass = Literal[
    "pure", "workspace", "idempotent", "probeable", "compensatable", "at_most_once"
]
Scope = Literal["session", "agent", "workflow", "project", "user"]


def _first_version(_: str) -> int:
    return 1


class Body(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="v",
    tag=_first_version,
):
    """The content of one kind of event. The tag `v` is the body version of its kind."""

    def refs(self) -> tuple[Digest, ...]:
        """The blobs this body points to, in order."""
        return ()
