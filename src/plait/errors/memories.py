"""Errors about memories."""

from __future__ import annotations

from collections.abc import Sequence

from plait.errors.base import PlaitError


class MemoryFault(PlaitError):
    """A memory cannot be written, found or decided about."""


class UnknownMemory(MemoryFault):
    """There is no such memory, or the reader may not see it: the answer is the same."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no memory is called {name}. List them: plait memory ls")


class AmbiguousMemory(MemoryFault):
    """Several memories have an id that begins so."""

    def __init__(self, name: str, found: Sequence[str]) -> None:
        self.name, self.found = name, tuple(found)
        shown = ", ".join(each[:16] for each in self.found[:5])
        super().__init__(f"{name} may be any of {shown}. Type more digits.")


class NoEvidence(MemoryFault):
    """A memory without evidence, which only a person may write."""

    def __init__(self, actor: str) -> None:
        self.actor = actor
        super().__init__(
            f"a memory needs evidence, and {actor} is no person. Pass evidence=: a session, an"
            " event, a message or a position."
        )


class NotEvidence(MemoryFault):
    """An event that cannot be evidence for a memory."""

    def __init__(self, event: str, why: str) -> None:
        self.event, self.why = event, why
        super().__init__(
            f"{event} is no evidence: {why}. Cite the tool result, message or verdict behind it."
        )


class NoOwner(MemoryFault):
    """The session has no owner for a scope."""

    def __init__(self, session: str, scope: str, step: str) -> None:
        self.session, self.scope = session, scope
        super().__init__(f"{session} has no {scope} that a memory could belong to: {step}")


class NotRecalled(MemoryFault):
    """No recall of a session's last run returned a memory."""

    def __init__(self, session: str, memory: str) -> None:
        self.session, self.memory = session, memory
        super().__init__(
            f"no recall of the last run in {session} returned [m:{memory[:8]}], so a run without it"
            f" is the same run. See which it recalled: plait memory used {session}"
        )


class StalePlan(MemoryFault):
    """Memories have changed since a rollback was planned."""

    def __init__(self, about: str) -> None:
        self.about = about
        super().__init__(
            f"memories have changed since the rollback of {about} was planned, and nothing was"
            " rolled back. Make the plan again, and read it."
        )


class IndexFailed(MemoryFault):
    """An index of memories did not answer, or not in a form that can be used."""

    def __init__(self, index: str, why: str) -> None:
        self.index, self.why = index, why
        super().__init__(
            f"the index {index} failed: {why}. Memories are on record all the same; start it again,"
            " and fill it with memory.rebuild()."
        )


class MayNotDecide(MemoryFault):
    """The actor may not decide about a memory; nothing was written."""

    def __init__(self, memory: str, actor: str, why: str) -> None:
        self.memory, self.actor, self.why = memory, actor, why
        super().__init__(
            f"{actor} may not decide about memory {memory}: {why}. Nothing was written; let another"
            " person do it, with --as or actor=."
        )
