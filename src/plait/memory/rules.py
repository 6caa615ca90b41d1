"""Rules: they decide whether a proposed memory is active.

The rules are asked once, in order, and the first that has an opinion decides; its name is on
record. A resumed or replayed run takes the recorded decision. A detector can only be stricter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from plait.event.kinds import (
    Body,
    MemoryCommitted,
    MemoryKind,
    MemoryQuarantined,
    MemoryRejected,
    Scope,
)
from plait.memory.evidence import EvidencePiece
from plait.memory.instructions import instruction_in
from plait.memory.words import plain_text, sentences_of

Detector = Callable[[str], str | None]
"""Reads the text of a proposal; returns the reason why it must not be active, or None."""


class Proposal(NamedTuple):
    """A memory as the rules see it."""

    text: str
    kind: MemoryKind
    scope: Scope
    pieces: Sequence[EvidencePiece]
    is_person: bool  # a person writes it, and not code of a run
    origin: str  # of the writer: human, model, program, or a source outside
    was_retracted: bool = False  # the same words were taken back before
    echo: str = ""  # the memory whose words it repeats, and which was recalled before; "": none


class Ruling(NamedTuple):
    """The decision of a rule."""

    state: Literal["active", "quarantined", "rejected"]
    rule: str
    reason: str = ""

    def body(self) -> Body:
        """Return the decision as it is recorded."""
        kinds = {
            "active": MemoryCommitted,
            "quarantined": MemoryQuarantined,
            "rejected": MemoryRejected,
        }
        return kinds[self.state](self.rule, self.reason)


def decide(proposal: Proposal, detectors: Sequence[Detector] = ()) -> Ruling:
    """Ask the rules, in order."""
    if proposal.is_person:
        return Ruling("active", "person")
    if proposal.echo:
        return Ruling("rejected", "echo", f"it repeats {proposal.echo[:8]}, which was recalled")
    quoted = [piece for piece in proposal.pieces if is_quoted(proposal.text, piece)]
    is_own = proposal.scope in ("session", "user")  # what one person says binds no others
    if is_own and any(piece.sort == "word" for piece in quoted):
        return Ruling("active", "person", "a person said it in these words")
    if (sign := instruction_in(proposal.text)) is not None:
        return Ruling("quarantined", "instruction", f"it reads like an instruction: {sign}")
    if (ruling := detected_ruling(proposal.text, detectors)) is not None:
        return ruling
    if proposal.was_retracted:
        return Ruling("quarantined", "retracted", "the same words were taken back before")
    return _decide_by_evidence(proposal, is_quote=bool(quoted))


def detected_ruling(text: str, detectors: Sequence[Detector]) -> Ruling | None:
    """Return the decision of the first detector that objects to a text; None if none does."""
    for detector in detectors:
        if (why := _detected(detector, text)) is not None:
            return Ruling("quarantined", f"detector {_name_of(detector)}", why)
    return None


def _decide_by_evidence(proposal: Proposal, *, is_quote: bool) -> Ruling:
    sorts = {piece.sort for piece in proposal.pieces}
    if "verdict" in sorts:
        return Ruling("active", "verdict")
    if proposal.kind == "reflection":
        return Ruling("quarantined", "reflection", "a conclusion needs a check or a second run")
    is_own = sorts <= {"result", "failure"} and bool(sorts)
    # the words of a model about a result are not the result
    says_result = proposal.origin != "model" or is_quote
    if proposal.scope == "session" and is_own and says_result and proposal.origin in _OWN:
        return Ruling("active", "own tool")
    if "document" in sorts or proposal.origin not in (*_OWN, "human"):
        return Ruling("quarantined", "origin", "its text comes from outside")
    if proposal.origin == "model" or "model" in sorts:
        return Ruling("quarantined", "model", "a model wrote it")
    return Ruling("quarantined", "unconfirmed", "no check, person or second run confirms it")


_OWN = ("program", "tool", "model")


def is_quoted(text: str, piece: EvidencePiece) -> bool:
    """True if a text stands in a piece of evidence as one or more whole sentences.

    A part of a sentence may say the opposite ("it is not true that …"); a question says nothing.
    """
    if plain_text(text) == plain_text(piece.text):
        return True  # all of it
    wanted, said = sentences_of(text), sentences_of(piece.text)
    if not wanted or any(sentence.endswith("?") for sentence in wanted):
        return False
    count = len(wanted)
    return any(said[at : at + count] == wanted for at in range(len(said) - count + 1))


def _detected(detector: Detector, text: str) -> str | None:
    try:
        why = detector(text)
    except Exception as error:  # a detector that fails has not said that the text is harmless
        return f"the detector failed: {type(error).__name__}: {error}"[:200]
    return str(why)[:200] if why else None


def _name_of(detector: Detector) -> str:
    return str(getattr(detector, "__name__", type(detector).__name__))[:60]
