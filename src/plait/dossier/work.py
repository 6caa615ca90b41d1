"""Workers and their means: runs, tools, models, the parts of the workflow, and their amounts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from plait.dossier.reading import FamilyReading, ref_of
from plait.dossier.shapes import (
    CallPath,
    DossierRun,
    TakenUp,
    UsageShape,
    UsedModel,
    UsedTool,
)
from plait.errors import PlaitError
from plait.event.kinds import CallStarted, ModelReplied
from plait.ids import LogId
from plait.outline.shapes import SeqRef, SpentShape, StepDetail
from plait.outline.spent import SpentCount, count_of
from plait.outline.texts import body_of
from plait.server.shapes import CostRow
from plait.session.about import last_message
from plait.session.ledger import costs
from plait.session.state import Spent

_STARTED, _REPLIED = CallStarted.__name__, ModelReplied.__name__


def runs(reading: FamilyReading) -> Iterator[DossierRun]:
    """Yield the runs of the session and of its branches, with their environments."""
    for detail in reading.details:
        if detail.step.type != "run" or "workflow" not in detail.fields:
            continue
        yield _run(reading, detail)


def _run(reading: FamilyReading, detail: StepDetail) -> DossierRun:
    fields: dict[str, Any] = detail.fields
    of_log = reading.by_log[detail.step.log]
    later = of_log[of_log.index(detail) + 1 :]
    until = next((at for at, each in enumerate(later) if each.step.type == "run"), len(later))
    mine = later[:until]
    ended = [each.step for each in mine if each.step.type == "ended" and each.step.state != "open"]
    run = reading.store.event(_event_id(reading, detail)).header.run or ""
    end = ended[-1] if ended else None
    status = end.verb.removeprefix("run ") if end is not None else reading.session.status
    return DossierRun(
        at=ref_of(detail),
        id=run,
        workflow=str(fields["workflow"]),
        version=str(fields.get("version", "")),
        revision=str(fields.get("revision", "")),
        arguments=fields.get("arguments"),
        environment=fields.get("environment"),
        status=status,
        why=": ".join(filter(None, [end.subject, end.says])) if end is not None else "",
        began=detail.step.time,
        ended=end.time if end is not None else None,
        taken_up=tuple(
            [
                TakenUp(
                    ref_of(each),
                    each.step.time,
                    each.step.actor,
                    "kill" in each.step.marks,
                    " ".join(filter(None, [each.step.verb, each.step.subject, each.step.says])),
                )
                for each in mine
                if each.step.type == "taken"
            ]
        ),
    )


def _event_id(reading: FamilyReading, detail: StepDetail) -> Any:
    first = detail.step.first
    return next(reading.store.read(detail.step.log, first, first)).id


# ── tools and models ─────────────────────────────────────────────────────────────────────────


def used_tools(reading: FamilyReading) -> list[UsedTool]:
    """Return each tool that was called, in each of its versions and classes."""
    found = dict[tuple[str, str, str, str], list[StepDetail]]()
    for detail in reading.details:
        if detail.step.type == "tool" and detail.effect:
            source = str(detail.fields.get("source", ""))
            key = (detail.step.verb, detail.version, detail.effect, source)
            found.setdefault(key, []).append(detail)
    return [
        UsedTool(
            *key,
            calls=len(calls),
            failed=sum([each.step.state == "failed" for each in calls]),
            placements=tuple(dict.fromkeys([each.placement_text for each in calls])),
            first=ref_of(calls[0]),
        )
        for key, calls in sorted(found.items())
    ]


class _ModelSum:
    def __init__(self, first: SeqRef) -> None:
        self.spent, self.first = SpentCount(), first
        self.prices = dict[str, None]()


def used_models(reading: FamilyReading) -> list[UsedModel]:
    """Return each model that answered, with what it used, and the price lists of its costs."""
    found = dict[str, _ModelSum]()
    for log, place, tip in _logs(reading):
        for event in reading.store.read(log, place + 1, tip, kinds={_REPLIED}):
            body = body_of(event)
            if not isinstance(body, ModelReplied):
                continue
            each = found.setdefault(body.model, _ModelSum(SeqRef(log, event.seq)))
            price = body.price
            each.spent.add_usage(body.usage, price.cost_usd_nano if price is not None else None)
            each.spent.model_calls += 1
            if price is not None:
                each.prices[price.source] = None
    return [
        UsedModel(model, each.spent.shape(), tuple(each.prices), each.first)
        for model, each in sorted(found.items())
    ]


def _logs(reading: FamilyReading) -> list[tuple[LogId, int, int]]:
    branches = reading.family.branches if reading.family is not None else ()
    return [(branch.log, branch.place, branch.tip) for branch in branches]


# ── the workflow as a tree ───────────────────────────────────────────────────────────────────


class _PathSum:
    def __init__(self, body: CallStarted, first: SeqRef) -> None:
        self.body, self.first = body, first
        self.calls, self.spent = 0, SpentCount()


def call_paths(reading: FamilyReading) -> list[CallPath]:
    """Return the parts of the workflow as a tree, in the order of their first calls."""
    found = dict[str, _PathSum]()
    for log, place, tip in _logs(reading):
        for event in reading.store.read(log, place + 1, tip, kinds={_STARTED}):
            body = body_of(event)
            if isinstance(body, CallStarted):
                each = found.setdefault(body.path, _PathSum(body, SeqRef(log, event.seq)))
                each.calls += 1
    for detail in reading.details:
        owner = _nearest(found, detail.step.path)
        if owner is None:
            continue
        if detail.usage is not None:
            _add_spent(owner.spent, detail.usage)
        if detail.step.type == "tool" and detail.effect:
            owner.spent.tool_calls += 1
    return [
        CallPath(
            path=path,
            depth=_depth(found, path),
            name=path.rpartition("/")[2],
            workflow=each.body.workflow,
            version=each.body.version,
            purpose=each.body.purpose or "",
            agent=each.body.agent or "",
            calls=each.calls,
            spent=each.spent.shape(),
            first=each.first,
        )
        for path, each in _as_tree(found)
    ]


def _nearest(found: dict[str, _PathSum], path: str) -> _PathSum | None:
    while path:
        if path in found:
            return found[path]
        path = path.rpartition("/")[0]
    return None


def _add_spent(total: SpentCount, spent: SpentShape) -> None:
    total.input_tokens += spent.input_tokens
    total.output_tokens += spent.output_tokens
    total.cached_tokens += spent.cached_tokens
    total.reasoning_tokens += spent.reasoning_tokens
    total.estimated_tokens += spent.estimated_tokens
    total.cost_usd_nano += round((spent.cost_usd or 0.0) * 1e9)
    total.unpriced += spent.unpriced
    total.model_calls += spent.model_calls


def _depth(found: Iterable[str], path: str) -> int:
    known, depth = set(found), 0
    while path := path.rpartition("/")[0]:
        depth += path in known
    return depth


def _as_tree(found: dict[str, _PathSum]) -> Iterator[tuple[str, _PathSum]]:
    """Yield paths, each after the one above it, siblings in the order of their first calls."""
    order = {path: at for at, path in enumerate(found)}

    def key(path: str) -> list[int]:
        parts = path.split("/")
        above = ["/".join(parts[: at + 1]) for at in range(len(parts))]
        return [order[each] for each in above if each in order]

    for path in sorted(found, key=key):
        yield path, found[path]


# ── amounts ──────────────────────────────────────────────────────────────────────────────────


def usage(reading: FamilyReading) -> UsageShape:
    """Return the amounts that the session spent, with the branches of its runs."""
    found = costs(reading.store, "model,agent,session", session=reading.session)
    budget: Any = reading.session.budget
    return UsageShape(
        total=count_of(found.total).shape(),
        unmerged=count_of(found.not_merged or Spent()).shape(),
        by_model=_rows("model", 0, found.rows),
        by_agent=_rows("agent", 1, found.rows),
        by_session=_rows("session", 2, found.rows),
        budget=_limits(budget.limits),
        left=_limits(budget.left_now),
    )


def _rows(name: str, at: int, rows: Iterable[tuple[tuple[str, ...], Spent]]) -> tuple[CostRow, ...]:
    sums = dict[str, SpentCount]()
    for key, spent in rows:
        sums.setdefault(key[at], SpentCount()).add(count_of(spent))
    order = sorted(sums.items(), key=lambda row: (-row[1].cost_usd_nano, -_tokens(row[1]), row[0]))
    return tuple([CostRow({name: key or None}, count.shape()) for key, count in order])


def _tokens(count: SpentCount) -> int:
    return count.input_tokens + count.output_tokens


def _limits(limits: Any) -> Any:
    if limits is None:
        return None
    return {name: getattr(limits, name) for name in limits.__struct_fields__}


def last_answer(reading: FamilyReading) -> str:
    """Return the last words, if a model or the program said them; "": there are none."""
    try:
        message = last_message(reading.session)
    except PlaitError:
        return ""
    return message.text if message is not None and message.role == "assistant" else ""
