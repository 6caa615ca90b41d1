"""Claude, by the Messages API, on Anthropic's own SDK.

The SDK does the wire: connections, keys, statuses, the framing of events. Replies are read from the
bytes, because its readers mend or drop parts of them, and a reply is kept as it came: thinking with
its signature, arguments that are no JSON. Each turn is rendered by itself, so earlier turns are
sent again byte for byte, and the provider finds them in its cache.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from plait import secrets
from plait.errors import MissingExtra, MissingKey, PlaitError
from plait.model.anthropic_faults import explain
from plait.model.anthropic_reply import ReplyDraft, StreamEvent, WireMessage
from plait.model.anthropic_request import PROVIDER, TAKEN, Block, request_options
from plait.model.base import (
    Delta,
    Fault,
    OnDelta,
    Reply,
    Request,
)
from plait.model.shared_limits import account_of

_missing = ""
if TYPE_CHECKING:
    import anthropic
    import httpx2
else:
    try:
        import anthropic
        import httpx2
    except ImportError as error:  # raised by the constructor, which knows the model's name
        _missing = str(error)
CONNECT_S = 10.0
FINISH_S = 1.0
# tokens; an answer that may be longer is streamed in any case, since idle connections are cut on
# the way
WHOLE_MAX = 16_384


class AnthropicModel:
    """`AnthropicModel("claude-sonnet-5-5")`; the key is ANTHROPIC_API_KEY, the address
    ANTHROPIC_BASE_URL, unless given here.
    """

    takes = TAKEN

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 600.0,  # of silence
        # of an answer, where the request does not say; thinking comes on top
        tokens_max: int = 8192,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"{PROVIDER}:{model}"
        if _missing:
            raise MissingExtra(self.name, "anthropic", _missing)
        self._key = (api_key or os.environ.get("ANTHROPIC_API_KEY", "")).strip()
        if not self._key:
            raise MissingKey(self.name, "ANTHROPIC_API_KEY")
        secrets.learn_key(self._key, "ANTHROPIC_API_KEY")
        self.account = account_of(self._key)
        self._base_url = (
            base_url or os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
        )
        self._model, self._timeout_s, self._tokens_max = model, timeout_s, tokens_max
        self._headers = dict(headers or {})
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, anthropic.AsyncAnthropic] = (
            WeakKeyDictionary()
        )
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"AnthropicModel({self._model!r})"

    async def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        try:
            options = request_options(request, self._model, self._tokens_max)
            whole = on_delta is None and options["max_tokens"] <= WHOLE_MAX
        # a blob that cannot be read, a parameter of a strange type
        except (PlaitError, TypeError, ValueError) as error:
            raise Fault("BadRequest", f"{type(error).__name__}: {error}") from error
        return await (self._ask_whole(options) if whole else self._ask_streamed(options, on_delta))

    async def aclose(self) -> None:
        """Close the connections of the running loop. Asking again opens new ones."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _ask_whole(self, options: Block) -> Reply:
        draft = ReplyDraft(self._model)
        try:
            answer = await self._client().messages.with_raw_response.create(**options)
            draft.begun = True
            draft.take_whole(msgspec.json.decode(answer.http_response.content, type=WireMessage))
            return draft.reply()
        except Exception as error:
            # No chain: the SDK's errors hold the request, and with it the key.
            raise self._fault(error, draft) from None

    async def _ask_streamed(self, options: Block, on_delta: OnDelta | None) -> Reply:
        draft = ReplyDraft(self._model)
        async with aclosing(self._deltas(options, draft)) as deltas:
            async for delta in deltas:
                if on_delta is not None:
                    on_delta(delta)
        return draft.reply()

    async def _deltas(self, options: Block, draft: ReplyDraft) -> AsyncGenerator[Delta]:
        """Yield the deltas of a streamed answer.

        The caller passes them on, so that errors of `on_delta` do not become faults of the
        provider.
        """
        try:
            async with await self._client().messages.create(**options, stream=True) as stream:
                draft.begun = True
                events = stream.raw_events(stream.response)
                async for event in events:
                    if event.data and (
                        delta := draft.take(msgspec.json.decode(event.data, type=StreamEvent))
                    ):
                        yield delta
                    if draft.done:
                        await _finish(events)
                        return
            raise Fault("StreamCut", "the stream ended before the message did", retryable=True)
        except Exception as error:
            raise self._fault(error, draft) from None

    # untyped: requests are rendered as plain JSON, not as the SDK's typed dicts
    def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                timeout = httpx2.Timeout(self._timeout_s, connect=min(self._timeout_s, CONNECT_S))
                self._clients[loop] = anthropic.AsyncAnthropic(
                    api_key=self._key,
                    base_url=self._base_url,
                    timeout=timeout,
                    max_retries=0,
                    default_headers=self._headers or None,
                )
            return self._clients[loop]

    def _fault(self, error: Exception, draft: ReplyDraft) -> Fault:
        """Turn any failure into a fault, with the partial answer, and without the key."""
        kind, message, again, wait_s = explain(error, draft.begun)
        for form in (self._key, repr(self._key)[1:-1]):
            message = message.replace(form, "[key]")
        usage, price = draft.usage_and_price()
        return Fault(
            kind,
            message,
            retryable=again,
            retry_after_s=wait_s,
            partial=draft.text(),
            usage=usage,
            price=price,
        )


async def _finish(events: AsyncIterator[Any]) -> None:
    """Read to the end of the stream, so that the connection can be used again.

    The message is whole already: errors do not matter here.
    """
    try:
        async with asyncio.timeout(FINISH_S):
            async for _ in events:
                pass
    except (TimeoutError, httpx2.HTTPError):
        pass
