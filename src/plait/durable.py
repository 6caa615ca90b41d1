"""Runs taken up again: resume, replay, what-if.

All three call the same `forward` from the value at which its run started, and answer what it asks for from the record. They differ in what
lies beyond: `resume` goes on live, `replay` has nothing beyond, `whatif` goes on live in a branch, with something changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from plait.errors import InvalidValue, NeedsWorkflow, NothingToResume, PlaitError, ReplayDiverged, RunHeld, StaleHead
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId
from plait.runtime.call import Answerer, Watch, let_go, new_run, outside
from plait.runtime.drive import Waiter
from plait.runtime.hold import hold, release
from plait.runtime.policy import Approver
from plait.runtime.run import Halted, OnEvent, Record, Run, Stop, direct_writer, is_going_on, open_run
from plait.runtime.waits import Wait
from plait.session import Session
from plait.session.ports import Act, Draft, Spot, store_at
from plait.store import Store
from plait.workflow import Workflow, call_again, name_target, target_of

_RUNS = frozenset(kind.__name__ for kind in (k.RunStarted, k.RunBranched, k.RunResumed, k.RunFinished, k.RunFailed, k.RunCancelled))


class Started(NamedTuple):
    """A run as its log tells of it."""

    event: Event  # the one it started with
    last: Event  # the last one about it: how it stands
    epoch: int  # how often it was taken up again

    @property
    def id(self) -> str:
        return self.event.header.run or self.event.id

    @property
    def workflow(self) -> str:
        body = self.event.body
        assert isinstance(body, (k.RunStarted, k.RunBranched))
        return body.workflow


# ── resume ───────────────────────────────────────────────────────────────────────────────────


def resume(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    store: str | Path | Store | None = None,
    on_event: OnEvent | None = None,
    approver: Approver | None = None,
    answerer: Answerer | None = None,
    **kwargs: Any,
) -> Session:
    """Take up the run of a session that did not come to its end: after a crash, a failure, a pause, or a wait for somebody.

    The program is found by what the run says of itself, or passed, with what its `forward` takes besides the session. Effects on
    record are not repeated.
    """
    watch = Watch(on_event, approver, answerer)
    return _resume(_opened(session, store), workflow, args, kwargs, watch, None)


def _resume(
    session: Session, workflow: Workflow | None, args: tuple[Any, ...], kwargs: Mapping[str, Any], watch: Watch, waiter: Waiter | None
) -> Session:
    session = _root(outside(session).reload())
    started = _last_run(session)
    if started is None:
        raise NothingToResume(session.short, "no run was ever started in it")
    if started.last.kind == k.RunFinished.__name__:
        return _unpaused(session)
    program = workflow or _found(session, started)
    given, named = (args, dict(kwargs)) if args or kwargs else _arguments(session, started)
    if is_going_on(started.id):
        raise RunHeld(session.short, started.id, f"this process, {os.getpid()}")
    hold(session.store, started.id, session.short)
    try:
        run, at = _take_up(_unpaused(session), started, watch, waiter)
    except BaseException:
        release(session.store, started.id)
        raise
    return call_again(program, run, at, given, named, watch)


def _take_up(session: Session, started: Started, watch: Watch, waiter: Waiter | None) -> tuple[Run, Session]:
    """Say in the run's logs that it has a new holder, and read what they have on record."""
    store, id = store_at(session.store), started.id
    at = _at(session, started.event, id)
    run = new_run(id, at, watch, waiter, behalf=started.event.actor)
    run.holder = f"{socket.gethostname()}/{os.getpid()}/{started.epoch + 1}"
    record = run.record = Record(id)
    body = started.last.body
    if isinstance(body, k.RunFailed):
        record.reopened = frozenset(started.last.header.causes)
    for log in (session.id, *_branches(store, session, id)):
        _say_resumed(run, store, log, started.epoch + 1, branch=log != session.id)
    record.read(store, at.spot)
    run.start(at.spot)
    open_run(run)
    return run, at


def _say_resumed(run: Run, store: Store, log: LogId, epoch: int, *, branch: bool) -> None:
    """From here on, whoever held the run before cannot write to this log."""
    direct = direct_writer()
    body = k.RunResumed(run.holder, epoch, branch)
    end = store.log(log)
    spot = Spot(store.address, log, end.tip, end.head, run.id)
    while True:  # each time around somebody else got something written
        try:
            direct.write(spot, [Draft(body, Act(direct.principal(), "program"))])
            return
        except StaleHead:
            spot = direct.latest(spot)


def _branches(store: Store, session: Session, run: str) -> Iterator[LogId]:
    """Branches of a run that are not merged yet, and theirs."""
    covers = session.covers
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
        raise AssertionError(f"a replay came to {type(op).__name__}: nothing may be executed in one")

    def clock(self) -> int:
        return 0


def replay(
    session: Session | str, workflow: Workflow | None = None, /, *args: Any, store: str | Path | Store | None = None, **kwargs: Any
) -> Session:
    """Go through the last run of a session by its record alone: nothing is executed, nothing is written.

    Returns the session where the run ended, or as far as it came. If the program goes another way than the record: ReplayDiverged.
    """
    there = outside(_opened(session, store))
    started = _last_run(there)
    if started is None:
        raise NothingToResume(there.short, "no run was ever started in it")
    if is_going_on(started.id):
        raise RunHeld(there.short, started.id, f"this process, {os.getpid()}")
    program = workflow or _found(there, started)
    given, named = (args, dict(kwargs)) if args or kwargs else _arguments(there, started)
    at = _at(there, started.event, started.id)
    run = new_run(started.id, at, Watch(), NoExecutor(), behalf=started.event.actor)
    ended = started.last.kind in (k.RunFinished.__name__, k.RunFailed.__name__, k.RunCancelled.__name__)
    run.record = Record(started.id, strict=True, open=not ended)
    run.record.read(store_at(there.store), at.spot, there.place)
    run.start(at.spot)
    open_run(run)
    try:
        return call_again(program, run, at, given, named, Watch())
    except ReplayDiverged:
        raise
    except (Exception, Stop) as error:
        if isinstance(error, Halted) and error.error is not None:
            raise error.error from None
        if ended and run.tip(run.root).head != started.last.id:
            raise
        return outside(Session.of(run.tip(run.root)))
    finally:
        let_go(run, there.store)


# ── finding the program ──────────────────────────────────────────────────────────────────────


def _found(session: Session, started: Started) -> Workflow:
    """The workflow that a run is of: the object it names, else one of its class."""
    body = started.event.body
    environment: Any = getattr(body, "environment", None) or {}
    name = started.workflow
    try:
        if environment.get("file"):
            made: Any = load(f"{environment['file']}:{environment.get('name', '')}")
        else:
            made = _class_of(name)()
    except InvalidValue as error:
        raise NeedsWorkflow(session.short, name, error.why) from error
    except PlaitError:
        raise
    except Exception as error:
        raise NeedsWorkflow(session.short, name, f"it cannot be made from here: {type(error).__name__}: {error}") from error
    if not isinstance(made, Workflow):
        raise NeedsWorkflow(session.short, name, "that is not a workflow")
    if environment.get("model"):  # it was rebound from outside before it ran: `plait run --model`
        name_target(made.to(model=environment["model"]), {**target_of(made), "model": environment["model"]})
    return made


def _class_of(path: str) -> Callable[[], object]:
    module, _, names = path.partition(":")
    found: Any = sys.modules["__main__"] if module == "__main__" else importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def load(target: str) -> Workflow:
    """The workflow at FILE:NAME or MODULE:NAME: a class, an object, or a function that makes one."""
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise InvalidValue("workflow", f"{target!r} does not name one", "write FILE.py:Workflow or module:Workflow")
    file = Path(where)
    module = _from_file(file) if where.endswith(".py") or file.is_file() else importlib.import_module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            there = [each for each, value in vars(module).items() if _is_workflow(value, module.__name__)]
            raise InvalidValue("workflow", f"{where} has no {name!r}", f"it has: {', '.join(there) or 'no workflows'}")
        found = getattr(found, part)
    made = found if isinstance(found, Workflow) else found()
    if not isinstance(made, Workflow):
        step = "name a Workflow, or a function that makes one"
        raise InvalidValue("workflow", f"{target} is a {type(made).__name__}, not a workflow", step)
    name_target(made, {"file": str(file.resolve()) if file.is_file() else where, "name": name})
    return made


def _is_workflow(value: Any, module: str) -> bool:
    """Whether it is one, or a class of them, that was written in this module."""
    return isinstance(value, Workflow) or (isinstance(value, type) and issubclass(value, Workflow) and value.__module__ == module)


def _from_file(file: Path) -> Any:
    """A module from a file, as if its folder were where Python starts."""
    if not file.is_file():
        raise InvalidValue("workflow", f"there is no file {file}", "check the path")
    path = str(file.resolve())
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == path and module.__name__ != "__main__":
            return module
    if str(file.resolve().parent) not in sys.path:
        sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(file.stem, None)
        raise
    return module


def _arguments(session: Session, started: Started) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `forward` was called with besides the session, as far as it is on record."""
    body = started.event.body
    given: Any = getattr(body, "arguments", None)
    if given is None:
        return (), {}
    if "repr" in given:
        raise NeedsWorkflow(session.short, started.workflow, f"its arguments are not on record, only how they look: {given['repr'][:200]}")
    return tuple(given.get("args", ())), dict(given.get("kwargs", {}))


# ── helpers ──────────────────────────────────────────────────────────────────────────────────


def _opened(session: Session | str, store: str | Path | Store | None) -> Session:
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
        for event in store.read(at.id, at.place + 1, at.tip, kinds={k.RunStarted.__name__, k.RunBranched.__name__}):
            if event.header.run == run.partition("/")[0]:
                return Session.of(Spot(session.store, at.id, at.tip, at.head))
    return session


def _last_run(session: Session) -> Started | None:
    """The run that was started last on this very log."""
    store = store_at(session.store)
    log = store.log(session.id)
    found: Started | None = None
    for event in store.read(log.id, log.place + 1, session.place, kinds=_RUNS):
        if event.kind in (k.RunStarted.__name__, k.RunBranched.__name__):
            found = Started(event, event, 0)
        elif found is not None and event.header.run == found.id:
            found = Started(found.event, event, found.epoch + (event.kind == k.RunResumed.__name__))
    return found


def _at(session: Session, event: Event, run: str) -> Session:
    spot = Spot(session.store, session.id, event.seq, event.id, run)
    return Session.of(spot)
