"""Handoffs: the first agent looks at the language and hands the conversation over; the answer is
streamed, and later turns stay with the agent that has the conversation.

It needs a model: `PLAIT_MODEL=openai:gpt-5 python examples/handoffs.py`.
"""

from __future__ import annotations

from plait import Agent, Session
from plait.event.kinds import HandedOff
from plait.model.base import TextDelta

french = Agent("You speak French only.", name="french", description="Speaks French.")
spanish = Agent("You speak Spanish only.", name="spanish", description="Speaks Spanish.")
english = Agent("You speak English only.", name="english", description="Speaks English.")
triage = Agent(
    "Hand the conversation over to the agent that speaks the language of the message.",
    name="triage",
    handoffs=[french, spanish, english],
)


def answer(session: Session) -> Session:
    """Print the answer as it comes, and return the session after it."""
    for item in triage.stream(session):
        if isinstance(item, TextDelta):
            print(item.text, end="", flush=True)
        elif isinstance(item, Session):
            session = item
    print()
    return session


def main() -> None:
    session = Session(store="memory:")
    for text in ("Bonjour, quelle heure est-il ?", "Merci !"):
        session = answer(session.say(text))
    for event in session.events:
        body = event.body
        if isinstance(body, HandedOff):
            print(f"to {body.to}, because {body.reason}")


if __name__ == "__main__":
    main()
