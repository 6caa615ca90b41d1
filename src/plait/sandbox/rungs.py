"""The ladder: the ways in which this machine can keep a command to itself, best first.

Each rung is tried once: kernels, containers and distributions switch parts of this off in more ways
than can be asked about. The findings are kept for the process. Only the first two rungs are ever
taken by default; a lower one has to be asked for by name.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from typing import NamedTuple

from plait.errors import IsolationMissing
from plait.sandbox import bubblewrap, confine, seccomp
from plait.sandbox.base import Capability
from plait.sandbox.mounts import Overlay

RUNGS = ("overlay", "bubblewrap", "landlock", "host")
DEFAULT = RUNGS[:2]

_INSTALL = "Install it: `apt install bubblewrap`, `dnf install bubblewrap` or `apk add bubblewrap`"
_NAMESPACES = {
    "/proc/sys/kernel/unprivileged_userns_clone": (
        "0",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=15000"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}
_TRY = (
    "--unshare-user",
    "--disable-userns",
    "--unshare-all",
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
)
_ODD = set(",:\\\"' \t\n")  # characters that the options of a mount cannot have
_MOUNT = 'm=$1; o=$2; t=$3; shift 3; "$m" -t overlay plait -o "$o" "$t" && exec "$@"'


class Finding(NamedTuple):
    """The result of trying a rung: offered, or the reason why not and the remedy."""

    offered: bool
    why: str = ""
    fix: str = ""


def find(rung: str, folder: str) -> Finding:
    """Try a rung. `folder`: that of the copies, since not every file system can be layered."""
    return _FINDERS[rung](os.environ.get("PATH", os.defpath), folder)


def choose(wanted: str, folder: str) -> tuple[str, dict[str, str]]:
    """Return the rung to take, and why each better one was not; raises IsolationMissing."""
    if wanted and wanted not in RUNGS:
        raise IsolationMissing(
            repr(wanted), "no rung is called that", f"Name one of {', '.join(RUNGS)}"
        )
    passed: dict[str, str] = {}
    found = Finding(False)
    for rung in (wanted,) if wanted else DEFAULT:
        found = find(rung, folder)
        if found.offered:
            return rung, passed
        passed[rung] = found.why
    step = (
        found.fix
        if wanted
        else f"{found.fix}; or take less on purpose: isolation='landlock' or isolation='host'"
    )
    raise IsolationMissing(f"isolation {wanted!r}" if wanted else "isolation", found.why, step)


def capabilities(folder: str) -> tuple[Capability, ...]:
    """Return the rungs as capabilities. The text of an offered one lists its gaps."""
    found = {rung: find(rung, folder) for rung in RUNGS}
    said = {rung: f"leaves open: {', '.join(left_open(rung, 'off'))}" for rung in RUNGS}
    return tuple(
        Capability(rung, *each._replace(why=each.why or said[rung])) for rung, each in found.items()
    )


def left_open(rung: str, network: str, *, in_place: bool = False) -> list[str]:
    """Return the things that a command can reach on a rung besides its own files.

    They are recorded with the placement, so that a policy can refuse it.
    """
    if rung == "host":
        return ["everything"]
    found = ["names of files", "modes and times of files"]
    if rung != "landlock":
        program = bwrap()
        scoped = program is not None and bubblewrap.scopes_sockets(program)
        found = [
            "sockets in mounted folders",
            *(["abstract sockets"] if network == "on" and not scoped else []),
        ]
    return [
        *found,
        *(["network"] if network == "on" else []),
        *(["ignored files of the folder", "withheld files of the folder"] if in_place else []),
    ]


def bwrap() -> str | None:
    return shutil.which("bwrap")


def version() -> str:
    """Return the version of bubblewrap; "" if it is not installed."""
    return _version(bwrap())


@functools.cache
def _version(path: str | None) -> str:
    return _run_for_output([path, "--version"]).strip() if path else ""


def overlay_prefix(layers: Overlay) -> list[str]:
    """Return words to put before a command, which mount the layers as one over the upper folder.

    Only that command sees the mount.
    """
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [
        _program_path("unshare"),
        "--mount",
        *as_root,
        "/bin/sh",
        "-c",
        _MOUNT,
        "sh",
        _program_path("mount"),
        layers.options,
        layers.upper,
    ]


NOT_JOINED = "nsenter: cannot open"  # printed by nsenter if the process is gone


def joining_prefix(pid: int) -> list[str]:
    """Return words to put before a command, which let it join the mounts of this process."""
    as_user = [] if os.geteuid() == 0 else [f"--user=/proc/{pid}/ns/user", "--preserve-credentials"]
    return [_program_path("nsenter"), *as_user, f"--mount=/proc/{pid}/ns/mnt"]


def _program_path(name: str) -> str:
    return (
        shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin:/usr/sbin:/sbin")
        or name
    )


# ── finding out ──────────────────────────────────────────────────────────────────────────────


@functools.cache
def _find_bubblewrap(path: str, _: str) -> Finding:
    program = shutil.which("bwrap", path=path)
    if program is None:
        return Finding(False, "bubblewrap is not installed", _INSTALL)
    failed = _failure([program, *_TRY, "true"])
    return (
        Finding(True)
        if failed is None
        else Finding(False, f"bubblewrap does not work: {failed}", _namespace_fix())
    )


def _namespace_fix() -> str:
    """Return the remedy for missing user namespaces: the setting that disables them, if known."""
    for path, (off, step) in _NAMESPACES.items():
        if _read_setting(path) == off:
            return f"User namespaces are switched off; as root: `{step}`"
    return (
        "In a container, allow user namespaces (docker: --security-opt seccomp=unconfined"
        " --security-opt apparmor=unconfined)"
    )


@functools.cache
def _find_overlay(path: str, folder: str) -> Finding:
    below = _find_bubblewrap(path, "")
    if not below.offered:
        return below
    if _ODD & set(folder):
        return Finding(
            False,
            f"{folder!r} has characters that an overlay cannot name",
            "Put the store into a folder with a plain name",
        )
    try:
        with tempfile.TemporaryDirectory(
            prefix="probe-", dir=_existing_folder(folder), ignore_cleanup_errors=True
        ) as room:
            failed = _try_overlay(room)
    except OSError as error:
        failed = str(error)
    step = (
        "Put the store on a local file system that overlays can lie on (ext4, xfs, btrfs, tmpfs),"
        " with Linux 5.11 or newer"
    )
    return (
        Finding(True)
        if failed is None
        else Finding(False, f"overlayfs does not work in {folder}: {failed}", step)
    )


def _existing_folder(folder: str) -> str:
    """Return the folder, or the nearest existing one above it."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _try_overlay(room: str) -> str | None:
    """Change a file through an overlay; return the failure, or None."""
    for name in ("lower", "upper", "work"):
        os.mkdir(f"{room}/{name}")
    with open(f"{room}/lower/file", "w") as file:
        file.write("before")
    prefix = overlay_prefix(Overlay(f"{room}/lower", f"{room}/upper", f"{room}/work"))
    failed = _failure(
        [
            *prefix,
            "/bin/sh",
            "-c",
            'cd "$0" && echo after >>file && test "$(wc -l <file)" = 1',
            f"{room}/upper",
        ]
    )
    return (
        failed
        if failed is not None
        else (
            None
            if os.path.exists(f"{room}/upper/file")
            else "nothing came to lie in the upper folder"
        )
    )


@functools.cache
def _find_landlock(_: str, __: str) -> Finding:
    if seccomp.machine() is None:
        return Finding(
            False,
            "there is no filter of system calls for this architecture",
            "Use x86_64 or aarch64, or bubblewrap",
        )
    found = confine.landlock_version()
    if found < confine.VERSION_MIN:
        why = (
            "the kernel has no landlock"
            if found < 1
            else f"landlock is of version {found}, {confine.VERSION_MIN} is needed for signals"
        )
        return Finding(False, why, "Use Linux 6.12 or newer, started with lsm=…,landlock")
    return Finding(True)


def _find_host(_: str, __: str) -> Finding:
    return Finding(True)


_FINDERS = {
    "overlay": _find_overlay,
    "bubblewrap": _find_bubblewrap,
    "landlock": _find_landlock,
    "host": _find_host,
}


def _failure(command: list[str]) -> str | None:
    """Run a command; return the last line of its errors if it failed, or None."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin"},
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return (
        None
        if done.returncode == 0
        else said[-1][:300]
        if said
        else f"it ended with {done.returncode}"
    )


def _run_for_output(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _read_setting(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
