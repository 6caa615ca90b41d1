# pyright: basic, reportMissingImports=false
"""A RoundRobinGroupChat on a replay client: reads a case on standard input, prints who said what.

Run by AutoGen's own Python.
"""

import asyncio
import json
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient


async def main(case):
    agents = [
        AssistantAgent(
            name,
            model_client=ReplayChatCompletionClient(texts),
            system_message=f"You are the {name}.",
        )
        for name, texts in case["agents"].items()
    ]
    # The limit counts the task as a message, too.
    condition = TextMentionTermination(case["word"]) | MaxMessageTermination(case["turns_max"] + 1)
    result = await RoundRobinGroupChat(agents, termination_condition=condition).run(
        task=case["task"]
    )
    return [
        [message.source, message.content]
        for message in result.messages
        if isinstance(message, TextMessage)
    ]


print(json.dumps([asyncio.run(main(case)) for case in json.load(sys.stdin)]))
