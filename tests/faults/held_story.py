"""A workflow that waits in a tool until somebody lets it go on: to be held by one process and
wanted by another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.errors import PlaitError
from tests.support import wait_until

folder = Path(os.environ.get("STORY_FOLDER", "."))
meanwhile: list[Callable[[], object]] = []  # what a process that took the run over does in its tool


def _act(key: str) -> str:
    with open(folder / "effects", "a") as out:
        print(key, file=out)
    if meanwhile:
        meanwhile.pop()()
    else:
        (folder / "busy").touch()
        wait_until((folder / "go").exists)
    return f"done by {'the first' if __name__ == '__main__' else 'another'}"


@tool
def once(idempotency_key: str) -> str:
    return _act(idempotency_key)


@tool(effect="idempotent")
def often(idempotency_key: str) -> str:
    return _act(idempotency_key)


class Held(Workflow):
    def __init__(self, name: str) -> None:
        found = {"once": once, "often": often}[name]
        self.work = Agent(
            "Work.", model=ScriptedModel([ToolCall(name), "well done"]), tools=[found]
        )
        self.after = Agent("Look back.", model=ScriptedModel(["all is well"]))

    def forward(self, session: Session) -> Session:
        return self.after(self.work(session))


def main() -> None:
    session = Session("go", store=str(folder / ".plait"), user="u")
    print(session.id, flush=True)
    try:
        print(Held(sys.argv[1])(session).text, flush=True)
    except PlaitError as error:
        print(type(error).__name__, flush=True)


if __name__ == "__main__":
    main()
