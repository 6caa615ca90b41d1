"""Changed programs: finding the steps in which a program differs from its record, and accepting
them.

The differences are looked for by a replay, which executes and writes nothing. To accept them is to
rewind each log in which there is one to just before it: the run goes on live from there, and later
resumes and replays follow the new steps. The steps beyond stay in the log, as abandoned: their
effects took place (`journal/abandoned.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plait.errors import (
    EffectError,
    InvalidValue,
    LeavesRecord,
    NothingToAccept,
    NothingToResume,
    ProgramFailed,
    ReplayDiverged,
    RunHeld,
    StaleEpoch,
)
from plait.errors.runs import sides_text
from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest, LogId
from plait.inside import Stop
from plait.journal.abandoned import branches_of, read_abandoned
from plait.journal.recorded_run import (
    RecordedRun,
    follow_recording,
    last_run,
    root_session,
    start_of,
)
from plait.program import ProgramCall, find_program_call
from plait.runs.overrides import apply_recorded_overrides
from plait.runs.replay import NoExecutor
from plait.runtime.attendants import Watch
from plait.runtime.end import let_go, outside
from plait.runtime.registry import is_going_on, open_run
from plait.runtime.run import Run
from plait.runtime.start import new_run
from plait.runtime.tracebacks import raised_at, raised_text
from plait.session import Session
from plait.session.branching import rewind_body
from plait.session.lasting import LastingCalls
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.session import session_at
from plait.session.value import walk_path
from plait.store import Store
from plait.workflow import Workflow, call_again

_REASON_MAX = 1000  # characters


def check_reason(accept: object) -> None:
    """Raise if a reason to accept a change says nothing."""
    if not isinstance(accept, str) or not accept.strip() or len(accept) > _REASON_MAX:
        raise InvalidValue(
            "accept",
            f"{accept!r:.80} is not a reason",
            'say what changed: accept="prompt reworded"',
        )


class Trial(NamedTuple):
    """The end of a replay that looked for a difference."""

    difference: ReplayDiverged | None
    # True: every recorded step was made again. False: the program has to go on in one log before it
    # can be seen what it does in another
    is_complete: bool
    unread: tuple[LogId, ...]  # branches on record that the program did not fork
    raised: BaseException | None = None  # the error that the program ended with
    at: int = 0  # with `raised`: the seq of the last recorded step that the program made before


def try_program(
    session: Session, recorded: RecordedRun, call: ProgramCall, cuts: Mapping[LogId, int]
) -> Trial:
    """Look for the first difference between a program and the record of its run.

    Nothing is executed and nothing written. `cuts`: logs that are read up to this seq only.
    """
    start = start_of(session, recorded)
    run = new_run(recorded.id, start, Watch(), NoExecutor(), behalf=recorded.started.actor)
    follow_recording(run.journal, session, recorded, start, cuts=cuts)
    apply_recorded_overrides(run, recorded, is_replay=True)
    open_run(run)
    found: BaseException | None = None
    try:
        call_again(call.program, run, start, call.args, call.kwargs, Watch())
    except (Exception, Stop, SystemExit) as error:
        found = error
    finally:
        let_go(run)
    if run.program_error is not None and not _is_of_effect(run.program_error):
        at = run.journal.tip(run.root).seq
        return Trial(None, is_complete=False, unread=(), raised=run.program_error, at=at)
    halted = run.journal.fence.halted
    for error in (found, getattr(found, "error", None), halted.error if halted else None):
        if isinstance(error, ReplayDiverged):
            return Trial(error, is_complete=False, unread=())
        if isinstance(error, LeavesRecord):
            at = run.journal.tip(run.root).seq
            return Trial(None, is_complete=False, unread=(), raised=error, at=at)
    is_complete = all(run.journal.read_logs().values())
    return Trial(None, is_complete, _unread_branches(run, session, cuts))


def _is_of_effect(error: BaseException) -> bool:
    """True if an error tells of an effect that failed: live, it is tried again."""
    while error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, EffectError)


def _unread_branches(run: Run, session: Session, cuts: Mapping[LogId, int]) -> tuple[LogId, ...]:
    """Return the branches on record that the program did not come to.

    The branch of a call that has its outcome is not entered again: it stands with the request.
    """
    store, unread = store_at(session.store), list[LogId]()
    read = run.journal.read_logs()
    for log in branches_of(store, session.id, run.id):  # parents come first
        about = store.log(log)
        first = next(store.read(log, about.place + 1, about.place + 1))
        parent = LogId(about.parent or "")
        is_kept = about.place <= cuts.get(parent, about.place) and parent not in unread
        is_of_call = first.header.call is not None and is_kept
        if log not in read and not is_of_call:
            unread.append(log)
    return tuple(unread)


class Change(NamedTuple):
    """The steps of a run that a changed program does not make."""

    differences: tuple[ReplayDiverged, ...]  # the first one first; (): they are still to be seen
    cuts: Mapping[LogId, int]  # the last seq of each log that is kept


def find_change(
    session: Session, recorded: RecordedRun, call: ProgramCall, known: ReplayDiverged | None
) -> Change:
    """Return all differences that can be found before anything is executed.

    `known` is one that came up while the run went on.

    Raises NothingToAccept if there is none, ReplayDiverged if one lies in the part that a what-if
    took over from its source, and ProgramFailed if the program raises an error.
    """
    store, cuts, found = store_at(session.store), dict[LogId, int](), list[ReplayDiverged]()
    logs = [session.id, *branches_of(store, session.id, recorded.id)]
    while True:
        trial = try_program(session, recorded, call, cuts)
        if trial.raised is not None:
            raise program_failed(session, trial.raised, trial.at) from trial.raised
        error = trial.difference
        if error is None and not found:
            error = known
        if error is None:
            break
        log = LogId(error.log)
        if not error.log or cuts.get(log, error.at) < error.at:
            raise error
        found.append(error)
        cuts[log] = error.at - 1
        _cut_merges(store, logs, cuts)
    for log in trial.unread:
        # what it did counts as done, also if the program should fork it later
        if not _is_rewound(store, log):
            cuts[log] = store.log(log).place + 1
    if not cuts and trial.is_complete:
        raise NothingToAccept(session.short, recorded.id)
    return Change(tuple(found), cuts)


def program_failed(session: Session, error: BaseException, at: int) -> ProgramFailed:
    """Return the refusal of a program that raises an error after the event at this seq."""
    where = raised_at(error) or ("", 0)
    return ProgramFailed(session.short, at, type(error).__name__, raised_text(error), *where)


def _is_rewound(store: Store, log: LogId) -> bool:
    """True if a branch was left behind before: nothing was done in it since."""
    about = store.log(log)
    own = {k.ChangeAccepted.__name__, k.RunResumed.__name__}
    last = next(
        event
        for event in store.read(log, about.place + 1, reverse=True)
        if event.kind != k.RunResumed.__name__
    )
    return last.kind in own


def preview_change(session: Session, workflow: Workflow | None = None) -> Change:
    """Return the change that `resume(session, workflow, accept=…)` would accept: nothing is
    written.
    """
    session = root_session(outside(session).reload())
    recorded = last_run(session)
    if recorded is None:
        raise NothingToResume(session.short, "no run was ever started in it")
    if recorded.is_finished:
        raise NothingToAccept(session.short, recorded.id)
    if is_going_on(recorded.id):
        raise RunHeld(session.short, recorded.id, f"this process, {os.getpid()}")
    call = find_program_call(session, recorded, workflow, (), {}, is_live=False)
    return find_change(session, recorded, call, None)


def effects_left(session: Session) -> list[tuple[Event, Event | None]]:
    """Return the requests that reached beyond the workspace in steps which a changed program left
    behind, and did not ask for again; each with its outcome, None if that is not known.
    """
    session = root_session(outside(session).reload())
    recorded = last_run(session)
    if recorded is None:
        return []
    left: list[tuple[Event, Event | None]] = []
    for events in read_abandoned(session, recorded.id).untaken():
        if isinstance(events[0].body, k.ToolRequested):
            calls = LastingCalls(events)
            outcomes: list[Event | None] = [*calls.outcomes()]
            if not outcomes and calls.open_requests():
                outcomes = [None]
            left += [(events[0], outcome) for outcome in outcomes[-1:]]
    return left


def _cut_merges(store: Store, logs: Sequence[LogId], cuts: dict[LogId, int]) -> None:
    """Cut each log before it merges steps that are cut: the merge would be another one."""
    is_new = True
    while is_new:
        is_new = False
        for log in logs:
            merge = _first_merge(store, log, cuts)
            if merge is not None:
                cuts[log], is_new = merge.seq - 1, True


def _first_merge(store: Store, log: LogId, cuts: Mapping[LogId, int]) -> Event | None:
    about = store.log(log)
    last = cuts.get(log, about.tip)
    for event in store.read(log, about.place + 1, last, kinds={k.Merged.__name__}):
        body = event.body
        assert isinstance(body, k.Merged)
        merged = {**{place.log: place.seq for place in body.branches}, **body.covers}
        if any(seq > cuts.get(LogId(branch), seq) for branch, seq in merged.items()):
            return event
    return None


# ── writing ──────────────────────────────────────────────────────────────────────────────────


def write_change(run: Run, session: Session, change: Change, reason: str) -> None:
    """Rewind each log of a run to before the change, and record who accepted it, in one write."""
    store, act = store_at(session.store), Act(run.taker, "program")
    sides = {
        LogId(error.log): sides_text(error.expected, error.found) for error in change.differences
    }
    targets: list[tuple[LogId, list[Draft]]] = []
    for log, cut in change.cuts.items():
        about = store.log(log)
        tip = session_at(Position(session.store, log, about.tip, about.head))
        accepted = k.ChangeAccepted(run.id, reason, cut + 1, *sides.get(log, ("", "")))
        drafts = [Draft(rewind_body(tip, cut, reason), act), Draft(accepted, act)]
        targets.append((log, [*drafts, *_said_meanwhile(tip, run.id, cut)]))
    drafts = [draft for _, drafts in targets for draft in drafts]
    if run.journal.on_write is not None:
        run.journal.on_write("before", drafts)
    try:
        run.journal.writer.append_to_ends(
            store, targets, fences=run.journal.fence.fences_in(session.store)
        )
    except StaleEpoch as error:
        raise run.journal.fence.halt_lost(error) from None
    if run.journal.on_write is not None:
        run.journal.on_write("after", drafts)


# the words and marks of others in a session: they hold, whichever way its program goes
_SAID = frozenset(
    kind.__name__
    for kind in (
        k.MessageSaid,
        k.FactRecorded,
        k.FactRetracted,
        k.PendingAdded,
        k.PendingSettled,
        k.ScratchSet,
        k.Linked,
        k.EvidenceAttached,
        k.GateRequired,
        k.ValidationRecorded,
    )
)


def _said_meanwhile(tip: Session, run: str, cut: int) -> list[Draft]:
    """Return drafts that repeat what others wrote to a log after the cut, and signals that ended a
    wait there.
    """
    fired = set[str]()
    copies = range(0)
    said: list[Event] = []
    for _, event in walk_path(tip):
        if event.log != tip.id or event.seq <= cut:
            continue
        body = event.body
        if isinstance(body, k.Delivered) and event.header.run == run:
            copies = range(event.seq + 1, event.seq + 1 + body.copies)
        elif isinstance(body, k.TimerFired):
            fired.update(event.header.causes)
        elif event.header.run is None or event.seq in copies:
            if event.kind in _SAID or isinstance(body, k.Signalled):
                said.append(event)
    return [
        Draft(
            event.body,
            Act(event.actor, event.header.origin, event.header.behalf, None, _causes(event)),
        )
        for event in said
        if event.kind in _SAID or event.id in fired
    ]


def _causes(event: Event) -> tuple[Digest, ...]:
    return (*event.header.causes, event.id)
