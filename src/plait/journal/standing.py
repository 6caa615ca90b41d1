"""The four answers that the journal gives to one question: recorded, or live?"""

from __future__ import annotations

from enum import Enum


class Standing(Enum):
    """The standing of the next step of a run, or of one of its events."""

    LIVE = "live"  # nothing more is recorded: the run acts, and writes
    RECORDED = "recorded"
    INHERITED = "inherited"  # recorded by the run that this one was branched off
    OVER = "over"  # nothing more is recorded, and nothing may be done: a replay, or a merged branch
