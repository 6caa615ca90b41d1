"""A chat over HTTP, with two workers or more: docs/chat.md explains it. It needs a model:

PLAIT_MODEL=openai:gpt-5 uvicorn chat_server:app --workers 2
"""

import json
from asyncio import to_thread
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from plait import Agent, Event, Parked, PlaitError, Session, Workflow, ask_human, tool
from plait.errors import InvalidInput, SessionError, UnknownRevision
from plait.event.kinds import ToolRequested
from plait.model.base import Restarted, TextDelta
from plait.policy import Ask, Policy


@tool
def refund(order: int, euros: int) -> str:
    """Give the money for an order back."""
    return f"{euros} euros sent for order {order}"


class Desk(Workflow):
    policy = Policy(Ask("refund"))  # a person has to agree to each refund

    def __init__(self) -> None:
        # the agent can ask a person who works in the shop, too
        self.clerk = Agent("You answer the customers of a shop.", tools=[refund, ask_human])

    def forward(self, session: Session) -> Session:
        return self.clerk(session)


desk = Desk()


async def new_chat(request: Request) -> Response:
    chat = await to_thread(Session, title="chat")  # in a thread, since it writes to disk
    return PlainTextResponse(chat.id)


async def opened(request: Request) -> Session:
    # Check here that the chat belongs to the caller: Session(user=…) above, session.user here.
    return await to_thread(Session.open, str(request.path_params["chat"]))


async def say(request: Request) -> Response:
    text, key = (await request.body()).decode(), request.headers.get("Idempotency-Key", "")
    items = answer(await opened(request), text, key)
    return StreamingResponse(items, media_type="text/event-stream")


async def answer(chat: Session, text: str, key: str) -> AsyncIterator[str]:
    """Take a turn, and yield it as server-sent events."""
    try:
        async for item in desk.astream_turn(chat, text, key=key):
            if isinstance(item, TextDelta):
                yield sent("text", item.text)
            elif isinstance(item, Restarted):
                yield sent("restart", "")  # the text so far does not count
            elif isinstance(item, Session):
                yield sent("done", item.text)
            elif isinstance(item, Event) and isinstance(item.body, ToolRequested):
                yield sent("tool", item.body.tool)
    except Parked as parked:
        yield sent("waiting", await to_thread(open_asks, parked.session))
    except PlaitError as error:
        yield sent("error", error.record_text)


def sent(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def open_asks(chat: Session) -> list[dict[str, Any]]:
    return [
        {"id": ask.event, "kind": ask.kind, "tool": ask.tool, "arguments": ask.arguments}
        | ({"question": ask.question, "choices": ask.choices} if ask.kind == "question" else {})
        for ask in chat.inbox.waiting
    ]


def view(chat: Session) -> dict[str, Any]:
    said = [{"role": each.role, "text": each.text} for each in chat.messages.shown]
    return {"messages": said, "waiting": open_asks(chat)}


async def show(request: Request) -> Response:
    return JSONResponse(await to_thread(view, await opened(request)))


async def approve(request: Request) -> Response:
    chat, ask = await opened(request), request.path_params["ask"]
    await to_thread(chat.inbox.approve, ask, actor="human:ann")  # as logged in
    return Response(status_code=204)


async def deny(request: Request) -> Response:
    """Refuse a call. The agent is told the reason, and goes on."""
    chat, ask = await opened(request), request.path_params["ask"]
    reason = (await request.body()).decode()
    await to_thread(chat.inbox.deny, ask, reason, actor="human:ann")
    return Response(status_code=204)


async def answer_question(request: Request) -> Response:
    """Answer a question of the agent, or of the workflow: any JSON value."""
    chat, ask = await opened(request), request.path_params["ask"]
    await to_thread(chat.inbox.answer, ask, await request.json(), actor="human:ann")
    return Response(status_code=204)


async def resolve(request: Request) -> Response:
    """Write down what became of a call whose outcome is not known."""
    chat, ask = await opened(request), request.path_params["ask"]
    given = await request.json()  # the verdict, and the value that the tool returned, if it did
    verdict, value = given.get("verdict"), given.get("value")
    await to_thread(chat.inbox.resolve, ask, verdict, value, actor="human:ann")
    return Response(status_code=204)


async def not_found(request: Request, error: Exception) -> Response:
    return PlainTextResponse("there is no such chat", 404)


async def refused(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 409)  # nothing was written, and the text says why


app = Starlette(
    routes=[
        Route("/chats", new_chat, methods=["POST"]),
        Route("/chats/{chat:uuid}", show),
        Route("/chats/{chat:uuid}/messages", say, methods=["POST"]),
        Route("/chats/{chat:uuid}/asks/{ask}/approve", approve, methods=["POST"]),
        Route("/chats/{chat:uuid}/asks/{ask}/deny", deny, methods=["POST"]),
        Route("/chats/{chat:uuid}/asks/{ask}/answer", answer_question, methods=["POST"]),
        Route("/chats/{chat:uuid}/asks/{ask}/resolve", resolve, methods=["POST"]),
    ],
    exception_handlers={
        UnknownRevision: not_found,
        SessionError: refused,  # an ask that is not there, was answered, or is of another kind
        InvalidInput: refused,
        json.JSONDecodeError: refused,
    },
)
