"""Gates: the judge that a gate names, and the verdicts that count.

A gate names a principal (`human:ana`, `service:ci`), or a workflow by its class or its path in the
run. A verdict given in a run carries the names of the workflows that are at work there, so that
code of a run speaks for no other; a verdict given outside of runs carries none, so that no person
passes for a workflow.
"""

from __future__ import annotations

from collections.abc import Sequence

from plait.errors import InvalidValue
from plait.event import Event
from plait.event.kinds import ValidationRecorded


def judge_name(by: object, path: str | None) -> str:
    """Return the name of a judge as a gate records it: a text as it is; a workflow by its path in
    the run, else by its name or class.
    """
    if isinstance(by, str):
        return by.strip()
    if path is not None:
        return path
    if (named := getattr(by, "__qualname__", None)) is not None:  # a class, or a function
        return str(named)
    if isinstance(own := getattr(by, "name", None), str) and own:
        return own
    if type(by).__module__.partition(".")[0] == "plait":
        step = "give it a name: Agent(…, name='reviewer'); or require it in the run that calls it"
        raise InvalidValue(
            "by", f"any {type(by).__qualname__} would do: this one has no name of its own", step
        )
    return type(by).__qualname__


def is_counted(by: str, verdict: Event) -> bool:
    """Return True if a recorded verdict is of the judge that a gate names."""
    body = verdict.body
    assert isinstance(body, ValidationRecorded)
    names = body.by
    if not names and verdict.header.run is not None and not verdict.header.causes:
        # given in a run that did not record names yet
        names = (verdict.actor, verdict.actor.partition(":")[2])
    return is_judge(by, verdict.actor, names)


def is_judge(by: str, actor: str, names: Sequence[str]) -> bool:
    """Return True if an actor, with these names of workflows in a run, is the judge that a gate
    names.
    """
    if not by or not names:
        return by in ("", actor)
    return any(by == name or f"/{by}/" in f"/{name}/" for name in names)
