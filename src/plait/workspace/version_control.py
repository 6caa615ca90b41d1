"""Version control's own files, and the files that its configuration has it run.

Git, Mercurial and others keep commands in folders of their own (hooks, filters, a monitor), and run
them unseen whenever a user looks at a repository. A folder belongs to version control by its name,
under every spelling that some file system takes for that name. Configuration and linked hooks name
further files, anywhere in a work tree or outside of it.
"""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from plait.workspace.rules import STORE

# ── version control ──────────────────────────────────────────────────────────────────────────

# By the spelling that `folded_name` gives.
METADATA = {
    ".git": "git",
    ".hg": "Mercurial",
    ".svn": "Subversion",
    "_svn": "Subversion",
    ".jj": "Jujutsu",
    ".sl": "Sapling",
    ".bzr": "Bazaar",
    "_darcs": "Darcs",
    ".pijul": "Pijul",
    ".fossil": "Fossil",
    ".fslckout": "Fossil",
    "_fossil_": "Fossil",
    "_mtn": "Monotone",
    "{arch}": "GNU arch",
    ".repo": "repo",
    ".got": "Game of Trees",
    ".sapling": "Sapling",
    ".osc": "osc",
    STORE: "Plait",
}
_SHORT_NAMES = {name.strip("._{}")[:6] for name in METADATA}  # NTFS knows .git as git~1 as well

# Names in a folder that git takes for a repository without a work tree, all of which it reads or
# runs.
BARE_NAMES = frozenset(
    (
        "head",
        "objects",
        "refs",
        "commondir",
        "config",
        "config.worktree",
        "hooks",
        "info",
        "packed-refs",
        "worktrees",
        "modules",
    )
)
BARE_SIGNS = ("objects", "refs", "commondir")

# characters that some file system passes over in a name, those of the category Cf aside
_IGNORED_CHARS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


@cache
def folded_name(name: str) -> str:
    """Return the one spelling of all names that some file system takes for this one."""
    if name.isascii():
        text = name
    else:
        text = _IGNORED_CHARS.sub(
            "", "".join(char for char in name if unicodedata.category(char) != "Cf")
        )
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # after a colon NTFS names a stream of the same file
    return text.partition(":")[0].rstrip(". ").casefold()


def metadata_of(name: str) -> str | None:
    """Return the version control that owns a folder or file of this name. None: it is
    none's own.
    """
    for part in name.split("\\"):  # a separator of folders on Windows
        plain = folded_name(part)
        short = re.fullmatch(r"([^~]+)~\d+", plain)
        if plain in METADATA or part == "CVS" or (short and short[1] in _SHORT_NAMES):
            return METADATA.get(plain, "CVS" if part == "CVS" else "a version control")
    return None


class UnpublishedPath(NamedTuple):
    """A path that is not published: the topmost part that stays, and the reason."""

    root: str  # all below it stays as the folder has it
    why: str


def metadata_root(path: str) -> UnpublishedPath | None:
    """Return the topmost part of a path that belongs to a version control by its name."""
    parts = path.split("/")
    for end, name in enumerate(parts, 1):
        if (owner := metadata_of(name)) is not None:
            return UnpublishedPath("/".join(parts[:end]), f"{owner} keeps what it runs there")
    return None


# ── files named by the configuration of version control ──────────────────────────────────────

_CONFIG_MAX = 1 << 20  # bytes of a file of configuration that are looked at
_FILES_MAX = 50  # such files, those that are included counted
_SECTION = re.compile(r'\s*\[\s*([^\s"\]]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_SETTING = re.compile(r"\s*([A-Za-z][\w.-]*)\s*=?\s*(.*)")
# Keys whose values are commands, or files that are read as configuration or as commands. The middle
# part of a name is any.
_RUN_KEYS = re.compile(
    r"(core\.(hookspath|fsmonitor|sshcommand|askpass|editor|pager|attributesfile|gitproxy|alternaterefscommand)"
    r"|include\.path|includeif\.path|init\.templatedir|sequence\.editor|gpg\..*|credential\.helper|diff\.(external|command|textconv)"
    r"|filter\.(clean|smudge|process)|merge\.driver|(diff|merge)tool\.(cmd|path)|interactive\.difffilter|remote\.(uploadpack|receivepack)"
    r"|submodule\.update|trailer\.(command|cmd)|hook\.command|hooks\..*|extensions\..*|merge-tools\..*|alias\..*|pager\..*"
    r"|(browser|man|guitool)\.(cmd|path)|sendemail\.(smtpserver|sendmailcmd|tocmd|cccmd|headercmd)|uploadpack\.packobjectshook"
    r"|imap\.tunnel|instaweb\.(httpd|browser)|tar\.command|lfs\.(path|args|clean|smudge)|ui\.(editor|ssh|merge)|extdiff\..*)"
)
# the value is one path
_WHOLE_KEYS = (
    "core.hookspath",
    "include.path",
    "includeif.path",
    "core.attributesfile",
    "init.templatedir",
)
NAMED_BY_CONFIG = "the configuration of version control names it, and has it run"
_HOOKS = (
    "applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg"
    " commit-msg post-commit pre-rebase post-checkout post-merge pre-push pre-receive update"
    " proc-receive post-receive post-update reference-transaction push-to-checkout pre-auto-gc"
    " post-rewrite sendemail-validate fsmonitor-watchman p4-changelist p4-prepare-changelist"
    " p4-post-changelist p4-pre-submit post-index-change"
).split()


class _Setting(NamedTuple):
    key: str  # in lower case, without the middle part: core.hookspath
    value: str


class _RunPath(NamedTuple):
    path: str  # absolute
    below: bool  # with all that lies below it


def _parse_settings(text: str) -> Iterator[_Setting]:
    """Yield the settings of a file as git or Mercurial writes them; lines of other forms are passed
    over.
    """
    section = ""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("%include "):
            yield _Setting("include.path", line.removeprefix("%include ").strip())
            continue
        if found := _SECTION.match(line):
            section, line = found[1].partition(".")[0].lower(), line[found.end() :]
        if section and (found := _SETTING.match(line)) and not line.lstrip().startswith(("#", ";")):
            yield _Setting(f"{section}.{found[1].lower()}", _unquote_value(found[2].strip()))


def _unquote_value(value: str) -> str:
    """Return a value as git understands it: quotes may stand anywhere in it, and a comment ends it
    outside of them.
    """
    found, quoted, at = "", False, 0
    while at < len(value):
        char = value[at]
        if char == "\\" and at + 1 < len(value):
            at += 1
            found += {"n": "\n", "t": "\t", "b": ""}.get(value[at], value[at])
        elif char == '"':
            quoted = not quoted
        elif char in "#;" and not quoted:
            break
        else:
            found += char
        at += 1
    return found.strip()


def run_paths(folder: Path) -> dict[str, bool]:
    """Return the paths of a folder that version control runs, or reads commands from, because its
    configuration or a hook says so.

    True: with all that lies below.
    """
    found: dict[str, bool] = {}
    for path, below in _run_paths_around(folder):
        inside = os.path.relpath(path, folder)
        if inside != "." and inside.split("/")[0] != "..":
            found[inside] = below or found.get(inside, False)
    return found


def folder_reason(folder: Path) -> str | None:
    """Return the reason why nothing may be published to a folder: it lies in version control's own,
    or where its configuration has files run from. None: there is no reason.
    """
    for place in dict.fromkeys((os.path.abspath(folder), os.path.realpath(folder))):
        if (found := metadata_root(place.lstrip("/"))) is not None:
            return found.why
        parts = Path(place).parts
        for end in range(1, len(parts)):
            above = Path(*parts[:end])
            if (
                folded_name(parts[end]) in BARE_NAMES
                and (above / "HEAD").exists()
                and any((above / name).exists() for name in BARE_SIGNS)
            ):
                return f"{str(above)!r} is a repository, and git runs what it says"
        for path, below in _run_paths_around(Path(place)):
            if below and (place == path or place.startswith(f"{path}/")):
                return NAMED_BY_CONFIG
    return None


def _run_paths_around(folder: Path) -> Iterator[_RunPath]:
    for root in _work_trees(folder) or [folder]:
        yield from _configured_paths(root)


def _work_trees(folder: Path) -> list[Path]:
    """Return the repositories whose work trees the folder lies in, or that lie in it; heavy folders
    are not entered.
    """
    above = [
        each
        for each in (folder, *folder.parents)
        if any(os.path.lexists(each / name) for name in (".git", ".hg"))
    ]
    found, open_ = above[:2], [(folder, 0)]
    while open_ and len(found) < _FILES_MAX:
        here, depth = open_.pop()
        try:
            with os.scandir(here) as listing:
                below = [
                    item.name
                    for item in listing
                    if item.is_dir(follow_symlinks=False) or item.name == ".git"
                ]
        except OSError:
            continue
        if here != folder and (".git" in below or ".hg" in below):
            found.append(here)
        open_ += [
            (here / name, depth + 1)
            for name in below
            if depth < 6 and metadata_of(name) is None and name not in _NOT_ENTERED
        ]
    return list(dict.fromkeys(found))


_NOT_ENTERED = ("node_modules", ".venv", "venv", ".tox", ".nox")


def _configured_paths(root: Path) -> Iterator[_RunPath]:
    """Yield the absolute paths that configuration and hooks of one work tree lead to."""
    homes = [root / ".hg", *_git_homes(root / ".git")]
    files = [home / name for home in homes for name in ("config", "config.worktree", "hgrc")]
    files += [
        Path(each)
        for each in (
            "/etc/gitconfig",
            os.path.expanduser("~/.gitconfig"),
            os.path.expanduser("~/.config/git/config"),
        )
    ]
    seen: set[Path] = set()
    while files and len(seen) < _FILES_MAX:
        file = files.pop(0)
        if file in seen:
            continue
        seen.add(file)
        for key, value in _parse_settings(_read_text(file)):
            if not _RUN_KEYS.fullmatch(key):
                continue
            base = file.parent if key.startswith("include") else root
            paths = {
                os.path.join(base, os.path.expanduser(word)): below
                for word, below in _path_words(key, value).items()
            }
            files += map(Path, paths) if key.startswith("include") else ()
            for path, below in paths.items():
                for each in {os.path.normpath(path), os.path.realpath(path)}:
                    if not f"{root}/".startswith(f"{each.rstrip('/')}/"):
                        yield _RunPath(each, below)
                    # the work tree itself, or a folder above it: not all of it can be a hook
                    elif key == "core.hookspath":
                        yield from (_RunPath(os.path.join(each, name), True) for name in _HOOKS)
    for home in homes:
        yield from (_RunPath(path, True) for path in _hook_links(home / "hooks"))


def _path_words(key: str, value: str) -> dict[str, bool]:
    """Return the words of a value that may be paths: all of it, or each word of a command. True:
    files below are run, too.

    A plain word may as well be an argument (`make docs`), and so may any of an alias: of those,
    only a file of that very name is meant, or the `__main__.py` that Python would run of such a
    folder.
    """
    if key in _WHOLE_KEYS:
        return {value: True} if value else {}
    command = value.removeprefix("!")
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    words = [
        word.removeprefix("python:").partition(":")[0] if word.startswith("python:") else word
        for word in words
    ]
    words += re.split(r"[\s;&|()<>{}`\"'$=,]+", command)
    found: dict[str, bool] = {}
    for before, word in zip(["", *words], words, strict=False):
        if word.strip("./") == "" or "\0" in word:
            continue
        entered = before in ("cd", "-C")
        below = entered or (
            not key.startswith("alias.")
            and ("/" in word or re.search(r"\w\.\w+$", word) is not None)
        )
        found[word] = below or found.get(word, False)
        found.setdefault(f"{word}/__main__.py", False)
    return found


def _git_homes(dot_git: Path) -> list[Path]:
    """Return the folder of the repository of a work tree, by its pointer if there is one, and the
    folder that its worktrees share.
    """
    home = dot_git
    if dot_git.is_file():
        pointer = _read_text(dot_git).removeprefix("gitdir:").strip()
        home = Path(os.path.normpath(dot_git.parent / pointer)) if pointer else dot_git
    shared = _read_text(home / "commondir").strip()
    return [home, *([Path(os.path.normpath(home / shared))] if shared else [])]


def _hook_links(hooks: Path) -> Iterator[str]:
    """Yield the files that linked hooks lead to: they are run."""
    try:
        with os.scandir(hooks) as listing:
            yield from (os.path.realpath(item.path) for item in listing if item.is_symlink())
    except OSError:
        return


def _read_text(file: Path) -> str:
    try:
        if not file.is_file():  # a pipe would be waited for
            return ""
        with file.open("rb") as opened:
            return opened.read(_CONFIG_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
