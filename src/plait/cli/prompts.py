"""`plait show S@k --prompt`: the exact prompt of a model, rebuilt from the log and checked against
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from plait.cli.common import Options
from plait.cli.documents import print_json, print_jsonl
from plait.cli.exits import UNVERIFIED
from plait.cli.render import ACCENT, BAD, DIM, STRONG, Cell, Column, Out, as_json, count_text
from plait.event.kinds import Reasoning
from plait.ids import short
from plait.model.base import Answered, Returned, Said, Turn
from plait.session import Session
from plait.session.content import text_of
from plait.session.safe_text import clean

if TYPE_CHECKING:
    from plait.runtime.prompt.marks import LeftOut
    from plait.runtime.sent import Sent

DIFFERS = (
    "What is rebuilt is not what was sent: something that was shown then is gone or changed. Look"
    " with: plait verify"
)


def show_prompt(given: Options, session: Session, *, why: bool) -> int:
    """Print the prompt, and return the exit code."""
    from plait.runtime.sent import rebuild_prompt  # heavy: most commands do without

    found = rebuild_prompt(session)
    if given.form == "json":
        print_json(prompt_document(found, why=why))
    elif given.form == "jsonl":
        print_jsonl([prompt_document(found, why=why)])
    else:
        _PromptPage(found).print(why=why)
    return 0 if found.matches else UNVERIFIED


def prompt_document(found: Sent, *, why: bool) -> dict[str, Any]:
    event, setup = found.event, msgspec.to_builtins(found.setup)
    document = {
        "session": event.log,
        "place": event.seq,
        "event": event.id,
        "agent": event.actor,
        "model": found.model,
        "as_sent": found.matches,
        "digest": found.digest,
        "recorded": found.recorded,
        "instruction": setup["instruction"],
        "tools": setup["tools"],
        "parameters": found.parameters,
        "output": setup.get("output"),
        "view": setup.get("view", {}),
        "turns": [msgspec.to_builtins(turn) for turn in found.turns],
    }
    if why:
        document["left_out"] = [
            {"session": each.log, "place": each.seq, "kind": each.kind, "why": each.why}
            for each in found.left_out
        ]
    return document


class _PromptPage:
    """One prompt for people. Nothing is cut: it has to be the exact prompt."""

    def __init__(self, found: Sent) -> None:
        self.found, self.out = found, Out()

    def print(self, *, why: bool) -> None:
        found, out, event = self.found, self.out, self.found.event
        out.line(
            Cell(f"{short(event.log)}@{event.seq}", ACCENT), f"  {event.actor} asks {found.model}"
        )
        if found.matches:
            out.line(Cell(f"as sent: digest matches  {found.digest}", DIM))
        else:
            out.line(Cell(f"NOT as sent: digest {found.digest}, recorded {found.recorded}", BAD))
            out.line(Cell(DIFFERS, BAD))
        self._section("Instruction", found.setup.instruction)
        if found.setup.tools:
            out.heading("Tools")
            for spec in found.setup.tools:
                out.line("  ", Cell(spec.name, STRONG), "  ", spec.description)
                out.line("    ", Cell(as_json(spec.schema), DIM))
        if found.parameters:
            self._section("Parameters", as_json(found.parameters))
        if found.setup.output is not None:
            self._section("Output", as_json(found.setup.output))
        out.heading("Turns")
        for number, turn in enumerate(found.turns, 1):
            self._turn(number, turn)
        if why:
            self._left_out(found.left_out)

    def _section(self, title: str, text: str) -> None:
        self.out.heading(title)
        self._text(text, "  ")

    def _text(self, text: str, margin: str) -> None:
        for line in clean(text, lines=True).split("\n"):
            self.out.line(margin, line)

    def _turn(self, number: int, turn: Turn) -> None:
        self.out.line("  ", Cell(f"{number}", ACCENT), "  ", Cell(_SPEAKS[type(turn)], STRONG))
        if isinstance(turn, Returned):
            for result in turn.results:
                self.out.line(
                    "    ", Cell(f"{result.tool} {'failed' if result.failed else 'returned'}", DIM)
                )
                self._text(text_of(result.parts), "      ")
            return
        for part in turn.parts:
            if isinstance(part, Reasoning):
                self._text(f"(thought) {part.text}", "    ")
            else:
                self._text(text_of((part,)), "    ")
        for call in turn.calls if isinstance(turn, Answered) else ():
            self.out.line("    ", Cell(f"calls {call.tool} ", DIM), as_json(call.arguments))

    def _left_out(self, left: Sequence[LeftOut]) -> None:
        self.out.heading("Left out", count_text(len(left), "event") if left else "nothing")
        log = self.found.event.log
        rows = (
            [
                Cell(f"@{each.seq}" if each.log == log else f"{short(each.log)}@{each.seq}"),
                Cell(each.kind),
                Cell(each.why),
            ]
            for each in left
        )
        self.out.table([Column(), Column(), Column(flex=True)], rows, indent="  ")


_SPEAKS: dict[type, str] = {Said: "user", Answered: "assistant", Returned: "results"}
