"""Programs that a server of the tests runs, in processes of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

from plait import Agent, Session, Workflow, tool
from plait.model.scripted import ScriptedModel
from tests.outline.programs import call, reply


@tool(effect="pure")
def wait_for_file(name: str) -> str:
    """Wait until a file is there."""
    folder = Path(os.environ["RUN_FOLDER"])
    (folder / "began").touch()
    while not (folder / name).exists():
        time.sleep(0.01)
    return "it is there"


class Slow(Workflow):
    """Asks a person to begin, and waits for a file."""

    def __init__(self) -> None:
        script = [call("wait_for_file", name="go"), reply("It is done.")]
        self.waiter = Agent("Wait.", model=ScriptedModel(script), tools=[wait_for_file])

    def forward(self, session: Session) -> Session:
        session = session.ask("Shall I begin?", ("yes", "no"))
        return self.waiter(session)
