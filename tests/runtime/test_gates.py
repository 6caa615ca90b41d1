"""Gates: whose verdict opens one, and how a run waits at one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plait import Agent, Parallel, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.errors import GateUnmet, InvalidValue, ToolFailed
from plait.event.kinds import VerdictAwaited, VerdictHeard
from plait.journal.stops import Parked
from plait.policy import Ask, Policy
from plait.runs.replay import replay
from plait.runs.resume import resume
from plait.session import verify
from plait.session.inbox import all_waiting, due_sessions
from plait.session.ports import store_at
from plait.session.verdicts import last_verdict
from tests.support import RAN, kinds, parked_session

ANA = "human:ana"


@tool
def judge(session: Session) -> str:
    """Judge it."""
    session.reload().checks.record("tests", True)
    return "judged"


def judging(name: str | None = None) -> Agent:
    return Agent(
        "Judge.", model=ScriptedModel([ToolCall("judge"), "done"]), tools=[judge], name=name
    )


class Coder(Workflow):
    def forward(self, session: Session) -> Session:
        return session.checks.record("tests", True)


class Judge(Workflow):
    def forward(self, session: Session) -> Session:
        return session.checks.record("tests", True)


class Strict(Judge):
    """A judge of its own kind."""


# ── whose verdict counts ─────────────────────────────────────────────────────────────────────


def test_only_the_verdict_of_the_principal_that_is_named_opens_a_gate() -> None:
    session = Session("go", store="memory:").checks.require("tests", by=ANA)
    other = session.checks.record("tests", True, actor="human:ben")
    assert (
        other.checks.unmet["tests"]
        == f"the verdict at {other.seq} is by human:ben and does not count: only that of {ANA}"
        " does"
    )
    with pytest.raises(GateUnmet, match="does not count"):
        other.close()
    (said,) = other.checks.verdicts
    assert (said.actor, said.counts, said.passed) == ("human:ben", False, True)
    hers = other.checks.record("tests", True, actor=ANA)
    assert hers.checks.unmet == {} and [each.counts for each in hers.checks.verdicts] == [
        False,
        True,
    ]
    after = hers.checks.record("tests", False, actor="human:ben")  # nor does it close it again
    assert after.checks.unmet == {} and last_verdict(after, "tests") == (True, hers.seq)
    assert (
        after.checks.record("tests", False, actor=ANA)
        .checks.unmet["tests"]
        .endswith("is that it failed")
    )


class Repair(Workflow):
    """`who` judges, `by` is asked for."""

    def __init__(self, who: str, by: Callable[[Repair], object]) -> None:
        self.coder, self.judge, self.strict, self.a, self.b = (
            Coder(),
            Judge(),
            Strict(),
            judging(),
            judging(),
        )
        self.after = Agent("Go on.", model=ScriptedModel(["went on"]))
        self._who, self._by = who, by

    def forward(self, session: Session) -> Session:
        session = getattr(self, self._who)(session.checks.require("tests", by=self._by(self)))
        return self.after(session)


JUDGED: list[tuple[str, Callable[[Repair], object], bool]] = [
    ("judge", lambda w: w.judge, True),
    ("judge", lambda w: Judge, True),
    ("judge", lambda w: "judge", True),
    ("judge", lambda w: "repair/judge", True),
    ("strict", lambda w: Judge, True),  # one of the class
    ("strict", lambda w: w.judge, False),  # another object
    ("coder", lambda w: w.judge, False),
    ("coder", lambda w: Judge, False),
    ("coder", lambda w: "judge", False),
    ("coder", lambda w: ANA, False),
    ("b", lambda w: w.b, True),
    ("a", lambda w: w.b, False),  # both are agents
]


@pytest.mark.parametrize(("who", "by", "counts"), JUDGED)
def test_only_the_verdict_of_the_workflow_that_is_named_opens_a_gate(
    who: str, by: Callable[[Repair], object], counts: bool
) -> None:
    def made() -> Repair:
        return Repair(who, by)

    session = Session("go", store="memory:")
    if counts:
        done = made()(session)
        assert done.text == "went on" and done.checks.unmet.get("tests", "came after").count(
            "came after"
        )
        assert replay(done, made()).head == done.head
    else:
        held = parked_session(lambda: made()(session))
        assert "went on" not in held.text and (
            not held.checks.verdicts or held.checks.verdicts[-1].counts is False
        )


def test_code_of_a_run_speaks_for_nobody_else() -> None:
    class Forger(Workflow):
        def __init__(self, actor: str, by: str) -> None:
            self.judge, self._actor, self._by = Judge(), actor, by

        def forward(self, session: Session) -> Session:
            session = session.checks.require("tests", by=self._by)
            session = session.checks.record("tests", True, actor=self._actor)
            Session.open(session.id, store=session.store).checks.record(
                "tests", True, actor=self._actor
            )
            return session.sleep(0)

    for actor, by in (
        (ANA, ANA),
        ("service:forger/judge", "judge"),
        ("service:forger/judge", "service:forger/judge"),
    ):
        held = parked_session(
            lambda actor=actor, by=by: Forger(actor, by)(Session("go", store="memory:"))
        )
        assert "does not count" in held.checks.unmet["tests"], (actor, by)


def test_nobody_outside_passes_for_a_workflow() -> None:
    session = Session("go", store="memory:").checks.require("tests", by=Judge)
    for actor in ("service:judge", "service:repair/judge", "human:Judge", "agent:Judge"):
        assert (
            "does not count"
            in session.reload().checks.record("tests", True, actor=actor).checks.unmet["tests"]
        )
    done = Judge()(session.reload())
    assert done.checks.unmet == {}


def test_a_gate_is_not_handed_on() -> None:
    session = Session("go", store="memory:").checks.require("tests", by=ANA)
    with pytest.raises(InvalidValue, match="not handed on"):
        session.checks.require("tests", by="human:ben")
    again = session.checks.require("tests")  # it is asked for once more, of the same
    assert again.checks.gates["tests"].by == ANA
    assert (
        "does not count"
        in again.checks.record("tests", True, actor="human:ben").checks.unmet["tests"]
    )


def test_a_verdict_in_a_branch_opens_no_gate_of_what_it_is_merged_into() -> None:
    session = Session("go", store="memory:").checks.require("tests").checks.record("tests", False)
    side = session.fork("side").fact("x", 1).checks.record("tests", True)
    with pytest.raises(GateUnmet):  # nor is a gate merged around
        session.merge(side)
    late = Session("go", store="memory:")
    branch = late.fork("side").fact("x", 1).checks.record("tests", True)
    judged = late.checks.record("tests", False).merge(branch).checks.require("tests")
    assert judged.checks.unmet["tests"].endswith("is that it failed")


def test_an_agent_without_a_name_is_not_named_by_its_class() -> None:
    session = Session("go", store="memory:")
    with pytest.raises(InvalidValue, match="name="):
        session.checks.require("tests", by=judging())
    assert (
        session.checks.require("tests", by=judging("reviewer")).checks.gates["tests"].by
        == "reviewer"
    )
    assert last_verdict(judging("reviewer")(session.reload()), "tests") is not None


# ── a run that waits ─────────────────────────────────────────────────────────────────────────


class Gated(Workflow):
    def __init__(self, by: str = "") -> None:
        self.worker, self._by = Agent("Go on.", model=ScriptedModel(["went on"])), by

    def forward(self, session: Session) -> Session:
        return self.worker(session.checks.require("tests", by=self._by))


def test_a_run_at_a_gate_waits_like_any_other() -> None:
    session = parked_session(lambda: Gated(ANA)(Session("go")))
    store = store_at(session.store)
    (ask,) = session.inbox.waiting
    assert (ask.kind, ask.name, ask.by, ask.log) == ("verdict", "tests", ANA, session.id)
    assert (
        session.status == "waiting" and all_waiting(store) == [ask] and due_sessions(store, 0) == []
    )
    assert Session.list(status="waiting")[0].id == session.id

    session.checks.record("tests", True, actor="human:ben")  # recorded, and does not count
    session.checks.record("tests", False, actor=ANA)
    assert session.inbox.waiting == [ask] and due_sessions(store, 0) == []
    session = parked_session(lambda: resume(session, Gated(ANA)))
    assert [each.event for each in session.inbox.waiting] == [ask.event] and [
        each.counts for each in session.checks.verdicts
    ] == [False, True]

    session.checks.record("tests", True, actor=ANA)
    assert session.inbox.waiting == [] == all_waiting(store) and due_sessions(store, 0) == [
        session.id
    ]
    done = resume(session, Gated(ANA))
    assert done.text == "went on" and done.status == "finished" and due_sessions(store, 0) == []
    assert (kinds(done).count("VerdictAwaited"), kinds(done).count("VerdictHeard")) == (1, 1)
    assert replay(done, Gated(ANA)).head == done.head
    assert list(verify(store, state=True)) == []


def test_a_gate_that_is_required_from_outside_holds_the_run_and_ends_with_it() -> None:
    class Waits(Workflow):
        def forward(self, session: Session) -> Session:
            return session.wait_for("go").sleep(0)

    session = parked_session(lambda: Waits()(Session("go")))
    session.checks.require("tests").inbox.signal("go")
    session = parked_session(lambda: resume(session, Waits()))
    assert [ask.kind for ask in session.inbox.waiting] == ["timer", "verdict"]
    session.inbox.cancel("never mind")
    assert (
        session.reload().inbox.waiting == [] == all_waiting(store_at(session.store))
        and session.reload().status == "cancelled"
    )


class Merging(Workflow):
    def forward(self, session: Session) -> Session:
        branch = session.fork("side").fact("done", True).checks.require("review", by=ANA)
        return session.merge(branch).fact("merged", True)


def test_a_merge_that_waits_for_a_verdict_is_due_when_it_is_there() -> None:
    session = parked_session(lambda: Merging()(Session("go")))
    store = store_at(session.store)
    (ask,) = session.inbox.waiting
    assert ask.of is not None
    branch = Session.open(ask.of)
    assert branch.lineage.label == "side" and session.status == "waiting"
    branch.checks.record("review", True, actor="human:ben")
    session = parked_session(lambda: resume(session, Merging()))
    branch.reload().checks.record("review", True, actor=ANA)
    assert due_sessions(store, 0) == [session.id] and all_waiting(store) == []
    done = resume(session, Merging())
    assert done.facts["merged"] is True and done.facts["done"] is True and done.status == "finished"
    assert replay(done, Merging()).head == done.head
    assert list(verify(store, state=True)) == []


def test_a_verdict_is_about_the_place_it_was_given_at() -> None:
    session = parked_session(lambda: Merging()(Session("go")))
    branch = Session.open(session.inbox.waiting[0].of or "")
    # what was sent is not in what she saw
    branch.inbox.send("One more thing.").checks.record("review", True, actor=ANA)
    session = parked_session(lambda: resume(session, Merging()))
    assert due_sessions(store_at(session.store), 0) == [] and len(session.inbox.waiting) == 1
    branch.reload().checks.record("review", True, actor=ANA)
    assert resume(session, Merging()).facts["merged"] is True


def test_a_tool_does_not_wait_at_a_gate() -> None:
    @tool
    def merges(session: Session) -> str:
        side = session.fork("side").fact("done", True).checks.require("review")
        session.merge(side)
        return "merged"

    class Uses(Workflow):
        def forward(self, session: Session) -> Session:
            return session.use(merges)

    with pytest.raises(ToolFailed, match="GateUnmet"):
        Uses()(Session("go", store="memory:"))


# ── a Parallel in which one branch waits, and another failed ─────────────────────────────────

BROKEN = [True]


@pytest.fixture(autouse=True)
def anew() -> None:
    BROKEN[:] = [True]


@tool
def pay(amount: int) -> str:
    RAN.append(amount)
    return f"paid {amount}"


class Pays(Workflow):
    policy = Policy(Ask("pay"))

    def forward(self, session: Session) -> Session:
        return session.use(pay, amount=9)


class Sleeps(Workflow):
    def forward(self, session: Session) -> Session:
        return session.sleep(3600).fact("slept", True)


class Listens(Workflow):
    def forward(self, session: Session) -> Session:
        return session.wait_for("go", timeout_s=10**6).fact("heard", True)


class Fails(Workflow):
    """Fails after the others came to wait, as often as it is broken."""

    def forward(self, session: Session) -> Session:
        session = session.use(wait_for_others)
        if BROKEN[0]:
            raise RuntimeError("broken")
        return session


@tool(effect="pure")
def wait_for_others(session: Session) -> None:
    while len(all_waiting(store_at(session.store))) < 1:
        pass


@pytest.mark.parametrize("again", [1, 2])
@pytest.mark.parametrize("waits", [Pays, Sleeps, Listens])
def test_a_branch_that_waits_still_does_when_another_failed(
    waits: type[Workflow], again: int
) -> None:
    def made() -> Parallel:
        return Parallel(waits=waits(), fails=Fails())

    session = Session("go")
    with pytest.raises(Exception, match="broken"):
        made()(session)
    store = store_at(session.store)
    assert all_waiting(store) == [] and due_sessions(store, 2**60) == []  # its run is over, for now
    for _ in range(again - 1):
        with pytest.raises(Exception, match="broken"):
            resume(session, made())
        assert all_waiting(store) == []
    BROKEN[:] = [False]
    parked_session(lambda: resume(session, made()))
    (ask,) = all_waiting(store)
    branch = Session.open(ask.log)
    assert branch.inbox.waiting == [ask] and branch.status == "waiting"
    if waits is Pays:
        branch.inbox.approve(ask, actor=ANA)
    elif waits is Listens:
        branch.inbox.signal("go")
    assert due_sessions(store, 2**60 if waits is Sleeps else 0) == [branch.id]
    assert list(verify(store, state=True)) == []
    if waits is not Sleeps:
        done = resume(session, made())
        assert (
            done.runs[-1].status == "finished"
            and all_waiting(store) == []
            and due_sessions(store, 2**60) == []
        )
        assert RAN == ([9] if waits is Pays else [])


def test_the_words_of_the_new_kinds() -> None:
    session = parked_session(lambda: Gated(ANA)(Session("go", store="memory:")))
    (body,) = [event.body for event in session.events if event.kind == VerdictAwaited.__name__]
    assert isinstance(body, VerdictAwaited) and (body.name, body.by) == ("tests", ANA)
    assert VerdictHeard.__name__ not in kinds(session)


# ── branches ─────────────────────────────────────────────────────────────────────────────────


@tool
def wire_from_branch(amount: int) -> str:
    """Wire."""
    return f"{amount} wired"


class PaysInBranch(Workflow):
    policy = Policy(Ask("wire_from_branch"))

    def forward(self, session: Session) -> Session:
        return session.merge(session.fork("pay").use(wire_from_branch, amount=7))


def test_what_a_branch_of_its_run_waits_for_can_be_approved_by_its_session() -> None:
    with pytest.raises(Parked) as stop:
        PaysInBranch()(Session("go", store="memory:"))
    session = stop.value.session
    (ask,) = session.inbox.waiting
    assert ask.kind == "approval" and ask.log != session.id
    session.inbox.approve(ask, actor=ANA)
    assert session.inbox.waiting == []
    assert [effect.tool for effect in resume(session, PaysInBranch()).effects] == [
        "wire_from_branch"
    ]
