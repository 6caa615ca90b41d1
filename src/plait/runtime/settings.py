"""The settings of a run: the arguments of its caller, and the changes of a what-if."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from plait.event import Json
from plait.ids import Digest
from plait.runtime.policy import Approver, Policy

Answerer = Callable[[str, tuple[str, ...]], Json]  # a question and its choices: the answer


class Overrides(NamedTuple):
    """The changes of a what-if: for all agents, or by path or name. None: unchanged."""

    model: Any = None
    instruction: Any = None
    tools: Any = None

    def of(self, path: str) -> Overrides:
        return Overrides(*(_change_for(path, given) for given in self))


def _change_for(path: str, given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    by_name = cast("Mapping[str, Any]", given)
    return by_name.get(path, by_name.get(path.rpartition("/")[2]))


class Settings:
    """The policies and people of a run."""

    def __init__(self, behalf: str) -> None:
        self.behalf = behalf  # the principal that started it
        self.policies: tuple[Policy, ...] = ()  # beyond the recording, besides the workflows' own
        self.overrides: Overrides | None = None
        self.without: frozenset[Digest] = frozenset()  # memories that no live recall returns
        self.approver: Approver | None = None  # asked at once; None: the ask goes to the inbox
        self.answerer: Answerer | None = None  # likewise, for questions
