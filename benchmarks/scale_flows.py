"""The workflow that the workers of `scale.py` execute: a model that takes a while."""

from __future__ import annotations

import time

from plait import Session, Workflow, tool


@tool(effect="pure")
def answer_after(seconds: float) -> str:
    """Take as long as a model."""
    time.sleep(seconds)
    return "answered"


class Answer(Workflow):
    def forward(self, session: Session, seconds: float) -> Session:
        return session.use(answer_after, seconds=seconds).say("done", role="assistant")
