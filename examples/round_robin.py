"""A round-robin team: the agents take turns until one of them says the word. It is a loop, so it is
written as one.

`python examples/round_robin.py` needs no key and no network, and prints:

    user    Write a line about the sea.
    writer  The sea is big.
    critic  Too plain. What does it do?
    writer  The sea keeps every secret it is told.
    critic  APPROVE
"""

from __future__ import annotations

from itertools import cycle, islice

from plait import Agent, ScriptedModel, Session, Workflow


class RoundRobin(Workflow):
    def __init__(self, word: str, turns_max: int, **agents: Agent) -> None:
        self.word, self.turns_max, self.agents = word, turns_max, agents

    def forward(self, session: Session) -> Session:
        for agent in islice(cycle(self.agents.values()), self.turns_max):
            if self.word in session.text:  # what was said last
                break
            session = agent(session)
        return session


def transcript(session: Session) -> list[tuple[str, str]]:
    """Return the speakers and their texts.

    An agent is named by its path, roundrobin/agents.writer: the last word of it is shown.
    """
    return [
        (message.name.replace("/", ".").rpartition(".")[2] or "user", message.text)
        for message in session.messages
    ]


def main() -> None:
    # With a key, say model="openai:gpt-5" instead of a script.
    writer = Agent(
        "You write one line at a time.",
        model=ScriptedModel(["The sea is big.", "The sea keeps every secret it is told."]),
    )
    critic = Agent(
        "Say what is weak, or APPROVE.",
        model=ScriptedModel(["Too plain. What does it do?", "APPROVE"]),
    )
    team = RoundRobin("APPROVE", 10, writer=writer, critic=critic)
    for speaker, text in transcript(team(Session("Write a line about the sea.", store="memory:"))):
        print(f"{speaker:6}  {text}")


if __name__ == "__main__":
    main()
