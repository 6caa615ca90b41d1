"""Call the program of a run in a new branch, with something changed: a what-if."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from plait.errors import InvalidValue, NothingToResume
from plait.event import Body, Event
from plait.event import kinds as k
from plait.event.kinds import Budget
from plait.ids import Digest, is_digest
from plait.journal.recorded_run import (
    RecordedRun,
    follow_recording,
    last_run,
    root_session,
    start_of,
)
from plait.journal.writer import direct_writer
from plait.program import check_workflow, find_program_call
from plait.runs.kept_hits import keep_hits
from plait.runs.overrides import check_overrides, describe_overrides, policies_for
from plait.runs.take_up import TakenRun, call_program
from plait.runtime.attendants import Watch
from plait.runtime.end import outside
from plait.runtime.listeners import OnEvent
from plait.runtime.policy import Approver
from plait.runtime.registry import open_run
from plait.runtime.settings import Answerer
from plait.runtime.spend import run_budget
from plait.runtime.start import draw_under, new_run
from plait.session import Session
from plait.session.content import contents, pack
from plait.session.ports import Act, Draft, store_at
from plait.session.revision import place_in
from plait.session.value import position_of
from plait.store import Store
from plait.store.epochs import EPOCH_KINDS
from plait.workflow import Workflow


def whatif(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    at: int | None = None,
    model: Any = None,
    instruction: Any = None,
    tools: Any = None,
    replace: Mapping[int | Event, Any] | None = None,
    effects: Literal["ask", "live"] = "ask",
    label: str | None = None,
    without: Collection[Digest] = (),
    budget: Budget | None = None,
    store: str | Path | Store | None = None,
    on_event: OnEvent | None = None,
    approver: Approver | None = None,
    answerer: Answerer | None = None,
    **kwargs: Any,
) -> Session:
    """Run the same program in a new branch: as recorded up to a seq, live after it, with something
    changed.

    `model=`, `instruction=` and `tools=` are for every agent, or by name: `{"coder": …}`. A name
    among the tools keeps the one that an agent has.
    `replace={seq: value}` puts other words into a message, a reply, a tool's result or a fact; of a
    recall it keeps the hits that are named. `without=` are memories that no recall of the branch
    returns any more.
    Effects beyond the workspace need consent, unless `effects="live"`. The branch draws on the
    session's budget, unless it is granted one of its own.
    """
    watch = Watch(on_event, approver, answerer)
    taken = branch_off(
        session,
        workflow,
        args,
        watch,
        at=at,
        model=model,
        instruction=instruction,
        tools=tools,
        replace=replace,
        effects=effects,
        label=label,
        without=without,
        budget=budget,
        store=store,
        **kwargs,
    )
    return call_program(*taken, watch)


def branch_off(
    session: Session | str,
    workflow: Workflow | None,
    args: tuple[Any, ...],
    watch: Watch,
    *,
    at: int | None = None,
    model: Any = None,
    instruction: Any = None,
    tools: Any = None,
    replace: Mapping[int | Event, Any] | None = None,
    effects: Literal["ask", "live"] = "ask",
    label: str | None = None,
    without: Collection[Digest] = (),
    budget: Budget | None = None,
    store: str | Path | Store | None = None,
    **kwargs: Any,
) -> TakenRun:
    """Begin the branch of a what-if, and return the call of its program that is due."""
    check_workflow(workflow)
    there = _check_root(
        outside(session if isinstance(session, Session) else Session.open(session, store=store))
    )
    edits, last = _check_edits(there, replace or {}, at)
    for memory in without:
        if not is_digest(memory):
            raise InvalidValue("without", f"{memory!r:.80} is no id of a memory", "pass hit.id")
    if effects not in ("ask", "live"):
        raise InvalidValue("effects", f"{effects!r} is not a way", "use 'ask' or 'live'")
    recorded = _find_source(there, edits, last)
    call = find_program_call(there, recorded, workflow, args, kwargs, verb="whatif")
    overrides = check_overrides(call.program, model, instruction, tools)
    restated, blobs = _restate_past(there, edits, last) if edits else ([], {})
    branch = there.fork(label, at=min(edits, default=last + 1) - 1)
    source = branch.lineage.parent
    assert source is not None
    branch = branch.budget.grant(budget) if budget is not None else branch
    body = k.RunBranched(
        k.Place(there.id, source.seq, source.head),
        recorded.workflow,
        {
            "at": last,
            "effects": effects,
            **describe_overrides(overrides),
            **({"replaced": sorted(edits)} if edits else {}),
            **({"without": sorted(without)} if without else {}),
        },
    )
    behalf = recorded.started.actor
    id = str(direct_writer().source(branch.store).fresh("run", branch.id, branch.seq))
    lock = store_at(branch.store).lock(id, branch.short)
    try:
        first = msgspec.structs.replace(position_of(branch), run=id)
        drafts = [Draft(body, Act(behalf, "program")), *restated]
        direct_writer().write(first, drafts, blobs=blobs)
        here = branch.reload()
        branched = last_run(here)
        assert branched is not None
        start = start_of(here, branched)
        run = new_run(id, start, watch, None, behalf=behalf)
        run.lock = lock
        run.journal.fence.hold(branched.epoch)
        follow_recording(run.journal, here, branched, start)
        if (own_budget := run_budget(here, run)) is not None:
            run.budgets.set_root(own_budget)
        run.settings.overrides = overrides
        run.settings.policies = policies_for(effects)
        run.settings.without = frozenset(without)
        draw_under(run)
        open_run(run)
    except BaseException:
        lock.release()
        raise
    return TakenRun(call, run, start)


# ── the place to branch off ──────────────────────────────────────────────────────────────────


def _check_root(session: Session) -> Session:
    """Raise for a branch of a run: its places are asked for in the session where the run began."""
    root = root_session(session)
    if root.id != session.id:
        step = f"ask it of {root.short}, and take its places"
        raise InvalidValue(
            "whatif", f"{session.short} is a branch of the run that began in {root.short}", step
        )
    return root


def _check_edits(
    session: Session, replace: Mapping[int | Event, Any], at: int | None
) -> tuple[dict[int, Any], int]:
    """Return the new values by seq, and the last seq that is not live."""
    edits = {_seq_of(session, place): value for place, value in replace.items()}
    last = (
        place_in(session.id, at, session.seq) if at is not None else max(edits, default=session.seq)
    )
    if edits and max(edits) > last:
        raise InvalidValue(
            "replace",
            f"event {max(edits)} comes after {last}, where it goes on live",
            "pass a later at=",
        )
    for seq in edits:
        if session.events[seq - 1].kind in EPOCH_KINDS:
            raise InvalidValue(
                "replace",
                f"event {seq} is about the run itself",
                "replace a message, a reply, a tool's result or a fact",
            )
    return edits, last


def _seq_of(session: Session, place: int | Event) -> int:
    if not isinstance(place, Event):
        return place_in(session.id, place, session.seq)
    if place not in session.events:
        raise InvalidValue(
            "replace",
            f"{place!r} is not an event of this session",
            "pass one of session.events, or its place",
        )
    return place.seq


def _find_source(session: Session, edits: Mapping[int, Any], last: int) -> RecordedRun:
    """Return the run to branch off: the one that had started last at this seq."""
    recorded = last_run(session.at(last))
    if edits and (recorded is None or min(edits) <= recorded.started.seq):
        anew = (
            "say it anew and run the program there:"
            f" workflow(session.fork(at={max(1, min(edits) - 1)}).say(…))"
        )
        raise InvalidValue("replace", f"event {min(edits)} was there before the run began", anew)
    if recorded is None:
        raise NothingToResume(
            session.short, f"no run had started at {last}", "pass a place within a run"
        )
    return recorded


# ── other words ──────────────────────────────────────────────────────────────────────────────

# their causes say which memory they are about
_ABOUT_MEMORIES = frozenset(
    kind.__name__
    for kind in (
        k.MemoryProposed,
        k.MemoryCommitted,
        k.MemoryQuarantined,
        k.MemoryRejected,
        k.MemorySupported,
        k.MemorySuperseded,
        k.MemoryRetracted,
        k.MemoryRestored,
        k.MemoryUsed,
    )
)


def _restate_past(
    session: Session, edits: Mapping[int, Any], last: int
) -> tuple[list[Draft], dict[Digest, bytes]]:
    """Return drafts that repeat the events from the first edit on, with other words in them."""
    drafts, blobs, repeated = list[Draft](), dict[Digest, bytes](), dict[Digest, int]()
    for event in store_at(session.store).read(session.id, min(edits), last):
        if event.kind in (k.Rewound.__name__, k.Merged.__name__):
            raise InvalidValue(
                "replace",
                f"event {event.seq} is a {event.kind}",
                "go on live before it: pass a smaller at=",
            )
        if event.kind in EPOCH_KINDS:
            continue
        body = event.body
        if event.seq in edits:
            body, more = _replace_words(session, event, edits[event.seq])
            blobs.update(more)
        header = event.header
        causes: tuple[Digest | int, ...] = (event.id,)
        if isinstance(body, k.MemoryRecalled):
            causes = (*(hit.memory for hit in body.hits), event.id)
        elif event.kind in _ABOUT_MEMORIES:
            causes = (*(repeated.get(cause, cause) for cause in header.causes), event.id)
        repeated[event.id] = len(drafts) + 1  # the first draft of the branch begins its run
        act = Act(header.actor, header.origin, header.behalf, header.call, causes)
        drafts.append(Draft(body, act))
    return drafts, blobs


def _replace_words(session: Session, event: Event, value: Any) -> tuple[Body, dict[Digest, bytes]]:
    """Return the body of an event with another value, and the blobs of that value."""
    body = event.body
    if isinstance(body, k.MemoryRecalled):
        return keep_hits(session, event, body, value), {}
    if isinstance(body, (k.ToolReturned, k.ToolFailed)):
        parts, blobs = pack(contents(value), "replace")
        return k.ToolReturned(parts, attempt=body.attempt), blobs
    if isinstance(body, k.FactRecorded):
        return msgspec.structs.replace(body, value=value), {}
    if isinstance(body, k.QuestionAnswered):
        return msgspec.structs.replace(body, answer=value), {}
    if isinstance(body, k.MessageSaid):
        parts, blobs = pack([value], "replace")
        return msgspec.structs.replace(body, parts=parts), blobs
    if isinstance(body, k.ModelReplied):
        parts, blobs = pack([value], "replace")
        return msgspec.structs.replace(body, parts=parts, calls=(), stop="end"), blobs
    raise InvalidValue(
        "replace",
        f"event {event.seq} is a {event.kind}",
        "replace a message, a reply, a tool's result, an answer, a fact or a recall",
    )
