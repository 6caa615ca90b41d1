"""Two sessions side by side: their steps after the last place that both have, files, facts,
verdicts and costs.

Steps of the same tool, or of the same sort, that come in the same order stand in one row. The
number of steps that are compared is limited, so that the answer does not depend on how long the
sessions are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from plait.event import Json
from plait.event.kinds import ToolRequested
from plait.ids import LogId
from plait.outline.files import files_diff
from plait.outline.outlines import Outlines
from plait.outline.shapes import (
    AlignedStep,
    ComparisonShape,
    SeqRef,
    StepDetail,
    StepShape,
    ValueSides,
)
from plait.outline.spent import spent_shape
from plait.outline.steps import step_shapes
from plait.outline.texts import body_of
from plait.outline.track import last_message_seq, standing_verdicts
from plait.session import Session
from plait.session.state import State
from plait.session.value import core_of
from plait.store import Store

STEPS_MAX = 500  # of each side
_ALIKE = ("subject", "says", "state", "files", "exit_code")


KnownSteps = Mapping[tuple[LogId, int], StepDetail]  # by log and index


def comparison_shape(
    outlines: Outlines, left: Session, right: Session, known: KnownSteps | None = None
) -> ComparisonShape:
    """Compare two sessions of one store, each at its place.

    `known` has steps that were read before: those in it are not read again.
    """
    known = known or {}
    store = outlines.store
    base = common_place(store, left, right)
    after = base.seq if base is not None else 0
    mine, theirs = (_steps_after(outlines, each, after, known) for each in (left, right))
    common = sum([len(indexes) for _, indexes in _own_steps(outlines, left, 0, after)])
    states = core_of(left).state, core_of(right).state
    facts = [_facts(state) for state in states]
    verdicts = [standing_verdicts(store, state) for state in states]
    trees = [state.story.tree.digest if state.story.tree else None for state in states]
    return ComparisonShape(
        left=SeqRef(left.id, left.seq),
        right=SeqRef(right.id, right.seq),
        base=base,
        common_steps=common,
        rows=tuple(_Alignment(outlines, known).rows(mine[:STEPS_MAX], theirs[:STEPS_MAX])),
        is_cut=max(len(mine), len(theirs)) > STEPS_MAX,
        files=files_diff(store, trees[0], trees[1]),
        facts=_differences(*facts),
        verdicts=_differences(*verdicts),
        left_spent=spent_shape(states[0].spent),
        right_spent=spent_shape(states[1].spent),
        left_text=_last_text(left, states[0]),
        right_text=_last_text(right, states[1]),
    )


def common_place(store: Store, left: Session, right: Session) -> SeqRef | None:
    """Return the last place that the lineages of two sessions share. None: they share none."""
    found: SeqRef | None = None
    for mine, theirs in zip(store.lineage(left.id), store.lineage(right.id), strict=False):
        if mine.log != theirs.log:
            break
        last = min(mine.last, theirs.last, left.seq, right.seq)
        if last < mine.first:
            break
        found = SeqRef(mine.log, last)
        if mine.last != theirs.last:
            break
    return found


def _own_steps(
    outlines: Outlines, session: Session, after: int, upto: int
) -> Iterator[tuple[LogId, list[int]]]:
    """Yield the logs of a lineage, each with the indexes of its steps that begin between two
    places.
    """
    for span in outlines.store.lineage(session.id):
        first, last = max(span.first, after + 1), min(span.last, upto)
        if first <= last:
            firsts = outlines.record(span.log).firsts
            yield span.log, [at for at, seq in enumerate(firsts) if first <= seq <= last]


def _steps_after(
    outlines: Outlines, session: Session, after: int, known: KnownSteps
) -> list[StepShape]:
    """Return the steps of a session after a place, one more than are compared at most."""
    found = list[StepShape]()
    for log, indexes in _own_steps(outlines, session, after, session.seq):
        wanted = indexes[: STEPS_MAX + 1 - len(found)]
        if all((log, index) in known for index in wanted):
            found += [known[log, index].step for index in wanted]
        else:
            found += step_shapes(outlines, outlines.record(log), wanted)
    return found


class _Alignment:
    """Puts steps of two sessions side by side."""

    def __init__(self, outlines: Outlines, known: KnownSteps) -> None:
        self._outlines, self._known = outlines, known

    def rows(self, left: Sequence[StepShape], right: Sequence[StepShape]) -> Iterator[AlignedStep]:
        """Yield the same call on both sides, or a step of one side."""
        matcher = SequenceMatcher(None, [*map(_key, left)], [*map(_key, right)], autojunk=False)
        for tag, first, last, start, stop in matcher.get_opcodes():
            if tag == "equal":
                for mine, theirs in zip(left[first:last], right[start:stop], strict=True):
                    yield AlignedStep(mine, theirs, self._is_same(mine, theirs))
            else:
                yield from [AlignedStep(step, None, False) for step in left[first:last]]
                yield from [AlignedStep(None, step, False) for step in right[start:stop]]

    def _is_same(self, left: StepShape, right: StepShape) -> bool:
        """True if two steps say the same, and two calls have the same arguments."""
        if any(getattr(left, name) != getattr(right, name) for name in _ALIKE):
            return False
        return left.type != "tool" or self._arguments(left) == self._arguments(right)

    def _arguments(self, step: StepShape) -> Json:
        """Return the arguments that a call was made with."""
        if (detail := self._known.get((step.log, step.index))) is not None and detail.effect:
            return detail.arguments
        events = self._outlines.store.read(
            step.log, step.first, step.seq, kinds={ToolRequested.__name__}, reverse=True
        )
        for event in events:
            body = body_of(event) if event.seq in step.events else None
            if isinstance(body, ToolRequested):
                return body.arguments
        return None


def _key(step: StepShape) -> tuple[str, str]:
    return step.type, step.verb


def _facts(state: State) -> dict[str, Any]:
    """Return the values of facts by key."""
    facts = state.story.facts.items()
    return {key: fact.value for key, fact in facts if fact.json is not None}


def _differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, ValueSides]:
    """Return the keys on which two sides differ. None: a side has none."""
    keys = dict.fromkeys((*left, *right))
    return {
        key: ValueSides(left.get(key), right.get(key))
        for key in keys
        if (key in left, left.get(key)) != (key in right, right.get(key))
    }


def _last_text(session: Session, state: State) -> str:
    seq = last_message_seq(core_of(session).store, state)
    return session.at(seq).text if seq else ""
