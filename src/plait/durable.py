"""Runs taken up again: resume, replay, what-if.

All three call the same `forward` from the value at which its run started, and answer what it asks
for from the record. They differ in what lies beyond: `resume` goes on live, `replay` has nothing
beyond, `whatif` goes on live in a branch, with something changed.
"""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path as File
from typing import Any, Literal, NamedTuple, cast

import msgspec

from plait.errors import (
    InvalidValue,
    NeedsWorkflow,
    NothingToResume,
    PlaitError,
    ReplayDiverged,
    RunHeld,
    StaleEpoch,
)
from plait.event import Body, Event
from plait.event import kinds as k
from plait.event.kinds import Budget
from plait.ids import Digest, LogId, short
from plait.inside import Stop
from plait.journal.cursor import Cursor, noted_in, steps_of
from plait.journal.recording import Recording
from plait.journal.stops import Halted, Parked
from plait.journal.writer import direct_writer
from plait.model import find

# where programs are named, here is where they are looked for
from plait.program import load as load
from plait.program import recorded_program
from plait.runtime.appends import append_around_run
from plait.runtime.attendants import Answerer, Watch
from plait.runtime.drivers.blocking import Waiter
from plait.runtime.end import let_go, outside
from plait.runtime.listeners import OnEvent
from plait.runtime.policy import Approver, Ask, Policy
from plait.runtime.registry import is_going_on, open_run
from plait.runtime.run import Run
from plait.runtime.settings import Overrides
from plait.runtime.spend import held_seconds_of, run_budget
from plait.runtime.start import draw_under, new_run
from plait.runtime.waits import Wait
from plait.secrets import stand_ins
from plait.session import Session
from plait.session.content import contents, pack
from plait.session.inbox import inbox_events
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.revision import place_in
from plait.session.session import session_at
from plait.session.value import counted_logs, position_of
from plait.store import Store
from plait.store.epochs import TURNS
from plait.tool import as_tool
from plait.workflow import Workflow, call_again, original


class Started(NamedTuple):
    """A run as its log tells of it."""

    event: Event  # the one it started with
    last: Event  # the last one about it: how it stands
    times: int  # how often it was taken up again
    epoch: int  # of its log, then: whoever takes it rests on that

    @property
    def id(self) -> str:
        return self.event.header.run or self.event.id

    @property
    def workflow(self) -> str:
        body = self.event.body
        assert isinstance(body, (k.RunStarted, k.RunBranched))
        return body.workflow

    @property
    def source(self) -> k.Place | None:
        """Where it was branched off another run; None: it was not."""
        body = self.event.body
        return body.source if isinstance(body, k.RunBranched) else None


# ── resume ───────────────────────────────────────────────────────────────────────────────────


def resume(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    store: str | File | Store | None = None,
    on_event: OnEvent | None = None,
    approver: Approver | None = None,
    answerer: Answerer | None = None,
    **kwargs: Any,
) -> Session:
    """Take up the run of a session that did not come to its end: after a crash, a failure, a pause,
    or a wait for somebody.

    The program is found by what the run says of itself, or passed, with what its `forward` takes
    besides the session. Effects on record are not repeated.
    """
    watch = Watch(on_event, approver, answerer)
    return _resume(_opened(session, store), workflow, args, kwargs, watch, None)


def _resume(
    session: Session,
    workflow: Workflow | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    watch: Watch,
    waiter: Waiter | None,
    on_start: Callable[[Run], None] | None = None,  # told of the run before it writes anything
) -> Session:
    session = _root(outside(session).reload())
    started = _last_run(session)
    if started is None:
        raise NothingToResume(session.short, "no run was ever started in it")
    if started.last.kind == k.RunFinished.__name__:
        return _unpaused(session)
    _check_program(workflow)
    ended = started.last.body
    if isinstance(ended, k.RunCancelled) and ended.by:
        raise NothingToResume(
            session.short, f"{ended.by} cancelled its run", "start another: workflow(session)"
        )
    program = workflow or _found(session, _beginning(session, started))
    given, named = _given(session, started, program, args, kwargs)
    if is_going_on(started.id):
        raise RunHeld(session.short, started.id, f"this process, {os.getpid()}")
    lock = store_at(session.store).lock(started.id, session.short)
    try:
        run, at = _take_up(_unpaused(session), started, watch, waiter, on_start)
        run.lock = lock
        run.lock = lock
    # it is not as it was when we looked: another process took it first, or ended it
    except StaleEpoch:
        lock.release()
        now = _last_run(session.reload())
        if (
            now is not None
            and now.id == started.id
            and isinstance(taken := now.last.body, k.RunResumed)
        ):
            raise RunHeld(session.short, started.id, taken.holder) from None
        return _resume(session, workflow, args, kwargs, watch, waiter, on_start)
    except BaseException:
        lock.release()
        raise
    return _called(program, run, at, given, named, watch)


def _called(
    program: Workflow,
    run: Run,
    at: Session,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    watch: Watch,
) -> Session:
    try:
        return call_again(program, run, at, args, kwargs, watch)
    finally:
        if not run.closed:  # it never came to its first call
            let_go(run)


def _take_up(
    session: Session,
    started: Started,
    watch: Watch,
    waiter: Waiter | None,
    on_start: Callable[[Run], None] | None = None,
) -> tuple[Run, Session]:
    """Say in the run's logs that it has a new holder, and read what they have on record.

    The root comes first. From that commit on nothing of the old holder's is written, in any log,
    nor is a branch begun by it, so the branches that are found afterwards are all there are.
    """
    store, id = store_at(session.store), started.id
    at = _start_of(session, started)
    run = new_run(id, at, watch, waiter, behalf=started.event.actor)
    run.holder = f"{socket.gethostname()}/{os.getpid()}/{started.times + 1}"
    if on_start is not None:
        on_start(run)
    run.journal.fence.hold(started.epoch)
    _say_resumed(run, store, session.id, started.times + 1)
    run.journal.fence.hold(started.epoch + 1)
    told = set[LogId]()
    while new := [log for log in _branches(store, session, id) if log not in told]:
        for log in new:
            _say_resumed(run, store, log, started.times + 1, branch=True)
        told.update(new)
    run.journal.recording = _record(session.reload(), started, at)
    body = started.last.body
    if isinstance(body, k.RunFailed):
        run.journal.recording.reopened = frozenset(started.last.header.causes)
    run.resumed_at = max((event.seq for event in inbox_events(store, session.id)), default=0)
    _apply_overrides(run, started)
    if session.budget.limits is not None:  # what was spent of it is only added up if there is one
        pool = run_budget(session, run, held_seconds_of(session, started.event))
        assert pool is not None
        run.budgets.set_root(pool)
    draw_under(run)
    run.journal.tips.move(position_of(at))
    open_run(run)
    return run, at


def _record(
    session: Session, started: Started, at: Session, *, strict: bool = False, open: bool = True
) -> Recording:
    """What the log of a run has on record, up to where the session stands; before it, what it was
    branched off.
    """
    store, source = store_at(session.store), started.source
    before, logs = (
        (_prefix(store, source)) if source is not None else (list[Event](), dict[LogId, int]())
    )
    merged = (
        counted_logs(session_at(Position(session.store, source.log, source.seq, source.head)))
        if source is not None
        else None
    )
    record = Recording(started.id, session.id, strict=strict, open=open, merged=merged)
    events = list(store.read(session.id, started.event.seq + 1, session.seq))
    if any(_goes_before(event, started) for event in events if event.kind == k.Rewound.__name__):
        why = f"it was rewound to before run {started.id[:13]} began"
        raise NothingToResume(
            session.short, why, "end that run: session.inbox.cancel(), or go on in a fork"
        )
    steps = steps_of(started.id, events)
    record.before = tuple(dict.fromkeys(step.header.run or "" for step in before))
    loose = len(before)
    if (
        source is not None
        and (restated := _restated_steps(store, started, source, steps)) is not None
    ):
        steps, again = restated
        record.restated, loose = (
            started.event.seq + again,
            loose + sum(step.seq <= started.event.seq + again for step in steps),
        )
    tip = Position(session.store, session.id, session.seq, session.head, started.id)
    path = Cursor(
        session.id,
        [*before, *steps],
        position_of(at),
        tip,
        loose=loose,
        noted=noted_in(started.id, events),
    )
    record.keep(path, (session.id, session.seq), *logs.items())
    return record


def _restated_steps(
    store: Store, started: Started, source: k.Place, steps: list[Event]
) -> tuple[list[Event], int] | None:
    """Steps without what others had said in the past that a branch repeats, and how many events
    that is. None: it repeats nothing.
    """
    said: Any = getattr(started.event.body, "overrides", None) or {}
    if not said.get("replaced"):
        return None
    was = [
        event
        for event in store.read(source.log, source.seq + 1, said["at"])
        if event.kind not in TURNS
    ]
    above = _last_run(
        session_at(Position(store.address, source.log, said["at"], store.event(was[-1].id).id))
    )
    others = {
        started.event.seq + 1 + at
        for at, event in enumerate(was)
        if above is None or event.header.run != above.id
    }
    return [step for step in steps if step.seq not in others], len(was)


def _goes_before(event: Event, started: Started) -> bool:
    body = event.body
    return (
        event.header.run != started.id
        and isinstance(body, k.Rewound)
        and body.to < started.event.seq
    )


def _prefix(store: Store, place: k.Place) -> tuple[list[Event], dict[LogId, int]]:
    """The steps of the run that another one was branched off, up to there, and where each log of
    them ended.
    """
    source = session_at(Position(store.address, place.log, place.seq, place.head))
    started = _last_run(source)
    if started is None:
        return [], {}
    before, logs = (
        _prefix(store, started.source)
        if started.source is not None
        else (list[Event](), dict[LogId, int]())
    )
    events = list(store.read(place.log, started.event.seq + 1, place.seq))
    # its end is not the branch's
    steps = [step for step in steps_of(started.id, events) if step.kind not in TURNS]
    return [*before, *steps], {**logs, place.log: place.seq}


def _start_of(session: Session, started: Started) -> Session:
    """The value at which the program started: of a run that was branched off, in the lineage of the
    branch.
    """
    event = _beginning(session, started).event
    return session_at(Position(session.store, session.id, event.seq, event.id, started.id))


def _beginning(session: Session, started: Started) -> Started:
    """The run that a program was first called in."""
    while (place := started.source) is not None:
        above = _last_run(session_at(Position(session.store, place.log, place.seq, place.head)))
        if above is None:
            break
        started = above
    return started


def _say_resumed(run: Run, store: Store, log: LogId, times: int, *, branch: bool = False) -> None:
    """Say that the run has a new holder; said in its root, the old one can write no more."""
    drafts = [Draft(k.RunResumed(run.holder, times, branch), Act(run.taker, "program"))]
    end = store.log(log)
    if run.journal.on_write is not None:
        run.journal.on_write("before", drafts)
    try:
        append_around_run(
            Position(store.address, log, end.tip, end.head, run.id),
            drafts,
            run.journal.fence.fences_in(store.address),
        )
    except StaleEpoch as error:
        if error.log != run.root:  # the run whose code resumes this one is lost
            raise run.journal.fence.halt_lost(error) from None
        raise
    if run.journal.on_write is not None:
        run.journal.on_write("after", drafts)


def _branches(store: Store, session: Session, run: str) -> Iterator[LogId]:
    """Branches of a run that are not merged yet, and theirs."""
    covers = counted_logs(session)
    waiting = [session.id]
    while waiting:
        for row in store.rows("session", "session", {"parent": waiting.pop()}, limit=2**31):
            log = store.log(LogId(str(row["log"])))
            first = next(store.read(log.id, log.place + 1, log.place + 1))
            if first.header.run == run:
                waiting.append(log.id)
                if covers.get(log.id, 0) < log.tip:
                    yield log.id


def _unpaused(session: Session) -> Session:
    """Whoever resumes a session that was paused means it to go on."""
    return outside(session).unpause(reason="resumed") if session.status == "paused" else session


# ── replay ───────────────────────────────────────────────────────────────────────────────────


class NoExecutor:
    """Nobody runs anything here."""

    def wait(self, op: Wait) -> Any:
        raise AssertionError(
            f"a replay came to {type(op).__name__}: nothing may be executed in one"
        )

    def clock(self) -> int:
        return 0


def replay(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    store: str | File | Store | None = None,
    **kwargs: Any,
) -> Session:
    """Go through the last run of a session by its record alone: nothing is executed, nothing is
    written.

    Returns the session where the run ended, or as far as it came. If the program goes another way
    than the record: ReplayDiverged.
    """
    _check_program(workflow)
    there = outside(_opened(session, store))
    started = _last_run(there)
    if started is None:
        raise NothingToResume(there.short, "no run was ever started in it")
    if is_going_on(started.id):
        raise RunHeld(there.short, started.id, f"this process, {os.getpid()}")
    program = workflow or _found(there, _beginning(there, started))
    given, named = _given(there, started, program, args, kwargs, live=False)
    at = _start_of(there, started)
    run = new_run(started.id, at, Watch(), NoExecutor(), behalf=started.event.actor)
    ended = started.last.kind in (
        k.RunFinished.__name__,
        k.RunFailed.__name__,
        k.RunCancelled.__name__,
    )
    run.journal.recording = _record(there, started, at, strict=True, open=not ended)
    run.journal.recording.finished = started.last.kind == k.RunFinished.__name__
    _apply_overrides(run, started)
    run.journal.tips.move(position_of(at))
    open_run(run)
    try:
        return call_again(program, run, at, given, named, Watch())
    except ReplayDiverged:
        raise
    except (Exception, Stop) as error:
        if isinstance(error, Halted) and error.error is not None:
            raise error.error from None
        if (
            isinstance(error, (Halted, Parked))
            and ended
            and run.journal.recording.ends_here(run.root)
        ):
            return outside(
                session_at(Position(there.store, there.id, started.last.seq, started.last.id))
            )
        if ended and run.journal.tip(run.root).head != started.last.id:
            raise
        return outside(session_at(run.journal.tip(run.root)))
    finally:
        let_go(run)


# ── what if ──────────────────────────────────────────────────────────────────────────────────

OUTWARD: tuple[k.EffectClass, ...] = ("idempotent", "probeable", "compensatable", "at_most_once")


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
    budget: Budget | None = None,
    store: str | File | Store | None = None,
    on_event: OnEvent | None = None,
    approver: Approver | None = None,
    answerer: Answerer | None = None,
    **kwargs: Any,
) -> Session:
    """The same program, as recorded up to a place and live after it, in a new branch, with
    something changed.

    `model=`, `instruction=` and `tools=` are for every agent, or by name: `{"coder": …}`.
    `replace={place: value}` puts other words into a message, a reply, a tool's result or a fact.
    What reaches beyond the workspace needs consent, unless `effects="live"`. It draws on the
    session's budget, unless it is granted one of its own.
    """
    watch = Watch(on_event, approver, answerer)
    _check_program(workflow)
    named_one = outside(_opened(session, store))
    there = _root(named_one)
    if there.id != named_one.id:
        step = f"ask it of {there.short}, and take its places"
        raise InvalidValue(
            "whatif", f"{named_one.short} is a branch of the run that began in {there.short}", step
        )
    edits = {_place(there, place): value for place, value in (replace or {}).items()}
    last = place_in(there.id, at, there.seq) if at is not None else max(edits, default=there.seq)
    if edits and max(edits) > last:
        raise InvalidValue(
            "replace",
            f"event {max(edits)} comes after {last}, where it goes on live",
            "pass a later at=",
        )
    for place in edits:
        if there.events[place - 1].kind in TURNS:
            raise InvalidValue(
                "replace",
                f"event {place} is about the run itself",
                "replace a message, a reply, a tool's result or a fact",
            )
    if effects not in ("ask", "live"):
        raise InvalidValue("effects", f"{effects!r} is not a way", "use 'ask' or 'live'")
    started = _last_run(there.at(last))
    if edits and (started is None or min(edits) <= started.event.seq):
        anew = (
            "say it anew and run the program there:"
            f" workflow(session.fork(at={max(1, min(edits) - 1)}).say(…))"
        )
        raise InvalidValue("replace", f"event {min(edits)} was there before the run began", anew)
    if started is None:
        raise NothingToResume(
            there.short, f"no run had started at {last}", "pass a place within a run"
        )
    program = workflow or _found(there, _beginning(there, started))
    given, named = _given(there, started, program, args, kwargs)
    for each in (model, instruction, tools):
        _check_names(program, each)
    over = Overrides(_models(model), instruction, _tools(tools))
    restated = _restated(there, min(edits), last, edits) if edits else []
    branch = there.fork(label, at=min(edits, default=last + 1) - 1)
    branch = branch.budget.grant(budget) if budget is not None else branch
    body = k.RunBranched(
        (
            k.Place(there.id, branch.lineage.parent.seq, branch.lineage.parent.head)
            if branch.lineage.parent
            else k.Place(there.id, last, there.at(last).head)
        ),
        started.workflow,
        {"at": last, "effects": effects, **_described(over.model, instruction, tools, edits)},
    )
    id = str(direct_writer().source(branch.store).fresh("run", branch.id, branch.seq))
    lock = store_at(branch.store).lock(id, branch.short)
    try:
        behalf = started.event.actor
        spot = msgspec.structs.replace(position_of(branch), run=id)
        drafts = [Draft(body, Act(behalf, "program")), *(draft for draft, _ in restated)]
        blobs = {name: content for _, more in restated for name, content in more.items()}
        direct_writer().write(spot, drafts, blobs=blobs)
        here = branch.reload()
        mine = _last_run(here)
        assert mine is not None
        start = _start_of(here, mine)
        run = new_run(id, start, watch, None, behalf=behalf)
        run.lock = lock
        run.journal.fence.hold(mine.epoch)
        run.journal.recording = _record(here, mine, start)
        if (pool := run_budget(here, run)) is not None:
            run.budgets.set_root(pool)
        run.settings.overrides = over
        run.settings.policies = (
            (Policy(Ask(effect=OUTWARD, name="what-if: it reaches beyond the workspace")),)
            if effects == "ask"
            else ()
        )
        draw_under(run)
        run.journal.tips.move(position_of(start))
        open_run(run)
    except BaseException:
        lock.release()
        raise
    return _called(program, run, start, given, named, watch)


def _place(session: Session, place: int | Event) -> int:
    if isinstance(place, Event):
        if place not in session.events:
            raise InvalidValue(
                "replace",
                f"{place!r} is not an event of this session",
                "pass one of session.events, or its place",
            )
        return place.seq
    return place_in(session.id, place, session.seq)


def _models(model: Any) -> Any:
    if isinstance(model, Mapping):
        return {name: _models(each) for name, each in cast("Mapping[str, Any]", model).items()}
    if (
        model is not None
        and not isinstance(model, str)
        and not callable(getattr(model, "ask", None))
    ):
        raise InvalidValue(
            "model", f"a {type(model).__name__} is not a model", "pass its name, or a model"
        )
    return find(model) if isinstance(model, str) else model


class _Named(NamedTuple):
    """A model of which only the name is needed: nobody asks it anything."""

    name: str


def _stand_in(model: Any) -> Any:
    if isinstance(model, Mapping):
        return {name: _stand_in(each) for name, each in cast("Mapping[str, Any]", model).items()}
    return _Named(model) if model is not None else None


def _tools(tools: Any) -> Any:
    if tools is None:
        return None
    if isinstance(tools, Mapping):
        return {name: _tools(each) for name, each in cast("Mapping[str, Any]", tools).items()}
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InvalidValue(
            "tools", f"a {type(tools).__name__} is not a list of tools", "pass tools=[…]"
        )
    return [as_tool(tool) for tool in cast("Iterable[Any]", tools)]


def _described(
    model: Any, instruction: Any, tools: Any, edits: Mapping[int, Any]
) -> dict[str, Any]:
    """What is otherwise, as far as a record can tell."""

    def named(given: Any) -> Any:
        if isinstance(given, Mapping):
            return {name: named(each) for name, each in cast("Mapping[str, Any]", given).items()}
        if isinstance(given, (list, tuple)):
            return [as_tool(each).name for each in cast("Sequence[Any]", given)]
        return (
            given
            if isinstance(given, (str, type(None)))
            else getattr(given, "name", type(given).__name__)
        )

    found = {
        "model": named(model),
        "instruction": named(instruction),
        "tools": named(tools),
        "replaced": sorted(edits) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _apply_overrides(run: Run, started: Started) -> None:
    """What a run that was branched off does otherwise, when it is taken up again, as far as that is
    on record.
    """
    body = started.event.body
    if not isinstance(body, k.RunBranched):
        return
    said: Any = body.overrides or {}
    if said.get("tools"):
        raise NeedsWorkflow(
            short(run.root),
            started.workflow,
            "its tools were replaced in a what-if, which can only be asked again",
        )
    strict = run.journal.recording.strict
    try:
        model = _stand_in(said.get("model")) if strict else _models(said.get("model"))
    except PlaitError as error:
        why = (
            "its model was replaced in a what-if by one that cannot be found by its name"
            f" ({error}), so it can only be asked again"
        )
        raise NeedsWorkflow(short(run.root), started.workflow, why) from error
    run.settings.overrides = Overrides(model, said.get("instruction"))
    if said.get("effects") != "live":
        run.settings.policies = (
            Policy(Ask(effect=OUTWARD, name="what-if: it reaches beyond the workspace")),
        )


def _restated(
    session: Session, first: int, last: int, edits: Mapping[int, Any]
) -> list[tuple[Draft, dict[Digest, bytes]]]:
    """What a branch repeats of the past with other words in it."""
    found: list[tuple[Draft, dict[Digest, bytes]]] = []
    for event in store_at(session.store).read(session.id, first, last):
        if event.kind in (k.Rewound.__name__, k.Merged.__name__):
            raise InvalidValue(
                "replace",
                f"event {event.seq} is a {event.kind}",
                "go on live before it: pass a smaller at=",
            )
        if event.kind in TURNS:
            continue
        body, blobs = _edited(event, edits[event.seq]) if event.seq in edits else (event.body, {})
        header = event.header
        found.append(
            (
                Draft(
                    body, Act(header.actor, header.origin, header.behalf, header.call, (event.id,))
                ),
                blobs,
            )
        )
    return found


def _edited(event: Event, value: Any) -> tuple[Body, dict[Digest, bytes]]:
    body = event.body
    if isinstance(body, (k.ToolReturned, k.ToolFailed)):
        parts, blobs = pack(contents(value), "replace")
        return k.ToolReturned(parts, attempt=body.attempt), blobs
    if isinstance(body, k.FactRecorded):
        return msgspec.structs.replace(body, value=value), {}
    if isinstance(body, k.QuestionAnswered):
        return msgspec.structs.replace(body, answer=value), {}
    if isinstance(body, (k.MessageSaid, k.ModelReplied)):
        parts, blobs = pack([value], "replace")
        said: dict[str, Any] = (
            {"calls": (), "stop": "end"} if isinstance(body, k.ModelReplied) else {}
        )
        return msgspec.structs.replace(body, parts=parts, **said), blobs
    raise InvalidValue(
        "replace",
        f"event {event.seq} is a {event.kind}",
        "replace a message, a reply, a tool's result, an answer or a fact",
    )


# ── finding the program ──────────────────────────────────────────────────────────────────────


def _found(session: Session, started: Started) -> Workflow:
    """The workflow that a run is of: the object it names, else one of its class."""
    environment: Any = getattr(started.event.body, "environment", None) or {}
    return recorded_program(session.short, started.workflow, environment)


def _check_program(workflow: object) -> None:
    if workflow is not None and not isinstance(workflow, Workflow):
        what = "the class itself" if isinstance(workflow, type) else f"a {type(workflow).__name__}"
        raise InvalidValue(
            "workflow", f"{what} is not a workflow", "pass an object of it: Repair()"
        )


def _given(
    session: Session,
    started: Started,
    program: Workflow,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    live: bool = True,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `forward` is called with besides the session: as passed, else as on record.

    `live`: it may act on that.
    """
    given, named = (
        (args, dict(kwargs))
        if args or kwargs
        else _arguments(session, _beginning(session, started))
    )
    if live and not args and not kwargs:
        _check_no_stand_ins(session, started, program, given, named)
    if args or kwargs:
        try:
            inspect.signature(original(type(program))).bind(program, session, *given, **named)
        except TypeError as error:
            name = type(program).__qualname__
            raise InvalidValue(
                name,
                f"its forward does not take that: {error}",
                "pass what forward takes besides the session",
            ) from error
    return given, named


def _check_no_stand_ins(
    session: Session,
    started: Started,
    program: Workflow,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """A secret is not on record, and what stands there for it is not to be taken for it: whoever
    resumes passes it again.
    """
    names = [*inspect.signature(original(type(program))).parameters][2:]
    passed = {**dict(zip(names, args, strict=False)), **kwargs}
    hidden = {name: found for name, value in passed.items() if (found := stand_ins(value))}
    if hidden:
        told = ", ".join(f"{name} ({', '.join(found)})" for name, found in hidden.items())
        why = (
            "of what its forward takes besides the session a secret was taken out, which is not on"
            f" record: {told}"
        )
        raise NeedsWorkflow(
            session.short, started.workflow, why, ", ".join(f"{name}=…" for name in passed)
        )


def _check_names(program: Workflow, given: Any) -> None:
    """Whatever is for one agent names one that there is."""
    if not isinstance(given, Mapping):
        return
    paths = [path for path, _ in program.named_parts()]
    known = {name for path in paths for name in (path.rpartition("/")[2], *path.split("."))}
    known |= {program.name or "", type(program).__name__.lower()}
    for name in cast("Mapping[str, Any]", given):
        if name.rpartition("/")[2] not in known:
            raise InvalidValue(
                "whatif",
                f"no agent is called {name!r}",
                f"there are: {', '.join(paths) or 'none below it'}",
            )


def _arguments(session: Session, started: Started) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `forward` was called with besides the session, as far as it is on record."""
    body = started.event.body
    given: Any = getattr(body, "arguments", None)
    if given is None:
        return (), {}
    if "repr" in given:
        raise NeedsWorkflow(
            session.short,
            started.workflow,
            f"its arguments are not on record, only how they look: {given['repr'][:200]}",
        )
    return tuple(given.get("args", ())), dict(given.get("kwargs", {}))


# ── helpers ──────────────────────────────────────────────────────────────────────────────────


def _opened(session: Session | str, store: str | File | Store | None) -> Session:
    return session if isinstance(session, Session) else Session.open(session, store=store)


def _root(session: Session) -> Session:
    """A branch of a run goes on through the session where the run began."""
    store = store_at(session.store)
    log = store.log(session.id)
    first = next(store.read(log.id, log.place + 1, log.place + 1))
    run, at = first.header.run, log
    if run is None or _last_run(session) is not None:
        return session
    while at.parent is not None:
        at = store.log(at.parent)
        for event in store.read(
            at.id, at.place + 1, at.tip, kinds={k.RunStarted.__name__, k.RunBranched.__name__}
        ):
            if event.header.run == run.partition("/")[0]:
                return session_at(Position(session.store, at.id, at.tip, at.head))
    return session


def _last_run(session: Session) -> Started | None:
    """The run that was started last on this very log."""
    store = store_at(session.store)
    log = store.log(session.id)
    found: Started | None = None
    epoch = 0
    for epoch, event in enumerate(store.read(log.id, log.place + 1, session.seq, kinds=TURNS), 1):
        if event.kind in (k.RunStarted.__name__, k.RunBranched.__name__):
            found = Started(event, event, 0, epoch)
        elif found is not None and event.header.run == found.id:
            found = Started(
                found.event, event, found.times + (event.kind == k.RunResumed.__name__), epoch
            )
    return found._replace(epoch=epoch) if found is not None else None
