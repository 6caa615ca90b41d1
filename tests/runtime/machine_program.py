"""A program that works on a session as a user of another machine: HOST USER ADDRESS SESSION.

Ann begins, and is killed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from plait import Session, Workflow, resume, tool
from plait.sandbox import Sandbox


@tool(effect="workspace")
def add_line(text: str, sandbox: Sandbox) -> str:
    """Add a line to the notes."""
    before = sandbox.files.read("notes").decode()
    sandbox.files.write("notes", f"{before}{text}\n".encode())
    return before


class Notes(Workflow):
    """Writes two lines; of Ann it is killed in between."""

    def forward(self, session: Session) -> Session:
        session = session.use(add_line, text="one")
        if os.environ.get("USER") == "ann":
            os.kill(os.getpid(), signal.SIGKILL)
        return session.use(add_line, text="two")


def work(host: str, user: str, address: str, name: str) -> None:
    socket.gethostname = lambda: host
    os.environ["USER"] = user
    if user == "ann":
        Notes()(Session.open(name, store=address))
    else:
        resume(name, Notes(), store=address)


if __name__ == "__main__":
    from tests.runtime import machine_program

    machine_program.work(*sys.argv[1:])
