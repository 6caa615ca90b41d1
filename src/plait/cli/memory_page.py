"""`plait memory show`: all about one memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from plait.cli.common import Options, listing, names_of
from plait.cli.documents import print_json, print_jsonl
from plait.cli.memory_documents import (
    MemoryDetails,
    details_document,
    details_of,
    marks_of,
)
from plait.cli.memory_reading import now_of, viewer_in
from plait.cli.memory_text import (
    WAITING,
    check_name,
    deciding_steps,
    line_text,
    owner_text,
    print_whole_text,
)
from plait.cli.render import ACCENT, DIM, STRONG, Cell, Column, Out, count_text
from plait.cli.terminal import when
from plait.event import Event
from plait.ids import Digest, Micros
from plait.session.event_text import event_text
from plait.store import Store

if TYPE_CHECKING:
    from plait.memory.items import MemoryItem

NAMED = 20  # memories that are named in one line


@click.command("show")
@click.argument("memory", metavar="M")
@listing
def memory_show(given: Options, memory: str) -> None:
    """Show all about one memory: its text, state, evidence, decisions and recalls."""
    from plait.memory.items import find_row, item_of

    viewer = viewer_in(given, None)
    store = viewer.store
    check_name(given, memory)
    row = find_row(store, memory, viewer)
    details = details_of(store, item_of(store, row, viewer), row)
    if given.form == "text":
        _MemoryPrinter(given, store, details).print()
    else:
        document = details_document(details, now_of(store))
        print_json(document) if given.form == "json" else print_jsonl([document])


class _MemoryPrinter:
    """One memory for people."""

    def __init__(self, given: Options, store: Store, details: MemoryDetails) -> None:
        self.given, self.store, self.details = given, store, details
        self.out = Out()
        logs = [
            details.item.log,
            *(piece.event.log for piece in details.evidence),
            *(each.event.log for each in details.decisions),
            *(each.event.log for each in details.supports),
        ]
        logs += [event.log for event in details.recalls[-1:]]
        self._names = names_of(store, logs)

    def print(self) -> None:
        item = self.details.item
        print_whole_text(self.out, item.text)
        self._print_fields()
        self._print_evidence()
        self._print_decisions()
        self._print_supports()
        self._print_dependents()
        if item.state in WAITING:
            self.out.hint("", *deciding_steps(self.given, item))

    def _print_fields(self) -> None:
        item, out = self.details.item, self.out
        valid = " ".join(
            f"{word} {when(time)} UTC"
            for word, time in (("from", item.valid_from), ("until", item.valid_until))
            if time is not None
        )
        rows = [
            ("memory", item.id, ACCENT),
            ("state", self._state_text(), STRONG if item.state in WAITING else ""),
            ("scope", owner_text(item), ""),
            ("kind", item.kind, ""),
            ("trust", item.trust, ""),
            ("written", f"{out.time(item.time)} by {item.actor} in {self._place(item)}", ""),
            ("key", item.key, ""),
            ("speaker", item.speaker, ""),
            ("source", item.source, ""),
            ("importance", str(item.importance or ""), ""),
            ("valid", valid, ""),
            ("expires", _time_text(item.expires, out.now), ""),
            ("review by", _time_text(item.review_by, out.now), ""),
            ("supersedes", _ids_text(self.details.supersedes), ""),
            ("superseded by", _ids_text(item.standing.superseded_by), ""),
            ("recalled", self._recalls_text(), ""),
        ]
        shown = ([Cell(name, DIM), Cell(text, style)] for name, text, style in rows if text)
        out.table([Column(), Column(flex=True)], shown, indent="  ")

    def _state_text(self) -> str:
        item = self.details.item
        text = ", ".join([item.state, *marks_of(item, self.out.now)])
        by = item.standing.by
        if by is None:
            return f"{text}: no decision was made"
        return f"{text}, by {f'rule {by.rule}' if by.rule else by.actor}"

    def _recalls_text(self) -> str:
        recalls = self.details.recalls
        if not recalls:
            return "never"
        last = recalls[-1]
        count = count_text(len(recalls), "time")
        return f"{count}, last {self.out.time(last.time)} in {self._place(last)}"

    def _print_evidence(self) -> None:
        pieces = self.details.evidence
        if not pieces:
            return
        self.out.heading("Evidence")
        rows = (
            [
                Cell(piece.sort),
                Cell(piece.trust, DIM),
                Cell(line_text(piece.text or event_text(piece.event))),
                Cell(self._place(piece.event), ACCENT),
            ]
            for piece in pieces
        )
        self.out.table([Column(), Column(), Column(flex=True), Column()], rows, indent="  ")

    def _print_decisions(self) -> None:
        if not self.details.decisions:
            return
        self.out.heading("Decisions")
        rows = (
            [
                Cell(self._decision_text(decision.other, event_text(event))),
                Cell(self._place(event), ACCENT),
                Cell(event.actor, DIM),
                Cell(self.out.time(event.time), DIM),
            ]
            for decision, event in self.details.decisions
        )
        columns = [Column(flex=True), Column(), Column(aside=True), Column(aside=True)]
        self.out.table(columns, rows, indent="  ")

    @staticmethod
    def _decision_text(other: str, text: str) -> str:
        return f"{text} ({other[:8]})" if other else text

    def _print_supports(self) -> None:
        supports = self.details.supports
        if not supports:
            return
        self.out.heading("Said again", f"{count_text(len(supports), 'time')}, from elsewhere")
        rows = (
            [
                Cell(", ".join(piece.sort for piece in each.evidence) or "no evidence"),
                Cell(self._place(each.event), ACCENT),
                Cell(each.event.actor, DIM),
                Cell(self.out.time(each.event.time), DIM),
            ]
            for each in supports
        )
        self.out.table([Column(), Column(), Column(), Column(aside=True)], rows, indent="  ")

    def _print_dependents(self) -> None:
        dependents = self.details.dependents
        if dependents:
            count = f"{len(dependents):,} memor{'y' if len(dependents) == 1 else 'ies'}"
            self.out.heading("Rests on it", count)
            self.out.line("  ", _ids_text(dependents))

    def _place(self, at: Event | MemoryItem) -> str:
        return f"{self._names[at.log]}@{at.seq}"


def _ids_text(ids: Sequence[Digest]) -> str:
    more = f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    return " ".join(id[:8] for id in ids[:NAMED]) + more


def _time_text(time: Micros | None, now: Micros) -> str:
    if time is None:
        return ""
    return f"{when(time)} UTC{' (it is past)' if time <= now else ''}"
