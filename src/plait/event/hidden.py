"""Bodies without the secrets that are known to the process. Every body passes here before it is
sealed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from plait import secrets

S = TypeVar("S", bound=msgspec.Struct)

# Types of fields that hold our own names and no free text: a short secret must not be found in a
# digest by chance.
_CLOSED = re.compile(r"Digest|LogId|Literal|EffectClass|Purpose|Scope")
_ID = re.compile(r"[0-9a-f]{64}\Z|c[0-9a-f]{23}\Z|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_encode = msgspec.json.Encoder().encode


def without_secrets(value: S) -> S:
    """Return the body, or a part of one, as it may be recorded; the very same object if there is
    nothing to hide.
    """
    if not secrets.is_armed():
        return value
    try:
        return _hide_within(value) if secrets.may_hold_secret(_encode(value)) else value
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return value  # it cannot be sealed either, and sealing says why


def _hide_within(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        changed = {
            name: (secrets.hide if is_json else _hide_within)(getattr(value, name))
            for name, is_json in _open_fields(type(value))
        }
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, str):
        hidden = secrets.hide_text(value)
        return value if _ID.match(value) and not secrets.is_whole(hidden) else hidden
    if isinstance(value, tuple):
        return tuple([_hide_within(item) for item in cast("tuple[Any, ...]", value)])
    if isinstance(value, dict):
        return secrets.hide_items(
            (_hide_within(key), _hide_within(item))
            for key, item in cast("dict[str, Any]", value).items()
        )
    return value


@lru_cache
def _open_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, bool], ...]:
    """Return the names of the fields that may hold free text, each with True if it is Json."""
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
