"""Secrets in heavy folders: files that a sandbox shows without them.

A heavy folder is mounted where it lies, so nothing of it passes through a scan. What is looked for instead: values that this process
knows to be secret, in files of moderate size; and credentials in a few files that are known to carry them (`.git/config` with
`https://user:token@host`), whether the process knows the value or not. What is shown in such a file's place is the same text without
them.

The few are looked at each time. All others once per process, and again where a folder has changed, or where another value has become
a secret: never more than so many files and bytes at a time, and what was not looked at is said. What is compressed (git's objects)
cannot be looked into.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from plait import secrets
from plait.workspace.rules import HEAVY
from plait.workspace.tree import shown

SIZE_MAX = 1 << 20  # bytes of a file that is looked at
BYTES_MAX = 32 << 20  # of all files of one heavy folder
FILES_MAX = 20_000
KEPT = 64  # heavy folders that are remembered

# Files that carry credentials, by their paths in a heavy folder.
_CARRIERS = re.compile(
    r"(config|config\.(worktree|bak|old|orig|lock)|remotes/[^/]+|branches/[^/]+|repo/store/git/config|branch/branch\.conf|FETCH_HEAD|credentials|\.git-credentials|logs/HEAD|hgrc"
    r"|(modules/.+|worktrees/[^/]+)/(config|config\.worktree|FETCH_HEAD|logs/HEAD)"
    r"|pip\.conf|pip\.ini|\.npmrc|\.yarnrc|\.yarnrc\.yml|\.netrc|_netrc|\.pypirc|\.env|\.env\..+|etc/pip\.conf)\Z"
)
_CARRYING = ("", "logs", "etc", "remotes", "branches", "modules", "worktrees")  # the folders that these lie in; the last two with all below
_BELOW_MAX = 200  # folders of submodules and worktrees that are looked at each time

# Looked at byte by byte, with limits of their own: what is text comes first. One that is not shown as it is is shown empty, since
# without some of its bytes it is broken (Python takes empty bytecode for old, and reads the source).
_BINARY = (".so", ".a", ".o", ".pyc", ".pyo", ".zip", ".whl", ".egg", ".jar", ".node", ".wasm")
_UNREAD = (".png", ".jpg", ".jpeg", ".gif", ".ico", ".woff", ".woff2", ".ttf", ".gz", ".xz", ".bz2", ".zst")
_OWNED = frozenset((".git", ".hg", ".jj", ".bzr", ".sl", *HEAVY))  # folders in which a carrier is known by its path

# What a credential looks like, and what stays of it.
_WEB = re.compile(rb"(?i)(\b(?:https?|ftps?)://)[^\s/\"'<>]+@")
_OTHER = re.compile(rb"(\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"'<>]*):[^\s/\"'<>]+@")
_SETTING = re.compile(
    rb"(?im)^([ \t]*[^\s=]*(?:extraheader|passw(?:or)?d|smtppass|token|secret|_auth\w*|authident|api_?key|cookie)"
    rb"[\w.-]*[\"']?[ \t]*[=:][ \t]*)\S[^\n]*"
)
_NETRC = re.compile(rb"(?i)\b((?:password|account)[ \t]+)\S+")
_WORD = b"withheld"


class Masked(NamedTuple):
    """What of a heavy folder is not shown as it is."""

    files: Mapping[str, bytes]  # by path in it: what is shown instead
    unlooked: str = ""  # what was not looked at, and why; "": all that can be


def without_secrets(path: str, content: bytes) -> bytes:
    """The content of a file at this path in a heavy folder, without what must not be seen."""
    if secrets.armed():
        content = secrets.hide_bytes(content)
    if not _CARRIERS.match(path):
        return content
    content = _WEB.sub(rb"\1" + _WORD + b"@", content)
    content = _OTHER.sub(rb"\1:" + _WORD + b"@", content)
    content = _SETTING.sub(rb"\1" + _WORD, content)
    return _NETRC.sub(rb"\1" + _WORD, content) if path.endswith("netrc") else content


def is_carrier(path: str) -> bool:
    """Whether a file of a tree is one that carries credentials: it lies in a heavy folder, or one of version control's."""
    parts = path.split("/")
    return any(name in _OWNED and _CARRIERS.match("/".join(parts[at:])) for at, name in enumerate(parts[:-1], 1))


def carrier_without_secrets(path: str, content: bytes) -> bytes:
    """The content of such a file without what must not be seen."""
    parts = path.split("/")
    for at, name in enumerate(parts[:-1], 1):
        content = without_secrets("/".join(parts[at:]), content) if name in _OWNED else content
    return content


def masked_files(heavy: str) -> Masked:
    """The files of a heavy folder, by its absolute path, that hold what must not be seen."""
    found = {path: text for path in _carriers(heavy) if (text := _text_shown(heavy, path)) is not None}
    if not secrets.armed():
        return Masked(found)
    with _lock:
        seen = _seen.pop(heavy, None) or _Seen(heavy)
        _seen[heavy] = seen
        for other in list(_seen)[:-KEPT]:
            del _seen[other]
        seen.look()
        return Masked({**seen.files, **found}, seen.unlooked)


def secrets_in_heavy(folder: str | None, heavy: Sequence[str]) -> dict[str, list[str]]:
    """What is said of the heavy folders of a folder: files that are shown without their secrets, and what was not looked at."""
    masked, unlooked = list[str](), list[str]()
    for name in heavy if folder is not None else ():
        found = masked_files(os.path.join(os.path.realpath(folder or ""), name))
        masked += sorted(shown(f"{name}/{path}") for path in found.files)
        unlooked += [f"{shown(name)}: {found.unlooked}"] if found.unlooked else []
    return {"masked": masked[:100], "not looked at": unlooked[:100]}


def _carriers(heavy: str) -> Iterator[str]:
    """Paths of files that carry credentials as a rule."""
    open_, count = [*_CARRYING], 0
    while open_ and count < _BELOW_MAX:
        folder = open_.pop(0)
        count += 1
        for entry in _listed(os.path.join(heavy, folder)):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False) and folder.partition("/")[0] in ("modules", "worktrees"):
                open_ += [path] if not _is_objects(entry) else []
            elif _CARRIERS.match(path) and entry.is_file(follow_symlinks=False):
                yield path


def _text_shown(heavy: str, path: str) -> bytes | None:
    """What is shown of a file instead of it. None: it can be shown as it is, or is not there."""
    try:
        handle = os.open(os.path.join(heavy, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        content = file.read(SIZE_MAX + 1)
    if len(content) > SIZE_MAX:
        return b""  # a carrier that cannot be looked at as a whole is not shown
    text = without_secrets(path, content)
    if text == content:
        return None
    return b"" if path.endswith(_BINARY) else text


def _listed(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_objects(entry: os.DirEntry[str]) -> bool:
    """Whether git keeps its objects there: they are compressed, and cannot be looked into."""
    return entry.name == "objects" and os.path.lexists(os.path.join(os.path.dirname(entry.path), "HEAD"))


class _Folder(NamedTuple):
    stamp: int  # when its list of names last changed
    below: list[str]
    files: dict[str, bytes]  # those that are not shown as they are
    looked: int  # files that were looked at
    size: int  # bytes of them
    large: int  # files that were not: too large
    left: int  # files that were not: there were too many
    binary: tuple[int, int] = (0, 0)  # files and bytes that were looked at and are no text
    unread: int = 0  # files that were not: pictures, fonts, and what is compressed


class _Seen:
    """What is known of one heavy folder, by its folders: one whose names did not change is not read again."""

    def __init__(self, heavy: str) -> None:
        self._heavy = heavy
        self._known = 0
        self._folders: dict[str, _Folder] = {}

    @property
    def files(self) -> dict[str, bytes]:
        return {path: text for folder in self._folders.values() for path, text in folder.files.items()}

    @property
    def unlooked(self) -> str:
        large, left, unread = (sum(getattr(each, name) for each in self._folders.values()) for name in ("large", "left", "unread"))
        said = [f"{large:,} above {SIZE_MAX >> 20} MB"] if large else []
        said += [f"{left:,} beyond {FILES_MAX:,} files or {BYTES_MAX >> 20} MB"] if left else []
        return ", ".join([*said, *([f"{unread:,} pictures, fonts and compressed files"] if unread else [])])

    def look(self) -> None:
        known = secrets.known_hash()
        before = self._folders if known == self._known else {}
        self._known, self._folders = known, {}
        open_, count, size, binary = [""], 0, 0, (0, 0)
        while open_:  # nearest first: what is deep down is left out first
            path = open_.pop(0)
            try:
                stamp = os.stat(os.path.join(self._heavy, path), follow_symlinks=False).st_mtime_ns
            except OSError:
                continue
            folder = before.get(path)
            if folder is None or folder.stamp != stamp:
                folder = self._look_into(path, stamp, (count, size), binary)
            self._folders[path] = folder
            count, size = count + folder.looked, size + folder.size
            binary = binary[0] + folder.binary[0], binary[1] + folder.binary[1]
            open_ += folder.below

    def _look_into(self, path: str, stamp: int, texts: tuple[int, int], binaries: tuple[int, int]) -> _Folder:
        """`texts`, `binaries`: how many files and bytes of each were looked at before."""
        below, files, large, left, unread = list[str](), dict[str, bytes](), 0, 0, 0
        spent = {False: texts, True: binaries}
        for entry in _listed(os.path.join(self._heavy, path)):
            here = f"{path}/{entry.name}" if path else entry.name
            if entry.is_dir(follow_symlinks=False):
                below += [here] if not _is_objects(entry) else []
                continue
            if not entry.is_file(follow_symlinks=False):
                continue
            if entry.name.endswith(_UNREAD):
                unread += 1
                continue
            try:
                long = entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue
            is_binary = entry.name.endswith(_BINARY)
            count, size = spent[is_binary]
            if long > SIZE_MAX:
                large += 1
            elif count >= FILES_MAX or size + long > BYTES_MAX:
                left += 1
            else:
                spent[is_binary] = count + 1, size + long
                if (text := _text_shown(self._heavy, here)) is not None:
                    files[here] = text
        looked, read = spent[False][0] - texts[0], spent[False][1] - texts[1]
        binary = spent[True][0] - binaries[0], spent[True][1] - binaries[1]
        return _Folder(stamp, below, files, looked, read, large, left, binary, unread)


_seen: dict[str, _Seen] = {}
_lock = Lock()
