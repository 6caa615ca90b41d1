"""Code that serves runs that began before a change and after it: `patched` and `version`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plait import Parallel, Session, Workflow, patched, resume, tool, whatif
from plait.errors import InvalidValue, NoRun, ReplayDiverged
from plait.event import kinds as k
from plait.runs.check import check_runs
from plait.session.ports import store_at
from tests.support import assert_replays, bodies, kinds, parked_session


@tool(effect="pure")
def look() -> str:
    """Look."""
    return "nothing"


Step = Callable[[Session], Session]


class Shop(Workflow):
    """Asks twice, with something in between."""

    def __init__(self, between: Step) -> None:
        self.between = between

    def forward(self, session: Session) -> Session:
        session = session.ask("First?")
        session = self.between(session)
        return session.ask("Second?").fact("end", True)


def _as_before(session: Session) -> Session:
    return session.fact("tax", 7)


def _as_now(session: Session) -> Session:
    return session.fact("tax", 19)


def _both(session: Session) -> Session:
    return _as_now(session) if patched("tax") else _as_before(session)


def _answered(session: Session, program: Workflow) -> Session:
    session.inbox.answer(session.inbox.waiting[0], "yes", actor="human:ann")
    return resume(session, program)


def test_a_new_run_executes_the_new_code_and_says_so() -> None:
    session = parked_session(lambda: Shop(_both)(Session("Buy.")))
    session = parked_session(lambda: _answered(session, Shop(_both)))
    assert [body.name for body in bodies(session, k.PatchMarked)] == ["tax"]
    assert session.facts["tax"] == 19
    session = _answered(session, Shop(_both))
    assert_replays(session, Shop(_both))
    # without the old code, and without the patch, it is the same program
    assert_replays(session, Shop(_as_now))
    with pytest.raises(ReplayDiverged):
        assert_replays(session, Shop(_as_before))


def test_a_run_that_passed_the_old_code_stays_with_it() -> None:
    session = parked_session(lambda: Shop(_as_before)(Session("Buy.")))
    session = parked_session(lambda: _answered(session, Shop(_as_before)))
    (checked,) = check_runs(store_at(session.store))
    assert checked.why and not checked.patches  # no program without arguments
    session = _answered(session, Shop(_both))
    assert session.facts["tax"] == 7 and "PatchMarked" not in kinds(session)
    assert_replays(session, Shop(_both))


def test_a_run_that_has_not_come_there_executes_the_new_code() -> None:
    session = parked_session(lambda: Shop(_as_before)(Session("Buy.")))
    session = parked_session(lambda: _answered(session, Shop(_both)))
    assert session.facts["tax"] == 19
    ended = _answered(session, Shop(_both))
    at = ended.events.where("QuestionAnswered")[-1].seq
    branch = whatif(ended, Shop(_both), at=at, effects="live")
    assert branch.facts["tax"] == 19 and branch.facts["end"] is True


def test_branches_decide_for_themselves() -> None:
    class Side(Workflow):
        def __init__(self, key: str) -> None:
            self.key = key

        def forward(self, session: Session) -> Session:
            return session.fact(self.key, patched("side")).use(look)

    class Both(Workflow):
        def __init__(self) -> None:
            self.sides = Parallel(one=Side("one"), other=Side("other"))

        def forward(self, session: Session) -> Session:
            session = self.sides(session)
            branch = session.fork("hand").use(look)
            return session.merge(branch.fact("hand", patched("by hand", branch)))

    session = Both()(Session("Go."))
    assert {name: session.facts[name] for name in ("one", "other", "hand")} == {
        "one": True,
        "other": True,
        "hand": True,
    }
    assert_replays(session, Both())


def test_outside_of_a_run() -> None:
    with pytest.raises(NoRun):
        patched("tax")
    with pytest.raises(NoRun):
        patched("tax", Session("Buy."))


@pytest.mark.parametrize("name", ["", None, 7, "x" * 300])
def test_a_patch_has_a_name(name: Any) -> None:
    with pytest.raises(InvalidValue):
        patched(name)


def test_the_version_of_a_workflow_is_on_record_and_no_difference() -> None:
    class Old(Workflow):
        def forward(self, session: Session) -> Session:
            return session.ask("Go on?")

    class New(Old):
        version = "2"

    New.__qualname__ = Old.__qualname__
    New.__name__ = Old.__name__
    session = New()(Session("Go."), answerer=lambda question, choices: "yes")
    assert [body.version for body in bodies(session, k.RunStarted)] == ["2"]
    assert [body.version for body in bodies(session, k.CallStarted)] == ["2"]
    session = parked_session(lambda: Old()(Session("Go.")))
    assert _answered(session, New()).result == "yes"
    with pytest.raises(InvalidValue):
        New().version = 2  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InvalidValue):
        type("Wrong", (Workflow,), {"version": 3})
