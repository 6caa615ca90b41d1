"""Runs that are killed at a chosen event and taken up again, each life in a process of its own.

A process is forked before anything is opened, so that a life costs no start of an interpreter.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plait import Session, Workflow, resume

LIVES_MAX = 6


def new_session(folder: Path, text: str) -> str:
    """Make a session in a store of a folder, by a process of its own; return its id."""

    def make() -> None:
        (folder / "id").write_text(Session(text, store=folder / "store").id)

    if in_child(make) != 0:
        raise AssertionError("the session was not made")
    return (folder / "id").read_text()


def live(workflow: Callable[[], Workflow], folder: Path, id: str, kill_at: int) -> int:
    """Start or resume the run of a session, and return the exit code of the life.

    The life is killed when it has recorded its event number `kill_at`; 0: never.
    """

    def act() -> None:
        count = 0

        def tell(_: Any) -> None:
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        session = Session.open(id, store=folder / "store")
        if session.events.where("RunStarted"):
            resume(session, workflow(), on_event=tell)
        else:
            workflow()(session, on_event=tell)

    return in_child(act)


def live_on(workflow: Callable[[], Workflow], folder: Path, id: str, kill_at: int) -> bool:
    """Kill the first life at an event, and resume until the run has ended.

    False: the run ended before that event.
    """
    if live(workflow, folder, id, kill_at) == 0:
        return False
    for _ in range(LIVES_MAX):
        if live(workflow, folder, id, 0) == 0:
            return True
    raise AssertionError(f"the run did not end after a kill at event {kill_at}")


def in_child(act: Callable[[], None]) -> int:
    """Return the exit code of a process that does this; a signal is negative."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
