"""The spend, summed over sessions: each event once, and as the ledger has it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from plait import Session, Store
from plait.errors import InvalidValue, NoCommonBase
from plait.event.kinds import (
    Failure,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    Price,
    Text,
    ToolRequested,
    Usage,
)
from plait.ids import Digest
from plait.session.ledger import Costs, costs
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.state import Spent
from plait.session.value import position_of
from tests.support import count

PROMPT = Digest("0" * 64)
SOME = Usage(10, 5)


def spend(
    session: Session,
    *,
    agent: str = "coder",
    model: str = "big",
    usage: Usage = SOME,
    nano: int | None = 1000,
    fails: bool = False,
) -> Session:
    """One call of a model, and a tool that it asks for."""
    call = f"c{session.id[-4:]}{session.seq}"
    price = Price(nano, "test") if nano is not None else None
    answer = (
        ModelFailed(Failure("X", "no"), usage=usage, price=price)
        if fails
        else ModelReplied((Text("yes"),), usage, "end", price=price)
    )
    bodies = [ModelAsked(model, PROMPT), answer, ToolRequested("echo", {}, "pure")]
    drafts = [
        Draft(body, Act(f"agent:{agent}", "model", call=call if at < 2 else None))
        for at, body in enumerate(bodies)
    ]
    return session_at(writer_of(None).append(position_of(session), drafts))


def by(found: Costs) -> dict[tuple[str, ...], Spent]:
    return dict(found.rows)


def plus(spents: Sequence[Spent]) -> Spent:
    total = Spent()
    for spent in spents:
        total += spent
    return total


def test_the_sum_over_a_store(store: Store) -> None:
    ana = spend(
        spend(Session("a", user="ana", project="shop", tags={"team": "web"}, store=store)),
        agent="critic",
        model="small",
        nano=None,
    )
    bo = spend(Session("b", user="bo", store=store), fails=True)
    fork = spend(ana.fork("x"))
    found = costs(store)
    assert (found.by, found.total) == (
        (),
        ana.budget.used + bo.budget.used + (fork.budget.used - ana.budget.used),
    )
    assert found.total == Spent(Usage(40, 20), 3000, 1, 4, 4)
    assert by(costs(store, "user")) == {("ana",): fork.budget.used, ("bo",): bo.budget.used}
    assert by(costs(store, "project")) == {("shop",): fork.budget.used, ("",): bo.budget.used}
    assert by(costs(store, "tag:team")) == {("web",): fork.budget.used, ("",): bo.budget.used}
    assert by(costs(store, "session")) == {
        (ana.id,): ana.budget.used,
        (bo.id,): bo.budget.used,
        (fork.id,): fork.budget.used - ana.budget.used,
    }
    assert by(costs(store, "agent"))["critic",] == Spent(Usage(10, 5), 0, 1, 1, 1)
    models = by(costs(store, ["model"]))
    assert models["big",] == Spent(Usage(30, 15), 3000, 0, 3, 0), "also of the one that failed"
    assert models["",] == Spent(tool_calls=4)
    assert set(by(costs(store, "agent,model"))) == {
        ("coder", "big"),
        ("coder", ""),
        ("critic", "small"),
        ("critic", ""),
    }
    assert [key for key, _ in costs(store, "agent").rows] == [("coder",), ("critic",)], (
        "the dearest first"
    )


def test_a_session_and_what_it_covers(store: Store) -> None:
    root = spend(Session("a", store=store))
    left, right = spend(root.fork("left")), spend(spend(root.fork("right")))
    other = spend(Session("elsewhere", store=store))
    merged = root.merge(left, right)
    for session in (root, left, right, other, merged, merged.rewind(2)):
        assert costs(store, session=session).total == session.budget.used
    assert merged.budget.used.model_calls == 4
    assert costs(store).total == merged.budget.used + other.budget.used


def test_by_time(store: Store) -> None:
    session = spend(Session("a", store=store))
    first = session.events[-1].time
    later = spend(session)
    days = by(costs(store, "day"))
    assert plus(list(days.values())) == later.budget.used and all(len(day) == 10 for (day,) in days)
    assert costs(store, since="1h").total == later.budget.used
    found = costs(store, until=_moment(first))
    assert (found.total, found.until) == (session.budget.used, first)
    assert costs(store, since=_moment(later.events[-1].time + 1)).total == Spent()
    assert (
        costs(store, "model", since=_moment(first + 1), session=later).total
        == later.budget.used - session.budget.used
    )


def _moment(micros: int) -> Any:
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


@pytest.mark.parametrize("name", ["users", "tag:", "tag", "user,weather"])
def test_unknown_names_are_refused(store: Store, name: str) -> None:
    with pytest.raises(
        InvalidValue, match="use user, project, agent, model, session, run, day or tag:NAME"
    ):
        costs(store, name)


def test_an_empty_store_cost_nothing(store: Store) -> None:
    found = costs(store, "user", since="7d")
    assert (found.by, found.rows, found.total) == (("user",), (), Spent())


@pytest.mark.parametrize("seed", range(12))
def test_every_sum_equals_the_ledger(store: Store, seed: int) -> None:
    """Forks, merges, crosswise too, rewinds: no event is counted twice, and none is missing."""
    chance = random.Random(seed)
    tips = [spend(Session("begin", user=f"u{seed % 3}", store=store))]
    for step in range(30):
        at = chance.randrange(len(tips))
        act = chance.random()
        if act < 0.4:
            tips[at] = spend(
                tips[at],
                agent=chance.choice("abc"),
                model=chance.choice(["m1", "m2"]),
                usage=Usage(chance.randrange(99), chance.randrange(99)),
                nano=chance.choice([None, 5, 700]),
                fails=chance.random() < 0.2,
            )
        elif act < 0.6:
            tips.append(spend(tips[at].fork(f"f{step}")))
        elif act < 0.75 and tips[at].seq > 3:
            tips[at] = tips[at].rewind(chance.randrange(1, tips[at].seq))
        elif act < 0.95 and len(tips) > 1:
            other = chance.choice([tip for tip in tips if tip.id != tips[at].id])
            with suppress(NoCommonBase):  # one of them was detached
                tips[at] = tips[at].merge(other)
        else:
            tips.append(spend(tips[at].detach()))
        count("the costs of a session equal its ledger", store)
        assert costs(store, session=tips[at]).total == tips[at].budget.used
    for name in ("user", "project", "tag:x", "agent", "model", "session", "day", "day,agent,model"):
        found = costs(store, name)
        assert plus([spent for _, spent in found.rows]) == found.total == costs(store).total
