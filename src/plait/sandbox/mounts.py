"""The overlay of a sandbox, mounted where only its own processes see it.

Root mounts it from a thread: a thread can have a mount namespace of its own, which the processes
that it starts inherit, and three programs less are started for each command. Other users ask
unshare(1) for a user namespace first, in which a mount is allowed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from plait.workspace.masks import masked_files

_NEW_MOUNTS = 0x00020000
_PRIVATE = 0x4000 | 1 << 18  # for the whole tree: nothing that is mounted here is seen elsewhere


class Overlay(NamedTuple):
    """The layers of an overlay. It is mounted over the upper folder."""

    lower: str
    upper: str
    work: str

    @property
    def options(self) -> str:
        return f"lowerdir={self.lower},upperdir={self.upper},workdir={self.work},userxattr"


def can_mount_by_thread() -> bool:
    """Return True if threads of this process may mount."""
    return os.geteuid() == 0 and _may_mount()


@functools.cache
def _may_mount() -> bool:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(_libc().unshare(_NEW_MOUNTS) == 0))
    thread.start()
    thread.join()
    return found == [True]


# ── masks ────────────────────────────────────────────────────────────────────────────────────


def secret_masks(
    mounts: Iterable[tuple[str, str]], cache: str, hidden: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return the binds that cover files with secrets in mounted heavy folders: a file without the
    secrets, and its path in the sandbox.

    `mounts`: the heavy folders, each with its path on this machine and in the sandbox. `hidden`:
    paths that are not visible anyway.
    """
    every = list(mounts)
    masked = {
        source: masked_files(source).files
        for source in dict.fromkeys(source for source, _ in every)
    }
    return [
        (_mask_file(cache, shown), f"{dest}/{path}")
        for source, dest in every
        for path, shown in masked[source].items()
        if not any(f"{source}/{path}".startswith(f"{each}/") for each in hidden)
    ]


def readable_parts(folder: str) -> list[str]:
    """Return the parts of a heavy folder without secrets, for a rung that can only allow paths."""
    masked = masked_files(folder).files
    above = {
        "/".join(path.split("/")[:end]) for path in masked for end in range(path.count("/") + 1)
    }
    if not masked:
        return [folder]
    inside = [
        (each, name) for each in sorted(above) for name in os.listdir(os.path.join(folder, each))
    ]
    paths = [f"{each}/{name}" if each else name for each, name in inside]
    return [f"{folder}/{path}" for path in paths if path not in masked and path not in above]


def _mask_file(cache: str, content: bytes) -> str:
    """Return a file of this content in the cache, which all sandboxes share."""
    folder = os.path.join(cache, "masks")
    path = os.path.join(folder, sha256(content).hexdigest())
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
        with open(temporary, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o444)
        os.replace(temporary, path)
    return path


class ThreadProcess:
    """A process that a thread started.

    The thread stays until `end`: the kernel takes its end for that of the parent.
    """

    def __init__(
        self, overlay: Overlay | None, popen: Callable[[], subprocess.Popen[bytes]]
    ) -> None:
        self._overlay, self._popen = overlay, popen
        self._process: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._start_and_stay, name="sandbox-mount", daemon=True
        )

    def begin(self) -> subprocess.Popen[bytes]:
        self._thread.start()
        self._ready.wait()
        if self._process is None:
            self._thread.join()
            raise self._error or RuntimeError("nothing was started")
        return self._process

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _start_and_stay(self) -> None:
        try:
            if self._overlay is not None:
                _mount(self._overlay)
            self._process = self._popen()
        except BaseException as error:  # `begin` raises it, in the thread that waits there
            self._error = error
            return
        finally:
            self._ready.set()
        self._over.wait()


def _mount(overlay: Overlay) -> None:
    libc = _libc()
    _check(libc.unshare(_NEW_MOUNTS), "a mount namespace")
    _check(libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None), "mounts of its own")
    options, target = os.fsencode(overlay.options), os.fsencode(overlay.upper)
    _check(libc.mount(b"plait", target, b"overlay", ctypes.c_ulong(0), options), "the overlay")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(done: int, what: str) -> None:
    if done != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
