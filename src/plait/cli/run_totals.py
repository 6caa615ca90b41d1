"""Totals of a run over all processes that worked on it, from its events."""

from __future__ import annotations

from typing import NamedTuple

from plait.cli.render import count_text
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId, Micros
from plait.outline.documents import Document
from plait.session import Session
from plait.session.life import is_word_to_branch
from plait.session.ports import store_at
from plait.session.run_branches import logs_with_branches
from plait.session.state import NOTHING, Spent


class RunTotals(NamedTuple):
    """The amounts of one run, with those of its branches."""

    steps: int = 0  # replies of models
    tool_calls: int = 0
    spent: Spent = NOTHING
    lives: int = 1  # processes that worked on it, one after another
    worked_us: Micros = 0  # while a process worked on it

    @property
    def text(self) -> str:
        usage = self.spent.usage
        tokens = count_text(usage.input_tokens + usage.output_tokens, "token")
        lives = f" in {self.lives} lives" if self.lives > 1 else ""
        return ", ".join(
            [
                count_text(self.steps, "step"),
                count_text(self.tool_calls, "tool call"),
                f"{'~' if usage.estimated_tokens else ''}{tokens}",
                cost_text(self.spent),
                f"{seconds_text(self.worked_us / 1e6)}{lives}",
            ]
        )

    def document(self) -> Document:
        usage = self.spent.usage
        return {
            "steps": self.steps,
            "tool_calls": self.tool_calls,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "estimated_tokens": usage.estimated_tokens,
            "cost_usd": self.spent.cost.dollars,
            "unpriced": self.spent.unpriced,
            "wall_s": round(self.worked_us / 1e6, 3),
            "lives": self.lives,
        }


def totals_of_last_run(session: Session) -> RunTotals:
    """Return the totals of the run that began last on a session."""
    runs = session.runs
    if not runs:
        return RunTotals()
    run, store = runs[-1], store_at(session.store)
    steps = tool_calls = 0
    spent = NOTHING
    logs = {**logs_with_branches(session), session.id: session.seq}
    for log, last in logs.items():
        first = run.first if log == session.id else store.log(log).place + 1
        for event in store.read(log, first, last, kinds=_COUNTED):
            if event.header.run != run.id:
                continue
            body = event.body
            if isinstance(body, k.ToolRequested):
                tool_calls += body.attempt == 1 and body.decision != "refuse"
            elif isinstance(body, (k.ModelReplied, k.ModelFailed)):
                steps += isinstance(body, k.ModelReplied)
                spent += spent_of(body)
    lives, worked = _lives(session, run.first)
    return RunTotals(steps, tool_calls, spent, lives, worked)


def spent_of(body: k.ModelReplied | k.ModelFailed) -> Spent:
    """Return what one ask of a model took."""
    if body.usage is None:
        return NOTHING
    nano = body.price.cost_usd_nano if body.price is not None else 0
    return Spent(body.usage, nano, unpriced=body.price is None)


def cost_text(spent: Spent) -> str:
    return "cost unknown" if spent.cost.dollars is None else str(spent.cost)


def seconds_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


def _lives(session: Session, first: int) -> tuple[int, Micros]:
    """Return how many processes worked on a run, and for how long together.

    The time between the last event of one and the first of the next does not count.
    """
    store, log = store_at(session.store), LogId(session.id)
    taken = [
        event
        for event in store.read(log, first, session.seq, kinds={k.RunResumed.__name__})
        if not is_word_to_branch(event)
    ]
    starts = [first, *[event.seq for event in taken]]
    ends = [*[event.seq - 1 for event in taken], session.seq]
    places = [(log, seq) for span in zip(starts, ends, strict=True) for seq in span]
    events: list[Event] = store.events_at(places)
    worked = sum(
        max(end.time - start.time, 0) for start, end in zip(events[::2], events[1::2], strict=True)
    )
    return len(starts), worked


_COUNTED = {kind.__name__ for kind in (k.ToolRequested, k.ModelReplied, k.ModelFailed)}
