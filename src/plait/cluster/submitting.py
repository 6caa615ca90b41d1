"""Submitting a run: its start is written as a call would write it, and nothing is called.

A worker then does what `resume` does after a crash at that very place. So a first start, a takeover
after a kill, a wake-up after an answer and a retry are one operation.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import msgspec

from plait.cluster.choosing import ProjectShare
from plait.cluster.places import with_demands
from plait.cluster.programs import code_of, program_of
from plait.cluster.shares import admission
from plait.errors import (
    InvalidValue,
    NoRun,
    NotPortable,
)
from plait.event import kinds as k
from plait.ids import LogId, Micros, house_of, inbox_of
from plait.journal.recorded_run import last_run
from plait.journal.writer import direct_writer
from plait.program import check_arguments
from plait.runtime.appends import append_around_run
from plait.runtime.attendants import NOBODY
from plait.runtime.end import outside
from plait.runtime.executing import executing
from plait.runtime.invoke import check_call, run_start
from plait.runtime.start import start_run
from plait.session import Session
from plait.session.acting import acting_in
from plait.session.ask_rows import InboxRows
from plait.session.ports import Draft, store_at
from plait.session.value import position_of
from plait.session.work_rows import PRIORITY_MAX, WORK_BELL
from plait.store import Log, Store
from plait.workflow import Workflow

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,62}\Z")
Heads = Mapping[LogId, Log]
_AHEAD_MAX = 256  # events of a session that are read in one go


def make_wishes(session: Session, *, now: Micros, **how: Any) -> k.Wishes:
    """Check the wishes of a caller for the run of a session, and return them as recorded."""
    return wishes_of(session.project or session.user or "", now=now, **how)


def wishes_of(
    project: str,
    *,
    now: Micros,
    need: Iterable[str] = (),
    priority: int = 0,
    delay_s: float | None = None,
    deadline_s: float | None = None,
    attempts: int = 1,
    same_code: bool = False,
    code: str = "",
    job: LogId | None = None,
    ordinal: int | None = None,
) -> k.Wishes:
    """Check the wishes of a caller, and return them as they are recorded."""
    for name, value, least in (("delay_s", delay_s, 0), ("deadline_s", deadline_s, None)):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and (not is_number or value != value or abs(value) > 10**9):
            raise InvalidValue(name, f"{value!r:.60} is not a time in seconds", "pass a number")
        if value is not None and least is not None and value < least:
            raise InvalidValue(name, "it is in the past", "pass seconds from now on, or None")
    if deadline_s is not None and deadline_s <= (delay_s or 0):
        raise InvalidValue("deadline_s", "it is over before the run may begin", "pass a later one")
    return k.Wishes(
        need=check_labels(need, "need"),
        priority=check_count("priority", priority, -PRIORITY_MAX, PRIORITY_MAX),
        project=project,
        not_before=now + int(delay_s * 1e6) if delay_s else None,
        deadline=now + int(deadline_s * 1e6) if deadline_s is not None else None,
        attempts=check_count("attempts", attempts, 1, 1000),
        code=code,
        same_code=same_code,
        job=job,
        ordinal=ordinal,
    )


def check_labels(labels: Iterable[str], where: str) -> tuple[str, ...]:
    """Return labels sorted, each once; raises for a text that is none."""
    if isinstance(labels, str):
        raise InvalidValue(where, "a text is not a set of labels", f'pass {{"{labels:.40}"}}')
    if not isinstance(labels, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(where, f"{labels!r:.60} is not a set of labels", 'pass {"gpu"}')
    found = sorted(set(labels), key=str)
    for label in found:
        if not isinstance(label, str) or not _LABEL.match(label):  # pyright: ignore[reportUnnecessaryIsInstance]
            step = "use letters, digits and _ . : / -, at most 63"
            raise InvalidValue(where, f"{label!r:.80} is not a label", step)
    return tuple(found)


def check_count(name: str, value: int, least: int, most: int) -> int:
    """Return a count; raises for anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_whole or not least <= value <= most:
        raise InvalidValue(name, f"{value!r:.60} is not one", f"pass {least} to {most}")
    return value


def check_wait(timeout_s: float | None) -> None:
    """Raise unless this is a time to wait. None: as long as it takes."""
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and 0 <= timeout_s <= 10**9):
        why = f"{timeout_s!r:.60} is not a time to wait"
        raise InvalidValue("timeout_s", why, "pass seconds from 0 on, or None")


def submit_run(
    session: Session,
    program: Workflow,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    wishes: k.Wishes,
    share: ProjectShare | None = None,
    heads: Heads | None = None,
) -> tuple[Session, str]:
    """Write the start of a run that no process has; return the session and the id of the run.

    `program` is portable. Raises what `program(session)` would raise before it writes anything, and
    NotPortable for arguments that cannot travel. `heads`: as `read_session_ahead` has read them.
    """
    started = planned_start(session, program, args, kwargs)
    started = msgspec.structs.replace(started, wishes=wishes)
    if share is None or share.queued_max is None:
        return begin_submitted(session, started, heads)
    store = store_at(session.store)
    with admission(store, wishes.project, share, now_in(store)):
        return begin_submitted(session, started)  # it may have waited: the heads are old


def planned_start(
    session: Session | None,
    program: Workflow,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> k.RunStarted:
    """Return the first event of a run, as a call of a portable workflow would write it. `session`
    None: there is none yet.
    """
    if executing() is not None:
        why = "this is code of a run, and a resume of it would submit the same again"
        raise InvalidValue("submit", why, "call the workflow itself, or submit from outside")
    check_arguments(program, args, kwargs)
    call = program.invocation(cast("Session", session), args=args, kwargs=kwargs)
    if session is not None:
        check_call(call)
    elif call.setup is not None:
        call.setup(call.name)
    started = run_start(call)
    recorded: Any = started.arguments or {}
    if "repr" in recorded:
        why = f"its arguments cannot be written as JSON: {recorded['repr'][:120]}"
        raise NotPortable(program_of(program), why, "pass plain data")
    return started


def plan_of(started: k.RunStarted) -> k.PlannedRun:
    """Return the start of a run as a job records it."""
    return k.PlannedRun(
        started.workflow,
        started.arguments,
        started.revision,
        started.environment,
        started.version,
    )


def begin_submitted(
    session: Session, started: k.RunStarted, heads: Heads | None = None
) -> tuple[Session, str]:
    """Write the first event of a run that no process has, after exactly this value."""
    if started.wishes is not None:
        wishes = with_demands(started.wishes, session.files.placement)
        started = msgspec.structs.replace(started, wishes=wishes)
    run, inside = start_run(session, started, NOBODY, None, heads=heads, is_held=False)
    store_at(session.store).ring(WORK_BELL)
    return outside(inside), run.id


def adopt_run(session: Session, wishes: k.Wishes, actor: str | None = None) -> Session:
    """Leave the open run of a session to the workers, from now on. Its process must be gone."""
    at = outside(session).reload()
    store = store_at(at.store)
    if store.rows(InboxRows.name, "work", {"log": at.id}, limit=1):
        why = "its run was left to the workers already"
        step = f"see `plait cluster why {at.short}`; to change its wishes, cancel and submit it"
        raise InvalidValue("session", why, step)
    recorded = last_run(at)
    if recorded is None or recorded.is_over:
        raise NoRun(at.short, "be left to workers")
    workflow, _, name = recorded.workflow.partition(":")
    file = recorded.environment.get("file", "")
    if workflow == "__main__" or file.endswith(".py"):
        why = "its program is a file or a script, which no worker can import"
        raise NotPortable(name, why, f"go on with it here: plait resume {at.short}")
    lock = store.lock(recorded.id, at.short)
    try:
        bound = with_demands(wishes, at.files.placement)
        draft = Draft(k.RunSubmitted(recorded.id, bound), acting_in(at, actor))
        append_around_run(position_of(at), [draft])
    finally:
        lock.release()
    store.ring(WORK_BELL)
    return at.reload()


def submitted_code(program: Workflow) -> str:
    """Return the code of the module that a portable workflow is found in, in this process."""
    return code_of((program_of(program).partition(":")[0],))


@contextmanager
def read_session_ahead(session: Session) -> Generator[Heads]:
    """Ask how a session, its inbox and the house log stand, and have the events of the session read
    ahead, for what a submit asks about them. Those of a long one are not: it has snapshots.
    """
    at = position_of(session)
    store = store_at(at.store)
    with ExitStack() as ahead:
        logs = [at.id, inbox_of(at.id), house_of(store.id)]
        heads = ahead.enter_context(store.look_ahead(logs, _AHEAD_MAX))
        is_fork = at.id in heads and heads[at.id].place > 0
        if is_fork and at.seq <= _AHEAD_MAX:
            ahead.enter_context(store.read_ahead(at.id, 1, at.seq))
        yield heads


def now_in(store: Store) -> Micros:
    """Return the time by the source of a store's sessions."""
    return direct_writer().source(store.address).now(LogId(""), 0)
