"""The call stack of a run, kept by log and never by thread.

An agent knows its path wherever it is called from: the calls that have a log in hand are found by
the log.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock, Thread
from typing import Any, Literal, NamedTuple

from plait.event.kinds import Purpose
from plait.ids import LogId
from plait.runtime.loop import code_thread
from plait.runtime.names import principal_of
from plait.runtime.policy import Policy
from plait.session.ports import UNNAMED, Act, Position

# a plain call, one as the tool of an agent, or one to which an agent handed the session
How = Literal["", "tool", "handoff"]


class Frame(NamedTuple):
    """A call that is going on."""

    path: str  # review/critics/style
    call: str  # the id of the call
    node: object  # the workflow that was called
    forward: object  # the function of it that is running: `super().forward` is no call of its own
    log: LogId  # the log it was called on
    actor: str  # the principal it acts as
    purpose: Purpose
    scope: str  # the run, or the tool call in it that this call is made by
    policies: tuple[
        Policy, ...
    ] = ()  # its callers' and its own: a call may no more than its caller
    how: How = ""


class CallStack:
    """The calls of a run that are going on, its agents, and how often each log was called on."""

    def __init__(self, run: str, root: LogId) -> None:
        self._run, self._root = run, root
        self._lock = Lock()
        self._frames: dict[LogId, tuple[Frame, ...]] = {}
        self._forked_with: dict[LogId, tuple[Frame, ...]] = {}
        self._threads: dict[str, Thread] = {}  # by call: the thread whose code it is
        self._settled_scopes: set[str] = set()
        self._agents: dict[tuple[LogId, str], str] = {}
        self._counts: Counter[tuple[LogId, str]] = Counter()
        self._acts: dict[str, Act] = {}

    # ── frames ───────────────────────────────────────────────────────────────────────────────

    def frames(self, log: LogId) -> tuple[Frame, ...]:
        """Return the calls that have a log in hand, the outermost first."""
        found = self._frames.get(log)
        return found if found is not None else self._frames.get(self._root, ())

    def frames_at_fork(self, log: LogId) -> tuple[Frame, ...]:
        """Return the calls that had a branch in hand when it was forked."""
        return self._forked_with.get(log, ())

    def has_calls(self, log: LogId) -> bool:
        """True if a call that was made on this very log has not ended."""
        return any(frame.log == log for frame in self._frames.get(log, ()))

    def set_frames(self, log: LogId, frames: tuple[Frame, ...]) -> None:
        with self._lock:
            self._frames[log] = frames

    def drop(self, log: LogId, frame: Frame) -> None:
        """Take a log out of the hands of a call."""
        with self._lock:
            frames = self._frames.get(log, ())
            if frame in frames:
                self._frames[log] = tuple([each for each in frames if each != frame])
            self._threads.pop(frame.call, None)

    def add_branch(self, log: LogId, parent: LogId, scope: str) -> None:
        """Put a branch into the hands of the calls, and of the agent, that have its parent."""
        with self._lock:
            self._frames[log] = self._forked_with[log] = self._frames.get(parent, ())
            agent = self._agents.get((parent, scope)) or self._agents.get((parent, self._run))
            if agent is not None:
                self._agents[log, scope] = agent

    # ── names ────────────────────────────────────────────────────────────────────────────────

    def principal(self, log: LogId | None) -> str | None:
        """Return the principal of the innermost call that has a log in hand."""
        frames = self.frames(log or self._root)
        return f"service:{principal_of(frames[-1].path)}" if frames else None

    def judges(self, log: LogId, principal: str) -> tuple[str, ...]:
        """Return the names under which the calls of a log give verdicts."""
        frames = self.frames(log)
        known = {kind.__qualname__ for frame in frames for kind in type(frame.node).__mro__[:-1]}
        return (principal, *(frame.path for frame in frames[-1:]), *sorted(known))

    def path_of(self, log: LogId, workflow: object) -> str | None:
        """Return the path of a workflow that is called, or may be, by the calls of a log."""
        for frame in reversed(self.frames(log)):
            if frame.node is workflow:
                return frame.path
            parts: Any = getattr(frame.node, "named_parts", tuple)()
            found = next((path for path, part in parts if part is workflow), None)
            own = getattr(workflow, "name", None)
            if found is not None:
                return own if isinstance(own, str) and own else f"{frame.path}/{found}"
        return None

    def hand_over(self, log: LogId, scope: str, agent: str) -> str | None:
        """Give the session to an agent; return the agent that had it, if it is another one."""
        with self._lock:
            before = self._agents.get((log, scope)) or self._agents.get((log, self._run))
            self._agents[log, scope] = agent
        return before if before != agent else None

    def agent_of(self, log: LogId, scope: str) -> str | None:
        """Return the path of the agent that has the session. None: no agent was called on it."""
        return self._agents.get((log, scope)) or self._agents.get((log, self._run))

    def next_ordinal(self, log: LogId, scope: str) -> int:
        """Count the calls on a log in this execution."""
        with self._lock:
            self._counts[log, scope] += 1
            return self._counts[log, scope]

    # ── threads and tools ────────────────────────────────────────────────────────────────────

    def begin_code(self, frame: Frame) -> None:
        """Note that the code of a call runs in this thread."""
        self._threads[frame.call] = code_thread()

    def end_scope(self, scope: str | None) -> None:
        """Note that a tool call has its outcome: its threads are outsiders from now on."""
        if scope is not None and scope != self._run:
            self._settled_scopes.add(scope)

    def has_in_hand(self, at: Position) -> bool:
        """True if the code here is that of the call that has a value in hand.

        Another thread that was handed the value writes from outside.
        """
        scope = at.run or self._run
        if scope in self._settled_scopes:
            return False
        here: Thread | None = None
        for frame in self._frames.get(at.id, ()):
            if frame.log == at.id and frame.scope == scope:
                here = here or code_thread()
                if self._threads.get(frame.call, here) is here:
                    return True
        return here is None

    def set_act(self, scope: str, act: Act) -> None:
        """Let a tool act on the session that it is handed as this says."""
        self._acts[scope] = act

    def act_of(self, at: Position | None) -> Act:
        return self._acts.get(at.run or "", UNNAMED) if at is not None and self._acts else UNNAMED
