"""Handoffs: an agent passes the conversation on to another, on the same session, in the same run.

The agent that was called is the desk: it calls the agent that has the session, one after another,
until one answers instead of handing off. A handoff is a tool call with a reason, and an event,
`HandedOff`, on the session. A desk that is called again on the session begins with the agent that
has it, as its events tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from plait.errors import InvalidValue
from plait.event import Json
from plait.event import kinds as k
from plait.event.kinds import Action, Failure
from plait.runtime.delegation import CallableWorkflow
from plait.runtime.effects import Answer, AskModel, EffectGenerator, Record, UseTools
from plait.runtime.patches import is_patched
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.session import Session
from plait.session.events import path_events
from plait.session.ports import Act, Draft, store_at
from plait.session.value import state_of
from plait.tool import Tool, WrongArguments

REASON = "reason"
DESK_GUARDS = "guards of the desk"  # the mark of runs in which they judge whoever answers
_HANDED_OFF = frozenset({k.HandedOff.__name__})
_SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {REASON: {"type": "string", "description": "why, in a sentence"}},
    "required": [REASON],
    "additionalProperties": False,
}


class HandoffAgent(CallableWorkflow, Protocol):
    """An agent that may hand off to others."""

    @property
    def handoffs(self) -> Sequence[HandoffAgent]: ...


class HandoffTool(Tool[..., Any]):
    """The tool by which an agent hands the conversation over to another one."""

    def __init__(self, target: HandoffAgent) -> None:
        name = target.name or ""
        self.target = target

        def take_over(reason: str) -> str:
            return f"{name} has the conversation now"

        about = f"Hand the conversation over to {name}, who goes on with it and answers."
        super().__init__(
            take_over,
            name=f"hand_off_to_{name}",
            description=f"{about} {target.describe()}".strip(),
            schema=_SCHEMA,
            effect="pure",
            convert=_convert,
        )

    def fingerprint_parts(self) -> tuple[object, ...]:
        return (self.name, self.description, self.schema)


def _convert(given: Mapping[str, Json]) -> dict[str, Any]:
    reason = given.get(REASON)
    if set(given) != {REASON} or not isinstance(reason, str) or not reason.strip():
        raise WrongArguments(f"say why, as in {{{REASON!r}: 'it is about an invoice'}}")
    return {REASON: reason}


def handoff_tools(targets: Sequence[HandoffAgent]) -> list[HandoffTool]:
    """Return a tool for each agent that may be handed the conversation."""
    names = [target.name for target in targets]
    for name in names:
        if not name:
            step = 'name it: Agent(…, name="billing")'
            raise InvalidValue("handoffs", "an agent among them has no name", step)
        if names.count(name) > 1:
            raise InvalidValue("handoffs", f"two agents are called {name!r}", "rename one of them")
    return [HandoffTool(target) for target in targets]


def agents_in_reach(desk: HandoffAgent) -> dict[str, HandoffAgent]:
    """Return the agents that the conversation may come to, by name, the desk itself aside."""
    found: dict[str, HandoffAgent] = {}
    left = list(desk.handoffs)
    while left:
        agent = left.pop(0)
        if agent is desk:
            continue
        name = agent.name or ""
        if name not in found:
            found[name] = agent
            left.extend(agent.handoffs)
        elif found[name] is not agent:
            why = f"two agents that {desk.name or 'it'} may come to are called {name!r}"
            raise InvalidValue("handoffs", why, "rename one of them")
    return found


class Desk(NamedTuple):
    """The agent that was called, and those to which the conversation may come from there."""

    agent: HandoffAgent
    run: Run
    path: str  # of the desk
    scope: str
    agents: Mapping[str, HandoffAgent]  # in reach, by name

    def first_agent(self, session: Session) -> HandoffAgent:
        """Return the agent that has the session: the last one it was handed to, else the desk."""
        store = store_at(session.store)
        for _, event in path_events(store, state_of(session).story.path, _HANDED_OFF, reverse=True):
            body = event.body
            assert isinstance(body, k.HandedOff)
            if body.reason and (found := self._agent_at(body.to)) is not None:
                return found
        return self.agent

    def next_agent(self, session: Session, last: HandoffAgent) -> HandoffAgent | None:
        """Return the agent that the last one handed off to. None: it answered."""
        path = self.run.stack.agent_of(session.id, self.scope)
        found = self._agent_at(path) if path is not None else None
        return found if found is not last else None

    def path_of(self, agent: HandoffAgent) -> str:
        return self.path if agent is self.agent else f"{self.path}/{agent.name}"

    def _agent_at(self, path: str) -> HandoffAgent | None:
        if path == self.path:
            return self.agent
        above, _, name = path.rpartition("/")
        return self.agents.get(name) if above == self.path else None


def desk_of(agent: HandoffAgent, session: Session) -> Desk | None:
    """Return the desk of a call: the agent that was called, or the one that called it as a handoff.

    None: it hands off to no other.
    """
    run = run_of(session)
    assert run is not None
    frames = run.stack.frames(session.id)
    frame, node = frames[-1], agent
    if frame.how == "handoff":
        frame = frames[-2]
        node: Any = frame.node
    agents = agents_in_reach(node)
    return Desk(node, run, frame.path, frame.scope, agents) if agents else None


def is_marked_here(change: str, session: Session) -> bool:
    """True if a run goes the way of a change in handoffs: it is new, or its record has the mark."""
    run = run_of(session)
    assert run is not None
    return is_patched(change, run, run.stack.frames(session.id)[-1], session.id)


# ── in a call ────────────────────────────────────────────────────────────────────────────────


class Handing(NamedTuple):
    """The handoffs that an agent may make in a call."""

    desk: Desk
    tools: Mapping[str, HandoffTool]
    times_max: int  # handoffs in one call of the desk

    def target_in(self, answer: Answer) -> Action | None:
        """Return the first call of a reply that hands off. None: there is none."""
        return next((each for each in answer.runnable if each.tool in self.tools), None)


def use_and_hand_off(
    ask: AskModel, session: Session, answer: Answer, handing: Handing, chosen: Action
) -> EffectGenerator[tuple[Session, bool]]:
    """Run the calls of a reply, of which one hands off; return True if the conversation moves on.

    Only the first handoff of a reply counts, and none once there were too many.
    """
    excess = [each for each in answer.runnable if each.tool in handing.tools]
    times = _times_handed_off(session, handing.desk)
    why = "one reply hands off once"
    if times < handing.times_max:
        excess.remove(chosen)
    else:
        why = f"the conversation was handed off {times} times already; answer yourself"
    runnable = tuple([each for each in answer.runnable if each not in excess])
    effect = UseTools(
        session, runnable, ask.tools, ask.actor, ask.path, answer.requests, answer.spoken, True
    )
    session, outcomes = yield effect
    drafts = [_refusal(ask, each, answer, why) for each in excess]
    outcome = outcomes.get(chosen.call) if chosen in runnable else None
    to = handing.desk.path_of(handing.tools[chosen.tool].target)
    is_handed = False
    if outcome is not None and outcome.kind == k.ToolReturned.__name__:
        is_handed = True
        reason = str(chosen.arguments[REASON]) if isinstance(chosen.arguments, Mapping) else ""
        act = Act(ask.actor, "model", causes=(outcome.id,))
        drafts.append(Draft(k.HandedOff(to, reason), act))
    if drafts:
        session, _ = yield Record(session, drafts)
    if is_handed:
        handing.desk.run.stack.hand_over(session.id, handing.desk.scope, to)
    return session, is_handed


def _times_handed_off(session: Session, desk: Desk) -> int:
    """Count the handoffs of this run among the agents of a desk."""
    events = store_at(session.store).read(session.id, 1, session.seq, kinds=_HANDED_OFF)
    bodies = [event.body for event in events if event.header.run == desk.scope]
    return sum(
        isinstance(body, k.HandedOff) and bool(body.reason) and body.to.startswith(desk.path)
        for body in bodies
    )


def _refusal(ask: AskModel, action: Action, answer: Answer, why: str) -> Draft:
    act = Act(ask.actor, "program", call=action.call, causes=(answer.requests[action.call].id,))
    return Draft(k.ToolFailed(Failure("NotHandedOff", f"{why}. It was not run")), act)
