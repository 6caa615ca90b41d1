"""A program, its changed form, and the lives in which the change is accepted, to be killed.

`python -m tests.faults.accept_story STORE VERB MOMENT`: `begin` runs the program until it waits,
`accept` goes on with the changed one, and is killed with -9 at a moment (0: never).
"""

from __future__ import annotations

import sys
from pathlib import Path

from plait import Parked, Session, Workflow, tool
from plait.errors import NothingToAccept
from plait.runs.take_up import resume_run
from plait.runtime.attendants import NOBODY
from tests.faults.lives import kill_at


@tool
def mail(to: str) -> str:
    """Send a letter: at most once."""
    with Path(sys.argv[1], "sent").open("a") as sent:
        sent.write(f"{to}\n")
    return f"sent to {to}"


class Letters(Workflow):
    """Sends two letters, one of them in a branch, and asks."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def forward(self, session: Session) -> Session:
        branch = session.fork("ann").use(mail, to="ann")
        for word in self.words:
            branch = branch.fact("word", word)
        session = session.merge(branch.fact("ann", True))
        session = session.use(mail, to="bob")
        return session.ask("Go on?") if len(self.words) == 1 else session.fact("end", True)


BEFORE, AFTER = ("a",), ("a", "b")


def main(store: str, verb: str, moment: int) -> None:
    if verb == "begin":
        try:
            Letters(*BEFORE)(Session("Write.", store=f"{store}/store"))
        except Parked:
            return
    session = Session.open("@", store=f"{store}/store")
    arm = kill_at(moment, Path(store))
    try:
        resume_run(session, Letters(*AFTER), (), {}, NOBODY, None, arm, "more words")
    except NothingToAccept:  # it was accepted before the process was killed
        resume_run(session, Letters(*AFTER), (), {}, NOBODY, None, arm)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
