"""Why a session runs where it does, or what it waits for, in words."""

from __future__ import annotations

from collections.abc import Sequence

from plait.cluster.choosing import Ability
from plait.cluster.places import explain_missing, place_labels
from plait.cluster.submitting import now_in
from plait.cluster.workers import WorkerNotice, live_workers, unfit_notices
from plait.event import kinds as k
from plait.ids import Digest, LogId
from plait.session.ask_rows import InboxRows
from plait.session.work_rows import BUDGET_FAILURE, GIVEN_UP, read_wishes
from plait.store import Row, Store

_STARTS = frozenset({k.RunStarted.__name__, k.RunSubmitted.__name__, k.RunResumed.__name__})


def explain_run(store: Store, log: LogId) -> str:
    """Return why the submitted run of a session runs where it does, or does not run."""
    rows = store.rows(
        InboxRows.name, "work", {"log": log}, order="number", descending=True, limit=1
    )
    if not rows:
        return _explain_end(store, log)
    row = rows[0]
    if str(row["run"]) not in store.free_runs([str(row["run"])]):
        is_taken = row["state"] in ("taken", "parked", "timed")
        return _explain_holder(store, log) if is_taken else "a process is taking it just now"
    return _EXPLAINED[str(row["state"])](store, row)


def _explain_holder(store: Store, log: LogId) -> str:
    claim = _last_claim(store, log)
    if claim is None:
        return "a process that is no worker executes it"
    place = {"affinity": "; this host had it before", "stolen": "; another host had it before"}
    waited = f", {claim.waited_us / 1e6:.3f} s after it could be taken" if claim.waited_us else ""
    labels = f" ({', '.join(claim.labels)})" if claim.labels else ""
    return (
        f"{claim.worker} on {claim.host}{labels} executes it: {claim.chosen}{waited}"
        f"{place.get(claim.place, '')}"
    )


def _explain_end(store: Store, log: LogId) -> str:
    runs = store.rows(InboxRows.name, "run", {"log": log}, order="number", descending=True, limit=1)
    if not runs:
        return "no run was started in it"
    if runs[0]["status"] == "open":
        return "its run was called, and not submitted: plait cluster adopt leaves it to workers"
    claim = _last_claim(store, log)
    by = f", executed by {claim.worker} on {claim.host}" if claim is not None else ""
    return f"its run is over: {runs[0]['status']}{by}"


def _last_claim(store: Store, log: LogId) -> k.Claim | None:
    for event in store.read(log, kinds=_STARTS, reverse=True):
        if isinstance(event.body, k.RunResumed) and not event.body.branch:
            return event.body.claim
    return None


def _explain_ready(store: Store, row: Row) -> str:
    """Say which workers there are, and why none of them has taken it yet."""
    wishes = read_wishes(str(row["wishes"]))
    workers = live_workers(store)
    words = "ready; " if row["state"] == "queued" else "its worker is gone; "
    if not workers:
        return f"{words}no worker serves this store: start one with `plait worker MODULE`"
    program = str(row["program"])
    have = [worker for worker in workers if program in worker.programs]
    if not have:
        return f"{words}{_count(workers)} there, none has {program}"
    fit = [worker for worker in have if _ability(worker).can_serve(program, wishes.need, "")]
    if not fit:
        placed = {each for w in have for each in _ability(w).places}
        missing_place = explain_missing({*wishes.need} - placed, [w.rungs for w in have])
        if missing_place:
            return words + missing_place.format(workers=_count(have))
        need = ", ".join(wishes.need)
        all_labels = {*placed, *[each for w in have for each in w.labels]}
        missing = ", ".join(sorted(set(wishes.need) - all_labels))
        none = f"none has {missing}" if missing else "none has it all"
        return f"{words}needs {need}; {_count(have)} there with its program, {none}"
    code = wishes.code if wishes.same_code else ""
    able = [w for w in fit if _ability(w).can_serve(program, wishes.need, code)]
    if not able:
        return f"{words}held to code {code}; {_count(fit)} there, with other code"
    unfit = {notice.code: notice for notice in unfit_notices(store, str(row["run"]))}
    fresh = [worker for worker in able if worker.code not in unfit]
    if not fresh:
        why = next(iter(unfit.values())).why
        step = "see `plait check`, and accept it with `plait resume S --accept`"
        return f"{words}the code of {_count(able)} does not fit its record: {why}; {step}"
    idle = [worker for worker in fresh if len(worker.runs) < worker.slots and not worker.draining]
    if not idle:
        return f"{words}{_count(fresh)} there that can take it, every slot is used"
    return f"{words}{_count(idle)} there that can take it: it is next, or others are before it"


def _ability(worker: WorkerNotice) -> Ability:
    labels, places = frozenset(worker.labels), place_labels(worker.host, worker.rungs)
    return Ability(frozenset(worker.programs), labels, worker.code, worker.host, places)


def _count(workers: Sequence[WorkerNotice]) -> str:
    return f"{len(workers)} worker{'s are' if len(workers) != 1 else ' is'}"


def _explain_timed(store: Store, row: Row) -> str:
    left_s = (int(str(row["due"])) - now_in(store)) / 1e6
    if left_s <= 0:
        return _explain_ready(store, row)
    why = f"it failed ({row['failure']}), and is tried again" if row["failure"] else "it goes on"
    return f"{_limit_waited_for(store, row)}{why} in {left_s:.1f} s"


def _limit_waited_for(store: Store, row: Row) -> str:
    """Name the model whose limits a run waits for. "": it waits for something else."""
    asks = store.rows(InboxRows.name, "ask", {"run": row["run"], "over": 0}, limit=20)
    for ask in asks:
        body = store.event(Digest(str(ask["id"]))).body if ask["kind"] == "timer" else None
        if isinstance(body, k.TimerSet) and body.limit:
            return f"all who share the limits of {body.limit} have asked it so much; "
    return ""


def _explain_parked(store: Store, row: Row) -> str:
    if row["failure"] == BUDGET_FAILURE:
        return "its budget is used up: grant more with `plait grant`"
    asks = store.rows(InboxRows.name, "ask", {"run": row["run"], "over": 0}, limit=20)
    kinds = " and ".join(sorted({_WAITS[str(ask["kind"])] for ask in asks})) or "an answer"
    return f"it waits for {kinds}: see `plait inbox`; no process is held meanwhile"


_WAITS = {
    "approval": "approval",
    "question": "an answer",
    "unknown": "a person's word whether a call happened",
    "timer": "a time or a signal",
    "verdict": "a verdict",
}


def _explain_failed(store: Store, row: Row) -> str:
    if row["failure"] == GIVEN_UP:
        return (
            "its workers died again and again, and it made no step in between: it was given up;"
            " take it up with `plait resume`"
        )
    return (
        f"it failed {row['failures']} time{'s' if row['failures'] != 1 else ''}"
        f" ({row['failure']}), and is not tried again: take it up with `plait resume`"
    )


def _explain_paused(store: Store, row: Row) -> str:
    return "its session is paused: plait unpause"


_EXPLAINED = {
    "queued": _explain_ready,
    "taken": _explain_ready,
    "timed": _explain_timed,
    "parked": _explain_parked,
    "failed": _explain_failed,
    "paused": _explain_paused,
}
