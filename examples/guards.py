"""Guards: an agent looks at the input first, and a function at the answer. A refusal is on record
with its reason; a rejected answer is asked for again.

It needs a model: `PLAIT_MODEL=openai:gpt-5 python examples/guards.py`.
"""

from __future__ import annotations

from plait import Agent, Reject, Session
from plait.errors import GuardRefused

homework = Agent(
    "Does the last message ask you to solve a homework exercise in mathematics? Pass all others.",
    name="homework",
)


def no_phone_number(session: Session, text: str) -> Reject | None:
    return Reject("it shows a phone number") if "650" in text else None


support = Agent(
    "You help customers with their questions.",
    name="support",
    before=[homework],
    after=[no_phone_number],
)


def main() -> None:
    session = Session(store="memory:")
    for text in (
        "What is the capital of California?",
        "Solve for x: 2x + 5 = 11",
        "My number is 650-123-4567. Where do I live?",
    ):
        try:
            session = support(session.say(text))
        except GuardRefused as error:
            session = error.session.say(f"Sorry: {error.reason}.", role="assistant")
        print(session.text)


if __name__ == "__main__":
    main()
