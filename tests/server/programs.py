"""Programs that a server of the tests runs, in processes of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

from plait import Agent, Session, Workflow, tool
from plait.model.base import Delta, OnDelta, Reply, Request
from plait.model.scripted import ScriptedModel
from tests.outline.programs import call, reply


def hold_until(name: str) -> None:
    """Wait until the test makes a file."""
    while not (Path(os.environ["RUN_FOLDER"]) / name).exists():
        time.sleep(0.01)


@tool(effect="pure")
def wait_for_file(name: str) -> str:
    """Wait until a file is there."""
    (Path(os.environ["RUN_FOLDER"]) / "began").touch()
    hold_until(name)
    return "it is there"


class HeldModel(ScriptedModel):
    """Streams the first half of a reply, and the rest when the file `rest` is there."""

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        words = list[Delta]()
        reply = super().ask(request, words.append)
        half = len(words) // 2
        for at, word in enumerate(words if on_delta is not None else ()):
            if at == half:
                hold_until("rest")
            assert on_delta is not None
            on_delta(word)
        return reply


class Tells(Workflow):
    """Asks a person to begin, and then tells something, slowly."""

    def __init__(self) -> None:
        script = [reply("Once upon a time there was a cart."), reply("unused")]
        self.teller = Agent("Tell a story.", model=HeldModel(script))

    def forward(self, session: Session) -> Session:
        return self.teller(session.ask("Shall I begin?", ("yes", "no")))


class Slow(Workflow):
    """Asks a person to begin, and waits for a file."""

    def __init__(self) -> None:
        script = [call("wait_for_file", name="go"), reply("It is done.")]
        self.waiter = Agent("Wait.", model=ScriptedModel(script), tools=[wait_for_file])

    def forward(self, session: Session) -> Session:
        session = session.ask("Shall I begin?", ("yes", "no"))
        return self.waiter(session)
