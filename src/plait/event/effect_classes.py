"""The effect classes: one row for each, with everything that follows from a tool's class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from plait.event.kinds import EffectClass

WhenLost = Literal["repeat", "probe", "compensate", "review"]


class EffectRule(NamedTuple):
    """The promise of a class, and the way to settle a call whose outcome is not known."""

    when_lost: WhenLost
    is_outward: bool  # reaches beyond the workspace
    # the function that a tool of this class has besides its own, named as its parameter of @tool
    companion: Literal["", "probe", "compensate"] = ""

    @property
    def is_repeatable(self) -> bool:
        """True if the call may be made again, under the same key, without a second effect."""
        return self.when_lost == "repeat"


EFFECTS: Mapping[EffectClass, EffectRule] = {
    "pure": EffectRule("repeat", is_outward=False),
    # the files are made those of the session first
    "workspace": EffectRule("repeat", is_outward=False),
    "idempotent": EffectRule("repeat", is_outward=True),
    "probeable": EffectRule("probe", is_outward=True, companion="probe"),
    "compensatable": EffectRule("compensate", is_outward=True, companion="compensate"),
    "at_most_once": EffectRule("review", is_outward=True),
}
assert set(EFFECTS) == set(get_args(EffectClass))

OUTWARD: tuple[EffectClass, ...] = tuple(
    effect for effect, rule in EFFECTS.items() if rule.is_outward
)
