"""48 agents over 12 sessions at once: every token and every read is accounted for."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from plait import Agent, Parallel, ScriptedModel, Session, ToolCall, tool
from plait.event.kinds import Price, Text, Usage
from plait.model.base import Reply
from plait.session.audit import verify
from plait.session.ports import store_at

SESSIONS, AGENTS, ROUNDS = 12, 4, 3
SHELF = {f"book {n}": f"text {n}" for n in range(SESSIONS * AGENTS)}


def test_48_agents_over_12_sessions_account_for_every_token_and_every_read() -> None:
    read: Counter[str] = Counter()
    lock = threading.Lock()
    meet = threading.Barrier(SESSIONS, timeout=60)

    @tool(effect="pure")
    def look_up(title: str) -> str:
        """Read a book from the shelf."""
        with lock:
            read[title] += 1
        return SHELF[title]

    def agent(s: int, a: int) -> Agent:
        number = s * AGENTS + a
        cost = Usage(100 + number, 10 + a, 5)
        price = Price(1_000 * (number + 1), "test")
        rounds = [
            Reply((), (ToolCall("look_up", title=f"book {number}"),), "calls", cost, price=price)
        ] * ROUNDS
        done = Reply((Text(f"agent {number} has read"),), (), "end", cost, price=price)
        return Agent(
            f"You are agent {number}.", model=ScriptedModel([*rounds, done]), tools=[look_up]
        )

    def run(s: int) -> Session:
        team = Parallel({f"agent-{a}": agent(s, a) for a in range(AGENTS)})
        session = Session(f"session {s}", title=f"{s}")
        meet.wait()
        return team(session)

    with ThreadPoolExecutor(SESSIONS) as pool:
        sessions = list(pool.map(run, range(SESSIONS)))

    calls = ROUNDS + 1
    for s, session in enumerate(sessions):
        numbers = [s * AGENTS + a for a in range(AGENTS)]
        assert session.budget.usage == Usage(
            sum(calls * (100 + n) for n in numbers),
            sum(calls * (10 + a) for a in range(AGENTS)),
            calls * 5 * AGENTS,
        )
        assert (
            session.budget.used.cost_usd_nano == sum(calls * 1_000 * (n + 1) for n in numbers)
            and session.budget.cost.unpriced == 0
        )
        assert (session.budget.used.model_calls, session.budget.used.tool_calls) == (
            calls * AGENTS,
            ROUNDS * AGENTS,
        )
        reads = Counter(effect.arguments["title"] for effect in session.effects)  # type: ignore[index,call-overload]
        assert reads == {f"book {n}": ROUNDS for n in numbers}
        assert all(effect.result == SHELF[effect.arguments["title"]] for effect in session.effects)  # type: ignore[index,call-overload]
        assert sorted(message.text for message in session.messages[1:]) == sorted(
            [*[f"agent {n} has read" for n in numbers], *[""] * ROUNDS * AGENTS]
        )
    assert read == {f"book {n}": ROUNDS for n in range(SESSIONS * AGENTS)}
    assert list(verify(store_at(sessions[0].store), state=True)) == []
