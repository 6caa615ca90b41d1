# pyright: basic, reportMissingImports=false
"""AutoGen's own team, whose turns are on record elsewhere: run by AutoGen's Python.

The first line on standard input is a case. For each turn a line asks for it: the answer is the text
of a turn that is on record, or null; then the replay client is asked, and its text is a line. The
last line has the messages. A file keeps a line for each turn that the client was asked for.
"""

import asyncio
import json
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient


def tell(document):
    print(json.dumps(document), flush=True)


def keep_line(path, line):
    with open(path, "a") as lines:
        lines.write(line)


class RecordedClient(ReplayChatCompletionClient):
    """Asks for the record first, and itself where there is none."""

    def __init__(self, name, texts, asked):
        super().__init__(texts)
        self.name, self.texts, self.asked, self.turn = name, texts, asked, 0

    async def create(self, messages, **how):
        self.turn += 1
        tell({"agent": self.name, "turn": self.turn})
        text = json.loads(sys.stdin.readline())
        if text is not None:
            usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
            return CreateResult(finish_reason="stop", content=text, usage=usage, cached=True)
        keep_line(self.asked, f"{self.name} {self.turn}\n")
        rest = ReplayChatCompletionClient(self.texts[self.turn - 1 :])
        result = await rest.create(messages, **how)
        tell({"text": result.content})
        return result


async def main(case):
    agents = [
        AssistantAgent(
            name,
            model_client=RecordedClient(name, texts, case["asked"]),
            system_message=f"You are the {name}.",
        )
        for name, texts in case["agents"].items()
    ]
    condition = TextMentionTermination(case["word"]) | MaxMessageTermination(case["turns_max"] + 1)
    team = RoundRobinGroupChat(agents, termination_condition=condition)
    result = await team.run(task=case["task"])
    messages = [message for message in result.messages if isinstance(message, TextMessage)]
    tell({"messages": [[message.source, message.content] for message in messages]})


asyncio.run(main(json.loads(sys.stdin.readline())))
