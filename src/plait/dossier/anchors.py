"""The anchors of steps: every claim of a page links to the step that it rests on."""

from __future__ import annotations

from bisect import bisect_right

from plait.dossier.markup import text
from plait.dossier.shapes import Dossier, LeanStep
from plait.ids import LogId, short
from plait.outline.shapes import SeqRef

NAME_MAX = 24


class Anchors:
    """The names of all steps of a dossier."""

    def __init__(self, dossier: Dossier) -> None:
        branches = dossier.family.branches if dossier.family is not None else ()
        self._numbers = {branch.log: at for at, branch in enumerate(branches)}
        self._names = {branch.log: branch.name for branch in branches}
        self._firsts = dict[LogId, list[int]]()
        self._owners = dict[tuple[LogId, int], int]()
        for detail in dossier.steps:
            step = detail.step
            self._firsts.setdefault(step.log, []).append(step.first)
            for seq in step.events:
                self._owners[step.log, seq] = step.first
        for firsts in self._firsts.values():
            firsts.sort()

    def of_step(self, step: LeanStep) -> str:
        return f"s{self._numbers[step.log]}-{step.first}"

    def of_place(self, at: SeqRef) -> str:
        """Return the anchor of the step that holds an event; of an event around steps, that of the
        step before it. "": it is not in this dossier.
        """
        firsts = self._firsts.get(at.log)
        if not firsts:
            return ""
        first = self._owners.get((at.log, at.seq))
        if first is None:
            first = firsts[max(0, bisect_right(firsts, at.seq) - 1)]
        return f"s{self._numbers[at.log]}-{first}"

    def link(self, at: SeqRef | None, words: str = "") -> str:
        """Return a link to the step of a place, called by its branch and its event."""
        if at is None:
            return ""
        name = words or self.label(at)
        anchor = self.of_place(at)
        if not anchor:
            return f'<span class="r">{text(name)}</span>'
        return f'<a class="r" href="#{anchor}">{text(name)}</a>'

    def label(self, at: SeqRef) -> str:
        name = self._names.get(at.log) or short(at.log)
        if len(self._names) == 1 and at.log in self._names:
            return f"event {at.seq}"
        return f"{name if len(name) <= NAME_MAX else short(at.log)}@{at.seq}"

    def name(self, log: LogId) -> str:
        return self._names.get(log) or short(log)
