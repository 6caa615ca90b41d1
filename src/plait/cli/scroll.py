"""The lines of a run on a terminal: texts of models as they come, and whole lines between them.

Branches speak at the same time. One of them has the floor: its text is shown as it comes. The
others wait, with their texts and lines, until it has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import RLock

from plait.session.safe_text import clean

_LENT = "\0"  # has the floor while a person is asked; no agent is called that


class Scroll:
    """Prints texts and lines, one after another."""

    def __init__(
        self,
        name_speaker: Callable[[str], object],  # prints who speaks from now on
        take_screen: Callable[[], object],  # called before the first character of a text or a line
        leave_screen: Callable[[], object],  # called when the cursor stands at the start of a line
    ) -> None:
        self._name_speaker, self._take, self._leave = name_speaker, take_screen, leave_screen
        self._lock = RLock()  # branches report from threads of their own
        self._floor: str | None = None  # the agent whose text is shown. None: the screen is free
        self._shown = ""  # of its text
        self._named: str | None = None  # the agent that was named last
        self._texts: dict[str, str] = {}  # of the others
        self._blocks: list[Callable[[], object]] = []  # lines that wait for the floor
        self.last: str | None = None  # the last text that was shown to its end

    def hear(self, agent: str, text: str) -> None:
        """Show a piece of an agent's text."""
        with self._lock:
            if self._floor is None:
                self._begin(agent)
            if self._floor == agent:
                self._write(text)
            else:
                self._texts[agent] = self._texts.get(agent, "") + text

    def end_text(self, agent: str, whole: str = "", *, is_void: bool = False) -> None:
        """End an agent's text. A text that did not come in pieces is shown now, as a whole."""
        with self._lock:
            if self._floor != agent:
                text = self._texts.pop(agent, "") or whole
                if text.strip() and not is_void:
                    self.add_lines(lambda: self._write_whole(agent, text))
                return
            shown = self._shown
            self._end()
            if not is_void:
                self.last = shown
            self._go_on()

    def add_lines(self, write: Callable[[], object]) -> None:
        """Print whole lines, now or when the one who speaks has ended."""
        with self._lock:
            self._blocks.append(write)
            if self._floor is None:
                self._go_on()

    def close(self) -> None:
        """Print all that waits: the run is over."""
        with self._lock:
            if self._floor is not None:
                self._end()
            self._go_on()
            while self._texts:
                self.end_text(next(iter(self._texts)))

    @contextmanager
    def lend(self) -> Generator[None]:
        """Give the screen to the caller; texts and lines wait."""
        with self._lock:
            if self._floor is not None and self._shown:
                self._write("\n" if not self._shown.endswith("\n") else "")
                self._texts[self._floor] = ""
            self._take()
            self._floor, self._shown = _LENT, ""
        try:
            yield
        except BaseException:  # the run ends, and the cursor may stand anywhere
            with self._lock:
                self._floor = None
            raise
        with self._lock:
            self._floor = None
            self._leave()
            self._go_on()

    # ── the floor ────────────────────────────────────────────────────────────────────────────

    def _begin(self, agent: str) -> None:
        self._take()
        self._floor, self._shown = agent, ""

    def _end(self) -> None:
        if self._shown and not self._shown.endswith("\n"):
            _put("\n")
        self._floor, self._shown = None, ""
        self._leave()

    def _go_on(self) -> None:
        """Print the lines that wait, then let the next one speak."""
        blocks, self._blocks = self._blocks, []
        for write in blocks:
            self._take()
            write()
            self._leave()
        agent = next((each for each, text in self._texts.items() if text), None)
        if self._floor is None and agent is not None:
            self._begin(agent)
            self._write(self._texts.pop(agent))

    def _write(self, text: str) -> None:
        assert self._floor is not None
        if not self._shown:
            text = text.lstrip("\r\n")  # some models begin with blank lines
            if not text:
                return
            self._name(self._floor)
        self._shown += text
        _put(clean(text, lines=True))

    def _write_whole(self, agent: str, text: str) -> None:
        self._name(agent)
        _put(clean(text.strip("\r\n"), lines=True) + "\n")
        self.last = text

    def _name(self, agent: str) -> None:
        """Say who speaks, if it is another than before."""
        if agent != self._named and (self._named is not None or "/" in agent):
            self._name_speaker(agent)
        self._named = agent


def _put(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
