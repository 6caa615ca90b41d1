"""A trace: events, each under the one it belongs to, and the walk that collects them.

`why` and `influence` (provenance.py) decide which events are shown; here they are put in order,
worded and given their details.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from plait.errors import PlaitError
from plait.event import KINDS, Event, Json
from plait.event.kinds import (
    MemoryProposed,
    ModelAsked,
    Placement,
    PlacementChanged,
    Trees,
    ValidationRecorded,
)
from plait.ids import Digest, LogId, Micros, short
from plait.session.event_text import event_text, place_text
from plait.session.listing import session_row
from plait.session.ports import BINDINGS, notebook_html
from plait.store import Store

Prompted = Callable[[Event], Json]  # the prompt that a model was sent, by the event that asked it
MayShow = Callable[[Event], bool]  # True: the reader of a trace may see the event
_ASKED = ModelAsked.__name__
_MEMORY = MemoryProposed.__name__

# How a step relates to the one it is shown under: it decided it, it was only in the context of the
# decision, or it came before.
Relation = Literal["subject", "decision", "context", "order"]
_RELATIONS: dict[str, Relation] = {
    "is": "subject",
    "having seen": "context",
    "seen by": "context",
    "ran in": "context",
    "after": "order",
    "followed by": "order",
    "came by": "order",
    "carried into": "order",
    "merged into": "order",
}


class Step(msgspec.Struct, frozen=True):
    """One event of a trace, and its relation to the one it is shown under."""

    depth: int
    how: str
    log: LogId
    seq: int
    id: Digest
    kind: str
    branch: str
    actor: str
    time: Micros
    says: str
    relation: Relation = "decision"
    reason: str = ""  # as the event states it; "": none was stated
    placement: str = ""  # of an effect: where it ran; "": in the program itself
    files: tuple[str, ...] = ()  # of an effect: the paths that it changed
    prompt: Json = None  # of an ask: the prompt that was sent; None: it was not asked for


class Trace(msgspec.Struct, frozen=True):
    """The answer of `why` or `influence`: steps, each under the one it belongs to."""

    about: str
    steps: tuple[Step, ...]
    complete: bool = True  # False: there are more steps than the limit that was asked for

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def __str__(self) -> str:
        lines = [line for step in self.steps for line in _step_lines(step)]
        return "\n".join([self.about, *lines, *([] if self.complete else ["… and more"])])


def _step_lines(step: Step) -> Iterator[str]:
    margin = "  " * step.depth
    where = f", in {step.placement}" if step.placement else ""
    yield f"{margin}{step.how}: {step.says}  [{step.branch}@{step.seq}, {step.actor}{where}]"
    for line in prompt_lines(step.prompt):
        yield f"{margin}    | {line}"


def prompt_lines(prompt: Json) -> list[str]:
    """Write a prompt for people: the instruction, the names of the tools, and the turns."""
    if not isinstance(prompt, dict):
        return []
    tools: Any = prompt.get("tools") or ()
    turns: Any = prompt.get("turns") or ()
    lines = str(prompt.get("instruction", "")).splitlines()
    lines += [f"tools: {', '.join(tool['name'] for tool in tools)}"] if tools else []
    for turn in turns:
        lines += f"{turn['type']}: {turn['text']}".splitlines()
    return (
        lines
        if prompt.get("as_sent")
        else [*lines, "(this is not what was sent: see plait verify)"]
    )


class TraceWalk:
    """A breadth-first walk that shows every event once, as near to the first as it can be.

    An event that may not be shown is left out and not followed, and does not count.
    """

    def __init__(
        self,
        store: Store,
        about: str,
        limit: int,
        prompt: Prompted | None = None,
        may_show: MayShow | None = None,
    ) -> None:
        self._store, self._about, self._limit, self._prompt = store, about, limit, prompt
        self._may_show = may_show
        self._placements: dict[LogId, list[Event]] = {}
        self._branches: dict[LogId, str] = {}
        self._seen: set[Digest] = set()
        self._children: dict[Digest | None, list[tuple[str, Event]]] = {}
        self._queue: deque[Event] = deque()
        self.full = False

    def add(self, under: Event | None, how: str, event: Event, *, follow: bool = True) -> None:
        if event.id in self._seen or (self._may_show is not None and not self._may_show(event)):
            return
        if len(self._seen) >= self._limit:
            self.full = True
            return
        self._seen.add(event.id)
        self._children.setdefault(under.id if under else None, []).append((how, event))
        if follow:
            self._queue.append(event)

    def __iter__(self) -> Iterator[Event]:
        while self._queue:
            yield self._queue.popleft()

    def trace(self) -> Trace:
        steps: list[Step] = []
        stack = [(0, how, event) for how, event in reversed(self._children.get(None, []))]
        while stack:
            depth, how, event = stack.pop()
            header = event.header
            steps.append(
                Step(
                    depth,
                    how,
                    header.log,
                    header.seq,
                    event.id,
                    header.kind,
                    self.branch(header.log),
                    header.actor,
                    header.time,
                    self._says(event),
                    _RELATIONS.get(how, "decision"),
                    *event_details(event),
                    (
                        self._prompt(event)
                        if self._prompt is not None and event.kind == _ASKED
                        else None
                    ),
                )
            )
            # An event that only came before it stands on the same level: a long conversation is a
            # list, not a staircase.
            for child_how, child in reversed(self._children.get(event.id, [])):
                stack.append(
                    (depth if child_how == "after" and depth else depth + 1, child_how, child)
                )
        return Trace(self._about, tuple(steps), not self.full)

    def _says(self, event: Event) -> str:
        """Tell an event; a memory with the mark of what has happened to it since."""
        gate = BINDINGS.memory_rules if event.kind == _MEMORY else None
        since = gate.change_since(self._store, event) if gate is not None else ""
        return f"{event_text(event)} ({since})" if since else event_text(event)

    def placement_before(self, event: Event) -> Event | None:
        """Return the last change of placement before an effect, in its own log."""
        if event.log not in self._placements:
            tip = self._store.log(event.log).tip
            found = self._store.read(event.log, 1, tip, kinds={PlacementChanged.__name__})
            self._placements[event.log] = list(found)
        before = [each for each in self._placements[event.log] if each.seq < event.seq]
        return before[-1] if before else None

    def branch(self, log: LogId) -> str:
        if log not in self._branches:
            row = session_row(self._store, log)
            self._branches[log] = str(row.get("label") or short(log))  # as it is typed in a shell
        return self._branches[log]


def event_causes(event: Event) -> tuple[Digest, ...]:
    """Return the causes of an event. Older records have the evidence of a verdict in its body."""
    causes = event.header.causes
    body = event.body if event.kind == ValidationRecorded.__name__ else None
    return (
        tuple(dict.fromkeys((*causes, *body.evidence)))
        if isinstance(body, ValidationRecorded)
        else causes
    )


def event_details(event: Event) -> tuple[str, str, tuple[str, ...]]:
    """Return the reason that an event states, its placement in words, and the paths it changed."""
    if event.kind not in _DETAILED:
        return "", "", ()
    try:
        body = event.body
    except PlaitError:  # erased, or not readable: `saying` says so
        return "", "", ()
    placement, trees = getattr(body, "placement", None), getattr(body, "trees", None)
    where = place_text(placement) if isinstance(placement, Placement) else ""
    changed = trees.changed if isinstance(trees, Trees) else ()
    return getattr(body, "reason", ""), where, changed


_DETAILED = frozenset(
    kind.__name__ for kind in KINDS if {"reason", "placement", "trees"} & {*kind.__struct_fields__}
)
