"""The one way into a run: calls as data, and runs recorded when modules were elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plait import Parallel, Selector, Sequential, Session, Workflow, replay, resume, tool
from plait.errors import InvalidValue, NeedsWorkflow
from plait.event import kinds as k
from plait.fingerprint import fingerprint
from plait.fingerprint.ownership import home_of
from plait.inside import is_code_of_run
from plait.policy import Ask, Policy
from plait.program import load
from plait.runtime.invoke import ainvoke, invoke
from plait.session.inbox import all_waiting
from plait.session.ports import store_at
from plait.workflow import original
from tests.support import RAN, assert_replays, bodies, kinds, parked_session, speaker


@tool(effect="at_most_once")
def pay(amount: int) -> str:
    """Pay somebody."""
    RAN.append(amount)
    return f"paid {amount}"


class Paying(Workflow):
    policy = Policy(Ask("pay", reason="money leaves the house"))

    def forward(self, session: Session, amount: int = 90) -> Session:
        session = session.use(pay, amount=amount)
        return session.fact("paid", session.result)


class Noting(Workflow):
    def forward(self, session: Session) -> Session:
        return session.fact("noted", True)


# ── calls as data ────────────────────────────────────────────────────────────────────────────


def test_describing_a_call_writes_nothing_and_making_it_is_the_same_on_a_loop() -> None:
    session = Session("go")
    call = Noting().invocation(session)
    assert session.reload() == session and call.name == "noting"
    noted, again = invoke(call), asyncio.run(ainvoke(Noting().invocation(Session("go"))))
    assert noted.facts["noted"] and kinds(noted) == kinds(again)


def test_arguments_that_forward_does_not_take_are_refused_on_a_loop_too() -> None:
    for agent in (speaker("x"), Sequential(Noting()), Parallel(a=Noting())):
        session = Session("go")
        with pytest.raises(InvalidValue, match="its forward does not take that"):
            agent(session, 5)
        with pytest.raises(InvalidValue, match="its forward does not take that"):
            asyncio.run(agent.acall(session, 5))
        assert session.reload().head == session.head


def test_a_stream_asks_the_approver_that_it_is_given() -> None:
    def allow(ask: Any) -> bool:
        return True

    *_, last = Paying().stream(Session("go"), 7, approver=allow)
    assert isinstance(last, Session) and last.facts["paid"] == "paid 7"

    async def streamed() -> list[Any]:
        return [item async for item in Paying().astream(Session("go"), 8, approver=allow)]

    assert asyncio.run(streamed())[-1].facts["paid"] == "paid 8" and RAN == [7, 8]


def test_a_rule_of_an_outermost_selector_is_code_of_its_run() -> None:
    seen: list[bool] = []

    def rule(session: Session) -> str:
        seen.append(is_code_of_run())
        return "note"

    choice = Selector(note=Noting(), rule=rule)(Session("go"))
    assert seen == [True] and not is_code_of_run() and choice().facts["noted"]


# ── modules that were elsewhere ──────────────────────────────────────────────────────────────

FLOW = """
from plait import Parallel, Sequential, tool
from tests.runtime.test_invocations import Noting, Paying
Sequential_flow = Sequential(note=Noting(), pay=Paying())
Parallel_flow = Parallel(note=Noting(), pay=Paying())
"""


@pytest.mark.parametrize("kind", [Sequential, Parallel])
def test_a_run_resumes_that_was_recorded_when_combinators_were_in_plait_workflow(
    kind: type[Sequential | Parallel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flows.py").write_text(FLOW)
    flow = kind(note=Noting(), pay=Paying())
    loaded = load(f"{tmp_path / 'flows.py'}:{kind.__name__}_flow")
    with monkeypatch.context() as before:
        before.setattr(kind, "__module__", "plait.workflow")
        unnamed = parked_session(lambda: flow(Session("go")))
        named = parked_session(lambda: loaded(Session("go")))
    for session in (unnamed, named):
        old = f"plait.workflow:{kind.__name__}"
        assert bodies(session, k.RunStarted)[0].workflow == old
        # that of a Parallel is deferred until its branches are merged
        assert {body.workflow for body in bodies(session, k.CallStarted)[:1]} <= {old}
    for ask in all_waiting(store_at(unnamed.store)):
        Session.open(ask.log).inbox.approve(ask)
    with pytest.raises(NeedsWorkflow):  # its members are not on record, and never were
        resume(unnamed)
    paid = resume(unnamed, flow)
    assert paid.facts == {"noted": True, "paid": "paid 90"}
    assert_replays(paid, flow)
    again = resume(named)
    assert again.facts == paid.facts and replay(again).head == again.head and RAN == [90, 90]


def test_digests_name_the_combinators_as_before_and_read_forward_as_it_was_written() -> None:
    assert {home_of(Sequential), home_of(Parallel)} == {"plait.workflow"}
    assert fingerprint(Noting.forward) == fingerprint(original(Noting))


def test_a_combinator_describes_itself_only_if_told_how() -> None:
    class Named(Sequential):
        """Note it down."""

    assert Sequential(Noting()).describe() == Parallel(Noting()).describe() == ""
    assert Named(Noting()).describe() == "Note it down."
    described = Parallel(Noting())
    described.description = "Both at once."  # pyright: ignore[reportAttributeAccessIssue]
    assert described.describe() == "Both at once."
