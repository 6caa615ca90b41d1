"""The few files below /etc that programs need, copied into one folder.

A bind per file would cost more than all the rest of a sandbox together. The folder is made once,
and again when one of the files changes; its name has a digest of their state. Folders, which hold
hundreds of links, are bound on top of it.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
import tempfile
from hashlib import sha256

from plait.sandbox.base import Network

USER = 1000  # inside, the user that runs Plait appears as an ordinary user

_FILES = (
    "ld.so.cache",
    "ld.so.conf",
    "localtime",
    "timezone",
    "mime.types",
    "protocols",
    "services",
    "magic",
    "debian_version",
    "os-release",
)
_FOLDERS = ("alternatives", "fonts")
_NETWORK_FILES = (
    "resolv.conf",
    "hosts",
    "nsswitch.conf",
    "gai.conf",
    "host.conf",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
)
# ssl as a whole would hold private keys
_NETWORK_FOLDERS = ("ssl/certs", "pki/tls/certs", "pki/ca-trust")
_OWN = {
    "passwd": (
        f"user:x:{USER}:{USER}:user:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
    ),
    "group": f"user:x:{USER}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
}


def file_names(network: Network) -> tuple[str, ...]:
    return (*_FILES, *(_NETWORK_FILES if network == "on" else ()))


def folder_paths(network: Network) -> tuple[str, ...]:
    """Return those folders below /etc that exist here."""
    wanted = (*_FOLDERS, *(_NETWORK_FOLDERS if network == "on" else ()))
    return tuple(f"/etc/{name}" for name in wanted if os.path.isdir(f"/etc/{name}"))


def etc_folder(cache: str, network: Network) -> str:
    """Return the folder to be bound as /etc."""
    known = (
        cache,
        network,
        tuple(_stamp(f"/etc/{name}") for name in file_names(network)),
        folder_paths(network),
    )
    found = _cached_folder(*known)
    if not os.path.isdir(found):  # the cache was emptied
        _cached_folder.cache_clear()
        found = _cached_folder(*known)
    return found


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        info = os.stat(path)
        return info.st_ino, info.st_size, info.st_mtime_ns
    except OSError:
        return 0, 0, 0


@functools.lru_cache(64)
def _cached_folder(
    cache: str, network: Network, stamps: tuple[tuple[int, int, int], ...], places: tuple[str, ...]
) -> str:
    folder = (
        f"{cache}/etc-{sha256(repr((network, stamps, places, _OWN)).encode()).hexdigest()[:16]}"
    )
    if not os.path.isdir(folder):
        os.makedirs(cache, exist_ok=True)
        _make_folder(cache, folder, network)
    return folder


def _make_folder(cache: str, folder: str, network: Network) -> None:
    """Make the folder whole or not at all; another process may be making the same one."""
    making = tempfile.mkdtemp(prefix="making-etc-", dir=cache)
    try:
        for name in file_names(network):
            _copy_if_public(f"/etc/{name}", f"{making}/{name}")
        for path in folder_paths(network):
            os.makedirs(making + path.removeprefix("/etc"))
        for name, text in _OWN.items():
            if not os.path.exists(f"{making}/{name}"):
                _write(f"{making}/{name}", text)
        os.chmod(making, 0o755)
        os.rename(making, folder)
    except OSError:
        if not os.path.isdir(folder):
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _copy_if_public(source: str, target: str) -> None:
    """Copy a file that all users may read; others stay out of the sandbox."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        mode = os.stat(source).st_mode
    except OSError:
        return
    if stat.S_ISREG(mode) and mode & 0o004:
        shutil.copyfile(source, target)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
