"""The conversation as one agent sees it, grown event by event.

A prompt is a chain: a setup (instruction, tools, view, parameters), then turns in the order of the
path. A turn that was rendered is never rendered otherwise: it depends on its own events alone, so
the bytes before it stay the same as the session grows and in every fork, and providers' prompt
caches hit. The digest of a prompt is that of the prompt before it and the turns since.

An agent sees its own replies as its own, with their reasoning verbatim. The words of all others are
data, with the name of the speaker. Results are bounded here and whole in the log.

Everything here follows from the log: a model has been shown the turns that stood before its
`ModelAsked`, so that a prompt built anew at any place is, byte for byte, the one that was sent from
there. A compaction takes turns away and puts a summary in their place; knowledge (facts, decisions,
findings, open work, verdicts) never leaves with them.

`setup.py` has the words an agent asks with, `turns.py` the turns made from events, `marks.py` the
events that turns come from, `parts.py` their wording, `chain.py` digests and sizes, `prompt.py` the
prompt itself.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plait.errors import InvalidValue


# It stands in the package itself: a tool that mentions `View` has its module in its fingerprint.
class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a session that an agent sees. Default: `View.whole()`."""

    what: Literal["whole", "last", "branch", "calls", "facts", "compacted"] = "whole"
    turns: int = 0
    names: tuple[str, ...] = ()

    @classmethod
    def whole(cls) -> View:
        """The whole path."""
        return cls()

    @classmethod
    def last(cls, turns: int) -> View:
        """The last so many turns; a call and its results are kept together."""
        if turns < 1:
            raise InvalidValue("turns", f"{turns} turns show nothing", "pass a number from 1")
        return cls("last", turns)

    @classmethod
    def branch(cls) -> View:
        """The events of this branch, since it was forked."""
        return cls("branch")

    @classmethod
    def calls(cls, *names: str) -> View:
        """The words of these agents and workflows, by name or path, and of people."""
        return cls("calls", names=names)

    @classmethod
    def facts(cls) -> View:
        """Facts, decisions, findings, open work, verdicts and summaries, and the last message."""
        return cls("facts")

    @classmethod
    def compacted(cls) -> View:
        """The path from the last compaction on, with its summary."""
        return cls("compacted")

    @classmethod
    def of(cls, given: View | str | int | None) -> View:
        """Return the view for a view, its name, or a number of turns."""
        if given is None:
            return cls()
        if isinstance(given, View):
            return given
        if isinstance(given, int):
            return cls.last(given)
        if given in ("whole", "branch", "facts", "compacted"):
            return cls(given)
        step = "use View.whole(), last(n), branch(), calls(…), facts() or compacted()"
        raise InvalidValue("view", f"{given!r} is not a view", step)
