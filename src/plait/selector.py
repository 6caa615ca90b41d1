"""Selectors: they choose the next workflow at run time, on record.

Not a workflow: calling one returns a `Choice`, which has the chosen name and the reason, and runs
the chosen workflow when called in turn. A model chooses among names it is constrained to; or a rule
does, a plain function of the session. Being done is a choice like the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from plait.calls.model_call import Retry
from plait.errors import ChoiceInvalid, InvalidValue
from plait.event import Json
from plait.event import kinds as k
from plait.event.strict import check_text
from plait.model.fallback import Models, check_models, name_of_models
from plait.runtime import loop
from plait.runtime.agent_settings import model_of
from plait.runtime.appends import append_events
from plait.runtime.drivers.blocking import drive
from plait.runtime.effect_loop import perform_effects
from plait.runtime.effects import Answer, AskModel, EffectGenerator, Tell
from plait.runtime.invoke import Invocation, invoke
from plait.runtime.names import principal_of
from plait.runtime.prompt import View
from plait.runtime.prompt.prompt import Prompt
from plait.runtime.prompt.setup import Setup
from plait.runtime.registry import is_tried_again, run_of
from plait.runtime.stack import Frame
from plait.session import Session
from plait.session.ports import Act, Draft, note_read
from plait.session.value import position_of
from plait.workflow import Nested, Workflow, acall_as, call_as

DONE = "done"
INSTRUCTION = (
    "You decide what happens next in the conversation below. Choose one of these, by its name, and"
    " say why in a short sentence."
)

# a name, or a name and a reason; None: done
Rule = Callable[[Session], "str | tuple[str, str] | None"]


class Choice:
    """The chosen workflow, by name, with the reason.

    Call it to run that on `session`; if nothing is left to do, that changes nothing.
    """

    __slots__ = ("_name", "_path", "_reason", "_workflow", "session")

    def __init__(
        self, name: str, reason: str, session: Session, workflow: Workflow | None, path: str = ""
    ) -> None:
        self._name, self._reason, self.session, self._workflow, self._path = (
            name,
            reason,
            session,
            workflow,
            path or name,
        )

    @property
    def name(self) -> str:
        note_read(position_of(self.session))  # the choice depends on the content there
        return self._name

    @property
    def reason(self) -> str:
        note_read(position_of(self.session))
        return self._reason

    @property
    def done(self) -> bool:
        note_read(position_of(self.session))
        return self._workflow is None

    def __call__(self, **kwargs: Any) -> Session:
        return (
            self.session
            if self._workflow is None
            else call_as(self._path, self._workflow, self.session, **kwargs)
        )

    async def acall(self, **kwargs: Any) -> Session:
        return (
            self.session
            if self._workflow is None
            else await acall_as(self._path, self._workflow, self.session, **kwargs)
        )

    def __repr__(self) -> str:
        return f"<choice {self.name}{f': {self.reason}' if self.reason else ''}>"


class Selector(Nested):
    """`Selector(expand=Agent("…"), shorten=Agent("…"), model="openai:gpt-5")`, or `Selector({...},
    rule=lambda session: "expand")`.
    """

    def __init__(
        self,
        candidates: Mapping[str, Workflow] | None = None,
        /,
        *,
        model: Models | None = None,  # None: PLAIT_MODEL
        rule: Rule | None = None,  # None: a model chooses
        instruction: str | None = None,  # None: as in INSTRUCTION
        # the name of the choice of nothing; None: there is no such choice
        done: str | None = DONE,
        view: View | str | int | None = None,
        attempts: int = 3,
        retry: Retry | None = None,
        **named: Workflow,
    ) -> None:
        self._candidates: dict[str, Workflow] = {**(candidates or {}), **named}
        self.model, self._rule = check_models(model), rule
        self._instruction, self._done = instruction, done
        self._view, self._attempts, self._retry = View.of(view), attempts, retry or Retry()
        if done is not None and not isinstance(done, str):  # pyright: ignore[reportUnnecessaryIsInstance]  a candidate of that name
            step = (
                "done= names the choice of nothing; pass a candidate so called in a mapping, and"
                " done= another name"
            )
            raise InvalidValue("done", f"a {type(done).__name__} is not a name", step)
        for name, workflow in self._candidates.items():
            check_text(name, "Selector")
            if not isinstance(workflow, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
                raise InvalidValue(
                    "Selector",
                    f"{name!r} is a {type(workflow).__name__}, not a workflow",
                    "pass agents and workflows",
                )
        if not self._candidates or done in self._candidates:
            why = (
                f"{done!r} is the name of choosing nothing"
                if self._candidates
                else "there is nothing to choose from"
            )
            raise InvalidValue(
                "Selector", why, "pass candidates by name, and done= if one of them is called so"
            )

    def named_children(self) -> Iterator[tuple[str, Nested]]:
        yield from self._candidates.items()

    def _rebind(self, model: Models) -> None:
        self.model = model

    def _brief(self) -> str:
        if self._rule is not None:
            return f"rule={getattr(self._rule, '__name__', 'rule')}"
        model = name_of_models(self.model)
        return f"model={model}" if model else ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names to choose from, the choice of nothing last."""
        return (*self._candidates, *([self._done] if self._done is not None else []))

    # ── choosing ─────────────────────────────────────────────────────────────────────────────

    def __call__(self, session: Session) -> Choice:
        route: k.RouteSelected | None = None

        def forward(_: object, session: Session) -> Session:
            nonlocal route
            session, route = self._choose(session)
            return session

        run = run_of(session) if isinstance(session, Session) else None  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        frames = run.stack.frames(session.id) if run is not None else ()
        call = self._invocation(session, forward, frames)
        after = invoke(call)
        assert route is not None
        name = route.choice
        path = name if run is None else f"{call.name}/{name}"
        return Choice(name, route.reason, after, self._candidates.get(name), path)

    async def acall(self, session: Session) -> Choice:
        """Choose in a worker thread, for callers on an event loop."""
        return await asyncio.wrap_future(loop.spawn(lambda: self(session)))

    def _invocation(
        self, session: Session, forward: Callable[..., Session], frames: Sequence[Frame]
    ) -> Invocation:
        parent = frames[-1].node if frames else None
        children = parent.named_children() if isinstance(parent, Nested) else ()
        return Invocation(
            session=session,
            node=self,
            forward=forward,
            name=next((name for name, child in children if child is self), "selector"),
            workflow="plait:Selector",
            purpose="route",
            setup=self._encode_setup if self._rule is None else None,
            is_read_by_caller=True,  # a choice says more than its session
        )

    def _encode_setup(self, name: str) -> bytes:
        model_of(self.model, name)  # raises before anything is written if it is missing
        return self._setup().encode()

    def _choose(self, session: Session) -> tuple[Session, k.RouteSelected]:
        """Choose a name, and record it: the session after that, and the choice as recorded."""
        run = run_of(session)
        assert run is not None
        frame = run.stack.frames(session.id)[-1]
        if self._rule is not None:
            name, reason = self._choose_by_rule(session, frame.path)
            act = Act(f"service:{principal_of(frame.path)}", "program", call=frame.call)
        else:
            actor = f"agent:{principal_of(frame.path)}"
            prompt, model = (
                Prompt.of(
                    self._setup(), actor, session.run, session, run.journal.source_runs(session)
                ),
                model_of(self.model, frame.path),
            )
            ask = AskModel(session, prompt, model, actor, frame.path, retry=self._retry, aside=True)
            session, name, reason = drive(
                perform_effects(choose_name(ask, self.names, self._attempts)), run.io
            )
            prompt.put_back()
            act = Act(actor, "model", call=frame.call, causes=(session.head,))
        route = Draft(k.RouteSelected(name, self.names, reason), act)
        session, events = append_events(session, [route])
        recorded = events[0].body
        assert isinstance(recorded, k.RouteSelected)
        return session, recorded

    def _choose_by_rule(self, session: Session, path: str) -> tuple[str, str]:
        assert self._rule is not None
        answer = self._rule(session)
        name, reason = answer if isinstance(answer, tuple) else (answer, "")
        if name is None and self._done is not None:
            name = self._done
        if name not in self.names:
            raise ChoiceInvalid(path, str(name), self.names, session)
        return name, reason or f"by the rule {getattr(self._rule, '__name__', 'rule')}"

    def _setup(self) -> Setup:
        lines = [f"- {name}: {workflow.describe()}" for name, workflow in self._candidates.items()]
        if self._done is not None:
            lines.append(f"- {self._done}: nothing more is to be done")
        return Setup(
            "\n".join([self._instruction or INSTRUCTION, *lines]),
            (),
            {},
            self._schema(),
            self._view,
        )

    def _schema(self) -> Json:
        return {
            "title": "choice",
            "type": "object",
            "properties": {
                "reason": {"type": "string", "maxLength": 300},
                "choice": {"type": "string", "enum": list(self.names)},
            },
            "required": ["reason", "choice"],
            "additionalProperties": False,
        }


def choose_name(
    ask: AskModel, names: tuple[str, ...], attempts: int
) -> EffectGenerator[tuple[Session, str, str]]:
    """Ask for a name; if it is not one of `names`, say so and ask again."""
    session, name, left = ask.session, "", attempts
    while left or is_tried_again(session):
        left = (left or attempts) - 1
        if session is not ask.session:
            session, _ = yield Tell(
                session,
                f"{name!r} is not one of {', '.join(names)}. Choose one of these names.",
                aside=ask.actor,
            )
        session, answer = yield ask._replace(session=session)
        name, reason = _read_answer(answer)
        if (found := _nearest_name(name, names)) is not None:
            return session, found, reason
    raise ChoiceInvalid(ask.path, name, names, session)


def _read_answer(answer: Answer) -> tuple[str, str]:
    """Return the name and the reason: from an object as it was asked for, or a bare name."""
    value = answer.data.value if answer.data is not None else None
    if isinstance(value, Mapping):
        return str(value.get("choice", "")), str(value.get("reason", ""))  # pyright: ignore[reportUnknownArgumentType,reportUnknownMemberType]
    return (value if isinstance(value, str) else answer.text).strip(), ""


def _nearest_name(name: str, names: tuple[str, ...]) -> str | None:
    """Return the name that is meant: as it is, else without regard to case and punctuation, if
    that leaves no doubt. None: none of them.
    """
    if name in names:
        return name
    said = name.strip(" .,:;!\"'`*").casefold()
    near = [each for each in names if each.casefold() == said]
    return near[0] if len(near) == 1 else None
