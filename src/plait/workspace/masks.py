"""Secrets in heavy folders: files that a sandbox shows without them.

A heavy folder is mounted where it lies, so nothing of it passes through a scan. Instead it is
searched for values that this process knows to be secret, in files of moderate size; and for
credentials in files that are known to carry them, at any depth (`.git/config` with
`https://user:token@host`, an `.npmrc`, a lock file with addresses), also if the process does not
know the value. In the place of such a file the same text is shown without them.

Short carriers are searched each time. All other files once per process, and again where a folder
has changed, or where another value has become a secret: never more than so many files and bytes at
a time, and files that were not searched are counted in a note. Compressed files (git's objects)
cannot be searched.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plait import secrets
from plait.workspace.process import WORKSPACES
from plait.workspace.rules import HEAVY
from plait.workspace.tree import shown_path

SIZE_MAX = 1 << 20  # bytes of a file that is looked at
BYTES_MAX = 32 << 20  # of all files of one heavy folder
FILES_MAX = 20_000
FOLDERS_MAX = 50_000
# bytes of a file that carries credentials as a rule: a longer one is not shown
CARRIER_MAX = 16 << 20
SHORT_MAX = 256 << 10  # bytes of one that is looked at each time
CARRIERS_MAX = 1000  # that are looked at each time
KEPT = 64  # heavy folders that are remembered

# Files that carry credentials, by their names, at any depth: settings of programs that log in
# somewhere, and texts in which others wrote down the addresses that they fetched from.
# Patterns are texts here, which `re` compiles when the first file is looked at: most programs that
# import this module have no files.
_SETTINGS = (
    r"\.?npmrc|\.yarnrc(\.yml)?|\.?pypirc|pip\.(conf|ini)|\.?pydistutils\.cfg|[._]netrc|\.git-credentials|\.env|\.env\..+|\.envrc"
    r"|uv\.toml|poetry\.toml|auth\.toml|pdm\.toml|\.pdm\.toml|bunfig\.toml|\.?condarc|\.curlrc|\.wgetrc|\.my\.cnf|\.boto|\.s3cfg|\.gemrc"
    r"|credentials(\.toml)?|\.gitconfig|\.?hgrc|\.terraformrc|gradle\.properties|pip_?log\.txt|auth\.json|\.dockercfg|\.dockerconfigjson"
)
_LOCKS = (
    r"\.?package-lock\.json|npm-shrinkwrap\.json|package\.json|yarn\.lock|\.yarn-integrity|\.yarn-(state\.yml|metadata\.json)"
    r"|(pnpm-)?lock\.yaml|\.modules\.yaml|bun\.lock|deno\.lock|composer\.(json|lock)|installed\.json|poetry\.lock|Pipfile(\.lock)?|uv\.lock"
    r"|pdm\.lock|pixi\.lock|Gemfile(\.lock)?|Cargo\.lock|pylock(\..+)?\.toml|(.*-)?(requirements|constraints)(-.*)?\.(txt|in)|direct_url\.json"
    r"|\.gitmodules|npm-debug\.log(\..*)?|yarn-error\.log|\.hgsub"
)
# one for each package: read when its folder has changed
_ONCE = r"package\.json|direct_url\.json"
# Of a folder of version control every file is a carrier, except compressed ones and those that name
# nothing but objects.
_VERSIONS = frozenset((".git", ".hg", ".jj", ".bzr", ".sl", ".svn", "CVS", "_darcs", ".pijul"))
_OBJECTS = (
    r"(.+/)?((lfs|annex|store)/)?(objects|refs|rr-cache|pristine)/.+|(.+/)?(index|sharedindex\..*|packed-refs|ORIG_HEAD|HEAD|commondir|gitdir|wc\.db.*)"
    r"|.*\.(pack|idx|rev|bitmap|mtimes|graph|sample|i|d|n)|(repo/)?store/(?!git/).+|(.+/)?(dirstate|branchheads|cache/.+)"
)

# Searched byte by byte, with limits of their own, so that text comes first. One with a secret is
# shown empty, since without some of its bytes it is broken (Python takes empty bytecode for old,
# and reads the source).
_BINARY = (".so", ".a", ".o", ".pyc", ".pyo", ".zip", ".whl", ".egg", ".jar", ".node", ".wasm")
_UNREAD = (
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".ico",
    ".woff",
    ".woff2",
    ".ttf",
    ".gz",
    ".xz",
    ".bz2",
    ".zst",
)
_OWNED = _VERSIONS | frozenset(HEAVY)  # folders in which a carrier is known by its name

# Patterns of credentials; the first group stays.
_WEB = rb"(?i)(\b(?:https?|ftps?)://)[^\s/\"'<>]+@"
_OTHER = rb"(\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"'<>]*):[^\s/\"'<>]+@"
_SETTING = (
    rb"(?im)^(["
    rb" \t]*[^\s=]*(?:extraheader|passw(?:or)?d|smtppass|token|secret|_auth\w*|authident"
    rb"|api_?key|cookie)"
    rb"[\w.-]*[\"']?[ \t]*[=:][ \t]*)\S[^\n]*"
)
# as .yarnrc has it, without a sign
_SPACED = rb"(?im)^([ \t]*\S*(?:passw(?:or)?d|_auth\w*|token)\"?[ \t]+)\S[^\n]*"
# as JSON has it
_QUOTED = (
    rb"(?i)(\"[^\"\n]*(?:passw(?:or)?d|auth|token|secret|api_?key)[^\"\n]*\"\s*:\s*\")[^\"\n]+"
)
_QUERY = (
    rb"(?i)([?&](?:[\w-]*token|auth\w*|api_?key|key|passw(?:or)?d|pass|secret|sig|signature"
    rb"|x-amz-[\w-]+|x-goog-[\w-]+)=)[^&\s\"'<>#]+"
)
_KEY = (  # known by how it begins
    rb"\b(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|xox[abeprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}\b)"
)
_NETRC = rb"(?i)\b((?:password|account)[ \t]+)\S+"
_WORD = b"withheld"


class Masked(NamedTuple):
    """The files of a heavy folder that are not shown as they are."""

    files: Mapping[str, bytes]  # by path in it: the content that is shown instead
    unlooked: str = ""  # the files that were not searched, and why; "": none


class Carrier(NamedTuple):
    """A file that carries credentials as a rule, and how these are written there."""

    has_settings: bool  # else nothing but addresses
    name: str


def carrier_at(path: str) -> Carrier | None:
    """Return the kind of carrier that a file is by its path. None: it is none.

    Only files in a heavy folder, or in one of version control, are carriers.
    """
    parts = path.split("/")
    name = parts[-1]
    if not any(part in _OWNED for part in parts[:-1]):
        return None
    if re.fullmatch(_SETTINGS, name):
        return Carrier(not name.endswith("log.txt"), name)
    if re.fullmatch(_LOCKS, name):
        return Carrier(False, name)
    start = next((at for at, part in enumerate(parts[:-1], 1) if part in _VERSIONS), None)
    inside = "/".join(parts[start:]) if start is not None else ""
    if not inside or (re.fullmatch(_OBJECTS, inside) and "logs" not in parts[start:-1]):
        return None
    return Carrier(re.match(r"config|branch\.conf", name) is not None, name)


def without_secrets(path: str, content: bytes) -> bytes:
    """Return the content of a file without secrets and credentials.

    The path must name the heavy folder that the file lies in.
    """
    if secrets.is_armed():
        content = secrets.hide_bytes(content)
    carrier = carrier_at(path)
    return content if carrier is None else _without_credentials(carrier, content)


def _without_credentials(carrier: Carrier, content: bytes) -> bytes:
    hidden = re.sub(_WEB, rb"\1" + _WORD + b"@", content)
    hidden = re.sub(_OTHER, rb"\1:" + _WORD + b"@", hidden)
    hidden = re.sub(_QUERY, rb"\1" + _WORD, hidden)
    hidden = re.sub(_KEY, _WORD, hidden)
    if carrier.has_settings and carrier.name.endswith("json"):
        hidden = re.sub(_QUOTED, rb"\1" + _WORD, hidden)
    elif carrier.has_settings:
        hidden = re.sub(_SETTING, rb"\1" + _WORD, hidden)
        hidden = re.sub(_SPACED, rb"\1" + _WORD, hidden) if carrier.name == ".yarnrc" else hidden
        hidden = (
            re.sub(_NETRC, rb"\1" + _WORD, hidden) if carrier.name.endswith("netrc") else hidden
        )
    # without some of its bytes a binary file is broken
    return b"" if hidden != content and b"\0" in content else hidden


def is_carrier(path: str) -> bool:
    """Return True if a file carries credentials: by its name, in a heavy folder or one of version
    control.
    """
    return carrier_at(path) is not None


def masked_files(heavy: str) -> Masked:
    """Return the files with secrets of a heavy folder, which is named by its absolute path."""
    with WORKSPACES.searches_lock:
        searches: dict[str, _SecretSearch] = WORKSPACES.searches
        seen = searches.pop(heavy, None) or _SecretSearch(heavy)
        searches[heavy] = seen
        for other in list(searches)[:-KEPT]:
            del searches[other]
        seen.search()
        return Masked(seen.files, seen.skipped_note)


def secrets_in_heavy(folder: str | None, heavy: Sequence[str]) -> dict[str, list[str]]:
    """Return a report on the heavy folders of a folder: files that are shown without their secrets,
    and files that were not searched.
    """
    masked, unlooked = list[str](), list[str]()
    for name in heavy if folder is not None else ():
        found = masked_files(os.path.join(os.path.realpath(folder or ""), name))
        masked += sorted(shown_path(f"{name}/{path}") for path in found.files)
        unlooked += [f"{shown_path(name)}: {found.unlooked}"] if found.unlooked else []
    return {"masked": masked[:100], "not looked at": unlooked[:100]}


def _text_shown(heavy: str, path: str) -> bytes | None:
    """Return the content that is shown instead of a file's own. None: its own is shown, or it is
    not there.
    """
    try:
        handle = os.open(
            os.path.join(heavy, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        content = file.read(CARRIER_MAX + 1)
    if len(content) > CARRIER_MAX:
        return b""  # a carrier that cannot be looked at as a whole is not shown
    text = without_secrets(_path_with_heavy(heavy, path), content)
    if text == content:
        return None
    return b"" if path.endswith(_BINARY) else text


def _path_with_heavy(heavy: str, path: str) -> str:
    """Return the path of a file with the name of its heavy folder."""
    return f"{os.path.basename(heavy)}/{path}"


def _sorted_listing(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_objects(entry: os.DirEntry[str]) -> bool:
    """Return True if git keeps its objects there: they are compressed, and cannot be searched."""
    return entry.name == "objects" and os.path.lexists(
        os.path.join(os.path.dirname(entry.path), "HEAD")
    )


class _SearchedFolder(NamedTuple):
    stamp: int  # when its list of names last changed
    below: list[str]
    files: dict[str, bytes]  # those that are not shown as they are
    carriers: list[str]  # those that are looked at each time
    looked: int = 0  # files that were looked at
    size: int = 0  # bytes of them
    large: int = 0  # files that were not: too large
    left: int = 0  # files that were not: there were too many
    binary: tuple[int, int] = (0, 0)  # files and bytes that were looked at and are no text
    unread: int = 0  # files that were not: pictures, fonts, and compressed ones


class _SecretSearch:
    """The search of one heavy folder, remembered by its folders: one whose list of names did not
    change is not read again.
    """

    def __init__(self, heavy: str) -> None:
        self._heavy = heavy
        self._known = 0
        self._folders: dict[str, _SearchedFolder] = {}
        self._carried: dict[
            str, bytes | None
        ] = {}  # content shown of carriers, as of now; None: their own
        self._unentered = 0

    @property
    def files(self) -> dict[str, bytes]:
        once = {
            path: text for folder in self._folders.values() for path, text in folder.files.items()
        }
        return {path: text for path, text in (once | self._carried).items() if text is not None}

    @property
    def skipped_note(self) -> str:
        large, left, unread = (
            sum(getattr(each, name) for each in self._folders.values())
            for name in ("large", "left", "unread")
        )
        said = [f"{large:,} above {SIZE_MAX >> 20} MB"] if large else []
        said += [f"{left:,} beyond {FILES_MAX:,} files or {BYTES_MAX >> 20} MB"] if left else []
        said += [f"{self._unentered:,} folders beyond {FOLDERS_MAX:,}"] if self._unentered else []
        return ", ".join(
            [*said, *([f"{unread:,} pictures, fonts and compressed files"] if unread else [])]
        )

    def search(self) -> None:
        known = secrets.known_hash()
        before = self._folders if known == self._known else {}
        self._known, self._folders, self._carried = known, {}, {}
        open_, count, size, binary = deque([""]), 0, 0, (0, 0)
        # nearest first: deep folders are left out first
        while open_ and len(self._folders) < FOLDERS_MAX:
            path = open_.popleft()
            try:
                stamp = os.lstat(f"{self._heavy}/{path}").st_mtime_ns
            except OSError:
                continue
            folder = before.get(path)
            if folder is None or folder.stamp != stamp:
                folder = self._search_folder(path, stamp, (count, size), binary)
            elif len(self._carried) < CARRIERS_MAX:
                self._carried.update(
                    (each, _text_shown(self._heavy, each)) for each in folder.carriers
                )
            self._folders[path] = folder
            count, size = count + folder.looked, size + folder.size
            binary = binary[0] + folder.binary[0], binary[1] + folder.binary[1]
            open_ += folder.below
        self._unentered = len(open_)

    def _search_folder(
        self, path: str, stamp: int, texts: tuple[int, int], binaries: tuple[int, int]
    ) -> _SearchedFolder:
        """Search one folder. `texts`, `binaries`: numbers of files and bytes of each kind searched
        before.
        """
        below, files, carriers, large, left, unread = (
            list[str](),
            dict[str, bytes](),
            list[str](),
            0,
            0,
            0,
        )
        spent, is_armed = {False: texts, True: binaries}, secrets.is_armed()
        for entry in _sorted_listing(os.path.join(self._heavy, path)):
            here = f"{path}/{entry.name}" if path else entry.name
            if entry.is_dir(follow_symlinks=False):
                below += [here] if not _is_objects(entry) else []
                continue
            carries = is_carrier(_path_with_heavy(self._heavy, here))
            if not (carries or is_armed) or not entry.is_file(follow_symlinks=False):
                continue
            if carries:
                carriers += [here] if _is_looked_at_each_time(entry) else []
                if (text := _text_shown(self._heavy, here)) is not None:
                    files[here] = text
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
        return _SearchedFolder(
            stamp, below, files, carriers, looked, read, large, left, binary, unread
        )


def _is_looked_at_each_time(entry: os.DirEntry[str]) -> bool:
    """Return True if a carrier is short, and of a kind of which there are few: it may be written to
    while its folder's list of names stays the same.
    """
    try:
        return (
            not re.fullmatch(_ONCE, entry.name)
            and entry.stat(follow_symlinks=False).st_size <= SHORT_MAX
        )
    except OSError:
        return True
