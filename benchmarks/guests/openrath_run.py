"""OpenRath's runtime, as it is meant to be used and as lean as it lets itself be made.

- In memory: `run_session_loop`, nothing persisted, with an executor of ours that answers at once.
  As it comes (`whole`) that is its public `SessionLoopExecutor`, for which it hops into a thread at
  each model call and each tool. `lean` has the coroutines that it uses inside, which run where they
  stand: no thread, no record, a list in memory.
- On disk: `LocalRuntime` on `SQLiteRunStore`, one `@step` that asks the model and runs the tool and
  leads to itself. The state that each checkpoint writes holds a counter and the last result, and
  not the conversation, which would make each one dearer than the last. A connection of ours is kept
  open, which spares it a checkpoint of the write-ahead log whenever it closes its own. `lean` is
  one commit per step: what the model said is not on record, and a crash in the middle repeats the
  tool. `whole` records the call before and after with `SQLiteEffectLedger`, as it must to know that
  it may have run: three commits more.
- It has one run at a time per session, so that agents working together have a session each.
"""

from __future__ import annotations

import sqlite3
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from rath.context import RunContext
from rath.definition import EffectClass, step
from rath.flow.tool import FlowToolCall
from rath.llm import (
    Provider,
    RathLLMAssistantMessage,
    RathLLMChatChoice,
    RathLLMChatResponse,
    RathLLMToolCallFunction,
    RathLLMToolCallPart,
)
from rath.runtime.effects import SQLiteEffectLedger, arguments_digest
from rath.runtime.local import LocalRuntime
from rath.runtime.sqlite import SQLiteRunStore
from rath.session import Session, run_session_loop
from rath.session.chunk import ChunkTable, user_text_chunk
from worker import Runner, Stamps, at_once, serve, share

ARGUMENTS = {"text": "to be or not to be"}
LEASE_S = 600.0
REVISION = uuid4()


class Echo(FlowToolCall):
    parallel_safe = True
    name = "echo"
    description = "Nothing but what it was given."
    parameters = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }

    def __call__(self, session: Session, arguments: Any) -> Any:
        return arguments["text"]


def response(message: RathLLMAssistantMessage, finish: Any) -> RathLLMChatResponse:
    return RathLLMChatResponse(
        id="", choices=(RathLLMChatChoice(0, finish, message),), created=0, model="bench"
    )


def calling(name: str) -> RathLLMChatResponse:
    function = RathLLMToolCallFunction(
        name, '{"text":"to be or not to be"}', dict(ARGUMENTS), False
    )
    return response(
        RathLLMAssistantMessage(tool_calls=(RathLLMToolCallPart("c1", "function", function),)),
        "tool_calls",
    )


CALL, MISCALL, END = (
    calling("echo"),
    calling("missing"),
    response(RathLLMAssistantMessage(content="that is the question"), "stop"),
)


class Ready:
    """An executor that costs nothing: so many calls of a tool, then an answer."""

    def __init__(self, calls: int, call: RathLLMChatResponse = CALL) -> None:
        self.calls, self.call, self.stamps, self.asked = calls, call, Stamps(), 0

    def tool_schemas(self) -> tuple[Any, ...]:
        return ()

    def complete(self, request: Any) -> RathLLMChatResponse:
        self.stamps.mark()
        self.asked += 1
        return self.call if self.asked <= self.calls else END

    def dispatch_tool(self, session: Session, tool: FlowToolCall, arguments: Any) -> Any:
        return tool(session, arguments)


class Lean(Ready):
    async def acomplete(self, request: Any) -> RathLLMChatResponse:
        return self.complete(request)

    async def adispatch_tool(self, session: Session, tool: FlowToolCall, arguments: Any) -> Any:
        return tool(session, arguments)


class Turn:
    """A workflow of one step that leads to itself."""

    def __init__(self, stamps: Stamps, ledger: SQLiteEffectLedger | None) -> None:
        self.stamps, self.ledger = stamps, ledger

    @step(entry=True, successors=("act",), effects=EffectClass.READ_ONLY)
    def act(self, state: dict[str, Any], context: Any) -> dict[str, Any]:
        self.stamps.mark()
        count = state["count"] + 1
        function = CALL.choices[0].message.tool_calls[0].function  # type: ignore[index]
        if self.ledger is None:
            return {"count": count, "last": function.arguments_parsed["text"]}  # type: ignore[index]
        call = self.ledger.prepare(
            run_id=context.run_id,
            tool_name=function.name,
            effect_class=EffectClass.IDEMPOTENT,
            arguments_digest=arguments_digest(ARGUMENTS),
            idempotency_key=str(count),
            node_id="act",
        )
        self.ledger.mark_dispatched(call.id)
        result = function.arguments_parsed["text"]  # type: ignore[index]
        self.ledger.complete(call.id, result)
        return {"count": count, "last": result}


class OpenRath(Runner):
    def __init__(self, folder: Path, lean: bool) -> None:
        super().__init__(folder)
        how = (
            "one commit per step, in memory no threads"
            if lean
            else "four commits per step (effect ledger), its public executor"
        )
        self.settings = f"WAL as it comes, synchronous FULL, a connection of ours kept open; {how}"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "runs.db"
        self.store = SQLiteRunStore(self.path)
        self.executor = Lean if lean else Ready
        self.ledger = None if lean else SQLiteEffectLedger(str(self.path))
        self.kept_open = sqlite3.connect(self.path)
        self.kept_open.execute("SELECT count(*) FROM runs").fetchall()
        self.agent, self.provider = Session.from_agent_prompt("Say it."), Provider(model="bench")
        self.long: dict[int, Session] = {}

    def version(self) -> str:
        return f"openrath {version('openrath')} (SQLite {sqlite3.sqlite_version})"

    def settle(self) -> None:
        """Past the first checkpoint: each commit makes the log's file longer until then."""
        self.kept_open.executescript(
            "CREATE TABLE settle (x); INSERT INTO settle VALUES (randomblob(12000000))"
        )

    def turn(self, calls: int, refused: bool = False) -> dict[str, float]:
        return self._turn(_session(1), calls, MISCALL if refused else CALL)[0].mean()

    def nested(self, calls: int) -> dict[str, float]:
        return self.outermost(calls)  # it has no runs of workflows here: a call is a call

    def outermost(self, calls: int) -> dict[str, float]:
        return share(calls, partial(self._again, _session(1), calls))

    def growth(self, calls: int) -> dict[str, dict[str, float]]:
        stamps, _ = self._turn(_session(1), calls)
        return {"early": stamps.median(5, 25), "late": stamps.median(calls - 20, calls)}

    def answer(self, messages: int, fresh: bool) -> dict[str, float]:
        session = self.long.setdefault(messages, _session(messages))
        return share(1, lambda: self._turn(session, 0))

    def steps(self, calls: int) -> dict[str, float]:
        return self._durable(calls, Stamps()).mean()

    def appends(self, calls: int) -> float:
        return 4.0 if self.ledger else 1.0

    def together(self, sessions: int, agents: int, calls: int) -> dict[str, float]:
        """One runtime and one plan, so that a worker may take any of the runs."""
        runtime, plan = self._runtime(), Turn(Stamps(), self.ledger)
        works = [lambda: self._run(runtime, plan, calls) for _ in range(sessions * agents)]
        return share(sessions * agents * calls, lambda: at_once(works))

    def _turn(
        self, session: Session, calls: int, call: RathLLMChatResponse = CALL
    ) -> tuple[Stamps, Session]:
        executor = self.executor(calls, call)
        out = run_session_loop(
            user_session=session,
            agent_session=self.agent,
            agent_provider=self.provider,
            tools=[Echo()],
            executor=executor,  # type: ignore[arg-type]
            max_tool_rounds=calls + 1,
        )
        out.synchronize()
        assert out.chunk_table.rows[-1].payload["content"] == "that is the question"
        return executor.stamps, out

    def _again(self, session: Session, calls: int) -> None:
        for _ in range(calls):
            session = self._turn(session, 0)[1]

    def _durable(self, calls: int, stamps: Stamps) -> Stamps:
        self._run(self._runtime(), Turn(stamps, self.ledger), calls)
        return stamps

    def _runtime(self) -> LocalRuntime:
        return LocalRuntime(self.store, effect_ledger=self.ledger)

    def _run(self, runtime: LocalRuntime, plan: Turn, calls: int) -> None:
        context = RunContext.local(revision_id=REVISION)
        runtime.submit(plan, session_id=uuid4(), context=context, state={"count": 0, "last": ""})
        run = runtime.work_once(worker_id=str(uuid4()), lease_seconds=LEASE_S, max_steps=calls)
        if run is None or run.state["count"] != calls:
            last = self.store.list_run_events(run.id)[-1] if run else "no run to be had"
            raise RuntimeError(f"a run did not end: {last}"[:300])


def _session(messages: int) -> Session:
    return Session(ChunkTable(tuple(user_text_chunk(f"message {i}") for i in range(messages))))


if __name__ == "__main__":
    serve(lambda folder: OpenRath(folder, sys.argv[2] == "lean"))
