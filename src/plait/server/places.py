"""The folder of a server's own files: its notice, its key, and the outputs of runs it started.

It stands beside the store, or for a store on another machine in the user's cache, closed to other
users. Everything in it may be dropped at any time.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from typing import IO

import msgspec

from plait.errors import BadAddress
from plait.ids import LogId
from plait.store import Store
from plait.workspace.copy_state import cache_folder

KEY_SIZE = 32
_NOTICE = "server-*.json"


def state_folder(store: Store) -> Path:
    """Return the folder for the servers of a store; it is made if need be."""
    if store.address.startswith("memory:"):
        raise BadAddress(
            store.address,
            "a store in memory ends with its process, so that runs could not be started on it",
        )
    folder = (store.folder or cache_folder(store)) / "server"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def cookie_key(folder: Path) -> bytes:
    """Return the key that cookies are signed with; a new one if there is none."""
    path = folder / "key"
    with suppress(FileNotFoundError):
        known = path.read_bytes()
        if len(known) == KEY_SIZE:
            return known
    made = token_bytes(KEY_SIZE)
    write_private(path, made)
    return made


def write_private(path: Path, data: bytes) -> None:
    """Write a file that other users cannot read, whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(part, path)


class ServerNotice(msgspec.Struct, frozen=True):
    """The address and the token of a server that runs."""

    pid: int
    port: int
    token: str
    store: LogId
    actor: str
    read_only: bool
    version: str

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, path: str = "/") -> str:
        """Return the address of a page, with the token in its fragment."""
        return f"{self.base}{path}#t={self.token}"


class PostedNotice:
    """The notice of this process. It counts while the process lives: it is locked."""

    def __init__(self, folder: Path, notice: ServerNotice) -> None:
        self._path = folder / f"server-{notice.port}.json"
        write_private(self._path, msgspec.json.encode(notice))
        self._file: IO[bytes] = self._path.open("rb")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            self._path.unlink()
        self._file.close()


def running_servers(folder: Path) -> list[ServerNotice]:
    """Return the notices of servers that run. Those of servers that are gone are removed."""
    found = list[ServerNotice]()
    for path in sorted(folder.glob(_NOTICE)):
        with suppress(FileNotFoundError, msgspec.MsgspecError), path.open("rb") as file:
            if is_locked(file):
                found.append(msgspec.json.decode(file.read(), type=ServerNotice))
            else:
                path.unlink()
    return found


def is_locked(file: IO[bytes]) -> bool:
    """True if a living process has the lock of a file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
