"""The face of the demo: what it needs of a terminal. The command line has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from plait.demo.lanes import LiveRow


class StyledText(NamedTuple):
    """A piece of a line, and its style."""

    text: str
    style: str = ""


class ConsentAnswer(NamedTuple):
    """The answer of a person to a request for consent."""

    word: Literal["yes", "no", "edit"]
    command: str = ""  # with `edit`: the command to run instead
    reason: str = ""  # with `no`: as it was typed; "": none was


class Face(Protocol):
    """Shows lines and asks. Texts are made harmless there."""

    @property
    def is_terminal(self) -> bool: ...

    def line(self, *spans: StyledText | str) -> None:
        """Print a line, which is cut to the width of a terminal."""
        ...

    def heading(self, number: int, text: str) -> None: ...

    def row(self, row: LiveRow) -> None:
        """Print a step with its lanes, in the words of `plait log --steps`."""
        ...

    def table(self, heads: tuple[str, ...], rows: Sequence[tuple[StyledText, ...]]) -> None:
        """Print rows in aligned columns; where they do not fit, the last one on its own line."""
        ...

    def command(self, *words: str) -> None:
        """Print a command of `plait`, run it in this process, and print its output."""
        ...

    def ask(self, question: str) -> ConsentAnswer:
        """Ask a person at the terminal."""
        ...
