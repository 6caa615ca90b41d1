"""`plait log --react`: the thoughts, actions and observations of agents, step by step.

A step is a thought, the action it led to, and the observation; a reply without an action is an
answer. The thought of an action is found by the causes that its request declares, not by its place
in the log. A reply with several actions is one thought with several steps: programs get the thought
with each of them, people only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from plait.cli.common import Options, names_of, store_of
from plait.cli.documents import print_json, print_jsonl
from plait.cli.render import ACCENT, BAD, DIM, Cell, Column, Out, as_json
from plait.event import Event, Json
from plait.event import kinds as k
from plait.ids import Digest, LogId
from plait.outline.documents import Document, session_document
from plait.session import Session
from plait.session.content import text_of, unpack
from plait.session.value import walk_path
from plait.store import Store

STEPS_SHOWN = 50  # on a terminal, unless a number is given

_OUTCOMES = frozenset(
    kind.__name__ for kind in (k.ToolReturned, k.ToolFailed, k.ToolUnknown, k.ToolResolved)
)
_KINDS = frozenset({k.ModelReplied.__name__, k.ToolRequested.__name__, *_OUTCOMES})

WORDLESS = "(no words)"
SAME = "(the same thought)"
UNKNOWN = "(outcome not known)"
NOT_RUN = "(not run in this branch)"
REWOUND = "(outcome rewound)"  # it is on record, but not on this path


class Thought(NamedTuple):
    """A reply of a model: its words, and its calls of tools."""

    event: Event
    reasoning: str
    text: str
    calls: tuple[k.Action, ...]
    # of an answer: the text that a guard put in its place; None: it did not pass
    passed: str | None = None

    @property
    def words(self) -> str:
        return self.reasoning or self.text or WORDLESS


class Observation(NamedTuple):
    """The outcome of an action."""

    how: str  # returned, failed, happened, did_not_happen, compensated, unknown, not_run, rewound
    text: str
    parts: k.Parts = ()
    event: Event | None = None  # None: nothing is on record here


class ReactStep(NamedTuple):
    thought: Thought
    same: bool  # True if the step before has this thought, too
    tool: str
    arguments: Json
    call: str
    # names the thought among its causes; None: the reply asked for it, and it was never requested
    # on this path
    request: Event | None
    observed: Observation


StepOrAnswer = ReactStep | Thought  # a thought without a step is an answer


# ── from events to steps ─────────────────────────────────────────────────────────────────────


def react_steps(session: Session, wanted: Callable[[Event], bool]) -> list[StepOrAnswer]:
    """Return the steps and answers on a path, oldest first, of the replies that are wanted."""
    trail = _Trail(session)
    return [
        each
        for thought in trail.thoughts.values()
        if wanted(thought.event)
        for each in trail.steps_of(thought)
    ]


class _Trail:
    """The replies, requests and outcomes on a path, connected by the ids they name."""

    def __init__(self, session: Session) -> None:
        self._session, self._store = session, store_of(session)
        # the last place inherited from each ancestor
        self._above = {each.id: each.seq for each in session.lineage.sessions[:-1]}
        self.thoughts: dict[Digest, Thought] = {}
        self._requests: dict[str, Event] = {}
        self._outcomes: dict[str, Event] = {}
        self._seen: set[Digest] = set()  # outcomes on the path
        messages = session.messages
        self._shown = {message.id for message in messages.shown}
        self._corrected = {
            body.instead_of.head: message.text
            for message in messages
            if isinstance(body := message.event.body, k.MessageSaid) and body.instead_of is not None
        }
        # the calls that a reply caused, as their requests declare
        self._asked: dict[Digest, list[str]] = {}
        for _, event in walk_path(session, _KINDS):
            self._add_event(event)

    def _add_event(self, event: Event) -> None:
        call = event.header.call or event.id
        if event.kind == k.ModelReplied.__name__:
            self._add_thought(event)
        elif event.kind in _OUTCOMES:
            self._outcomes[call] = event
            self._seen.add(event.id)
        elif call in self._requests:
            # a retry: the outcome of the attempt before does not count
            self._outcomes.pop(call, None)
        else:
            cause = next((cause for cause in event.header.causes if cause in self.thoughts), None)
            # otherwise the program itself made the call, without a thought
            if cause is not None:
                self._requests[call] = event
                self._asked[cause].append(call)

    def _add_thought(self, event: Event) -> None:
        body = event.body
        assert isinstance(body, k.ModelReplied)
        if body.aside:  # a selector's
            return
        parts = unpack(body.parts, self._store.get_blob)
        reasoning = "\n".join(
            part.text for part in parts if isinstance(part, k.Reasoning) and part.text
        )
        said = text_of(tuple([part for part in parts if not isinstance(part, k.Reasoning)]))
        self.thoughts[event.id] = Thought(event, reasoning, said, body.calls)
        self._asked[event.id] = []

    def steps_of(self, thought: Thought) -> Iterator[StepOrAnswer]:
        declared = self._asked[thought.event.id]
        asked = {
            action.call: action
            for action in thought.calls
            if action.call in declared or action.call not in self._requests
        }
        calls = list(dict.fromkeys([*asked, *declared]))
        for at, call in enumerate(calls):
            request = self._requests.get(call)
            about: Any = request.body if request is not None else asked[call]
            yield ReactStep(
                thought,
                at > 0,
                about.tool,
                about.arguments,
                call,
                request,
                self._outcome_of(call, request),
            )
        if not calls:
            is_shown = thought.event.id in self._shown or not thought.text
            passed = thought.text if is_shown else self._corrected.get(thought.event.id)
            yield thought._replace(passed=passed)

    def _outcome_of(self, call: str, request: Event | None) -> Observation:
        if (outcome := self._outcomes.get(call)) is not None:
            return _observation(outcome, self._store)
        if call in self._calls_off_path:
            return Observation("rewound", REWOUND)
        if request is None or request.seq <= self._above.get(request.log, 0):
            return Observation("not_run", NOT_RUN)
        return Observation("unknown", UNKNOWN)

    @cached_property
    def _calls_off_path(self) -> set[str | None]:
        """Calls with an outcome in this log, but not on this path."""
        outcomes = self._store.read(self._session.id, 1, self._session.seq, kinds=_OUTCOMES)
        return {event.header.call for event in outcomes if event.id not in self._seen}


def _observation(event: Event, store: Store) -> Observation:
    body: Any = event.body
    if isinstance(body, k.ToolFailed):
        return Observation("failed", f"{body.failure.kind}: {body.failure.message}", event=event)
    if isinstance(body, k.ToolUnknown):
        return Observation("unknown", f"{UNKNOWN} {body.why}".rstrip(), event=event)
    parts = unpack(body.parts, store.get_blob)
    how = body.verdict if isinstance(body, k.ToolResolved) else "returned"
    said = (
        text_of(parts)
        if parts
        else getattr(body, "note", "")
        or ("(nothing)" if how == "returned" else f"({how.replace('_', ' ')})")
    )
    return Observation(how, said, parts, event)


# ── printing ─────────────────────────────────────────────────────────────────────────────────


def print_react(
    given: Options,
    session: Session,
    wanted: Callable[[Event], bool],
    number: int | None,
    oneline: bool,
) -> None:
    """Print the steps, oldest first; `number` counts steps and answers from the end."""
    found = react_steps(session, wanted)
    if given.form == "text":
        _print_steps(session, found, number, oneline)
        return
    documents = [react_document(each) for each in found[-number if number else 0 :]]
    if given.form == "jsonl":
        print_jsonl(documents)
    else:
        print_json({"session": session_document(session), "steps": documents})


def react_document(each: StepOrAnswer) -> Document:
    """Return a step, or an answer; the keys of the other kind are null."""
    thought = _thought_of(each)
    shared = {"agent": thought.event.actor, "reply": _event_place(thought.event)}
    if isinstance(each, Thought):
        nothing = dict.fromkeys(("action", "observation", "caused_by", "requested", "observed"))
        return {
            **shared,
            "thought": thought.reasoning or None,
            "same_thought": False,
            **nothing,
            "answer": each.passed,
            "refused": each.text if each.text != each.passed else None,
        }
    observed = each.observed
    return {
        **shared,
        "thought": thought.words,
        "same_thought": each.same,
        "action": {"tool": each.tool, "arguments": each.arguments, "call": each.call},
        "observation": {
            "how": observed.how,
            "text": observed.text,
            "parts": msgspec.to_builtins(observed.parts),
        },
        "caused_by": _event_place(thought.event) if each.request else None,
        "requested": _event_place(each.request),
        "observed": _event_place(observed.event),
        "answer": None,
        "refused": None,
    }


def _event_place(event: Event | None) -> Document | None:
    return None if event is None else {"session": event.log, "seq": event.seq, "event": event.id}


def _print_steps(
    session: Session, found: list[StepOrAnswer], number: int | None, oneline: bool
) -> None:
    out = Out()
    limit = number or (STEPS_SHOWN if out.tty else None)
    shown = found[-limit:] if limit else found
    if shown and isinstance(first := shown[0], ReactStep):
        shown = [first._replace(same=False), *shown[1:]]  # the step that shows it may be left out
    if len(shown) < len(found) and number is None:
        out.hint(
            f"… {len(found) - len(shown):,} earlier ones: plait log {session.short} --react -n"
            f" {len(found)}"
        )
    columns = [
        Column(right=True),
        *([] if oneline else [Column(aside=True)]),
        Column(),
        Column(flex=True),
    ]
    places = _PlaceNames(session, oneline)
    rows = (
        [
            Cell(places.of(event), ACCENT),
            *([] if oneline else [Cell(_thought_of(each).event.actor, DIM)]),
            Cell(what, DIM),
            says,
        ]
        for each in shown
        for event, what, says in _step_lines(each)
    )
    if not out.table(columns, rows):
        out.hint("No agent has done anything here.")


def _step_lines(each: StepOrAnswer) -> Iterator[tuple[Event | None, str, Cell]]:
    """Yield the lines of a step: the event, the word for the line, the text."""
    thought = _thought_of(each)
    if isinstance(each, Thought):
        if thought.reasoning:
            yield thought.event, "thought", Cell(thought.reasoning)
        if each.text != each.passed:
            yield thought.event, "refused", Cell(each.text, DIM)
        if each.passed is not None:
            yield thought.event, "answer", Cell(each.passed or WORDLESS)
        return
    yield thought.event, "thought", Cell(SAME, DIM) if each.same else Cell(thought.words)
    yield each.request, "action", Cell(f"{each.tool} {as_json(each.arguments)}")
    observed = each.observed
    yield (
        observed.event,
        "observation",
        Cell(observed.text, BAD if observed.how == "failed" else ""),
    )


def _thought_of(each: StepOrAnswer) -> Thought:
    return each.thought if isinstance(each, ReactStep) else each


class _PlaceNames:
    """Names of places that can be typed. An event that came with a merge is named with
    its session.
    """

    def __init__(self, session: Session, named: bool) -> None:
        self._store, self._short, self._named = store_of(session), session.short, named
        self._own = {each.id: each.seq for each in session.lineage.sessions}
        self._names: dict[LogId, str] = {}

    def of(self, event: Event | None) -> str:
        if event is None:
            return "-"
        if event.seq <= self._own.get(event.log, 0):
            return f"{self._short}@{event.seq}" if self._named else str(event.seq)
        if event.log not in self._names:
            self._names.update(names_of(self._store, [event.log]))
        return f"{self._names[event.log]}@{event.seq}"
