"""Consent that can never count parks the run: it is not asked for again without end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from plait import Session, Workflow, tool
from plait.policy import Approval, Ask, Granted, Policy
from plait.tool import Tool
from tests.support import RAN, parked_session


@tool
def wire(amount: int) -> str:
    """Wire."""
    RAN.append(amount)
    return "ok"


class Pay(Workflow):
    policy = Policy(Ask("wire"))

    def forward(self, session: Session) -> Session:
        return session.use(wire, amount=1)


def test_an_approver_whose_edits_never_fit_is_asked_once() -> None:
    asked: list[Approval] = []

    def edit(approval: Approval) -> Granted:
        asked.append(approval)
        assert len(asked) < 5, "asked for ever"
        return Granted(edited={"amount": "much"})

    session = parked_session(lambda: Pay()(Session("go", store="memory:"), approver=edit))
    assert len(asked) == 1 and RAN == []
    assert "does not fit" in str(session.inbox.waiting[0].shown)


def grant(approval: Approval) -> bool:
    return True


@pytest.mark.parametrize("approver", [None, grant])
def test_a_tool_that_is_another_whenever_it_is_looked_at(
    approver: Callable[[Approval], Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = count()

    def version(self: Tool[..., Any]) -> str:
        look = next(looks)
        assert look < 200, "looked at for ever"
        return f"version {look}"

    monkeypatch.setattr(Tool, "version", property(version))
    session = parked_session(lambda: Pay()(Session("go", store="memory:"), approver=approver))
    assert RAN == [] and session.inbox.waiting[0].kind == "approval"
