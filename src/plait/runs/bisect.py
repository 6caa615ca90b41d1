"""Find the step that broke something: a test is made of values of a session, by halves.

A command is tested on the trees on record: only steps that changed the files are candidates, and
two steps with the same tree need one run. A predicate is tested on values of the session, at any
event. The steps are those of the story: rewound events are none. A merge that turns out bad is
looked into, branch by branch, and so is the call of a workflow as a tool. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from plait.errors import BisectAborted, EndsAgree, InvalidValue, NotPlaced
from plait.event import Event
from plait.event.kinds import FactRecorded, FactRetracted, Merged, Place, ToolReturned
from plait.ids import Digest
from plait.runs.tree_tests import CommandEnd, TreeCommand
from plait.runtime.end import outside
from plait.session import Diff, Session
from plait.session.events import path_events
from plait.session.files import TREE_KINDS, tree_left_by
from plait.session.ports import Position
from plait.session.session import session_at
from plait.session.state import EventRef, Span
from plait.session.value import core_of
from plait.session.views import Effect
from plait.store import Store

Outcome = Literal["good", "bad", "skipped"]
Predicate = Callable[[Session], bool | None]

SKIP = 125  # the exit code of a command that cannot test a tree, as for `git bisect run`
NOT_RUN = (126, 127)  # the exit codes of a shell that cannot run a command, or not find it
SIGNALS = 128  # exit codes from here on tell of a signal, not of a test


class StepTest(msgspec.Struct, frozen=True):
    """One test of a bisection."""

    session: Session  # the value that was tested
    outcome: Outcome
    left: int  # the steps that may still be the first bad one
    exit_code: int | None = None  # of the command; None: a predicate was asked
    duration_us: int = 0
    output: str = ""  # of the command: its beginning and its end
    killed: str = ""  # the limit that ended the command; "": it ended by itself


class Bisection(msgspec.Struct, frozen=True, dict=True):
    """The first bad step of a session, and the tests by which it was found."""

    session: Session
    first_bad: Session  # the value at the first bad step
    last_good: Session  # the value at the last good one before it
    tests: tuple[StepTest, ...]
    # steps between the two that could not be tested: the first bad one may be among them
    suspects: tuple[Session, ...] = ()
    # the merges, and the calls of workflows as tools, that brought the step into the session, the
    # outermost first; (): it was made in the session itself
    via: tuple[Session, ...] = ()
    branch: str = ""  # the branch in which the step was made, by its label or short id

    @property
    def merge(self) -> Session | None:
        """The merge, or the end of the call, that brought the branch of the step. None: the step
        was made in the session itself.
        """
        return self.via[-1] if self.via else None

    @cached_property
    def event(self) -> Event:
        """The event of the first bad step."""
        return self.first_bad.events[-1]

    @cached_property
    def effect(self) -> Effect | None:
        """The tool call of the first bad step. None: no tool made it."""
        effects = self.first_bad.effects
        own = (each for each in effects if self.event.id in (each.request.id, _outcome_id(each)))
        return next(own, None)

    @cached_property
    def diff(self) -> Diff:
        """The difference that the first bad step made, suspects included."""
        return self.last_good.diff(self.first_bad)

    @property
    def runs(self) -> int:
        """The number of times that the command was run, or the predicate asked."""
        return len(self.tests)

    def __str__(self) -> str:
        return f"first bad: {self.first_bad.short}@{self.first_bad.seq}, in {self.runs} runs"


def bisect(
    session: Session | str,
    predicate: Predicate | None = None,
    /,
    *,
    command: Sequence[str] | None = None,
    good: int | None = None,
    bad: int | None = None,
    timeout_s: float | None = None,
    on_test: Callable[[StepTest], object] | None = None,
    store: str | Path | Store | None = None,
) -> Bisection:
    """Find the first step of a session at which a test fails, by halves.

    `predicate(session_at_k)` returns True for good, False for bad, and None if it cannot tell. A
    `command` runs in a sandbox on the files at k: exit code 0 is good, 125 cannot tell, 1 to 127
    is bad, and more ends the search. `good` and `bad` are seqs; without them, the first step and
    the last one. Nothing is written to the session, and its folder is not touched.
    """
    there = outside(session if isinstance(session, Session) else Session.open(session, store=store))
    if (predicate is None) == (command is None):
        raise InvalidValue("bisect", "it needs one test", "pass a predicate, or command=[…]")
    there = there if bad is None else there.at(bad)
    if command is not None:
        test: _Tester = _CommandTest(TreeCommand(there, command, timeout_s))
    elif callable(predicate):
        test = _PredicateTest(predicate)
    else:
        why = f"a {type(predicate).__name__} cannot be called"
        raise InvalidValue("predicate", why, "pass a function of a session")
    return _Bisector(there, test, on_test).find(good)


# ── steps ────────────────────────────────────────────────────────────────────────────────────


class _Candidate(NamedTuple):
    """A step that may be the first bad one."""

    event: EventRef
    tree: Digest | None = None  # None: the test is not about trees


class _StoryPath:
    """The story of a session as steps, the oldest first; merged branches aside."""

    def __init__(self, session: Session, *, by_tree: bool) -> None:
        self.session, self._by_tree = session, by_tree
        core = core_of(session)
        self._store = core.store
        self._spans = [span for span in core.state.story.path if not span.via]
        self._line = {each.id for each in session.lineage.sessions}
        self.steps = self._tree_steps() if by_tree else self._all_steps()

    def _all_steps(self) -> list[_Candidate]:
        return [_Candidate(_ref(event)) for _, event in path_events(self._store, self._spans)]

    def _tree_steps(self) -> list[_Candidate]:
        steps: list[_Candidate] = []
        for _, event in path_events(self._store, self._spans, TREE_KINDS):
            tree = tree_left_by(event)
            if tree is not None and (not steps or steps[-1].tree != tree):
                steps.append(_Candidate(_ref(event), tree))
        if not steps:
            raise NotPlaced(self.session.short)
        return steps

    def from_good(self, good: int | None) -> list[_Candidate]:
        """Return the steps from a good seq on; the first one is the state at that seq."""
        if good is None:
            return self.steps
        seq = self.session.at(good).seq
        if not any(self._has(span, seq) for span in self._spans):
            why = f"event {seq} was rewound, and is no part of the story at {self.session.seq}"
            step = f"name an event that `plait log --path {self.session.short}` shows"
            raise InvalidValue("good", why, step)
        upto = [
            at
            for at, step in enumerate(self.steps)
            if step.event.log not in self._line or step.event.seq <= seq
        ]
        if not upto:
            first = self.steps[0].event.seq
            raise InvalidValue(
                "good", f"the session has no files at {seq}", f"name an event from {first} on"
            )
        return self.steps[upto[-1] :]

    def _has(self, span: Span, seq: int) -> bool:
        return span.log in self._line and span.first <= seq <= span.last

    def value_at(self, step: _Candidate) -> Session:
        ref = step.event
        if ref.log in self._line:
            return self.session.at(ref.seq)
        return session_at(Position(self.session.store, ref.log, ref.seq, ref.id))

    def branches_at(self, step: _Candidate) -> list[_StoryPath]:
        """Return the branches that a step brought: those that it merged, or the one of a call that
        a workflow carried out. []: it brought none.
        """
        ref = step.event
        event = next(self._store.read(ref.log, ref.seq, ref.seq))
        body, address = event.body, self.session.store
        places = body.branches if isinstance(body, Merged) else _branch_of_call(self._store, event)
        ends = [session_at(Position(address, at.log, at.seq, at.head)) for at in places]
        return [
            _StoryPath(end, by_tree=self._by_tree)
            for end in ends
            if not self._by_tree or end.files.tree is not None
        ]

    @property
    def name(self) -> str:
        return self.session.lineage.label or self.session.short


# written at the end of such a call: its outcome, and the facts that the caller takes
_TAKEN_KINDS = frozenset(kind.__name__ for kind in (ToolReturned, FactRecorded, FactRetracted))


def _branch_of_call(store: Store, event: Event) -> Sequence[Place]:
    """Return the branch in which a workflow carried out the call of an event, as the caller took
    it. (): none did.
    """
    call = event.header.call
    if call is None or event.kind not in _TAKEN_KINDS:
        return ()
    returned = store.read(event.log, event.seq, kinds={ToolReturned.__name__})
    outcome = next((each for each in returned if each.header.call == call), None)
    for cause in outcome.header.causes if outcome is not None else ():
        end = store.event(cause)
        about = store.log(end.log)
        if about.parent != event.log:
            continue
        first = next(store.read(about.id, about.place + 1, about.place + 1))
        if first.header.call == call:
            return (Place(end.log, end.seq, end.id),)
    return ()


def _ref(event: Event) -> EventRef:
    return EventRef(event.log, event.seq, event.id)


def _outcome_id(effect: Effect) -> Digest | None:
    return effect.outcome.id if effect.outcome is not None else None


# ── tests ────────────────────────────────────────────────────────────────────────────────────


class _Tester(Protocol):
    """A test of steps."""

    by_tree: bool  # True: only the files matter

    def outcome_of(self, value: Session, step: _Candidate) -> tuple[Outcome, CommandEnd | None]: ...


class _PredicateTest:
    by_tree = False

    def __init__(self, predicate: Predicate) -> None:
        self._predicate = predicate

    def outcome_of(self, value: Session, step: _Candidate) -> tuple[Outcome, CommandEnd | None]:
        said: Any = self._predicate(value)
        if said is not None and not isinstance(said, bool):
            why = f"it returned a {type(said).__name__}"
            advice = "return True for good, False for bad, None if it cannot tell"
            raise InvalidValue("predicate", why, advice)
        return "skipped" if said is None else "good" if said else "bad", None


class _CommandTest:
    by_tree = True

    def __init__(self, command: TreeCommand) -> None:
        self._command = command

    def outcome_of(self, value: Session, step: _Candidate) -> tuple[Outcome, CommandEnd | None]:
        assert step.tree is not None
        end = self._command.run(step.tree)
        if end.killed == "time":  # a program that does not end any more is broken
            return "bad", end
        if end.killed or end.exit_code >= SIGNALS:
            why = (
                f"the command was ended by its limit of {end.killed}"
                if end.killed
                else f"the command ended with {end.exit_code}, by signal {end.exit_code - SIGNALS}"
            )
            raise BisectAborted(value.short, value.seq, why, end.output)
        outcomes: dict[int, Outcome] = {0: "good", SKIP: "skipped"}
        return outcomes.get(end.exit_code, "bad"), end


# ── the search ───────────────────────────────────────────────────────────────────────────────


class _FirstBad(NamedTuple):
    """The place of the first bad step among others."""

    path: _StoryPath
    steps: Sequence[_Candidate]
    low: int  # the last good one; -1: none is
    high: int  # the first bad one


class _Bisector:
    """One bisection."""

    def __init__(
        self, session: Session, test: _Tester, on_test: Callable[[StepTest], object] | None
    ) -> None:
        self._session, self._test, self._on_test = session, test, on_test
        self._tests: list[StepTest] = []
        self._known: dict[str, StepTest] = {}

    def find(self, good: int | None) -> Bisection:
        path = _StoryPath(self._session, by_tree=self._test.by_tree)
        steps = path.from_good(good)
        self._check_ends(path, steps)
        found = self._halve(path, steps, -1)
        if found.low < 0:
            self._refuse_start(path, steps)
        last_good = path.value_at(steps[found.low])
        via, branch = list[Session](), ""
        while (inside := self._enter_branch(found)) is not None:
            via.append(found.path.value_at(found.steps[found.high]))
            branch, found = inside.path.name, inside
            if found.low >= 0:
                last_good = found.path.value_at(found.steps[found.low])
        return Bisection(
            self._session,
            found.path.value_at(found.steps[found.high]),
            last_good,
            tuple(self._tests),
            tuple(map(found.path.value_at, found.steps[found.low + 1 : found.high])),
            tuple(via),
            branch,
        )

    def _check_ends(self, path: _StoryPath, steps: Sequence[_Candidate]) -> None:
        first, last = steps[0], steps[-1]
        ends = self._session.short, path.value_at(first).seq, self._session.seq
        if _state_key(first) == _state_key(last):
            raise EndsAgree(*ends, "same")
        at_last = self._test_step(path, last, len(steps))
        if at_last.outcome == "skipped":
            why, advice = "it cannot be tested there", "name another end: bad=K"
            raise BisectAborted(ends[0], ends[2], why, at_last.output, advice)
        if at_last.outcome == "good":
            raise EndsAgree(*ends, "good", at_last.output)
        # a command that is nowhere to be found is bad everywhere: look before the search
        if at_last.exit_code in NOT_RUN:
            at_first = self._test_step(path, first, len(steps))
            if at_first.outcome == "bad":
                raise EndsAgree(*ends, "bad", at_first.output)

    def _refuse_start(self, path: _StoryPath, steps: Sequence[_Candidate]) -> None:
        """Raise: no step is known to be good."""
        at_first = self._test_step(path, steps[0], 1)
        seq = path.value_at(steps[0]).seq
        if at_first.outcome == "bad":
            raise EndsAgree(self._session.short, seq, self._session.seq, "bad", at_first.output)
        why, advice = "no step before is good, and it cannot be tested", "name another: good=K"
        raise BisectAborted(self._session.short, seq, why, at_first.output, advice)

    def _halve(self, path: _StoryPath, steps: Sequence[_Candidate], low: int) -> _FirstBad:
        """Return the first bad step, where the last one is known to be bad."""
        high, skipped = len(steps) - 1, set[int]()
        skips = 0  # since the range last became smaller
        while open := [at for at in range(low + 1, high) if at not in skipped]:
            at = open[int(len(open) * _spread(skips + 1))]
            outcome = self._test_step(path, steps[at], high - low).outcome
            skips = skips + 1 if outcome == "skipped" else 0
            if outcome == "skipped":
                skipped.add(at)
            elif outcome == "good":
                low = at
            else:
                high = at
        return _FirstBad(path, steps, low, high)

    def _enter_branch(self, found: _FirstBad) -> _FirstBad | None:
        """Return the first bad step of a branch, if the bad step is a merge, or the end of a call,
        that brought it.
        """
        if found.high != found.low + 1:  # it may be another step
            return None
        step = found.steps[found.high]
        known = {each.event for each in found.path.steps}
        for branch in found.path.branches_at(step):
            shared = [at for at, each in enumerate(branch.steps) if each.event in known]
            base = shared[-1] if shared else -1
            own = branch.steps[max(base, 0) :]
            if len(branch.steps) - 1 == base:
                continue  # it changed nothing of its own
            if self._test_step(branch, own[-1], len(own)).outcome == "bad":
                return self._halve(branch, own, 0 if base >= 0 else -1)
        return None

    def _test_step(self, path: _StoryPath, step: _Candidate, left: int) -> StepTest:
        key = _state_key(step)
        known = self._known.get(key)
        if known is None:
            value = path.value_at(step)
            outcome, end = self._test.outcome_of(value, step)
            exit_code, output, duration, killed = end or (None, "", 0, "")
            known = StepTest(value, outcome, left, exit_code, duration, output, killed)
            self._known[key] = known
            self._tests.append(known)
            if self._on_test is not None:
                self._on_test(known)
        return known


def _state_key(step: _Candidate) -> str:
    """Return the state that a test depends on: the tree, or all up to the event."""
    return step.tree or step.event.id


def _spread(number: int) -> float:
    """Return the n-th of 1/2, 1/4, 3/4, 1/8, …: a row of steps that cannot be tested is left by
    leaps.
    """
    fraction, place = 0.0, 0.5
    while number:
        fraction += place * (number & 1)
        number, place = number >> 1, place / 2
    return fraction
