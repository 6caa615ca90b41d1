"""Paths by which a user's own tools would run what an agent wrote.

Two tables. Version control keeps commands in its own folders (hooks, filters, a monitor), and runs
them unseen whenever a user looks at a repository: nothing below such a folder is published, under
no spelling that some file system takes for its name. Other programs read executable configuration
where they find it (`conftest.py`, `Makefile`, `.envrc`): that is published, and named, with the
reason.
"""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import NamedTuple

from plait.ids import Digest
from plait.workspace.base import Change, Entry
from plait.workspace.rules import STORE
from plait.workspace.tree import TreeReader

LINKS_MAX = 40  # on one path, as Linux counts

# ── version control ──────────────────────────────────────────────────────────────────────────

# By the spelling that `folded` gives.
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
_SHORT = {name.strip("._{}")[:6] for name in METADATA}  # git~1 is what NTFS calls .git as well
_CVS = ("root", "repository", "entries")  # one of them makes a folder that is called cvs one of CVS

# What a folder has that git takes for a repository without a work tree, and what is read or run
# there.
_BARE = frozenset(
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
_BARE_SIGNS = ("objects", "refs", "commondir")

# characters that some file system passes over in a name, those of the category Cf aside
_IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


@cache
def folded(name: str) -> str:
    """The one spelling of all names that some file system takes for this one."""
    if name.isascii():
        text = name
    else:
        text = _IGNORED.sub(
            "", "".join(char for char in name if unicodedata.category(char) != "Cf")
        )
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # after a colon NTFS names a stream of the same file
    return text.partition(":")[0].rstrip(". ").casefold()


def metadata_of(name: str) -> str | None:
    """Whose own folder or file something of this name is. None: of no version control."""
    for part in name.split("\\"):  # elsewhere it stands between folders
        plain = folded(part)
        short = re.fullmatch(r"([^~]+)~\d+", plain)
        if plain in METADATA or part == "CVS" or (short and short[1] in _SHORT):
            return METADATA.get(plain, "CVS" if part == "CVS" else "a version control")
    return None


class Kept(NamedTuple):
    """A path that is not published: from where on, and why."""

    root: str  # all below it stays as the folder has it
    why: str


def metadata_root(path: str) -> Kept | None:
    """The topmost part of a path that belongs to a version control, by its name."""
    parts = path.split("/")
    for end, name in enumerate(parts, 1):
        if (owner := metadata_of(name)) is not None:
            return Kept("/".join(parts[:end]), f"{owner} keeps what it runs there")
    return None


class Guard:
    """Judges what is about to be published to one folder, with the tree that the folder would have
    then.
    """

    def __init__(self, reader: TreeReader, folder: Path, before: Digest, after: Digest) -> None:
        self._reader, self._folder, self._before, self._after = (
            reader,
            os.path.realpath(folder),
            before,
            after,
        )
        self._run_paths = run_paths(Path(self._folder))
        # nothing at all is published to a folder that is itself version control's
        self._why_all = folder_reason(folder)

    def kept(self, change: Change) -> Kept | None:
        """Where and why this change is not published. None: it may be."""
        path, after = change.path, change.after
        if self._why_all is not None:
            return Kept(path.partition("/")[0], self._why_all)
        if (
            found := metadata_root(path) or self._in_repository(path) or self._is_run(path, after)
        ) is not None:
            return found
        if (
            after is not None
            and after.kind == "link"
            and (owner := self._leads_into(path, after.target)) is not None
        ):
            return Kept(path, f"it is a link to where {owner} keeps what it runs")
        return None

    def _is_run(self, path: str, after: Entry | None) -> Kept | None:
        for each, below in self._run_paths.items():
            above = each.startswith(f"{path}/") and after is not None and after.kind == "link"
            if path == each or (below and path.startswith(f"{each}/")) or above:
                return Kept(path if above else each, _NAMED)
        return None

    def _in_repository(self, path: str) -> Kept | None:
        """Whether it is a part of what git, or CVS, takes for its own by what lies there, whatever
        its name.
        """
        parts = path.split("/")
        for end in range(len(parts)):
            above = "/".join(parts[:end])
            if folded(parts[end]) in _BARE and self._is_bare(above, self._after):
                return Kept(
                    "/".join(parts[: end + 1]),
                    f"git would take {above or 'the folder'!r} for a repository, and run what it"
                    " says",
                )
            if self._is_bare(above, self._before):
                return Kept(
                    "/".join(parts[: end + 1]),
                    f"{above or 'the folder'!r} is a repository, and git runs what it says",
                )
            if folded(parts[end]) == "cvs" and self._names(
                "/".join(parts[: end + 1]), self._after
            ) & set(_CVS):
                return Kept("/".join(parts[: end + 1]), "CVS keeps what it runs there")
        return None

    def _is_bare(self, folder: str, tree: Digest) -> bool:
        names = self._names(folder, tree)
        return "head" in names and not names.isdisjoint(_BARE_SIGNS)

    def _names(self, folder: str, tree: Digest) -> set[str]:
        entry = self._reader.find(tree, folder) if folder else Entry("", "folder", blobs=(tree,))
        inside = (
            self._reader.entries(entry.blobs[0])
            if entry is not None and entry.kind == "folder"
            else ()
        )
        return {folded(each.name) for each in inside}

    def _leads_into(self, path: str, target: str) -> str | None:
        """Whose folder a link leads into, through the links that will be there, and those of this
        machine.
        """
        done, rest = (
            path.split("/")[:-1],
            [part for part in target.split("/") if part not in ("", ".")],
        )
        if target.startswith("/"):
            return self._owner_outside(target)
        links = 0
        while rest:
            name = rest.pop(0)
            if name == "..":
                if not done:
                    return self._owner_outside(os.path.join(self._folder, "..", *rest))
                done.pop()
                continue
            if (owner := metadata_of(name)) is not None:
                return owner
            done.append(name)
            entry = self._reader.find(self._after, "/".join(done))
            if entry is None or entry.kind != "link":
                continue
            links += 1
            if entry.target.startswith("/") or links > LINKS_MAX:
                return (
                    self._owner_outside(os.path.join(entry.target, *rest))
                    if links <= LINKS_MAX
                    else "a circle of links"
                )
            done.pop()
            rest = [*(part for part in entry.target.split("/") if part not in ("", ".")), *rest]
        return None

    def _owner_outside(self, path: str) -> str | None:
        """The same for a path of the machine.

        The folder may itself lie in a place that is called so.
        """
        for each in (os.path.normpath(path), os.path.realpath(path)):
            inside = (
                os.path.relpath(each, self._folder) if each.startswith(f"{self._folder}/") else each
            )
            for name in inside.split("/"):
                if (owner := metadata_of(name)) is not None:
                    return owner
        return None


# ── what configuration of version control names ──────────────────────────────────────────────

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
_NAMED = "the configuration of version control names it, and has it run"
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


class _Run(NamedTuple):
    path: str  # absolute
    below: bool  # with all that lies below it


def _settings(text: str) -> Iterator[_Setting]:
    """The settings of a file as git or Mercurial writes them; what cannot be read
    is passed over.
    """
    section = ""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("%include "):
            yield _Setting("include.path", line.removeprefix("%include ").strip())
            continue
        if found := _SECTION.match(line):
            section, line = found[1].partition(".")[0].lower(), line[found.end() :]
        if section and (found := _SETTING.match(line)) and not line.lstrip().startswith(("#", ";")):
            yield _Setting(f"{section}.{found[1].lower()}", _unquoted(found[2].strip()))


def _unquoted(value: str) -> str:
    """A value as git understands it: quotes may stand anywhere in it, and a comment ends it outside
    of them.
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
    """Paths of a folder that version control runs, or reads what it runs from, because its
    configuration or a hook says so.

    True: with all that lies below.
    """
    found: dict[str, bool] = {}
    for path, below in _runs_around(folder):
        inside = os.path.relpath(path, folder)
        if inside != "." and inside.split("/")[0] != "..":
            found[inside] = below or found.get(inside, False)
    return found


def folder_reason(folder: Path) -> str | None:
    """Why nothing is published to a folder: it lies in version control's own, or where its
    configuration has things run from.
    """
    for place in dict.fromkeys((os.path.abspath(folder), os.path.realpath(folder))):
        if (found := metadata_root(place.lstrip("/"))) is not None:
            return found.why
        parts = Path(place).parts
        for end in range(1, len(parts)):
            above = Path(*parts[:end])
            if (
                folded(parts[end]) in _BARE
                and (above / "HEAD").exists()
                and any((above / name).exists() for name in _BARE_SIGNS)
            ):
                return f"{str(above)!r} is a repository, and git runs what it says"
        for path, below in _runs_around(Path(place)):
            if below and (place == path or place.startswith(f"{path}/")):
                return _NAMED
    return None


def _runs_around(folder: Path) -> Iterator[_Run]:
    for root in _work_trees(folder) or [folder]:
        yield from _named_paths(root)


def _work_trees(folder: Path) -> list[Path]:
    """The repositories whose work trees the folder lies in, or that lie in it; heavy folders are
    not entered.
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


def _named_paths(root: Path) -> Iterator[_Run]:
    """Of one work tree: where configuration and hooks lead, as absolute paths."""
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
        for key, value in _settings(_text(file)):
            if not _RUN_KEYS.fullmatch(key):
                continue
            base = file.parent if key.startswith("include") else root
            paths = {
                os.path.join(base, os.path.expanduser(word)): below
                for word, below in _words(key, value).items()
            }
            files += map(Path, paths) if key.startswith("include") else ()
            for path, below in paths.items():
                for each in {os.path.normpath(path), os.path.realpath(path)}:
                    if not f"{root}/".startswith(f"{each.rstrip('/')}/"):
                        yield _Run(each, below)
                    # the work tree itself, or what it lies in: not all of it can be a hook
                    elif key == "core.hookspath":
                        yield from (_Run(os.path.join(each, name), True) for name in _HOOKS)
    for home in homes:
        yield from (_Run(path, True) for path in _hook_links(home / "hooks"))


def _words(key: str, value: str) -> dict[str, bool]:
    """What in a value may be a path: all of it, or each word of a command. True: what lies below is
    run, too.

    A plain word may as well be an argument (`make docs`), and so may any of an alias: of those,
    only a file of that very name is meant, or what Python would run of such a folder.
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
    """Where the repository of a work tree lies: there, or where a pointer says; and what its
    worktrees share.
    """
    home = dot_git
    if dot_git.is_file():
        pointer = _text(dot_git).removeprefix("gitdir:").strip()
        home = Path(os.path.normpath(dot_git.parent / pointer)) if pointer else dot_git
    shared = _text(home / "commondir").strip()
    return [home, *([Path(os.path.normpath(home / shared))] if shared else [])]


def _hook_links(hooks: Path) -> Iterator[str]:
    """Hooks that are links: the files they lead to are run."""
    try:
        with os.scandir(hooks) as listing:
            yield from (os.path.realpath(item.path) for item in listing if item.is_symlink())
    except OSError:
        return


def _text(file: Path) -> str:
    try:
        if not file.is_file():  # a pipe would be waited for
            return ""
        with file.open("rb") as opened:
            return opened.read(_CONFIG_MAX).decode("utf-8", "replace")
    except OSError:
        return ""


# ── executable configuration ─────────────────────────────────────────────────────────────────

# Names, globs of names, and, with a slash, globs of the end of a path; in any case. A reason says
# which program runs it, and when.
_EXECUTABLE: tuple[tuple[str, str], ...] = (
    # Python
    ("conftest.py", "pytest runs it before any test"),
    ("sitecustomize.py usercustomize.py", "every Python that finds it runs it at its start"),
    ("*.pth", "Python runs its lines at its start, where it is installed"),
    ("setup.py", "pip and other builders run it"),
    (
        "setup.cfg pyproject.toml",
        "pip, pytest and other tools take build hooks, plugins and commands from it",
    ),
    ("pytest.ini .pytest.ini tox.ini", "pytest and tox take plugins and commands from it"),
    ("noxfile.py", "nox runs it"),
    (
        "hatch_build.py Pipfile hatch.toml pdm.toml pixi.toml uv.toml conanfile.py",
        "the package manager runs it, or what it names",
    ),
    (".flake8", "the linter loads the plugins that it names"),
    (
        (
            "conf.py *.conf.py mkdocs.y*ml .mkdocs.y*ml book.toml _config.y*ml _plugins/* latexmkrc"
            " .latexmkrc"
        ),
        "the tool for documents or servers runs it, or its hooks",
    ),
    ("Snakefile *.smk", "snakemake runs it"),
    ("tasks.py fabfile.py dodo.py PRESUBMIT.py", "invoke, fabric, doit and depot_tools run it"),
    ("manage.py wsgi.py asgi.py celeryconfig.py", "a server or its tools run it at their start"),
    (
        "alembic.ini alembic/* migrations/env.py airflow.cfg dags/*",
        "the tool runs it, or what it names",
    ),
    (
        "requirements*.txt constraints*.txt requirements/*.txt environment.y*ml conda.y*ml",
        "pip or conda installs and runs what it names",
    ),
    (
        "poetry.toml .pdm.toml rye.toml buildout.cfg versioneer.py ez_setup.py",
        "the package manager runs it, or what it names",
    ),
    (
        "*-gdb.py *-gdb.gdb dvc.yaml .dvc/config MLproject .streamlit/*",
        "the tool it belongs to runs it, or what it names",
    ),
    (
        "pylintrc .pylintrc .pylintrc.toml mypy.ini .mypy.ini .coveragerc",
        "the linter or tool loads the plugins that it names",
    ),
    (
        "pip.conf .pypirc .pdbrc .pdbrc.py .pythonrc.py .pythonstartup",
        "pip, pdb or Python reads it by itself",
    ),
    (
        ".ipython/* .jupyter/* ipython_config.py jupyter_*_config.py",
        "IPython and Jupyter run it at their start",
    ),
    (
        (
            ".python-version .tool-versions .mise.toml mise.toml .rtx.toml mise.local.toml"
            " .mise.local.toml .config/mise/* .mise/* .mise-tasks/* .node-version .nvmrc"
            " .ruby-version .java-version .go-version .sdkmanrc .rvmrc .ruby-gemset .prototools"
            " .bazelversion .hermit/* bin/hermit .flox/*"
        ),
        "a version manager picks programs by it, or runs what it says",
    ),
    # shells, and the folder one enters
    (
        ".envrc .envrc.* .direnvrc direnvrc .autoenv* .in .out",
        "direnv runs it when the folder is entered",
    ),
    (
        ".env .env.*",
        "many tools take variables from it, with which programs can be made to load code",
    ),
    (
        (
            ".bashrc .bash_* .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc"
            " .tcshrc .login .logout config.fish fish/conf.d/* fish/functions/* .zsh/* .oh-my-zsh/*"
            " .aliases .functions .exports .xonshrc *profile.ps1 .lessfilter"
        ),
        "a shell runs it",
    ),
    (
        (
            ".inputrc .editrc .screenrc .tmux.conf .tmuxinator.y*ml .tmuxp.y*ml .teamocil.y*ml"
            " mprocs.yaml .mprocs.yaml process-compose.y*ml .xinitrc .xprofile .xsession"
        ),
        "a terminal program runs it",
    ),
    ("*.desktop *.service autorun.inf", "the desktop or the system starts what it names"),
    # builds
    (
        "Makefile Makefile.* GNUmakefile BSDmakefile *.mk *.mak Kbuild",
        "make runs it, or a tool that makes it",
    ),
    (
        (
            "autogen.sh bootstrap.sh Build.PL cpanfile binding.gyp build.zig build.zig.zon"
            " magefile.go magefiles/*"
        ),
        "a build runs it",
    ),
    (
        "project.clj deps.edn bb.edn build.boot shadow-cljs.edn",
        "the build tool runs it, or what it names",
    ),
    (
        (
            "xmake.lua premake5.lua BUILD.gn .gn PKGBUILD debian/rules build.cake build.fsx"
            " *.vcxproj nuget.config"
        ),
        "a build runs it",
    ),
    ("Earthfile docker-bake.* .dagger/* dagger.json", "earthly, docker or dagger runs it"),
    (
        (
            "site_scons/* Jamroot* Jamfile* Tupfile* build.ninja *.ninja platformio.ini west.yml"
            " Kconfig DEPS .gclient"
        ),
        "a build runs it",
    ),
    (
        (
            "make.bat build.bat build.cmd build.ps1 psakefile.ps1 build.sh install.sh bootstrap"
            " configure.win cleanup Makevars*"
        ),
        "a build runs it",
    ),
    (
        (
            "dub.json dub.sdl shard.yml *.nimble config.nims *.nims *.rockspec alire.toml *.gpr"
            " *.pro *.pri *.qbs"
        ),
        "a build runs it, or what it names",
    ),
    (
        "pants.toml pants-plugins/* BUILD.pants BUILD.plz .plzconfig* garden.y*ml werf.yaml",
        "a build runs it, or what it names",
    ),
    (
        "*.xcodeproj/* *.xcconfig .xcode.env ci_scripts/* Cartfile Mintfile Tuist/* Project.swift",
        "Xcode or its tools run it",
    ),
    (
        "bacon.toml .air.toml .watchr nodemon.json .watchmanconfig pm2.json",
        "a watcher runs what it says",
    ),
    (
        "justfile .justfile *.just Taskfile.yml Taskfile.yaml Taskfile.dist.y*ml",
        "a task runner runs it",
    ),
    ("CMakeLists.txt *.cmake CMakePresets.json CMakeUserPresets.json", "cmake runs it"),
    (
        (
            "meson.build meson.options configure configure.ac configure.in *.m4 SConstruct"
            " SConscript wscript"
        ),
        "a build runs it",
    ),
    (
        "BUILD BUILD.bazel WORKSPACE WORKSPACE.bazel MODULE.bazel *.bzl .bazelrc BUCK .buckconfig",
        "Bazel or Buck runs it",
    ),
    (
        (
            "build.gradle* settings.gradle* init.gradle* gradle.properties gradlew gradlew.bat"
            " gradle/wrapper/*"
        ),
        "Gradle runs it",
    ),
    ("pom.xml mvnw mvnw.cmd .mvn/* local.properties .jvmopts .sbtopts", "Maven runs it"),
    (
        (
            "build.sbt *.sbt build.sc build.mill project/build.properties .bsp/* .bloop/*"
            " .scalafix.conf nbproject/* build.xml ivy.xml project/*.scala"
        ),
        "the build tool runs it",
    ),
    (
        "build.rs Cargo.toml .cargo/config .cargo/config.toml rust-toolchain rust-toolchain.toml",
        "cargo runs it, or what it names",
    ),
    (
        "tools.go gen.go generate.go .golangci.y*ml .goreleaser.y*ml .ko.yaml",
        "go, or a tool of it, runs it",
    ),
    ("buildSrc/* build-logic/*", "Gradle builds and runs it before the build"),
    ("go.mod go.work", "go fetches and runs the toolchain that it names"),
    (
        (
            "Rakefile rakefile *.rake Gemfile *.gemspec Guardfile Capfile Thorfile Vagrantfile"
            " Podfile Fastfile Dangerfile Brewfile Appfile Steepfile Gemfile.lock .gemrc"
            " .bundle/config spec_helper.rb test_helper.rb bin/rails bin/setup config/boot.rb"
            " config/environment.rb config/initializers/*"
        ),
        "Ruby runs it",
    ),
    (".rspec .irbrc .pryrc config.ru", "Ruby tools run it, or load what it names"),
    (
        (
            "phpunit.xml* .php-cs-fixer* .php_cs* rector.php phpstan.neon* psalm.xml* artisan"
            " grumphp.y*ml captainhook.json"
        ),
        "PHP tools run it",
    ),
    (".user.ini .htaccess web.config wp-config.php", "the web server runs it, or what it names"),
    ("composer.json", "composer runs the scripts in it"),
    (
        "mix.exs .iex.exs .formatter.exs .credo.exs .erlang rebar.config rebar.config.script",
        "the build tool runs it",
    ),
    (
        (
            "cabal.project* package.yaml hie.yaml .ocamlinit deps/build.jl startup.jl"
            " renv/activate.R _targets.R dune dune-project *.opam stack.yaml *.cabal Setup.hs"
            " Package.swift *.csproj *.fsproj *.vbproj *.props *.targets"
        ),
        "a build runs it",
    ),
    (
        (
            "flake.nix shell.nix default.nix devenv.nix devbox.json .nixrc shell.scm guix.scm"
            " manifest.scm channels.scm .guix-channel"
        ),
        "nix, devenv or devbox runs it",
    ),
    # JavaScript
    (
        ".pnp.cjs .pnp.*js rush.json common/config/rush/* moon.yml .moon/* angular.json",
        "the package manager or a task runner runs it",
    ),
    (
        (
            "*-config.js *-config.cjs *-config.mjs *-config.ts gatsby-*.js gatsby-*.ts"
            " ember-cli-build.js .storybook/* .vuepress/*"
        ),
        "the tool it is named after runs it",
    ),
    (
        "tsconfig*.json tslint.json jest.config.* babel.config.* .postcssrc* .nycrc* .taprc .c8rc*",
        "the tool loads the plugins that it names",
    ),
    (
        "plopfile* .hygen* _templates/* Cakefile wallaby.js build.js build.mjs esbuild.js",
        "a task runner or a build runs it",
    ),
    ("package.json", "npm, yarn and pnpm run the scripts in it, some at each install"),
    (
        (
            ".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs pnpmfile.js pnpm-workspace.yaml bunfig.toml"
            " .yarn/*"
        ),
        "the package manager reads or runs it",
    ),
    (
        "*.config.js *.config.cjs *.config.mjs *.config.ts *.config.mts *.config.cts *.conf.js",
        "the tool it is named after runs it",
    ),
    (
        (
            ".*rc.js .*rc.cjs .*rc.mjs .*rc.ts .eslintrc* .babelrc* .mocharc* .lintstagedrc* .swcrc"
            " .prettierrc* .stylelintrc* .releaserc*"
        ),
        "the tool it is named after runs it, or its plugins",
    ),
    (
        (
            "gulpfile* Gruntfile* Jakefile* deno.json deno.jsonc turbo.json nx.json lerna.json"
            " .parcelrc"
        ),
        "a task runner runs it, or what it names",
    ),
    # hooks
    (
        (
            ".husky/* .githooks/* .git-hooks/* .lefthook/* .hooks/* githooks/* git-hooks/*"
            " hooks/pre-* hooks/post-* hooks/*-msg"
        ),
        "git runs it, where hooks are set up like this",
    ),
    (
        (
            "lefthook.yml lefthook.yaml .lefthook.y*ml lefthook-local.yml .overcommit.yml .huskyrc*"
            " commitlint.config.* .simple-git-hooks.* simple-git-hooks.* .nano-staged* .czrc"
            " .cz.toml .versionrc* .release-it.*"
        ),
        "git hooks run what it says",
    ),
    (
        ".pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml",
        "pre-commit runs what it says, at each commit where it is set up",
    ),
    (
        ".gitattributes",
        "git runs filters, and merge and diff drivers, on the files that it names",
    ),
    (".gitmodules", "git fetches what it names, and checks it out"),
    (
        (
            ".gitconfig .lfsconfig .hgrc .hgsub .hgsubstate .hgeol .p4config .arcconfig"
            " .fossil-settings/*"
        ),
        "version control takes settings from it",
    ),
    # continuous integration
    (
        (
            ".github/workflows/* .github/actions/* action.yml action.yaml .gitea/workflows/*"
            " .forgejo/workflows/*"
        ),
        "CI runs it, with its keys",
    ),
    (
        (
            ".gitlab-ci.yml .gitlab-ci.yaml .gitlab/ci/* *.gitlab-ci.yml .travis.yml .circleci/*"
            " Jenkinsfile* .buildkite/*"
        ),
        "CI runs it, with its keys",
    ),
    (
        (
            "azure-pipelines*.y*ml .azure-pipelines/* bitbucket-pipelines.yml .drone.y*ml"
            " .woodpecker.y*ml .woodpecker/*"
        ),
        "CI runs it, with its keys",
    ),
    (
        (
            "appveyor.yml .appveyor.yml .cirrus.yml .semaphore/* cloudbuild.y*ml buildspec.y*ml"
            " .builds/* .build.yml wercker.yml"
        ),
        "CI runs it",
    ),
    (
        (
            ".readthedocs.y*ml netlify.toml vercel.json render.yaml fly.toml app.json Procfile"
            " Procfile.*"
        ),
        "a host runs it, or what it names",
    ),
    (
        (
            ".teamcity/* .tekton/* .zuul.y*ml zuul.y*ml .zuul.d/* zuul.d/* codefresh.y*ml"
            " .codefresh/* bitrise.y*ml codemagic.y*ml"
        ),
        "CI runs it, with its keys",
    ),
    (
        (
            "*.tf *.tf.json terragrunt.hcl Pulumi*.y*ml serverless.* samconfig.toml cdk.json"
            " wrangler.toml wrangler.json* firebase.json now.json"
        ),
        "it says what is run when the project is deployed",
    ),
    (
        (
            "railway.* nixpacks.toml heroku.yml app.yaml amplify.yml Chart.yaml helmfile.y*ml"
            " kustomization.y*ml garden.y*ml okteto.y*ml project.toml"
        ),
        "it says what is run when the project is deployed",
    ),
    ("renovate.json .renovaterc* .github/dependabot.yml", "a bot changes dependencies by it"),
    # containers and machines
    (
        "Dockerfile Dockerfile.* *.Dockerfile Containerfile Containerfile.* *.Containerfile",
        "docker builds, and runs, by it",
    ),
    ("docker-compose*.y*ml compose.y*ml compose.*.y*ml", "docker starts what it says"),
    (
        ".devcontainer/* .devcontainer.json devfile.yaml .gitpod.yml .gitpod.Dockerfile",
        "an editor builds and enters it",
    ),
    (
        "Tiltfile skaffold.yaml devspace.yaml ansible.cfg .ansible.cfg tilt_modules/*",
        "the tool runs it, or the plugins that it names",
    ),
    # editors, debuggers, assistants
    (".vscode/* *.code-workspace", "VS Code runs tasks and programs that it names"),
    (
        (
            ".idea/* .run/* .fleet/* .zed/* .nova/* *.sublime-project *.sublime-build .theia/*"
            " .vs/* *.vs.json .settings/* .project .externalToolBuilders/* *.launch .helix/*"
            " .vimspector.json coc-settings.json"
        ),
        "the editor runs what it names",
    ),
    (
        (
            ".vimrc .nvimrc .exrc .nvim.lua .lvimrc _vimrc .dir-locals.el .emacs .projectile"
            " .clangd .ycm_extra_conf.py .vim/* .nvim/* .local.vimrc .dir-locals-2.el Cask Eask"
            " Eldev .kakrc .luarc.json .luacheckrc .busted"
        ),
        "the editor runs it",
    ),
    (".gdbinit .lldbinit .lldbinit-*", "the debugger runs it at its start"),
    (
        (
            ".mcp.json mcp.json .claude/* .cursor/* .codex/* .gemini/* .aider.conf.yml .continue/*"
            " .windsurf/* .roo/* .kiro/* .amazonq/* .opencode/* opencode.json* .junie/* .trae/*"
            " .vscode-test.*"
        ),
        "a coding assistant starts what it names",
    ),
    (
        (
            "AGENTS.md CLAUDE.md GEMINI.md .cursorrules .windsurfrules .clinerules .roomodes"
            " .goosehints copilot-instructions.md"
        ),
        "a coding assistant takes it for what its user wants",
    ),
    (
        (
            ".rprofile rprofile.site .renviron .juliarc.jl .ghci .octaverc .duckdbrc .mongorc.js"
            " .mongoshrc.js .radare2rc .r2rc .perltidyrc .proverc .pythonrc .pystartup .sqliterc"
            " .psqlrc .my.cnf"
        ),
        "an interpreter or a client runs it at its start",
    ),
    (".ssh/* .netrc .curlrc .wgetrc", "programs that connect read it by themselves"),
    # environments, where they are part of the tree
    (
        (
            ".venv/bin/* venv/bin/* .venv/scripts/* venv/scripts/* .tox/*/bin/* .nox/*/bin/*"
            " pyvenv.cfg"
        ),
        "it is run in place of the program it is called after",
    ),
    ("site-packages/* dist-packages/*", "Python imports it in every program of this environment"),
    ("node_modules/.bin/*", "npm scripts run it in place of the program it is called after"),
)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [(_any_of(globs.split()), why) for globs, why in _EXECUTABLE]


@cache
def _folder_patterns() -> list[tuple[re.Pattern[str], str]]:
    """Folders in which something is run: a link in the place of one stands for all that it leads
    to.
    """
    found: list[tuple[re.Pattern[str], str]] = []
    for globs, why in _EXECUTABLE:
        parts = [glob.split("/") for glob in globs.split() if "/" in glob]
        if parts:
            found.append(
                (
                    _any_of("/".join(each[:end]) for each in parts for end in range(1, len(each))),
                    why,
                )
            )
    return found


def _any_of(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(glob.casefold()) for glob in globs))


def executable_reason(path: str, *, is_link: bool = False) -> str | None:
    """Which program runs a file of this path by itself. None: no one that is known."""
    parts = [folded(part) for part in path.split("/")]
    ends = ["/".join(parts[at:]) for at in range(len(parts))]
    patterns = [*_patterns(), *(_folder_patterns() if is_link else ())]
    return next(
        (why for pattern, why in patterns if any(pattern.fullmatch(end) for end in ends)), None
    )


def executables(
    reader: TreeReader, folder: Path, tree: Digest, todo: Iterable[Change]
) -> dict[str, str]:
    """Which of the paths that are written are run, and by which program, under their own names or
    by a link that the tree has then.
    """
    root, links = os.path.realpath(folder), dict[str, list[str]]()
    for path, entry in reader.walk(tree):
        if (
            entry.kind == "link"
            and (end := _link_end(reader, root, tree, path, entry.target)) is not None
        ):
            links.setdefault(end, []).append(path)
    found: dict[str, str] = {}
    for change in todo:
        if change.after is None:
            continue
        is_link = change.after.kind == "link"
        for name in _names_of(change.path, links):
            if (why := executable_reason(name, is_link=is_link)) is not None:
                found[change.path] = (
                    why if name == change.path else f"by a link it is {name!r}: {why}"
                )
                break
    return found


_NAMES_MAX = 1000  # of one file, by links


def _names_of(path: str, links: Mapping[str, Sequence[str]]) -> list[str]:
    """A path, and those that lead to the same by links."""
    found = [path]
    for name in found:  # grows meanwhile: a link may lie below another
        parts = name.split("/") if links else []
        for end in range(len(parts) + 1):
            for link in links.get("/".join(parts[:end]), ()):
                other = "/".join([link, *parts[end:]])
                if other not in found and len(found) < _NAMES_MAX and other.count("/") < LINKS_MAX:
                    found.append(other)
    return found


def _link_end(reader: TreeReader, root: str, tree: Digest, path: str, target: str) -> str | None:
    """Where a link of a tree leads to in it. None: out of it, or nowhere."""
    done, rest, links = path.split("/"), list[str](), 0
    while target:
        done, links = done[:-1], links + 1
        if links > LINKS_MAX or (
            target.startswith("/") and not f"{target}/".startswith(f"{root}/")
        ):
            return None
        if target.startswith("/"):
            done, target = [], target[len(root) :]
        rest, target = [*target.split("/"), *rest], ""
        while rest and not target:
            name = rest.pop(0)
            if name == ".." and not done:  # out, and perhaps in again
                back = os.path.relpath(
                    os.path.normpath(os.path.join(root, "..", *rest)), root
                ).split("/")
                if back[0] == "..":
                    return None
                rest = back
            elif name == "..":
                done.pop()
            elif name not in ("", "."):
                done.append(name)
                entry = reader.find(tree, "/".join(done))
                target = entry.target if entry is not None and entry.kind == "link" else ""
    return "/".join(done)
