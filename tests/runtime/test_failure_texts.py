"""The texts of failures: those on record have no steps that only a caller in Python can take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plait import Parallel, Session, Workflow, replay, tool
from plait.errors import (
    BranchFailed,
    BudgetExceeded,
    ChoiceInvalid,
    EffectError,
    ModelFailed,
    ReplayDiverged,
    ResultInvalid,
    ToolFailed,
    TurnFailed,
)


@tool
def wire(to: str) -> str:
    """Send money."""
    raise ValueError(f"{to} is not known.")


class Pays(Workflow):
    def forward(self, session: Session) -> Session:
        return session.use(wire, to="ACME")


def test_the_caller_is_told_the_step_and_the_log_is_not() -> None:
    with pytest.raises(ToolFailed, match="go on from error.session") as raised:
        Pays()(Session("Pay.", store="memory:"))
    failed = raised.value.session.events[-1]
    assert failed.kind == "RunFailed"
    assert failed.body.failure.message == "wire failed: ValueError: ACME is not known."
    with pytest.raises(BranchFailed, match=r"error\.branches") as raised_by_branch:
        Parallel(pays=Pays())(Session("Pay.", store="memory:"))
    ended = raised_by_branch.value.session.events[-1].body.failure.message
    assert "ACME is not known. Nothing was merged." in ended and "error." not in ended


@pytest.mark.parametrize(
    "error",
    [
        ModelFailed("m", "Timeout", "it took too long.", 2),
        ResultInvalid("a", "int", "no number."),
        ChoiceInvalid("s", "x", ("a", "b")),
        BudgetExceeded("steps", 1, 0),
        ToolFailed("t", "E", "no"),
    ],
)
def test_no_record_text_speaks_of_python(error: EffectError) -> None:
    assert str(error).endswith("error.session.")
    assert "error.session" not in error.record_text and error.record_text.endswith(".")
    assert ".." not in str(TurnFailed("abc", 3, error.record_text))


OLD_STEPS = [
    "It is recorded; go on from error.session.",
    "The answers are recorded; ask for less, or go on from error.session.",
]


@pytest.mark.parametrize("step", OLD_STEPS)
def test_a_run_whose_record_has_the_step_replays(step: str) -> None:
    def raising(text: str) -> Callable[[], Workflow]:
        class Fails(Workflow):
            def forward(self, session: Session) -> Session:
                raise ValueError(text)

        class Catches(Workflow):
            def __init__(self) -> None:
                self.fails = Fails()

            def forward(self, session: Session) -> Session:
                try:
                    return self.fails(session)
                except ValueError:
                    return session.reload().fact("caught", True)

        return Catches

    before, after, other = (
        raising(text)() for text in (f"wire failed. {step}", "wire failed.", "wire is gone.")
    )
    session = before(Session("x", store="memory:"))
    assert replay(session, after).head == session.head
    with pytest.raises(ReplayDiverged):
        replay(session, other)
