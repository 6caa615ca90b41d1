"""Streaming: the text as it comes, on the caller's event loop.

It needs a model: `PLAIT_MODEL=openai:gpt-5 python examples/streaming.py`.
"""

import asyncio

from plait import Agent, Session
from plait.model.base import TextDelta

joker = Agent("You are a helpful assistant.", name="joker")


async def main() -> None:
    async for item in joker.astream(Session("Tell me five jokes.", store="memory:")):
        if isinstance(item, TextDelta):
            print(item.text, end="", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
