"""The signature and docstring of a function, read as the schema and description of a tool."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    NamedTuple,
    get_args,
)

import msgspec

from plait.errors import BadTool
from plait.sandbox import Sandbox
from plait.session import Session
from plait.session.typed import to_json

_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters):\s*$")
_HEADING = re.compile(r"^\s*[A-Z][A-Za-z ]*:\s*$")
_ITEM = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_FIELD = re.compile(r"^\s*:param\s+(?:[^:]*\s)?(\w+):\s*(.+)$")
# the parameter that is filled with the session, to read, and that no model sees
SESSION = "session"
SANDBOX = "sandbox"  # likewise, with the sandbox in which its tools run
# likewise, with the name of this very call: the same whenever it has to be made again
KEY = "idempotency_key"


class Signature(NamedTuple):
    """The parameters of a function, and the types of these and of its result."""

    parameters: Sequence[inspect.Parameter]
    hints: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters]

    @property
    def takes_session(self) -> bool:
        return SESSION in self.names and _is_session(self.hints.get(SESSION, Any))

    @property
    def takes_sandbox(self) -> bool:
        return SANDBOX in self.names and self.hints.get(SANDBOX) is Sandbox


def read_signature(name: str, function: Callable[..., Any], around: Mapping[str, Any]) -> Signature:
    """Read the signature of a tool's function; `around` has the names that its types may use."""
    try:
        hints = typing.get_type_hints(function, localns=dict(around), include_extras=True)
        return Signature(list(inspect.signature(function).parameters.values()), hints)
    except (NameError, TypeError, ValueError, SyntaxError) as error:
        raise BadTool(
            name, str(error), "annotate it with types that are defined where it is"
        ) from error


def parameter_fields(name: str, signature: Signature, described: Mapping[str, str]) -> list[Any]:
    """Return the parameters that a model fills as fields of a struct."""
    parameters, hints = signature
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadTool(
                name,
                f"the parameter {parameter.name!r} has no name that a model could use",
                "use plain named parameters",
            )
        if (parameter.name == SESSION and signature.takes_session) or (
            parameter.name == "self" and parameter is parameters[0]
        ):
            continue
        if parameter.name == KEY or (parameter.name == SANDBOX and signature.takes_sandbox):
            continue
        hint = _described_hint(hints.get(parameter.name, Any), described.get(parameter.name))
        required = parameter.default is parameter.empty
        fields.append(
            (parameter.name, hint)
            if required
            else (parameter.name, hint, _default(parameter.default))
        )
    return sorted(fields, key=len)


def _is_session(hint: Any) -> bool:
    """Return True if a parameter named `session` takes the session: by its type, or untyped."""
    return hint is Any or Session in (hint, *get_args(hint))


def _default(value: Any) -> Any:
    """Return a default that can stand in the schema. Otherwise the schema only says that the
    argument may be left out.
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


def _described_hint(hint: Any, description: str | None) -> Any:
    """Return the hint with its description: a text in Annotated, else that of the docstring."""
    if typing.get_origin(hint) is Annotated:
        base, *notes = get_args(hint)
        texts = [note for note in notes if isinstance(note, str)]
        others = [note for note in notes if isinstance(note, msgspec.Meta)]
        metas = [*others, *(msgspec.Meta(description=text) for text in texts[:1])]
        return Annotated[(base, *metas)] if metas else base  # pyright: ignore[reportInvalidTypeForm,reportUnknownVariableType]
    return Annotated[hint, msgspec.Meta(description=description)] if description else hint


def summary_of(doc: str) -> str:
    """Return the docstring without the descriptions of single arguments."""
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


def argument_descriptions(doc: str) -> dict[str, str]:
    """Return the descriptions of single arguments: an `Args:` section, or `:param name:` lines."""
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
