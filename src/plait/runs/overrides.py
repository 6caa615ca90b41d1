"""The overrides of a what-if: checked, recorded, and applied again when the branch goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from plait.errors import InvalidValue, NeedsWorkflow, PlaitError
from plait.event.effect_classes import OUTWARD
from plait.ids import short
from plait.journal.recorded_run import RecordedRun
from plait.model import find
from plait.model.fallback import ModelList, find_list, models_listed, split_names
from plait.runtime.policy import Ask, Policy
from plait.runtime.rule_names import HasTools
from plait.runtime.run import Run
from plait.runtime.settings import Overrides
from plait.tool import as_tool
from plait.workflow import Workflow


def check_overrides(program: Workflow, model: Any, instruction: Any, tools: Any) -> Overrides:
    """Return the overrides with models and tools found.

    Raises if one is for an agent that the program does not have, or is no model or tool.
    """
    for change in (model, instruction, tools):
        if isinstance(change, Mapping):
            _check_agents(program, cast("Mapping[str, Any]", change))
    found = _find_tools(tools)
    _check_tool_names(program, found)
    return Overrides(_find_models(model), instruction, found)


def describe_overrides(overrides: Overrides) -> dict[str, Any]:
    """Return the names of what is changed, for the record."""
    tools = "tools_kept" if _is_kept_alone(overrides.tools) else "tools"
    names = {
        "model": _names_of(overrides.model),
        "instruction": _names_of(overrides.instruction),
        tools: _names_of(overrides.tools),
    }
    return {change: name for change, name in names.items() if name is not None}


_ASK_AGAIN = "Ask it again: whatif(session, …)"


def apply_recorded_overrides(run: Run, recorded: RecordedRun, *, is_replay: bool = False) -> None:
    """Apply the changes of a what-if to a run that goes on from its recording.

    Raises NeedsWorkflow if the record does not have enough of them.
    """
    if recorded.source is None:
        return
    said = recorded.overrides
    if said.get("tools"):
        raise NeedsWorkflow(
            short(run.root),
            recorded.workflow,
            "its tools were replaced in a what-if, and they are not on record",
            step=_ASK_AGAIN,
        )
    try:
        model = (_stand_ins if is_replay else _find_models)(said.get("model"))
    except PlaitError as error:
        why = (
            f"its model was replaced in a what-if by one that cannot be found by its name ({error})"
        )
        missing = NeedsWorkflow(short(run.root), recorded.workflow, why, step=_ASK_AGAIN)
        raise missing from error
    run.settings.overrides = Overrides(model, said.get("instruction"), said.get("tools_kept"))
    run.settings.policies = policies_for(said.get("effects"))
    run.settings.without = frozenset(said.get("without", ()))


def policies_for(effects: object) -> tuple[Policy, ...]:
    """Return the policies of a what-if: effects beyond the workspace need consent, unless live."""
    if effects == "live":
        return ()
    return (Policy(Ask(effect=OUTWARD, name="what-if: it reaches beyond the workspace")),)


def _check_agents(program: Workflow, change: Mapping[str, Any]) -> None:
    paths = [path for path, _ in program.named_parts()]
    known = {name for path in paths for name in (path.rpartition("/")[2], *path.split("."))}
    known |= {program.name or "", type(program).__name__.lower()}
    for name in change:
        if name.rpartition("/")[2] not in known:
            raise InvalidValue(
                "whatif",
                f"no agent is called {name!r}",
                f"there are: {', '.join(paths) or 'none below it'}",
            )


def _find_models(model: Any) -> Any:
    """Return a model, or models by agent, each found if only its name is given."""
    if isinstance(model, Mapping):
        by_agent = cast("Mapping[str, Any]", model)
        return {name: _find_models(each) for name, each in by_agent.items()}
    if isinstance(model, str):
        return find(model)
    if (listed := models_listed(model)) is not None:
        return find_list(listed, find)
    if model is not None and not callable(getattr(model, "ask", None)):
        raise InvalidValue(
            "model", f"a {type(model).__name__} is not a model", "pass its name, or a model"
        )
    return model


def _find_tools(tools: Any) -> Any:
    """Return a list of tools, or lists by agent, each made a tool if it is a function."""
    if tools is None:
        return None
    if isinstance(tools, Mapping):
        by_agent = cast("Mapping[str, Any]", tools)
        return {name: _find_tools(each) for name, each in by_agent.items()}
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InvalidValue(
            "tools", f"a {type(tools).__name__} is not a list of tools", "pass tools=[…]"
        )
    given = cast("Iterable[Any]", tools)
    return [tool if isinstance(tool, str) else as_tool(tool) for tool in given]


def _listed_tools(tools: Any) -> list[Any]:
    """Return the tools and names of a change, of all agents."""
    if tools is None:
        return []
    if isinstance(tools, Mapping):
        by_agent = cast("Mapping[str, Any]", tools)
        return [each for listed in by_agent.values() for each in _listed_tools(listed)]
    return list(tools)


def _is_kept_alone(tools: Any) -> bool:
    """True if only tools are kept that the agents have: their names are all that is needed."""
    return all(isinstance(each, str) for each in _listed_tools(tools))


def _check_tool_names(program: Workflow, tools: Any) -> None:
    """Raise for the name of a tool that no agent of the program has."""
    named = {each for each in _listed_tools(tools) if isinstance(each, str)}
    parts: list[object] = [program, *[part for _, part in program.named_parts()]]
    known = set[str]()
    for part in parts if named else ():
        names = part.tool_names() if isinstance(part, HasTools) else ()
        if names is None:  # of a server, which is asked when the agent is
            return
        known.update(names)
    for name in sorted(named - known):
        there = ", ".join(sorted(known)) or "none"
        raise InvalidValue("tools", f"no agent has a tool {name!r}", f"there are: {there}")


class _UnaskedModel(NamedTuple):
    """Stands in for a model in a replay, where only its name is compared."""

    name: str


def _stand_ins(model: Any) -> Any:
    if isinstance(model, Mapping):
        by_agent = cast("Mapping[str, Any]", model)
        return {name: _stand_ins(each) for name, each in by_agent.items()}
    if model is None:
        return None
    names = split_names(model)
    stand_ins: list[Any] = [_UnaskedModel(name) for name in names]
    return ModelList(stand_ins) if len(names) > 1 else stand_ins[0]


def _names_of(change: Any) -> Any:
    if isinstance(change, Mapping):
        by_agent = cast("Mapping[str, Any]", change)
        return {name: _names_of(each) for name, each in by_agent.items()}
    if isinstance(change, (list, tuple)):
        listed = cast("Sequence[Any]", change)
        return [each if isinstance(each, str) else as_tool(each).name for each in listed]
    if change is None or isinstance(change, str):
        return change
    return getattr(change, "name", type(change).__name__)
