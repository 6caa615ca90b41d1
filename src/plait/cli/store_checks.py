"""Checks of a store: its file, its file system, and the SQLite it rests on."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from plait.cli.machine_checks import version_numbers
from plait.cli.report import Check
from plait.cli.server_checks import check_server_store
from plait.cli.store_report import count_check, failed_check, size_text
from plait.errors import BadAddress, SchemaTooNew, StoreBusy, StoreCorrupt, StoreError, StoreFailed
from plait.store.postgres.address import is_postgres
from plait.store.sqlite import FILE
from plait.store.sqlite.database import PAGE_SIZE, PRAGMAS, SQLITE_MIN
from plait.store.sqlite.inspect import inspect
from plait.store.sqlite.schema import MIGRATIONS

BUSY_S = 5.0  # a store's own patience is a minute; a person is waiting here
FREE_LOW = 100_000_000  # bytes; below, a warning
MOUNTS = Path("/proc/self/mountinfo")


# Several machines may have these mounted, and the locks and the shared memory that WAL rests on end
# at one machine.
SHARED = frozenset(
    "9p acfs afs beegfs ceph cifs coda davfs fuse.ceph fuse.davfs fuse.gcsfuse fuse.glusterfs"
    " fuse.rclone fuse.s3fs fuse.sshfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 prl_fs smb"
    " smb2 smb3 smbfs vboxsf virtiofs fuse.vmhgfs-fuse vmhgfs".split()
)
FLEETING = frozenset({"tmpfs", "ramfs"})  # gone with the power, fsynced or not


# These errors send people to the doctor, so the doctor names a further step.
NEXT: dict[type[StoreError], str] = {
    StoreCorrupt: "Keep a copy of the whole folder, then restore it from a backup.",
    StoreFailed: "Check the disk, and whether you own the files.",
    StoreBusy: "Find the process that holds the lock and let it end, then try again.",
}


# ── the store ────────────────────────────────────────────────────────────────────────────────


def check_store(address: str) -> tuple[dict[str, Any], list[Check]]:
    """Return the facts about the store at a canonical address, and the checks made of it."""
    scheme, _, rest = address.partition(":")
    store: dict[str, Any] = dict.fromkeys(
        ("address", "path", "exists", "schema", "schema_known", "logs", "events", "blobs", "bytes")
    )
    store |= {"address": address, "filesystem": None, "pragmas": None, "server": None}
    if is_postgres(address):
        return store, check_server_store(store)
    store["schema_known"] = len(MIGRATIONS)
    library = inspect(None, known=len(MIGRATIONS))
    store["pragmas"] = library["pragmas"]
    checks = [_memory_check(store)] if scheme == "memory" else _disk_checks(store, Path(rest))
    return store, [*checks, _pragma_check(store["pragmas"]), _sqlite_check(library["sqlite"])]


def _memory_check(store: dict[str, Any]) -> Check:
    store |= {"exists": False, "logs": 0, "events": 0, "blobs": 0, "bytes": 0}
    return Check(
        "store",
        "ok",
        f"{store['address']}, in memory: empty at first, and gone with the process that opens it",
    )


def _disk_checks(store: dict[str, Any], folder: Path) -> list[Check]:
    path = str(folder / FILE)
    files = [path, f"{path}-wal", f"{path}-shm"]
    store |= {"path": path, "exists": os.path.lexists(path)}
    try:
        trace = _FileStamp.of(path)
        store["bytes"] = (trace.size or 0) + (trace.wal_size or 0)
        found = _inspect_file(path, trace)
        store |= {
            key: found[key]
            for key in ("exists", "schema", "logs", "events", "blobs", "pragmas")
            if key in found
        }
        checks = [_store_check(store)]
        if found["exists"]:
            checks += [_schema_check(found["schema"]), _integrity_check(found["quick_check"])]
    except SchemaTooNew as error:
        store["schema"] = error.found
        checks = [Check("store", "ok", store["address"]), failed_check("schema", error, NEXT)]
    except StoreError as error:
        checks = [failed_check("store", error, NEXT)]
    return [*checks, _filesystem_check(store, folder, files)]


def _inspect_file(path: str, before: _FileStamp) -> dict[str, Any]:
    """Return the contents of the file: schema, counts, settings."""
    if not before.size and before.wal_size:  # SQLite deletes such a log at the first touch
        raise StoreCorrupt(path, "it is empty or gone, while its write-ahead log is still there")
    if before.size is None:
        return {"exists": False, "logs": 0, "events": 0, "blobs": 0}
    # a store that is open has a write-ahead log beside it
    if before.wal_size is None or not before.size:
        try:
            found = inspect(path, known=len(MIGRATIONS), still=True)
        except StoreError:
            if _FileStamp.of(path) == before:
                raise
        else:
            if _FileStamp.of(path) == before:
                return found | {"exists": True}
        # It was opened in the meantime, so the file was not still: read again, under locks.
    return inspect(path, known=len(MIGRATIONS), busy_s=BUSY_S) | {"exists": True}


class _FileStamp(NamedTuple):
    """Size and time of a file: enough to see that it changed."""

    size: int | None
    time_ns: int
    wal_size: int | None

    @classmethod
    def of(cls, path: str) -> _FileStamp:
        file, wal = _stat(path), _stat(f"{path}-wal")
        return cls(file and file.st_size, file.st_mtime_ns if file else 0, wal and wal.st_size)


def _stat(path: str) -> os.stat_result | None:
    """Return the file's status; None if there is no file.

    Any other failure is raised as an error of the store.
    """
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise BadAddress(os.path.dirname(path), "there is a file of that name") from error
    except OSError as error:
        raise StoreFailed(path, error.strerror or str(error)) from error


def _store_check(store: dict[str, Any]) -> Check:
    if not store["exists"]:
        return Check("store", "ok", f"{store['address']}: none yet; it is made on first use")
    if not store["schema"]:
        return Check(
            "store",
            "ok",
            f"{store['address']}: an empty file, in which the store is made on first use",
        )
    return count_check(store)


def _schema_check(found: int) -> Check:
    known = len(MIGRATIONS)
    if found == known:
        return Check("schema", "ok", f"{found}, the latest this Plait knows")
    return Check(
        "schema",
        "ok",
        f"{found}; this Plait knows up to {known} and brings the store there on next use",
    )


def _integrity_check(found: str) -> Check:
    if found == "ok":
        return Check(
            "integrity",
            "ok",
            "SQLite's quick_check found nothing wrong (the events' own hashes are not checked"
            " here)",
        )
    return Check(
        "integrity", "fail", f"SQLite's quick_check: {' '.join(found.split())}", NEXT[StoreCorrupt]
    )


# ── the disk and SQLite ──────────────────────────────────────────────────────────────────────


def _filesystem_check(store: dict[str, Any], folder: Path, files: Sequence[str]) -> Check:
    there = next(str(place) for place in (folder, *folder.parents) if os.path.isdir(place))
    type, mount = _mount(there)
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return failed_check("filesystem", StoreFailed(there, error.strerror or str(error)), NEXT)
    refused = next(
        (file for file in (there, *files) if os.path.exists(file) and not _is_writable(file)), None
    )
    store["filesystem"] = {
        "type": type,
        "mount": mount,
        "free_bytes": free,
        "writable": refused is None,
    }
    detail = f"{type}{f' at {mount}' if mount else ''}, {size_text(free)} free"
    if refused:
        return Check(
            "filesystem",
            "fail",
            f"{detail}; {refused} is not writable",
            "Change its owner or mode, or choose another folder.",
        )
    if not free:
        return Check(
            "filesystem", "fail", detail, "Free some space: nothing can be written until then."
        )
    if type in SHARED:
        return Check(
            "filesystem",
            "warn",
            f"{detail}; locks may not hold across machines",
            "Put the store on a local disk.",
        )
    if type in FLEETING:
        return Check(
            "filesystem",
            "warn",
            f"{detail}; it is memory, and empty after a restart",
            "Put the store on a disk to keep it.",
        )
    if free < FREE_LOW:
        return Check("filesystem", "warn", detail, "Free some space soon.")
    return Check("filesystem", "ok", detail)


def _is_writable(path: str) -> bool:
    return os.access(path, os.W_OK | os.X_OK if os.path.isdir(path) else os.W_OK)


def _mount(folder: str) -> tuple[str, str | None]:
    """Return the type of the file system of a folder, and its mount point; "unknown" where the
    system does not tell.
    """
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        return "unknown", None
    type, longest = "unknown", None
    for line in lines:  # 36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/sda1 rw
        left, dash, right = line.partition(" - ")
        if not dash:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split(" ")[4])
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        # of two at one point, the later one covers the earlier
        if inside and len(point) >= len(longest or ""):
            type, longest = right.split(" ")[0], point
    return type, longest


def _pragma_check(found: dict[str, Any]) -> Check:
    required = {"journal_mode": "wal", "page_size": PAGE_SIZE, **PRAGMAS}
    wrong = {name: value for name, value in found.items() if value != required[name]}
    if not wrong:
        return Check("pragmas", "ok", f"all {len(found)} as required, synchronous=FULL among them")
    detail = ", ".join(
        f"{name} is {value} where {required[name]} is needed" for name, value in wrong.items()
    )
    if wrong.keys() & PRAGMAS.keys():
        return Check(
            "pragmas",
            "fail",
            detail,
            "Install apsw from its wheel: this SQLite was built without them.",
        )
    # These two are kept in the file. The mode is set at every opening, the page size only when a
    # file is made.
    if "journal_mode" in wrong:
        return Check(
            "pragmas",
            "warn",
            detail,
            "The next use sets it back; find out which program changed it.",
        )
    return Check("pragmas", "warn", detail, "It works, only slower: nothing has to be done.")


def _sqlite_check(found: str) -> Check:
    least = ".".join(map(str, SQLITE_MIN))
    if version_numbers(found) < SQLITE_MIN:
        return Check(
            "sqlite",
            "fail",
            f"{found}, which may corrupt a store; {least} is needed",
            "Upgrade with pip install -U apsw.",
        )
    return Check("sqlite", "ok", f"{found}; at least {least} is needed")
