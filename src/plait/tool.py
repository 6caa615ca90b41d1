"""Tools: plain functions that a model, or the program, may call.

`@tool` reads name, description and JSON schema off the signature and the docstring. The function
stays what it was and can still be called as one; only `session.use(…)` and an agent's calls are
recorded. The effect class says what may be done about a call whose outcome nobody knows; unless
told otherwise, a call may have happened and is never blindly repeated.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from types import MethodType
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_args,
    overload,
    runtime_checkable,
)

import msgspec

from plait.errors import BadTool, InvalidInput, InvalidValue
from plait.event import Json
from plait.event.codec import check_origin
from plait.event.kinds import EffectClass, Placement
from plait.fingerprint import Fingerprint, fingerprint, own_types
from plait.ids import digest
from plait.inside import ends_run
from plait.sandbox import Sandbox
from plait.session import Session
from plait.session.typed import result_schema_of, schema_of, to_json, to_type

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters):\s*$")
_HEADING = re.compile(r"^\s*[A-Z][A-Za-z ]*:\s*$")
_ITEM = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_FIELD = re.compile(r"^\s*:param\s+(?:[^:]*\s)?(\w+):\s*(.+)$")
# types of results that are parts of messages: images, files and the like
_NO_JSON = re.compile(r"\bplait\.")
_REPEATABLE = ("pure", "workspace", "idempotent")
# the parameter that is filled with the session, to read, and that no model is told of
SESSION = "session"
SANDBOX = "sandbox"  # likewise, with the place where its tools run
# likewise, with the name of this very call: the same whenever it has to be made again
KEY = "idempotency_key"


class Happened(msgspec.Struct, frozen=True):
    """What a probe returns if the call it asks about took place: with this result."""

    value: Any = None


class Result(NamedTuple):
    """What a tool may return if there is more to say than a value: parts of a message, the exit
    code, what changed.

    Files among the parts are kept as evidence; whoever called is not sent them, since they may be
    of any length.
    """

    parts: Sequence[Any]  # texts, images, data, files
    exit_code: int | None = None
    delta: Json = None


class WrongArguments(ValueError):
    """What a model passed does not fit the signature."""


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
        origin: str = "",  # where it comes from, if not from this program: mcp:git
        version: str | None = None,
        takes_key: bool = False,
        # says whether a call took place: Happened(result), or None
        probe: Callable[..., Any] | None = None,
        compensate: Callable[..., Any] | None = None,  # undoes a call that may have taken place
        timeout_s: float | None = None,  # None: as long as it takes
        taints: str = "tool",  # the origin of what it returns
        takes_sandbox: bool = False,
        # its class, where that depends on where it runs and on what; None: always the same
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
        self.takes_sandbox, self._effect_of = takes_sandbox, effect_of
        self.asks = False  # whether a person answers instead of a function
        self.returns: Any = Any  # the type that its signature promises. Any: none
        self.takes: tuple[Any, ...] = ()  # the types that its arguments are made to be
        self._convert = convert
        self.__doc__ = function.__doc__
        self.__name__ = name
        _check(self)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function itself: nothing is recorded."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., Any]:
        """A tool that is a method is bound to its object, as functions are."""
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
        """What a call would run now: the version it was given, else its fingerprint.

        Consent is for one version.
        """
        return self._version or self.fingerprint.digest[:16]

    @version.setter
    def version(self, version: str) -> None:
        self._version = version

    @property
    def noted_version(self) -> str:
        """The version as it was first read: what is recorded of a call that needs no consent, and
        costs nothing.
        """
        if self._noted is None:
            self._noted = self.version
        return self._version or self._noted

    @property
    def fingerprint(self) -> Fingerprint:
        """What it is made of.

        `unknown` names what its version does not cover; empty, if it was given one.
        """
        if self._version is not None:
            return Fingerprint(digest(b"plait/tool/1", self._version.encode()), ())
        return fingerprint(*self.fingerprint_parts())

    def fingerprint_parts(self) -> tuple[object, ...]:
        """All that a call may run, and how it is told to a model."""
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

    def about(self, function: Callable[..., Any]) -> Tool[..., Any]:
        """The same tool with another function: the one that probes or compensates a call of it."""
        made = copy(self)
        made.function, made.observe, made.attempts = function, None, 1  # pyright: ignore[reportAttributeAccessIssue]
        return cast("Tool[..., Any]", made)

    def consent_details(self, arguments: Json) -> Mapping[str, Json]:
        """What a person who is asked about a call is shown besides the call itself.

        Nothing, for most tools.
        """
        return {}

    @property
    def varies(self) -> bool:
        """Whether its class depends on where it runs, and on what."""
        return self._effect_of is not None

    def effect_in(self, placement: Placement | None, arguments: Json) -> EffectClass:
        """The class of a call with these arguments, made there."""
        if self._effect_of is None:
            return self.effect
        return self._effect_of(placement, arguments if isinstance(arguments, Mapping) else {})

    def classed(self, effect: EffectClass) -> Tool[..., Any]:
        """The same tool, for a call that was recorded as of this class."""
        if effect == self.effect:
            return self
        made = copy(self)
        made.effect = effect
        return made

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def arguments(self, given: Json) -> dict[str, Any]:
        """What to call the function with, converted to its types; raises WrongArguments in words a
        model can act on.
        """
        if not isinstance(given, Mapping):
            raise WrongArguments(f"the arguments are not a JSON object: {str(given)[:200]!r}")
        if self._convert is None:
            return dict(given)
        try:
            return self._convert(given)
        except (ValueError, TypeError) as error:
            raise WrongArguments(str(error)) from error
        # a type of the program's own, which looks at what it is made of
        except BaseException as error:
            if ends_run(error):
                raise
            raise WrongArguments(f"{type(error).__name__}: {error}") from error

    @property
    def result_schema(self) -> Json:
        """The JSON schema of what it returns. None: anything, or what JSON does not carry."""
        if self.returns is Any or _NO_JSON.search(str(self.returns)):
            return None
        try:
            return result_schema_of(self.returns) or None
        except Exception:  # a type that has no schema: the call is none the worse
            return None

    def result_misfit(self, value: Json) -> str | None:
        """Why a JSON value is none that it could have returned; None: it could."""
        try:
            to_type(value, self.returns)
        # a type of the program's own, which looks at what it is made of
        except BaseException as error:
            if ends_run(error):
                raise
            return (
                str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            )
        return None

    def observed(self, arguments: Mapping[str, Any]) -> Json:
        """What the observer sees: it is called with those of the arguments that it names."""
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
    taints: str = "tool",
    effect_of: EffectOf | None = None,
    version: str | None = None,
) -> Any:
    """Make a function a tool. `attempts` above 1, for what may be repeated, runs it again when it
    raises.

    `probe=` (for `effect="probeable"`) and `compensate=` (for `"compensatable"`) are called with
    those of the arguments that they name, `idempotency_key` among them, when a call was lost with
    the process that made it.

    `taints` is the origin of what it returns, as policies see it: "web" for what reads pages of
    strangers.

    `effect_of=` says the class of a single call, by where the session is placed and the arguments;
    `effect=` is what it is otherwise.

    `version=` says what consent is for, where that cannot be read off the function: change it
    whenever the tool does something else.
    """
    around = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage]  types may be defined beside the function
    more: dict[str, Any] = {
        "observe": observe,
        "attempts": attempts,
        "probe": probe,
        "compensate": compensate,
    }
    more |= {"timeout_s": timeout_s, "taints": taints, "effect_of": effect_of, "version": version}
    if function is not None:
        return _made(function, around, name, description, effect, **more)

    def decorate(found: Callable[..., Any]) -> Tool[..., Any]:
        return _made(found, around, name, description, effect, **more)

    return decorate


def as_tool(source: Any) -> Tool[..., Any]:
    """A tool as it is; a plain function as one with the defaults."""
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
        return _made(source, {}, None, None, "at_most_once")
    raise BadTool(
        _called(source),
        f"a {type(source).__name__} is neither a tool nor a function",
        "decorate a function with @tool",
    )


def reason_of(tool: Tool[..., Any], given: Json) -> tuple[Json, str]:
    """The arguments without the reason for the call, and the reason: `reason`, unless the tool has
    such a parameter itself.
    """
    if not isinstance(given, dict) or not isinstance(reason := given.get("reason"), str):
        return given, ""
    properties: Any = tool.schema.get("properties", {})
    if "reason" in properties or tool.schema.get("additionalProperties", False):
        return given, ""
    return {name: value for name, value in given.items() if name != "reason"}, reason


def _made(
    function: Callable[..., Any],
    around: Mapping[str, Any],
    name: str | None,
    description: str | None,
    effect: EffectClass,
    **more: Any,
) -> Tool[..., Any]:
    if not callable(function):
        raise BadTool(_called(function), "it is not a function", "decorate a function with @tool")
    called = name or _called(function)
    doc = inspect.getdoc(function) or ""
    fields, takes_session = _fields(called, function, around, _described(doc))
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
        # What has a default and was not given is left to the function: its default may be anything.
        return {field: getattr(made, field) for field in shape.__struct_fields__ if field in given}

    made = Tool(
        function,
        name=called,
        description=description if description is not None else _summary(doc),
        schema=schema,
        effect=effect,
        convert=convert,
        takes_session=takes_session,
        takes_key=KEY in inspect.signature(function).parameters,
        takes_sandbox=_takes_sandbox(function, around),
        unbound=next(iter(inspect.signature(function).parameters), "") == "self",
        **more,
    )
    made.takes = tuple(field[1] for field in fields)
    made.returns = typing.get_type_hints(function, localns=dict(around), include_extras=True).get(
        "return", Any
    )
    return made


def _fields(
    name: str, function: Callable[..., Any], around: Mapping[str, Any], described: Mapping[str, str]
) -> tuple[list[Any], bool]:
    """The parameters as fields of a struct, and whether it takes the session."""
    try:
        hints = typing.get_type_hints(function, localns=dict(around), include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())
    except (NameError, TypeError, ValueError, SyntaxError) as error:
        raise BadTool(
            name, str(error), "annotate it with types that are defined where it is"
        ) from error
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadTool(
                name,
                f"the parameter {parameter.name!r} has no name that a model could use",
                "use plain named parameters",
            )
        if (parameter.name == SESSION and _is_session(hints.get(SESSION, Any))) or (
            parameter.name == "self" and parameter is parameters[0]
        ):
            continue
        if parameter.name == KEY or (parameter.name == SANDBOX and hints.get(SANDBOX) is Sandbox):
            continue
        hint = _told(hints.get(parameter.name, Any), described.get(parameter.name))
        required = parameter.default is parameter.empty
        fields.append(
            (parameter.name, hint)
            if required
            else (parameter.name, hint, _default(parameter.default))
        )
    takes_session = any(parameter.name == SESSION for parameter in parameters) and _is_session(
        hints.get(SESSION, Any)
    )
    return sorted(fields, key=len), takes_session


def _takes_sandbox(function: Callable[..., Any], around: Mapping[str, Any]) -> bool:
    if SANDBOX not in inspect.signature(function).parameters:
        return False
    return typing.get_type_hints(function, localns=dict(around)).get(SANDBOX) is Sandbox


def _is_session(hint: Any) -> bool:
    """Whether a parameter of that name is meant for the session: it says so, or says nothing."""
    return hint is Any or Session in (hint, *get_args(hint))


def _default(value: Any) -> Any:
    """A default that can stand in the schema; otherwise the model is only told that it may leave
    the argument out.
    """
    try:
        plain = to_json(value)
        if msgspec.json.decode(msgspec.json.encode(plain)) != plain:  # not a number, say
            return msgspec.field(default=msgspec.UNSET)
    except (TypeError, ValueError, RecursionError):
        return msgspec.field(default=msgspec.UNSET)
    return (
        msgspec.field(default_factory=lambda: value) if isinstance(plain, (list, dict)) else value
    )


def _told(hint: Any, description: str | None) -> Any:
    """The hint with its description: a text in Annotated, else what the docstring says."""
    if typing.get_origin(hint) is Annotated:
        base, *notes = get_args(hint)
        texts = [note for note in notes if isinstance(note, str)]
        others = [note for note in notes if isinstance(note, msgspec.Meta)]
        metas = [*others, *(msgspec.Meta(description=text) for text in texts[:1])]
        return Annotated[(base, *metas)] if metas else base  # pyright: ignore[reportInvalidTypeForm,reportUnknownVariableType]
    return Annotated[hint, msgspec.Meta(description=description)] if description else hint


def _summary(doc: str) -> str:
    """The docstring without what it says of single arguments, which stands with them."""
    lines: list[str] = []
    skipping = False
    for line in doc.splitlines():
        if _SECTION.match(line):
            skipping = True
        elif skipping and _HEADING.match(line) and not line.startswith(" "):
            skipping = False
        if not skipping and not _FIELD.match(line):
            lines.append(line)
    return "\n".join(lines).strip()


def _described(doc: str) -> dict[str, str]:
    """What a docstring says of single arguments: an `Args:` section, or `:param name:` lines."""
    found: dict[str, str] = {}
    inside = False
    for line in doc.splitlines():
        if _SECTION.match(line):
            inside = True
        elif inside and line.strip() and not line.startswith(" "):
            inside = False
        if item := _FIELD.match(line) or (_ITEM.match(line) if inside else None):
            found[item[1]] = item[2].strip()
    return found


def _called(source: object) -> str:
    return getattr(source, "__name__", None) or type(source).__name__


def _check(tool: Tool[..., Any]) -> None:
    if not _NAME.match(tool.name):
        raise BadTool(
            tool.name, "providers take names of 1 to 64 letters, digits, _ and - only", "pass name="
        )
    if tool._version is not None and not (isinstance(tool._version, str) and tool._version):  # pyright: ignore
        raise BadTool(
            tool.name,
            f"{tool._version!r} is no version",  # pyright: ignore[reportPrivateUsage]
            "pass a text, as in version='2'",
        )
    if tool.effect not in get_args(EffectClass):
        raise BadTool(
            tool.name,
            f"{tool.effect!r} is not an effect class",
            f"use one of {', '.join(get_args(EffectClass))}",
        )
    for given, name, effect in (
        (tool.probe, "probe", "probeable"),
        (tool.compensate, "compensate", "compensatable"),
    ):
        if (given is not None) != (tool.effect == effect):
            why = (
                f"{name}= belongs to the class {effect}"
                if given is not None
                else f"the class {effect} needs {name}="
            )
            raise BadTool(tool.name, why, f"pass effect={effect!r} and {name}= together")
    if tool.timeout_s is not None and not tool.timeout_s > 0:
        raise BadTool(tool.name, f"{tool.timeout_s!r} is no time at all", "pass timeout_s= above 0")
    try:
        check_origin(tool.taints)
        if tool.taints in ("program", "human", "model"):
            raise InvalidValue("taints", f"{tool.taints!r} is who speaks for itself")
    except InvalidInput as error:
        raise BadTool(
            tool.name,
            f"taints={tool.taints!r} is no origin",
            "use a short lowercase word, as in web or mail:inbox",
        ) from error
    if tool.attempts < 1:
        raise BadTool(tool.name, f"{tool.attempts} attempts are none", "pass attempts= from 1")
    if tool.attempts > 1 and tool.effect not in _REPEATABLE:
        raise BadTool(
            tool.name,
            f"a call of class {tool.effect} is made once",
            f"say effect= one of {', '.join(_REPEATABLE)}, or attempts=1",
        )


@tool(effect="pure")
def ask_human(question: str, choices: tuple[str, ...] = ()) -> str:
    """Ask the person you work for, when only they can know or decide. Ask one thing at a time.

    Args:
        question: what you want to know, in a sentence
        choices: the answers to choose from; leave it out if any answer will do
    """
    raise NotImplementedError("a person answers this: hand it to an agent as a tool")


ask_human.asks = True


def difference(before: Json, after: Json) -> Json:
    """How an observed state changed: by key where it has keys, whole otherwise;
    None: it did not.
    """
    if before == after:
        return None
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [*before, *(key for key in after if key not in before)]
        return {
            key: _sides(before, after, key)
            for key in keys
            if (key in before) != (key in after) or before.get(key) != after.get(key)
        }
    return {"before": before, "after": after}


def _sides(before: Mapping[str, Json], after: Mapping[str, Json], key: str) -> Json:
    return {name: side[key] for name, side in (("before", before), ("after", after)) if key in side}
