# pyright: basic, reportMissingImports=false
"""A supervisor of langgraph-supervisor on a scripted chat model: reads cases on standard input,
prints handoffs and who said what.

Run by LangGraph's own Python.
"""

import json
import sys

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent
from langgraph_supervisor import create_supervisor
from langgraph_supervisor.handoff import (
    METADATA_KEY_HANDOFF_DESTINATION,
    METADATA_KEY_IS_HANDOFF_BACK,
)


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self  # it calls what the script says


@tool
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


def asks(name, at, arguments=None):
    return AIMessage(
        "", tool_calls=[{"name": name, "args": arguments or {}, "id": f"call-{name}-{at}"}]
    )


def worker(name, script):
    """A text is an answer, a number is to be doubled first."""
    replies = [
        asks("double", at, {"number": item}) if isinstance(item, int) else AIMessage(item)
        for at, item in enumerate(script)
    ]
    return create_react_agent(Scripted(messages=iter(replies)), tools=[double], name=name)


def main(case):
    replies = [asks(f"transfer_to_{name}", at) for at, name in enumerate(case["choices"])]
    supervisor = Scripted(messages=iter([*replies, AIMessage(case["answer"])]))
    workers = [worker(name, script) for name, script in case["workers"].items()]
    team = create_supervisor(workers, model=supervisor, supervisor_name="supervisor").compile()
    messages = team.invoke({"messages": [{"role": "user", "content": case["task"]}]})["messages"]
    handoffs = [
        message.response_metadata.get(METADATA_KEY_HANDOFF_DESTINATION)
        for message in messages
        if isinstance(message, ToolMessage)
    ]
    said = [
        [message.name or "user", message.content]
        for message in messages
        if not isinstance(message, ToolMessage)
        and message.content
        and not message.response_metadata.get(METADATA_KEY_IS_HANDOFF_BACK)
    ]
    return {"handoffs": [name for name in handoffs if name], "said": said}


print(json.dumps([main(case) for case in json.load(sys.stdin)]))
