"""Agents: an instruction, a model, tools and a view, as one reusable layer.

The turn is a generator that yields effects and knows neither threads nor event loops nor vendors.
It asks, runs the tools that the reply asks for, and asks again, until a reply asks for none. When
it has asked as often as it may, it is told so and answers with the material it has. When the prompt
outgrows `context_max`, the earlier steps are summarised first. An agent with a memory searches it
once, before its first ask in a call, for the last message that is not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, cast, get_args

import msgspec

from plait.calls.model_call import Retry
from plait.errors import InvalidValue, NoModel, NotASession, ResultInvalid
from plait.event import Json
from plait.event.kinds import Purpose, ScratchSet
from plait.event.strict import check_text
from plait.event.vocabulary import VOCABULARY
from plait.ids import digest
from plait.inside import ends_run
from plait.model import find
from plait.model.base import Model, Spec
from plait.model.fallback import Models, check_models, find_list, models_listed, name_of_models
from plait.model.settings import default_model
from plait.runtime.compaction import Compacting, Fit, Way, compact_before_ask
from plait.runtime.counting import TokenCount, count_prompt
from plait.runtime.drivers.blocking import drive
from plait.runtime.drivers.on_loop import AsyncWaiter, adrive
from plait.runtime.effects import AgentMemory, AskModel, Recall, Tell, Turning, UseTools
from plait.runtime.failures import text_of_error
from plait.runtime.invoke import Invocation
from plait.runtime.names import principal_of
from plait.runtime.policy import Policy
from plait.runtime.prompt import View
from plait.runtime.prompt.prompt import Prompt
from plait.runtime.prompt.setup import Setup
from plait.runtime.registry import is_tried_again, run_of
from plait.runtime.replies import WRAPPED, WRAPPER
from plait.runtime.turn import play
from plait.session import Session
from plait.session.typed import name_of, schema_of, to_type
from plait.tool import Tool, ToolSource, as_tool
from plait.workflow import Workflow, original

STEPS_MAX = 32
LIMIT = "You have used all your steps. Answer now with what you have, without calling tools."


class Agent(Workflow):
    """`Agent("Answer briefly.", model="openai:gpt-5", tools=[word_count])`."""

    def __init__(
        self,
        instruction: str,
        *,
        # several: the next one is asked if one is down; None: PLAIT_MODEL, looked up when called
        model: Models | None = None,
        tools: Iterable[Any] = (),  # tools, plain functions, and servers that have tools
        name: str | None = None,
        description: str | None = None,  # for a Selector; None: the first line of the instruction
        view: View | str | int | None = None,  # None: the whole path
        returns: Any = None,  # a type the answer must have; None: free text
        steps_max: int = STEPS_MAX,
        purpose: Purpose | None = None,
        parameters: Mapping[str, Json] | None = None,  # temperature, tokens_max, …
        retry: Retry | None = None,
        # tokens, estimated, above which the earlier steps are compacted first; None: never
        context_max: int | None = None,
        # the calls it may make, and those that need consent; None: as its caller has it
        policy: Policy | None = None,
        # the way to do that; None: its own model makes a summary
        compactor: Compacting | None = None,
        # searched before its first ask in a call, and given what a compaction takes away
        memory: AgentMemory | None = None,
    ) -> None:
        if not isinstance(instruction, str) or not instruction.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue("instruction", "it says nothing", "tell the agent what to do")
        if isinstance(steps_max, bool) or not isinstance(steps_max, int) or steps_max < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                "steps_max", f"{steps_max!r} is not a number of steps", "pass a number from 1"
            )
        if context_max is not None and (
            isinstance(context_max, bool) or not isinstance(context_max, int) or context_max < 1  # pyright: ignore[reportUnnecessaryIsInstance]
        ):
            raise InvalidValue(
                "context_max",
                f"{context_max!r} is not a number of tokens",
                "pass a number from 1, or None for no limit",
            )
        if compactor is not None and not isinstance(compactor, Compacting):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                "compactor", f"a {type(compactor).__name__} is not one", "pass a Compactor"
            )
        if memory is not None and not isinstance(memory, AgentMemory):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue("memory", f"a {type(memory).__name__} is none", "pass a Memory")
        check_text(instruction, "instruction")
        if purpose is not None and purpose not in get_args(Purpose):
            raise InvalidValue(
                "purpose", f"{purpose!r} is not one", f"use one of {', '.join(get_args(Purpose))}"
            )
        if isinstance(tools, str) or not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                "tools", f"a {type(tools).__name__} is not a list of tools", "pass tools=[…]"
            )
        self.instruction, self.model, self.name, self.description = (
            instruction,
            check_models(model),
            name,
            description,
        )
        self.view, self.steps_max, self.retry = View.of(view), steps_max, retry or Retry()
        self.context_max, self.compactor, self.policy = context_max, compactor, policy
        self.memory = memory
        self.parameters = dict(parameters or {})
        # refuses values that no event can hold
        VOCABULARY.encode(ScratchSet("parameters", self.parameters))
        self._type = returns
        if purpose is not None:
            self.purpose = purpose
        self._schema = _answer_schema(returns) if returns is not None else None
        self._sources: tuple[ToolSource | Tool[..., Any], ...] = tuple(
            [source if isinstance(source, ToolSource) else as_tool(source) for source in tools]
        )
        _by_name([source for source in self._sources if not isinstance(source, ToolSource)])

    # ── parts ────────────────────────────────────────────────────────────────────────────────

    @property
    def tools(self) -> dict[str, Tool[..., Any]]:
        """Its tools by name. A server is asked for its tools now."""
        return _by_name(
            [
                tool
                for source in self._sources
                for tool in ([source] if isinstance(source, Tool) else source.tools())
            ]
        )

    def returns(self, type_: Any) -> Self:
        """Return the same agent, whose answer must have this type: `session.result` is the data,
        `session.result_as(type)` the value.
        """
        agent = self._copy()
        agent._type, agent._schema = type_, _answer_schema(type_)
        return agent

    def count(self, session: Session) -> TokenCount:
        """Return about how many tokens its next ask would send. Nothing is written or asked."""
        if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NotASession("count was given", session)
        return count_prompt(self._setup(self.tools), self._call_name(session, None), session)

    def _copy(self) -> Self:
        agent = object.__new__(type(self))
        vars(agent).update(vars(self))
        return agent

    def describe(self) -> str:
        return (
            self.description
            or super().describe().replace(Agent.__doc__ or "", "")
            or self.instruction.strip().partition("\n")[0]
        )

    def _rebind(self, model: Models) -> None:
        self.model = model

    def _brief(self) -> str:
        text = self.instruction if len(self.instruction) <= 60 else self.instruction[:59] + "…"
        model = name_of_models(self.model)
        names = [source.name for source in self._sources]
        more = [f"model={model}" if model else "", f"tools=[{', '.join(names)}]" if names else ""]
        return ", ".join(
            [
                repr(text),
                *filter(
                    None,
                    [*more, f"returns={name_of(self._type)}" if self._type is not None else ""],
                ),
            ]
        )

    # ── the turn ─────────────────────────────────────────────────────────────────────────────

    def forward(self, session: Session) -> Session:
        run = run_of(session)
        assert run is not None
        return drive(play(self._turn(session)), run.io)

    async def _forward_on_loop(self, session: Session) -> Session:
        run = run_of(session)
        assert run is not None
        stops: list[int] = []
        try:
            return await adrive(
                play(self._turn(session)),
                AsyncWaiter(run.io),
                lambda: stops.append(run.stops.stop(session.id)),
            )
        finally:
            for stop in stops:
                run.stops.undo(stop)

    def _default_name(self) -> str:
        """Return the class name and a digest of the instruction: an agent must not take the words
        of another for its own.
        """
        instruction = self.instruction.encode("utf-8", "surrogatepass")
        return f"{super()._default_name()}-{digest(b'plait/agent/1', instruction)[:4]}"

    def invocation(self, session: Session, **how: Any) -> Invocation:
        call = super().invocation(session, **how)
        return msgspec.structs.replace(
            call,
            agent=call.name,
            setup=self._encode_setup,
            # a subclass may have a forward of its own
            forward_on_loop=self._forward_on_loop if call.forward is _FORWARD else None,
        )

    def _encode_setup(self, name: str) -> bytes:
        model_of(self.model, name)  # raises before anything is written if it is missing
        return self._setup(self.tools).encode()

    def _setup(self, tools: Mapping[str, Tool[..., Any]]) -> Setup:
        specs = tuple(
            [Spec(tool.name, tool.description, tool.schema) for _, tool in sorted(tools.items())]
        )
        return Setup(self.instruction, specs, self.parameters, self._schema, self.view)

    def _turn(self, session: Session) -> Turning[Session]:
        run = run_of(session)
        assert run is not None
        frame = run.stack.frames(session.id)[-1]
        path = frame.path
        actor, tools, model = f"agent:{principal_of(path)}", self.tools, model_of(self.model, path)
        # In a tool: since the tool was called.
        prompt = Prompt.of(
            self._setup(tools), actor, session.run, session, run.journal.source_runs(session)
        )
        if self.memory is not None:
            session, _ = yield Recall(session, self.memory, prompt, actor, path, frame.purpose)
        ask = AskModel(session, prompt, model, actor, path, tools, retry=self.retry)
        fit = (
            compact_before_ask(
                ask, self.context_max, self._way(path, model), run.journal.tips.events_between
            )
            if self.context_max is not None
            else None
        )
        session = yield from turn(
            ask, self.steps_max, self._check if self._type is not None else None, self._type, fit
        )
        prompt.put_back()
        return session

    def _way(self, path: str, model: Model) -> Way:
        way = self.compactor.way(path) if self.compactor is not None else Way(model)
        return way._replace(memory=way.memory or self.memory)

    def _check(self, value: Any) -> str | None:
        """Return why an answer does not have the type; None: it has."""
        try:
            to_type(value, self._type)
        except (ValueError, TypeError) as error:
            return str(error)
        # a type of the program's own, which checks its values itself
        except BaseException as error:
            if ends_run(error):
                raise
            return f"{type(error).__name__}: {text_of_error(error)}"
        return None


_FORWARD = original(Agent)


def turn(
    ask: AskModel,
    steps_max: int,
    check: Callable[[Any], str | None] | None = None,
    type_: Any = None,
    fit: Fit | None = None,
) -> Turning[Session]:
    """Ask and act until there is an answer.

    `check` returns why an answer will not do, `fit` makes the prompt fit before each ask.
    """
    session, misses, step = ask.session, 0, 0
    while step <= steps_max:
        last = step == steps_max
        if last:
            session, _ = yield Tell(session, LIMIT)
        session = session if fit is None else (yield from fit(session))
        session, answer = yield ask._replace(session=session, choice="none" if last else ask.choice)
        step += 1
        if answer.calls:
            session, _ = yield UseTools(
                session,
                answer.runnable,
                ask.tools,
                ask.actor,
                ask.path,
                answer.requests,
                answer.spoken,
            )
        elif last and not answer.text and answer.data is None:
            session, _ = yield Tell(
                session,
                f"(no answer: all {steps_max} steps were used, and the last reply said nothing)",
                "assistant",
            )
        elif (
            check is not None
            and (why := check(answer.data.value) if answer.data is not None else "it is not JSON")
            is not None
        ):
            misses += 1
            if misses > 2 or last:
                if not is_tried_again(session):
                    raise ResultInvalid(ask.path, name_of(type_), why, session)
                misses = step = 0
            session, _ = yield Tell(
                session,
                f"That answer does not have the shape that was asked for: {why}. Answer again, in"
                " that shape.",
            )
        else:
            break
    return session


def model_of(model: Models | None, owner: str) -> Model:
    """Return the model itself: the one given, or found by name; a list of them as one."""
    if isinstance(model, str):
        return find(model)
    if (listed := models_listed(model)) is not None:
        return find_list(listed, find)
    if model is not None:
        if not callable(getattr(model, "ask", None)):
            raise NoModel(f"a {type(model).__name__} is not a model")
        return cast("Model", model)
    named, where = default_model()
    if not named:
        raise NoModel(f"{owner!r} has no model")
    try:
        return find(named) if isinstance(named, str) else find_list(named, find)
    except NoModel as error:
        raise NoModel(f"{error.why}, which is what {where} says") from error


def _by_name(tools: Iterable[Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    found: dict[str, Tool[..., Any]] = {}
    for tool in tools:
        if found.setdefault(tool.name, tool) is not tool:
            raise InvalidValue(
                "tools", f"two tools are called {tool.name!r}", "pass name= to one of them"
            )
    return found


def _answer_schema(type_: Any) -> Json:
    """Return the schema of the answer.

    Providers want an object: any other type stands in one, under `answer`.
    """
    try:
        schema = schema_of(type_)
    except (TypeError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]
        step = "pass a type that JSON can carry"
        if "union" in why:
            step = "give its classes tags: class A(msgspec.Struct, tag=True)"
        raise InvalidValue("returns", why, step) from error
    if schema.get("type") == "object" and "properties" in schema:
        return schema
    defs = schema.pop("$defs", None)
    wrapped: dict[str, Json] = {
        "title": WRAPPER,
        "type": "object",
        "properties": {WRAPPED: schema},
        "required": [WRAPPED],
        "additionalProperties": False,
    }
    return {**wrapped, "$defs": defs} if defs else wrapped
