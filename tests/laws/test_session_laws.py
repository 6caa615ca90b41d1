"""The session's laws as state machines, against both stores: value, linear, fork, rewind, merge,
fold, provenance.

One machine opens sessions and does to them whatever can be done, at random. Each law is a subclass
that says what must hold after every step, worked out the slow way by `naive.py`. How often each was
tried is printed at the end of the run.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from plait import Budget, Session, open_store
from plait.errors import MergeConflict, NoCommonBase, StaleHead, WrongStatus
from plait.event.kinds import Text, ToolRequested, ToolReturned
from plait.session import fold, verify
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.state import state_digest
from plait.session.value import counted_logs, position_of, state_of
from plait.store import Store
from tests.laws.naive import Naive
from tests.support import count, record_reply

KEYS = st.sampled_from(["db", "verdict", "漢字"])
VALUES = st.one_of(
    st.integers(0, 3), st.none(), st.sampled_from(["a", {"deep": [1, {"er": None}]}])
)
TEXTS = st.sampled_from(["yes", "no", "\u2028\x85\0 \u202e", "long " * 1000])


def effect(session: Session, kind: Any) -> Session:
    """A tool call and its outcome, as the runtime will record them."""
    act = Act("agent:tool", "tool", call=f"call-{session.seq}")
    drafts = [
        Draft(ToolRequested("pay", {"usd": 1}, kind), act),
        Draft(ToolReturned((Text("paid"),)), act),
    ]
    return session_at(writer_of(None).append(position_of(session), drafts))


class SessionMachine(RuleBasedStateMachine):
    """Sessions, and everything that can be done to them.

    `tips` are the latest values, `olds` all others.
    """

    law = ""
    store: Store
    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        count(self.law, self.store)
        self.naive = Naive(self.store)
        self.tips: dict[str, Session] = {}
        self.values: list[Session] = []

    def keep(self, session: Session) -> Session:
        self.tips[session.id] = session
        self.values.append(session)
        return session

    def tip(self, session: Session) -> Session:
        return self.tips[session.id]

    @initialize(target=sessions)
    def open_first(self) -> Session:
        return self.keep(
            Session(
                "first",
                title="machine",
                user="u-1",
                budget=Budget(tokens_max=1000),
                store=self.store,
            )
        )

    @rule(target=sessions)
    def open_another(self) -> Session:
        return self.keep(Session("another", store=self.store))

    @rule(session=sessions, text=TEXTS, role=st.sampled_from(["user", "assistant", "system"]))
    def say(self, session: Session, text: str, role: Any) -> None:
        self.keep(self.tip(session).say(text, role=role))

    @rule(session=sessions, key=KEYS, value=VALUES, decide=st.booleans())
    def fact(self, session: Session, key: str, value: Any, decide: bool) -> None:
        tip = self.tip(session)
        self.keep(tip.decide(key, value) if decide else tip.fact(key, value))

    @rule(session=sessions, key=KEYS)
    def retract(self, session: Session, key: str) -> None:
        tip = self.tip(session)
        if key in tip.facts:
            self.keep(tip.retract(key))

    @rule(session=sessions, key=KEYS, done=st.booleans())
    def work(self, session: Session, key: str, done: bool) -> None:
        tip = self.tip(session)
        if done and key in tip.pending:
            self.keep(tip.settle(key))
        elif not done:
            self.keep(tip.todo(f"do {key}", key=key))

    @rule(session=sessions, key=KEYS, value=VALUES)
    def scratch(self, session: Session, key: str, value: Any) -> None:
        self.keep(self.tip(session).scratch(key, value))

    @rule(session=sessions, tokens=st.integers(1, 99))
    def spend(self, session: Session, tokens: int) -> None:
        self.keep(record_reply(self.tip(session), tokens))

    @rule(session=sessions, kind=st.sampled_from(["pure", "workspace", "at_most_once"]))
    def act(self, session: Session, kind: str) -> None:
        self.keep(effect(self.tip(session), kind))

    @rule(session=sessions)
    def pause_or_go_on(self, session: Session) -> None:
        tip = self.tip(session)
        self.keep(tip.unpause() if tip.status == "paused" else tip.pause())

    @rule(target=sessions, session=sessions, data=st.data())
    def fork(self, session: Session, data: st.DataObject) -> Session:
        tip = self.tip(session)
        return self.keep(
            tip.fork(
                data.draw(st.sampled_from([None, "left", "right"])),
                at=data.draw(st.integers(1, tip.seq)),
            )
        )

    @rule(target=sessions, session=sessions)
    def detach(self, session: Session) -> Session:
        return self.keep(self.tip(session).detach())

    @rule(session=sessions, data=st.data())
    def rewind(self, session: Session, data: st.DataObject) -> None:
        tip = self.tip(session)
        if tip.seq > 1:
            self.keep(tip.rewind(data.draw(st.integers(1, tip.seq - 1)), reason="law"))

    @rule(one=sessions, other=sessions, third=sessions, data=st.data())
    def merge(self, one: Session, other: Session, third: Session, data: st.DataObject) -> None:
        tip, branches = self.tip(one), [self.tip(other)]
        if data.draw(st.booleans()) and third.id != other.id:
            branches.append(self.tip(third))
        if data.draw(st.booleans()):
            branches[0] = earlier(branches[0], data)
        for base in (None, tip.at(1)):
            try:
                self.keep(tip.merge(*branches, base=base))
            except MergeConflict as conflict:
                chosen = {
                    key: next(iter(sides.values())) for key, sides in conflict.conflicts.items()
                }
                self.keep(tip.merge(*branches, resolve=chosen, base=base))
            except NoCommonBase:
                assert base is None and not all(related(tip, branch) for branch in branches)
                continue
            return

    def teardown(self) -> None:
        for session in self.tips.values():
            assert session.reload() == session


def earlier(session: Session, data: st.DataObject) -> Session:
    """The session at some place where no call is open."""
    place = data.draw(st.integers(1, session.seq))
    return session.at(place - 1 if session.events[place - 1].kind == "ToolRequested" else place)


def related(one: Session, other: Session) -> bool:
    """True if two sessions have an event in common, by lineage or by a merge."""
    naive = Naive(open_store(one.store))
    return not naive.ledger(one.id, one.seq).keys().isdisjoint(naive.ledger(other.id, other.seq))


def answers(session: Session) -> dict[str, Any]:
    """All that a session says of itself."""
    return {
        "events": [event.id for event in session.events],
        "path": [event.id for event in session.lineage.path],
        "messages": [(message.id, message.text, message.branch) for message in session.messages],
        "facts": dict(session.facts),
        "pending": list(session.pending),
        "scratch": session.scratchpad,
        "usage": session.budget.usage,
        "left": session.budget.left,
        "status": session.status,
        "history": session.lineage.statuses,
        "covers": counted_logs(session),
        "lineage": [str(each) for each in session.lineage.sessions],
        "about": (session.title, session.user, session.lineage.label, repr(session)),
    }


class ValueMachine(SessionMachine):
    """`b = op(a)` leaves a answering as before, from memory or read anew."""

    law = "value"

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[dict[str, Any]] = []

    def keep(self, session: Session) -> Session:
        self.answers.append(answers(session))
        return super().keep(session)

    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.values) - 1))
        session = self.values[at]
        assert answers(session) == self.answers[at]
        assert answers(session_at(position_of(session))) == self.answers[at]
        again = pickle.loads(pickle.dumps(session))
        assert (
            again == session and hash(again) == hash(session) and answers(again) == self.answers[at]
        )

    @rule(data=st.data())
    def edit_what_was_handed_out(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.values))
        before = answers(session)
        for value in (*session.facts.values(), *session.scratchpad.values()):
            if isinstance(value, dict):
                value["edited"] = True
        session.tags["edited"] = "yes"
        session.pending.clear()
        counted_logs(session).clear()
        assert answers(session) == before
        with pytest.raises(AttributeError):
            session.seq = 1  # type: ignore[misc]


class LinearMachine(SessionMachine):
    """Appending through a stale value raises and writes nothing."""

    law = "linear"

    @rule(data=st.data())
    def append_through_a_stale_value(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.values))
        tip = self.tip(session)
        if session == tip:
            return
        for act in (
            lambda: session.say("stale"),
            lambda: session.fact("k", 1),
            lambda: session.merge(tip.fork()),
        ):
            with pytest.raises((StaleHead, WrongStatus)):
                act()
        assert session.reload() == tip

    @rule(session=SessionMachine.sessions)
    def gapless(self, session: Session) -> None:
        events = list(self.tip(session).events)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        for event, before in zip(events[1:], events, strict=False):
            assert event.header.parents[0] == before.id


class ForkMachine(SessionMachine):
    """A branch takes the story along, leaves obligations behind, and neither side sees the other
    afterwards.
    """

    law = "fork"

    @rule(session=SessionMachine.sessions, data=st.data())
    def fork_and_compare(self, session: Session, data: st.DataObject) -> None:
        source = self.tip(session).at(data.draw(st.integers(1, self.tip(session).seq)))
        before = answers(source)
        branch = source.fork("compared")
        for same in ("messages", "facts", "pending", "scratch", "usage", "left"):
            assert answers(branch)[same] == before[same], same
        assert branch.head != source.head and branch.seq == source.seq + 1
        assert (
            branch.status == "open"
            and branch.lineage.parent is not None
            and branch.lineage.parent.head == source.head
        )
        other = source.fork("other").say("unseen").fact("unseen", 1)
        assert "unseen" not in branch.reload().facts and "unseen" not in other.lineage.parent.facts  # type: ignore[union-attr]
        grown = branch.say("mine")
        assert answers(source) == before
        assert other.reload() == other and grown.text == "mine"


class RewindMachine(SessionMachine):
    """The story goes back, the ledger does not, and nothing is lost."""

    law = "rewind"

    @rule(session=SessionMachine.sessions, data=st.data())
    def rewind_and_compare(self, session: Session, data: st.DataObject) -> None:
        tip = self.tip(session)
        if tip.seq == 1:
            return
        to = data.draw(st.integers(1, tip.seq - 1))
        then, before = answers(tip.at(to)), answers(tip)
        back = self.keep(tip.rewind(to))
        now = answers(back)
        for story in ("messages", "facts", "pending", "scratch"):
            assert now[story] == then[story], story
        for ledger in ("usage", "left", "status"):
            assert now[ledger] == before[ledger], ledger
        assert back.id == tip.id and now["events"][:-1] == before["events"]
        assert now["path"] == [*then["path"], back.head]
        kept = {event.id for event in self.naive.story(tip.id, to)}
        lost = [
            event
            for event in self.naive.story(tip.id, tip.seq)
            if event.id not in kept and event.kind == "ToolReturned"
        ]
        effects = {
            event.header.call: event.body
            for event in self.naive.story(tip.id, tip.seq)
            if event.kind == "ToolRequested"
        }
        external = [
            event.id
            for event in lost
            if effects[event.header.call].effect == "at_most_once"  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        ]
        assert list(back.events[-1].body.not_undone) == external  # type: ignore[attr-defined]


class MergeMachine(SessionMachine):
    """Facts, pending work, messages and usage are those of the naive set of events; disputes are
    never settled silently.
    """

    law = "merge"

    @rule(target=SessionMachine.sessions)
    def open_another(self) -> Session:
        """Fork instead: strangers cannot be merged."""
        return self.keep(next(iter(self.tips.values())).fork())

    @rule(session=SessionMachine.sessions, key=KEYS, ours=VALUES, theirs=VALUES, data=st.data())
    def write_on_both_sides_and_merge(
        self, session: Session, key: str, ours: Any, theirs: Any, data: st.DataObject
    ) -> None:
        """Let both sides write before they are merged, which drawn steps seldom do."""
        branch = self.keep(self.tip(session).fork())
        here = self.tip(session)
        for _ in range(data.draw(st.integers(1, 3))):
            branch = data.draw(st.sampled_from([self._note, self._say, self._plan]))(
                branch, key, theirs
            )
        if data.draw(st.booleans()):
            here = data.draw(st.sampled_from([self._note, self._say, self._plan]))(here, key, ours)
        self.merge_and_compare(here, branch, data)

    def _note(self, session: Session, key: str, value: Any) -> Session:
        return self.keep(session.fact(key, value))

    def _say(self, session: Session, key: str, value: Any) -> Session:
        return self.keep(session.say(f"{key}: {value}"))

    def _plan(self, session: Session, key: str, value: Any) -> Session:
        return self.keep(session.todo(f"do {key}", key=key))

    @rule(one=SessionMachine.sessions, other=SessionMachine.sessions, data=st.data())
    def merge_and_compare(self, one: Session, other: Session, data: st.DataObject) -> None:
        ours, theirs = self.tip(one), earlier(self.tip(other), data)
        if not related(ours, theirs):
            return
        words = self.naive.words((ours.id, ours.seq), (theirs.id, theirs.seq))
        disputed = {key for key, values in words.items() if len(values) > 1}
        before = answers(theirs)
        try:
            merged = self.keep(ours.merge(theirs))
        except MergeConflict as conflict:
            assert set(conflict.conflicts) == disputed
            assert ours.reload() == ours
            merged = self.keep(ours.merge(theirs, resolve={key: "chosen" for key in disputed}))
            assert all(merged.facts[key] == "chosen" for key in disputed)
        else:
            assert not disputed
        assert answers(theirs) == before
        again = merged.merge(theirs)
        assert again == merged

    @invariant()
    def as_the_naive_set_of_events_says(self) -> None:
        for session in self.tips.values():
            log, place = session.id, session.seq
            assert session.budget.usage.input_tokens == self.naive.tokens(log, place)
            assert [message.id for message in session.messages] == self.naive.messages(log, place)
            assert {key: repr(value) for key, value in session.facts.items()} == self.naive.facts(
                log, place
            )
            assert set(session.pending) == self.naive.pending(log, place)
            assert session.scratchpad == self.naive.scratch(log, place)
            assert [event.id for event in session.lineage.path] == [
                event.id for event in self.naive.own_path(log, place)
            ]

    @rule(one=SessionMachine.sessions, other=SessionMachine.sessions)
    def merge(self, one: Session, other: Session) -> None:  # type: ignore[override]
        """Crosswise: each takes the other in, then the results are merged once more."""
        left, right = self.tip(one), self.tip(other)
        if left.id == right.id or not related(left, right):
            return
        crossed = self.keep(left.merge(right, resolve=lambda key, sides: "left"))
        self.keep(right.merge(left, resolve=lambda key, sides: "right"))
        self.keep(
            crossed.merge(
                self.tip(right), resolve=lambda key, sides: sorted(map(repr, sides.values()))
            )
        )


class FoldMachine(SessionMachine):
    """State is a function of events: from a memo, from a snapshot or from nothing
    it is the same.
    """

    law = "fold"

    @rule(session=SessionMachine.sessions, data=st.data())
    def fold_from_anywhere(self, session: Session, data: st.DataObject) -> None:
        tip = self.tip(session)
        place = data.draw(st.integers(1, tip.seq))
        plain = state_digest(fold.state_at(self.store, tip.id, place, cached=False))
        near = fold.state_at(self.store, tip.id, data.draw(st.integers(1, place)), cached=False)
        assert (
            state_digest(fold.state_at(self.store, tip.id, place, near=near, cached=False)) == plain
        )
        state = state_of(tip.at(place))  # pyright: ignore[reportPrivateUsage]
        assert state_digest(state) == plain
        if state.log == tip.id:
            fold.keep_snapshot(self.store, state, tip.at(place).head)
        assert state_digest(fold.state_at(self.store, tip.id, place)) == plain
        if data.draw(st.booleans()):
            self.store.drop_snapshots()

    @rule(session=SessionMachine.sessions)
    def close_one(self, session: Session) -> None:
        self.tip(session).fork("to close").scratch("x", 1).close().archive()

    def teardown(self) -> None:
        assert (
            list(verify(self.store, [session.id for session in self.tips.values()], state=True))
            == []
        )


class ProvenanceMachine(SessionMachine):
    """`why` shows nothing but real edges and reaches every declared cause; `influence` is its
    reverse.
    """

    law = "provenance"

    @rule(session=SessionMachine.sessions, data=st.data())
    def say_because(self, session: Session, data: st.DataObject) -> None:
        tip = self.tip(session)
        causes = data.draw(st.lists(st.integers(1, tip.seq), max_size=2, unique=True))
        self.keep(
            tip.decide("because", tip.seq, because=[tip.events[place - 1] for place in causes])
        )

    @rule(session=SessionMachine.sessions, data=st.data())
    def ask_why(self, session: Session, data: st.DataObject) -> None:
        tip = self.tip(session)
        event = tip.events[data.draw(st.integers(0, tip.seq - 1))]
        trace = tip.why(event, limit=10_000)
        assert trace.complete and trace.steps[0].id == event.id
        found = {step.id for step in trace}
        due, queue = set[Any](), [event.id]
        while queue:
            each = self.store.event(queue.pop())
            for cause in (*each.header.causes, *each.header.parents[1:]):
                if cause not in due:
                    due.add(cause)
                    queue.append(cause)
        assert due <= found
        for step in trace:
            ahead = {
                each.id for each in tip.lineage.influence(self.store.event(step.id), limit=10_000)
            }
            if step.how == "because of":
                assert ahead & found - {step.id}, "what a cause caused is ahead of it"


LAWS = [
    ValueMachine,
    LinearMachine,
    ForkMachine,
    RewindMachine,
    MergeMachine,
    FoldMachine,
    ProvenanceMachine,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.law)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_law_holds(law: type[SessionMachine], kind: str) -> None:
    folder = Path(tempfile.mkdtemp())
    store = open_store(f"memory:law-{law.law}" if kind == "memory" else folder / ".plait")
    machine = type(law.__name__, (law,), {"store": store})
    current = settings.get_profile(settings._current_profile)  # type: ignore[attr-defined]  # pyright: ignore
    try:
        examples = current.max_examples if kind == "memory" else max(10, current.max_examples // 3)
        run_state_machine_as_test(
            machine, settings=settings(max_examples=examples, stateful_step_count=25)
        )
        assert list(verify(store, state=True)) == []
    finally:
        store.close()
        shutil.rmtree(folder, ignore_errors=True)
