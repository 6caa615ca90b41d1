"""Compactors: they summarise the earlier steps of a session, as one step of a workflow.

Prompts show the summary in place of the steps that left; facts, decisions, findings, open work and
verdicts stay, and so does everything in the log: `session.at(k)` shows the session as it was
before.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plait.calls.model_call import Retry
from plait.errors import InvalidValue
from plait.event.kinds import Purpose
from plait.event.strict import check_text
from plait.model.fallback import Models, check_models, name_of_models
from plait.runtime.agent_settings import model_of
from plait.runtime.compaction import INSTRUCTION, KEEP, Rule, Way, compact_session
from plait.runtime.drivers.blocking import drive
from plait.runtime.effect_loop import perform_effects
from plait.runtime.effects import AgentMemory
from plait.runtime.invoke import Invocation
from plait.runtime.registry import run_of
from plait.session import Session
from plait.workflow import Workflow


class Compactor(Workflow):
    """`Compactor(model="openai:gpt-5-mini")` has a model put it in short, `Compactor(rule=fn)` a
    function, `Compactor()` an extract.

    A rule is given the session and the messages that leave, and returns a text. It is asked again
    when a run is taken up again, so it must say the same of the same.
    """

    purpose: Purpose | None = "reflect"

    def __init__(
        self,
        *,
        model: Models | None = None,  # None: by rule
        # None: an extract (how it began, last words, tools used), unless there is a model
        rule: Rule | None = None,
        # how many of the last steps stay: a message, or a reply with the outcomes of its calls
        keep: int = KEEP,
        instruction: str | None = None,  # to the model; None: as in plait.runtime.compaction
        name: str | None = None,
        retry: Retry | None = None,
        # statements in the steps that leave are proposed to it, with the messages that they come
        # from; None: they are not
        memory: AgentMemory | None = None,
    ) -> None:
        if model is not None and rule is not None:
            raise InvalidValue("Compactor", "it has both a model and a rule", "pass one of them")
        if rule is not None and not callable(rule):
            raise InvalidValue(
                "rule",
                f"a {type(rule).__name__} is not a function",
                "pass fn(session, messages) -> str",
            )
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue("keep", f"{keep!r} is not a number of steps", "pass a number from 1")
        if memory is not None and not isinstance(memory, AgentMemory):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue("memory", f"a {type(memory).__name__} is none", "pass a Memory")
        check_text(instruction or "", "instruction")
        self.model, self.keep, self.instruction, self.name = (
            check_models(model),
            keep,
            instruction or INSTRUCTION,
            name,
        )
        self._rule, self._retry, self.memory = rule, retry, memory

    def way(self, path: str) -> Way:
        """Return its way to summarise; an agent that compacts its own context asks for it, too."""
        return Way(
            model_of(self.model, path) if self.model is not None else None,
            self._rule,
            self.keep,
            self.instruction,
            self.memory,
        )

    def forward(self, session: Session) -> Session:
        run = run_of(session)
        assert run is not None
        frame = run.stack.frames(session.id)[-1]
        return drive(
            perform_effects(
                compact_session(
                    session, self.way(frame.path), frame.path, retry=self._retry, call=frame.call
                )
            ),
            run.io,
        )

    def _rebind(self, model: Models) -> None:
        if self.model is not None:
            self.model = model

    def invocation(self, session: Session, **how: Any) -> Invocation:
        call = super().invocation(session, **how)
        return msgspec.structs.replace(call, setup=self._encode_setup)

    def _encode_setup(self, name: str) -> bytes | None:
        way = self.way(name)  # raises before anything is written if a model is missing
        return way.setup().encode() if way.model is not None else None

    def _brief(self) -> str:
        if self._rule is not None:
            return f"rule={getattr(self._rule, '__name__', 'rule')}, keep={self.keep}"
        model = name_of_models(self.model)
        return ", ".join([*([f"model={model}"] if model else []), f"keep={self.keep}"])
