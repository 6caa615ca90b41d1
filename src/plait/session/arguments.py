"""Checks arguments of a session's verbs, and makes keys and principals of texts.

Callers without types exist, so every check looks at the type as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from urllib.parse import quote

from plait.errors import InvalidValue
from plait.event.kinds import Budget
from plait.event.strict import check_text as check_characters
from plait.ids import digest

NAME_MAX = 300


def principal_of(user: str) -> str:
    return f"human:{principal_word(user)}"


def principal_word(name: str) -> str:
    """A name as a principal can carry it: without spaces and invisible characters."""
    return (
        name
        if name.isprintable() and not any(c.isspace() for c in name) and len(name) <= 200
        else quote(name, safe="")[:200]
    )


def is_named(actor: str, name: str) -> bool:
    """True if a name means a principal: by the whole of it, or by the last parts of its path, with
    or without its kind, as `agent:coder` and `coder` mean `agent:lead/coder`.
    """
    kind, _, path = actor.partition(":")
    wanted_kind, colon, wanted = name.partition(":")
    if not colon:
        wanted = name
    elif wanted_kind != kind:
        return False
    return bool(wanted) and (path == wanted or path.endswith(f"/{wanted}"))


def key_from_text(kind: str, text: str) -> str:
    """A key that follows from the text, so that the same work noted twice is one, and different
    work never collides.
    """
    check_text("text", text)
    return f"{kind}-{digest(b'plait/key/1', text.encode('utf-8', 'surrogatepass'))[:12]}"


def check_key(key: str, where: str = "key", size: int = 200) -> str:
    if not isinstance(key, str) or not key.strip() or len(key) > size:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            where, f"{value_text(key)} is not a name", f"pass a text of 1 to {size} characters"
        )
    return key


def check_text(where: str, text: str) -> str:
    if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(where, f"{value_text(text)} says nothing", "pass a text")
    return text


def value_text(value: object) -> str:
    """A text as it is, anything else by its type: it may be too deep for a repr, or refuse to give
    one.
    """
    return f"{value[:200]!r}" if type(value) is str else f"a {type(value).__name__}"


def check_seconds(where: str, seconds: float) -> None:
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))  # pyright: ignore[reportUnnecessaryIsInstance]
        or not 0 <= seconds < 10**10
    ):
        raise InvalidValue(where, f"{value_text(seconds)} is not a time", "pass seconds, from 0")


def check_choice(where: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidValue(where, f"{value!r} is not one", f"use one of {', '.join(choices)}")


def check_name(where: str, text: str) -> None:
    """Check a title, a user or a project: it stands in rows and lists, and goes along with every
    fork.
    """
    if not isinstance(text, str) or len(text) > NAME_MAX:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            where,
            f"it is not a text of at most {NAME_MAX} characters",
            "shorten it, and say the rest",
        )
    check_characters(text, where)


def check_budget(budget: Budget | None) -> None:
    if budget is None:
        return
    if not isinstance(budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            "budget", f"a {type(budget).__name__} is not a budget", "pass Budget(tokens_max=…)"
        )
    for name in budget.__struct_fields__:
        limit = getattr(budget, name)
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < inf
        ):
            raise InvalidValue(
                name, f"{limit!r} is not a limit", "pass a number from 0, or None for no limit"
            )


def check_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    if not isinstance(tags or {}, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            "tags", f"a {type(tags).__name__} is not a mapping", 'pass {"team": "web"}'
        )
    return dict(tags or {})
