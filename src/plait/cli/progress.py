"""The progress of a run, as it is made.

On a terminal the text of models is shown as it comes, each call of a tool is a line, and the last
line, which is redrawn, tells what goes on now; it is gone when the run is over. Without a terminal
every reply of a model, every heartbeat and every outcome of a tool is a line on stderr, so that the
result on stdout can be piped on. All of it is taken from the run's own events and deltas.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import unquote

from plait.calls.model_call import PROCESS_ENDED
from plait.cli.render import BAD, DIM, Cell, Out, as_json, cell_width, count_text
from plait.cli.scroll import Scroll
from plait.cli.terminal import console, cut_text
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId
from plait.outline.documents import Document
from plait.runtime.live import Live
from plait.session.content import text_of
from plait.session.event_text import event_text
from plait.session.safe_text import clean
from plait.session.state import NOTHING, Spent, dollars_text

if TYPE_CHECKING:
    from plait.model.base import Delta

SAID = 200  # cells of the text of a step
DOT = " · "
_OVER = (k.ToolReturned, k.ToolFailed, k.ToolUnknown)


class _ToolAtWork(NamedTuple):
    tool: str
    arguments: str


class Progress:
    """Listens to a run and shows its progress. `quiet`: only counts."""

    def __init__(self, quiet: bool = False) -> None:
        self.out = Out(stderr=True)
        self._quiet, self._redraws = quiet, self.out.tty and not quiet
        self._streams = sys.stdout.isatty() and not quiet
        self._scroll = Scroll(self._print_name, self._hide_line, self._show_line)
        # Not held while anything is drawn: the thread that redraws the line takes it.
        self._lock = Lock()
        self._live: Any = None
        self._is_open = False  # True: between __enter__ and __exit__
        self._began = _now()
        self._running: dict[str, _ToolAtWork] = {}  # by call
        self._known: dict[str, _ToolAtWork] = {}  # requested before this run was taken up
        self._path = self._doing = ""
        self.seen_asks: set[str] = set()  # that a person was shown in full, and put off
        self._beats: dict[str, str] = {}  # the last detail of a heartbeat, by tool
        self.steps = self.tool_calls = 0
        self.earlier_calls = 0  # of tools, requested before this run was taken up
        self.spent = NOTHING

    @property
    def shown_text(self) -> str | None:
        """The last text of a model that stands on the terminal. None: there is none."""
        return self._scroll.last

    def know_calls(self, requests: Iterable[Event]) -> None:
        """Note calls that were requested before: their outcomes are yet to come."""
        for event in requests:
            if isinstance(event.body, k.ToolRequested):
                self._known[event.header.call or ""] = _at_work(event.body)
                self.earlier_calls += event.body.attempt == 1 and event.body.decision != "refuse"

    # ── listening ────────────────────────────────────────────────────────────────────────────

    def __call__(self, item: Event | Delta) -> None:
        if isinstance(item, Event):
            with self._lock:
                path, at_work = self._count_event(item)
            if not self._quiet:
                self._show_event(item, path, at_work)
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
            self._print_line(agent, "", f"{tool}: {detail}")

    def _count_event(self, event: Event) -> tuple[str, _ToolAtWork | None]:
        """Count an event; return the agent that it is of, and the tool that it ends."""
        body, call = event.body, event.header.call or ""
        if event.actor.startswith("agent:"):
            self._path = unquote(event.actor.partition(":")[2])
        if isinstance(body, k.ModelAsked):
            self._doing = f"asks {body.model}"
        elif isinstance(body, k.ModelReplied):
            self.steps += 1
            self._doing = ""
            self._spend(body.usage, body.price)
        elif isinstance(body, k.ModelFailed):
            self._doing = ""
            if body.usage is not None:
                self._spend(body.usage, body.price)
        elif isinstance(body, k.ToolRequested):
            self.tool_calls += body.attempt == 1 and body.decision != "refuse"
            self._path = body.path or self._path
            self._running[call] = _at_work(body)
        elif isinstance(body, _OVER):
            ended = self._running.pop(call, None) or self._known.get(call)
            if ended is not None:
                self._beats.pop(ended.tool, None)
            return self._path, ended
        return self._path, None

    def _spend(self, usage: k.Usage, price: k.Price | None) -> None:
        self.spent += Spent(
            usage, price.cost_usd_nano if price is not None else 0, unpriced=price is None
        )

    # ── printing ─────────────────────────────────────────────────────────────────────────────

    def _show_event(self, event: Event, path: str, at_work: _ToolAtWork | None) -> None:
        body = event.body
        if isinstance(body, k.ModelReplied):
            if self._streams:
                # what guards have yet to pass comes in pieces after it, if they do
                whole = text_of(body.parts) if not body.judged_in else ""
                self._scroll.end_text(path, whole)
            elif not self._redraws or body.parts:
                usage = body.usage
                tokens = f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"
                counts = f"  ({_estimate_mark(usage)}{tokens})"
                self._print_step(event, path, f"step {self.steps}", counts)
        elif isinstance(body, k.CallFinished) and event.actor.startswith("agent:"):
            self._scroll.end_text(path)
        elif isinstance(body, k.ModelFailed):
            self._scroll.end_text(path, is_void=True)
            if self._redraws and body.failure.kind == PROCESS_ENDED:
                again = Cell("  · asks again: the answer was stopped, or its process ended", DIM)
                self._scroll.add_lines(path, lambda: self.out.print_brief(again))
            elif self._redraws:
                mark, why = Cell("  · ", DIM), Cell(event_text(event), BAD)
                self._scroll.add_lines(path, lambda: self.out.print_brief(mark, why))
            else:
                self._print_step(event, path, "")
        elif isinstance(body, _OVER):
            at_work = at_work or _ToolAtWork(f"call {(event.header.call or '')[:8]}", "")
            if self._redraws:
                self._scroll.add_lines(path, lambda: self._print_tool(event, at_work))
            else:
                self._print_step(event, path, "", before=f"{at_work.tool} ")

    def _print_step(
        self, event: Event, path: str, name: str, more: str = "", before: str = ""
    ) -> None:
        self._print_line(path, name, f"{before}{event_text(event)}", more)

    def _print_line(self, path: str, name: str, text: str, more: str = "") -> None:
        said = cut_text(clean(text), SAID)
        head = Cell(f"{self.elapsed_text:>7}  {name:<8}  {path}  ", DIM)
        self._scroll.add_lines(path, lambda: self.out.print_brief(head, f"{said}{more}"))

    def _print_tool(self, event: Event, at_work: _ToolAtWork) -> None:
        """Print a call with its outcome, in one line of the terminal."""
        is_bad = not isinstance(event.body, k.ToolReturned)
        arguments = cut_text(clean(at_work.arguments), max(self.out.width // 2, 20))
        self.out.print_brief(
            Cell("  · ", DIM),
            cut_text(clean(at_work.tool), 40),
            Cell(f" {arguments} → ", DIM),
            Cell(event_text(event).removeprefix("returned "), BAD if is_bad else DIM),
        )

    def _print_name(self, agent: str) -> None:
        if self._redraws:
            self.out.line(Cell(agent, DIM))

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

    def summary_of(self, *, is_resumed: bool) -> str:
        """Return the counts of this process; of a resumed run, also its calls before that."""
        calls, earlier = count_text(self.tool_calls, "tool call"), self.earlier_calls
        if is_resumed and earlier:
            calls = f"{calls} ({earlier:,} before the resume)"
        usage = self.spent.usage
        total = usage.input_tokens + usage.output_tokens
        tokens = f"{_estimate_mark(usage)}{count_text(total, 'token')}"
        return ", ".join(
            [
                count_text(self.steps, "step"),
                calls,
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
            tools = dict.fromkeys(each.tool for each in self._running.values())
            doing = ", ".join(map(self._tool_text, tools)) or self._doing
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


def _at_work(body: k.ToolRequested) -> _ToolAtWork:
    return _ToolAtWork(body.tool, as_json(body.arguments))


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
