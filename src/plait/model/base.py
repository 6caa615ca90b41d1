"""The protocol of models.

A model is asked with a `Request` (instruction, tools, turns) and gives a `Reply`, or raises a
`Fault` that says whether asking again may help. It knows nothing of sessions' logs, retries or
prices: the runtime records each attempt, waits, and asks again. Adapters turn SDK retries off,
import their SDK when they are constructed, and let nothing else escape than `Fault`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from plait.event import Json
from plait.event.kinds import Parts, Price, Usage
from plait.ids import Digest
from plait.session import Session

# end: it had its say · calls: it asks for tools · length: cut at the limit · refusal: it declined ·
# anything else is as the provider says
Stop = str
Choice = Literal["auto", "none", "any"]


class ToolCall:
    """A call that a model asks for: `ToolCall("word_count", text="to be")`."""

    __slots__ = ("arguments", "reason", "ref", "tool")

    def __init__(self, tool: str, /, **arguments: Json) -> None:
        self.tool = tool
        # a text: the model's own, kept as it came, because it is no JSON object
        self.arguments: Mapping[str, Json] | str = arguments
        self.reason = ""
        self.ref = ""  # the provider's own id of it

    @classmethod
    def of(
        cls, tool: str, arguments: Mapping[str, Json] | str, *, ref: str = "", reason: str = ""
    ) -> ToolCall:
        """Make a call as adapters do. A text is parsed strictly by the runtime, not here."""
        call = cls(tool)
        call.arguments, call.ref, call.reason = arguments, ref, reason
        return call

    def __repr__(self) -> str:
        return f"ToolCall({self.tool!r}, {self.arguments!r})"


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as it is described to a model."""

    name: str
    description: str
    schema: Json  # JSON schema of an object


# ── turns: the conversation as one agent sees it ─────────────────────────────────────────────


class Said(msgspec.Struct, frozen=True, tag="said"):
    """A message of the user, another agent or the program.

    Its role is user; the speaker is named in the text already.
    """

    parts: Parts  # text, image, file, data; filled in, never reasoning


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """A reply of this agent itself: reasoning verbatim, text, calls."""

    parts: Parts
    calls: tuple[AnsweredCall, ...] = ()


class AnsweredCall(msgspec.Struct, frozen=True):
    # ours: [a-z0-9_]{1,40}, the same in call and result; providers are sent this one, never their
    # own
    id: str
    tool: str
    arguments: Json


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """The results of the calls of the turn before, one per call, in their order."""

    results: tuple[CallResult, ...]


class CallResult(msgspec.Struct, frozen=True):
    call: str
    tool: str
    parts: Parts  # bounded: a part says so if something is left out
    failed: bool = False


Turn = Said | Answered | Returned


class Request(msgspec.Struct, frozen=True):
    """One request to a model.

    The same up to a turn means the same bytes up to that turn: adapters render each turn by itself.
    """

    instruction: str
    tools: tuple[Spec, ...]  # sorted by name
    turns: Sequence[Turn]  # the last one is never `Answered`
    session: Session  # to read from, as it is when asked
    blob: Callable[[Digest], bytes]  # the bytes of an image or a file
    parameters: Mapping[
        str, Json
        # temperature, top_p, tokens_max, stop, …; those unknown to an adapter go to the provider as
        # they are
    ] = {}
    output: Json = None  # JSON schema of an object the reply must be; None: free text
    # of tools by the model: as it likes, none at all, or at least one
    choice: Choice = "auto"
    # earlier answers of the model to this agent in this run, on the path: "" for a reply, "Kind:
    # why" for a failure
    outcomes: Sequence[str] = ()
    forced: str = ""  # with the choice "any": the one tool to call. "": any of them


class Reply(msgspec.Struct, frozen=True):
    """A whole reply of a model."""

    parts: Parts  # reasoning and text, in order
    calls: tuple[ToolCall, ...] = ()
    stop: Stop = "end"
    # without tokens: the provider did not count them, and the runtime estimates
    usage: Usage = Usage()
    model: str = ""  # as the provider says; "": as asked
    price: Price | None = None  # None: not known


class Fault(Exception):
    """No answer. `kind` is one word: RateLimited, Overloaded, ServerError, Timeout, ConnectionLost,
    StreamCut, EmptyReply, MalformedReply, QuotaExceeded, ContextOverflow, BadRequest, AuthFailed,
    NotFound, ClientFailed, …
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,  # None: the provider did not say
        partial: str = "",  # the text that had come
        usage: Usage | None = None,  # None: not known
        price: Price | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.retryable, self.retry_after_s = (
            kind,
            message,
            retryable,
            retry_after_s,
        )
        self.partial, self.usage, self.price = partial, usage, price


# ── streaming ────────────────────────────────────────────────────────────────────────────────


class TextDelta(msgspec.Struct, frozen=True):
    """A piece of the answer's text."""

    text: str
    agent: str = ""  # filled in by the runtime: the call path of the speaker


class ReasoningDelta(msgspec.Struct, frozen=True):
    """A piece of the model's reasoning: not part of the text."""

    thought: str
    agent: str = ""

    @property
    def text(self) -> str:
        return ""


class ToolDelta(msgspec.Struct, frozen=True):
    """A piece of a call: the first one of a call has its name and no arguments."""

    index: int  # of the call in this reply, from 0
    tool: str
    arguments: str = ""  # a piece of the JSON
    agent: str = ""

    @property
    def text(self) -> str:
        """Empty: the texts of all deltas together are the answer's text."""
        return ""


class Restarted(msgspec.Struct, frozen=True):
    """The answer so far is void: the model is asked again, or the next one of a list, and begins
    anew.
    """

    why: str  # of a list of models, with the one that failed and the one that answers now
    agent: str = ""

    @property
    def text(self) -> str:
        """Empty: it is no text of a model. `why` has the reason."""
        return ""


class Queued(msgspec.Struct, frozen=True):
    """The ask waits, because of a limit of its model that is kept on this side."""

    model: str
    why: str
    agent: str = ""

    @property
    def text(self) -> str:
        return ""


class Unseen(msgspec.Struct, frozen=True):
    """The model cannot see an image or a file of its prompt, and is told that it was left out."""

    model: str
    name: str  # of the file; the description of an image
    media_type: str
    agent: str = ""

    @property
    def text(self) -> str:
        return ""


class OutputDelta(msgspec.Struct, frozen=True):
    """A piece of the output of a command that is running, or the detail of a heartbeat.

    It is shown and forgotten: the whole output is recorded.
    """

    output: str
    agent: str = ""  # the agent that uses the tool
    heartbeat_of: str = ""  # the tool that called `heartbeat`; "": a command wrote it

    @property
    def text(self) -> str:
        """Empty: it is no text of a model."""
        return ""


Delta = TextDelta | ReasoningDelta | ToolDelta | Restarted | Queued | Unseen | OutputDelta
OnDelta = Callable[[Delta], None]


@runtime_checkable
class Model(Protocol):
    """`ask` may be a plain function, which is called in a worker thread, or a coroutine function,
    which runs on Plait's own loop.
    """

    @property
    def name(self) -> str:
        """As recorded: openai:gpt-5."""
        ...

    # A model with no price in the list can have `price_of(usage: Usage) -> Price | None`: budgets
    # in dollars need it.

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply | Awaitable[Reply]:
        """Answer, or raise Fault. With `on_delta`, stream, and pass on each piece as it comes."""
        ...
