"""A run that ended because a model's answer would not do is taken up again: the model is asked
again.
"""

from __future__ import annotations

from typing import Any

import pytest

from plait import Agent, Parallel, ScriptedModel, Selector, Session, Workflow
from plait.errors import BranchFailed, ChoiceInvalid, ResultInvalid
from plait.runs.replay import replay
from plait.runs.resume import resume

WRONG = ["no", "neither", "nor this"]


def counting(script: list[Any], **more: Any) -> Agent:
    return Agent("Count.", model=ScriptedModel(script), returns=int, name="counter", **more)


class Chooses(Workflow):
    def __init__(self, script: list[Any]) -> None:
        self.selector = Selector(
            left=Agent("L", model=ScriptedModel(["left it is"])),
            done=None,
            model=ScriptedModel(script),
        )

    def forward(self, session: Session) -> Session:
        return self.selector(session)()


def test_an_answer_of_the_wrong_type_is_asked_for_again() -> None:
    session = Session("go", store="memory:")
    with pytest.raises(ResultInvalid):
        counting(WRONG)(session)
    with pytest.raises(ResultInvalid):  # three more, as wrong
        resume(session, counting([*WRONG, *WRONG]))
    assert replay(session.reload(), counting([])).head == session.reload().head
    done = resume(session, counting([*WRONG, *WRONG, "7"]))
    assert done.result == 7 and done.runs[-1].status == "finished"
    assert replay(done, counting([])).head == done.head


def test_an_answer_after_the_last_step_is_asked_for_again() -> None:
    session = Session("go", store="memory:")
    with pytest.raises(ResultInvalid):
        counting(["no", "nor"], steps_max=1)(session)
    assert resume(session, counting(["no", "nor", "7"], steps_max=1)).result == 7


def test_a_choice_of_what_is_not_there_is_asked_for_again() -> None:
    session = Session("go", store="memory:")
    with pytest.raises(ChoiceInvalid):
        Chooses(WRONG)(session)
    with pytest.raises(ChoiceInvalid):
        resume(session, Chooses([*WRONG, *WRONG]))
    done = resume(session, Chooses([*WRONG, *WRONG, "left"]))
    assert done.text == "left it is"
    assert replay(done, Chooses([])).head == done.head


def test_in_a_branch_too() -> None:
    def both(script: list[Any]) -> Parallel:
        return Parallel(counter=counting(script), other=Agent("O", model=ScriptedModel(["other"])))

    session = Session("go", store="memory:")
    with pytest.raises(BranchFailed):
        both(WRONG)(session)
    done = resume(session, both([*WRONG, "7"]))
    assert {message.text for message in done.messages} >= {"7", "other"}
    assert replay(done, both([])).head == done.head


class Catches(Workflow):
    def __init__(self, script: list[Any], *, broken: bool) -> None:
        self.counter, self._broken = counting(script), broken

    def forward(self, session: Session) -> Session:
        try:
            session = self.counter(session)
        except ResultInvalid as error:
            assert isinstance(error.session, Session)
            session = error.session.fact("caught", True)
        if self._broken:
            raise RuntimeError("something else")
        return session


def test_what_the_program_caught_is_not_asked_again() -> None:
    session = Session("go", store="memory:")
    with pytest.raises(RuntimeError):
        Catches(WRONG, broken=True)(session)
    done = resume(session, Catches([*WRONG, "7"], broken=False))
    assert done.facts["caught"] is True and done.result != 7
    assert replay(done, Catches([], broken=False)).head == done.head


def test_a_rule_that_chose_wrongly_is_called_again_and_nothing_else() -> None:
    def ruled(name: str) -> Selector:
        return Selector(
            left=Agent("L", model=ScriptedModel(["left it is"])), rule=lambda session: name
        )

    class Ruled(Workflow):
        def __init__(self, name: str) -> None:
            self.selector = ruled(name)

        def forward(self, session: Session) -> Session:
            return self.selector(session)()

    session = Session("go", store="memory:")
    with pytest.raises(ChoiceInvalid):
        Ruled("nowhere")(session)
    assert resume(session, Ruled("left")).text == "left it is"
