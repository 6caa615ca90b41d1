"""A supervisor: a model decides who is next, every decision is on record with its reason, and at
the end it answers itself.

`python examples/supervisor.py` needs no key and no network, and prints:

    user        How high is Mont Blanc, in feet?
    researcher  Mont Blanc is 4,806 m high.
    calculator  4,806 m are 15,768 ft.
    answer      About 15,800 feet.

    researcher, because the height is not known yet
    calculator, because metres are not feet
    done, because both figures are there
"""

from __future__ import annotations

from plait import Agent, ScriptedModel, Selector, Session, ToolCall, Workflow, tool
from plait.event.kinds import RouteSelected
from plait.model.base import Model


class Supervisor(Workflow):
    def __init__(self, choosing: str | Model, answering: str | Model, **workers: Workflow) -> None:
        self.choose = Selector(workers, model=choosing)
        self.answer = Agent("Answer the user from what the others found out.", model=answering)

    def forward(self, session: Session) -> Session:
        while not (choice := self.choose(session)).done:
            session = choice()  # runs whom it chose
        return self.answer(choice.session)


@tool(effect="pure")
def feet(metres: float) -> int:
    """Metres in feet."""
    return round(metres / 0.3048)


def transcript(session: Session) -> list[tuple[str, str]]:
    """Return the speakers, by the last name of their path, and their texts; calls are left out."""
    return [
        (message.name.rpartition("/")[2] or "user", message.text)
        for message in session.messages
        if message.text
    ]


def routes(session: Session) -> list[RouteSelected]:
    """The decisions, in order."""
    return [event.body for event in session.lineage.path if isinstance(event.body, RouteSelected)]


def main() -> None:
    # With a key, say "openai:gpt-5" instead of the scripts.
    researcher = Agent(
        "You know the heights of mountains.", model=ScriptedModel(["Mont Blanc is 4,806 m high."])
    )
    converted = ScriptedModel([ToolCall("feet", metres=4806), "4,806 m are 15,768 ft."])
    calculator = Agent("You convert units with your tool.", model=converted, tools=[feet])
    choosing = ScriptedModel(
        [
            '{"reason": "the height is not known yet", "choice": "researcher"}',
            '{"reason": "metres are not feet", "choice": "calculator"}',
            '{"reason": "both figures are there", "choice": "done"}',
        ]
    )
    team = Supervisor(
        choosing,
        ScriptedModel(["About 15,800 feet."]),
        researcher=researcher,
        calculator=calculator,
    )
    session = team(Session("How high is Mont Blanc, in feet?", store="memory:"))
    for speaker, text in transcript(session):
        print(f"{speaker:10}  {text}")
    print()
    for route in routes(session):
        print(f"{route.choice}, because {route.reason}")


if __name__ == "__main__":
    main()
