"""Tool calls as rows for training: each with its place, and if the outcome differs without it.

A call helped if the run, made again in a branch with an empty result in place of the call's own,
ends with other words, files or verdicts. Models that answer by chance differ by chance: their rows
need several runs, or a temperature of 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from plait.errors import PlaitError
from plait.event import Json
from plait.event.kinds import ToolReturned
from plait.journal.stops import Stop
from plait.runs.whatif import whatif
from plait.session import Session
from plait.session.views import Effect
from plait.workflow import Workflow


class ToolUse(msgspec.Struct, frozen=True):
    """One tool call of a run."""

    session: str  # id of the session whose log has the call
    seq: int  # of the request
    event: str  # id of the request
    tool: str
    arguments: Json
    result: Json
    outcome: str  # the last words of the run
    without: str  # the last words of the run without the result
    helped: bool | None  # None: the branch did not come to its end, and `why` says so
    why: str = ""


def tool_uses(session: Session, workflow: Workflow | None = None, **how: Any) -> list[ToolUse]:
    """Return the calls of the last run that returned something, each with the difference it made.

    Calls of branches are left out. `how` goes to `whatif`: tools with effects beyond the workspace
    need consent there, unless it says `effects="live"`.
    """
    return [
        _measure(session, effect, workflow, how)
        for effect in session.effects
        if effect.outcome is not None
        and effect.outcome.log == session.id
        and isinstance(effect.outcome.body, ToolReturned)
    ]


def as_jsonl(uses: Iterable[ToolUse]) -> str:
    """Return rows as lines of JSON."""
    return "".join(f"{msgspec.json.encode(use).decode()}\n" for use in uses)


def _measure(
    session: Session, effect: Effect, workflow: Workflow | None, how: dict[str, Any]
) -> ToolUse:
    outcome = effect.outcome
    assert outcome is not None
    without, helped, why = "", None, ""
    try:
        branch = whatif(session, workflow, replace={outcome: ""}, **how)
        without = branch.text
        helped = _ending_of(branch) != _ending_of(session)
    except (Stop, PlaitError) as error:
        why = str(error)
    return ToolUse(
        effect.request.log,
        effect.request.seq,
        effect.request.id,
        effect.tool,
        effect.arguments,
        _plain(effect.result),
        session.text,
        without,
        helped,
        why,
    )


def _ending_of(session: Session) -> tuple[Any, ...]:
    verdicts = [(each.name, each.passed) for each in session.checks.verdicts]
    return session.text, session.files.tree, verdicts


def _plain(value: Any) -> Json:
    """Return a result as JSON; what is none, such as an image, as the text that names it."""
    return msgspec.to_builtins(value, enc_hook=repr)
