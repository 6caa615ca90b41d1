"""The progress of a run, as it is made.

Each step is a line when it is settled, in the words and lanes of `plait log --steps`, and stays on
the screen. On a terminal the text of models is shown as it comes, and the last line, which is
redrawn, tells what goes on now; it is gone when the run is over. Without a terminal the lines,
replies and heartbeats among them, go to stderr, so that the result on stdout can be piped on. All
of it is taken from the run's own events and deltas.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from plait.cli.live_steps import LiveLine, LiveSteps, line_cells
from plait.cli.render import DIM, Cell, Out, cell_width, count_text
from plait.cli.run_totals import seconds_text, spent_of
from plait.cli.scroll import Scroll
from plait.cli.terminal import console, cut_text
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId
from plait.runtime.live import Live
from plait.session import Session
from plait.session.content import text_of
from plait.session.safe_text import clean
from plait.session.state import NOTHING, dollars_text

if TYPE_CHECKING:
    from plait.model.base import Delta

DOT = " · "
_OVER = (k.ToolReturned, k.ToolFailed, k.ToolUnknown)


# in a chat these are told by the chat itself
_OF_CHAT = frozenset(["message", "run", "taken", "ended", "life"])


class Progress:
    """Listens to a run and shows its progress. `quiet`: only counts; `is_chat`: without the steps
    that a chat shows itself.
    """

    def __init__(self, quiet: bool = False, *, is_chat: bool = False) -> None:
        self._live_steps, self._is_chat = LiveSteps(), is_chat
        self.out = Out(stderr=True)
        self._quiet, self._redraws = quiet, self.out.tty and not quiet
        self._streams = sys.stdout.isatty() and not quiet
        self._scroll = Scroll(self._print_name, self._hide_line, self._show_line)
        # Not held while anything is drawn: the thread that redraws the line takes it.
        self._lock = Lock()
        self._live: Any = None
        self._is_open = False  # True: between __enter__ and __exit__
        self._began = _now()
        self._running: dict[str, str] = {}  # tools by call
        self._path = self._doing = ""
        self.seen_asks: set[str] = set()  # that a person was shown in full, and put off
        self._beats: dict[str, str] = {}  # the last detail of a heartbeat, by tool
        self._speakers: set[str] = set()  # agents that asked a model
        self.steps = self.tool_calls = 0
        self.spent = NOTHING

    @property
    def shown_text(self) -> str | None:
        """The last text of a model that stands on the terminal. None: there is none."""
        return self._scroll.last

    def begin(self, session: Session) -> None:
        """Note what stands in a session before its run goes on."""
        if not self._quiet:
            self._live_steps.begin(session)

    # ── listening ────────────────────────────────────────────────────────────────────────────

    def __call__(self, item: Event | Delta) -> None:
        if isinstance(item, Event):
            with self._lock:
                path = self._count_event(item)
            if not self._quiet:
                self._show_event(item, path)
            return
        with self._lock:
            self._path = item.agent
            self._doing = _delta_text(item) or self._doing
        if tool := getattr(item, "heartbeat_of", ""):
            self._hear_beat(item.agent, tool, getattr(item, "output", "").strip())
        elif self._streams and item.text:
            self._scroll.hear(item.agent, item.text)
        elif self._streams and _is_restart(item):
            self._scroll.end_text(item.agent, is_void=True)

    def _hear_beat(self, agent: str, tool: str, detail: str) -> None:
        with self._lock:
            is_new, self._beats[tool] = self._beats.get(tool) != detail, detail
        if is_new and not self._redraws and not self._quiet:
            self._scroll.add_lines(
                lambda: self.out.line(Cell(f"     {agent}  {tool}: {detail}", DIM))
            )

    def _count_event(self, event: Event) -> str:
        """Count an event, and return the agent that it is of."""
        body, call = event.body, event.header.call or ""
        if event.actor.startswith("agent:"):
            self._path = unquote(event.actor.partition(":")[2])
        if isinstance(body, k.ModelAsked):
            self._doing = f"asks {body.model}"
            self._speakers.add(event.actor)
        elif isinstance(body, k.ModelReplied):
            self.steps += 1
            self._doing = ""
            self.spent += spent_of(body)
        elif isinstance(body, k.ModelFailed):
            self._doing = ""
            self.spent += spent_of(body)
        elif isinstance(body, k.ToolRequested):
            self.tool_calls += body.attempt == 1 and body.decision != "refuse"
            self._path = body.path or self._path
            self._running[call] = body.tool
        elif isinstance(body, _OVER):
            ended = self._running.pop(call, None)
            if ended is not None:
                self._beats.pop(ended, None)
        return self._path

    # ── printing ─────────────────────────────────────────────────────────────────────────────

    def _show_event(self, event: Event, path: str) -> None:
        body = event.body
        if isinstance(body, k.ModelReplied) and self._streams:
            # what guards have yet to pass comes in pieces after it, if they do
            whole = text_of(body.parts) if not body.judged_in else ""
            self._scroll.end_text(path, whole)
        elif isinstance(body, k.CallFinished) and event.actor.startswith("agent:"):
            self._scroll.end_text(path)
        elif isinstance(body, k.ModelFailed):
            self._scroll.end_text(path, is_void=True)
        lines = [line for line in self._live_steps.take(event) if self._is_told(line)]
        if isinstance(body, k.MessageSaid) and self._streams and event.actor in self._speakers:
            lines = []  # the words of an agent after its guards: they come in pieces
        if lines:
            self._scroll.add_lines(lambda: self._print_lines(lines))

    def _is_told(self, line: LiveLine) -> bool:
        """True if a line is printed. The text of a reply stands on the terminal as it came."""
        kind = line.step.type if line.step is not None else ""
        if kind == "reply":
            return not self._streams
        return not (self._is_chat and kind in _OF_CHAT)

    def _print_lines(self, lines: list[LiveLine]) -> None:
        for line in lines:
            self.out.line(*line_cells(line, self.out.width if self.out.tty else None))

    def _print_name(self, agent: str) -> None:
        if self._redraws:
            self.out.line(Cell(agent, DIM))

    @property
    def seconds(self) -> float:
        return (_now() - self._began) / 1e6

    def line(self, width: int) -> str:
        """Return the progress in one line that fits. The agent and its action stand last, where the
        line is cut.
        """
        with self._lock:
            tools = dict.fromkeys(self._running.values())
            doing = ", ".join(map(self._tool_text, tools)) or self._doing
            where = clean(DOT.join(filter(None, (self._path, doing))))
            usage, cost = self.spent.usage, self.spent.cost
            mark, unpriced = _estimate_mark(usage), "+?" if cost.unpriced else ""
            known = f"{mark}{dollars_text(cost.dollars or 0)}{unpriced}"
            money = known if cost.dollars is not None else "unknown"
            tokens = f"{mark}{usage.input_tokens:,} in {usage.output_tokens:,} out"
            passed = seconds_text(self.seconds)
            told = DOT.join([count_text(self.steps, "step"), tokens, money, passed])
            if cell_width(told) + len(DOT) + min(cell_width(where), 20) > width:
                told = DOT.join([str(self.steps), money, passed])
            return cut_text(f"{told}{DOT}{where}" if where else told, width)

    def _tool_text(self, tool: str) -> str:
        detail = self._beats.get(tool)
        return f"{tool}: {detail}" if detail else tool

    # ── the line that is drawn anew ──────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        self._is_open, self._began = True, _now()
        with self._lock:  # of a run before this one, which was stopped
            self._running, self._path, self._doing = {}, "", ""
        self._show_line()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        self._hide_line()
        self._scroll.close()

    def _show_line(self) -> None:
        if self._is_open and self._redraws and self._live is None:
            from rich.live import Live as RichLive
            from rich.text import Text

            screen = console(stderr=True)

            def render_line() -> Text:
                return Text(self.line(screen.width - 1), style=DIM, no_wrap=True, overflow="crop")

            # Output of the program goes above the line; into a pipe it goes unchanged.
            self._live = RichLive(
                get_renderable=render_line,
                console=screen,
                transient=True,
                refresh_per_second=8,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()

    def _hide_line(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    @contextmanager
    def lend_terminal(self) -> Generator[Out]:
        """Lend the terminal: no line is drawn until the block ends."""
        with self._scroll.lend():
            yield self.out


def _is_restart(item: Delta) -> bool:
    """True if the answer so far is void, and the model begins anew."""
    return bool(getattr(item, "why", "")) and not hasattr(item, "model")


def _delta_text(item: Delta) -> str:
    """Return what an agent does, by a delta. "": the same as before."""
    if tool := getattr(item, "tool", ""):
        return f"asks for {tool}"
    model, why = getattr(item, "model", ""), getattr(item, "why", "")
    if model and why:  # a limit of the model
        return f"waits for {model}: {why}"
    if item.text:
        return "answers"
    return "thinks" if hasattr(item, "thought") else ""


def _estimate_mark(usage: k.Usage) -> str:
    """Return the mark of a figure that is an estimate."""
    return "~" if usage.estimated_tokens else ""


def _now() -> int:
    return Live().now(LogId(""), 0)
