"""Small workflows made from a seed, and the world they act on, for the laws of runs that die and
are taken up again.

The world outlives every process: it knows which effects stand, by idempotency key, and how often
models were asked. What a program says depends on its arguments alone, so two runs of one program
can be compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from random import Random
from threading import Lock
from typing import Any, NamedTuple

from plait import (
    Agent,
    Correct,
    Memory,
    Parallel,
    Reject,
    ScriptedModel,
    Selector,
    Session,
    ToolCall,
    Workflow,
    patched,
    tool,
)
from plait.calls.model_call import Retry
from plait.errors import ModelFailed, ToolFailed
from plait.model.base import Fault, OnDelta, Reply, Request
from plait.policy import Ask, Policy
from plait.runtime.delegation import WorkflowTool
from plait.session.views import Waiting
from plait.tool import Happened, Tool
from tests.support.memories import CountedIndex

Act = Callable[[Session], Session]


class Effect(NamedTuple):
    tool: str
    n: int


class World:
    """The world outside of all processes."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> World:
        """As if nothing had ever happened."""
        self.stands: Counter[str] = Counter()  # by key: done, less undone
        self.most: Counter[str] = Counter()  # by key: how often it stood at once, at most
        self.times: Counter[str] = Counter()  # by key: how often it was done
        self.about: dict[str, Effect] = {}
        self.asked = 0  # models
        self.runs = 0  # of tools of any class
        self.sealed = False  # nothing may happen any more
        self.lock = Lock()
        return self

    def check_open(self) -> None:
        assert not self.sealed, "something was executed in a replay"

    def touch(self) -> None:
        self.check_open()
        with self.lock:
            self.runs += 1

    def do(self, key: str, effect: Effect) -> str:
        self.touch()
        with self.lock:
            self.about[key] = effect
            self.times[key] += 1
            self.stands[key] += 1
            self.most[key] = max(self.most[key], self.stands[key])
        return f"{effect.tool} {effect.n}"

    def undo(self, key: str) -> None:
        self.touch()
        with self.lock:
            self.stands[key] = 0

    def found(self, key: str) -> Happened | None:
        """Return the finding of a probe, or of a person who looks."""
        return Happened(f"{self.about[key].tool} {self.about[key].n}") if self.stands[key] else None

    def oracle(self, ask: Waiting, key: str) -> Happened | None:
        return self.found(key)

    def standing(self) -> Counter[Effect]:
        """Effects that stand, counted by key, not by how often an idempotent one was repeated under
        the same.
        """
        return Counter(self.about[key] for key, times in self.stands.items() if times)


class Counted(ScriptedModel):
    """A script that the world knows of."""

    def __init__(self, world: World, script: Any, name: str = "scripted") -> None:
        super().__init__(script, name=name)
        self._world = world

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        assert not self._world.sealed, "a model was asked in a replay"
        with self._world.lock:
            self._world.asked += 1
        return super().ask(request, on_delta)


@cache  # reading signatures takes longer than most histories
def tools_of(world: World) -> dict[str, Tool[..., Any]]:
    """A tool of every class, and some that have the session in hand."""

    @tool(effect="pure")
    def look(n: int) -> str:
        world.touch()
        return f"look {n}"

    @tool(effect="workspace")
    def edit(n: int) -> str:
        world.touch()
        return f"edit {n}"

    @tool(effect="idempotent")
    def put(n: int, idempotency_key: str) -> str:
        return world.do(idempotency_key, Effect("put", n))

    def probe(idempotency_key: str) -> Happened | None:
        return world.found(idempotency_key)

    def undo(idempotency_key: str) -> None:
        world.undo(idempotency_key)

    @tool(effect="probeable", probe=probe)
    def book(n: int, idempotency_key: str) -> str:
        return world.do(idempotency_key, Effect("book", n))

    @tool(effect="compensatable", compensate=undo)
    def charge(n: int, idempotency_key: str) -> str:
        return world.do(idempotency_key, Effect("charge", n))

    @tool
    def mail(n: int, idempotency_key: str) -> str:
        return world.do(idempotency_key, Effect("mail", n))

    @tool(effect="idempotent")
    def consult(n: int, session: Session) -> str:
        world.touch()
        aside = session.fork("aside")
        script = [ToolCall("look", n=n), f"advice {n}"]
        return Agent("Advise.", model=Counted(world, script), name="adviser", tools=[look])(
            aside
        ).text

    @tool(effect="idempotent", attempts=2)
    def flaky(n: int, idempotency_key: str) -> str:
        if not world.times[idempotency_key]:
            world.do(idempotency_key, Effect("flaky", n))
            raise TimeoutError("nobody heard of it")
        return f"flaky {n}"

    @tool(effect="idempotent")
    async def later(n: int, idempotency_key: str) -> str:
        return world.do(idempotency_key, Effect("later", n))

    @tool(effect="idempotent")
    def jot(n: int, session: Session) -> str:
        world.touch()
        session.reload().fact(f"jotted {n}", n)  # its siblings write, too
        return f"jot {n}"

    @tool(effect="idempotent")
    def broken(n: int) -> str:
        world.touch()
        raise RuntimeError(f"broken {n}")

    found = (look, edit, put, book, charge, mail, consult, jot, broken, flaky, later)
    return {each.name: each for each in found}


EFFECTS = ("put", "book", "charge", "mail")
PLAIN = ("look", "edit", "flaky", "later", *EFFECTS)
WITH_SESSION = ("consult", "jot")


class Program(Workflow):
    """A program made from a seed, step by step."""

    def __init__(self, acts: list[Act], parts: list[Any]) -> None:
        self._acts, self.parts = acts, parts

    def forward(self, session: Session) -> Session:
        for act in self._acts:
            session = act(session)
        return session


class Traits(NamedTuple):
    """Traits of a program that its checks depend on."""

    nested_asks: bool = False  # a tool that may be run again asks models
    threads: bool = False  # of its own: who comes first is chance
    lists: bool = False  # of models: a new process does not know which one was down


class Maker:
    """Makes the same program from the same seed, for every process anew."""

    def __init__(self, seed: int, world: World, *, steps: int = 3) -> None:
        self._chance, self._world, self._steps = Random(seed), world, steps
        index = CountedIndex()
        index.before = world.check_open
        self._memory = Memory(index=index)
        self._memory_tools = self._memory.tools
        self._tools = tools_of(world)
        self._number = 0
        self.traits = Traits()
        # of the program, of parts of it and of branches; code of tools may change at any time
        self.sequences: list[list[Act]] = []

    def program(self) -> Program:
        made = self._program(self._chance.randint(1, self._steps), 0)
        if self._chance.random() < 0.25:
            made.policy = Policy(Ask(self._chance.choice(EFFECTS)))
        return made

    def _program(self, steps: int, depth: int) -> Program:
        parts: list[Any] = []
        acts = [self._step(parts, depth) for _ in range(steps)]
        self.sequences.append(acts)
        return Program(acts, parts)

    def _step(self, parts: list[Any], depth: int) -> Act:
        flat = (
            self._say,
            self._fact,
            self._use,
            self._use,
            self._agent,
            self._agent,
            self._team,
            self._desk,
            self._guarded,
            self._caught,
            self._gone,
            self._select,
            self._with_session,
            self._remember,
            self._recall,
            self._fallback,
        )
        deep = (
            self._parallel,
            self._fork,
            self._rewind,
            self._nested,
            self._threads,
            self._left_alone,
        )
        kinds = (
            (*flat, *deep) if depth == 0 or (depth == 1 and self._chance.random() < 0.3) else flat
        )
        return self._chance.choice(kinds)(parts, depth)

    def _next(self) -> int:
        self._number += 1
        return self._number

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    def _say(self, parts: list[Any], depth: int) -> Act:
        n = self._next()
        return lambda session: session.say(f"said {n}")

    def _fact(self, parts: list[Any], depth: int) -> Act:
        n = self._next()
        return lambda session: session.fact(f"fact {n}", n)

    def _use(self, parts: list[Any], depth: int) -> Act:
        n, found = self._next(), self._tools[self._chance.choice(PLAIN)]
        return lambda session: session.use(found, n=n)

    def _with_session(self, parts: list[Any], depth: int) -> Act:
        n, found = self._next(), self._tools[self._chance.choice(WITH_SESSION)]
        self.traits = self.traits._replace(nested_asks=True)
        return lambda session: session.use(found, n=n)

    def _remember(self, parts: list[Any], depth: int) -> Act:
        n, look = self._next(), self._tools["look"]
        scope = self._chance.choice(("session", "user"))

        def act(session: Session) -> Session:
            session = session.use(look, n=n)
            return self._memory.remember(session, f"look {n}", scope=scope, evidence=session)

        return act

    def _recall(self, parts: list[Any], depth: int) -> Act:
        n = self._next()

        def act(session: Session) -> Session:
            session, hits = self._memory.recall(session, "look")
            return session.fact(f"recalled {n}", len(hits))

        return act

    def _agent(self, parts: list[Any], depth: int) -> Act:
        made = self._an_agent()
        parts.append(made)
        return made

    def _fallback(self, parts: list[Any], depth: int) -> Act:
        """An agent with a list of models, some of which are down for a while or for good."""
        down = Fault("Overloaded", "come back later", retryable=True)
        refused = Fault("AuthFailed", "no such key")
        n, script = self._next(), [self._call(), self._call(), f"done {self._next()}"]
        first: list[Any] = self._chance.choice(
            ([down] * 40, [refused] * 40, [script[0], *[down] * 40], [down, *script])
        )
        answered = 1 if first[0] is script[0] else 0
        models = [
            Counted(self._world, first, "first"),
            Counted(self._world, [refused] * 40, "second"),
            Counted(self._world, script[answered:], "third"),
        ]
        agent = Agent(
            "Work.",
            model=models[:1] + models[2:] if self._chance.random() < 0.5 else models,
            tools=[*self._tools.values(), *self._memory_tools],
            name=f"agent{n}",
            retry=Retry(attempts=2),
        )
        self.traits = self.traits._replace(lists=True)
        parts.append(agent)
        return agent

    def _an_agent(self) -> Agent:
        script: list[Any] = []
        for _ in range(self._chance.randint(0, 2)):
            if self._chance.random() < 0.15:
                script.append(Fault("Overloaded", "come back later", retryable=True))
            script.append([self._call() for _ in range(self._chance.randint(1, 3))])
        script.append(f"done {self._next()}")
        return Agent(
            "Work.",
            model=Counted(self._world, script),
            tools=[*self._tools.values(), *self._memory_tools],
            name=f"agent{self._next()}",
            memory=self._memory if self._chance.random() < 0.3 else None,
        )

    def _call(self) -> ToolCall:
        name = self._chance.choice((*PLAIN, "broken", "jot", "remember"))
        if name == "remember":
            scope = self._chance.choice(("session", "user"))
            return ToolCall(name, text=f"learned {self._next()}", scope=scope)
        return ToolCall(name, n=self._next())

    def _team(self, parts: list[Any], depth: int) -> Act:
        made = self._a_team(depth)
        parts.append(made)
        return made

    def _a_team(self, depth: int) -> Agent:
        """An agent whose tools are agents and workflows, called side by side."""
        helpers = [self._helper(depth, index) for index in range(self._chance.randint(1, 2))]
        script: list[Any] = []
        for _ in range(self._chance.randint(1, 2)):
            asked = self._chance.sample(helpers, self._chance.randint(1, len(helpers)))
            calls = [ToolCall(each.name, request=f"task {self._next()}") for each in asked]
            script.append([*calls, *([self._call()] if self._chance.random() < 0.4 else [])])
        script.append(f"done {self._next()}")
        return Agent(
            "Lead.",
            model=Counted(self._world, script),
            tools=[*self._tools.values(), *self._memory_tools, *helpers],
            name=f"lead{self._next()}",
        )

    def _helper(self, depth: int, index: int) -> WorkflowTool:
        # the order in which branches are merged is chance, and so would be that of what they said
        takes = self._chance.choice(("answer", "facts", "all" if not index else "files"))
        lot, name = self._chance.random(), f"helper{self._next()}"
        made: Workflow
        known = len(self.sequences)
        if lot < 0.2 and depth < 2:
            made = self._a_team(depth + 1)
        elif lot < 0.5:
            made = self._program(self._chance.randint(1, 2), max(depth, 1) + 1)
        else:
            made = self._an_agent()
        del self.sequences[known:]
        return made.as_tool(name=name, description="Helps.", takes=takes)

    def _desk(self, parts: list[Any], depth: int) -> Act:
        """Agents that hand the conversation on, and that are called again on the session."""
        n, tools = self._next(), [*self._tools.values(), *self._memory_tools]
        answers = [[self._call()], *[f"answer {self._next()}" for _ in range(3)]]
        last = Agent("Answer.", model=Counted(self._world, answers), tools=tools, name=f"last{n}")
        on = [self._call(), ToolCall(f"hand_off_to_last{n}", reason=f"because {self._next()}")]
        middle = Agent(
            lambda session: f"Go on after {len(session.effects)} effects.",
            model=Counted(self._world, [on]),
            tools=tools,
            name=f"middle{n}",
            handoffs=[last],
        )
        target = self._chance.choice((middle, last)).name
        calls = [self._call(), ToolCall(f"hand_off_to_{target}", reason="so"), on[1]]
        desk = Agent(
            "Triage.",
            model=Counted(self._world, [calls]),
            tools=tools,
            name=f"desk{n}",
            handoffs=[middle, last],
            tool_choice="required",
        )
        parts.append(desk)
        times = self._chance.randint(1, 2)

        def act(session: Session) -> Session:
            for turn in range(times):
                session = desk(session.say(f"turn {n} {turn}"))
            return session

        return act

    def _guarded(self, parts: list[Any], depth: int) -> Act:
        """An agent whose input is corrected, and whose first answer is rejected."""
        n, lot = self._next(), self._chance.random()

        def before(session: Session, text: str) -> Correct | None:
            return Correct(f"corrected {n}") if lot < 0.5 else None

        def after(session: Session, text: str) -> Reject | Correct | None:
            if text == f"first {n}":
                return Reject(f"not {n}")
            return Correct(f"corrected answer {n}") if lot < 0.3 else None

        verdict = '{"passes": true, "reason": ""}'
        model = Counted(self._world, [[self._call()], verdict, verdict])
        judge = Agent("Judge.", model=model, tools=[*self._tools.values(), *self._memory_tools])
        script = [[self._call()], f"first {n}", [self._call()], f"second {n}"]
        made = Agent(
            "Work.",
            model=Counted(self._world, script),
            tools=[*self._tools.values(), *self._memory_tools],
            name=f"guarded{n}",
            before=[before, judge] if lot > 0.6 else [before],
            after=[after, judge] if lot > 0.8 else [after],
        )
        parts.append(made)
        return made

    def _caught(self, parts: list[Any], depth: int) -> Act:
        n, broken = self._next(), self._tools["broken"]

        def act(session: Session) -> Session:
            try:
                return session.use(broken, n=n)
            except ToolFailed as error:
                assert isinstance(error.session, Session)
                return error.session.say(f"caught {n}")

        return act

    def _gone(self, parts: list[Any], depth: int) -> Act:
        n = self._next()
        agent = Agent(
            "Fail.", model=Counted(self._world, [Fault("Refused", "no")]), name=f"agent{n}"
        )
        parts.append(agent)

        def act(session: Session) -> Session:
            try:
                return agent(session)
            except ModelFailed as error:
                assert isinstance(error.session, Session)
                return error.session.say(f"gone {n}")

        return act

    def _select(self, parts: list[Any], depth: int) -> Act:
        one, other = self._program(1, 2), self._an_agent()
        choice = self._chance.choice(("one", "other"))
        if self._chance.random() < 0.5:
            selector = Selector(
                one=one,
                other=other,
                model=Counted(self._world, [json.dumps({"reason": "so", "choice": choice})]),
            )
        else:
            selector = Selector(one=one, other=other, rule=lambda session: choice)
        parts.append(selector)
        return lambda session: selector(session)()

    def _parallel(self, parts: list[Any], depth: int) -> Act:
        made = Parallel(
            a=self._program(self._chance.randint(1, 2), depth + 1),
            b=self._program(self._chance.randint(1, 2), depth + 1),
        )
        parts.append(made)
        return made

    def _nested(self, parts: list[Any], depth: int) -> Act:
        made = self._program(self._chance.randint(1, 2), depth + 1)
        parts.append(made)
        return made

    def _branch(self, parts: list[Any], depth: int) -> Act:
        acts = [self._step(parts, depth + 1) for _ in range(self._chance.randint(1, 2))]
        self.sequences.append(acts)

        def act(session: Session) -> Session:
            for each in acts:
                session = each(session)
            return session.fact(f"branch {session.lineage.label}", True)

        return act

    def _fork(self, parts: list[Any], depth: int) -> Act:
        n, inside = self._next(), self._branch(parts, depth)
        return lambda session: session.merge(inside(session.fork(f"fork {n}")))

    def _left_alone(self, parts: list[Any], depth: int) -> Act:
        n, inside = self._next(), self._branch(parts, depth)

        def act(session: Session) -> Session:
            inside(session.fork(f"left {n}"))
            return session

        return act

    def _rewind(self, parts: list[Any], depth: int) -> Act:
        inside = self._branch(parts, depth)
        return lambda session: inside(session).rewind(session.seq)

    def _threads(self, parts: list[Any], depth: int) -> Act:
        n = self._next()
        inside = [self._branch(parts, depth) for _ in range(2)]
        self.traits = self.traits._replace(threads=True)

        def act(session: Session) -> Session:
            forks = [session.fork(f"thread {n} {index}") for index in range(2)]
            with ThreadPoolExecutor(2) as pool:
                works = [pool.submit(work, fork) for work, fork in zip(inside, forks, strict=True)]
            return session.merge(*[work.result() for work in works])

        return act


def program(seed: int, world: World) -> Program:
    return Maker(seed, world).program()


def changed_program(seed: int, world: World) -> Program:
    """Return the program of a seed with a change somewhere: another step, or one less."""
    maker, chance = Maker(seed, world), Random(f"change {seed}")
    made = maker.program()
    acts = chance.choice(maker.sequences)
    at = chance.randint(0, len(acts))
    if at < len(acts) and chance.random() < 0.3:
        del acts[at]
    else:
        acts.insert(at, lambda session: session.fact("changed", True))
    return made


def patched_program(seed: int, world: World) -> Program:
    """Return the program of a seed with another step, for runs that have not passed it yet."""
    maker, chance = Maker(seed, world), Random(f"patch {seed}")
    made = maker.program()
    acts = chance.choice(maker.sequences)

    def act(session: Session) -> Session:
        if patched("another step", session):
            return session.use(tools_of(world)["put"], n=1000).fact("patched", True)
        return session

    acts.insert(chance.randint(0, len(acts)), act)
    return made


def traits(seed: int, world: World) -> Traits:
    maker = Maker(seed, world)
    maker.program()
    return maker.traits
