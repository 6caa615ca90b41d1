"""Notices acts that go around the session: a process, a connection or a write to a file that no
effect owns.

An audit hook sees each act before the interpreter does it. While code of a run is executing and
neither a tool, a model nor Plait itself owns the act (`owned()`), it is noted in the run's log,
said as a warning, or refused before it happens. The hook is there for good once a run was opened,
so it first looks for the few events that matter, and then for an open run.

It is a smoke detector, not a wall: code that wants to hide from it can. For a wall there are
sandboxes.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import FrameType
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

from plait import inside, secrets
from plait.errors import BypassRefused, InvalidValue
from plait.event.kinds import Bypassed
from plait.runtime.process import THIS_PROCESS

BypassPolicy = Literal["record", "warn", "refuse"]
What = Literal["process", "socket", "file"]

_POLICIES = get_args(BypassPolicy)
VARIABLE = "PLAIT_BYPASS"
NOTED_MAX = 100  # per run
TARGET_MAX = 500  # characters


class WatchedRun(Protocol):
    """The part of a run that is needed here."""

    def note_bypass(self, body: Bypassed) -> object:
        """Write this with the next append.

        It is called from inside the act, in whichever thread: it must not write itself.
        """
        ...


class AuditedAct(NamedTuple):
    """An act that is about to happen, and its target."""

    what: What
    how: str  # the audit event
    target: str


class _RunWatch:
    """One open run, and the acts that were noted of it."""

    def __init__(self, run: WatchedRun, policy: BypassPolicy) -> None:
        self.run, self.policy = run, policy
        self.noted: set[tuple[What, str]] = set()
        self.trees: list[str] = []  # folders that are being removed as a whole
        self.pid = os.getpid()
        # Threads that were there before the run cannot be of it; others that know no run may be.
        self.strangers = {thread.ident for thread in threading.enumerate()}


# the owner of acts in this context; None: no effect, so the program's own code
owner: ContextVar[str | None] = ContextVar("plait_owner", default=None)


# ── watches and owners ───────────────────────────────────────────────────────────────────────


def bind(running: Callable[[], WatchedRun | None]) -> None:
    """Have `running` return the run that the code in this context belongs to. None: no run's code,
    or the context does not say.
    """
    THIS_PROCESS.find_running = running


def policy_of(given: str | None, environ: Mapping[str, str]) -> BypassPolicy:
    """Return the policy: `given` by a workflow, else PLAIT_BYPASS, else `record`."""
    where, wanted = (
        ("bypass", given) if given is not None else (VARIABLE, environ.get(VARIABLE) or "record")
    )
    if wanted not in _POLICIES:
        raise InvalidValue(
            where, f"{wanted!r} is not a policy", f"use one of {', '.join(_POLICIES)}"
        )
    return cast("BypassPolicy", wanted)


def watch(run: WatchedRun, policy: BypassPolicy = "record") -> None:
    """Notice the acts of a run's own code until `unwatch`."""
    with THIS_PROCESS.bypass_lock:
        THIS_PROCESS.watches[id(run)] = _RunWatch(run, policy)
        if not THIS_PROCESS.is_audit_hook_installed:
            THIS_PROCESS.is_audit_hook_installed = True
            sys.addaudithook(_hook)


def unwatch(run: WatchedRun) -> None:
    THIS_PROCESS.watches.pop(id(run), None)


def spare_folder(folder: str) -> None:
    """Let files below this folder be written unnoticed: it is a store, written by Plait itself."""
    THIS_PROCESS.store_folders.add(os.path.join(os.path.abspath(folder), ""))


class owned:  # a class, and not a generator, because it is entered at every effect
    """Acts within have an owner: an effect that is on record, or Plait itself."""

    __slots__ = ("_by", "_token")

    def __init__(self, by: str = "effect") -> None:
        self._by = by

    def __enter__(self) -> None:
        self._token = owner.set(self._by)
        with THIS_PROCESS.bypass_lock:
            THIS_PROCESS.owned_blocks += 1

    def __exit__(self, *_: object) -> None:
        with THIS_PROCESS.bypass_lock:
            THIS_PROCESS.owned_blocks -= 1
        owner.reset(self._token)


# ── the hook ─────────────────────────────────────────────────────────────────────────────────


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    # The hook outlives this module: at the end of the interpreter its globals are None.
    if not _READERS or event not in _READERS or not THIS_PROCESS.watches:
        return
    judging = THIS_PROCESS.judging
    if getattr(judging, "busy", False):
        return
    refused = None
    try:
        judging.busy = True
        refused = _judge_event(event, arguments)
    except Exception:  # an error here must not bring down the act that is merely watched
        pass
    finally:
        judging.busy = False
    if refused is not None:
        raise refused


def _judge_event(event: str, arguments: tuple[Any, ...]) -> BypassRefused | None:
    """Note the act of an audit event; return the refusal if it may not happen."""
    if sys.is_finalizing() or owner.get() is not None or (watch := _watch_here()) is None:
        return None
    act = _READERS[event](event, arguments)
    if act is None or _is_ours(_frame_above(2)):
        return None
    if act.what == "file" and any([act.target.startswith(tree) for tree in watch.trees]):
        return None
    if act.how == "shutil.rmtree":
        watch.trees.append(os.path.join(act.target, ""))
    return _judge_act(watch, act)


def _judge_act(watch: _RunWatch, act: AuditedAct) -> BypassRefused | None:
    target = act.target if len(act.target) <= TARGET_MAX else act.target[: TARGET_MAX - 1] + "…"
    if (act.what, target) not in watch.noted and len(watch.noted) < NOTED_MAX:
        watch.noted.add((act.what, target))
        watch.run.note_bypass(
            Bypassed(act.what, {"how": act.how, "target": target, "policy": watch.policy})
        )
        if watch.policy == "warn":
            _warn(
                f"a {act.what} that no effect owns: {target}. Put it into a tool and call"
                " session.use(tool, …)."
            )
    return BypassRefused(act.what, target) if watch.policy == "refuse" else None


def _warn(text: str) -> None:
    try:
        warnings.warn(secrets.hide_shown_text(text), RuntimeWarning, stacklevel=5)
    # where warnings are errors: only `refuse` may stop an act
    except Warning:
        pass


def _watch_here() -> _RunWatch | None:
    """Return the watch of the run that the code belongs to.

    A thread without a context of ours belongs to the only open run, if there is just one.
    """
    run = THIS_PROCESS.find_running()
    if run is not None:
        watch: _RunWatch | None = THIS_PROCESS.watches.get(id(run))
    else:
        watch = _only_watch()
    # a forked child is another process
    return watch if watch is not None and watch.pid == os.getpid() else None


def _only_watch() -> _RunWatch | None:
    watches: list[_RunWatch] = list(THIS_PROCESS.watches.values())
    thread = threading.current_thread()
    if (
        len(watches) != 1
        or THIS_PROCESS.owned_blocks
        or thread.ident in watches[0].strangers
        or thread.name.startswith("plait-")
    ):
        return None  # while an effect is going on, it may be a thread of a tool
    return watches[0]


def _frame_above(levels: int) -> FrameType | None:
    """Return the frame so many levels above the caller's."""
    frame = inspect.currentframe()
    for _ in range(levels + 1):
        frame = frame.f_back if frame is not None else None
    return frame


def _is_ours(frame: FrameType | None) -> bool:
    """Return True if Plait itself acts: if the nearest code outside the standard library is
    Plait's.
    """
    while frame is not None:
        module = str(frame.f_globals.get("__name__") or "")
        package = module.partition(".")[0]
        # it stands between a caller and the library
        if package not in sys.stdlib_module_names and module != inside.__name__:
            return package == __name__.partition(".")[0]
        frame = frame.f_back
    return False


# ── audit events as acts ─────────────────────────────────────────────────────────────────────


def _process(event: str, arguments: tuple[Any, ...]) -> AuditedAct | None:
    words = arguments[0] if event == "os.system" else arguments[1]
    if isinstance(words, (list, tuple)):
        return AuditedAct("process", event, " ".join(map(_text, cast("list[Any]", words))))
    return AuditedAct("process", event, _text(words))


def _socket(event: str, arguments: tuple[Any, ...]) -> AuditedAct | None:
    address = arguments[1]
    if isinstance(address, tuple):
        host, port = (*cast("tuple[Any, ...]", address), "", "")[:2]
        return AuditedAct("socket", event, f"{host}:{port}")
    return AuditedAct("socket", event, _text(address))


def _opening(event: str, arguments: tuple[Any, ...]) -> AuditedAct | None:
    path, mode, flags = arguments
    writes = (
        isinstance(flags, int)
        and flags & _WRITING
        or isinstance(mode, str)
        and any([letter in mode for letter in "wax+"])
    )
    return _file(event, (path,)) if writes else None


def _file(event: str, arguments: tuple[Any, ...]) -> AuditedAct | None:
    path = arguments[0]
    if not isinstance(path, (str, bytes, os.PathLike)):  # a descriptor: it was opened before
        return None
    text = os.path.abspath(os.fsdecode(cast("str", path)))
    return None if _is_spared(text) else AuditedAct("file", event, text)


def _second_path(event: str, arguments: tuple[Any, ...]) -> AuditedAct | None:
    """Read the second path: the one that comes into being."""
    return _file(event, arguments[1:])


def _read_name_in_folder(event: str, arguments: tuple[Any, ...]) -> AuditedAct | None:
    """Read a name in a folder that is given by its descriptor."""
    path, folder = arguments[0], arguments[-1]
    if isinstance(folder, int) and folder >= 0 and isinstance(path, (str, bytes)):
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    return _file(event, (path,))


def _is_spared(path: str) -> bool:
    if (
        path.endswith((".pyc", "/__pycache__"))
        or "/__pycache__/" in path
        or "/.plait/" in path
        or path.endswith("/.plait")
    ):
        return True
    return (
        path in _DEVICES
        or path.startswith(("/dev/pts/", "/dev/fd/", "/proc/self/"))
        or any([path.startswith(each) for each in THIS_PROCESS.store_folders])
    )


def _text(value: Any) -> str:
    return (
        os.fsdecode(cast("str", value))
        if isinstance(value, (str, bytes, os.PathLike))
        else repr(value)
    )


_DEVICES = frozenset(
    {"/dev/null", "/dev/tty", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/ptmx", "/dev/zero"}
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_READERS: dict[str, Callable[[str, tuple[Any, ...]], AuditedAct | None]] = {
    "subprocess.Popen": _process,
    "os.system": _process,
    "os.exec": _process,
    "os.posix_spawn": _process,
    "os.spawn": lambda event, arguments: _process(event, arguments[1:]),
    "pty.spawn": lambda event, arguments: _process(event, (None, arguments[0])),
    "socket.connect": _socket,
    "socket.sendto": _socket,
    "open": _opening,
    "os.rename": _second_path,
    "os.link": _second_path,
    "os.symlink": _second_path,
    "os.remove": _read_name_in_folder,
    "os.rmdir": _read_name_in_folder,
    "os.mkdir": _read_name_in_folder,
    "os.truncate": _file,
    "shutil.rmtree": _file,
}
