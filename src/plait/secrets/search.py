"""Finds one secret in texts and bytes, in all its spellings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from plait.secrets.spellings import (
    PIECE_SIZE,
    pieces_of,
    spellings_of,
    unsquashed_size,
    without_line_breaks,
)


def stand_in(name: str) -> str:
    """Return the text that stands where a secret was."""
    return f"[secret {name}]"


class SecretValue:
    """One value, in all its spellings.

    Needles are looked for first; where one is found, the pattern gives the exact text to replace.
    """

    __slots__ = ("_beginnings", "_bytes", "_text", "name", "size")

    def __init__(self, text: str, name: str) -> None:
        self.name, self.size = name, len(text)
        plain, percent, lines, source = spellings_of(text)
        pieces = [piece for line in lines for piece in pieces_of(line)]
        self._text = _Needles(("%", "\n", "\\n"), plain, percent, lines, pieces, re.compile(source))
        self._bytes = _Needles(
            (b"%", b"\n", b"\\n"),
            _bytes_of(plain),
            _bytes_of(percent),
            _bytes_of(lines),
            _bytes_of(pieces),
            re.compile(source.encode("utf-8", "surrogatepass")),
        )
        self._beginnings: tuple[str, ...] | None = None

    def in_bytes(self, data: bytes) -> bool:
        return self._bytes.may_be_in(data)

    def begins_in(self, text: str) -> int:
        """Return the earliest place from which the end of a text could be the beginning of this
        value; its length: there is none.
        """
        if self._beginnings is None:
            search = self._text
            self._beginnings = tuple(
                dict.fromkeys(
                    [
                        without_line_breaks(form)
                        for form in (*search.plain, *search.percent, *search.lines)
                    ]
                )
            )
        window = text[-2 * max(map(len, self._beginnings)) - PIECE_SIZE :]
        squashed = without_line_breaks(window)
        most = 0
        for form in self._beginnings if squashed else ():
            last = squashed[-1]
            size = min(len(form), len(squashed))
            while size > most and (size := form.rfind(last, most, size) + 1) > most:
                if squashed.endswith(form[:size]):
                    most = size
                    break
                size -= 1
        return len(text) - unsquashed_size(window, most) if most else len(text)

    def cut_before(self, text: str, edge: int) -> int:
        """Return the edge, or the start of the value if it lies across the edge, or ends where the
        text ends.
        """
        if self._text.may_be_in(text):
            for found in self._text.pattern.finditer(text):
                if found.start() < edge and (found.end() > edge or found.end() == len(text)):
                    return found.start()
        return edge

    def hide_text(self, text: str) -> str:
        return (
            self._text.pattern.sub(stand_in(self.name), text)
            if self._text.may_be_in(text)
            else text
        )

    def hide_bytes(self, data: bytes) -> bytes:
        return (
            self._bytes.pattern.sub(stand_in(self.name).encode(), data)
            if self._bytes.may_be_in(data)
            else data
        )


class _Needles(NamedTuple):
    """The spellings to look for; all of them texts, or all bytes.

    Every append searches: one look per spelling, and only for those that can be there.
    """

    marks: Any  # a percent sign, a line break, and one that is escaped
    plain: Sequence[Any]
    percent: Sequence[Any]  # have percent signs
    lines: Sequence[Any]  # may be broken into lines
    pieces: Sequence[Any]  # of those, one of which is then still whole
    pattern: re.Pattern[Any]

    def may_be_in(self, data: Any) -> bool:
        for needle in self.plain:
            if needle in data:
                return True
        sign, line, escaped = self.marks
        for needle in self.pieces if line in data or escaped in data else self.lines:
            if needle in data:
                return True
        return sign in data and any([needle in data for needle in self.percent])


def _bytes_of(needles: Sequence[str]) -> list[bytes]:
    return [needle.encode("utf-8", "surrogatepass") for needle in needles]
