"""AutoGen's team as a workflow: each of its turns is a recorded call, and is answered from the
recording when the run is taken up again.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from plait import Session, Workflow, tool

HERE = Path(__file__).parent


class Guest:
    """The process of the team, and lines to and from it."""

    def __init__(self, python: Path, case: dict[str, Any]) -> None:
        script = HERE.parent / "tests" / "guests" / "autogen_bridged.py"
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.was_asked = False
        self.tell(case)

    def tell(self, document: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Team(Workflow):
    """Runs the team of a case to its end."""

    def __init__(self, python: Path, case: dict[str, Any]) -> None:
        self._python, self._case = python, case

    def forward(self, session: Session) -> Session:
        guest = Guest(self._python, self._case)

        @tool(effect="pure")
        def team_turn(agent: str, turn: int) -> str:
            """Let an agent of the team take its turn."""
            guest.was_asked = True
            guest.tell(None)
            return guest.hear()["text"]

        try:
            while "messages" not in (line := guest.hear()):
                guest.was_asked = False
                session = session.use(team_turn, agent=line["agent"], turn=line["turn"])
                if not guest.was_asked:  # it is on record
                    guest.tell(session.result)
            return session.fact("messages", line["messages"])
        finally:
            guest.close()
