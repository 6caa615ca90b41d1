"""The sessions of an evaluation: each has an id that follows from the store, the name of the
evaluation, the example and the number of the trial, so that a trial is begun once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from plait.errors import InvalidValue, LogExists
from plait.evals.dataset import EvalExample
from plait.event import Json
from plait.event import kinds as k
from plait.ids import LogId, derive_id, digest, short
from plait.journal.writer import direct_writer
from plait.session import Session
from plait.session.branching import recorded_durability
from plait.session.content import pack
from plait.session.ports import Act, Draft
from plait.store import Store

ACTOR = "service:eval"
_SCRATCH = "trial"  # never in a prompt, and not merged
_PLAN = "plan"


class TrialFacts(msgspec.Struct, frozen=True):
    """The example and the number of a trial, in its session. Models are not shown it."""

    evaluation: str
    example: str
    number: int  # from 1 on
    seed: int  # follows from the seed of the evaluation, the example and the number
    row: dict[str, Json]  # of the dataset


class EvalPlan(msgspec.Struct, frozen=True):
    """The plan of an evaluation, as its log has it."""

    workflow: str
    k: int
    seed: int
    scorers: tuple[str, ...]
    examples: tuple[tuple[str, str], ...]  # the id of each, and the digest of its row


def evaluation_log(store: LogId, name: str) -> LogId:
    return derive_id("plait/evaluation/1", store, name)


def trial_log(store: LogId, name: str, example: str, number: int) -> LogId:
    return derive_id("plait/trial/1", store, name, example, number)


def trial_of(session: Session) -> TrialFacts:
    """Return what a session knows of itself as a trial: its example, its number, its seed.

    Raises InvalidValue if it is no trial.
    """
    known = session.scratchpad.get(_SCRATCH)
    if known is None:
        why = f"{session.short} is no trial of an evaluation"
        raise InvalidValue("session", why, "pass a session that plait eval has opened")
    return msgspec.convert(known, TrialFacts)


def trial_seed(seed: int, example: str, number: int) -> int:
    """Return the seed of a trial; the name of the evaluation is not in it, so that two of one seed
    are equal.
    """
    parts = msgspec.json.encode([seed, example, number])
    return int(digest(b"plait/trial-seed/1", parts)[:8], 16)


def open_trial(
    store: Store, name: str, example: EvalExample, number: int, seed: int, budget: k.Budget | None
) -> Session:
    """Open the session of a trial, or the one that is there already."""
    log = trial_log(store.id, name, example.id, number)
    act = Act(ACTOR)
    tags = {"eval": name, "example": example.id, "trial": str(number)}
    durability = recorded_durability(None, store)
    opened = k.SessionOpened(
        title=f"{name}: {example.id} #{number}", tags=tags, budget=budget, durability=durability
    )
    parts, blobs = pack([cast("Any", example.input)], "input")
    facts = TrialFacts(name, example.id, number, trial_seed(seed, example.id, number), example.row)
    drafts = [
        Draft(opened, act),
        Draft(k.ScratchSet(_SCRATCH, _plain(facts)), act),
        Draft(k.MessageSaid("user", parts), act),
    ]
    with suppress(LogExists):  # an earlier process began it
        direct_writer().start(store, log, drafts, blobs=blobs)
    return Session.open(log, store=store)


# ── the plan ─────────────────────────────────────────────────────────────────────────────────


def read_plan(store: Store, name: str) -> EvalPlan | None:
    """Return the plan of an evaluation. None: there is no evaluation of this name."""
    log = evaluation_log(store.id, name)
    if log not in store.heads([log]):
        return None
    return msgspec.convert(Session.open(log, store=store).facts[_PLAN], EvalPlan)


def check_plan(before: EvalPlan, plan: EvalPlan, name: str) -> None:
    """Raise unless an evaluation of this plan goes on with one of the plan before: k may grow."""
    differing = [
        field
        for field in ("workflow", "seed", "scorers", "examples")
        if getattr(before, field) != getattr(plan, field)
    ]
    if differing:
        why = f"the evaluation {name!r} was begun with other {', '.join(differing)}"
        raise InvalidValue("name", why, "pass another name: --name NAME")
    if plan.k < before.k:
        why = f"the evaluation {name!r} has {before.k} trials of each example"
        raise InvalidValue("k", why, f"pass --k {before.k} or more, or another --name")


def write_plan(store: Store, name: str, plan: EvalPlan) -> None:
    """Record the plan of an evaluation before its first session. An equal one is there once."""
    log, act = evaluation_log(store.id, name), Act(ACTOR)
    body = k.FactRecorded(_PLAN, _plain(plan), "fact")
    opened = k.SessionOpened(
        title=f"evaluation {name}",
        tags={"evaluation": name},
        durability=recorded_durability(None, store),
    )
    with suppress(LogExists):
        direct_writer().start(store, log, [Draft(opened, act), Draft(body, act)])
        return
    before = read_plan(store, name)
    if before is not None:
        check_plan(before, plan, name)  # another process may have begun it just now
        if before != plan:
            session = Session.open(log, store=store)
            session.fact(_PLAN, _plain(plan), actor=ACTOR)


def _plain(value: msgspec.Struct) -> Json:
    """Return a value as an event has it: with lists, not tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def check_evaluation_name(name: str, scorers: Sequence[str]) -> None:
    """Raise for a name that cannot stand in rows and tags, and for two scorers of one name."""
    if not isinstance(name, str) or not name.strip() or len(name) > 60 or not name.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("name", f"{name!r:.80} is not a name", "pass 1 to 60 characters")
    twice = sorted({each for each in scorers if scorers.count(each) > 1})
    if twice:
        why = f"two scorers have the name {twice[0]}"
        raise InvalidValue("scorers", why, "rename one: a verdict is known by its name")
    if not scorers:
        step = "write def score_NAME(session) beside the workflow, or pass --scorer FILE.py:NAME"
        raise InvalidValue("scorers", "there is none", step)


def trial_name(session: Session) -> str:
    return f"{trial_of(session).example} #{trial_of(session).number} ({short(session.id)})"
