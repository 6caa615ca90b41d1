"""Workflows that the workers of `cluster.py` serve."""

from __future__ import annotations

import time
from pathlib import Path

from plait import Session, Workflow, tool


@tool(effect="pure")
def add_one(number: int) -> int:
    return number + 1


@tool(effect="pure")
def ask_model(seconds: float) -> str:
    """Stands for a model that takes a while."""
    time.sleep(seconds)
    return "so"


class Steps(Workflow):
    """So many steps that do nothing."""

    def forward(self, session: Session, steps: int = 1) -> Session:
        for number in range(steps):
            session = session.use(add_one, number=number)
        return session


class Stamp(Workflow):
    """Notes when its first line is executed."""

    def forward(self, session: Session, path: str) -> Session:
        Path(path).write_text(str(time.monotonic()))
        return session


class Models(Workflow):
    """Asks a model five times."""

    def forward(self, session: Session) -> Session:
        for _ in range(5):
            session = session.use(ask_model, seconds=0.2)
        return session


class Long(Workflow):
    """Rests until its worker is killed."""

    def forward(self, session: Session) -> Session:
        for _ in range(6000):
            session = session.use(ask_model, seconds=0.05)
        return session
