"""Open runs against the code at hand: which of them would diverge if it were deployed.

Each is replayed up to its last recorded step. Nothing is executed and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from plait.errors import InvalidValue, NeedsWorkflow, PlaitError
from plait.event import kinds as k
from plait.ids import LogId
from plait.journal.recorded_run import RecordedRun, first_run, last_run
from plait.program import ProgramCall, check_target, find_program_call, load
from plait.runs.changes import try_program
from plait.runtime.registry import is_going_on
from plait.runtime.start import MAIN, source_revision
from plait.runtime.tracebacks import raised_text
from plait.session import Session
from plait.session.ports import Position, store_at
from plait.session.session import session_at
from plait.store import Store

_ALL = 2**31


class CheckedRun(NamedTuple):
    """An open run, and the first step in which the code at hand differs from it."""

    session: Session
    run: str
    workflow: str
    revision: str  # of the program that the run started with
    code: str  # revision of the program at hand; "": it was not found
    patches: tuple[str, ...]  # that its recording has executed
    at: int = 0  # seq of the first difference. 0: there is none
    recorded: dict[str, Any] = {}
    now: dict[str, Any] = {}
    why: str = ""  # it could not be checked
    target: str = ""  # to be named for it, then: FILE.py:NAME. "": that does not help
    step: str = ""  # another step that helps. "": none is known
    # the error that the program raises in the replay, or when it is loaded. None: it raises none
    raised: BaseException | None = None
    after: int = 0  # the last recorded step that it makes before. 0: it could not be loaded

    @property
    def is_safe(self) -> bool:
        return not self.at and not self.why and self.raised is None


def check_runs(store: Store, target: str | None = None) -> Iterator[CheckedRun]:
    """Check the open runs of a store: those of a module, a file, or one class in it; or all.

    `target` is a module, a file, MODULE:NAME or FILE.py:NAME. None: each run is checked with the
    program that its log names.

    A target of which no run is open is loaded, so that one which does not exist is refused.
    """
    where, name = _split(target)
    is_named = False
    for session, run in open_runs_in(store):
        first = first_run(store, run)
        if target is not None and not _is_of(first, where, name):
            continue
        is_named = True
        if not is_going_on(run.id):
            yield _check(session, run, first, where)
    if target is not None and not is_named:
        check_target(where, name)


def open_runs_in(store: Store) -> Iterator[tuple[Session, RecordedRun]]:
    """Yield the runs that could be resumed, each with its session as it is now."""
    rows = store.rows("inbox", "run", limit=_ALL)
    for log in dict.fromkeys([LogId(str(row["log"])) for row in rows]):
        about = store.log(log)
        session = session_at(Position(store.address, log, about.tip, about.head))
        run = last_run(session)
        ended = run.last.body if run is not None else None
        is_cancelled = isinstance(ended, k.RunCancelled) and bool(ended.by)
        if run is not None and not run.is_finished and not is_cancelled:
            yield session, run


def _split(target: str | None) -> tuple[str, str]:
    """Return the module or file of a target, and the name in it, "" if there is none."""
    where, colon, name = (target or "").rpartition(":")
    if target is not None and not target.strip(":"):
        raise InvalidValue("target", f"{target!r} names no code", "write MODULE, or FILE.py:NAME")
    return (where, name) if colon else (name, "")


def _is_of(run: RecordedRun, where: str, name: str) -> bool:
    """True if a run is of a program in this module or file."""
    module, _, cls = run.workflow.partition(":")
    file = run.environment.get("file") or ""
    if run.workflow.startswith(MAIN) and not file:
        file = run.environment.get("main") or ""
        if not file:  # then the name alone says that it is meant
            return name == cls
    if name and name not in (cls, run.environment.get("name")):
        return False
    if where.endswith(".py"):
        return Path(file or f"{module.replace('.', '/')}.py").name == Path(where).name
    if where == Path(file).stem and run.workflow.startswith(MAIN):
        return True
    return where in (module, file) or module.startswith(f"{where}.")


def _check(session: Session, run: RecordedRun, first: RecordedRun, where: str) -> CheckedRun:
    started = first.started.body
    revision = started.revision if isinstance(started, k.RunStarted) else ""
    marks = store_at(session.store).read(
        session.id, first.started.seq, session.seq, kinds={k.PatchMarked.__name__}
    )
    patches = {mark.body.name: None for mark in marks if isinstance(mark.body, k.PatchMarked)}
    checked = CheckedRun(session, run.id, run.workflow, revision, "", tuple(patches))
    try:
        call = _program_call(session, run, first, where)
        checked = checked._replace(code=source_revision(type(call.program)))
        trial = try_program(session, run, call, {})
    except NeedsWorkflow as error:
        cause = error.__cause__
        raised = cause if not isinstance(cause, PlaitError) else None
        is_named = run.workflow.startswith(MAIN) and not error.step
        target = f"{error.file or 'FILE.py'}:{error.name}" if is_named else ""
        return checked._replace(why=error.why, raised=raised, target=target, step=error.step)
    except PlaitError as error:
        return checked._replace(why=str(error))
    except (Exception, SystemExit) as error:  # loading runs the module
        return checked._replace(why=f"it cannot be loaded: {raised_text(error)}", raised=error)
    if trial.raised is not None:
        return checked._replace(raised=trial.raised, after=trial.at)
    if trial.difference is not None:
        found = trial.difference
        return checked._replace(at=found.at, recorded=found.expected, now=found.found)
    if trial.unread:
        log = store_at(session.store).log(trial.unread[0])
        forked = {"kind": k.ForkedFrom.__name__, "parent": log.parent, "place": log.place}
        now = {"kind": "(the program does not fork there)"}
        return checked._replace(at=log.place + 1, recorded=forked, now=now)
    return checked


def _program_call(
    session: Session, run: RecordedRun, first: RecordedRun, where: str
) -> ProgramCall:
    name = first.environment.get("name") or first.workflow.partition(":")[2]
    is_module = where and not first.workflow.startswith(f"{where}.")
    program = load(f"{where}:{name}") if is_module else None
    return find_program_call(session, run, program, (), {}, is_live=False)
