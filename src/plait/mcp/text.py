"""Characters that people do not see and models do."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from plait.event import Json

_SHOWN_MAX = 5  # positions named per character and place

# The characters that Unicode calls default ignorable, beyond the categories below: fillers,
# joiners, variation selectors, the tag block.
_RANGES = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2028, 0x2029),
    (0x2065, 0x2065),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0000, 0xE0FFF),
)


def is_hidden(char: str) -> bool:
    """Return True for a control, format or ignorable character; line feed and tab are none."""
    if char in "\n\t":
        return False
    point = ord(char)
    return unicodedata.category(char) in ("Cc", "Cf", "Cs") or any(
        first <= point <= last for first, last in _RANGES
    )


def clean(text: str) -> str:
    return (
        text
        if text.isascii() and text.isprintable()
        else "".join(char for char in text if not is_hidden(char))
    )


def findings(text: str, where: str) -> list[str]:
    """Return a line per hidden character: `description of add: U+200B ZERO WIDTH SPACE at 12`."""
    places: dict[str, list[int]] = {}
    for position, char in enumerate(text):
        if is_hidden(char):
            places.setdefault(char, []).append(position)
    return [f"{where}: {_name_of(char)} at {_place_list(at)}" for char, at in places.items()]


def clean_json(value: Json) -> Json:
    """Return the value with every text in it cleaned.

    Keys stay: a tool with hidden characters in keys is refused before.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {key: clean_json(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [clean_json(inner) for inner in value]
    return value


def texts(value: Json, path: str = "") -> Iterator[tuple[str, str, bool]]:
    """Yield every text in a value: its path, the text, and True if it is a key."""
    if isinstance(value, str):
        yield path, value, False
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield path, key, True
            yield from texts(inner, f"{path}.{clean(key)}" if path else clean(key))
    elif isinstance(value, Sequence):
        for index, inner in enumerate(cast("Sequence[Json]", value)):
            yield from texts(inner, f"{path}[{index}]")


def _name_of(char: str) -> str:
    return (
        f"U+{ord(char):04X}"
        f" {unicodedata.name(char, 'CONTROL' if unicodedata.category(char) == 'Cc' else 'UNNAMED')}"
    )


def _place_list(places: list[int]) -> str:
    shown = ", ".join(map(str, places[:_SHOWN_MAX]))
    return (
        f"{shown} and {len(places) - _SHOWN_MAX} more places" if len(places) > _SHOWN_MAX else shown
    )
