"""The progress of a run, printed on stderr, so that the result on stdout can be piped on.

A terminal shows one line that is redrawn, and gone when the run is over; otherwise every reply of a
model and every outcome of a tool is a line. All of it is taken from the run's own events and
deltas.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from plait.cli.documents import Document
from plait.cli.render import DIM, Cell, Out, cell_width, count_text
from plait.cli.terminal import clean, console, cut_text
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId
from plait.runtime.live import Live
from plait.session.event_text import event_text
from plait.session.state import NOTHING, Spent, dollars_text

if TYPE_CHECKING:
    from plait.model.base import Delta

SAID = 200  # cells of the text of a step
DOT = " · "
_OVER = (k.ToolReturned, k.ToolFailed, k.ToolUnknown)


class Progress:
    """Listens to a run and prints its progress. `quiet`: only counts."""

    def __init__(self, quiet: bool = False) -> None:
        self.out = Out(stderr=True)
        self._quiet, self._redraws = quiet, self.out.tty and not quiet
        self._lock = RLock()  # branches report from threads of their own
        self._live: Any = None
        self._began = _now()
        self._running: dict[str, str] = {}  # tools at work, by call
        self._path = self._doing = ""
        self.steps = self.tool_calls = 0
        self.spent = NOTHING

    # ── listening ────────────────────────────────────────────────────────────────────────────

    def __call__(self, item: Event | Delta) -> None:
        with self._lock:
            if isinstance(item, Event):
                self._count_event(item)
            else:
                self._path = item.agent
                tool = getattr(item, "tool", "")
                self._doing = f"asks for {tool}" if tool else "answers" if item.text else "thinks"
                model, why = getattr(item, "model", ""), getattr(item, "why", "")
                if model and why:
                    self._doing = f"waits for {model}: {why}"

    def _count_event(self, event: Event) -> None:
        body, call = event.body, event.header.call or ""
        if event.actor.startswith("agent:"):
            self._path = unquote(event.actor.partition(":")[2])
        if isinstance(body, k.ModelAsked):
            self._doing = f"asks {body.model}"
        elif isinstance(body, k.ModelReplied):
            self.steps += 1
            self._doing = ""
            self._spend(body.usage, body.price)
            counts = (
                f"  ({_estimate_mark(body.usage)}{body.usage.input_tokens:,} in,"
                f" {body.usage.output_tokens:,} out)"
            )
            self._print_step(event, f"step {self.steps}", counts)
        elif isinstance(body, k.ModelFailed):
            self._doing = ""
            if body.usage is not None:
                self._spend(body.usage, body.price)
            self._print_step(event, "")
        elif isinstance(body, k.ToolRequested):
            self.tool_calls += body.attempt == 1 and body.decision != "refuse"
            self._path, self._running[call] = body.path or self._path, body.tool
        elif isinstance(body, _OVER):
            self._print_step(
                event, "", before=f"{self._running.pop(call, None) or _call_name(event)} "
            )

    def _spend(self, usage: k.Usage, price: k.Price | None) -> None:
        self.spent += Spent(
            usage, price.cost_usd_nano if price is not None else 0, unpriced=price is None
        )

    # ── printing ─────────────────────────────────────────────────────────────────────────────

    def _print_step(self, event: Event, name: str, more: str = "", before: str = "") -> None:
        if self._quiet or self._redraws:
            return
        said = cut_text(clean(f"{before}{event_text(event)}"), SAID)
        self.out.line(
            Cell(f"{self.elapsed_text:>7}  {name:<8}  {self._path}  ", DIM), said, Cell(more, DIM)
        )

    @property
    def seconds(self) -> float:
        return (_now() - self._began) / 1e6

    @property
    def elapsed_text(self) -> str:
        seconds = self.seconds
        return (
            f"{seconds:.1f} s"
            if seconds < 60
            else f"{int(seconds) // 60} min {int(seconds) % 60:02} s"
        )

    @property
    def cost(self) -> str:
        return "cost unknown" if self.spent.cost.dollars is None else str(self.spent.cost)

    @property
    def summary(self) -> str:
        usage = self.spent.usage
        tokens = (
            f"{_estimate_mark(usage)}{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
        )
        return ", ".join(
            [
                count_text(self.steps, "step"),
                count_text(self.tool_calls, "tool call"),
                tokens,
                self.cost,
                self.elapsed_text,
            ]
        )

    def document(self) -> Document:
        return {
            "steps": self.steps,
            "tool_calls": self.tool_calls,
            "input_tokens": self.spent.usage.input_tokens,
            "output_tokens": self.spent.usage.output_tokens,
            "estimated_tokens": self.spent.usage.estimated_tokens,
            "cost_usd": self.spent.cost.dollars,
            "unpriced": self.spent.unpriced,
            "wall_s": round(self.seconds, 3),
        }

    def line(self, width: int) -> str:
        """Return the progress in one line that fits. The agent and its action stand last, where the
        line is cut.
        """
        with self._lock:
            doing = ", ".join(dict.fromkeys(self._running.values())) or self._doing
            where = clean(DOT.join(filter(None, (self._path, doing))))
            usage, cost = self.spent.usage, self.spent.cost
            mark, unpriced = _estimate_mark(usage), "+?" if cost.unpriced else ""
            known = f"{mark}{dollars_text(cost.dollars or 0)}{unpriced}"
            money = known if cost.dollars is not None else "unknown"
            tokens = f"{mark}{usage.input_tokens:,} in {usage.output_tokens:,} out"
            told = DOT.join([count_text(self.steps, "step"), tokens, money, self.elapsed_text])
            if cell_width(told) + len(DOT) + min(cell_width(where), 20) > width:
                told = DOT.join([str(self.steps), money, self.elapsed_text])
            return cut_text(f"{told}{DOT}{where}" if where else told, width)

    # ── the line that is drawn anew ──────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _start(self) -> None:
        if self._redraws:
            import sys

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

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    @contextmanager
    def lend_terminal(self) -> Generator[Out]:
        """Lend the terminal: the line is gone until the block ends."""
        self._stop()
        try:
            yield self.out
        finally:
            self._start()


def _estimate_mark(usage: k.Usage) -> str:
    """Return the mark of a figure that is an estimate."""
    return "~" if usage.estimated_tokens else ""


def _now() -> int:
    return Live().now(LogId(""), 0)


def _call_name(event: Event) -> str:
    """Return a name for the call of an outcome whose request was not heard."""
    return f"call {(event.header.call or '')[:8]}"
