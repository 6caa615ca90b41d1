"""The workflows that the workers of `scale.py` execute."""

from __future__ import annotations

import time
from pathlib import Path

from plait import Session, Workflow, tool


@tool(effect="pure")
def answer_after(seconds: float) -> str:
    """Take as long as a model."""
    time.sleep(seconds)
    return "answered"


class Answer(Workflow):
    def forward(self, session: Session, seconds: float) -> Session:
        return session.use(answer_after, seconds=seconds).say("done", role="assistant")


@tool(effect="pure")
def wait_for_file(path: str) -> str:
    """Wait until a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)
    return "open"


class Opens(Workflow):
    """Waits in its worker until all begin together."""

    def forward(self, session: Session, path: str) -> Session:
        return session.use(wait_for_file, path=path)


class Steps(Workflow):
    """So many steps that take no time."""

    def forward(self, session: Session, steps: int) -> Session:
        for _ in range(steps):
            session = session.use(answer_after, seconds=0.0)
        return session.say("done", role="assistant")


class Waits(Workflow):
    """Takes one step, and waits for a signal."""

    def forward(self, session: Session) -> Session:
        return session.use(answer_after, seconds=0.0).wait_for("go", timeout_s=10_000_000)
