"""What goes around the session is noticed: a process, a connection or a write to a file that no
effect owns.

An audit hook sees what the interpreter is about to do. While code of a run is executing and neither
a tool, a model nor Plait itself owns what happens (`owned()`), such an act is noted in the run's
log, said as a warning, or refused before it happens. The hook is there for good once a run was
opened, so it asks first whether an event is one of the few that matter, and then whether any run is
open.

It is a smoke detector, not a wall: code that wants to hide from it can. For a wall there are
sandboxes.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

from plait import inside, secrets
from plait.errors import BypassRefused, InvalidValue
from plait.event.kinds import Bypassed

Policy = Literal["record", "warn", "refuse"]
What = Literal["process", "socket", "file"]

_POLICIES = get_args(Policy)
VARIABLE = "PLAIT_BYPASS"
NOTED_MAX = 100  # per run
TARGET_MAX = 500  # characters


class Watched(Protocol):
    """What is needed of a run."""

    def noticed(self, body: Bypassed) -> object:
        """Write this with the next append.

        It is called from inside the act, in whichever thread: it must not write itself.
        """
        ...


class Act(NamedTuple):
    """Something that is about to happen, and to what."""

    what: What
    how: str  # the audit event
    target: str


class _Watch:
    """One open run, and what was noted of it."""

    def __init__(self, run: Watched, policy: Policy) -> None:
        self.run, self.policy = run, policy
        self.noted: set[tuple[What, str]] = set()
        self.trees: list[str] = []  # folders that are being removed as a whole
        self.pid = os.getpid()
        # Threads that were there before the run cannot be of it; others that know no run may be.
        self.strangers = {thread.ident for thread in threading.enumerate()}


# whose act this is; None: nobody's, so the program's own
owner: ContextVar[str | None] = ContextVar("plait_owner", default=None)

_watches: dict[int, _Watch] = {}  # by identity of the run
_spared: set[str] = set()  # folders of stores
_thread = threading.local()
_owning = 0  # blocks that are owned right now, in any thread
_lock = threading.Lock()
_installed = False


def _nobody() -> Any:
    return None


_running: Callable[[], Any] = _nobody  # the run whose code this is, as its context says


# ── who is watched, and what is owned ────────────────────────────────────────────────────────


def bind(running: Callable[[], Watched | None]) -> None:
    """From now on this says whose code is executing in this context; None: no run's, or nobody
    knows.
    """
    global _running
    _running = running


def policy_of(given: str | None, environ: Mapping[str, str]) -> Policy:
    """What a workflow asks for, else PLAIT_BYPASS, else `record`."""
    where, wanted = (
        ("bypass", given) if given is not None else (VARIABLE, environ.get(VARIABLE) or "record")
    )
    if wanted not in _POLICIES:
        raise InvalidValue(
            where, f"{wanted!r} is not a policy", f"use one of {', '.join(_POLICIES)}"
        )
    return cast("Policy", wanted)


def watch(run: Watched, policy: Policy = "record") -> None:
    """This run is open: what its code does by itself is noticed until `unwatch`."""
    global _installed
    with _lock:
        _watches[id(run)] = _Watch(run, policy)
        if not _installed:
            _installed = True
            sys.addaudithook(_hook)


def unwatch(run: Watched) -> None:
    _watches.pop(id(run), None)


def spare(folder: str) -> None:
    """What is written below this folder is Plait's own: a store."""
    _spared.add(os.path.join(os.path.abspath(folder), ""))


class owned:  # a class, and not a generator, because it is entered at every effect
    """What happens within is somebody's: it is on record, or Plait's own work."""

    __slots__ = ("_by", "_token")

    def __init__(self, by: str = "effect") -> None:
        self._by = by

    def __enter__(self) -> None:
        global _owning
        self._token = owner.set(self._by)
        with _lock:
            _owning += 1

    def __exit__(self, *_: object) -> None:
        global _owning
        with _lock:
            _owning -= 1
        owner.reset(self._token)


# ── the hook ─────────────────────────────────────────────────────────────────────────────────


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _HEARD or not _watches or getattr(_thread, "busy", False):
        return
    refused = None
    try:
        _thread.busy = True
        refused = _hear(event, arguments)
    except Exception:  # whatever is wrong here must not bring down what is merely watched
        pass
    finally:
        _thread.busy = False
    if refused is not None:
        raise refused


def _hear(event: str, arguments: tuple[Any, ...]) -> BypassRefused | None:
    """Note an act; returns the refusal if it may not happen."""
    if sys.is_finalizing() or owner.get() is not None or (watch := _watch_of_this()) is None:
        return None
    act = _HEARD[event](event, arguments)
    if act is None or _is_ours(sys._getframe(2)):  # pyright: ignore[reportPrivateUsage]
        return None
    if act.what == "file" and any([act.target.startswith(tree) for tree in watch.trees]):
        return None
    if act.how == "shutil.rmtree":
        watch.trees.append(os.path.join(act.target, ""))
    return _judged(watch, act)


def _judged(watch: _Watch, act: Act) -> BypassRefused | None:
    target = act.target if len(act.target) <= TARGET_MAX else act.target[: TARGET_MAX - 1] + "…"
    if (act.what, target) not in watch.noted and len(watch.noted) < NOTED_MAX:
        watch.noted.add((act.what, target))
        watch.run.noticed(
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
        warnings.warn(secrets.hide_told(text), RuntimeWarning, stacklevel=5)
    # where warnings are errors: it is no reason to stop the act, which `refuse` is for
    except Warning:
        pass


def _watch_of_this() -> _Watch | None:
    """The run whose code this is.

    A thread without a context of ours belongs to the only open run, if there is just one.
    """
    run = _running()
    if run is not None:
        watch = _watches.get(id(run))
    else:
        watch = _only_watch()
    # a forked child is another process
    return watch if watch is not None and watch.pid == os.getpid() else None


def _only_watch() -> _Watch | None:
    watches = list(_watches.values())
    thread = threading.current_thread()
    if (
        len(watches) != 1
        or _owning
        or thread.ident in watches[0].strangers
        or thread.name.startswith("plait-")
    ):
        return None  # while an effect is going on, it may be a thread of a tool
    return watches[0]


def _is_ours(frame: Any) -> bool:
    """Whether Plait itself does it: the nearest code that is not the standard library's."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__") or "")
        package = module.partition(".")[0]
        # it stands between a caller and the library
        if package not in sys.stdlib_module_names and module != inside.__name__:
            return package == __name__.partition(".")[0]
        frame = frame.f_back
    return False


# ── what is heard ────────────────────────────────────────────────────────────────────────────


def _process(event: str, arguments: tuple[Any, ...]) -> Act | None:
    words = arguments[0] if event == "os.system" else arguments[1]
    if isinstance(words, (list, tuple)):
        return Act("process", event, " ".join(map(_text, cast("list[Any]", words))))
    return Act("process", event, _text(words))


def _socket(event: str, arguments: tuple[Any, ...]) -> Act | None:
    address = arguments[1]
    if isinstance(address, tuple):
        host, port = (*cast("tuple[Any, ...]", address), "", "")[:2]
        return Act("socket", event, f"{host}:{port}")
    return Act("socket", event, _text(address))


def _opened(event: str, arguments: tuple[Any, ...]) -> Act | None:
    path, mode, flags = arguments
    writes = (
        isinstance(flags, int)
        and flags & _WRITING
        or isinstance(mode, str)
        and any([letter in mode for letter in "wax+"])
    )
    return _file(event, (path,)) if writes else None


def _file(event: str, arguments: tuple[Any, ...]) -> Act | None:
    path = arguments[0]
    if not isinstance(path, (str, bytes, os.PathLike)):  # a descriptor: it was opened before
        return None
    text = os.path.abspath(os.fsdecode(cast("str", path)))
    return None if _is_spared(text) else Act("file", event, text)


def _made(event: str, arguments: tuple[Any, ...]) -> Act | None:
    """What comes into being: the second path."""
    return _file(event, arguments[1:])


def _within(event: str, arguments: tuple[Any, ...]) -> Act | None:
    """A name in a folder that is given by its descriptor."""
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
        or any([path.startswith(each) for each in _spared])
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
_HEARD: dict[str, Callable[[str, tuple[Any, ...]], Act | None]] = {
    "subprocess.Popen": _process,
    "os.system": _process,
    "os.exec": _process,
    "os.posix_spawn": _process,
    "os.spawn": lambda event, arguments: _process(event, arguments[1:]),
    "pty.spawn": lambda event, arguments: _process(event, (None, arguments[0])),
    "socket.connect": _socket,
    "socket.sendto": _socket,
    "open": _opened,
    "os.rename": _made,
    "os.link": _made,
    "os.symlink": _made,
    "os.remove": _within,
    "os.rmdir": _within,
    "os.mkdir": _within,
    "os.truncate": _file,
    "shutil.rmtree": _file,
}
