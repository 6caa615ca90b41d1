"""Finds out if code belongs to a run: code of a run decides nothing for people, in any thread or
process that it starts.

The context says so where Plait calls the code. A thread that such code starts is remembered, work
that it hands to a pool of threads is marked, and a process that it starts carries a mark in its
environment, with the stores that the runs are in, and the runs. The mark is inherited, so it
outlives the run.

This is a notice, and no wall. Code in this process can undo all of it, a process can drop its
environment, and code that can reach a server that takes decisions can make one there. For a wall,
run tools in a sandbox and keep the store out of it.
"""

from __future__ import annotations

import _thread
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as pools
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import wraps
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

# tokens of the runs that started this process, and of the stores that they are in
VARIABLE = "PLAIT_INSIDE_RUN"

Code = object  # a run, or an object that stands for it


def _no_run() -> Code | None:
    return None


def _no_ids(_: Any) -> Iterable[str]:
    return ()


class PieceOfWork:
    """A piece of work of a thread that does other work before and after it."""

    def __init__(self) -> None:
        self._is_going = True

    def end(self) -> None:
        self._is_going = False

    def is_alive(self) -> bool:
        """As of a thread: True until the work is done."""
        return self._is_going


class _ThreadWork(threading.local):
    """The present work of a thread."""

    piece: PieceOfWork | None = None  # None: all that the thread does
    handed: Context | None = None  # the context of the code of a run that gave it this work


_work = _ThreadWork()
# the run that is asking its approver
_deciding: ContextVar[Code | None] = ContextVar("plait_deciding", default=None)
_started_with = os.environ.get(VARIABLE, "")


class _ProcessMarks:
    """The facts about this process that every thread shares."""

    def __init__(self) -> None:
        # returns the run that the code in the current context belongs to
        self.current: Callable[[], Code | None] = _no_run
        self.ids_of: Callable[[Any], Iterable[str]] = _no_ids
        # by thread: the context of the code that started it
        self.threads: WeakKeyDictionary[threading.Thread, Context] = WeakKeyDictionary()
        self.stores: dict[str, None] = {}  # tokens of the stores in which runs were opened here
        self.lock = threading.RLock()
        self.is_installed = False
        self.is_marking = False  # True: code of a run was executed here, or work of it marked
        self.has_threads = False  # True: code of a run started a thread


_process = _ProcessMarks()

start_thread = threading.Thread.start  # for Plait's own threads, which take the context along


def bind(current: Callable[[], Code | None], ids_of: Callable[[Any], Iterable[str]]) -> None:
    """Set the function that returns the run to which the current context belongs (None: to no run),
    and the one that returns the ids of a run and of those whose code started it.
    """
    _process.current, _process.ids_of = current, ids_of


class Stop(BaseException):
    """The run does not go on here.

    Not an Exception: a workflow's `except Exception` must not swallow it.
    """


def ends_run(error: BaseException) -> bool:
    """Return True if an error that left code of a run ends the whole run: a stop of it, or Ctrl-C.

    Python raises Ctrl-C in the main thread only, and as itself: in another thread, or of a class of
    its own, it is the code's.
    """
    if isinstance(error, Stop):
        return True
    return (
        type(error) is KeyboardInterrupt and threading.current_thread() is threading.main_thread()
    )


# ── asking ───────────────────────────────────────────────────────────────────────────────────


def is_inside(address: str, names_of: Callable[[str], Iterable[str]]) -> str:
    """Return the reason why the calling code may not decide in the store at this address, or "".

    `names_of` returns the names of a store that other processes know it by.
    """
    if is_code_of_run():
        return "code of a run does not decide for people"
    marks = set(_inherited_marks())
    if marks and marks & {_token(name) for name in names_of(address)}:
        return "this process was started by code of a run, which does not decide for people"
    return ""


def is_started_by(run: str) -> bool:
    """Return True if code of this run started the process, or a process that started it."""
    return _run_token(run) in _inherited_marks()


def is_code_of_run() -> bool:
    """Return True if this is code of a run, other than the approver that the caller of the run
    handed in.
    """
    run = _process.current()
    if run is not None:
        return _deciding.get() is not run
    return starter_context() is not None


def starter_context() -> Context | None:
    """Return the context of the code of a run that started this thread, or handed it its work.

    None: no run's code did.
    """
    if not _process.is_marking:  # no code of a run was ever executed here
        return None
    return _work.handed or (
        _process.threads.get(threading.current_thread()) if _process.has_threads else None
    )


def enter_code() -> Context | None:
    """Remember for this thread that code of a run executes here, even in a new context. Return the
    argument for `leave_code`.
    """
    before = _work.handed
    if _process.current() is not None:
        _process.is_marking = True
        _work.handed = copy_context()
    return before


@contextmanager
def working() -> Generator[None]:
    """Do one piece of the work of this thread within."""
    piece = _work.piece = PieceOfWork()
    try:
        yield
    finally:
        _work.piece = None
        piece.end()


def present_work() -> PieceOfWork | threading.Thread:
    """Return the work that is done here: the thread, or its present piece of work."""
    return _work.piece or threading.current_thread()


def leave_code(before: Context | None) -> None:
    """Forget it again: `before` comes from `enter_code`."""
    _work.handed = before


def _context_here() -> Context | None:
    """Return the context to keep for threads and work started here. None: this is no code of a
    run.
    """
    if not is_code_of_run():
        return None
    _process.is_marking = True
    return copy_context() if _process.current() is not None else starter_context()


@contextmanager
def allow_decisions() -> Generator[None]:
    """Allow decisions within: the approver called there was handed in by the caller of the run."""
    before = _deciding.set(_process.current())
    try:
        yield
    finally:
        _deciding.reset(before)


def _run_token(run: str) -> str:
    return _token(f"run {run}")


def _token(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]


# ── marking ──────────────────────────────────────────────────────────────────────────────────


def open_store(names: Iterable[str]) -> None:
    """Note that a run is opened in the store of these names: what its code starts is marked."""
    for name in names:
        _process.stores[_token(name)] = None
    _install()


def mark() -> dict[str, str]:
    """Return the variables that the environment of a process started here needs; empty outside of
    runs.
    """
    if not is_code_of_run():
        return {}
    runs = map(_run_token, _ids_here())
    return {VARIABLE: " ".join(dict.fromkeys([*_inherited_marks(), *_process.stores, *runs]))}


def _ids_here() -> Iterable[str]:
    """Return the ids of the runs that the code belongs to."""
    run, context = _process.current(), starter_context()
    if run is None and context is not None:
        run = context.copy().run(_process.current)  # it may be entered in another thread
    return _process.ids_of(run) if run is not None else ()


def _inherited_marks() -> list[str]:
    return f"{os.environ.get(VARIABLE, '')} {_marks_at_start()}".split()


def _install() -> None:
    with _process.lock:
        if _process.is_installed:
            return
        _process.is_installed = True
    sys.addaudithook(_hook)
    os.register_at_fork(after_in_child=_mark_child)
    _replace(threading.Thread, "start", _wrap_thread_start)
    _replace(_thread, "start_new_thread", _wrap_start_new_thread)
    _replace(ThreadPoolExecutor, "submit", _wrap_submit)
    _replace(subprocess.Popen, "__init__", _wrap_popen)
    for name in ("system", "posix_spawn", "posix_spawnp", "execv", "execve"):
        _replace(os, name, _wrap_process_start)
    if "multiprocessing.process" in sys.modules:
        _mark_processes()


def _replace(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    if (found := getattr(owner, name, None)) is not None:  # not every system has them all
        wrapped = wrapper(found)
        setattr(owner, name, wrapped)
        home = sys.modules.get(str(getattr(found, "__module__", "")))
        # `os.system` is `posix.system`: pickle looks there
        if home is not None and getattr(home, name, None) is found:
            setattr(home, name, wrapped)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    # By then `multiprocessing.process` is there, and no process was started yet.
    if event == "import" and arguments[0] == "multiprocessing.reduction":
        _mark_processes()


def _wrap_thread_start(start: Callable[[Any], None]) -> Callable[[Any], None]:
    """Start a thread, and remember it if code of a run does.

    Plait hands the context on to its threads.
    """

    @wraps(start)
    def remembering(self: threading.Thread) -> None:
        # The work of a pool's thread is marked piece by piece: the next may be of another run.
        works = getattr(self, "_target", None) is pools._worker  # pyright: ignore
        context = None if works else _context_here()
        if context is not None and not _starts_for_plait():
            _process.threads[self], _process.has_threads = context, True
        start(self)

    return remembering


def _starts_for_plait() -> bool:
    """Return True if Plait itself starts a thread: it hands the context on."""
    here = inspect.currentframe()
    wrapper = here.f_back if here is not None else None
    frame = wrapper.f_back if wrapper is not None else None
    while frame is not None:
        name = str(frame.f_globals.get("__name__") or "")
        if name.partition(".")[0] not in sys.stdlib_module_names:
            return name.startswith("plait.") and name != __name__
        frame = frame.f_back
    return False


def _mark_child() -> None:
    """Mark the environment of a forked child: it may replace itself by another program."""
    os.environ.update(mark())


def _wrap_submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(submit)
    def handing(
        self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        return submit(self, marked_work(function), *args, **kwargs)

    return handing


def _wrap_start_new_thread(start: Callable[..., int]) -> Callable[..., int]:
    @wraps(start)
    def handing(function: Callable[..., Any], *more: Any) -> int:
        return start(marked_work(function), *more)

    return handing


def marked_work(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for another thread to call, marked with the run that it belongs to."""
    context = _context_here()
    if context is None:
        return function

    @wraps(function)
    def call_marked(*args: Any, **kwargs: Any) -> Any:
        before, _work.handed = _work.handed, context
        try:
            return function(*args, **kwargs)
        finally:
            _work.handed = before

    return call_marked


def _wrap_popen(begin: Callable[..., None]) -> Callable[..., None]:
    @wraps(begin)
    def marking(self: Any, *args: Any, **kwargs: Any) -> None:
        # Plait marks its own processes itself
        marked = {} if _starts_for_plait() else mark()
        if marked and len(args) > _ENV:
            args = (
                *args[:_ENV],
                {**(os.environ if args[_ENV] is None else args[_ENV]), **marked},
                *args[_ENV + 1 :],
            )
        elif marked:
            given = kwargs.get("env")
            kwargs["env"] = {**(os.environ if given is None else given), **marked}
        begin(self, *args, **kwargs)

    return marking


_ENV = 10  # the place of env= among the arguments of Popen


def _wrap_process_start(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start a process that takes the environment of this one, with the mark in it as long as that
    takes.
    """

    @wraps(start)
    def marking(*args: Any, **kwargs: Any) -> Any:
        marked = mark()
        if not marked:
            return start(*args, **kwargs)
        if start.__name__ != "system" and len(args) > 2 and args[2] is not os.environ:
            return start(*args[:2], {**args[2], **marked}, *args[3:], **kwargs)
        before = os.environ.get(VARIABLE)
        os.environ.update(marked)
        try:
            return start(*args, **kwargs)
        finally:
            if before is None:
                os.environ.pop(VARIABLE, None)
            else:
                os.environ[VARIABLE] = before

    return marking


def _mark_processes() -> None:
    """Mark processes of `multiprocessing`, in all ways in which they are started."""
    base: Any = sys.modules["multiprocessing.process"].BaseProcess
    if not hasattr(base.start, "__wrapped__"):
        base.start = _wrap_multiprocessing_start(base.start)


def _wrap_multiprocessing_start(start: Callable[[Any], None]) -> Callable[[Any], None]:
    spawning = _wrap_process_start(start)

    @wraps(start)
    def telling(self: Any) -> None:
        marked = mark()
        # it goes with the process, and on to those that it starts
        self._config = {**self._config, **marked}
        # The one that starts others is shared: its environment is not for this process alone.
        served = bool(marked) and "forkserver" in (self._start_method or _default_method())
        (start if served else spawning)(self)

    return telling


def _default_method() -> str:
    return str(sys.modules["multiprocessing.context"]._default_context.get_start_method())


def _marks_at_start() -> str:
    """Return the marks that this process was started with, in its environment or by
    `multiprocessing`.
    """
    processes: Any = sys.modules.get("multiprocessing.process")
    told: Any = (
        processes.current_process()._config.get(VARIABLE, "") if processes is not None else ""
    )
    return f"{_started_with} {told}"
