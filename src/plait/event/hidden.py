"""Bodies without the secrets that are known to the process: what is sealed has
passed through here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from plait import secrets

S = TypeVar("S", bound=msgspec.Struct)

# Fields that hold names of ours and not what somebody said: a short secret must not be found in a
# digest by chance.
_CLOSED = re.compile(r"Digest|LogId|Literal|EffectClass|Purpose|Scope")
_ID = re.compile(r"[0-9a-f]{64}\Z|c[0-9a-f]{23}\Z|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_encode = msgspec.json.Encoder().encode


def without_secrets(value: S) -> S:
    """The body, or a part of one, as it may be recorded; the very same if there is
    nothing to hide.
    """
    if not secrets.armed():
        return value
    try:
        return _hidden(value) if secrets.spotted(_encode(value)) else value
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return value  # it cannot be written either, and whoever tries says why


def _hidden(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        changed = {
            name: (secrets.hide if is_json else _hidden)(getattr(value, name))
            for name, is_json in _open_fields(type(value))
        }
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, str):
        hidden = secrets.hide_text(value)
        return value if _ID.match(value) and not secrets.is_whole(hidden) else hidden
    if isinstance(value, tuple):
        return tuple([_hidden(item) for item in cast("tuple[Any, ...]", value)])
    if isinstance(value, dict):
        return secrets.hide_items(
            (_hidden(key), _hidden(item)) for key, item in cast("dict[str, Any]", value).items()
        )
    return value


@lru_cache
def _open_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, bool], ...]:
    """The fields that somebody fills with words, and whether anything may stand there."""
    hints = {
        name: str(hint)
        for base in reversed(kind.__mro__)
        for name, hint in base.__dict__.get("__annotations__", {}).items()
    }
    return tuple(
        [
            (name, "Json" in hints[name])
            for name in kind.__struct_fields__
            if not _CLOSED.search(hints[name])
        ]
    )
