"""Models of a list that were down a moment ago: passed over for a while, in this process.

It is a choice for live asks alone. The record says which model was asked, and a resume or a replay
follows that.
"""

from __future__ import annotations

from collections.abc import Sequence

from plait.model.base import Model
from plait.model.fallback import COOL_S
from plait.runtime.process import THIS_PROCESS


def start_cooling(model: Model, now_us: int) -> None:
    """Note that a model is down. One that cannot be kept in a table is not remembered."""
    try:
        THIS_PROCESS.models_down[model] = now_us
    except TypeError:
        pass


def end_cooling(model: Model) -> None:
    """Note that a model answers again."""
    try:
        THIS_PROCESS.models_down.pop(model, None)
    except TypeError:
        pass


def choose_model(models: Sequence[Model], now_us: int) -> Model:
    """Return the first model that was not down a moment ago; the first of all, if all were."""
    return next((model for model in models if not _is_cooling(model, now_us)), models[0])


def _is_cooling(model: Model, now_us: int) -> bool:
    try:
        since_us = THIS_PROCESS.models_down.get(model)
    except TypeError:
        return False
    return since_us is not None and now_us - since_us < COOL_S * 1e6
