"""Workflows for the cases of row 5: what engines for durable execution promise."""

from __future__ import annotations

import time
from typing import ClassVar

from plait import Parallel, Session, Workflow, heartbeat, patched, tool


class Timer(Workflow):
    """Sleeps for longer than a process is kept for."""

    def forward(self, session: Session, seconds: float) -> Session:
        return session.sleep(seconds).say("awake", role="assistant")


class Signal(Workflow):
    """Waits for a signal, and says what it brought; what it waits for can be asked meanwhile."""

    def forward(self, session: Session) -> Session:
        session = session.fact("stage", "waiting").wait_for("built", timeout_s=3600)
        return session.fact("stage", "built").fact("value", session.result)


class Retry(Workflow):
    """Fails twice."""

    times: ClassVar[list[float]] = []

    def forward(self, session: Session) -> Session:
        Retry.times.append(time.monotonic())
        if len(Retry.times) < 3:
            raise RuntimeError("not yet")
        return session.say("at last", role="assistant")


@tool(effect="pure", heartbeat_s=0.2)
def fall_silent() -> str:
    """Say something, and then nothing for a while."""
    heartbeat("begun")
    time.sleep(2)
    return "too late"


class Silent(Workflow):
    def forward(self, session: Session) -> Session:
        return session.use(fall_silent)


@tool(effect="pure")
def rest(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "rested"


class Endless(Workflow):
    def forward(self, session: Session) -> Session:
        while True:
            session = session.use(rest, seconds=0.05)


class Child(Workflow):
    def __init__(self, key: str) -> None:
        self.key = key

    def forward(self, session: Session) -> Session:
        return session.fact(self.key, "done")


class Children(Workflow):
    """Two children, side by side."""

    def __init__(self) -> None:
        self.both = Parallel(left=Child("left"), right=Child("right"))

    def forward(self, session: Session) -> Session:
        return self.both(session)


class Again(Workflow):
    """Counts on from the run before it in the same session."""

    def forward(self, session: Session) -> Session:
        return session.fact("count", int(str(session.facts.get("count", 0))) + 1)


class Greet(Workflow):
    """Does something else when it is deployed anew."""

    word: ClassVar[str] = "Dear"

    def forward(self, session: Session) -> Session:
        return session.fact("greeting", Greet.word).wait_for("go", timeout_s=3600)


class Taxed(Workflow):
    """Is patched while runs of it are open."""

    is_new: ClassVar[bool] = False

    def forward(self, session: Session) -> Session:
        session = session.wait_for("go", timeout_s=3600)
        if Taxed.is_new and patched("tax of 2027"):
            return session.fact("rate", 19)
        return session.fact("rate", 16)


class TaxedEarly(Workflow):
    """Takes its way before it waits: a run that waits stays on it."""

    is_new: ClassVar[bool] = False

    def forward(self, session: Session) -> Session:
        rate = 19 if TaxedEarly.is_new and patched("tax of 2027") else 16
        return session.fact("rate", rate).wait_for("go", timeout_s=3600)
