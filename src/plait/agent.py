"""Agents: an instruction, a model, tools and a view, as one reusable layer.

Its loop (`runtime.agent_loop`) yields effects and knows no threads, event loops or vendors.
It asks, runs the tools that the reply asks for, and asks again, until a reply asks for none. When
it has asked as often as it may, it is told so and answers with the material it has. When the prompt
outgrows `context_max`, the earlier steps are summarised first. An agent with a memory searches it
once, before its first ask in a call, for the last message that is not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self

import msgspec

from plait.calls.model_call import Retry
from plait.errors import GuardRefused, InvalidValue
from plait.errors.spelling import InitSignature
from plait.event import Json
from plait.event.kinds import Purpose, ScratchSet
from plait.event.vocabulary import VOCABULARY
from plait.ids import digest
from plait.model.base import Model, Spec
from plait.model.fallback import Models, check_models
from plait.runtime.agent_loop import ask_and_act
from plait.runtime.agent_settings import (
    answer_fault,
    answer_schema,
    brief_text,
    check_choice,
    check_count,
    check_instruction,
    check_kind,
    check_list,
    check_spelling,
    choice_of,
    instruction_name,
    instruction_summary,
    instruction_text,
    model_of,
    record_setup,
    tools_by_name,
    warn_of_undescribed,
)
from plait.runtime.answer_text import AnswerText
from plait.runtime.compaction import Compacting, Way, compact_before_ask
from plait.runtime.counting import TokenCount, count_prompt
from plait.runtime.delegation import Takes, WorkflowTool
from plait.runtime.drivers.blocking import drive
from plait.runtime.drivers.on_loop import AsyncWaiter, adrive, run_in_thread
from plait.runtime.effect_loop import perform_effects
from plait.runtime.effects import AgentMemory, AskModel, EffectGenerator, Recall
from plait.runtime.guards import (
    Guard,
    GuardVerdict,
    check_guards,
    pass_answer,
    pass_input,
)
from plait.runtime.handoffs import (
    DESK_GUARDS,
    Handing,
    agents_in_reach,
    desk_of,
    handoff_tools,
    is_marked_here,
)
from plait.runtime.invoke import Invocation, ainvoke, invoke, take_over
from plait.runtime.names import principal_of
from plait.runtime.policy import Policy
from plait.runtime.prompt import View
from plait.runtime.prompt.prompt import Prompt
from plait.runtime.prompt.setup import Setup
from plait.runtime.registry import is_tried_again, run_of
from plait.session import Session
from plait.tool import Tool, ToolSource, as_tool
from plait.workflow import Nested, Workflow, original

STEPS_MAX = 32


class Agent(Workflow):
    """`Agent("Answer briefly.", model="openai:gpt-5", tools=[word_count])`.

    Call it with a session, and keep the session that it returns: `session = agent(session)`.
    `session.text` is its answer.

    Args:
        instruction: the task, in words; a function of the session is called at each call.
        model: a name, a model, or a list: the next one is asked if one is down. None: PLAIT_MODEL.
        tools: tools, plain functions, agents, workflows, and servers that have tools.
        name: the name in the log; None: its class and a digest of the instruction.
        description: for a Selector, or as a tool; None: the first line of the instruction.
        view: the part of the session that it sees; None: the whole path.
        returns: the type of its answer, which `session.result` holds; None: free text.
        steps_max: asks of a model in one call; then it has to answer.
        purpose: the kind of work, as recorded with its calls.
        parameters: `{"temperature": 0.2, "tokens_max": 500}`, and others of the provider.
        retry: how often, and after which waits, a model that fails is asked again.
        context_max: tokens, estimated, above which earlier steps are compacted; None: never.
        policy: the calls it may make, and those that need consent; None: as its caller has it.
        compactor: the way to compact; None: its own model makes a summary.
        memory: searched before its first ask, and given what a compaction takes away.
        handoffs: agents that it may hand the conversation over to.
        tool_choice: in the first ask of a call: "auto", "required", "none", or a tool's name.
        before, after: guards that pass, correct or reject its input and its answer: functions,
            agents, workflows.
        guard_retries: answers that may be rejected before the call fails.
        hold_back: its text is streamed when `after` has passed it; False: as it comes.
    """

    __signature__ = InitSignature()

    if not TYPE_CHECKING:  # type checkers and editors read the signature of __init__

        def __new__(cls, *args, **kwargs):
            if cls.__init__ is Agent.__init__:
                check_spelling(kwargs, cls.__init__)
            return super().__new__(cls)

    def __init__(
        self,
        instruction: str | Callable[[Session], str],
        *,
        model: Models | None = None,
        tools: Iterable[Any] = (),
        name: str | None = None,
        description: str | None = None,
        view: View | str | int | None = None,
        returns: Any = None,
        steps_max: int = STEPS_MAX,
        purpose: Purpose | None = None,
        parameters: Mapping[str, Json] | None = None,
        retry: Retry | None = None,
        context_max: int | None = None,
        policy: Policy | None = None,
        compactor: Compacting | None = None,
        memory: AgentMemory | None = None,
        handoffs: Iterable[Agent] | None = None,
        tool_choice: str = "auto",
        before: Iterable[Guard] = (),
        after: Iterable[Guard] = (),
        guard_retries: int = 2,
        hold_back: bool = True,
    ) -> None:
        check_instruction(instruction)
        check_count("steps_max", steps_max, "steps")
        if context_max is not None:
            check_count("context_max", context_max, "tokens")
        check_kind("compactor", compactor, Compacting, "pass a Compactor")
        check_kind("memory", memory, AgentMemory, "pass a Memory")
        check_list("tools", tools, "tools")
        self.instruction, self.model = instruction, check_models(model)
        self.name, self.description = name, description
        self.view, self.steps_max, self.retry = View.of(view), steps_max, retry or Retry()
        self.context_max, self.compactor, self.policy = context_max, compactor, policy
        self.memory = memory
        self.parameters = dict(parameters or {})
        # refuses values that no event can hold
        VOCABULARY.encode(ScratchSet("parameters", self.parameters))
        self._type = returns
        if purpose is not None:
            self.purpose = purpose
        self._schema = answer_schema(returns) if returns is not None else None
        self._sources: tuple[ToolSource | Tool[..., Any], ...] = tuple(map(self._source_of, tools))
        tools_by_name([source for source in self._sources if isinstance(source, Tool)])
        warn_of_undescribed(self._sources)
        check_count("guard_retries", guard_retries + 1, "retries")
        self.guard_retries, self.hold_back = guard_retries, hold_back
        self._before, self._after = self._guards("before", before), self._guards("after", after)
        self._handoffs: tuple[Agent, ...] = ()
        if handoffs is not None:
            self.handoffs = handoffs
        self.tool_choice = tool_choice
        if all(isinstance(source, Tool) for source in self._sources):
            check_choice(tool_choice, self.tools)

    def _source_of(self, given: Any) -> ToolSource | Tool[..., Any]:
        """Return a tool, or a server that has tools: a workflow is a tool that carries itself out.

        An agent has tools, too, and is no server.
        """
        if given is self:
            raise InvalidValue(
                "tools", "an agent is not a tool of its own", "leave it out, or pass another agent"
            )
        if isinstance(given, Workflow):
            return given.as_tool()
        if not isinstance(given, Tool) and isinstance(given, ToolSource):  # the cheaper one first
            return given
        return as_tool(given)

    def _guards(self, name: str, given: Any) -> tuple[Guard, ...]:
        check_list(name, given, "guards")
        found: list[Guard] = []
        for guard in check_guards(name, given):
            if isinstance(guard, Agent) and guard._type is None:
                guard = guard.returns(GuardVerdict)
            found.append(guard)
        return tuple(found)

    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        returns: Any = None,
        takes: Takes = "answer",
        arguments: Any = None,
        **unknown: Never,
    ) -> WorkflowTool:
        agent = self.returns(returns) if returns is not None else self
        return super(Agent, agent).as_tool(
            name=name,
            description=description,
            returns=returns if returns is not None else self._type,
            takes=takes,
            arguments=arguments,
            **unknown,
        )

    # ── parts ────────────────────────────────────────────────────────────────────────────────

    @property
    def tools(self) -> dict[str, Tool[..., Any]]:
        """Its tools by name. A server is asked for its tools now."""
        return tools_by_name(
            [
                tool
                for source in self._sources
                for tool in ([source] if isinstance(source, Tool) else source.tools())
            ]
            + handoff_tools(self._handoffs)
        )

    def tool_names(self) -> Collection[str] | None:
        """Return the names of its tools. None: a server would have to be asked."""
        tools = [each for each in self._sources if isinstance(each, Tool)]
        if len(tools) < len(self._sources):
            return None
        return [tool.name for tool in (*tools, *handoff_tools(self._handoffs))]

    @property
    def handoffs(self) -> tuple[Agent, ...]:
        """The agents that it may hand the conversation over to."""
        return self._handoffs

    @handoffs.setter
    def handoffs(self, agents: Iterable[Agent]) -> None:
        check_list("handoffs", agents, "agents")
        given = tuple(agents)
        for agent in given:
            if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
                why, step = (
                    f"a {type(agent).__name__} is not one",
                    "pass agents: handoffs=[billing]",
                )
                raise InvalidValue("handoffs", why, step)
        if not given:
            why = "there is nobody to hand off to"
            raise InvalidValue("handoffs", why, "pass agents, or leave it out")
        if any(agent is self for agent in given):
            raise InvalidValue("handoffs", "an agent cannot hand off to itself", "leave it out")
        tools_by_name(
            [*(each for each in self._sources if isinstance(each, Tool)), *handoff_tools(given)]
        )
        self._handoffs = given

    def returns(self, type_: Any) -> Self:
        """Return the same agent, whose answer must have this type: `session.result` is the data,
        `session.result_as(type)` the value.
        """
        agent = self._copy()
        agent._type, agent._schema = type_, answer_schema(type_)
        return agent

    def count(self, session: Session) -> TokenCount:
        """Return about how many tokens its next ask would send. Nothing is written or asked."""
        name = self._call_name(session, None)
        instruction = instruction_text(self.instruction, name, session)
        return count_prompt(self._setup(instruction, self.tools), name, session)

    def _copy(self) -> Self:
        agent = object.__new__(type(self))
        vars(agent).update(vars(self))
        return agent

    def named_children(self) -> Iterator[tuple[str, Nested]]:
        """Yield the workflows that are its tools, besides the children that other classes have."""
        yield from super().named_children()
        for source in self._sources:
            if isinstance(source, WorkflowTool) and isinstance(source.workflow, Nested):
                yield source.name, source.workflow
        for agent in self._handoffs:
            yield agent.name or "", agent

    def describe(self) -> str:
        # the docstring of this class is about all agents
        doc = "" if type(self) is Agent else super().describe()
        return self.description or doc or instruction_summary(self.instruction)

    def _rebind(self, model: Models) -> None:
        self.model = model

    def _brief(self) -> str:
        names = [source.name for source in self._sources]
        return brief_text(self.instruction, self.model, names, self._type)

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    def forward(self, session: Session) -> Session:
        desk = desk_of(self, session)
        if desk is None or desk.agent is not self:
            return self._perform(session)
        agent: Any = desk.first_agent(session)
        is_first = True
        while agent is not None:
            if agent is self:
                session = self._perform(session)
            else:
                session = invoke(self._handoff_call(agent, session, is_first=is_first))
            agent, is_first = desk.next_agent(session, agent), False
        return session

    def _handoff_call(self, agent: Agent, session: Session, *, is_first: bool) -> Invocation:
        """Return the call of an agent that has the conversation, under the guards of this desk,
        which judge the answer, and the input unless the desk itself had it first.
        """
        before, after = self._before if is_first else (), self._after
        if (before or after) and is_marked_here(DESK_GUARDS, session):
            agent = agent._under(before, after, hold_back=self.hold_back)
        return msgspec.structs.replace(agent.invocation(session), how="handoff")

    def _under(
        self, before: tuple[Guard, ...], after: tuple[Guard, ...], *, hold_back: bool
    ) -> Self:
        """Return the same agent with the guards of another one besides its own."""
        agent = self._copy()
        agent._before = (*[each for each in before if each not in self._before], *self._before)
        agent._after = (*self._after, *[each for each in after if each not in self._after])
        agent.hold_back = bool(after and hold_back) or bool(self._after and self.hold_back)
        return agent

    def _perform(self, session: Session) -> Session:
        run = run_of(session)
        assert run is not None
        return drive(perform_effects(self._effects(session)), run.io)

    async def _forward_on_loop(self, session: Session) -> Session:
        desk = await run_in_thread(lambda: desk_of(self, session))
        if desk is None or desk.agent is not self:
            return await self._perform_on_loop(session)
        at = session
        agent: Any = await run_in_thread(lambda: desk.first_agent(at))
        is_first = True
        while agent is not None:
            if agent is self:
                session = await self._perform_on_loop(session)
            else:
                make = partial(self._handoff_call, agent, session, is_first=is_first)
                session = await ainvoke(await run_in_thread(make))
            agent, is_first = desk.next_agent(session, agent), False
        return session

    async def _perform_on_loop(self, session: Session) -> Session:
        run = run_of(session)
        assert run is not None
        stops: list[int] = []
        try:
            return await adrive(
                perform_effects(self._effects(session)),
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
        instruction = instruction_name(self.instruction).encode("utf-8", "surrogatepass")
        return f"{super()._default_name()}-{digest(b'plait/agent/1', instruction)[:4]}"

    def invocation(self, session: Session, **how: Any) -> Invocation:
        call = super().invocation(session, **how)
        return msgspec.structs.replace(
            call,
            agent=call.name,
            is_judged=bool(self._after),
            is_silent=bool(self._after) and self.hold_back,
            is_desk=bool(self._handoffs),
            setup=self._encode_setup,
            # a subclass may have a forward of its own
            forward_on_loop=self._forward_on_loop if call.forward is _FORWARD else None,
        )

    def _encode_setup(self, name: str) -> bytes | None:
        """Return the setup. None: its instruction is a function, which is called in the run.

        Raises before anything is written if the model is missing, or something does not fit.
        """
        model_of(self.model, name)
        agents_in_reach(self)
        tools = self.tools
        check_choice(self.tool_choice, tools)
        return None if callable(self.instruction) else self._setup(self.instruction, tools).encode()

    def _setup(self, instruction: str, tools: Mapping[str, Tool[..., Any]]) -> Setup:
        specs = tuple(
            [Spec(tool.name, tool.description, tool.schema) for _, tool in sorted(tools.items())]
        )
        choice = self.tool_choice if self.tool_choice != "auto" else ""
        return Setup(instruction, specs, self.parameters, self._schema, self.view, choice)

    def _effects(self, session: Session) -> EffectGenerator[Session]:
        run = run_of(session)
        assert run is not None
        frame = run.stack.frames(session.id)[-1]
        path = frame.path
        take_over(run, session, frame)
        actor, tools, model = f"agent:{principal_of(path)}", self.tools, model_of(self.model, path)
        session = pass_input(self._before, session, path)
        instruction = instruction_text(self.instruction, path, session)
        setup = self._setup(instruction, tools)
        if callable(self.instruction):
            session, _ = yield record_setup(session, frame, setup)
        # In a tool: since the tool was called.
        prompt = Prompt.of(setup, actor, session.run, session, run.journal.source_runs(session))
        if self.memory is not None:
            session, _ = yield Recall(session, self.memory, prompt, actor, path, frame.purpose)
        choice, forced = choice_of(self.tool_choice)
        ask = AskModel(session, prompt, model, actor, path, tools, choice, forced, self.retry)
        told = AnswerText(run.listeners, path, is_held=bool(self._after) and self.hold_back)
        ask = ask._replace(text=told)
        desk = desk_of(self, session) if self._handoffs else None
        handing = None
        if desk is not None:
            targets = {tool.name: tool for tool in handoff_tools(self._handoffs)}
            handing = Handing(desk, targets, self.steps_max)
        fit = (
            compact_before_ask(
                ask, self.context_max, self._way(path, model), run.journal.tips.events_between
            )
            if self.context_max is not None
            else None
        )
        check = partial(answer_fault, type_=self._type) if self._type is not None else None
        session, is_handed = yield from ask_and_act(
            ask, self.steps_max, check, self._type, fit, handing
        )
        rejected = 0
        while self._after and not is_handed:
            session, why = pass_answer(self._after, session, actor, told)
            if why is None:
                break
            rejected += 1
            if rejected > self.guard_retries and not is_tried_again(session):
                raise GuardRefused(path, why.guard, "answer", why.reason, session)
            session, _ = yield why.note(session)
            again = ask._replace(session=session, choice="auto", forced="")
            session, is_handed = yield from ask_and_act(
                again, self.steps_max, check, self._type, fit, handing
            )
        prompt.put_back()
        return session

    def _way(self, path: str, model: Model) -> Way:
        way = self.compactor.way(path) if self.compactor is not None else Way(model)
        return way._replace(memory=way.memory or self.memory)


_FORWARD = original(Agent)
