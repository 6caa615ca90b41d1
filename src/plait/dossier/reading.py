"""The family of a session, read once: every step in full, and the steps that hold an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeVar

from plait.dossier.shapes import EvidenceLine
from plait.errors import PlaitError
from plait.event import Event
from plait.ids import Digest, LogId
from plait.outline.details import step_details
from plait.outline.family import family_shape
from plait.outline.shapes import FamilyShape, SeqRef, StepDetail
from plait.server.desk import ServerDesk
from plait.server.feed import Feed
from plait.session import Session
from plait.session.event_text import event_text
from plait.session.ports import store_at
from plait.session.state import Known
from plait.session.value import core_of

T = TypeVar("T")


class FamilyReading:
    """A session, its family, and their steps. Parts that cannot be read are noted in `missing`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.store = store_at(session.store)
        self.desk = ServerDesk(self.store, "", Feed(self.store), None, read_only=True)
        self.missing = list[str]()
        self.family: FamilyShape | None = self.part(
            "the branches", lambda: family_shape(self.desk.outlines, session.id), None
        )
        self._indexes = dict[tuple[LogId, int], int]()  # of a step, by its log and its own index
        self.details: list[StepDetail] = self.part("the steps", lambda: list(self._read()), [])
        self.by_log = dict[LogId, list[StepDetail]]()
        for at, detail in enumerate(self.details):
            self._indexes[detail.step.log, detail.step.index] = at
            self.by_log.setdefault(detail.step.log, []).append(detail)

    def part(self, name: str, read: Callable[[], T], otherwise: T) -> T:
        """Read a part. If the store refuses, note it, and go on without."""
        try:
            return read()
        except PlaitError as error:
            self.missing.append(f"{name}: {error.record_text}")
            return otherwise

    def _read(self) -> Iterator[StepDetail]:
        """Yield the steps in the order in which a picture shows them."""
        assert self.family is not None or not self.missing
        if self.family is None:
            return
        found = {
            branch.log: step_details(self.desk.outlines, branch.log, range(branch.step_count))
            for branch in self.family.branches
        }
        for stretch in self.family.stretches:
            steps = found[self.family.branches[stretch.branch].log]
            yield from steps[stretch.first_step : stretch.first_step + stretch.step_count]

    @cached_property
    def known(self) -> Known:
        """The events that belong to the story of the session."""
        path = self.part("the story", lambda: core_of(self.session).state.story.path, ())
        return Known(path)

    def is_in_story(self, detail: StepDetail) -> bool:
        return self.known.has(detail.step.log, detail.step.seq)

    @cached_property
    def what_ifs(self) -> tuple[LogId, ...]:
        """The branches of what-ifs, and those forked from them, that are no part of the session:
        they try something else, and were never to be merged.
        """
        lineage = {span.log for span in self.store.lineage(self.session.id)}
        found = dict[LogId, None]()
        for branch in self.family.branches if self.family is not None else ():
            if branch.log in lineage or branch.merged_into:
                continue
            from_one = branch.parent is not None and branch.parent.log in found
            if from_one or any(map(_is_branched_run, self.by_log.get(branch.log, ()))):
                found[branch.log] = None
        return tuple(found)

    def index_at(self, log: LogId, seq: int) -> int | None:
        """Return the number of the step that holds an event, among all steps. None: none does."""
        try:
            index = self.desk.outlines.record(log).step_of(seq)
        except PlaitError:
            return None
        return self._indexes.get((log, index))

    def next_step(self, at: int) -> StepDetail | None:
        """Return the step after this one, in the same log and at the same path, else in the same
        log. None: none follows.
        """
        step = self.details[at].step
        later = [
            each
            for each in self.details[at + 1 : at + 200]
            if each.step.log == step.log and each.step.first > step.seq
        ]
        at_path = [each for each in later[:20] if each.step.path == step.path]
        return next(iter(at_path), next(iter(later), None))

    def evidence(self, events: tuple[Digest, ...]) -> tuple[EvidenceLine, ...]:
        return tuple([self._evidence_line(event) for event in events])

    def _evidence_line(self, id: Digest) -> EvidenceLine:
        try:
            event: Event = self.store.event(id)
            at = self.index_at(event.log, event.seq)
            is_call = at is not None and self.details[at].step.type == "tool"
            says = call_line(self.details[at]) if at is not None and is_call else event_text(event)
            return EvidenceLine(id, event.log, event.seq, says[:300])
        except PlaitError:
            return EvidenceLine(id, None, 0, "(the store does not have it)")


def _is_branched_run(detail: StepDetail) -> bool:
    return detail.step.type == "run" and "source" in detail.fields


def call_line(detail: StepDetail) -> str:
    """Return a call in one line: the tool, its object, and how it ended."""
    step = detail.step
    end = f"exit code {step.exit_code}" if step.exit_code is not None else ""
    said = ", ".join(filter(None, [end, step.says]))
    what = " ".join(filter(None, [step.verb, step.subject]))
    return f"{what}: {said}" if said else what


def ref_of(detail: StepDetail) -> SeqRef:
    """Return the place of a step: that of its first event, by which its anchor is called."""
    return SeqRef(detail.step.log, detail.step.first)


def parts_text(detail: StepDetail) -> str:
    """Return the words of a step: the texts of its parts, without its reasoning."""
    texts = [part.text for part in detail.parts if part.type in ("text", "data")]
    return "\n".join([text for text in texts if text])
