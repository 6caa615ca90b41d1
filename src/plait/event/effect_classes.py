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

# The kinds of failures, by which a call was certainly not run: it is made again when its run is.
NOT_RUN = frozenset(
    {
        "Stopped",
        "Refused",
        "Denied",
        "ApprovalExpired",
        "BudgetExceeded",
        "WrongArguments",
        "EffectUnknown",
        "ApproverFailed",
    }
)
# More of them, which a run that is resumed judges by the class of the tool.
_NEVER_BEGUN = NOT_RUN | {"UnknownTool", "Truncated", "NotHandedOff", "SecretArgument", "NoRun"}


def was_not_run(failure: str, origin: str) -> bool:
    """True if a call that failed so, with an outcome of this origin, was certainly not run."""
    return failure in _NEVER_BEGUN and origin in ("program", "human")  # a tool may raise any name


OUTWARD: tuple[EffectClass, ...] = tuple(
    effect for effect, rule in EFFECTS.items() if rule.is_outward
)
