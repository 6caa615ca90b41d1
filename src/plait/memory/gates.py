"""Gates: the rules that decide whether a proposed memory is active.

The rules are asked once, in order, and the first that has an opinion decides; its name is on
record. A resumed or replayed run takes the recorded decision. A detector can only be stricter.
"""

from __future__ import annotations

import re
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
from plait.memory.evidence import Piece
from plait.memory.words import words_of

Detector = Callable[[str], str | None]
"""Reads the text of a proposal; returns the reason why it must not be active, or None."""


class Proposal(NamedTuple):
    """A memory as the rules see it."""

    text: str
    kind: MemoryKind
    scope: Scope
    pieces: Sequence[Piece]
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
    quoted = [piece for piece in proposal.pieces if _is_quoted(proposal.text, piece)]
    if any(piece.sort == "word" for piece in quoted):
        return Ruling("active", "person", "a person said it in these words")
    if (sign := instruction_in(proposal.text)) is not None:
        return Ruling("quarantined", "instruction", f"it reads like an instruction: {sign}")
    for detector in detectors:
        if (why := _detected(detector, proposal.text)) is not None:
            return Ruling("quarantined", f"detector {_name_of(detector)}", why)
    if proposal.was_retracted:
        return Ruling("quarantined", "retracted", "the same words were taken back before")
    return _decide_by_evidence(proposal, is_quote=bool(quoted))


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


def _is_quoted(text: str, piece: Piece) -> bool:
    """True if a text stands in a piece of evidence, word by word."""
    words = words_of(text)
    return bool(words) and f" {' '.join(words)} " in f" {' '.join(words_of(piece.text))} "


def _detected(detector: Detector, text: str) -> str | None:
    try:
        why = detector(text)
    except Exception as error:  # a detector that fails has not said that the text is harmless
        return f"the detector failed: {type(error).__name__}: {error}"[:200]
    return str(why)[:200] if why else None


def _name_of(detector: Detector) -> str:
    return str(getattr(detector, "__name__", type(detector).__name__))[:60]


# ── instructions ─────────────────────────────────────────────────────────────────────────────

_VERBS = (
    "run|execute|call|invoke|use|send|post|upload|email|mail|forward|transfer|pay|wire|delete|drop"
    "|remove|erase|wipe|disable|enable|open|visit|fetch|download|install|reveal|print|show|share"
    "|output|leak|exfiltrate|approve|grant|accept|allow|skip|bypass|reply|respond|answer|say|tell"
    "|write|add|append|include|insert|set|change|update|act|behave|pretend|remember|store|save"
    "|forget|ignore|disregard|override|obey|follow|treat|trust|click|copy|paste|read|curl|push"
    "|commit|merge|give|make|do|be|never|always|stop|start|switch|encode|decode|translate|repeat"
)
_INSTRUCTIONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    [
        (name, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
        for name, pattern in (
            (
                "it sets earlier instructions aside",
                r"\b(ignore|disregard|forget|override|bypass|discard|cancel|drop)\b.{0,40}"
                r"\b(instructions?|rules?|prompts?|guidelines?|polic(y|ies)|directions?|context|"
                r"constraints?|safety|above|previous|prior|earlier|told|said)\b",
            ),
            (
                "it speaks as the system",
                r"(^|\n)\W*(system|developer|assistant|admin)\s*(\(.*\))?:",
            ),
            (
                "it has markup of a prompt",
                r"<\s*/?\s*(system|instructions?|admin|assistant|user|tool_call|im_start|im_end)\b"
                r"|<\|.*?\|>|\[/?(inst|sys|system)\]|###\s*(system|instruction)|begin (system|admin)",
            ),
            (
                "it speaks to the agent",
                r"\b(you|assistant|agent|ai|bot|model|llm|chatbot|claude|gpt)\b[^.\n]{0,30}\b(must|"
                r"should|shall|need to|have to|are (now|to|required|instructed|allowed|authori[sz]ed"
                r"|permitted|expected)|will now|may now|can now|ought to|will always|will never)\b",
            ),
            (
                "it gives an order for later",
                r"\b(from now on|henceforth|going forward|in (the )?future|next time|"
                r"(whenever|when|if|every time|each time|any ?time|as soon as|before|after)"
                r"\b[^.\n]{0,80}[,:]?\s*(then\s+)?(you\s+)?(please\s+)?(always\s+|never\s+|just\s+)?"
                rf"\b({_VERBS})\b)",
            ),
            (
                "it orders always or never",
                rf"\b(always|never|do not|don't|please|kindly|make sure to|be sure to|remember to|"
                rf"it is (important|critical|essential|mandatory|necessary)( that you| to)?|"
                rf"important:|urgent:|note to (the )?(ai|agent|assistant|model|self))\s+"
                rf"(always |never |not )?({_VERBS})\b",
            ),
            (
                "it begins with an order",
                rf"(^|[.!?:;]\s+|\n\W*)(then |now |first |next |please )?"
                rf"({_VERBS})\s+(the|this|that|these|all|any|every|each|it|its|him|her|them|me|us|your|"
                rf"our|my|a|an|to|no|with|as|out|up|off|on|every\w*|any\w*|only|https?://|[`'\"$/~-])",
            ),
            (
                "it asks for secrets",
                r"\b(reveal|print|show|send|output|leak|share|dump|give|tell)\b.{0,40}\b(passwords?|"
                r"secrets?|tokens?|keys?|credentials?|system prompt|instructions?|env(ironment)?)\b",
            ),
            (
                "it claims an authority",
                r"\b(new|updated|real|actual|true|official|secret|hidden|emergency) "
                r"(instructions?|polic(y|ies)|rules?|orders?|directives?|protocol|task|goal)\b"
                r"|\b(developer|debug|admin|god|jailbreak|sudo|root|maintenance|dan) mode\b"
                r"|\bpre-?approved\b|\b(no|without) (confirmation|approval|asking|permission)\b"
                r"|\b(approval|confirmation|permission) is (not|no longer) (needed|required)\b",
            ),
            (
                "it has a command in it",
                r"\b(curl|wget)\s+(-\w+\s+)*\S*https?://|\brm\s+-rf\b|\bsudo\s+\w+|;\s*drop\s+table"
                r"|\beval\(|\bexec\(|\bos\.system\(|\|\s*(ba)?sh\b|\bbase64\s+(-d|--decode)",
            ),
            (
                "it hides characters",
                "[\u200b-\u200f\u202a-\u202e\u2060-\u2064\U000e0000-\U000e007f]",
            ),
        )
    ]
)


def instruction_in(text: str) -> str | None:
    """Return the sign by which a text reads like an instruction. None: it does not."""
    return next((name for name, sign in _INSTRUCTIONS if sign.search(text)), None)
