"""Rollbacks."""

from __future__ import annotations

from typing import Any

RollbackPlan = Any


def plan_rollback(store: Any, **what: Any) -> Any:
    raise NotImplementedError
