"""A payment that needs consent: the run waits without a process, a person approves, it goes on, and
can be replayed.

`python examples/approval.py` needs no key and no network, and prints:

    waits: wire {'amount': 120, 'to': 'ACME'}, because of large amounts
    sent so far: []
    ACME is paid.
    sent: [('ACME', 120)], approved by human:ann
    replayed: the same head, sent: [('ACME', 120)]
"""

from __future__ import annotations

from typing import Any

from plait import (
    Agent,
    Parked,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    replay,
    resume,
    tool,
)
from plait.policy import Ask, Policy

SENT: list[tuple[str, int]] = []  # stands for the world


@tool
def wire(to: str, amount: int) -> str:
    """Send money."""
    SENT.append((to, amount))
    return f"{amount} sent to {to}"


class Pay(Workflow):
    policy = Policy(
        Ask(
            "wire",
            when=lambda call: call.arguments["amount"] > 100,
            name="large amounts",
            expires_s=86_400,
        )
    )

    def __init__(self) -> None:
        # With a key, say model="openai:gpt-5" instead of a script.
        script = ScriptedModel([ToolCall("wire", to="ACME", amount=120), "ACME is paid."])
        self.clerk = Agent("Pay what is due.", model=script, tools=[wire])

    def forward(self, session: Session) -> Session:
        return self.clerk(session)


def parked(session: Session) -> Session:
    """Run until a person has to decide."""
    try:
        return Pay()(session)
    except Parked as waits:
        return waits.session


def main() -> None:
    session = parked(Session("Pay the invoice of ACME.", store="memory:approval"))
    ask = session.inbox.waiting[0]
    shown: Any = ask.shown
    print(f"waits: {shown['tool']} {shown['arguments']}, because of {shown['rule']}")
    print(f"sent so far: {SENT}")
    session.inbox.approve(
        ask, actor="human:ann"
    )  # from anywhere: `plait inbox`, `plait approve ID`
    session = resume(session)  # with a store on disk: in any process, after a kill -9 as well
    print(session.text)
    print(f"sent: {SENT}, approved by {session.events.where('ApprovalGranted')[0].actor}")
    print(
        f"replayed: {'the same head' if replay(session).head == session.head else 'another'}, sent:"
        f" {SENT}"
    )


if __name__ == "__main__":
    main()
