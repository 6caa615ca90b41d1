"""Applies the overrides of a what-if run (model, instruction, tools) to an agent's requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from plait.event import kinds as k
from plait.ids import Digest
from plait.model.base import Spec
from plait.runtime.effects import AskModel
from plait.runtime.names import import_path
from plait.runtime.prompt.prompt import Prompt
from plait.runtime.prompt.setup import Setup
from plait.runtime.run import Run
from plait.session import Session
from plait.session.ports import Act, Draft
from plait.tool import Tool


def override_ask(effect: AskModel, session: Session, run: Run) -> tuple[AskModel, list[Draft]]:
    """Return the ask under the overrides, and the draft of its new setup, if that has changed."""
    assert run.settings.overrides is not None
    over, before = run.settings.overrides.of(effect.path), effect.prompt.setup
    effect = effect._replace(model=over.model or effect.model, fresh=over.model is not None)
    if effect.aside:
        return effect, []
    tools = effect.tools if over.tools is None else _chosen_tools(over.tools, effect.tools)
    specs = (
        before.tools
        if over.tools is None
        else tuple([_spec(tool) for _, tool in sorted(tools.items())])
    )
    setup = msgspec.structs.replace(
        before, instruction=over.instruction or before.instruction, tools=specs
    )
    changed = effect._replace(tools=tools)
    if setup == before:
        return changed, []
    changed = changed._replace(
        prompt=Prompt.of(
            setup, effect.actor, session.run, session, run.journal.source_runs(session)
        )
    )
    frame = run.stack.frames(session.id)[-1]
    if not run.is_first_time(("setup", frame.call)):
        return changed, []
    body = k.CallStarted(
        import_path(type(frame.node)),
        frame.path,
        frame.purpose,
        frame.path.rpartition("/")[2],
        _digest(setup),
    )
    return changed, [Draft(body, Act(frame.actor, "program", call=frame.call))]


def overridden_tools(
    run: Run | None, session: Session, path: str, tools: Mapping[str, Tool[..., Any]]
) -> Mapping[str, Tool[..., Any]]:
    if run is None or run.settings.overrides is None:
        return tools
    over = run.settings.overrides.of(path).tools
    return tools if over is None else {**tools, **_chosen_tools(over, tools)}


def _chosen_tools(
    chosen: Iterable[Tool[..., Any] | str], own: Mapping[str, Tool[..., Any]]
) -> dict[str, Tool[..., Any]]:
    """Return the tools of a what-if by name. A name stands for a tool that the agent has."""
    found = [own.get(each) if isinstance(each, str) else each for each in chosen]
    return {tool.name: tool for tool in found if tool is not None}


def setup_blob(setup: Setup) -> dict[Digest, bytes]:
    return {_digest(setup): setup.encode()}


def _digest(setup: Setup) -> Digest:
    return Digest(sha256(setup.encode()).hexdigest())


def _spec(tool: Tool[..., Any]) -> Spec:
    return Spec(tool.name, tool.description, tool.schema)
