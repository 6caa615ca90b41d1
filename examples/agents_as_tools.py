"""Agents as tools: one agent leads, and calls translators side by side, each in a branch.

It needs a model: `PLAIT_MODEL=openai:gpt-5 python examples/agents_as_tools.py`.
"""

from __future__ import annotations

from plait import Agent, Sequential, Session
from plait.tool import Tool

LANGUAGES = ("Spanish", "French", "Italian")


def translator(language: str) -> Tool[..., str]:
    agent = Agent(f"Translate the message to {language}. Say nothing else.", view="branch")
    name = f"translate_to_{language.lower()}"
    return agent.as_tool(name=name, description=f"Translates a message to {language}.")


lead = Agent(
    "Translate with your tools, all languages at once, and never by yourself.",
    tools=map(translator, LANGUAGES),
    tool_choice="required",
)
check = Agent("Look at the translations, correct them, and put them into one answer.")
team = Sequential(lead=lead, check=check)


def main() -> None:
    session = team(Session("Translate 'Hello, world!' to French and Spanish.", store="memory:"))
    for effect in session.effects:
        print(f"{effect.tool}: {effect.result}")
    print(session.text)


if __name__ == "__main__":
    main()
