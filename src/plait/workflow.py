"""Workflows: `forward(session) -> session`, nested freely, as layers are.

Call the thing, write the `forward`. Children register by being attributes (also in lists and
dicts), so the tree can be printed, walked and rebound. `workflow(session)` and
`workflow.forward(session)` are the same act: the class wraps `forward` at definition, and either
spelling starts a run or joins the one the value belongs to.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, Never, Self, cast, get_args, overload

import msgspec

from plait import streaming
from plait.errors import InvalidValue
from plait.errors.spelling import TOOL_NAMES, answer_other_names, check_argument_names
from plait.event import Event
from plait.event.kinds import Purpose
from plait.fingerprint import TARGET, WRAPPED_FORWARD
from plait.model.base import Delta
from plait.model.fallback import Models, check_models
from plait.runtime.attendants import NOBODY, Watch
from plait.runtime.delegation import Takes, WorkflowTool
from plait.runtime.invoke import Invocation, ainvoke, invoke
from plait.runtime.listeners import OnEvent
from plait.runtime.names import import_path
from plait.runtime.policy import Approver, Policy
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.runtime.settings import Answerer
from plait.session import Session
from plait.session.content import Content
from plait.session.ports import turns


class Nested:
    """A node of a tree: it has children, and is printed with them."""

    def named_children(self) -> Iterator[tuple[str, Nested]]:
        """Yield the children with their names, in the order they were set."""
        for name, value in vars(self).items():
            if name.startswith("_"):
                continue
            yield from _children_in(name, value)

    def children(self) -> Iterator[Nested]:
        for _, child in self.named_children():
            yield child

    def named_parts(
        self, prefix: str = "", above: tuple[Nested, ...] = ()
    ) -> Iterator[tuple[str, Nested]]:
        """Yield everything below, by path: critics/style.

        A child that has its parent as an attribute does not lead back to it.
        """
        line = (*above, self)
        for name, child in self.named_children():
            if not any(child is each for each in line):
                path = f"{prefix}/{name}" if prefix else name
                yield path, child
                yield from child.named_parts(path, line)

    def to(self, *, model: Models) -> Self:
        """Ask this model, or the models of this list, from now on, in every agent and selector
        below.

        Returns the same object, as PyTorch does.
        """
        check_models(model)
        for part in (self, *(part for _, part in self.named_parts())):
            part._rebind(model)
        return self

    def _rebind(self, model: Models) -> None:
        """Take a new model, in classes that have one of their own."""

    def describe(self) -> str:
        """Return its purpose in a line: its description, else the first line of its docstring."""
        given = getattr(self, "description", None)
        doc = type(self).__doc__ if type(self).__module__ != __name__ else None
        return given or (inspect.cleandoc(doc).partition("\n")[0] if doc else "")

    def _brief(self) -> str:
        """Return the text between its brackets when it is printed."""
        return ""

    def __repr__(self) -> str:
        return self._tree_text(())

    def _tree_text(self, above: tuple[Nested, ...]) -> str:
        if any(self is each for each in above):
            return f"{type(self).__name__}(…)"
        lines = [
            f"({name}): {child._tree_text((*above, self))}".replace("\n", "\n  ")
            for name, child in self.named_children()
        ]
        brief = self._brief()
        if not lines:
            return f"{type(self).__name__}({brief})"
        return "\n".join([f"{type(self).__name__}({brief}", *(f"  {line}" for line in lines), ")"])


def _children_in(name: str, value: Any) -> Iterator[tuple[str, Nested]]:
    """Yield the children that an attribute holds: itself, or those in its lists and mappings."""
    if isinstance(value, Nested):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield from _children_in(f"{name}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(cast("Sequence[Any]", value)):
            yield from _children_in(f"{name}.{index}", item)


def _missing(self: Any, session: Session) -> Session:
    raise NotImplementedError(
        f"{type(self).__name__} has no forward(self, session). Write one, and return the session"
        " that came last."
    )


class Workflow(Nested):
    """Write `forward(self, session)`, plain or async, and return the session that came last."""

    # plan, act, validate, reflect, route; or pass purpose= where it is called
    purpose: Purpose | None = None
    policy: Policy | None = None  # binds it and the workflows that it calls; None: its caller's
    # the answer to acts around the session; None: PLAIT_BYPASS, or record
    bypass: Literal["record", "warn", "refuse"] | None = None
    version: str = ""  # recorded with its runs and calls, for people to compare; "": none
    # its name in call paths; None: its attribute in the caller, else its class, in lower case
    name: str | None = None

    # Not a method: a forward may be plain or async and take more than the session, and type
    # checkers are to let it.
    forward: Callable[..., Any] = _missing

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; raise InvalidValue for a method's name or a setting of another type.

        Otherwise the mistake would show where the workflow is called, far from its cause.
        """
        if name in _RESERVED:
            raise InvalidValue(name, "a workflow has a method of that name", "use another name")
        if name == "policy" and value is not None and not isinstance(value, Policy):
            why = f"a {type(value).__name__} is not one"
            raise InvalidValue(name, why, "pass Policy(…), or None")
        if name == "version":
            _check_version(value)
        choices = _CHOICES.get(name)
        if choices is not None and value is not None and value not in choices:
            step = f"use one of {', '.join(choices)}, or None"
            raise InvalidValue(name, f"{value!r:.80} is not one", step)
        super().__setattr__(name, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check_version(cls.version)
        forward: Any = cls.forward  # its own, or that of a mixin
        if forward is not _missing and not hasattr(forward, WRAPPED_FORWARD):
            cls.forward = _wrap_forward(forward)

    def __call__(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        **kwargs: Any,
    ) -> Session:
        """Run it, blocking. `on_event=` is called with every event as it is recorded, and with
        deltas as a model streams.

        `approver=` and `answerer=` are asked at once for consent and for answers; without them a
        run that needs either is `Parked`.
        """
        watch = Watch(on_event, approver, answerer)
        return invoke(self.invocation(session, args=args, kwargs=kwargs, watch=watch))

    async def acall(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        **kwargs: Any,
    ) -> Session:
        """Do the same on the caller's event loop: an `async def forward` runs on it, a plain one in
        a thread.
        """
        watch = Watch(on_event, approver, answerer)
        return await ainvoke(self.invocation(session, args=args, kwargs=kwargs, watch=watch))

    @overload
    def stream(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        events: Literal[False] = False,
        **kwargs: Any,
    ) -> Iterator[Delta | Session]: ...
    @overload
    def stream(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        events: bool,
        **kwargs: Any,
    ) -> Iterator[Delta | Event | Session]: ...
    def stream(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        events: bool = False,
        **kwargs: Any,
    ) -> Iterator[Delta | Event | Session]:
        """Run it, and yield text and tool deltas as they come; the last item is the new session.

        With `events`, the events of the run too, each where it was recorded.
        """
        watch = Watch(on_event, approver, answerer)
        call = self.invocation(session, args=args, kwargs=kwargs, watch=watch)
        return streaming.stream(call, events=events)

    @overload
    def astream(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        events: Literal[False] = False,
        **kwargs: Any,
    ) -> AsyncIterator[Delta | Session]: ...
    @overload
    def astream(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        events: bool,
        **kwargs: Any,
    ) -> AsyncIterator[Delta | Event | Session]: ...
    def astream(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        events: bool = False,
        **kwargs: Any,
    ) -> AsyncIterator[Delta | Event | Session]:
        """Yield the deltas of its models, and last the session, as `stream` does, on the caller's
        event loop.
        """
        watch = Watch(on_event, approver, answerer)
        call = self.invocation(session, args=args, kwargs=kwargs, watch=watch)
        return streaming.astream(call, events=events)

    def stream_turn(
        self, session: Session, content: Content | tuple[Content, ...], /, **how: Any
    ) -> Iterator[Delta | Event | Session]:
        """Take a turn as `session.turn(content, workflow)` does; yield the deltas and events of its
        run in their order, and last the session after it.

        If the caller stops reading, the turn goes on to its end.
        """
        return turns("take turns").stream_turn(session, content, self, **how)

    def astream_turn(
        self, session: Session, content: Content | tuple[Content, ...], /, **how: Any
    ) -> AsyncIterator[Delta | Event | Session]:
        """Take a turn as `session.aturn` does, on the caller's event loop, and yield it as it goes:
        deltas of the text, events, and at the end the session after the turn.
        """
        return turns("take turns").astream_turn(session, content, self, **how)

    def as_tool(
        self,
        *,
        name: str | None = None,  # None: the workflow's own
        description: str | None = None,  # None: as `describe()` has it
        returns: Any = None,  # the type that its answer must have. None: any
        takes: Takes = "answer",
        arguments: Any = None,  # a struct. None: the task in words
        **unknown: Never,
    ) -> WorkflowTool:
        """Return a tool whose calls this workflow carries out, each in a branch of the session.

        `takes` says what of the branch the caller takes: its "answer" alone, its "facts" or its
        "files" besides, or "all" of it, as a merge.
        """
        known = Workflow.as_tool.__kwdefaults__ or ()
        check_argument_names("as_tool()", unknown, known, TOOL_NAMES)
        return WorkflowTool(
            self,
            name=name,
            description=description,
            returns=returns,
            takes=takes,
            arguments=arguments,
        )

    # ── one call ─────────────────────────────────────────────────────────────────────────────

    def invocation(
        self,
        session: Session,
        *,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        watch: Watch = NOBODY,
        name: str | None = None,
        forward: Callable[..., Any] | None = None,
    ) -> Invocation:
        """Describe a call of this workflow, for `plait.runtime.invoke`. Nothing is called or
        written.

        `name` is its name in the caller; `forward` is given where a base class's is called.
        """
        cls = type(self)
        return Invocation(
            session=session,
            node=self,
            forward=forward or original(cls),
            args=args,
            kwargs=kwargs or {},
            name=self._call_name(session, name),
            workflow=import_path(cls),
            source=cls,
            environment=target_of(self),
            purpose=self.purpose,
            policy=self.policy,
            bypass=self.bypass,
            watch=watch,
        )

    def _call_name(self, session: object, given: str | None) -> str:
        """Return the name in the call path: `self.name`, else the name given by the caller, else
        the attribute name in the calling workflow, else the class name.
        """
        if isinstance(self.name, str) and self.name:
            return self.name
        if given:
            return given
        run = run_of(session) if isinstance(session, Session) else None
        frames = run.stack.frames(session.id) if run and isinstance(session, Session) else ()
        parent = frames[-1].node if frames else None
        if isinstance(parent, Nested):
            for path, part in parent.named_parts():
                if part is self:
                    return path
        return self._default_name()

    def _default_name(self) -> str:
        return type(self).__name__.lower()


def call_as(name: str, workflow: Workflow, session: Session, **kwargs: Any) -> Session:
    """Call a child by its name here: it may have another name as a child of another workflow."""
    watch = Watch(kwargs.pop("on_event", None))
    return invoke(workflow.invocation(session, kwargs=kwargs, watch=watch, name=name))


async def acall_as(name: str, workflow: Workflow, session: Session, **kwargs: Any) -> Session:
    watch = Watch(kwargs.pop("on_event", None))
    return await ainvoke(workflow.invocation(session, kwargs=kwargs, watch=watch, name=name))


def call_again(
    workflow: Workflow,
    run: Run,
    session: Session,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    watch: Watch,
) -> Session:
    """Call a workflow from where a run of it started: the steps that it made then are answered from
    the recording.
    """
    call = workflow.invocation(session, args=args, kwargs=kwargs, watch=watch)
    return invoke(msgspec.structs.replace(call, resumed=run))


async def acall_again(
    workflow: Workflow,
    run: Run,
    session: Session,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    watch: Watch,
) -> Session:
    """Do the same on the caller's event loop."""
    call = workflow.invocation(session, args=args, kwargs=kwargs, watch=watch)
    return await ainvoke(msgspec.structs.replace(call, resumed=run))


def name_target(workflow: Workflow, where: Mapping[str, str]) -> None:
    """Note where this very object can be found again: a file and the name it has there."""
    vars(workflow)[TARGET] = id(workflow), dict(where)


def target_of(workflow: Workflow) -> dict[str, str]:
    """Return where an object can be found again. Empty: nowhere, as for a copy of one that can."""
    owner, where = vars(workflow).get(TARGET, (None, {}))
    return where if owner == id(workflow) else {}


def _check_version(version: object) -> None:
    if not isinstance(version, str) or len(version) > _VERSION_MAX:
        raise InvalidValue("version", f"{version!r:.80} is not a text", 'write version = "2"')


_VERSION_MAX = 100  # characters
_CHOICES: dict[str, tuple[str, ...]] = {
    "purpose": get_args(Purpose),
    "bypass": ("record", "warn", "refuse"),
}
# The methods of every workflow, and `forward`, which is wrapped where its class is defined.
_RESERVED = frozenset(
    name
    for owner in (Nested, Workflow)
    for name, value in vars(owner).items()
    if inspect.isfunction(value) and not name.startswith("__")
)


_CALL, _ACALL = (
    "call it: session = agent(session)",
    "await it: session = await agent.acall(session)",
)
# The names of other libraries for a call.
answer_other_names(
    Workflow,
    {
        **dict.fromkeys(("run", "run_sync", "invoke", "execute", "kickoff", "chat"), _CALL),
        **dict.fromkeys(("arun", "ainvoke"), _ACALL),
        "run_streamed": "for item in agent.stream(session): …",
        "compile": f"a workflow needs none: {_CALL}",
        "with_structured_output": "agent.returns(TYPE)",
        "bind_tools": "pass tools=[…] where it is made",
    },
)


def original(cls: type[Workflow]) -> Callable[..., Any]:
    """Return `forward` as it was written, decorators and all."""
    forward: Any = cls.forward
    return getattr(forward, WRAPPED_FORWARD, forward)


def _wrap_forward(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `forward` that makes a call of it, as `workflow(session)` does."""

    @wraps(forward)
    def call_forward(
        self: Workflow, session: Session, *args: Any, on_event: OnEvent | None = None, **kwargs: Any
    ) -> Any:
        run = run_of(session) if isinstance(session, Session) else None  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        frames = run.stack.frames(session.id) if run else ()
        if frames and frames[-1].node is self and frames[-1].forward is not forward:
            # super().forward(session): the same call
            return forward(self, session, *args, **kwargs)
        watch = Watch(on_event)
        return invoke(
            self.invocation(session, args=args, kwargs=kwargs, watch=watch, forward=forward)
        )

    setattr(call_forward, WRAPPED_FORWARD, forward)
    return call_forward
