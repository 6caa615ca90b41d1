"""Lists of models: the next one is asked if one is down.

The runtime asks the models of a list one by one, and records each ask, so the record says which one
answered. A failure moves on to the next model only if the provider is at fault: it cannot be
reached, is overloaded, or refuses the key. A request that no provider would take is not sent to
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from plait.errors import (
    InvalidValue,
    MissingExtra,
    MissingKey,
    MissingSetting,
    MissingWeights,
    NoModel,
    PlaitError,
)
from plait.model.base import Fault, Model, OnDelta, Reply, Request

Models = str | Model | Sequence["str | Model"]  # as a program names one model, or several
COOL_S = 60.0  # seconds for which a model that was down is passed over, in this process
SEPARATOR = ","
_MISSING = (MissingKey, MissingExtra, MissingWeights, MissingSetting)
_STEP = 'pass names or models, each once: ["anthropic:claude-sonnet-5-5", "openai:gpt-5"]'


class ModelList:
    """Models in the order in which they are asked. Its name has all their names."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = tuple(models)
        self.name = SEPARATOR.join(model.name for model in models)
        _check_names([_name_of(model) for model in self.models])

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        """Raise: a list is asked one by one, by the runtime, which records each ask."""
        raise Fault("BadModel", f"a list of models cannot be asked itself: {self.name}")

    def __repr__(self) -> str:
        return f"ModelList({self.name!r})"


class MissingModel:
    """A model of a list that cannot be asked here: its key, package or weights are missing.

    Asked, it fails with that reason, which is recorded, and the next model is asked.
    """

    def __init__(self, name: str, error: PlaitError) -> None:
        self.name, self.error = name, error

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        raise Fault(type(self.error).__name__, str(self.error))


def models_in(model: Model) -> tuple[Model, ...]:
    """Return the models of a list, or the one model that it is."""
    return model.models if isinstance(model, ModelList) else (model,)


def split_names(name: str) -> list[str]:
    """Return the names in a text: "a, b" names two models."""
    return [each.strip() for each in name.split(SEPARATOR)]


def models_listed(model: Any) -> list[Any] | None:
    """Return the items of a list of models or names. None: it is one model, or a name."""
    if isinstance(model, (list, tuple)) and not hasattr(cast("object", model), "ask"):
        return list(cast("Sequence[Any]", model))
    return None


def check_models(model: Any) -> Any:
    """Return a model or a list of models as it was given, or raise InvalidValue if it is none, or
    if the list is empty or has two of one name.
    """
    listed = models_listed(model)
    if isinstance(model, str) and SEPARATOR in model:
        _check_names(split_names(model))
    elif listed is not None:
        _check_names([_name_of(each) for each in listed])
    elif model is not None and not isinstance(getattr(model, "name", model), str):
        kind = type(cast("object", model)).__name__
        raise InvalidValue("model", f"a {kind} is not a model", "pass a name, as in 'openai:gpt-5'")
    return cast("Any", model)


def name_of_models(model: Any) -> str | None:
    """Return the name of a model or of a list, for print. None: it has none."""
    listed = models_listed(model)
    if listed is not None:
        return SEPARATOR.join(_name_of(each) for each in listed)
    return model if isinstance(model, str) else getattr(model, "name", None)


def _name_of(given: Any) -> str:
    name = given.strip() if isinstance(given, str) else getattr(given, "name", None)
    if isinstance(given, ModelList) or not isinstance(name, str):
        kind = type(cast("object", given)).__name__
        raise InvalidValue("model", f"a {kind} is not a model", _STEP)
    return name


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise InvalidValue("model", "the list of models is empty", _STEP)
    if not all(names):
        raise InvalidValue("model", "a name in the list of models is empty", _STEP)
    for at, name in enumerate(names):
        if name in names[:at]:
            raise InvalidValue("model", f"two models in the list are called {name!r}", _STEP)


def find_list(given: Sequence[str | Model], find: Callable[[str], Model]) -> Model:
    """Return the list of these models, each found by its name. A model whose key or package is
    missing stays in the list, unless that is true of all.
    """
    check_models(list(given))
    found = [_find_or_missing(each, find) if isinstance(each, str) else each for each in given]
    missing = [each.error for each in found if isinstance(each, MissingModel)]
    if len(missing) == len(found):
        if len(found) == 1:
            raise missing[0]
        why = " ".join(map(str, missing))
        raise NoModel(f"none of the {len(found)} models can be asked: {why.removesuffix('.')}")
    for each in found:
        if not callable(getattr(each, "ask", None)):
            raise NoModel(f"a {type(each).__name__} is not a model")
    return found[0] if len(found) == 1 else ModelList(found)


def _find_or_missing(name: str, find: Callable[[str], Model]) -> Model:
    try:
        return find(name.strip())
    except _MISSING as error:
        return MissingModel(name.strip(), error)
