"""Tools: plain functions that a model, or the program, may call.

`@tool` reads name, description and JSON schema off the signature and the docstring. The function
stays as it was and can still be called; only `session.use(…)` and an agent's calls are recorded.
The effect class decides about a call with an unknown outcome; by default such a call may have
happened and is never blindly repeated.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from types import MethodType
from typing import (
    Any,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
    runtime_checkable,
)

import msgspec

from plait.errors import BadTool
from plait.errors.spelling import check_argument_names
from plait.event import Json
from plait.event.kinds import EffectClass, Placement
from plait.fingerprint import Fingerprint, fingerprint, own_types
from plait.ids import digest
from plait.inside import ends_run
from plait.session.typed import result_schema_of, schema_of, to_json, to_type
from plait.tool.changes import difference
from plait.tool.checks import OTHER_NAMES, check_tool
from plait.tool.signature import (
    KEY,
    SANDBOX,
    SESSION,
    argument_descriptions,
    parameter_fields,
    read_signature,
    summary_of,
)

__all__ = (
    "KEY",
    "SANDBOX",
    "SESSION",
    "Happened",
    "Result",
    "Tool",
    "ToolSource",
    "WrongArguments",
    "as_tool",
    "ask_human",
    "difference",
    "reason_of",
    "tool",
)


P = ParamSpec("P")
R = TypeVar("R")
# types of results that are parts of messages: images, files and the like
_NO_JSON = re.compile(r"\bplait\.")


class Happened(msgspec.Struct, frozen=True):
    """The answer of a probe if the call it asks about took place: with this result."""

    value: Any = None


class Result(NamedTuple):
    """The return of a tool that has more to say than a value: parts of a message, the exit code,
    the changes.

    Files among the parts are kept as evidence; the caller is not sent them, since they may be of
    any length.
    """

    parts: Sequence[Any]  # texts, images, data, files
    exit_code: int | None = None
    delta: Json = None


class WrongArguments(ValueError):
    """The arguments that a model passed do not fit the signature."""


class Tool(Generic[P, R]):
    """A typed function with an effect class."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str,
        description: str,
        schema: Mapping[str, Json],
        effect: EffectClass = "at_most_once",
        # None: arguments are passed on as they are
        convert: Callable[[Mapping[str, Json]], dict[str, Any]] | None = None,
        takes_session: bool = False,
        # its value before and after a call is recorded as the state delta
        observe: Callable[..., Any] | None = None,
        attempts: int = 1,
        unbound: bool = False,
        origin: str = "",  # of the tool, if it is not this program: mcp:git
        version: str | None = None,
        takes_key: bool = False,
        # tells if a call took place: Happened(result), or None
        probe: Callable[..., Any] | None = None,
        compensate: Callable[..., Any] | None = None,  # undoes a call that may have taken place
        timeout_s: float | None = None,  # None: as long as it takes
        wait_s: float = 0.5,  # before the second attempt; doubled for each one after
        heartbeat_s: float | None = None,  # it is given up if it is silent for longer
        taints: str = "tool",  # the origin of its results
        takes_sandbox: bool = False,
        # its class by sandbox and arguments; None: always the same
        effect_of: EffectOf | None = None,
    ) -> None:
        self.function = function
        self.name, self.description, self.schema = name, description, schema
        self.effect: EffectClass = effect
        self.takes_session, self.observe, self.attempts, self.origin = (
            takes_session,
            observe,
            attempts,
            origin,
        )
        self._version = version  # None: a fingerprint
        self._noted: str | None = None  # the fingerprint when it was first read
        self.taints = taints
        self.unbound = unbound  # a method without its object
        self.takes_key, self.probe, self.compensate, self.timeout_s = (
            takes_key,
            probe,
            compensate,
            timeout_s,
        )
        self.wait_s, self.heartbeat_s = wait_s, heartbeat_s
        self.takes_sandbox, self._effect_of = takes_sandbox, effect_of
        self.asks = False  # True: a person answers instead of a function
        self.returns: Any = Any  # the type that its signature promises. Any: none
        self.takes: tuple[Any, ...] = ()  # the types that its arguments are made to be
        self.untyped: tuple[str, ...] = ()  # the arguments that have no type
        self._convert = convert
        self.__doc__ = function.__doc__
        self.__name__ = name
        check_tool(self, version)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: nothing is recorded."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., Any]:
        """Bind a tool that is a method to its object, as functions are."""
        if instance is None or not self.unbound:
            return self
        bound = copy(self)
        bound.function, bound.unbound, bound._noted = (
            MethodType(self.function, instance),
            False,
            None,
        )
        return bound

    @property
    def version(self) -> str:
        """The version of the code that a call would run now: the given one, else its fingerprint.

        Consent is for one version.
        """
        return self._version or self.fingerprint.digest[:16]

    @version.setter
    def version(self, version: str) -> None:
        self._version = version

    @property
    def noted_version(self) -> str:
        """The version as it was first read. It costs nothing, and is recorded of calls that need no
        consent.
        """
        if self._noted is None:
            self._noted = self.version
        return self._version or self._noted

    @property
    def fingerprint(self) -> Fingerprint:
        """The digest of its parts.

        `unknown` names the values that its version does not cover; empty, if it was given one.
        """
        if self._version is not None:
            return Fingerprint(digest(b"plait/tool/1", self._version.encode()), ())
        return fingerprint(*self.fingerprint_parts())

    def fingerprint_parts(self) -> tuple[object, ...]:
        """Return all code that a call may run, and the description that a model gets."""
        told = (self.name, self.description, self.schema, self._version)
        # Arguments are objects of the program's own types, which run code when they are made and
        # when they are used.
        types = own_types(self.takes)
        return (
            *told,
            self.function,
            self.observe,
            self.probe,
            self.compensate,
            self._effect_of,
            *([types] if types else []),
        )

    def with_function(self, function: Callable[..., Any]) -> Tool[..., Any]:
        """Return the same tool with another function: one that probes or compensates a call."""
        made = copy(self)
        made.function, made.observe, made.attempts = function, None, 1  # pyright: ignore[reportAttributeAccessIssue]
        made.heartbeat_s = None
        return cast("Tool[..., Any]", made)

    def consent_details(self, arguments: Json) -> Mapping[str, Json]:
        """Return the details that an approver is shown besides the call itself.

        Most tools have none.
        """
        return {}

    @property
    def varies_by_call(self) -> bool:
        """True if its class depends on the sandbox and the arguments."""
        return self._effect_of is not None

    def effect_in(self, placement: Placement | None, arguments: Json) -> EffectClass:
        """Return the class of a call with these arguments in this placement."""
        if self._effect_of is None:
            return self.effect
        return self._effect_of(placement, arguments if isinstance(arguments, Mapping) else {})

    def with_effect(self, effect: EffectClass) -> Tool[..., Any]:
        """Return the same tool, for a call that was recorded with this class."""
        if effect == self.effect:
            return self
        made = copy(self)
        made.effect = effect
        return made

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def arguments(self, given: Json) -> dict[str, Any]:
        """Return the arguments for the function, converted to its types; raises WrongArguments in
        words that a model can act on.
        """
        if not isinstance(given, Mapping):
            raise WrongArguments(f"the arguments are not a JSON object: {str(given)[:200]!r}")
        if self._convert is None:
            return dict(given)
        try:
            return self._convert(given)
        except (ValueError, TypeError) as error:
            raise WrongArguments(str(error)) from error
        # a type of the program's own, which checks its fields
        except BaseException as error:
            if ends_run(error):
                raise
            raise WrongArguments(f"{type(error).__name__}: {error}") from error

    @property
    def result_schema(self) -> Json:
        """The JSON schema of its results. None: anything, or a type that JSON does not carry."""
        if self.returns is Any or _NO_JSON.search(str(self.returns)):
            return None
        try:
            return result_schema_of(self.returns) or None
        except Exception:  # a type that has no schema: the call is none the worse
            return None

    def result_misfit(self, value: Json) -> str | None:
        """Return the reason why it cannot have returned a JSON value. None: it can."""
        try:
            to_type(value, self.returns)
        # a type of the program's own, which checks its fields
        except BaseException as error:
            if ends_run(error):
                raise
            return (
                str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            )
        return None

    def observe_state(self, arguments: Mapping[str, Any]) -> Json:
        """Call the observer with those of the arguments that it names, and return the state."""
        assert self.observe is not None
        wanted = inspect.signature(self.observe).parameters
        return to_json(
            self.observe(**{name: value for name, value in arguments.items() if name in wanted})
        )

    def __repr__(self) -> str:
        return f"<tool {self.name} ({self.effect})>"


EffectOf = Callable[[Placement | None, Mapping[str, Json]], EffectClass]


@runtime_checkable
class ToolSource(Protocol):
    """Something that has tools: a server."""

    @property
    def name(self) -> str: ...
    def tools(self) -> Sequence[Tool[..., Any]]: ...


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: EffectClass = "at_most_once",
    observe: Callable[..., Any] | None = None,
    attempts: int = 1,
    probe: Callable[..., Any] | None = None,
    compensate: Callable[..., Any] | None = None,
    timeout_s: float | None = None,
    wait_s: float = 0.5,
    heartbeat_s: float | None = None,
    taints: str = "tool",
    effect_of: EffectOf | None = None,
    version: str | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: EffectClass = "at_most_once",
    observe: Callable[..., Any] | None = None,
    attempts: int = 1,
    probe: Callable[..., Any] | None = None,
    compensate: Callable[..., Any] | None = None,
    timeout_s: float | None = None,
    wait_s: float = 0.5,
    heartbeat_s: float | None = None,
    taints: str = "tool",
    effect_of: EffectOf | None = None,
    version: str | None = None,
    **unknown: Any,
) -> Any:
    """Make a function a tool. `attempts` above 1, for calls that may be repeated, runs it again
    when it raises: after `wait_s`, doubled for each further attempt, and spread by lot.

    `timeout_s` is the time after which it is given up; with `heartbeat_s` it is also given up if it
    does not call `heartbeat()` for so long.

    `probe=` (for `effect="probeable"`) and `compensate=` (for `"compensatable"`) are called with
    those of the arguments that they name, `idempotency_key` among them, when a call was lost with
    the process that made it.

    `taints` is the origin of its results, as policies see it: "web" for tools that read pages of
    strangers.

    `effect_of=` returns the class of a single call, by the placement of the session and the
    arguments; `effect=` is the class otherwise.

    `version=` names the version that consent is for, where it cannot be read off the function:
    change it whenever the tool does something else.
    """
    if unknown:
        check_argument_names("@tool", unknown, tool.__kwdefaults__ or (), OTHER_NAMES)
    here = inspect.currentframe()
    # types may be defined beside the function
    around = here.f_back.f_locals if here is not None and here.f_back is not None else {}
    more: dict[str, Any] = {
        "observe": observe,
        "attempts": attempts,
        "probe": probe,
        "compensate": compensate,
    }
    more |= {"timeout_s": timeout_s, "wait_s": wait_s, "heartbeat_s": heartbeat_s}
    more |= {"taints": taints, "effect_of": effect_of, "version": version}
    if function is not None:
        return _make_tool(function, around, name, description, effect, **more)

    def decorate(found: Callable[..., Any]) -> Tool[..., Any]:
        return _make_tool(found, around, name, description, effect, **more)

    return decorate


def as_tool(source: Any) -> Tool[..., Any]:
    """Return a tool as it is; a plain function as a tool with the defaults."""
    if isinstance(source, Tool):
        found = cast("Tool[..., Any]", source)
        if found.unbound:
            raise BadTool(
                found.name,
                "it is a method without its object",
                f"pass it from an object, as in thing.{found.name}",
            )
        return found
    if inspect.isfunction(source) or inspect.ismethod(source):
        return _make_tool(source, {}, None, None, "at_most_once")
    raise BadTool(
        _name_of(source),
        f"a {type(source).__name__} is neither a tool nor a function",
        "decorate a function with @tool",
    )


def reason_of(tool: Tool[..., Any], given: Json) -> tuple[Json, str]:
    """Return the arguments without the reason for the call, and the reason: `reason`, unless the
    tool has such a parameter itself.
    """
    if not isinstance(given, dict) or not isinstance(reason := given.get("reason"), str):
        return given, ""
    properties: Any = tool.schema.get("properties", {})
    if "reason" in properties or tool.schema.get("additionalProperties", False):
        return given, ""
    return {name: value for name, value in given.items() if name != "reason"}, reason


def _make_tool(
    function: Callable[..., Any],
    around: Mapping[str, Any],
    name: str | None,
    description: str | None,
    effect: EffectClass,
    **more: Any,
) -> Tool[..., Any]:
    if not callable(function):
        raise BadTool(_name_of(function), "it is not a function", "decorate a function with @tool")
    called = name or _name_of(function)
    doc = inspect.getdoc(function) or ""
    signature = read_signature(called, function, around)
    fields = parameter_fields(called, signature, argument_descriptions(doc))
    try:
        shape = msgspec.defstruct(called, fields, forbid_unknown_fields=True)
        schema = schema_of(shape)
    except (TypeError, NotImplementedError, ValueError) as error:
        raise BadTool(
            called, str(error).partition("\n")[0], "give it parameters of types that JSON can carry"
        ) from error
    schema.pop("title", None)

    def convert(given: Mapping[str, Json]) -> dict[str, Any]:
        made = to_type(given, shape)
        # A missing argument with a default is left to the function: its default may be anything.
        return {field: getattr(made, field) for field in shape.__struct_fields__ if field in given}

    made = Tool(
        function,
        name=called,
        description=description if description is not None else summary_of(doc),
        schema=schema,
        effect=effect,
        convert=convert,
        takes_session=signature.takes_session,
        takes_key=KEY in signature.names,
        takes_sandbox=signature.takes_sandbox,
        unbound=signature.names[:1] == ["self"],
        **more,
    )
    made.takes = tuple(field[1] for field in fields)
    made.untyped = tuple(field[0] for field in fields if field[0] not in signature.hints)
    made.returns = signature.hints.get("return", Any)
    return made


def _name_of(source: object) -> str:
    return getattr(source, "__name__", None) or type(source).__name__


@tool(effect="pure")
def ask_human(question: str, choices: tuple[str, ...] = ()) -> str:
    """Ask the person you work for, when only they can know or decide. Ask one thing at a time.

    Args:
        question: what you want to know, in a sentence
        choices: the answers to choose from; leave it out if any answer will do
    """
    raise NotImplementedError("a person answers this: hand it to an agent as a tool")


ask_human.asks = True
