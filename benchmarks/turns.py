"""Turns and streams, measured: what they cost beside a plain run of the same workflow.

A plain run is `workflow(session.say(text))`, with a model that costs nothing. A contestant makes
ten of them in a session of its own, and CPU is that of the whole process: a stream has a thread.

    python benchmarks/turns.py [--quick] [--only NAME] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from functools import partial

import plait
from log import RESULTS, Bench, ms, serve
from measure import Row, percentile
from plait import Agent, ScriptedModel, Session, Workflow
from plait.store import Store

TURNS = 10  # per session and round
_WORDS = "Two apples and a pear, please; and tell me when they will be here."


class Chat(Workflow):
    def __init__(self) -> None:
        self.agent = Agent("Answer.", model=ScriptedModel(lambda session: _WORDS))

    def forward(self, session: Session) -> Session:
        return self.agent(session)


def _run_plainly(store: Store, chat: Chat) -> None:
    session = Session("hello", store=store)
    for _ in range(TURNS):
        session = chat(session.say(_WORDS))


def _take_turns(store: Store, chat: Chat) -> None:
    session = Session("hello", store=store)
    for _ in range(TURNS):
        session = session.turn(_WORDS, chat)


def _listen(store: Store, chat: Chat) -> None:
    """As plainly, with a listener: a model that is listened to is asked for deltas."""
    session = Session("hello", store=store)
    for _ in range(TURNS):
        session = chat(session.say(_WORDS), on_event=lambda item: None)


def _stream(store: Store, chat: Chat) -> None:
    session = Session("hello", store=store)
    for _ in range(TURNS):
        *_, last = chat.stream(session.say(_WORDS), events=True)
        assert isinstance(last, Session)
        session = last


def _stream_turns(store: Store, chat: Chat) -> None:
    session = Session("hello", store=store)
    for _ in range(TURNS):
        *_, last = chat.stream_turn(session, _WORDS)
        assert isinstance(last, Session)
        session = last


def _compare(
    contestants: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Return CPU seconds of the process, a round each, in shuffled order."""
    draw, order = random.Random(7), list(contestants)
    found: dict[str, list[float]] = {name: [] for name in order}
    for i in range(-2, rounds):
        draw.shuffle(order)
        for name in order:
            before = time.process_time()
            contestants[name]()
            if i >= 0:
                found[name].append(time.process_time() - before)
    return found


def _row(what: str, mine: list[float], beside: list[float], target: str) -> Row:
    a, b = percentile(mine, 50) / TURNS, percentile(beside, 50) / TURNS
    facts: dict[str, object] = {
        "cpu_p50_us": round(a * 1e6, 1),
        "beside_p50_us": round(b * 1e6, 1),
        "ratio_of_least": round(min(mine) / min(beside), 3),
    }
    return Row(what, f"{ms(a)} CPU", ms(b), f"{a / b:.2f} x", target, facts)


def turns(bench: Bench) -> list[Row]:
    """A turn beside a plain run."""
    store, chat = plait.open_store(bench.folder / "turns"), Chat()
    contestants = {"plain": _run_plainly, "turns": _take_turns}
    found = _compare(
        {name: partial(act, store, chat) for name, act in contestants.items()}, bench.some(100)
    )
    return [_row("a turn, beside a plain run", found["turns"], found["plain"], "<= 1.15 x")]


def streams(bench: Bench) -> list[Row]:
    """A stream beside a call with a listener, and beside a turn."""
    store, chat = plait.open_store(bench.folder / "streams"), Chat()
    contestants = {
        "plain": _run_plainly,
        "listened": _listen,
        "stream": _stream,
        "turns": _take_turns,
        "stream_turns": _stream_turns,
    }
    found = _compare(
        {name: partial(act, store, chat) for name, act in contestants.items()}, bench.some(100)
    )
    return [
        _row("a stream with events, beside a plain run", found["stream"], found["plain"], "-"),
        _row(
            "the same, beside a call with on_event", found["stream"], found["listened"], "<= 1.1 x"
        ),
        _row("a streamed turn, beside a turn", found["stream_turns"], found["turns"], "<= 1.1 x"),
    ]


PARTS = (turns, streams)


def main() -> None:
    serve(__doc__ or "", PARTS, RESULTS / "turns.json")


if __name__ == "__main__":
    main()
